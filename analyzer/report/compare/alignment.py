"""Reporting: which operators and modules of two records are the same, where layers were renamed or rewritten.

``operator_matching`` pairs what kept its module path. What is left over is looked for here: under a module's
new name, between neighbours that are paired, and in the module around or inside its own.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher

from analyzer.checks.fusion import Match, match
from analyzer.record.analysis import Analysis, OperatorResult
from analyzer.report.module_tree import Module, tree

# Modules with a smaller share of their operators' types in common are two, whatever they are called.
_SIMILAR = 0.6
# SequenceMatcher compares each repeated type with each: above this product a page would wait for seconds.
_MOST_COMPARED = 250_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Alignment:
    """Two records side by side.

    Attributes:
        match: The operators, paired or on one side alone.
        base_paths, new_paths: By operator the path of its module, under the name that the new record has for
            it; empty for the model itself.
        renamed: The base's path of each module that has another in the new record, by that one.
        moved: The base's path of each operator that another module holds in the new record, by its index there.
        classes: The class of each module that names one, by its path in the new record.
    """

    match: Match
    base_paths: tuple[str, ...]
    new_paths: tuple[str, ...]
    renamed: Mapping[str, str]
    moved: Mapping[int, str]
    classes: Mapping[str, str]


def align(base: Analysis, new: Analysis) -> Alignment:
    """Pair operators by module path and type, then by renamed modules, neighbours and enclosing modules."""
    before, after = _Modules.of(base), _Modules.of(new)
    names = _joined_names(before, after)
    base_paths = tuple(names[number] for number in before.of_operator)
    new_paths = tuple(after.tree[number].path for number in after.of_operator)
    renamed = {
        name: module.path for module, name in zip(before.tree, names, strict=True) if module.path != name
    }
    translated = tuple(
        # What the exporter left without a module stays so: its neighbours' is only where it is shown.
        replace(operator, module=path) if operator.module and path in renamed else operator
        for operator, path in zip(base.operators, base_paths, strict=True)
    )
    result = match(replace(base, operators=translated), new)
    pairs = [(base.operators[old.index], now) for old, now in result.pairs]
    partners = _between_neighbours(
        base, new, base_paths, new_paths, {old.index: now.index for old, now in pairs}
    )
    pairs += [(base.operators[old], new.operators[now]) for old, now in partners]
    gone, added = _left(base, pairs, 0), _left(new, pairs, 1)
    moves = _moves(gone, added, base_paths, new_paths)
    pairs += [(base.operators[old], new.operators[now]) for old, now in moves]
    pairs.sort(key=lambda pair: pair[1].index)
    gone, added = _left(base, pairs, 0), _left(new, pairs, 1)
    return Alignment(
        match=Match(pairs=tuple(pairs), gone=tuple(gone), new=tuple(added)),
        base_paths=base_paths,
        new_paths=new_paths,
        renamed=renamed,
        moved={now: base_paths[old] for old, now in moves},
        classes={
            path: module.class_name
            for side, paths in ((before, names), (after, [module.path for module in after.tree]))
            for path, module in zip(paths, side.tree, strict=True)
            if module.class_name
        },
    )


def _left(
    analysis: Analysis, pairs: Sequence[tuple[OperatorResult, OperatorResult]], side: int
) -> list[OperatorResult]:
    taken = {pair[side].index for pair in pairs}
    return [operator for operator in analysis.operators if operator.index not in taken]


# --- modules that have another name ---------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class _Modules:
    """One record's modules, parents first; for each its children and the types of all operators inside."""

    tree: tuple[Module, ...]
    of_operator: tuple[int, ...]
    children: Mapping[int, Sequence[int]]
    types: Mapping[int, tuple[str, ...]]

    @classmethod
    def of(cls, analysis: Analysis) -> _Modules:
        modules, of_operator = tree(analysis)
        children: dict[int, list[int]] = defaultdict(list)
        for module in modules:
            if module.parent is not None:
                children[module.parent].append(module.number)
        types: dict[int, list[str]] = defaultdict(list)
        for operator, number in zip(analysis.operators, of_operator, strict=True):
            at: int | None = number
            while at is not None:
                types[at].append(operator.op_type)
                at = modules[at].parent
        return cls(
            tree=modules,
            of_operator=of_operator,
            children=children,
            types={number: tuple(inside) for number, inside in types.items()},
        )


def _joined_names(before: _Modules, after: _Modules) -> list[str]:
    """Return the path that each module of the base has in the new record, or would have there."""
    partners = {0: 0}
    waiting = [(0, 0)]
    while waiting:
        old, now = waiting.pop()
        inside = list(
            _children_joined(before, after, before.children.get(old, ()), after.children.get(now, ()))
        )
        partners.update(inside)
        waiting += inside
    names = [""]
    for module in before.tree[1:]:
        partner = partners.get(module.number)
        around = module.parent or 0
        if partner is not None:
            names.append(after.tree[partner].path)
        elif names[around] == before.tree[around].path:
            names.append(module.path)
        else:
            names.append(f"{names[around]}.{module.name}")
    return names


def _children_joined(
    before: _Modules, after: _Modules, old: Sequence[int], now: Sequence[int]
) -> Iterator[tuple[int, int]]:
    """Modules of one parent: those of one name and a similar inside, then those of one inside, then by name."""
    named = {after.tree[number].name: number for number in now}
    same = {number: named.get(before.tree[number].name) for number in old}
    # A layer put into a Sequential shifts the numbers of all behind it: a name alone may be another layer's.
    pairs = {a: b for a, b in same.items() if b is not None and _similar(before.types[a], after.types[b])}
    yield from pairs.items()
    rest_old = [number for number in old if number not in pairs]
    rest_now = [number for number in now if number not in set(pairs.values())]
    aligned = dict(_aligned(before, after, rest_old, rest_now))
    yield from aligned.items()
    taken = set(aligned.values())
    for number in rest_old:
        partner = same[number]
        if number not in aligned and partner is not None and partner not in taken:
            yield number, partner


