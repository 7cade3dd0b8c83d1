"""Reporting: the graphs of two records made one: every operator once, in modules with their sums."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from analyzer.checks.phrases import total
from analyzer.record.analysis import Analysis
from analyzer.report.compare.alignment import Alignment
from analyzer.report.compare.joined_graph import JoinedGraph, JoinedModule, JoinedNumbers, JoinedOperator
from analyzer.report.compare.joined_sessions import copies, edges, fusions
from analyzer.report.compare.largest_changes import largest, module_changes, worst
from analyzer.report.compare.sides import ComparedSide, flips
from analyzer.report.module_tree import tree

# A module with more things directly in it is shown in parts: a graph of more boxes is laid out too slowly, and
# cannot be read.
CROWDED, PART = 60, 40


def join(base: ComparedSide, new: ComparedSide, aligned: Alignment) -> JoinedGraph:
    """Both sides' graphs as one.

    Args:
        base: The first record.
        new: The other.
        aligned: Which operators of theirs are the same.
    """
    modules, operators = _joined(base, new, aligned)
    numbers = JoinedNumbers.of(operators)
    replaced = tuple(
        (
            tuple(numbers.base[index] for index in one.gone),
            tuple(numbers.new[index] for index in one.new),
        )
        for one in aligned.replaced
    )
    copied = tuple(copies(base, new, numbers))
    return JoinedGraph(
        modules=modules,
        operators=operators,
        edges=edges(base, new, numbers),
        replaced=replaced,
        fusion_changes=tuple(fusions(base, new, modules, operators, numbers)),
        copy_changes=copied,
        changes=largest(base, new, operators, replaced, copied),
        module_changes=module_changes(modules, operators),
        worst=worst(modules),
    )


def _joined(
    base: ComparedSide, new: ComparedSide, aligned: Alignment
) -> tuple[tuple[JoinedModule, ...], tuple[JoinedOperator, ...]]:
    pairs = _in_order(base.analysis, new.analysis, aligned)
    groups = _groups(base), _groups(new)
    paths = [_path(pair, aligned) for pair in pairs]
    modules, of_operator = _in_parts(*_modules(paths, new.analysis.model.name))
    operators = tuple(
        _operator(number, pair, base, new, module=module, groups=groups, moved=aligned.moved)
        for number, (pair, module) in enumerate(zip(pairs, of_operator, strict=True))
    )
    named = _described(modules, base.analysis, new.analysis, aligned)
    return _summed(named, operators), operators


# An operator's indices in the base and in the new record; one of them may be None.
_Pair = tuple[int | None, int | None]


def _in_order(base: Analysis, new: Analysis, aligned: Alignment) -> list[_Pair]:
    """Every operator once: in the new graph's order, what is gone behind its predecessor in the base."""
    partner = {old.index: now.index for old, now in aligned.match.pairs}
    became = {now: old for old, now in partner.items()}
    # By its own or its predecessor's index in the new graph; what is gone comes behind, as the base has it.
    order: list[tuple[int, int, _Pair]] = [
        (each.index, -1, (became.get(each.index), each.index)) for each in new.operators
    ]
    last = -1
    for each in base.operators:
        last = partner.get(each.index, last)
        if each.index not in partner:
            order.append((last, each.index, (each.index, None)))
    return [pair for *_, pair in sorted(order, key=lambda one: one[:2])]


def _path(pair: _Pair, aligned: Alignment) -> str:
    old, now = pair
    return aligned.new_paths[now] if now is not None else aligned.base_paths[old or 0]


def _operator(
    number: int,
    pair: _Pair,
    base: ComparedSide,
    new: ComparedSide,
    *,
    module: int,
    groups: tuple[Mapping[int, int], Mapping[int, int]],
    moved: Mapping[int, str],
) -> JoinedOperator:
    old = None if pair[0] is None else base.analysis.operators[pair[0]]
    now = None if pair[1] is None else new.analysis.operators[pair[1]]
    device, placed_on = (None, None) if old is None or now is None else flips(base, old, new, now)
    return JoinedOperator(
        number=number,
        module=module,
        base=pair[0],
        new=pair[1],
        base_s=None if old is None else base.time(old),
        new_s=None if now is None else new.time(now),
        base_group=None if old is None else groups[0].get(old.index),
        new_group=None if now is None else groups[1].get(now.index),
        device=device,
        placed_on=placed_on,
        was=None if now is None else moved.get(now.index),
    )


