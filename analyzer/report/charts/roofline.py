"""Reporting: the roofline of both devices with a point for each operator."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from analyzer.record.analysis import Analysis, DeviceInfo, OperatorResult
from analyzer.report.charts.chart import (
    CPU,
    GPU,
    Chart,
    Column,
    Row,
    axis,
    colours,
    decades,
    origin_words,
    tooltip,
)
from analyzer.report.charts.families import SHAPES, family
from analyzer.report.summary import Time, peak
from analyzer.text import plural
from analyzer.units import digits, rate

_COLUMNS = (
    Column(name="index", title="#", kind="count"),
    Column(name="operator", title="Operator", lookup="operators.type"),
    Column(name="family", title="Family"),
    Column(name="module", title="Module", lookup="operators.module"),
    Column(name="device", title="Device"),
    Column(name="intensity", title="FLOPs per byte", kind="number"),
    Column(name="speed", title="Attained", kind="rate"),
    Column(name="time", title="Time", kind="seconds"),
    Column(name="share_of_roof", title="Of the roof", kind="share"),
    Column(name="bound", title="Bound"),
    Column(name="origin", title="Origin"),
)
_NARROW = "width < 460"


def chart(analysis: Analysis) -> Chart | None:
    """The chart, None where no operator has FLOPs, bytes and a time."""
    rows = tuple(_points(analysis))
    if not rows:
        return None
    roofs = _roofs(analysis, rows)
    left_out = len(analysis.operators) - len({row[0] for row in rows})
    lead = (
        "Each point is an operator on one device: what it computes for each byte it moves, and the speed it "
        "reaches. Under the slope memory limits it, under the flat part arithmetic; far below both, overhead. "
        f"Larger points take longer. {_origins(rows)} Click a point for its row, a legend entry to filter."
    )
    note = (
        " Bytes are those of the operator alone: one that is fused with others, or finds its data in a cache, "
        "can lie above the slope."
    )
    if left_out:
        have = "has" if left_out == 1 else "have"
        note += f" Without FLOPs, bytes or a time, {plural(left_out, 'operator')} {have} no place here."
    return Chart(
        name="roofline",
        title="Roofline",
        lead=lead,
        alternative=_words(rows, roofs) + note,
        engine="vega-lite",
        spec=_spec(rows, roofs),
        columns=_COLUMNS,
        rows=rows,
        extra=roofs,
        height=460,
    )


def _origins(rows: tuple[Row, ...]) -> str:
    origins = {row[10] for row in rows}
    if len(origins) > 1:
        return "Filled points were measured, rings predicted."
    return f"All times are {origin_words(origins)}."


def _points(analysis: Analysis) -> Iterator[Row]:
    gpu = analysis.devices.gpu
    for item in analysis.operators:
        yield from _point(item, CPU, item.cpu, analysis.devices.cpu, analysis.model.precision)
        if gpu is not None and item.gpu is not None and item.gpu.placed_on == "cuda":
            yield from _point(item, GPU, item.gpu, gpu, analysis.model.precision)


def _point(item: OperatorResult, side: str, time: Time, device: DeviceInfo, precision: str) -> Iterator[Row]:
    if not item.flops or not item.intensity or not time.time_s:
        return
    speed = item.flops / time.time_s
    top = peak("cpu" if side == CPU else "gpu", device, precision)
    slope = device.bandwidth_bytes_per_s * item.intensity
    share = speed / (min(top[1], slope) if top else slope)
    place = (item.index, item.op_type, family(item.op_type), item.module, side)
    yield (*place, item.intensity, speed, time.time_s, share, time.bound or "", time.origin)


def _roofs(analysis: Analysis, rows: tuple[Row, ...]) -> dict[str, tuple[dict[str, Any], ...]]:
    ridges = []
    lines = []
    sides = [(CPU, analysis.devices.cpu), *([(GPU, analysis.devices.gpu)] if analysis.devices.gpu else [])]
    precision = analysis.model.precision
    found = [
        (side, device, top)
        for side, device in sides
        if (top := peak("cpu" if side == CPU else "gpu", device, precision))
    ]
    corners = [top[1] / device.bandwidth_bytes_per_s for _, device, top in found]
    low = min([row[5] for row in rows] + corners) / 2
    high = max([row[5] for row in rows] + corners) * 4
    for (side, device, (dtype, ceiling)), corner in zip(found, corners, strict=True):
        band = device.bandwidth_bytes_per_s
        for at, speed in ((low, low * band), (corner, ceiling), (high, ceiling)):
            lines.append({"device": side, "intensity": at, "speed": speed})
        ridges.append(
            {
                "device": side,
                "intensity": corner,
                "speed": ceiling,
                "end": high,
                "ridge": f"ridge {digits(corner)} FLOP/B",
                "short": f"{side} {rate(ceiling, 'FLOP')}",
                "ceiling": f"{device.name}: {rate(ceiling, 'FLOP')} {dtype}, {rate(band, 'B')}",
            }
        )
    return {"roofs": tuple(lines), "ridges": tuple(ridges)}


def _words(rows: tuple[Row, ...], roofs: dict[str, tuple[dict[str, Any], ...]]) -> str:
    parts = [f"{ridge['ceiling']}, {ridge['ridge']}." for ridge in roofs["ridges"]]
    for side in (CPU, GPU):
        mine = [row for row in rows if row[4] == side]
        if not mine:
            continue
        bounds = {bound: sum(row[9] == bound for row in mine) for bound in ("compute", "memory", "overhead")}
        slowest = max(mine, key=lambda row: float(row[7]))
        split = ", ".join(f"{number} limited by {bound}" for bound, number in bounds.items() if number)
        parts.append(
            f"{side}: {plural(len(mine), 'operator')}{f' ({split})' if split else ''}; "
            f"the slowest is {slowest[1]} "
            f"number {slowest[0]}, at {digits(slowest[5])} FLOPs per byte and {rate(slowest[6], 'FLOP')}."
        )
    return " ".join(parts)


def _spec(rows: tuple[Row, ...], roofs: dict[str, tuple[dict[str, Any], ...]]) -> dict[str, Any]:
    families = sorted({row[2] for row in rows})
    sides = sorted({row[4] for row in rows} | {ridge["device"] for ridge in roofs["ridges"]})
    across = decades([row[5] for row in rows] + [line["intensity"] for line in roofs["roofs"]])
    up = decades([row[6] for row in rows] + [line["speed"] for line in roofs["roofs"]])
    x = {"field": "intensity", "type": "quantitative", "scale": {"type": "log", "nice": False}}
    y = {"field": "speed", "type": "quantitative", "scale": {"type": "log"}}
    colour = {"field": "device", "type": "nominal", "scale": colours(*sides), "title": "Device"}
    roof = {"data": {"name": "roofs"}, "mark": {"type": "line", "strokeWidth": 2, "strokeOpacity": 0.7}}
    return {
        "width": "container",
        "height": 400,
        "layer": [
            {
                **roof,
                "encoding": {
                    "x": {
                        **x,
                        "axis": axis(
                            "number", "Arithmetic intensity, FLOPs per byte", values=across, grid=False
                        ),
                    },
                    "y": {**y, "axis": axis("rate", "Attained FLOP/s", values=up)},
                    "color": colour,
                    "detail": {"field": "device"},
                },
            },
            _operators(x, y, colour, families),
            {
                "data": {"name": "picked"},
                "mark": {
                    "type": "point",
                    "size": 420,
                    "strokeWidth": 3,
                    "color": "var(--text)",
                    "shape": "circle",
                },
                "encoding": {"x": x, "y": y},
            },
            {
                "data": {"name": "ridges"},
                "mark": {"type": "point", "filled": True, "size": 50, "shape": "diamond"},
                "encoding": {"x": x, "y": y, "color": colour, "tooltip": {"field": "ceiling"}},
            },
            *_labels(x, y, colour),
        ],
    }


def _labels(x: dict[str, Any], y: dict[str, Any], colour: dict[str, Any]) -> list[dict[str, Any]]:
    """The ridge points' and the ceilings' words, each over a rim in the page's colour, as points lie below."""
    base = {"type": "text", "fontSize": 11, "fontWeight": 600, "align": "right"}
    rim = {"stroke": "var(--surface)", "strokeWidth": 4, "strokeJoin": "round", "opacity": 0.85}
    ridge = {"condition": {"test": _NARROW, "value": ""}, "field": "ridge"}
    ceiling = {"condition": {"test": _NARROW, "field": "short"}, "field": "ceiling"}
    layers = []
    for mark, at, text in (
        ({**base, "dx": -6, "dy": -21}, x, ridge),
        ({**base, "dy": -9}, {**x, "field": "end"}, ceiling),
    ):
        place = {"x": at, "y": y, "text": text}
        data = {"data": {"name": "ridges"}}
        layers.append({**data, "mark": {**mark, **rim}, "encoding": place})
        layers.append({**data, "mark": mark, "encoding": {**place, "color": colour}})
    return layers


