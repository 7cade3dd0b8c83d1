"""Reporting: two graphs as one on the page of a comparison: what its script draws, and the lists beside it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from analyzer.checks.phrases import source_location
from analyzer.record.analysis import Analysis, OperatorResult
from analyzer.report.charts.chart import coded, compact
from analyzer.report.compare.comparison import Comparison, Difference
from analyzer.report.compare.joined_graph import (
    SHADES,
    FusionChange,
    JoinedGraph,
    JoinedModule,
    LargestChange,
    ModuleChange,
)
from analyzer.report.compare.sides import ComparedSide
from analyzer.report.operator_columns import shape
from analyzer.text import first_few, listed, plural
from analyzer.units import byte_count, seconds

_SESSIONS = {"cuda": "ONNX Runtime's CUDA session", "cpu": "ONNX Runtime's CPU session"}
_DIRECTIONS = {"to_cpu": "to the CPU", "to_gpu": "to the GPU"}


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphLine:
    """A line of a list beside the graph; ``box`` is what it selects: ``o12`` an operator, ``m3`` a module."""

    box: str
    title: str
    where: str
    before: str
    after: str
    rise: str
    tone: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphView:
    """What the page says of a joined graph; ``missing`` says in a sentence why there is none, else is empty.

    ``marks`` are those of the legend that the graph has; ``shades`` the shares that its colours begin at.
    """

    missing: str
    lead: str = ""
    changes: tuple[GraphLine, ...] = ()
    modules: tuple[GraphLine, ...] = ()
    notes: tuple[str, ...] = ()
    marks: tuple[str, ...] = ()
    shades: str = f"{listed(f'{100 * shade:g}' for shade in SHADES)} %"


def view(comparison: Comparison, at: int) -> GraphView:
    """The words of the graph that joins the base and the record at this place."""
    difference = comparison.differences[at - 1]
    graph = difference.graph
    missing = _missing(comparison.labels[0], difference)
    if graph is None or missing:
        return GraphView(missing=missing)
    return GraphView(
        missing="",
        lead=_lead(comparison, at),
        changes=tuple(_change(change) for change in graph.changes),
        modules=tuple(_module(change) for change in graph.module_changes),
        notes=tuple(_notes(graph)),
        marks=tuple(_marks(graph)),
    )


def _marks(graph: JoinedGraph) -> Iterator[str]:
    found = {
        **{state: any(each.state == state for each in graph.operators) for state in ("new", "gone")},
        "flip": any(each.flipped for each in graph.operators),
        "fusion": bool(graph.fusion_changes),
        "came": any(each.new_copied and not each.base_copied for each in graph.edges),
        "went": any(each.base_copied and not each.new_copied for each in graph.edges),
        "copied": any(each.base_copied and each.new_copied for each in graph.edges),
    }
    return (mark for mark, is_there in found.items() if is_there)


def _missing(base: str, difference: Difference) -> str:
    graph = difference.graph
    sides = (base, "base"), (difference.label, "new")
    # A record of generation alone, or of a model without operators.
    empty = [
        label
        for label, side in sides
        if graph is None or all(getattr(each, side) is None for each in graph.operators)
    ]
    if empty:
        return f"The two graphs are not drawn as one: {' and '.join(empty)} holds no operators."
    if not difference.matched:
        return "The two graphs are not drawn as one: no operator of one is found in the other."
    return ""


def _lead(comparison: Comparison, at: int) -> str:
    base, new = _sides(comparison, at)
    difference = comparison.differences[at - 1]
    names = _SESSIONS[base.session], _SESSIONS[new.session]
    whose = (
        f"those of {names[0]}"
        if names[0] == names[1]
        else f"those of {names[0]} in {comparison.labels[0]} and of {names[1]} in {difference.label}"
    )
    each = ", for one inference" if difference.per_inference else ""
    return (
        f"Both graphs as one, joined by module path; data flows downwards. Times, groups and copies are "
        f"{whose}{each}; a group's time is shared among its operators."
    )


def _change(change: LargestChange) -> GraphLine:
    alike = f" (and {change.alike} alike)" if change.alike else ""
    return GraphLine(
        box=f"o{change.operator}",
        title=f"{change.title[:1].upper()}{change.title[1:]}{alike}",
        where=change.where,
        **_figures(change.base_s, change.new_s, change.rise_s),
    )


def _module(change: ModuleChange) -> GraphLine:
    return GraphLine(
        box=f"m{change.module}",
        title=module_title(change),
        where=plural(change.operators, "operator"),
        **_figures(change.base_s, change.new_s, change.rise_s),
    )


def module_title(change: ModuleChange) -> str:
    """A module's path; ``the model``; what is meant of it where that is not all."""
    alike = f" (and {change.alike} alike)" if change.alike else ""
    return f"{change.path or 'the model'}{', its own operators' if change.own else ''}{alike}"


