"""Reporting: latency and throughput over the batch, with the crossover and the measured points."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from analyzer.analysis import Analysis
from analyzer.report.charts.chart import PLAN_SERIES, Chart, Column, Row, axis, colours, origin_words, tooltip
from analyzer.report.summary import crossover
from analyzer.units import rate, seconds

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
_SHAPES = {"measured": "circle", "predicted": "square", "mixed": "diamond"}


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
    found = [{"batch": batch, "label": f"crossover at {batch}"} for batch in _crossovers(analysis)]
    if verdict.saturation_batch:
        found.append(
            {"batch": verdict.saturation_batch, "label": f"GPU saturates at {verdict.saturation_batch}"}
        )
    return tuple(found)


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
    unit = "seconds" if field == "latency" else "per_second"
    lead = {
        "latency": "Time for one batch, inputs and outputs copied. Bands are 90 % intervals.",
        "throughput": "Inferences per second. Where a line flattens, larger batches gain nothing.",
    }[field]
    lead += (
        " Circles were measured, squares predicted."
        if len(origins) > 1
        else f" All points are {origin_words(origins)}."
    )
    return Chart(
        name=f"batch-{field}",
        title=title,
        lead=lead,
        alternative=_words(rows, series, analysis, field),
        engine="vega-lite",
        spec=_spec(field, title, unit, series),
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
            span = f"{rate(first[5], '')} at batch {first[0]} to {rate(last[5], '')} at batch {last[0]}"
        parts.append(f"{name}: {span}.")
    return " ".join(parts)


def _spec(field: str, title: str, unit: Any, series: list[str]) -> dict[str, Any]:
    low, high = ("low", "high") if field == "latency" else ("throughput_low", "throughput_high")
    x = {"field": "batch", "type": "quantitative", "scale": {"type": "log", "base": 2}}
    y = {"type": "quantitative", "scale": {"type": "log"}}
    colour = {
        "field": "plan",
        "type": "nominal",
        "scale": colours(*series),
        "title": None,
    }
    faded = {"condition": {"param": "plans", "value": 1}, "value": 0.12}
    return {
        "width": "container",
        "height": 270,
        "data": {"name": "table"},
        "layer": [
            {
                "mark": {"type": "area", "opacity": 0.14, "interpolate": "monotone"},
                "encoding": {
                    "x": {**x, "axis": axis("count", "Batch", grid=False)},
                    "y": {**y, "field": low, "axis": axis(unit, title.split(" ")[0])},
                    "y2": {"field": high},
                    "color": colour,
                },
            },
            {
                "mark": {"type": "line", "strokeWidth": 2, "interpolate": "monotone"},
                "encoding": {
                    "x": x,
                    "y": {**y, "field": field},
                    "color": colour,
                    "strokeDash": {
                        "field": "plan",
                        "scale": {"domain": series, "range": [[1, 0], [8, 3], [2, 3]][: len(series)]},
                        "legend": None,
                    },
                    "opacity": faded,
                },
            },
            {
                "params": [
                    {"name": "plans", "select": {"type": "point", "fields": ["plan"]}, "bind": "legend"}
                ],
                "mark": {"type": "point", "filled": True, "size": 70},
                "encoding": {
                    "x": x,
                    "y": {**y, "field": field},
                    "color": colour,
                    "shape": {
                        "field": "origin",
                        "scale": {"domain": list(_SHAPES), "range": list(_SHAPES.values())},
                        "legend": None,
                    },
                    "opacity": faded,
                    "tooltip": tooltip(*_COLUMNS),
                },
            },
            *_rules(x),
        ],
    }


def _rules(x: dict[str, Any]) -> list[dict[str, Any]]:
    data = {"data": {"name": "marks"}}
    return [
        {**data, "mark": {"type": "rule", "strokeDash": [4, 4], "color": "var(--muted)"}, "encoding": {"x": x}},
        {
            **data,
            "mark": {"type": "text", "align": "left", "dx": 4, "dy": 6, "fontSize": 11, "color": "var(--text)"},
            "encoding": {"x": x, "y": {"value": 0}, "text": {"field": "label"}},
        },
    ]
