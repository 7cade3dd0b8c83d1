"""Reporting: the modules of two records as one tree, with every operator once."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Literal

from analyzer.checks.phrases import operator_label, source_location, total
from analyzer.record.analysis import Analysis, GroupResult
from analyzer.report.compare.alignment import Alignment
from analyzer.report.compare.comparison import (
    FusionChange,
    JoinedModule,
    JoinedTree,
    ModuleChange,
    OperatorChange,
    apart,
)
from analyzer.report.compare.sides import ComparedSide, is_change

# Entries of the list of modules that changed most.
MOST = 10


def join(base: ComparedSide, new: ComparedSide, aligned: Alignment) -> JoinedTree:
    """Join both sides' operators by module path."""
    pairs = _in_order(base.analysis, new.analysis, aligned)
    operators = tuple(_operator(pair, base, new) for pair in pairs)
    paths = [aligned.base_paths[old or 0] if now is None else aligned.new_paths[now] for old, now in pairs]
    modules, module_of = _modules(paths, operators, new.analysis.model.name, aligned)
    return JoinedTree(
        modules=modules,
        operators=operators,
        module_of=module_of,
        moved={at: aligned.moved[now or 0] for at, (_, now) in enumerate(pairs) if now in aligned.moved},
        fusions=tuple(_fusions(base, new, operators, paths)),
        changes=_module_changes(modules, module_of, operators),
    )


# An operator's indices in the base and in the new record; one of them may be None.
_Pair = tuple[int | None, int | None]


def _in_order(base: Analysis, new: Analysis, aligned: Alignment) -> list[_Pair]:
    """Return every operator once: in the new graph's order, what is gone behind its predecessor in the base."""
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


def _operator(pair: _Pair, base: ComparedSide, new: ComparedSide) -> OperatorChange:
    old = None if pair[0] is None else base.analysis.operators[pair[0]]
    now = None if pair[1] is None else new.analysis.operators[pair[1]]
    shown = now or old
    device = placed_on = None
    if old is not None and now is not None:
        # Of a record without a GPU all is on the CPU: that is another question and no flip.
        if base.analysis.devices.gpu and new.analysis.devices.gpu and old.placement != now.placement:
            device = old.placement, now.placement
        if old.gpu and now.gpu and old.gpu.placed_on != now.gpu.placed_on:
            placed_on = old.gpu.placed_on, now.gpu.placed_on
    (base_s, before), (new_s, after) = base.time(old), new.time(now)
    return OperatorChange(
        name="" if shown is None else operator_label(shown),
        where=source_location(shown),
        base=pair[0],
        new=pair[1],
        device=device,
        placed_on=placed_on,
        base_s=base_s,
        new_s=new_s,
        certain=bool(apart(before, after)),
    )


def _modules(
    paths: Sequence[str], operators: Sequence[OperatorChange], model: str, aligned: Alignment
) -> tuple[tuple[JoinedModule, ...], tuple[int, ...]]:
    """Return a module for each path and for all around it, parents first; and the number of each path's."""
    numbers = {"": 0}
    parents: list[int | None] = [None]
    inside: dict[int, list[OperatorChange]] = defaultdict(list)

    def number_of(path: str) -> int:
        if path not in numbers:
            parents.append(number_of(path.rpartition(".")[0]))
            numbers[path] = len(parents) - 1
        return numbers[path]

    module_of = tuple(map(number_of, paths))
    for operator, number in zip(operators, module_of, strict=True):
        at: int | None = number
        while at is not None:
            inside[at].append(operator)
            at = parents[at]
    return tuple(
        JoinedModule(
            number=number,
            parent=parents[number],
            path=path,
            name=path.rpartition(".")[2] if path else model,
            class_name=aligned.classes.get(path, ""),
            was=aligned.renamed.get(path, ""),
            inside=tuple(inside[number]),
        )
        for path, number in numbers.items()
    ), module_of


