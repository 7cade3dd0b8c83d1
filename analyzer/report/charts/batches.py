"""Reporting: latency and throughput over the batch, with the crossover and the measured points."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from analyzer.record.analysis import Analysis
from analyzer.record.batch_ranges import about, interval_words
from analyzer.report.charts.chart import (
    BEST,
    GPU,
    HOLLOW_IF_PREDICTED,
    Chart,
    Column,
    ColumnKind,
    Row,
    axis,
    batch_ticks,
    by_line,
    colours,
    decades,
    faded,
    legend_selection,
    origin_words,
    quantity,
    series,
    tooltip,
)
from analyzer.report.summary.figure_words import PLAN_TITLES, per_second
from analyzer.report.summary.model_facts import uses_gpu
from analyzer.report.summary.verdict_words import crossover
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
# Measured and predicted are told apart by their filling; a sum of both is neither, and gets a shape.
_SHAPES = {"measured": "circle", "predicted": "circle", "mixed": "diamond"}
# Which columns of a row an axis must hold: the figure and the ends of its interval.
_COLUMNS_OF = {"latency": slice(2, 5), "throughput": slice(5, 8)}
_LOW = {"latency": "low", "throughput": "throughput_low"}
_HIGH = {"latency": "high", "throughput": "throughput_high"}


def charts(analysis: Analysis) -> tuple[Chart, ...]:
    """Latency and throughput over the batch; nothing where fewer than two batches are known that can run."""
    rows = tuple(_rows(analysis))
    if len({row[0] for row in _fitting(rows)}) < 2:
        return ()
    marks = _markers(analysis)
    return (
        _chart("latency", "Latency by batch", rows, marks, analysis),
        _chart("throughput", "Throughput by batch", rows, marks, analysis),
    )


def _rows(analysis: Analysis) -> Iterator[Row]:
    for row in analysis.sweep:
        for name, plan in row.plans.items():
            # A throughput is the batch over its latency: the slow end of the one is the low end of the other.
            throughput_interval = (
                (row.batch / plan.high_s, row.batch / plan.low_s)
                if plan.low_s and plan.high_s
                else (None, None)
            )
            yield (
                row.batch,
                PLAN_TITLES[name],
                plan.latency_s,
                plan.low_s,
                plan.high_s,
                plan.throughput_per_s,
                *throughput_interval,
                plan.origin,
                "yes" if plan.fits else "no",
            )


def _markers(analysis: Analysis) -> tuple[dict[str, Any], ...]:
    """Vertical lines at the batches where something changes; each label on a row of its own."""
    verdict = analysis.verdict
    doubt = interval_words(verdict)
    markers = [
        (
            batch,
            f"crossover at {about(batch)}{f' ({doubt})' if doubt and batch == verdict.crossover_batch else ''}",
        )
        for batch in analysis.verdict.crossovers
    ]
    # A session that falls back to the CPU for everything is saturated by nothing.
    if verdict.saturation_batch and uses_gpu(analysis):
        markers.append((verdict.saturation_batch, f"GPU saturated from {verdict.saturation_batch}"))
    batches = [row.batch for row in analysis.sweep]
    if verdict.largest_batch and verdict.largest_batch < max(batches):
        markers.append((verdict.largest_batch, f"largest that fits: {verdict.largest_batch}"))
    # A crossover is looked for up to 4096, the chart ends with the batches of the sweep.
    shown = [(batch, label) for batch, label in markers if min(batches) <= batch <= max(batches)]
    # The middle of a logarithmic axis is the geometric mean; right of it a label is written to the left.
    middle = math.sqrt(min(batches) * max(batches))
    return tuple(
        {"batch": batch, "label": label, "row": row, "late": batch > middle}
        for row, (batch, label) in enumerate(shown)
    )


def _chart(
    field: str, title: str, rows: tuple[Row, ...], marks: tuple[dict[str, Any], ...], analysis: Analysis
) -> Chart:
    series = _plans_in(rows)
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
    if len(_fitting(rows)) < len(rows):
        lead += " A line ends where its device has no room for the batch, and the best plan's breaks there."
    return Chart(
        name=f"batch-{field}",
        title=title,
        lead=lead,
        alternative=_words(rows, series, analysis, field),
        spec=_spec(field, title, unit, rows),
        columns=_COLUMNS,
        rows=rows,
        extra={"marks": marks},
        height=330,
    )


def _fitting(rows: tuple[Row, ...]) -> tuple[Row, ...]:
    """What is drawn: a batch that a device has no room for has no time, and is in the table alone."""
    return tuple(row for row in rows if row[9] == "yes")


def _last_held(rows: tuple[Row, ...]) -> int:
    """The largest batch that the GPU holds whole; 0 where it holds none."""
    return max((int(row[0]) for row in _fitting(rows) if row[1] == GPU), default=0)


def _plans_in(rows: tuple[Row, ...]) -> list[str]:
    return [title for title in PLAN_TITLES.values() if any(row[1] == title for row in rows)]


def _words(rows: tuple[Row, ...], series: list[str], analysis: Analysis, field: str) -> str:
    parts = [crossover(analysis)] if analysis.devices.gpu else []
    for name in series:
        by_batch = sorted((row for row in _fitting(rows) if row[1] == name), key=lambda row: int(row[0]))
        if not by_batch:
            parts.append(f"{name}: fits at no batch.")
            continue
        first, last = by_batch[0], by_batch[-1]
        if field == "latency":
            span = f"{seconds(first[2])} at batch {first[0]} to {seconds(last[2])} at batch {last[0]}"
        else:
            span = f"{per_second(first[5])} at batch {first[0]} to {per_second(last[5])} at batch {last[0]}"
        parts.append(f"{name}: {span}.")
    return " ".join(parts)


def _spec(field: str, title: str, unit: ColumnKind, rows: tuple[Row, ...]) -> dict[str, Any]:
    figures = [figure for row in _fitting(rows) for figure in row[_COLUMNS_OF[field]]]
    x = quantity("batch", type="log", base=2)
    across = axis("count", "Batch", grid=False, values=batch_ticks(row[0] for row in _fitting(rows)))
    up = axis(unit, title.split(" ", maxsplit=1)[0], values=decades(figures))
    colour = series("plan", colours(*_plans_in(rows)), columns=4)
    # The axes are given once: Vega-Lite merges those of all layers.
    band = {
        "x": {**x, "axis": across},
        "y": quantity(_LOW[field], up, type="log"),
        "y2": {"field": _HIGH[field]},
    }
    line = {"x": x, "y": quantity(field, type="log"), "color": colour}
    pale = faded("plans", 0.12)
    # The best plan often is one of the others: a broad pale line below, and no band, leaves both to be seen.
    single_device = {"filter": f"datum.plan !== '{BEST}'"}
    return {
        "width": "container",
        "height": 270,
        "data": {"name": "table"},
        "transform": [
            {"filter": "datum.fits === 'yes'"},
            # Behind the largest batch that the GPU holds the best plan is another: its line does not go on.
            {"calculate": f"datum.batch <= {_last_held(rows)}", "as": "held"},
        ],
        "layer": [
            {
                "transform": [single_device],
                "mark": {"type": "area", "opacity": 0.14},
                "encoding": {**band, "color": colour},
            },
            {
                "transform": [{"filter": f"datum.plan === '{BEST}'"}],
                "mark": {"type": "line", "strokeWidth": 9, "strokeOpacity": 0.35, "strokeCap": "round"},
                "encoding": {**line, "opacity": pale, "detail": {"field": "held"}},
            },
            {
                "transform": [single_device],
                "mark": {"type": "line", "strokeWidth": 2},
                "encoding": {**line, "opacity": pale},
            },
            _points(line, pale),
            *_rules(x),
        ],
    }


def _points(line: dict[str, Any], pale: dict[str, Any]) -> dict[str, Any]:
    """Every plan at every batch: filled where measured, a ring where predicted."""
    shapes = {"domain": list(_SHAPES), "range": list(_SHAPES.values())}
    filled = {"condition": HOLLOW_IF_PREDICTED, **line["color"]}
    return {
        "params": [legend_selection("plans", "plan")],
        "mark": {"type": "point", "filled": True, "size": 60, "strokeWidth": 2},
        "encoding": {
            **{channel: line[channel] for channel in ("x", "y")},
            "stroke": line["color"],
            "fill": {**filled, "legend": None},
            "shape": {"field": "origin", "scale": shapes, "legend": None},
            "opacity": pale,
            "tooltip": tooltip(*_COLUMNS),
        },
    }


def _rules(x: dict[str, Any]) -> list[dict[str, Any]]:
    data = {"data": {"name": "marks"}}
    text = {
        "type": "text",
        **by_line(5),
        "dy": {"expr": "8 + 15 * datum.row"},
        "fontSize": 11,
        "color": "var(--text)",
    }
    return [
        {**data, "mark": {"type": "rule", "strokeDash": [4, 4], "color": "var(--muted)"}, "encoding": {"x": x}},
        {**data, "mark": text, "encoding": {"x": x, "y": {"value": 0}, "text": {"field": "label"}}},
    ]
