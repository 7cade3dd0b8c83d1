"""Reporting: latency and the batch that forms against the load of one instance, up to its highest rate."""

from __future__ import annotations

from typing import Any

from analyzer.record.capacity import CapacityOption, CapacityResult, InstanceLoads
from analyzer.report import capacity_words as words
from analyzer.report.charts.chart import (
    Chart,
    Column,
    Row,
    axis,
    decades,
    legend_selection,
    text_over_marks,
    tooltip,
)
from analyzer.report.generation_words import rate
from analyzer.units import count, digits, seconds, share

_LATENCY = (
    Column(name="rate", title="Requests per second", kind="per_second"),
    Column(name="of", title="Latency of"),
    Column(name="latency", title="Latency", kind="seconds"),
    Column(name="utilisation", title="Utilisation", kind="share"),
    Column(name="limited", title="Limited"),
)
_BATCH = (
    Column(name="rate", title="Requests per second", kind="per_second"),
    Column(name="batch", title="Mean batch", kind="number"),
    Column(name="utilisation", title="Utilisation", kind="share"),
)
_PERCENTILES = {
    "p50": "var(--record-3)",
    "p90": "var(--record-1)",
    "p95": "var(--record-4)",
    "p99": "var(--record-5)",
}
_MEAN = {"mean": "var(--record-8)"}
# Of the axis' length: from where on a mark's words are written to the left of it.
_LATE = 0.6


def charts(told: CapacityResult) -> tuple[Chart, ...]:
    """Of the best option, else of the one that comes nearest; nothing where too few loads of it are known."""
    at = told.best if told.best is not None else words.nearest(told)
    one = words.loads(told, at) if at is not None else None
    if one is None or at is None or len(one.loads) < 2:
        return ()
    option = told.options[at]
    return (_latency(told, option, one), _batch(told, option, one))


def _marks(told: CapacityResult, option: CapacityOption, end: float) -> tuple[dict[str, Any], ...]:
    """Where an instance stands at the planned rate, and the most that it takes within the limit."""
    marks = []
    if option.count:
        share_of_each = words.planned(told) / option.count
        each = f"each of {count(option.count)}" if option.count > 1 else "planned"
        marks.append((share_of_each, f"{each}: {rate(share_of_each)}/s"))
    if option.highest_rate_per_s is not None:
        marks.append((option.highest_rate_per_s, f"highest: {rate(option.highest_rate_per_s)}/s"))
    return tuple(
        # One above the other: the two may lie close together.
        {"rate": value, "label": label, "late": value > end * _LATE, "line": 8 + 14 * line}
        for line, (value, label) in enumerate(marks)
    )


def _latency(told: CapacityResult, option: CapacityOption, one: InstanceLoads) -> Chart:
    colours = _PERCENTILES if told.percentile is not None else _PERCENTILES | _MEAN
    kept = words.limited(told)
    rows: tuple[Row, ...] = tuple(
        (
            point.rate_per_s,
            name,
            getattr(point, f"{name}_s"),
            point.utilisation,
            "yes" if name == kept else "no",
        )
        for name in colours
        for point in one.loads
    )
    lead = (
        f"Of one {option.instance}, waiting included: half of the requests are answered within p50, 99 of 100 "
        f"within p99. The thick line is {kept}, which is limited"
    )
    lead += "." if option.feasible else "; at no rate does it keep the limit."
    return Chart(
        name="capacity-latency",
        title="Latency by load",
        lead=lead,
        alternative=_words(told, option, one),
        engine="vega-lite",
        spec=_latency_spec(rows, told, colours),
        columns=_LATENCY,
        rows=rows,
        extra={
            "limits": ({"limit": told.limit_s, "label": f"limit {seconds(told.limit_s)}"},),
            "marks": _marks(told, option, one.loads[-1].rate_per_s),
        },
        height=360,
    )


def _words(told: CapacityResult, option: CapacityOption, one: InstanceLoads) -> str:
    kept, first, last = words.limited(told), one.loads[0], one.loads[-1]
    low, high = (
        f"{seconds(words.latency(told, point))} at {words.requests(point.rate_per_s)}"
        for point in (first, last)
    )
    said = f"{kept} of one {option.instance}: {low}, {high}. The limit is {seconds(told.limit_s)}"
    highest = option.highest_rate_per_s
    return f"{said}, kept up to {words.requests(highest)}." if highest is not None else f"{said}."


