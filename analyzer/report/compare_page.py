"""Reporting: a comparison of two or more analyses as one HTML page, differences first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from analyzer.report import summary
from analyzer.report.charts.chart import Chart, Column, Row, axis, colours, tooltip
from analyzer.report.compare import Comparison, Difference, Figure, OperatorChange, OperatorEntry
from analyzer.report.compare_text import figure_text
from analyzer.report.html import environment
from analyzer.units import UNKNOWN, factor, seconds, share

# Rows of each list of operators; the JSON holds all.
MOST = 100
_PLANS = {"plans.cpu.latency_s": "CPU", "plans.gpu.latency_s": "GPU", "plans.hybrid.latency_s": "Best plan"}
_LESS_IS_BETTER = {*_PLANS, "copies", "copy_bytes", "findings", "totals.peak_memory_bytes"}
_COLUMNS = (
    Column(name="record", title="Record"),
    Column(name="plan", title="Plan"),
    Column(name="latency", title="Latency", kind="seconds"),
    Column(name="origin", title="Origin"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """A figure of one record, and how it compares with the base's.

    Attributes:
        text: The figure with its unit.
        change: ``12 % more``, ``3.1x``, ``the same``; empty for the base.
        tone: ``better``, ``worse`` or empty.
        origin: ``measured``, ``predicted``, ``mixed`` or empty.
        unsure: Whether its interval overlaps the base's.
    """

    text: str
    change: str = ""
    tone: str = ""
    origin: str = ""
    unsure: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One row of the table side by side."""

    label: str
    cells: tuple[Cell, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorLine:
    """An operator that changed, came or went."""

    name: str
    where: str
    before: str
    after: str
    note: str
    tone: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A list of operators or findings under a heading; ``hidden`` counts those not listed."""

    title: str
    lines: tuple[OperatorLine, ...]
    hidden: int = 0


def render(comparison: Comparison) -> str:
    """The comparison as one page; the same comparison gives the same bytes."""
    return environment().get_template("compare.html.j2").render(build(comparison))


def build(comparison: Comparison) -> dict[str, Any]:
    """What the template is given."""
    drawn = [item for item in (_latencies(comparison),) if item is not None]
    return {
        "title": " against ".join(reversed(comparison.labels)) if len(comparison.labels) == 2 else "Comparison",
        "labels": comparison.labels,
        "facts": tuple(
            Line(label=fact.label, cells=tuple(Cell(text=value) for value in fact.values))
            for fact in comparison.facts
            if fact.differs
        ),
        "shared": tuple((fact.label, fact.values[0]) for fact in comparison.facts if not fact.differs),
        "lines": tuple(_line(figure) for figure in comparison.figures),
        "differences": tuple((item.label, item.matched, _sections(item)) for item in comparison.differences),
        "notes": comparison.notes,
        "marks": tuple(summary.MARKS.values()),
        "charts": {item.name: item for item in drawn},
        "data": {
            "name": "comparison",
            "charts": {item.name: item.payload() for item in drawn},
            "operators": {},
            "modules": {},
            "groups": [],
        },
    }


def _line(figure: Figure) -> Line:
    cells = [Cell(text=figure_text(figure.values[0], figure.unit), origin=_at(figure.origins, 0))]
    for at, value in enumerate(figure.values[1:], 1):
        cells.append(_cell(figure, at, value))
    return Line(label=figure.label, cells=tuple(cells))


def _cell(figure: Figure, at: int, value: float | None) -> Cell:
    base = figure.values[0]
    text, origin = figure_text(value, figure.unit), _at(figure.origins, at)
    if value is None or base is None:
        return Cell(text=text, origin=origin)
    rose = value > base
    tone = "" if value == base or figure.key not in _LESS_IS_BETTER else "worse" if rose else "better"
    unsure = bool(figure.overlap and figure.overlap[at])
    return Cell(text=text, change=change(base, value), tone=tone, origin=origin, unsure=unsure)


def _at(values: Sequence[str], place: int) -> str:
    return values[place] if values else ""


def change(base: float, value: float) -> str:
    """How a figure compares with the base's, in words: ``the same``, ``12 % less``, ``3.4x``."""
    if value == base:
        return "the same"
    if not base:
        return "was 0"
    ratio = value / base
    if ratio >= 2:
        return factor(ratio)
    return f"{share(abs(ratio - 1))} {'more' if ratio > 1 else 'less'}"


def _sections(difference: Difference) -> tuple[Section, ...]:
    lists = (
        ("Runs on another device", [_flip(item) for item in difference.flipped]),
        (
            "New findings",
            [_finding(item.severity, item.code, item.message) for item in difference.findings_new],
        ),
        (
            "Findings gone",
            [_finding(item.severity, item.code, item.message) for item in difference.findings_gone],
        ),
        ("Slower", [_timed(item, "worse") for item in difference.slower]),
        ("Faster", [_timed(item, "better") for item in difference.faster]),
        ("New operators", [_entry(item, "", seconds(item.time_s)) for item in difference.new]),
        ("Operators gone", [_entry(item, seconds(item.time_s), "") for item in difference.gone]),
    )
    return tuple(
        Section(title=f"{title} ({len(lines)})", lines=tuple(lines[:MOST]), hidden=max(len(lines) - MOST, 0))
        for title, lines in lists
        if lines
    )


def _flip(item: OperatorChange) -> OperatorLine:
    before, after = item.device or item.placed_on or ("", "")
    what = "in the best plan" if item.device else "in the CUDA session"
    note = f"{what}; {seconds(item.base_s)} before, {seconds(item.new_s)} now"
    return OperatorLine(name=item.name, where=item.where, before=before, after=after, note=note)


def _timed(item: OperatorChange, tone: str) -> OperatorLine:
    note = "" if item.base_s is None or item.new_s is None else change(item.base_s, item.new_s)
    if not item.certain:
        note = f"{note}, intervals overlap"
    return OperatorLine(
        name=item.name,
        where=item.where,
        before=seconds(item.base_s),
        after=seconds(item.new_s),
        note=note,
        tone=tone if item.certain else "",
    )


def _entry(item: OperatorEntry, before: str, after: str) -> OperatorLine:
    return OperatorLine(
        name=item.name,
        where=item.where,
        before=before or UNKNOWN,
        after=after or UNKNOWN,
        note=f"#{item.index}",
    )


def _finding(severity: str, code: str, message: str) -> OperatorLine:
    return OperatorLine(name=f"{severity} {code}", where="", before="", after="", note=message)


def _latencies(comparison: Comparison) -> Chart | None:
    """Latency of each plan, record by record."""
    rows: list[Row] = []
    for figure in comparison.figures:
        if figure.key in _PLANS:
            for at, (label, value) in enumerate(zip(comparison.labels, figure.values, strict=True)):
                if value is not None:
                    rows.append((label, _PLANS[figure.key], value, _at(figure.origins, at)))
    if not rows:
        return None
    said = ", ".join(f"{row[0]} {row[1]} {seconds(row[2])}" for row in rows)
    return Chart(
        name="latencies",
        title="Latency by plan",
        lead="One bar for each record, on a logarithmic axis: the same distance is the same factor.",
        alternative=f"{said}.",
        engine="vega-lite",
        spec=_spec(comparison.labels, list(dict.fromkeys(row[1] for row in rows))),
        columns=_COLUMNS,
        rows=tuple(rows),
        extra={},
        height=26 * len(rows) + 60,
    )


def _spec(labels: Sequence[str], plans: list[str]) -> dict[str, Any]:
    return {
        "width": "container",
        "height": {"step": 16},
        "data": {"name": "table"},
        "mark": {"type": "point", "filled": True, "size": 110, "opacity": 0.9},
        "encoding": {
            "y": {"field": "plan", "type": "nominal", "sort": plans, "title": None},
            "yOffset": {"field": "record", "sort": list(labels)},
            "x": {
                "field": "latency",
                "type": "quantitative",
                "scale": {"type": "log"},
                "axis": axis("seconds", "Latency", tickCount=5),
            },
            "color": {"field": "plan", "type": "nominal", "scale": colours(*plans), "legend": None},
            "shape": {"field": "record", "type": "nominal", "sort": list(labels), "title": None},
            "tooltip": tooltip(*_COLUMNS),
        },
    }