def _modules(paths: Iterable[str], model: str) -> tuple[list[JoinedModule], list[int]]:
    """A module for each path and for all around it, parents first; and the number of each path's."""
    modules = [JoinedModule(number=0, parent=None, path="", name=model)]
    numbers = {"": 0}

    def number(path: str) -> int:
        if path not in numbers:
            around, _, name = path.rpartition(".")
            parent = number(around)
            numbers[path] = len(modules)
            modules.append(JoinedModule(number=len(modules), parent=parent, path=path, name=name))
        return numbers[path]

    return modules, [number(path) for path in paths]


def _in_parts(
    modules: Sequence[JoinedModule], of_operator: Sequence[int]
) -> tuple[list[JoinedModule], list[int]]:
    """Crowded modules in parts: what is directly in them, so many at a time in their order."""
    found, of_operator = list(modules), list(of_operator)
    first = [len(of_operator)] * len(modules)
    for number, module in enumerate(of_operator):
        at: int | None = module
        while at is not None:
            first[at] = min(first[at], number)
            at = modules[at].parent
    # By module what is directly in it: where it begins, then the operator or the module.
    inside: dict[int, list[tuple[int, str, int]]] = defaultdict(list)
    for number, module in enumerate(of_operator):
        inside[module].append((number, "operator", number))
    for each in modules[1:]:
        inside[each.parent or 0].append((first[each.number], "module", each.number))
    for owner, items in inside.items():
        items.sort()
        while len(items) > CROWDED:
            runs = [items[at : at + PART] for at in range(0, len(items), PART)]
            items = []
            for place, run in enumerate(runs, 1):
                part = len(found)
                name = f"part {place} of {len(runs)}"
                around = modules[owner].path
                path = f"{around}, {name}" if around else name
                found.append(JoinedModule(number=part, parent=owner, path=path, name=name, is_part=True))
                for _, kind, number in run:
                    if kind == "operator":
                        of_operator[number] = part
                    else:
                        found[number] = replace(found[number], parent=part)
                items.append((run[0][0], "module", part))
    return found, of_operator


def _described(
    modules: Sequence[JoinedModule], base: Analysis, new: Analysis, aligned: Alignment
) -> list[JoinedModule]:
    """With the class of each, and the base's name where that is another."""
    was = aligned.renamed
    classes = {module.path: module.class_name for side in (base, new) for module in tree(side)[0]}
    return [
        module
        if module.is_part
        else replace(
            module,
            class_name=classes.get(module.path) or classes.get(was.get(module.path, ""), "") or "",
            was=was.get(module.path, ""),
        )
        for module in modules
    ]


def _summed(modules: Sequence[JoinedModule], operators: Iterable[JoinedOperator]) -> tuple[JoinedModule, ...]:
    """With sums over all operators inside; a time that nobody knows stays None."""
    inside: dict[int, list[JoinedOperator]] = defaultdict(list)
    for operator in operators:
        at: int | None = operator.module
        while at is not None:
            inside[at].append(operator)
            at = modules[at].parent
    return tuple(
        replace(
            module,
            operators=len(inside[module.number]),
            added=sum(each.state == "new" for each in inside[module.number]),
            gone=sum(each.state == "gone" for each in inside[module.number]),
            flipped=sum(each.flipped for each in inside[module.number]),
            base_s=total(each.base_s for each in inside[module.number]),
            new_s=total(each.new_s for each in inside[module.number]),
            rise_s=sum(each.rise_s for each in inside[module.number]),
        )
        for module in modules
    )


def _groups(side: ComparedSide) -> dict[int, int]:
    """For each operator the number of its group in the target's session."""
    return {
        member: number
        for number, group in enumerate(side.analysis.groups)
        if group.session == side.session
        for member in group.members
    }
