"""Reporting: the roofline of both devices with a point for each operator."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from analyzer.devices.device import Device
from analyzer.operators import INTEGER_PRODUCTS
from analyzer.record.analysis import Analysis, OperatorResult
from analyzer.report.charts.chart import (
    CPU,
    GPU,
    Chart,
    Column,
    Row,
    axis,
    colours,
    decades,
    legend_selection,
    nominal,
    origin_words,
    paler_if_predicted,
    quantity,
    text_over_marks,
    tooltip,
)
from analyzer.report.summary.figure_words import Time
from analyzer.report.summary.model_facts import peak
from analyzer.text import plural
from analyzer.units import digits, rate

CONVOLUTION, PRODUCT, ATTENTION, RECURRENT = "convolution", "matrix product", "attention", "recurrent"
NORMALISATION, REDUCTION, MOVEMENT, OTHER = (
    "normalisation",
    "reduction",
    "movement",
    "elementwise",
)

# Vega's names of symbols (https://vega.github.io/vega/docs/marks/symbol/), of which these eight differ most.
SHAPES = {
    CONVOLUTION: "circle",
    PRODUCT: "square",
    ATTENTION: "diamond",
    RECURRENT: "triangle-right",
    NORMALISATION: "triangle-up",
    REDUCTION: "triangle-down",
    MOVEMENT: "stroke",
    OTHER: "cross",
}
# Standard and contrib names together (onnxruntime/docs/ContribOperators.md has the latter): what ONNX Runtime
# fuses keeps the shape of what it was made of. Domains are left out: a name that two have is of one family.
_MEMBERS = {
    CONVOLUTION: "Conv ConvTranspose ConvInteger QLinearConv DeformConv FusedConv NhwcConv",
    PRODUCT: "MatMul Gemm Einsum FusedMatMul FusedGemm MatMulInteger QLinearMatMul MatMulNBits QGemm",
    ATTENTION: "Attention MultiHeadAttention GroupQueryAttention PackedAttention "
    "DecoderMaskedMultiHeadAttention",
    RECURRENT: "LSTM GRU RNN",
    NORMALISATION: "BatchNormalization LayerNormalization SkipLayerNormalization InstanceNormalization "
    "GroupNormalization RMSNormalization SimplifiedLayerNormalization LpNormalization LRN Softmax LogSoftmax "
    "MeanVarianceNormalization EmbedLayerNormalization",
    REDUCTION: "MaxPool AveragePool GlobalAveragePool GlobalMaxPool LpPool ArgMax ArgMin TopK CumSum",
    MOVEMENT: "Reshape Transpose Concat Split Slice Gather GatherND GatherElements ScatterND ScatterElements "
    "Pad Expand Tile Squeeze Unsqueeze Flatten Identity Cast Shape Resize DepthToSpace SpaceToDepth",
}
_FAMILY = {name: family for family, names in _MEMBERS.items() for name in names.split()}


def family(op_type: str) -> str:
    """The family of an operator type; of one that is in no list, ``elementwise``."""
    # ReduceSum, ReduceMean, ReduceL2 and so on: ten types of one prefix.
    if op_type.startswith("Reduce"):
        return REDUCTION
    return _FAMILY.get(op_type, OTHER)


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
# An expression of Vega: a phone's width, where a ceiling's words in full would run out of the drawing.
NARROW = "width < 460"
# What a bound means of several operators. ``compute`` is whatever the kernel itself executes: of a product its
# arithmetic, of an operator whose data come from a cache its loads and loops, of few tiles their steps.
_BOUNDS = {
    "compute": "by their instructions (compute)",
    "memory": "by memory",
    "overhead": "by starting them (overhead)",
}
# How a roofline is read: where a point lies is no proof of what limits it.
READING = (
    "the slope is what memory feeds (a point above it found its data in a cache), the flat part the fastest "
    "arithmetic known of the device. Near the slope memory limits it, near the flat part arithmetic; far below "
    "both, instructions other than arithmetic, or starting it"
)
# Above the flat part by less, a point reads the same in the digits that are printed.
_ABOVE = 1.005


@dataclass(frozen=True, slots=True, kw_only=True)
class RoofPoint:
    """What a session executes as one: an operator, or several that are fused.

    A share of a fused kernel's time says how the time was split, not how fast anything was: a product whose
    activation is given a part of its time would seem faster than the kernel.

    Attributes:
        operator: That which computes most.
        flops: Of all its products; where it has none, of all its operators.
        time_s: Of the whole.
        bound: What limits it.
        origin: Of the time.
    """

    operator: OperatorResult
    flops: int
    time_s: float
    bound: str
    origin: str

    @property
    def intensity(self) -> float:
        """FLOPs for each byte of the operator that computes most."""
        return self.operator.intensity or 0.0

    @property
    def speed(self) -> float:
        """FLOPs per second."""
        return self.flops / self.time_s


def kernels(analysis: Analysis, side: str) -> Iterator[RoofPoint]:
    """What runs on a device and has a place on a roofline, by the operator that computes most."""
    session = "cpu" if side == CPU else "cuda"
    fused = {
        member: group
        for group in analysis.groups
        if group.session == session and len(group.members) > 1 and group.time_s
        for member in group.members
        if member < len(analysis.operators)
    }
    for operator in analysis.operators:
        time: Time | None = operator.cpu
        if side == GPU:
            # Where the CUDA session falls back to the CPU, the time is no GPU's.
            on_card = operator.gpu is not None and operator.gpu.placed_on == "cuda"
            time = operator.gpu if on_card else None
        group = fused.get(operator.index)
        # A logarithmic axis has no place for 0: movement without FLOPs, views without bytes or a time.
        if time is None or not operator.flops or not operator.intensity:
            continue
        if group is None or group.time_s is None:
            if time.time_s:
                yield RoofPoint(
                    operator=operator,
                    flops=operator.flops,
                    time_s=time.time_s,
                    bound=time.bound or "",
                    origin=time.origin,
                )
            continue
        members = [analysis.operators[member] for member in group.members if member in fused]
        most = max(members, key=lambda member: (member.flops or 0, -member.index))
        if most.index == operator.index:
            products = [member for member in members if member.macs]
            flops = sum(member.flops or 0 for member in products or members)
            yield RoofPoint(
                operator=operator, flops=flops, time_s=group.time_s, bound=time.bound or "", origin=group.origin
            )


def chart(analysis: Analysis) -> Chart | None:
    """The chart, None where no operator has FLOPs, bytes and a time."""
    rows = tuple(_points(analysis))
    if not rows:
        return None
    known = _known_roofs(analysis)
    roofs = _roofs(known, rows)
    above = above_words((known[row[4]], row[6]) for row in rows if row[4] in known)
    # By operator, as each may have a point on either device.
    left_out = len(analysis.operators) - len({row[0] for row in rows})
    lead = (
        "Each point is an operator on one device: what it computes for each byte it moves, and the speed it "
        f"reaches; {READING}: its Bound says which. "
        f"Larger points take longer. {above}{_origins(rows)} Click a point for its row, "
        "a legend entry to filter."
    )
    note = (
        " Operators that are fused have one point, where that is which computes most: its bytes, the FLOPs of "
        "all their products, the time of the whole."
    )
    if left_out:
        have, whose = ("has", "its") if left_out == 1 else ("have", "their")
        note += (
            f" {plural(left_out, 'operator')} {have} no point of {whose} own: fused with another, or without "
            "FLOPs, bytes or a time."
        )
    return Chart(
        name="roofline",
        title="Roofline",
        lead=lead,
        alternative=_words(rows, roofs) + note,
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Roof:
    """What bounds an operator on a device: memory up to the ridge, then arithmetic.

    Williams, Waterman and Patterson, "Roofline: an insightful visual performance model for multicore
    architectures", Communications of the ACM 52(4), 2009.

    Attributes:
        side: ``CPU`` or ``GPU``.
        device: Whose ceiling it is.
        dtype: The type of that ceiling, which may stand in for one that the device lacks.
        peak_flops_per_s: The ceiling, dense.
    """

    side: str
    device: Device
    dtype: str
    peak_flops_per_s: float

    @property
    def ridge(self) -> float:
        """FLOPs per byte from which arithmetic is the limit."""
        return self.peak_flops_per_s / self.device.bandwidth_bytes_per_s

    @property
    def words(self) -> str:
        """``NVIDIA L4: 60.0 TFLOP/s tf32, 300 GB/s``."""
        peak_text = rate(self.peak_flops_per_s, "FLOP")
        return f"{self.device.name}: {peak_text} {self.dtype}, {rate(self.device.bandwidth_bytes_per_s, 'B')}"

    def at(self, intensity: float) -> float:
        """FLOPs per second that nothing of this intensity can exceed, but from a cache."""
        return min(self.peak_flops_per_s, self.device.bandwidth_bytes_per_s * intensity)

    def line(self, low: float, high: float) -> tuple[tuple[float, float], ...]:
        """Its corners from one intensity to another, each with its FLOPs per second."""
        slope_start = low * self.device.bandwidth_bytes_per_s
        return (low, slope_start), (self.ridge, self.peak_flops_per_s), (high, self.peak_flops_per_s)


def roof(side: str, device: Device, precision: str) -> Roof | None:
    """The roof of a device for products of this precision; None where no peak of it is known."""
    ceiling = peak("cpu" if side == CPU else "gpu", device, precision)
    if ceiling is None:
        return None
    return Roof(side=side, device=device, dtype=ceiling[0], peak_flops_per_s=ceiling[1])


def roof_of(analysis: Analysis, side: str) -> Roof | None:
    """The roof of a record's device: of its precision, or of the integers that its CPU session multiplies."""
    device = analysis.devices.cpu if side == CPU else analysis.devices.gpu
    if device is None:
        return None
    integers = side == CPU and any(
        group.session == "cpu" and group.op_type in INTEGER_PRODUCTS for group in analysis.groups
    )
    return roof(side, device, "int8" if integers else analysis.model.precision)