def _fusions(
    base: ComparedSide, new: ComparedSide, operators: Sequence[OperatorChange], paths: Sequence[str]
) -> Iterator[FusionChange]:
    """Yield groups of operators that both records have, where the other does not run the same as one."""
    both = {number for number, each in enumerate(operators) if each.in_both}

    def fused(side: ComparedSide, indices: Iterable[int | None]) -> Mapping[frozenset[int], GroupResult]:
        number_of = {index: number for number, index in enumerate(indices)}
        # What came or went with its operators tells nothing of the session: those both have decide.
        sets = (
            (frozenset(number_of[index] for index in group.members) & both, group)
            for group in side.analysis.groups
            if group.session == side.session
        )
        return {members: group for members, group in sets if len(members) > 1}

    before, after = fused(base, [each.base for each in operators]), fused(new, [each.new for each in operators])
    states: tuple[Literal["new", "gone"], ...] = ("new", "gone")
    for state, here, there in zip(states, (after, before), (before, after), strict=True):
        for members, group in here.items():
            if members not in there:
                ordered = tuple(sorted(members))
                yield FusionChange(
                    state=state,
                    op_type=group.op_type,
                    of=tuple(new.analysis.operators[operators[at].new or 0].op_type for at in ordered),
                    module=paths[ordered[0]],
                    operators=ordered,
                )


def _module_changes(
    modules: Sequence[JoinedModule], module_of: Sequence[int], operators: Sequence[OperatorChange]
) -> tuple[ModuleChange, ...]:
    """Return those that changed most: the one that did is opened until there are enough for a list."""
    children: dict[int, list[JoinedModule]] = defaultdict(list)
    for module in modules[1:]:
        children[module.parent or 0].append(module)
    direct: dict[int, list[OperatorChange]] = defaultdict(list)
    for operator, number in zip(operators, module_of, strict=True):
        direct[number].append(operator)

    def change(module: JoinedModule, inside: Sequence[OperatorChange], *, own: bool) -> ModuleChange:
        return ModuleChange(
            path=module.path,
            base_s=total(each.base_s for each in inside),
            new_s=total(each.new_s for each in inside),
            rise_s=sum(each.rise_s for each in inside),
            operators=len(inside),
            module=module.number,
            own=own,
        )

    shown = [change(modules[0], modules[0].inside, own=False)]
    while len(shown) < MOST:
        closed = [each for each in shown if not each.own and children[each.module]]
        largest = max(closed, key=lambda each: (abs(each.rise_s), -each.module), default=None)
        if largest is None or not largest.rise_s:
            break
        shown.remove(largest)
        shown += [change(child, child.inside, own=False) for child in children[largest.module]]
        if direct[largest.module]:
            shown.append(change(modules[largest.module], direct[largest.module], own=True))
    changed = [each for each in shown if is_change(each.base_s, (each.base_s or 0.0) + each.rise_s)]
    # The largest first: each represents those of its kind that come after it and changed as much.
    changed.sort(key=lambda each: (-abs(each.rise_s), each.module))
    kinds: list[list[ModuleChange]] = []
    for each in changed:
        group = next((group for group in kinds if _alike(group[0], each)), None)
        if group is None:
            kinds.append([each])
        else:
            group.append(each)
    folded = [
        replace(
            min(group, key=lambda each: each.module),
            alike=len(group) - 1,
            base_s=total(each.base_s for each in group),
            new_s=total(each.new_s for each in group),
            rise_s=sum(each.rise_s for each in group),
            operators=sum(each.operators for each in group),
        )
        for group in kinds
    ]
    return tuple(sorted(folded, key=lambda each: (-abs(each.rise_s), each.module))[:MOST])


def _alike(one: ModuleChange, other: ModuleChange) -> bool:
    """Return whether paths differ in numbers alone and both changed as much."""
    return (
        (_pattern(one.path), one.own, one.rise_s > 0) == (_pattern(other.path), other.own, other.rise_s > 0)
    ) and not is_change(abs(one.rise_s), abs(other.rise_s))


def _pattern(path: str) -> str:
    """Return a path without its numbers: ``layers.*.mlp``; the 2 of ``conv2`` is part of a name."""
    return re.sub(r"(?<!\w)\d+(?!\w)", "*", path)
