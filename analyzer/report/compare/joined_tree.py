"""Module trees of compared records joined, and their page."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

from analyzer.checks.device_answers import operator_label, source_location, total
from analyzer.record.analysis import Analysis, GroupResult, OperatorResult
from analyzer.report.charts.chart import coded, combined_origin, compact
from analyzer.report.compare.alignment import Alignment
from analyzer.report.compare.comparison import (
    ComparedSide,
    Comparison,
    FusionChange,
    JoinedModule,
    JoinedTree,
    ModuleChange,
    OperatorChange,
    apart,
    is_change,
)
from analyzer.text import first_few, plural

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


_SESSIONS = {"cuda": "ONNX Runtime's CUDA session", "cpu": "ONNX Runtime's CPU session"}
_DEVICES = {"cuda": "GPU", "gpu": "GPU", "cpu": "CPU"}
# What a row counts of the operators inside, and the page's filter offers.
KINDS = ("new", "gone", "slower", "faster", "flipped")


def missing(comparison: Comparison, at: int) -> str:
    """Say why the base and the record at this place have no tree, in a sentence; empty where they have one."""
    # A record of generation alone, or of a model without operators.
    empty = [comparison.labels[one] for one in (0, at) if not comparison.analyses[one].operators]
    if empty:
        return f"There is no tree of both: {' and '.join(empty)} holds no operators."
    if not comparison.differences[at - 1].both:
        return "There is no tree of both: no operator of one is found in the other."
    return ""


def lead(comparison: Comparison, at: int) -> str:
    """Say whose times the tree of the base and the record at this place shows."""
    sides = ComparedSide.pair(comparison.analyses[0], comparison.analyses[at])
    names = [_SESSIONS[side.session] for side in sides]
    whose = (
        f"those of {names[0]}"
        if names[0] == names[1]
        else f"those of {names[0]} in {comparison.labels[0]} and of {names[1]} in {comparison.labels[at]}"
    )
    each = ", for one inference" if comparison.differences[at - 1].per_inference else ""
    return (
        f"Modules of both records, joined by path, with the operators inside. Times are {whose}{each}; "
        "a group's time is shared among its operators. A module's interval takes all errors to go one way."
    )


def notes(tree: JoinedTree) -> list[str]:
    """Say what else changed, a sentence for each kind."""
    sentences = []
    for state, verb in (("new", "appeared"), ("gone", "went")):
        fusions = fusion_lines(one for one in tree.fusions if one.state == state)
        if fusions:
            sentences.append(f"Fusions that {verb}: {first_few(fusions, 4)}.")
    renamed = [f"{each.was} is {each.path} now" for each in tree.modules if _renamed(each, tree)]
    if renamed:
        sentences.append(f"Renamed: {first_few(renamed, 4)}.")
    if tree.moved:
        sentences.append(f"{plural(len(tree.moved), 'operator')} that another module holds now.")
    return sentences


def _renamed(module: JoinedModule, tree: JoinedTree) -> bool:
    """Return whether its own name changed, and not only that of a module around it."""
    around = module.was.rpartition(".")[0]
    parent = tree.modules[module.parent or 0]
    return bool(module.was) and (around != (parent.was or parent.path) or not module.was.endswith(module.name))


def fusion_lines(fusions: Iterable[FusionChange]) -> list[str]:
    """Return ``FusedConv of Conv and Relu, 16 times, first in layer1.0``: those of one kind in one line."""
    kinds: dict[tuple[str, tuple[str, ...]], list[FusionChange]] = {}
    for fusion in fusions:
        kinds.setdefault((fusion.op_type, fusion.of), []).append(fusion)
    lines = []
    for (op_type, of), every in kinds.items():
        times = f", {len(every)} times, first" if len(every) > 1 else ""
        place = f" in {every[0].module}" if every[0].module else times and " in the model"
        lines.append(f"{op_type} of {first_few(of, 4)}{times}{place}")
    return lines


def module_title(change: ModuleChange) -> str:
    """Return a module's path; ``the model``; what is meant of it where that is not all."""
    alike = f" (and {change.alike} alike)" if change.alike else ""
    return f"{change.path or 'the model'}{', its own operators' if change.own else ''}{alike}"