def above_words(points: Iterable[tuple[Roof, float]]) -> str:
    """How many points lie above the flat part of their roof, and why that can be; empty where none does."""
    numbers: Counter[tuple[str, str]] = Counter()
    drawn = {}
    for limit, speed in points:
        if speed > _ABOVE * limit.peak_flops_per_s:
            key = limit.side, limit.words
            numbers[key] += 1
            drawn[key] = limit
    return "".join(
        f"{plural(number, 'point')} of the {side} {'lies' if number == 1 else 'lie'} above its flat part: "
        f"{_ceiling_words(drawn[side, words])} "
        for (side, words), number in numbers.items()
    )


def _ceiling_words(limit: Roof) -> str:
    """Whence a ceiling is that something was faster than."""
    device = limit.device
    if device.origin == "catalogue":
        return "that is the data sheet's, at the clock which the sheet assumes."
    fastest = f"that is the fastest {limit.dtype} kernel which `analyze calibrate` timed."
    return f"{fastest} {device.notes}" if device.notes else fastest


def intensity_range(intensities: Iterable[float], roofs: Iterable[Roof]) -> tuple[float, float]:
    """From where to where roofs are drawn: past all points and ridges, farther on the right for the words."""
    known = [*intensities, *(each.ridge for each in roofs)]
    return min(known) / 2, max(known) * 4