def _operators(
    x: dict[str, Any], y: dict[str, Any], colour: dict[str, Any], families: list[str]
) -> dict[str, Any]:
    shapes = {"domain": families, "range": [SHAPES[name] for name in families]}
    chosen = {"and": [{"param": "side"}, {"param": "kind"}]}
    return {
        "name": "operators",
        "data": {"name": "table"},
        "params": [
            {"name": "side", "select": {"type": "point", "fields": ["device"]}, "bind": "legend"},
            {"name": "kind", "select": {"type": "point", "fields": ["family"]}, "bind": "legend"},
        ],
        "mark": {"type": "point", "filled": True, "cursor": "pointer", "strokeWidth": 1.5},
        "encoding": {
            "x": x,
            "y": y,
            "stroke": colour,
            "fill": colour,
            "fillOpacity": {"condition": {"test": "datum.origin === 'predicted'", "value": 0.2}, "value": 1},
            "shape": {"field": "family", "type": "nominal", "scale": shapes, "title": "Family"},
            "size": {
                "field": "time",
                "type": "quantitative",
                "scale": {"type": "sqrt", "range": [24, 420]},
                "title": "Time",
                "legend": None,
            },
            "opacity": {"condition": {"test": chosen, "value": 0.75}, "value": 0.06},
            "tooltip": tooltip(*_COLUMNS),
        },
    }
