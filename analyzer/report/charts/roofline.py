"""Reporting: the roofline of both devices with a point for each operator."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from analyzer.devices.device import Device
from analyzer.operators import INTEGER_PRODUCTS
from analyzer.record.analysis import Analysis, OperatorResult
from analyzer.report.charts import vega
from analyzer.report.charts.chart import Chart, Column, origin_words, rows_of
from analyzer.report.charts.vega import CPU, GPU, Spec
from analyzer.report.figure_text import Time
from analyzer.report.summary import peak
from analyzer.text import plural
from analyzer.units import digits, rate

# Operator types with a shape of their own: those that take most of the time. The others share one.
_MOST_TYPES = 5
_OTHER = "other"
_COLUMNS = (
    Column(name="record", title="Record", read="record"),
    Column(name="index", title="#", kind="count", read="operator.index"),
    Column(name="operator", title="Operator", lookup="operators.type", read="operator.op_type"),
    Column(name="kind", title="Type or other", read="kind"),
    Column(name="module", title="Module", lookup="operators.module", read="operator.module"),
    Column(name="device", title="Device", read="side"),
    Column(name="intensity", title="FLOPs per byte", kind="number", read="intensity"),
    Column(name="speed", title="Attained", kind="rate", read="speed"),
    Column(name="time", title="Time", kind="seconds", read="time_s"),
    Column(
        name="share_of_roof",
        title="Of the roof",
        kind="share",
        read=lambda point: point.speed / point.roof.at(point.intensity),
    ),
    Column(name="bound", title="Bound", read="bound"),
    Column(name="origin", title="Origin", read="origin"),
)
# Of several records the page has no table of operators to look into, and no row that a click selects.
_OF_SEVERAL = tuple(
    replace(column, lookup="", name="number" if column.name == "index" else column.name) for column in _COLUMNS
)
# An expression of Vega: a phone's width, where a ceiling's words in full would run out of the drawing.
_NARROW = "width < 460"
# What a bound means of several operators. ``compute`` is whatever the kernel itself executes: of a product its
# arithmetic, of an operator whose data come from a cache its loads and loops, of few tiles their steps.
_BOUNDS = {
    "compute": "by their instructions (compute)",
    "memory": "by memory",
    "overhead": "by starting them (overhead)",
}
# How a roofline is read: where a point lies is no proof of what limits it.
_READING = (
    "the slope is what memory feeds (a point above it found its data in a cache), the flat part the fastest "
    "arithmetic known of the device. Near the slope memory limits it, near the flat part arithmetic; far below "
    "both, instructions other than arithmetic, or starting it"
)
# Above the flat part by less, a point reads the same in the digits that are printed.
_ABOVE = 1.005


@dataclass(frozen=True, slots=True, kw_only=True)
class Roof:
    """The bound of an operator on a device: memory up to the ridge, then arithmetic.

    Williams, Waterman and Patterson, "Roofline: an insightful visual performance model for multicore
    architectures", Communications of the ACM 52(4), 2009.

    ``dtype`` is the type of the ceiling, which may stand in for one that the device lacks; the ceiling is
    dense, and infinite where none is known.
    """

    side: str
    device: Device
    dtype: str
    peak_flops_per_s: float

    @property
    def name(self) -> str:
        """``NVIDIA L4 tf32``."""
        return f"{self.device.name} {self.dtype}"

    @property
    def ridge(self) -> float:
        """FLOPs per byte from which arithmetic is the limit."""
        return self.peak_flops_per_s / self.device.bandwidth_bytes_per_s

    def at(self, intensity: float) -> float:
        """Return the FLOPs per second that nothing of this intensity can exceed, but from a cache."""
        return min(self.peak_flops_per_s, self.device.bandwidth_bytes_per_s * intensity)


@dataclass(frozen=True, slots=True, kw_only=True)
class RoofPoint:
    """An executed group: an operator, or several that are fused.

    A share of a fused kernel's time says how the time was split, not how fast anything was: a product whose
    activation is given a part of its time would seem faster than the kernel. So ``operator`` is that which
    computes most, ``flops`` are those of all its products, else of all operators, and ``time_s`` is that of the
    whole. ``kind`` is its type, or that it is another than those which take most of the time.
    """

    record: str
    roof: Roof
    operator: OperatorResult
    flops: int
    time_s: float
    bound: str
    origin: str
    kind: str = _OTHER

    @property
    def side(self) -> str:
        """``CPU`` or ``GPU``."""
        return self.roof.side

    @property
    def intensity(self) -> float:
        """FLOPs for each byte of the operator that computes most."""
        return self.operator.intensity or 0.0

    @property
    def speed(self) -> float:
        """FLOPs per second."""
        return self.flops / self.time_s


def chart(*records: Analysis, labels: Sequence[str] = ("",)) -> Chart | None:
    """Return the chart of one record, or of several; None where no operator has FLOPs, bytes and a time.

    Of one each operator has a point on either device; of several, where its record's best plan runs it.
    """
    several = len(records) > 1
    roofs = _roofs(records, labels)
    points = [
        point
        for label, analysis in zip(labels, records, strict=True)
        for point in sorted(
            (
                point
                for side in (CPU, GPU)
                if (label, side) in roofs
                for point in _kernels(label, analysis, roofs[label, side])
                if not several or point.operator.placement == side.lower()
            ),
            key=lambda point: (point.operator.index, point.side),
        )
    ]
    if not points:
        return None
    times: dict[str, float] = defaultdict(float)
    for point in points:
        times[point.operator.op_type] += point.time_s
    kinds = sorted(sorted(times), key=lambda name: -times[name])[:_MOST_TYPES]
    points = [
        replace(point, kind=point.operator.op_type) if point.operator.op_type in kinds else point
        for point in points
    ]
    kinds += [_OTHER] if len(times) > _MOST_TYPES else []
    ridges = _ridges({roof.name: roof for roof in roofs.values()}.values(), points)
    columns = _OF_SEVERAL if several else _COLUMNS[1:]
    drawn: dict[str, list[RoofPoint]] = {label: [] for label in labels} if several else {CPU: [], GPU: []}
    for point in points:
        drawn[point.record if several else point.side].append(point)
    # A device without a point is no news of one record: it may be that there is no GPU.
    sentences = [_points_words(name, own) for name, own in drawn.items() if own or several]
    if not several:
        ceilings = (f"{ridge['ceiling']}, {ridge['ridge']}." for ridge in ridges)
        sentences = [*ceilings, *sentences, _left_out(records[0], points)]
    origins = {point.origin for point in points}
    where = "its record's best plan runs it" if several else "it has a time"
    marked = f"All times are {origin_words(origins)}."
    if len(origins) > 1:
        marked = "Filled points were measured, rings predicted."
    return Chart(
        name="record-roofline" if several else "roofline",
        title="Roofline of all records" if several else "Roofline",
        lead=f"A point for each operator on each device where {where}: what it computes for each byte it "
        f"moves, and the speed it reaches; {_READING}: its Bound says which. Larger points take longer. "
        f"{_above_words(points)}{marked}",
        alternative=" ".join(sentences),
        spec=_spec(points, ridges, labels, kinds),
        columns=columns,
        rows=rows_of(_COLUMNS if several else columns, points),
        extra={"ridges": ridges},
    )


def _roofs(records: Sequence[Analysis], labels: Sequence[str]) -> dict[tuple[str, str], Roof]:
    """Return the roof of each record's devices."""
    roofs = {
        (label, side): roof
        for label, analysis in zip(labels, records, strict=True)
        for side in (CPU, GPU)
        if (roof := _roof(analysis, side)) is not None
    }
    # The records of a comparison mostly share their devices: one line for all of them, at the highest ceiling
    # where each measured its own.
    highest: dict[str, Roof] = {}
    for roof in roofs.values():
        highest[roof.name] = max(highest.get(roof.name, roof), roof, key=lambda one: one.peak_flops_per_s)
    return {place: highest[roof.name] for place, roof in roofs.items()}


