"""Reporting: the tree of two records' modules on the page of a comparison: its rows, and what is said of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from analyzer.checks.phrases import total
from analyzer.record.analysis import OperatorResult
from analyzer.report.charts.chart import coded, combined_origin, compact
from analyzer.report.compare.comparison import (
    Comparison,
    FusionChange,
    JoinedModule,
    JoinedTree,
    ModuleChange,
    OperatorChange,
)
from analyzer.report.compare.sides import ComparedSide
from analyzer.text import first_few, plural

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
