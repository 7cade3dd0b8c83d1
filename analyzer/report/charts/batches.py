"""Reporting: latency and throughput over the batch, with the crossover and the measured points."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from analyzer.record.analysis import Analysis
from analyzer.report.charts.chart import (
    BEST,
    PLAN_SERIES,
    Chart,
    Column,
    ColumnKind,
    Row,
    axis,
    colours,
    decades,
    origin_words,
    tooltip,
)
from analyzer.report.summary import crossover, per_second, uses_gpu
from analyzer.units import seconds

_COLUMNS = (
    Column(name="batch", title="Batch", kind="count"),
    Column(name="plan", title="Plan"),
    Column(name="latency", title="Latency", kind="seconds"),
    Column(name="low", title="Low (90 %)", kind="seconds"),
    Column(name="high", title="High (90 %)", kind="seconds"),
    Column(name="throughput", title="Per second", kind="per_second"),
    Column(name="throughput_low", title="Per second, low", kind="per_second"),
    Column(name="throughput_high", title="Per second, high", kind="per_second"),
    Column(name="origin", title="Origin"),
    Column(name="fits", title="Fits in memory"),
)
_SHAPES = {"measured": "circle", "predicted": "circle", "mixed": "diamond"}
# Which columns of a row an axis must hold: the figure and the ends of its interval.
_COLUMNS_OF = {"latency": slice(2, 5), "throughput": slice(5, 8)}
_LOW = {"latency": "low", "throughput": "throughput_low"}
_HIGH = {"latency": "high", "throughput": "throughput_high"}


def charts(analysis: Analysis) -> tuple[Chart, ...]:
    """Latency and throughput over the batch; nothing where fewer than two batches are known."""
    rows = tuple(_rows(analysis))
    if len({row[0] for row in rows}) < 2:
        return ()
    marks = _markers(analysis)
    return (
        _chart("latency", "Latency by batch", rows, marks, analysis),
        _chart("throughput", "Throughput by batch", rows, marks, analysis),
    )


def _rows(analysis: Analysis) -> Iterator[Row]:
    for row in analysis.sweep:
        for name, plan in row.plans.items():
            series = PLAN_SERIES.get(name, name)
            spread = (
                (row.batch / plan.high_s, row.batch / plan.low_s)
                if plan.low_s and plan.high_s
                else (None, None)
            )
            yield (
                row.batch,
                series,
                plan.latency_s,
                plan.low_s,
                plan.high_s,
                plan.throughput_per_s,
                *spread,
                plan.origin,
                "yes" if plan.fits else "no",
            )


def _markers(analysis: Analysis) -> tuple[dict[str, Any], ...]:
    verdict = analysis.verdict
    found = [(batch, f"crossover at {batch}") for batch in _crossovers(analysis)]
    if verdict.saturation_batch and uses_gpu(analysis):
        found.append((verdict.saturation_batch, f"GPU saturated from {verdict.saturation_batch}"))
    batches = [row.batch for row in analysis.sweep]
    if verdict.largest_batch and verdict.largest_batch < max(batches):
        found.append((verdict.largest_batch, f"largest that fits: {verdict.largest_batch}"))
    inside = [(batch, label) for batch, label in found if min(batches) <= batch <= max(batches)]
    middle = math.sqrt(min(batches) * max(batches))
    return tuple(
        {"batch": batch, "label": label, "row": row, "late": batch > middle}
        for row, (batch, label) in enumerate(inside)
    )


def _crossovers(analysis: Analysis) -> tuple[int, ...]:
    verdict = analysis.verdict
    if verdict.crossovers:
        return verdict.crossovers
    return (verdict.crossover_batch,) if verdict.crossover_batch else ()


def _chart(
    field: str, title: str, rows: tuple[Row, ...], marks: tuple[dict[str, Any], ...], analysis: Analysis
) -> Chart:
    series = [name for name in PLAN_SERIES.values() if any(row[1] == name for row in rows)]
    origins = {row[8] for row in rows}
    unit: ColumnKind = "seconds" if field == "latency" else "per_second"
    lead = {
        "latency": "Time for one batch, inputs and outputs copied. Bands are 90 % intervals.",
        "throughput": "Inferences per second. Where a line flattens, larger batches gain nothing.",
    }[field]
    lead += (
        " Filled points were measured, rings predicted, diamonds mixed."
        if len(origins) > 1
        else f" All points are {origin_words(origins)}."
    )
    return Chart(
        name=f"batch-{field}",
        title=title,
        lead=lead,
        alternative=_words(rows, series, analysis, field),
        engine="vega-lite",
        spec=_spec(field, title, unit, rows),
        columns=_COLUMNS,
        rows=rows,
        extra={"marks": marks},
        height=330,
    )


def _words(rows: tuple[Row, ...], series: list[str], analysis: Analysis, field: str) -> str:
    parts = [crossover(analysis)] if analysis.devices.gpu else []
    for name in series:
        mine = sorted((row for row in rows if row[1] == name), key=lambda row: int(row[0]))
        first, last = mine[0], mine[-1]
        if field == "latency":
            span = f"{seconds(first[2])} at batch {first[0]} to {seconds(last[2])} at batch {last[0]}"
        else:
            span = f"{per_second(first[5])} at batch {first[0]} to {per_second(last[5])} at batch {last[0]}"
        parts.append(f"{name}: {span}.")
    return " ".join(parts)


def _spec(field: str, title: str, unit: ColumnKind, rows: tuple[Row, ...]) -> dict[str, Any]:
    series = [name for name in PLAN_SERIES.values() if any(row[1] == name for row in rows)]
    shown = [value for row in rows for value in row[_COLUMNS_OF[field]]]
    batches = sorted({row[0] for row in rows})
    x = {"field": "batch", "type": "quantitative", "scale": {"type": "log", "base": 2}}
    y = {"type": "quantitative", "scale": {"type": "log"}}
    across = axis("count", "Batch", grid=False, values=_thinned(batches))
    up = axis(unit, title.split(" ", maxsplit=1)[0], values=decades(shown))
    colour = {
        "field": "plan",
        "type": "nominal",
        "scale": colours(*series),
        "title": None,
        "legend": {"symbolType": "square", "columns": 4},
    }
    band = {
        "x": {**x, "axis": across},
        "y": {**y, "field": _LOW[field], "axis": up},
        "y2": {"field": _HIGH[field]},
    }
    line = {"x": x, "y": {**y, "field": field}, "color": colour}
    faded = {"condition": {"param": "plans", "value": 1}, "value": 0.12}
    alone = {"filter": f"datum.plan !== '{BEST}'"}
    return {
        "width": "container",
        "height": 270,
        "data": {"name": "table"},
        "layer": [
            {
                "transform": [alone],
                "mark": {"type": "area", "opacity": 0.14},
                "encoding": {**band, "color": colour},
            },
            {
                "transform": [{"filter": f"datum.plan === '{BEST}'"}],
                "mark": {"type": "line", "strokeWidth": 9, "strokeOpacity": 0.35, "strokeCap": "round"},
                "encoding": {**line, "opacity": faded},
            },
            {
                "transform": [alone],
                "mark": {"type": "line", "strokeWidth": 2},
                "encoding": {**line, "opacity": faded},
            },
            _points(line, faded),
            *_rules(x),
        ],
    }


def _points(line: dict[str, Any], faded: dict[str, Any]) -> dict[str, Any]:
    """Every plan at every batch: filled where measured, a ring where predicted."""
    shapes = {"domain": list(_SHAPES), "range": list(_SHAPES.values())}
    filled = {"condition": {"test": "datum.origin === 'predicted'", "value": "var(--surface)"}, **line["color"]}
    return {
        "params": [{"name": "plans", "select": {"type": "point", "fields": ["plan"]}, "bind": "legend"}],
        "mark": {"type": "point", "filled": True, "size": 60, "strokeWidth": 2},
        "encoding": {
            **{channel: line[channel] for channel in ("x", "y")},
            "stroke": line["color"],
            "fill": {**filled, "legend": None},
            "shape": {"field": "origin", "scale": shapes, "legend": None},
            "opacity": faded,
            "tooltip": tooltip(*_COLUMNS),
        },
    }


def _thinned(batches: list[int]) -> list[int]:
    """At most ten of the batches, evenly spread, for the labels of an axis."""
    return batches[:: -(-len(batches) // 10)]


def _rules(x: dict[str, Any]) -> list[dict[str, Any]]:
    data = {"data": {"name": "marks"}}
    text = {
        "type": "text",
        "align": {"expr": "datum.late ? 'right' : 'left'"},
        "dx": {"expr": "datum.late ? -5 : 5"},
        "dy": {"expr": "8 + 15 * datum.row"},
        "fontSize": 11,
        "color": "var(--text)",
    }
    return [
        {**data, "mark": {"type": "rule", "strokeDash": [4, 4], "color": "var(--muted)"}, "encoding": {"x": x}},
        {**data, "mark": text, "encoding": {"x": x, "y": {"value": 0}, "text": {"field": "label"}}},
    ]
