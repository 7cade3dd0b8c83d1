"""Reporting: charts of a comparison: every record over the batch, every record's operators on the roofline."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from analyzer.record.analysis import Analysis
from analyzer.report.charts.chart import (
    CPU,
    GPU,
    HOLLOW_IF_PREDICTED,
    Chart,
    Column,
    ColumnKind,
    Row,
    axis,
    batch_ticks,
    decades,
    layered,
    legend_selection,
    nominal,
    origin_words,
    page_colours,
    paler_if_predicted,
    quantity,
    series,
    text_over_marks,
    tooltip,
)
from analyzer.report.charts.roofline import (
    NARROW,
    READING,
    Roof,
    above_words,
    axes,
    intensity_range,
    kernels,
    points_words,
    roof_of,
)
from analyzer.report.compare.comparison import Comparison
from analyzer.report.compare.plan_charts import labelled, record_shapes
from analyzer.report.summary.figure_words import per_second
from analyzer.text import listed
from analyzer.units import seconds

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
# Colour and shape tell the record here, so that the device is told by the line.
_DASHES = {CPU: [5, 4], GPU: [1, 0]}


def batches(comparison: Comparison) -> tuple[Chart, ...]:
    """Latency and throughput over the batch, all records in one; nothing where only one batch is known."""
    rows = tuple(row for label, analysis, _ in labelled(comparison) for row in _batch_rows(label, analysis))
    if len({row[2] for row in rows}) < 2:
        return ()
    return (
        _batch_chart("latency", "Latency by batch", rows, comparison.labels),
        _batch_chart("throughput", "Throughput by batch", rows, comparison.labels),
    )


def _batch_rows(label: str, analysis: Analysis) -> Iterator[Row]:
    for row in analysis.sweep:
        for name, plan in row.plans.items():
            # The best plan is one of the two or near it: a third curve a record would hide the others.
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
    # Where all are predicted, all are rings: nothing to be told apart.
    lead += "; rings are predicted." if {row[7] for row in rows} > {"predicted"} else "."
    return Chart(
        name=f"record-{field}",
        title=title,
        lead=lead,
        alternative=_batch_words(field, rows),
        spec=_batch_spec(field, title, rows, labels, sides),
        columns=_BATCHES,
        rows=rows,
        height=350,
    )


def _batch_words(field: str, rows: tuple[Row, ...]) -> str:
    """Each record on each device from the first to the last batch; records that read the same together."""
    labels_of: dict[tuple[str, str], list[str]] = {}
    for label, side in dict.fromkeys((row[0], row[1]) for row in rows):
        curve = sorted((row for row in rows if row[:2] == (label, side)), key=lambda row: int(row[2]))
        ends = [
            f"{seconds(row[3]) if field == 'latency' else per_second(row[6])} at batch {row[2]}"
            for row in (curve[0], curve[-1])
        ]
        labels_of.setdefault((side, " to ".join(dict.fromkeys(ends))), []).append(label)
    return " ".join(f"{listed(labels)} on the {side}: {ends}." for (side, ends), labels in labels_of.items())


def _batch_spec(
    field: str, title: str, rows: tuple[Row, ...], labels: Sequence[str], sides: list[str]
) -> dict[str, Any]:
    unit: ColumnKind = "seconds" if field == "latency" else "per_second"
    at = 3 if field == "latency" else 6
    across = axis("count", "Batch", grid=False, values=batch_ticks(row[2] for row in rows))
    up = axis(unit, title.split(" ", maxsplit=1)[0], values=decades(row[at] for row in rows))
    encoding = {
        "x": quantity("batch", across, type="log", base=2),
        "y": quantity(field, up, type="log"),
        "color": _coloured(labels),
        "opacity": _faded("record", "plan"),
    }
    dashes = {"domain": sides, "range": [_DASHES[side] for side in sides]}
    dash = nominal("plan", scale=dashes, title=None)
    return layered(
        270,
        [
            {
                "mark": {"type": "line", "strokeWidth": 2},
                "encoding": {**encoding, "strokeDash": dash, "detail": [{"field": "plan"}]},
            },
            {
                "params": [legend_selection(name, name) for name in ("record", "plan")],
                "mark": {"type": "point", "filled": True, "strokeWidth": 2},
                "encoding": {**encoding, **_batch_points(labels)},
            },
        ],
    )


def _batch_points(labels: Sequence[str]) -> dict[str, Any]:
    return {
        "stroke": _coloured(labels),
        "fill": {"condition": HOLLOW_IF_PREDICTED, **_coloured(labels), "legend": None},
        "shape": {"field": "record", "scale": record_shapes(labels), "legend": None},
        # The batch that the record's operators and plans are of; the others are its sweep.
        "size": {"condition": {"test": "datum.own === 'yes'", "value": 150}, "value": 40},
        "tooltip": tooltip(*_BATCHES),
    }


def _coloured(labels: Sequence[str]) -> dict[str, Any]:
    return series("record", page_colours(labels), columns=3)


def _faded(*params: str) -> dict[str, Any]:
    chosen: Any = {"and": [{"param": name} for name in params]}
    return {"condition": {"test": chosen, "value": 1}, "value": 0.07}


def roofline(comparison: Comparison) -> Chart | None:
    """Every operator of every record where its best plan runs it; None where no work or time is known."""
    rows = tuple(row for label, analysis, _ in labelled(comparison) for row in _points(label, analysis))
    if not rows:
        return None
    by_point = _roof_of_points(comparison, rows)
    roofs = _roofs(by_point, rows)
    above = above_words((by_point[row[0], row[4]], row[6]) for row in rows if (row[0], row[4]) in by_point)
    return Chart(
        name="record-roofline",
        title="Roofline of all records",
        lead="A point for each operator on the device where its record's best plan runs it: what it computes "
        "for each byte it moves, and the speed it reaches. Of two points of one operator the higher is "
        f"faster; {READING}. Larger points take longer. {above}".strip(),
        alternative=_point_words(comparison.labels, rows),
        spec=_roofline_spec(comparison.labels, rows, roofs),
        columns=_POINTS,
        rows=rows,
        extra=roofs,
        height=480,
    )


def _points(label: str, analysis: Analysis) -> Iterator[Row]:
    """Where the best plan runs each operator, by index."""
    run = [
        (kernel.operator.index, side, kernel)
        for side, placement in ((CPU, "cpu"), (GPU, "gpu"))
        for kernel in kernels(analysis, side)
        if kernel.operator.placement == placement
    ]
    for index, side, kernel in sorted(run, key=lambda point: point[:2]):
        named = (index, kernel.operator.op_type, kernel.operator.module)
        work = (kernel.intensity, kernel.speed, kernel.time_s)
        yield (label, *named, side, *work, kernel.bound, kernel.origin)


def _roof_of_points(comparison: Comparison, rows: tuple[Row, ...]) -> dict[tuple[str, str], Roof]:
    """By record and side of each point the roof that it lies under."""
    sides = {(row[0], row[4]) for row in rows}
    known = {
        (label, side): roof_of(analysis, side)
        for label, analysis, _ in labelled(comparison)
        for side in (CPU, GPU)
        if (label, side) in sides
    }
    # The records of a comparison mostly share their devices: one line for all of them, at the highest ceiling
    # where each measured its own.
    highest: dict[str, Roof] = {}
    for each in filter(None, known.values()):
        drawn = highest.setdefault(_roof_name(each), each)
        highest[_roof_name(each)] = max(drawn, each, key=lambda one: one.peak_flops_per_s)
    return {point: highest[_roof_name(each)] for point, each in known.items() if each is not None}


def _roofs(
    by_point: Mapping[tuple[str, str], Roof], rows: tuple[Row, ...]
) -> dict[str, tuple[dict[str, Any], ...]]:
    """Data sets of the roofs' lines and of the words at their ends."""
    roofs = {_roof_name(each): each for each in by_point.values()}.values()
    low, high = intensity_range((row[5] for row in rows), roofs)
    lines = [
        {"roof": _roof_name(each), "plan": each.side, "intensity": intensity, "speed": speed}
        for each in roofs
        for intensity, speed in each.line(low, high)
    ]
    ends = [
        {"roof": _roof_name(each), "intensity": high, "speed": each.peak_flops_per_s, "ceiling": each.words}
        for each in roofs
    ]
    return {"roofs": tuple(lines), "ends": tuple(ends)}