def _figures(base_s: float | None, new_s: float | None, rise_s: float) -> dict[str, str]:
    # U+2212, as wide as the plus: in a column of figures a hyphen is lost.
    return {
        "before": seconds(base_s),
        "after": seconds(new_s),
        "rise": f"{'+' if rise_s > 0 else '−'}{seconds(abs(rise_s))}",
        "tone": "worse" if rise_s > 0 else "better",
    }


def _notes(graph: JoinedGraph) -> list[str]:
    """What else changed, a sentence for each kind."""
    sentences = []
    for state, verb in (("new", "appeared"), ("gone", "went")):
        fusions = fusion_lines(one for one in graph.fusion_changes if one.state == state)
        if fusions:
            sentences.append(f"Fusions that {verb}: {first_few(fusions, 4)}.")
        copies = [copy for copy in graph.copy_changes if copy.state == state]
        if copies:
            sizes = sum(copy.bytes for copy in copies)
            took_s = sum(copy.time_s for copy in copies)
            sentences.append(
                f"{plural(len(copies), 'copy').capitalize()} that {verb}: "
                f"{byte_count(sizes)} in {seconds(took_s)}."
            )
    renamed = [f"{module.was} is {module.path} now" for module in graph.modules if _renamed(module, graph)]
    if renamed:
        sentences.append(f"Renamed: {first_few(renamed, 4)}.")
    moved = sum(each.was is not None for each in graph.operators)
    if moved:
        sentences.append(f"{plural(moved, 'operator')} that another module holds now.")
    return sentences


def _renamed(module: JoinedModule, graph: JoinedGraph) -> bool:
    """Whether its own name changed, and not only that of a module around it."""
    around = module.was.rpartition(".")[0]
    parent = graph.modules[module.parent or 0]
    return bool(module.was) and (around != (parent.was or parent.path) or not module.was.endswith(module.name))


def fusion_lines(fusions: Any) -> list[str]:
    """``FusedConv of Conv and Relu, 16 times, first in layer1.0``: those of one kind in one line."""
    kinds: dict[tuple[str, tuple[str, ...]], list[FusionChange]] = {}
    for fusion in fusions:
        kinds.setdefault((fusion.op_type, fusion.of), []).append(fusion)
    lines = []
    for (op_type, of), every in kinds.items():
        times = f", {len(every)} times, first" if len(every) > 1 else ""
        place = f" in {every[0].module}" if every[0].module else times and " in the model"
        lines.append(f"{op_type} of {first_few(of, 4)}{times}{place}")
    return lines


# --- what the script draws ------------------------------------------------------------------------------


def payload(comparison: Comparison, at: int) -> dict[str, Any] | None:
    """The graph that joins the base and the record at this place, by column; None where none is drawn."""
    difference = comparison.differences[at - 1]
    graph = difference.graph
    if graph is None or _missing(comparison.labels[0], difference):
        return None
    base, new = _sides(comparison, at)
    return {
        "base": comparison.labels[0],
        "new": difference.label,
        "whole": compact(graph.modules[0].base_s),
        "worst": graph.worst,
        "shades": list(SHADES),
        "modules": _modules(graph),
        "operators": {
            **_operators(graph, base, new),
            **_side("base", base, [each.base for each in graph.operators], graph),
            **_side("new", new, [each.new for each in graph.operators], graph),
        },
        "edges": [
            [
                each.producer,
                each.consumer,
                _on_edge(each.in_base, each.base_copied),
                _on_edge(each.in_new, each.new_copied),
            ]
            for each in graph.edges
        ],
        "replaced": [[list(gone), list(added)] for gone, added in graph.replaced],
        "fusions": [[each.state, each.op_type, list(each.operators)] for each in graph.fusion_changes],
        "copies": [
            [
                each.state,
                _DIRECTIONS.get(each.direction, each.direction),
                each.producer,
                each.bytes,
                compact(each.time_s),
            ]
            for each in graph.copy_changes
        ],
    }