def _batch(told: CapacityResult, option: CapacityOption, one: InstanceLoads) -> Chart:
    rows: tuple[Row, ...] = tuple(
        (point.rate_per_s, point.mean_batch, point.utilisation) for point in one.loads
    )
    low, high = (
        f"{digits(point.mean_batch, 2)} at {words.requests(point.rate_per_s)}, {share(point.utilisation)} busy"
        for point in (one.loads[0], one.loads[-1])
    )
    most = f", at most {count(option.max_batch)}" if option.max_batch is not None else ""
    return Chart(
        name="capacity-batch",
        title="Batch by load",
        lead=f"How many requests form a batch on average{most}. The more wait, the larger the batches.",
        alternative=f"Requests in a batch: {low}; {high}.",
        engine="vega-lite",
        spec=_batch_spec(option, max(row[1] for row in rows)),
        columns=_BATCH,
        rows=rows,
        extra={"marks": _marks(told, option, one.loads[-1].rate_per_s)},
        height=360,
    )


def _latency_spec(rows: tuple[Row, ...], told: CapacityResult, colours: dict[str, str]) -> dict[str, Any]:
    x, across = _rates()
    # No whole decade below the lines, where nothing is.
    y = {"field": "latency", "type": "quantitative", "scale": {"type": "log", "nice": False, "padding": 18}}
    up = axis("seconds", "Latency", values=decades([*(row[2] for row in rows), told.limit_s]))
    colour = {
        "field": "of",
        "type": "nominal",
        "scale": {"domain": list(colours), "range": list(colours.values())},
        "sort": list(colours),
        "title": None,
        "legend": {"symbolType": "square"},
    }
    faded = {"condition": {"param": "latencies", "value": 1}, "value": 0.1}
    thick = {"condition": {"test": "datum.limited === 'yes'", "value": 3.5}, "value": 1.5}
    layers: list[dict[str, Any]] = [
        {
            "mark": {"type": "line"},
            "encoding": {
                "x": {**x, "axis": across},
                "y": {**y, "axis": up},
                "color": colour,
                "strokeWidth": thick,
                "opacity": faded,
            },
        },
        {
            "params": [legend_selection("latencies", "of")],
            "mark": {
                "type": "point",
                "filled": False,
                "fill": "var(--surface)",
                "size": 40,
                "strokeWidth": 1.6,
            },
            "encoding": {"x": x, "y": y, "color": colour, "opacity": faded, "tooltip": tooltip(*_LATENCY[:-1])},
        },
        *_limit(y, below=told.best is None),
        *_vertical(x),
    ]
    return {"width": "container", "height": 280, "data": {"name": "table"}, "layer": layers}


def _batch_spec(option: CapacityOption, most: float) -> dict[str, Any]:
    x, across = _rates()
    colour = f"var(--{option.kind})"
    y = {"field": "batch", "type": "quantitative", "scale": {"domain": [0, 1.1 * most], "nice": False}}
    up = axis("number", "Mean batch", tickCount=6)
    layers: list[dict[str, Any]] = [
        {
            "mark": {"type": "line", "strokeWidth": 2.5, "color": colour},
            "encoding": {"x": {**x, "axis": across}, "y": {**y, "axis": up}},
        },
        {
            "mark": {
                "type": "point",
                "filled": False,
                "fill": "var(--surface)",
                "size": 40,
                "strokeWidth": 1.6,
                "color": colour,
                "opacity": 1,
            },
            "encoding": {"x": x, "y": y, "tooltip": tooltip(*_BATCH)},
        },
        *_vertical(x),
    ]
    return {"width": "container", "height": 310, "data": {"name": "table"}, "layer": layers}


def _rates() -> tuple[dict[str, Any], dict[str, Any]]:
    x = {"field": "rate", "type": "quantitative", "scale": {"zero": True, "nice": False}}
    return x, axis("per_second", "Requests per second to one instance", grid=False, tickCount=6)


def _limit(y: dict[str, Any], *, below: bool) -> list[dict[str, Any]]:
    place = {**y, "field": "limit"}
    rule = {
        "data": {"name": "limits"},
        "mark": {"type": "rule", "strokeDash": [4, 4], "color": "var(--bad)", "strokeWidth": 1.5},
        "encoding": {"y": place},
    }
    # On the side where the lines are not.
    mark = {
        "type": "text",
        "align": "left",
        "dx": 4,
        "dy": 8 if below else -7,
        "fontSize": 11,
        "color": "var(--bad)",
    }
    return [rule, *text_over_marks("limits", mark, {"x": {"value": 0}, "y": place, "text": {"field": "label"}})]


def _vertical(x: dict[str, Any]) -> list[dict[str, Any]]:
    rule = {
        "data": {"name": "marks"},
        "mark": {"type": "rule", "strokeDash": [4, 4], "color": "var(--muted)", "strokeWidth": 1.5},
        "encoding": {"x": x},
    }
    align = {
        "align": {"expr": "datum.late ? 'right' : 'left'"},
        "dx": {"expr": "datum.late ? -6 : 6"},
        "dy": {"expr": "datum.line"},
    }
    mark = {"type": "text", **align, "fontSize": 11, "color": "var(--text)"}
    return [rule, *text_over_marks("marks", mark, {"x": x, "y": {"value": 0}, "text": {"field": "label"}})]