def _roof(analysis: Analysis, side: str) -> Roof | None:
    """Return the roof of a device: of the record's precision, or of the integers that its CPU multiplies."""
    device = analysis.devices.cpu if side == CPU else analysis.devices.gpu
    if device is None:
        return None
    integers = side == CPU and any(
        group.session == "cpu" and group.op_type in INTEGER_PRODUCTS for group in analysis.groups
    )
    precision = "int8" if integers else analysis.model.precision
    dtype, ceiling = peak("cpu" if side == CPU else "gpu", device, precision) or ("", math.inf)
    return Roof(side=side, device=device, dtype=dtype, peak_flops_per_s=ceiling)


def _kernels(label: str, analysis: Analysis, roof: Roof) -> Iterator[RoofPoint]:
    """Yield what runs on a device and has a place on a roofline, by the operator that computes most."""
    session = "cpu" if roof.side == CPU else "cuda"
    fused = {
        member: group
        for group in analysis.groups
        if group.session == session and len(group.members) > 1 and group.time_s
        for member in group.members
        if member < len(analysis.operators)
    }
    for operator in analysis.operators:
        time: Time | None = operator.cpu
        if roof.side == GPU:
            # Where the CUDA session falls back to the CPU, the time is no GPU's.
            on_card = operator.gpu is not None and operator.gpu.placed_on == "cuda"
            time = operator.gpu if on_card else None
        # A logarithmic axis has no place for 0: movement without FLOPs, views without bytes or a time.
        if time is None or not operator.flops or not operator.intensity:
            continue
        flops, time_s, origin = operator.flops, time.time_s, time.origin
        group = fused.get(operator.index)
        if group is not None and group.time_s is not None:
            members = [analysis.operators[member] for member in group.members if member in fused]
            if max(members, key=lambda member: (member.flops or 0, -member.index)).index != operator.index:
                continue
            products = [member for member in members if member.macs]
            flops = sum(member.flops or 0 for member in products or members)
            time_s, origin = group.time_s, group.origin
        if time_s:
            yield RoofPoint(
                record=label,
                roof=roof,
                operator=operator,
                flops=flops,
                time_s=time_s,
                bound=time.bound or "",
                origin=origin,
            )