def _roof_name(drawn: Roof) -> str:
    return f"{drawn.device.name} {drawn.dtype}"


def _point_words(labels: Sequence[str], rows: tuple[Row, ...]) -> str:
    parts = []
    for label in labels:
        points = [row for row in rows if row[0] == label]
        if not points:
            parts.append(f"{label}: no operator has work and a time.")
            continue
        parts.append(points_words(label, [(row[2], row[1], *row[5:9]) for row in points]))
    return " ".join(parts)


def _roofline_spec(
    labels: Sequence[str], rows: tuple[Row, ...], roofs: dict[str, tuple[dict[str, Any], ...]]
) -> dict[str, Any]:
    x, y, drawn = axes(rows, roofs)
    return {
        "width": "container",
        "height": 400,
        "layer": [
            {
                "data": {"name": "roofs"},
                "mark": {"type": "line", "strokeWidth": 1.5, "color": "var(--muted)"},
                "encoding": {**drawn, "detail": {"field": "roof"}},
            },
            _operators(x, y, labels, sorted({row[4] for row in rows})),
            *_ceilings(x, y),
        ],
    }


def _operators(x: dict[str, Any], y: dict[str, Any], labels: Sequence[str], sides: list[str]) -> dict[str, Any]:
    shapes = {"domain": sides, "range": [{CPU: "circle", GPU: "square"}[side] for side in sides]}
    shape = nominal("device", scale=shapes, title="Runs on")
    area = {"type": "sqrt", "range": [20, 320]}
    return {
        "data": {"name": "table"},
        "params": [legend_selection(name, name) for name in ("record", "device")],
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
            "fillOpacity": paler_if_predicted(0.2),
            "size": {**quantity("time", **area), "legend": None},
            "opacity": {**_faded("record", "device"), "value": 0.05},
            "tooltip": tooltip(*_POINTS),
        },
    }


def _ceilings(x: dict[str, Any], y: dict[str, Any]) -> list[dict[str, Any]]:
    """The ceilings' words at the right end of each roof."""
    mark = {"type": "text", "fontSize": 11, "fontWeight": 600, "align": "right", "dy": -8}
    text = {"condition": {"test": NARROW, "field": "roof"}, "field": "ceiling"}
    rim, words = text_over_marks("ends", mark, {"x": x, "y": y, "text": text})
    return [rim, {**words, "mark": {**words["mark"], "color": "var(--text)"}}]