def points_words(name: str, points: Sequence[tuple[str, int, float, float, float, str]]) -> str:
    """Say how many points there are, how many each limit holds, and which takes longest.

    Args:
        name: What they are of.
        points: Of each the operator's type and number, intensity, speed, time and bound.
    """
    numbers = Counter(point[5] for point in points)
    parts = [f"{numbers[bound]} limited {words}" for bound, words in _BOUNDS.items() if numbers[bound]]
    held = f" ({', '.join(parts)})" if parts else ""
    op_type, index, intensity, speed, *_ = max(points, key=lambda point: point[4])
    where = f"at {digits(intensity)} FLOPs per byte and {rate(speed, 'FLOP')}"
    return f"{name}: {plural(len(points), 'operator')}{held}; the slowest is {op_type} number {index}, {where}."


def axes(
    rows: Sequence[Row], roofs: Mapping[str, Sequence[Mapping[str, Any]]]
) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """Return the channels ``x`` and ``y``, and both with their axes: one layer has them for all."""
    across = decades([row[5] for row in rows] + [line["intensity"] for line in roofs["roofs"]])
    up = decades([row[6] for row in rows] + [line["speed"] for line in roofs["roofs"]])
    x, y = quantity("intensity", type="log", nice=False), quantity("speed", type="log")
    flat = axis("number", "Arithmetic intensity, FLOPs per byte", values=across, grid=False)
    return x, y, {"x": {**x, "axis": flat}, "y": {**y, "axis": axis("rate", "Attained FLOP/s", values=up)}}


def _points(analysis: Analysis) -> Iterator[Row]:
    known = _known_roofs(analysis)
    by_side = (
        [(kernel.operator.index, side, device, kernel) for kernel in kernels(analysis, side)]
        for side, device in ((CPU, analysis.devices.cpu), (GPU, analysis.devices.gpu))
        if device is not None
    )
    for _, side, device, kernel in sorted(chain(*by_side), key=lambda point: point[:2]):
        operator = kernel.operator
        memory = device.bandwidth_bytes_per_s * kernel.intensity
        most = known[side].at(kernel.intensity) if side in known else memory
        named = (operator.index, operator.op_type, family(operator.op_type), operator.module, side)
        figures = (kernel.intensity, kernel.speed, kernel.time_s, kernel.speed / most)
        yield (*named, *figures, kernel.bound, kernel.origin)