def _above_words(points: Sequence[RoofPoint]) -> str:
    """Say how many points lie above the flat part of their roof, and why that can be; empty where none does."""
    above = [point.roof for point in points if point.speed > _ABOVE * point.roof.peak_flops_per_s]
    drawn = {roof.name: roof for roof in above}
    return "".join(
        f"{plural(number, 'point')} of the {drawn[name].side} {'lies' if number == 1 else 'lie'} above its "
        f"flat part: {_ceiling_words(drawn[name])} "
        for name, number in Counter(roof.name for roof in above).items()
    )


def _ceiling_words(roof: Roof) -> str:
    """Say whence a ceiling is that something was faster than."""
    if roof.device.origin == "catalogue":
        return "that is the data sheet's, at the clock which the sheet assumes."
    fastest = f"that is the fastest {roof.dtype} kernel which `analyze calibrate` timed."
    return f"{fastest} {roof.device.notes}" if roof.device.notes else fastest


def _points_words(name: str, points: Sequence[RoofPoint]) -> str:
    """Say how many points there are, how many each limit holds, and which takes longest."""
    if not points:
        return f"{name}: no operator has work and a time."
    numbers = Counter(point.bound for point in points)
    parts = [f"{numbers[bound]} limited {text}" for bound, text in _BOUNDS.items() if numbers[bound]]
    held = f" ({', '.join(parts)})" if parts else ""
    slowest = max(points, key=lambda point: point.time_s)
    where = f"at {digits(slowest.intensity)} FLOPs per byte and {rate(slowest.speed, 'FLOP')}"
    which = f"{slowest.operator.op_type} number {slowest.operator.index}"
    return f"{name}: {plural(len(points), 'operator')}{held}; the slowest is {which}, {where}."


def _left_out(analysis: Analysis, points: Sequence[RoofPoint]) -> str:
    """Say what a point is of operators that are fused, and how many have none."""
    note = (
        "Operators that are fused have one point, where that is which computes most: its bytes, the FLOPs of "
        "all their products, the time of the whole."
    )
    # By operator, as each may have a point on either device.
    number = len(analysis.operators) - len({point.operator.index for point in points})
    if not number:
        return note
    whole = plural(len(analysis.operators), "operator")
    return f"{note} {number} of {whole} have no point of their own: fused, or without FLOPs, bytes or a time."


