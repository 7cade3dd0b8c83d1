"""Reporting: charts of a comparison: every record over the batch, every record's operators on the roofline."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from analyzer.record.analysis import Analysis, DeviceInfo, OperatorResult
from analyzer.report.charts.chart import (
    CPU,
    GPU,
    Chart,
    Column,
    ColumnKind,
    Row,
    axis,
    decades,
    origin_words,
    tooltip,
)
from analyzer.report.compare.comparison import Comparison
from analyzer.report.compare.plan_charts import paired, picked, record_colours, record_shapes
from analyzer.report.summary import peak, per_second
from analyzer.text import listed, plural
from analyzer.units import digits, rate, seconds

_BATCHES = (
    Column(name="record", title="Record"),
    Column(name="plan", title="Plan"),
    Column(name="batch", title="Batch", kind="count"),
    Column(name="latency", title="Latency", kind="seconds"),
    Column(name="low", title="Low (90 %)", kind="seconds"),
    Column(name="high", title="High (90 %)", kind="seconds"),
    Column(name="throughput", title="Per second", kind="per_second"),
    Column(name="origin", title="Origin"),
    Column(name="fits", title="Fits in memory"),
    Column(name="own", title="The record's own batch"),
)
_POINTS = (
    Column(name="record", title="Record"),
    Column(name="number", title="#", kind="count"),
    Column(name="operator", title="Operator"),
    Column(name="module", title="Module"),
    Column(name="device", title="Device"),
    Column(name="intensity", title="FLOPs per byte", kind="number"),
    Column(name="speed", title="Attained", kind="rate"),
    Column(name="time", title="Time", kind="seconds"),
    Column(name="bound", title="Bound"),
    Column(name="origin", title="Origin"),
)
_SIDES = {"cpu": CPU, "gpu": GPU}
_DASHES = {CPU: [5, 4], GPU: [1, 0]}


def batches(comparison: Comparison) -> tuple[Chart, ...]:
    """Latency and throughput over the batch, all records in one; nothing where only one batch is known."""
    rows = tuple(row for label, analysis, _ in paired(comparison) for row in _batch_rows(label, analysis))
    if len({row[2] for row in rows}) < 2:
        return ()
    return (
        _batch_chart("latency", "Latency by batch", rows, comparison.labels),
        _batch_chart("throughput", "Throughput by batch", rows, comparison.labels),
    )


def _batch_rows(label: str, analysis: Analysis) -> Iterator[Row]:
    for row in analysis.sweep:
        for name, plan in row.plans.items():
            if name in _SIDES:
                yield (
                    label,
                    _SIDES[name],
                    row.batch,
                    plan.latency_s,
                    plan.low_s,
                    plan.high_s,
                    plan.throughput_per_s,
                    plan.origin,
                    "yes" if plan.fits else "no",
                    "yes" if row.batch == analysis.model.batch else "no",
                )


def _batch_chart(field: str, title: str, rows: tuple[Row, ...], labels: Sequence[str]) -> Chart:
    sides = [side for side in (CPU, GPU) if any(row[1] == side for row in rows)]
    lead = {
        "latency": "Time for one batch, inputs and outputs copied.",
        "throughput": "Inferences per second.",
    }[field]
    if len(sides) > 1:
        lead += " Whole lines are the GPU's plan, dashed ones the CPU's."
    lead += f" Large points are the batch a record is of. Times are {origin_words(row[7] for row in rows)}"
    lead += "; rings are predicted." if {row[7] for row in rows} > {"predicted"} else "."
    return Chart(
        name=f"record-{field}",
        title=title,
        lead=lead,
        alternative=_batch_words(field, rows),
        engine="vega-lite",
        spec=_batch_spec(field, title, rows, labels, sides),
        columns=_BATCHES,
        rows=rows,
        extra={},
        height=350,
    )


def _batch_words(field: str, rows: tuple[Row, ...]) -> str:
    """Each record on each device from the first to the last batch; records that read the same together."""
    said: dict[tuple[str, str], list[str]] = {}
    for label, side in dict.fromkeys((row[0], row[1]) for row in rows):
        mine = sorted((row for row in rows if row[:2] == (label, side)), key=lambda row: int(row[2]))
        ends = [
            f"{seconds(row[3]) if field == 'latency' else per_second(row[6])} at batch {row[2]}"
            for row in (mine[0], mine[-1])
        ]
        said.setdefault((side, " to ".join(dict.fromkeys(ends))), []).append(label)
    return " ".join(f"{listed(labels)} on the {side}: {ends}." for (side, ends), labels in said.items())


def _batch_spec(
    field: str, title: str, rows: tuple[Row, ...], labels: Sequence[str], sides: list[str]
) -> dict[str, Any]:
    unit: ColumnKind = "seconds" if field == "latency" else "per_second"
    ticks = sorted({row[2] for row in rows})
    at = 3 if field == "latency" else 6
    encoding = {
        "x": {
            "field": "batch",
            "type": "quantitative",
            "scale": {"type": "log", "base": 2},
            "axis": axis("count", "Batch", grid=False, values=ticks[:: -(-len(ticks) // 10)]),
        },
        "y": {
            "field": field,
            "type": "quantitative",
            "scale": {"type": "log"},
            "axis": axis(unit, title.split(" ", maxsplit=1)[0], values=decades(row[at] for row in rows)),
        },
        "color": _coloured(labels),
        "opacity": _faded("record", "plan"),
    }
    dashes = {"domain": sides, "range": [_DASHES[side] for side in sides]}
    dash = {"field": "plan", "type": "nominal", "scale": dashes, "title": None}
    return {
        "width": "container",
        "height": 270,
        "data": {"name": "table"},
        "layer": [
            {
                "mark": {"type": "line", "strokeWidth": 2},
                "encoding": {**encoding, "strokeDash": dash, "detail": [{"field": "plan"}]},
            },
            {
                "params": [picked("record"), picked("plan")],
                "mark": {"type": "point", "filled": True, "strokeWidth": 2},
                "encoding": {**encoding, **_batch_points(labels)},
            },
        ],
    }


def _batch_points(labels: Sequence[str]) -> dict[str, Any]:
    ring = {"test": "datum.origin === 'predicted'", "value": "var(--surface)"}
    return {
        "stroke": _coloured(labels),
        "fill": {"condition": ring, **_coloured(labels), "legend": None},
        "shape": {"field": "record", "scale": record_shapes(labels), "legend": None},
        "size": {"condition": {"test": "datum.own === 'yes'", "value": 150}, "value": 40},
        "tooltip": tooltip(*_BATCHES),
    }


def _coloured(labels: Sequence[str]) -> dict[str, Any]:
    return {
        "field": "record",
        "type": "nominal",
        "scale": record_colours(labels),
        "title": None,
        "legend": {"columns": 3, "symbolType": "square"},
    }


def _faded(*params: str) -> dict[str, Any]:
    chosen: Any = {"and": [{"param": name} for name in params]}
    return {"condition": {"test": chosen, "value": 1}, "value": 0.07}


def roofline(comparison: Comparison) -> Chart | None:
    """Every operator of every record where its best plan runs it; None where no work or time is known."""
    rows = tuple(row for label, analysis, _ in paired(comparison) for row in _points(label, analysis))
    if not rows:
        return None
    roofs = _roofs(comparison, rows)
    return Chart(
        name="record-roofline",
        title="Roofline of all records",
        lead="A point for each operator on the device where its record's best plan runs it: what it computes "
        "for each byte it moves, and the speed it reaches. Of two points of one operator the higher is "
        "faster; under the slope memory limits it, under the flat part arithmetic. Larger points take longer.",
        alternative=_point_words(comparison.labels, rows),
        engine="vega-lite",
        spec=_roofline_spec(comparison.labels, rows, roofs),
        columns=_POINTS,
        rows=rows,
        extra=roofs,
        height=480,
    )


def _points(label: str, analysis: Analysis) -> Iterator[Row]:
    for item in analysis.operators:
        side = item.gpu if item.placement == "gpu" else item.cpu
        if item.flops and item.intensity and side is not None and side.time_s:
            device = GPU if item.placement == "gpu" else CPU
            speed = item.flops / side.time_s
            work = (item.intensity, speed, side.time_s)
            yield (label, *_named(item), device, *work, side.bound or "", side.origin)


def _named(item: OperatorResult) -> tuple[int, str, str]:
    return item.index, item.op_type, item.module


def _used(comparison: Comparison, rows: tuple[Row, ...]) -> Iterator[tuple[str, DeviceInfo, str]]:
    """Each device that a point lies under once, with the precision and whether it is a CPU or a GPU."""
    sides = {(row[0], row[4]) for row in rows}
    seen = set()
    for label, analysis, _ in paired(comparison):
        for side, device in ((CPU, analysis.devices.cpu), (GPU, analysis.devices.gpu)):
            if device is None or (label, side) not in sides:
                continue
            if (device.name, analysis.model.precision) not in seen:
                seen.add((device.name, analysis.model.precision))
                yield side, device, analysis.model.precision


def _roofs(comparison: Comparison, rows: tuple[Row, ...]) -> dict[str, tuple[dict[str, Any], ...]]:
    found = [
        (side, device, top)
        for side, device, precision in _used(comparison, rows)
        if (top := peak("cpu" if side == CPU else "gpu", device, precision))
    ]
    corners = [top[1] / device.bandwidth_bytes_per_s for _, device, top in found]
    low = min([row[5] for row in rows] + corners) / 2
    high = max([row[5] for row in rows] + corners) * 4
    lines, ends = [], []
    for (side, device, (dtype, ceiling)), corner in zip(found, corners, strict=True):
        name = f"{device.name} {dtype}"
        for at, speed in ((low, low * device.bandwidth_bytes_per_s), (corner, ceiling), (high, ceiling)):
            lines.append({"roof": name, "plan": side, "intensity": at, "speed": speed})
        words = f"{device.name}: {rate(ceiling, 'FLOP')} {dtype}, {rate(device.bandwidth_bytes_per_s, 'B')}"
        ends.append({"roof": name, "intensity": high, "speed": ceiling, "ceiling": words})
    return {"roofs": tuple(lines), "ends": tuple(ends)}


def _point_words(labels: Sequence[str], rows: tuple[Row, ...]) -> str:
    parts = []
    for label in labels:
        mine = [row for row in rows if row[0] == label]
        if not mine:
            parts.append(f"{label}: no operator has work and a time.")
            continue
        bounds = {bound: sum(row[8] == bound for row in mine) for bound in ("compute", "memory", "overhead")}
        split = ", ".join(f"{number} limited by {bound}" for bound, number in bounds.items() if number)
        slowest = max(mine, key=lambda row: float(row[7]))
        parts.append(
            f"{label}: {plural(len(mine), 'operator')}{f' ({split})' if split else ''}; "
            f"the slowest is {slowest[2]} "
            f"number {slowest[1]}, at {digits(slowest[5])} FLOPs per byte and {rate(slowest[6], 'FLOP')}."
        )
    return " ".join(parts)


def _roofline_spec(
    labels: Sequence[str], rows: tuple[Row, ...], roofs: dict[str, tuple[dict[str, Any], ...]]
) -> dict[str, Any]:
    across = decades([row[5] for row in rows] + [line["intensity"] for line in roofs["roofs"]])
    up = decades([row[6] for row in rows] + [line["speed"] for line in roofs["roofs"]])
    x = {"field": "intensity", "type": "quantitative", "scale": {"type": "log", "nice": False}}
    y = {"field": "speed", "type": "quantitative", "scale": {"type": "log"}}
    axes = {
        "x": {**x, "axis": axis("number", "Arithmetic intensity, FLOPs per byte", values=across, grid=False)},
        "y": {**y, "axis": axis("rate", "Attained FLOP/s", values=up)},
    }
    return {
        "width": "container",
        "height": 400,
        "layer": [
            {
                "data": {"name": "roofs"},
                "mark": {"type": "line", "strokeWidth": 1.5, "color": "var(--muted)"},
                "encoding": {**axes, "detail": {"field": "roof"}},
            },
            _operators(x, y, labels, sorted({row[4] for row in rows})),
            *_ceilings(x, y),
        ],
    }


def _operators(x: dict[str, Any], y: dict[str, Any], labels: Sequence[str], sides: list[str]) -> dict[str, Any]:
    shapes = {"domain": sides, "range": [{CPU: "circle", GPU: "square"}[side] for side in sides]}
    shape = {"field": "device", "type": "nominal", "scale": shapes, "title": "Runs on"}
    area = {"type": "sqrt", "range": [20, 320]}
    return {
        "data": {"name": "table"},
        "params": [picked("record"), picked("device")],
        "mark": {"type": "point", "filled": True, "strokeWidth": 1.5},
        "encoding": {
            "x": x,
            "y": y,
            "stroke": _coloured(labels),
            "fill": _coloured(labels),
            "shape": shape,
            # A point of the base shows around one of another record in the same place.
            "strokeWidth": {
                "condition": {"test": {"field": "record", "equal": labels[0]}, "value": 4},
                "value": 1.5,
            },
            "fillOpacity": {"condition": {"test": "datum.origin === 'predicted'", "value": 0.2}, "value": 1},
            "size": {"field": "time", "type": "quantitative", "scale": area, "legend": None},
            "opacity": {**_faded("record", "device"), "value": 0.05},
            "tooltip": tooltip(*_POINTS),
        },
    }


def _ceilings(x: dict[str, Any], y: dict[str, Any]) -> list[dict[str, Any]]:
    """The ceilings' words over a rim in the page's colour, as points may lie below."""
    text = {"type": "text", "fontSize": 11, "fontWeight": 600, "align": "right", "dy": -8}
    rim = {"stroke": "var(--surface)", "strokeWidth": 4, "strokeJoin": "round", "opacity": 0.85}
    words = {
        "condition": {"test": "width < 460", "field": "roof"},
        "field": "ceiling",
    }
    place = {"x": x, "y": y, "text": words}
    data = {"data": {"name": "ends"}}
    return [
        {**data, "mark": {**text, **rim}, "encoding": place},
        {**data, "mark": {**text, "color": "var(--text)"}, "encoding": place},
    ]