def payload(comparison: Comparison, at: int) -> dict[str, Any] | None:
    """Return the tree of the base and the record at this place, by column; None where there is none.

    A row is a module or, without others inside, an operator; each comes behind the module around it.
    """
    if missing(comparison, at):
        return None
    tree = comparison.differences[at - 1].tree
    base, new = ComparedSide.pair(comparison.analyses[0], comparison.analyses[at])
    happened = _happened(tree)
    rows: list[dict[str, Any]] = []
    # Modules are numbered as their first operators come.
    place: list[int] = []
    for number, (operator, of_module) in enumerate(zip(tree.operators, tree.module_of, strict=True)):
        for module in tree.modules[len(place) : of_module + 1]:
            parent = None if module.parent is None else place[module.parent]
            place.append(len(rows))
            rows.append(_row(parent, module.inside, base, new, name=module.name, aside=module.class_name))
        one = _on(new, operator.new) or _on(base, operator.base)
        rows.append(
            _row(
                place[of_module],
                (operator,),
                base,
                new,
                name=one.op_type if one else "",
                aside=one.name if one else "",
                code=one.source.code if one and one.source else "",
                where=operator.where,
                what="; ".join(happened[number]),
            )
        )
    columns = {key: [row[key] for row in rows] for key in rows[0]}
    return {
        "base": comparison.labels[0],
        "new": comparison.labels[at],
        # What is to be seen first: the way to it is open.
        "first": place[tree.changes[0].module] if tree.changes else 0,
        "rows": {
            key: coded(values) if isinstance(values[0], str) else values for key, values in columns.items()
        },
    }


def _row(
    parent: int | None, inside: Sequence[OperatorChange], base: ComparedSide, new: ComparedSide, **texts: str
) -> dict[str, Any]:
    kinds: Counter[str] = Counter(each.kind for each in inside)
    return {
        "parent": parent,
        "code": "",
        "where": "",
        "what": "",
        **texts,
        "rise": compact(float(sum(each.rise_s for each in inside))),
        **{kind: kinds[kind] for kind in KINDS[:-1]},
        "flipped": sum(each.flipped for each in inside),
        **_time("before", base, [_on(base, each.base) for each in inside]),
        **_time("after", new, [_on(new, each.new) for each in inside]),
    }


def _on(side: ComparedSide, index: int | None) -> OperatorResult | None:
    return None if index is None else side.analysis.operators[index]


def _time(prefix: str, side: ComparedSide, operators: Iterable[OperatorResult | None]) -> dict[str, Any]:
    """Return the sum of what is known, and the sums of its intervals' ends: errors go one way."""
    times = [time for each in operators if each and (time := side.on_target(each)).time_s is not None]
    origins: set[str] = {time.origin for time in times if time.time_s}

    def summed(values: list[float | None]) -> float | None:
        whole_s = None if None in values else total(values)
        return None if whole_s is None else compact(whole_s / side.per)

    return {
        prefix: summed([time.time_s for time in times]),
        f"{prefix}_low": summed([time.low_s for time in times]),
        f"{prefix}_high": summed([time.high_s for time in times]),
        f"{prefix}_origin": combined_origin(origins) if origins else "",
    }


def _happened(tree: JoinedTree) -> list[list[str]]:
    """Return for each operator what came, went or changed, in words."""
    words = []
    for number, each in enumerate(tree.operators):
        sure = f" {'beyond' if each.certain else 'within'} the intervals" if each.in_both else ""
        happened = [] if each.kind == "same" else [f"{each.kind}{sure}"]
        ways = (("best plan", each.device), ("CUDA session", each.placed_on))
        happened += [f"{way}: {_DEVICES[ends[0]]} → {_DEVICES[ends[1]]}" for way, ends in ways if ends]
        if number in tree.moved:
            happened.append(f"was in {tree.moved[number] or 'the model'}")
        words.append(happened)
    for fusion in tree.fusions:
        for number in fusion.operators:
            words[number].append(f"{'' if fusion.state == 'new' else 'no longer '}fused: {fusion.op_type}")
    return words