def _aligned(
    before: _Modules, after: _Modules, old: Sequence[int], now: Sequence[int]
) -> Iterator[tuple[int, int]]:
    if len(old) * len(now) > _MOST_COMPARED:
        return
    insides = [before.types[number] for number in old], [after.types[number] for number in now]
    for tag, a_from, a_to, b_from, b_to in _opcodes(*insides):
        for a, b in zip(old[a_from:a_to], now[b_from:b_to], strict=False):
            if tag == "equal" or (tag == "replace" and _similar(before.types[a], after.types[b])):
                yield a, b


def _similar(one: tuple[str, ...], other: tuple[str, ...]) -> bool:
    # The quick ratio counts types whatever their order, in linear time.
    return one == other or SequenceMatcher(None, one, other, autojunk=False).quick_ratio() >= _SIMILAR


def _opcodes(one: Sequence[Hashable], other: Sequence[Hashable]) -> Sequence[tuple[str, int, int, int, int]]:
    # "autojunk" would leave out whatever is in more than a hundredth of a long list: every Conv and Relu.
    return SequenceMatcher(None, one, other, autojunk=False).get_opcodes()


# --- operators between neighbours that are paired -------------------------------------------------------


def _between_neighbours(
    base: Analysis,
    new: Analysis,
    base_paths: Sequence[str],
    new_paths: Sequence[str],
    partners: dict[int, int],
) -> list[tuple[int, int]]:
    """Return pairs of one type at one place of a module's order."""
    known = set(partners.values())
    sides: dict[Hashable, tuple[list[int], list[int]]] = defaultdict(lambda: ([], []))
    for side, (analysis, paths) in enumerate(((base, base_paths), (new, new_paths))):
        for operator, path in zip(analysis.operators, paths, strict=True):
            sides[operator.phase, path][side].append(operator.index)
    pairs: list[tuple[int, int]] = []
    for old, now in sides.values():
        gone, added = [i for i in old if i not in partners], [i for i in now if i not in known]
        if not gone or not added or len(gone) * len(added) > _MOST_COMPARED:
            continue
        # A pair is a token of its own, which holds the order between the two; the rest goes by type.
        first = [_token(base.operators[i], partners.get(i)) for i in old]
        second = [_token(new.operators[i], i if i in known else None) for i in now]
        for tag, a_from, a_to, b_from, b_to in _opcodes(first, second):
            if tag == "equal":
                # Both are unpaired at the same places: a paired token equals nothing but its own.
                pairs += (
                    (a, b)
                    for a, b in zip(old[a_from:a_to], now[b_from:b_to], strict=True)
                    if a not in partners and b not in known
                )
    return pairs


def _token(operator: OperatorResult, pair: int | None) -> Hashable:
    return (operator.domain, operator.op_type) if pair is None else pair


# --- operators that another module holds now ------------------------------------------------------------


def _moves(
    gone: Sequence[OperatorResult],
    added: Sequence[OperatorResult],
    base_paths: Sequence[str],
    new_paths: Sequence[str],
) -> list[tuple[int, int]]:
    """Pairs by one source line; then those that an exporter gave to the module around or inside their own."""
    old, now = (
        [operator for operator in operators if operator.source is not None and operator.source.code]
        for operators in (gone, added)
    )
    moves: list[tuple[int, int]] = []
    if len(old) * len(now) <= _MOST_COMPARED:
        for a, b, size in SequenceMatcher(
            None, [_line(each) for each in old], [_line(each) for each in now], autojunk=False
        ).get_matching_blocks():
            moves += [(old[a + k].index, now[b + k].index) for k in range(size)]
    taken = {index for _, index in moves}
    moved = {index for index, _ in moves}
    below: dict[Hashable, list[int]] = defaultdict(list)
    at: dict[Hashable, list[int]] = defaultdict(list)
    for operator in reversed(added):
        path = new_paths[operator.index]
        if operator.index not in taken and path:
            at[_kind(operator), path].append(operator.index)
            for around in _around(path):
                below[_kind(operator), around].append(operator.index)
    for operator in gone:
        path = base_paths[operator.index]
        if operator.index in moved or not path:
            continue
        kind = _kind(operator)
        queues = [below[kind, path], *(at[kind, around] for around in _around(path))]
        partner = next((index for queue in queues if (index := _next(queue, taken)) is not None), None)
        if partner is not None:
            taken.add(partner)
            moves.append((operator.index, partner))
    return moves


def _next(queue: list[int], taken: set[int]) -> int | None:
    while queue and queue[-1] in taken:
        queue.pop()
    return queue[-1] if queue else None


def _around(path: str) -> list[str]:
    """Return the paths of all modules around this one, the innermost first, the model itself left out."""
    parts = path.split(".")
    return [".".join(parts[:length]) for length in range(len(parts) - 1, 0, -1)]


def _kind(operator: OperatorResult) -> Hashable:
    shapes = tuple(tensor.shape for tensor in operator.outputs)
    return operator.phase, operator.domain, operator.op_type, shapes


def _line(operator: OperatorResult) -> Hashable:
    return _kind(operator), operator.source.code if operator.source else ""