def _ridges(roofs: Iterable[Roof], points: Sequence[RoofPoint]) -> tuple[dict[str, Any], ...]:
    """Return the data of the roofs, from left of all points and ridges to where their words end."""
    drawn = [roof for roof in roofs if roof.peak_flops_per_s < math.inf]
    known = [*(point.intensity for point in points), *(roof.ridge for roof in drawn)]
    start, end = min(known) / 2, max(known) * 4
    return tuple(
        {
            "device": roof.side,
            "roof": roof.name,
            "start": start,
            "slope": roof.at(start),
            "intensity": roof.ridge,
            "speed": roof.peak_flops_per_s,
            "end": end,
            "ridge": f"ridge {digits(roof.ridge)} FLOP/B",
            "short": f"{roof.side} {rate(roof.peak_flops_per_s, 'FLOP')}",
            "ceiling": f"{roof.device.name}: {rate(roof.peak_flops_per_s, 'FLOP')} {roof.dtype}, "
            f"{rate(roof.device.bandwidth_bytes_per_s, 'B')}",
        }
        for roof in drawn
    )


def _spec(
    points: Sequence[RoofPoint],
    ridges: Sequence[Mapping[str, Any]],
    labels: Sequence[str],
    kinds: Sequence[str],
) -> Spec:
    several = len(labels) > 1
    # A roof may stand alone: of a GPU that runs none of the operators.
    sides = sorted({point.side for point in points} | {ridge["device"] for ridge in ridges})
    across = [
        *(point.intensity for point in points),
        *(ridge[at] for ridge in ridges for at in ("start", "end")),
    ]
    up = [*(point.speed for point in points), *(ridge[at] for ridge in ridges for at in ("slope", "speed"))]
    x = vega.logarithmic(
        "intensity", "number", "Arithmetic intensity, FLOPs per byte", across, grid=False, padding=0
    )
    place = {"x": x, "y": vega.logarithmic("speed", "rate", "Attained FLOP/s", up, padding=28)}
    # Colour and shape: the record and its device, or the device and the operator's type.
    if several:
        select = ("record", "device")
        colour = vega.coloured("record", labels, columns=3)
        shape = vega.shaped("device", sides, title="Runs on")
    else:
        select = ("device", "kind")
        colour = vega.coloured("device", sides, title="Device")
        shape = vega.shaped("kind", kinds, title="Operator type")
    operators = {
        **place,
        "stroke": colour,
        "fill": colour,
        "fillOpacity": vega.paler_if_predicted(0.2),
        "shape": shape,
        "size": vega.sized("time", 24, 420),
        "opacity": vega.faded(*select, pale=0.06),
        "tooltip": vega.tooltip(*(_OF_SEVERAL if several else _COLUMNS[1:])),
    }
    if several:
        # A point of the base shows around one of another record in the same place.
        base = {"test": {"field": "record", "equal": labels[0]}, "value": 4}
        operators["strokeWidth"] = {"condition": base, "value": 1.5}
    ink = {"color": {"value": "var(--muted)"} if several else colour}
    slope = {
        "x": vega.on(x, "start"),
        "y": vega.on(place["y"], "slope"),
        "x2": {"field": "intensity"},
        "y2": {"field": "speed"},
    }
    line: Spec = {"data": "ridges", "strokeWidth": 2, "strokeOpacity": 0.7}
    named = {**place, "color": {"value": "var(--text)"} if several else colour}
    ridge = {"condition": {"test": _NARROW, "value": ""}, "field": "ridge"}
    ceiling = {"condition": {"test": _NARROW, "field": "short"}, "field": "ceiling"}
    strong = {"fontWeight": 600, "align": "right"}
    return vega.layered(
        400,
        vega.layer("rule", slope | ink, **line),
        vega.layer("rule", {**place, "x2": {"field": "end"}, **ink}, **line),
        vega.layer("point", operators, select=select, filled=True, cursor="pointer", strokeWidth=1.5),
        # Empty until templates/js/charts.js puts the point of the selected operator into it.
        vega.layer("point", place, data="picked", size=420, strokeWidth=3, color="var(--text)", shape="circle"),
        vega.layer(
            "point",
            {**place, **ink, "tooltip": {"field": "ceiling"}},
            data="ridges",
            filled=True,
            size=50,
            shape="diamond",
        ),
        *(vega.words("ridges", {**named, "text": ridge}, dx=-6, dy=-21, **strong) if not several else ()),
        *vega.words("ridges", {**named, "x": vega.on(x, "end"), "text": ceiling}, dy=-9, **strong),
    )