def _on_edge(there: bool, copied: bool) -> int:
    """0 where a tensor does not go this way, 1 where it does, 2 where it is copied on it."""
    return 2 if copied else int(there)


def _sides(comparison: Comparison, at: int) -> tuple[ComparedSide, ComparedSide]:
    return ComparedSide.pair(comparison.analyses[0], comparison.analyses[at])


def _modules(graph: JoinedGraph) -> dict[str, Any]:
    modules = graph.modules
    return {
        "name": coded(each.name for each in modules),
        "path": [each.path for each in modules],
        "class": coded(each.class_name for each in modules),
        "was": coded(each.was for each in modules),
        "parent": [each.parent for each in modules],
        "operators": [each.operators for each in modules],
        "added": [each.added for each in modules],
        "gone": [each.gone for each in modules],
        "flipped": [each.flipped for each in modules],
        "base": [compact(each.base_s) for each in modules],
        "new": [compact(each.new_s) for each in modules],
        "rise": [compact(each.rise_s) for each in modules],
    }


def _operators(graph: JoinedGraph, base: ComparedSide, new: ComparedSide) -> dict[str, Any]:
    operators = graph.operators

    def either(number: int) -> OperatorResult:
        each = operators[number]
        # Every joined operator is of one graph at least.
        if each.new is not None:
            return new.analysis.operators[each.new]
        return base.analysis.operators[each.base or 0]

    every = [either(each.number) for each in operators]
    return {
        "type": coded(each.op_type for each in every),
        "path": coded(each.module for each in every),
        "module": [each.module for each in operators],
        "state": coded(each.state for each in operators),
        "was": coded("" if each.was is None else each.was or "the model" for each in operators),
        "flip": coded(_flip(each.device or each.placed_on) for each in operators),
        "code": coded(each.source.code if each.source else "" for each in every),
    }


def _flip(ends: tuple[str, str] | None) -> str:
    names = {"cuda": "GPU", "gpu": "GPU", "cpu": "CPU"}
    return "" if ends is None else f"{names.get(ends[0], ends[0])} → {names.get(ends[1], ends[1])}"


def _side(prefix: str, side: ComparedSide, indices: Sequence[int | None], graph: JoinedGraph) -> dict[str, Any]:
    analysis = side.analysis
    operators = [None if index is None else analysis.operators[index] for index in indices]
    groups = [getattr(each, f"{prefix}_group") for each in graph.operators]
    times = [None if each is None else side.time(each) for each in operators]
    intervals = [None if each is None else side.interval(each) for each in operators]
    has_gpu = analysis.devices.gpu is not None
    return {
        f"{prefix}_index": list(indices),
        f"{prefix}_time": [compact(time_s) for time_s in times],
        f"{prefix}_low": [compact(ends[0]) if ends else None for ends in intervals],
        f"{prefix}_high": [compact(ends[1]) if ends else None for ends in intervals],
        f"{prefix}_origin": coded(side.on_target(each).origin if each else "" for each in operators),
        f"{prefix}_name": coded(each.name if each else "" for each in operators),
        f"{prefix}_device": coded(each.placement.upper() if each and has_gpu else "" for each in operators),
        f"{prefix}_session": coded(
            ("GPU" if each.gpu.placed_on == "cuda" else "CPU") if each and each.gpu else ""
            for each in operators
        ),
        f"{prefix}_group": coded(
            _group(analysis, each, group) for each, group in zip(operators, groups, strict=True)
        ),
        f"{prefix}_where": coded(source_location(each) for each in operators),
        f"{prefix}_output": coded(
            ", ".join(shape(tensor) for tensor in each.outputs) if each else "" for each in operators
        ),
    }


def _group(analysis: Analysis, operator: OperatorResult | None, number: int | None) -> str:
    """What executes it: ``FusedConv, 2 operators``; ``alone``; ``none, folded``."""
    if operator is None or not analysis.groups:
        return ""
    if number is None:
        return "none: folded away"
    group = analysis.groups[number]
    return f"{group.op_type}, {plural(len(group.members), 'operator')}" if len(group.members) > 1 else "alone"
