"""Reporting: what of two joined graphs gained or lost most: operators, copies, modules."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from analyzer.checks.phrases import operator_label, source_location, total
from analyzer.record.analysis import Analysis
from analyzer.report.compare.joined_graph import (
    SHADES,
    ChangeKind,
    CopyChange,
    JoinedModule,
    JoinedOperator,
    LargestChange,
    ModuleChange,
)
from analyzer.report.compare.sides import ComparedSide, is_change
from analyzer.text import first_few

# Entries of the lists of what changed most.
MOST = 10
_Replaced = Sequence[tuple[tuple[int, ...], tuple[int, ...]]]


def largest(
    base: ComparedSide,
    new: ComparedSide,
    operators: Sequence[JoinedOperator],
    replaced: _Replaced,
    copies: Sequence[CopyChange],
) -> tuple[LargestChange, ...]:
    """What gained or lost most, the largest first.

    Args:
        base: The first record.
        new: The other.
        operators: Of both graphs.
        replaced: Numbers of operators that are gone, and of those that stand in their place.
        copies: Those that one record alone makes.
    """
    return _folded(_changes(base, new, operators, replaced, copies))[:MOST]


def _changes(
    base: ComparedSide,
    new: ComparedSide,
    operators: Sequence[JoinedOperator],
    replaced: _Replaced,
    copies: Sequence[CopyChange],
) -> Iterator[LargestChange]:
    of_replaced = {number for sides in replaced for side in sides for number in side}

    def subject(number: int) -> tuple[str, str]:
        each = operators[number]
        side, index = (base, each.base) if each.new is None else (new, each.new)
        operator = side.analysis.operators[index or 0]
        return operator_label(operator), source_location(operator)

    for each in operators:
        if each.number in of_replaced or (each.state == "both" and not each.rise_s):
            continue
        kind: ChangeKind = each.state if each.state != "both" else "slower" if each.rise_s > 0 else "faster"
        title, where = subject(each.number)
        yield LargestChange(
            kind=kind, title=title, where=where, operator=each.number, base_s=each.base_s, new_s=each.new_s
        )
    for gone, added in replaced:
        title, where = subject(added[0])
        before = first_few((_type(base.analysis, operators[number].base) for number in gone), 4)
        after = first_few((_type(new.analysis, operators[number].new) for number in added[1:]), 3)
        more = f", {after}" if after else ""
        yield LargestChange(
            kind="replaced",
            title=f"{title}{more} for {before}",
            where=where,
            operator=added[0],
            base_s=total(operators[number].base_s for number in gone),
            new_s=total(operators[number].new_s for number in added),
        )
    for copy in copies:
        title, where = subject(copy.producer)
        way = "CPU" if copy.direction == "to_cpu" else "GPU"
        yield LargestChange(
            kind="copy",
            title=f"copy to the {way} of what {title} makes",
            where=where,
            operator=copy.producer,
            base_s=copy.time_s if copy.state == "gone" else None,
            new_s=copy.time_s if copy.state == "new" else None,
        )


def _type(analysis: Analysis, index: int | None) -> str:
    return "" if index is None else analysis.operators[index].op_type


def _folded(changes: Iterable[LargestChange]) -> tuple[LargestChange, ...]:
    """Those that differ in the numbers of their paths alone as one: layers of one kind change alike."""
    alike: dict[tuple[str, str, str], list[LargestChange]] = defaultdict(list)
    for change in changes:
        alike[change.kind, _pattern(change.title), change.where].append(change)
    folded = [
        replace(
            max(group, key=lambda one: abs(one.rise_s)),
            alike=len(group) - 1,
            base_s=total(one.base_s for one in group),
            new_s=total(one.new_s for one in group),
        )
        for group in alike.values()
    ]
    kept = [change for change in folded if is_change(change.base_s, change.new_s)]
    return tuple(sorted(kept, key=lambda change: (-abs(change.rise_s), change.operator)))


def _pattern(path: str) -> str:
    """A path or a title without its numbers: ``layers.*.mlp``; the 2 of ``conv2`` is part of a name."""
    return re.sub(r"(?<!\w)\d+(?!\w)", "*", path)


def module_changes(
    modules: Sequence[JoinedModule], operators: Iterable[JoinedOperator]
) -> tuple[ModuleChange, ...]:
    """As far inside as it takes for a list: the one that changed most is opened until there are enough."""
    children: dict[int, list[int]] = defaultdict(list)
    for module in modules[1:]:
        children[module.parent or 0].append(module.number)
    own: dict[int, list[JoinedOperator]] = defaultdict(list)
    for operator in operators:
        own[operator.module].append(operator)

    def whole(number: int) -> ModuleChange:
        module = modules[number]
        return ModuleChange(
            path=module.path,
            base_s=module.base_s,
            new_s=module.new_s,
            rise_s=module.rise_s,
            operators=module.operators,
            module=number,
        )

    def alone(number: int) -> ModuleChange:
        return replace(
            whole(number),
            own=True,
            base_s=total(each.base_s for each in own[number]),
            new_s=total(each.new_s for each in own[number]),
            rise_s=sum(each.rise_s for each in own[number]),
            operators=len(own[number]),
        )

    shown = [whole(0)]
    while len(shown) < MOST:
        closed = [each for each in shown if not each.own and children[each.module]]
        if not closed:
            break
        largest = max(closed, key=lambda each: (abs(each.rise_s), -each.module))
        if not largest.rise_s:
            break
        shown.remove(largest)
        shown += [whole(child) for child in children[largest.module]]
        shown += [alone(largest.module)] if own[largest.module] else []
    changed = [each for each in shown if is_change(each.base_s, (each.base_s or 0.0) + each.rise_s)]
    # The largest first: each stands for those of its kind that come after it and changed as much.
    changed.sort(key=lambda each: (-abs(each.rise_s), each.module))
    kinds: list[list[ModuleChange]] = []
    for each in changed:
        same = (
            group
            for group in kinds
            if (_pattern(group[0].path), group[0].own) == (_pattern(each.path), each.own)
            and not is_change(abs(group[0].rise_s), abs(each.rise_s))
            and (group[0].rise_s > 0) == (each.rise_s > 0)
        )
        group = next(same, None)
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


def worst(modules: Sequence[JoinedModule]) -> int:
    """The number of the module to look at first: see ``JoinedGraph``."""
    children: dict[int, list[JoinedModule]] = defaultdict(list)
    for module in modules[1:]:
        children[module.parent or 0].append(module)
    # The model itself is open from the start.
    inner = modules[1:] or modules
    lost = max(inner, key=lambda one: (one.rise_s, -one.number))
    # A loss that no box would be coloured for is not what a reader is to see first: then what gained most is.
    at = (
        lost
        if lost.rise_s > SHADES[0] * (modules[0].base_s or 0.0)
        else max(inner, key=lambda one: (abs(one.rise_s), -one.number))
    )
    while children[at.number]:
        most = max(children[at.number], key=lambda one: (abs(one.rise_s), -one.number))
        if abs(most.rise_s) * 2 < abs(at.rise_s) or not most.rise_s:
            break
        at = most
    return at.number