def _known_roofs(analysis: Analysis) -> dict[str, Roof]:
    known = {side: roof_of(analysis, side) for side in (CPU, GPU)}
    return {side: each for side, each in known.items() if each is not None}


def _roofs(by_side: dict[str, Roof], rows: tuple[Row, ...]) -> dict[str, tuple[dict[str, Any], ...]]:
    """Data sets of the roofs' lines and of the words at their ridges."""
    roofs = tuple(by_side.values())
    low, high = intensity_range((row[5] for row in rows), roofs)
    lines = [
        {"device": each.side, "intensity": intensity, "speed": speed}
        for each in roofs
        for intensity, speed in each.line(low, high)
    ]
    ridges = [
        {
            "device": each.side,
            "intensity": each.ridge,
            "speed": each.peak_flops_per_s,
            "end": high,
            "ridge": f"ridge {digits(each.ridge)} FLOP/B",
            "short": f"{each.side} {rate(each.peak_flops_per_s, 'FLOP')}",
            "ceiling": each.words,
        }
        for each in roofs
    ]
    return {"roofs": tuple(lines), "ridges": tuple(ridges)}


def _words(rows: tuple[Row, ...], roofs: dict[str, tuple[dict[str, Any], ...]]) -> str:
    parts = [f"{ridge['ceiling']}, {ridge['ridge']}." for ridge in roofs["ridges"]]
    for side in (CPU, GPU):
        on_side = [row for row in rows if row[4] == side]
        if not on_side:
            continue
        parts.append(points_words(side, [(row[1], row[0], *row[5:8], row[9]) for row in on_side]))
    return " ".join(parts)


def _spec(rows: tuple[Row, ...], roofs: dict[str, tuple[dict[str, Any], ...]]) -> dict[str, Any]:
    families = sorted({row[2] for row in rows})
    # A roof may stand alone: of a GPU that runs none of the operators.
    sides = sorted({row[4] for row in rows} | {ridge["device"] for ridge in roofs["ridges"]})
    x, y, drawn = axes(rows, roofs)
    colour = nominal("device", scale=colours(*sides), title="Device")
    roof = {"data": {"name": "roofs"}, "mark": {"type": "line", "strokeWidth": 2, "strokeOpacity": 0.7}}
    return {
        "width": "container",
        "height": 400,
        "layer": [
            {
                **roof,
                "encoding": {**drawn, "color": colour, "detail": {"field": "device"}},
            },
            _operators(x, y, colour, families),
            # Empty until templates/js/charts.js puts the point of the selected operator into it.
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
    """The ridge points' and the ceilings' words."""
    base = {"type": "text", "fontSize": 11, "fontWeight": 600, "align": "right"}
    ridge = {"condition": {"test": NARROW, "value": ""}, "field": "ridge"}
    ceiling = {"condition": {"test": NARROW, "field": "short"}, "field": "ceiling"}
    layers = []
    for mark, x_of_text, text in (
        ({**base, "dx": -6, "dy": -21}, x, ridge),
        ({**base, "dy": -9}, {**x, "field": "end"}, ceiling),
    ):
        rim, words = text_over_marks("ridges", mark, {"x": x_of_text, "y": y, "text": text})
        layers += [rim, {**words, "encoding": {**words["encoding"], "color": colour}}]
    return layers


def _operators(
    x: dict[str, Any], y: dict[str, Any], colour: dict[str, Any], families: list[str]
) -> dict[str, Any]:
    shapes = {"domain": families, "range": [SHAPES[name] for name in families]}
    chosen = {"and": [{"param": "side"}, {"param": "kind"}]}
    return {
        "name": "operators",
        "data": {"name": "table"},
        "params": [legend_selection("side", "device"), legend_selection("kind", "family")],
        "mark": {"type": "point", "filled": True, "cursor": "pointer", "strokeWidth": 1.5},
        "encoding": {
            "x": x,
            "y": y,
            "stroke": colour,
            "fill": colour,
            "fillOpacity": paler_if_predicted(0.2),
            "shape": nominal("family", scale=shapes, title="Family"),
            # Vega's size is an area already: a square root keeps what takes longest from covering the rest.
            "size": {**quantity("time", type="sqrt", range=[24, 420]), "title": "Time", "legend": None},
            "opacity": {"condition": {"test": chosen, "value": 0.75}, "value": 0.06},
            "tooltip": tooltip(*_COLUMNS),
        },
    }
