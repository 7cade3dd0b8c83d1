"""Reporting: what runs when: the best plan with its copies, and one request to a model that generates."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any, NamedTuple

from analyzer.record.analysis import Analysis, PlanResult, TransferItem
from analyzer.record.generation import GenerationResult, RequestTimes
from analyzer.report.charts import vega
from analyzer.report.charts.chart import Chart, Column, origin_words
from analyzer.report.charts.vega import COPY, CPU, DECODE, GPU, PREFILL, Spec
from analyzer.report.generation_text import device
from analyzer.report.plan_cards import best_plan
from analyzer.text import plural
from analyzer.units import byte_count, count, seconds

# A finger scrolls the page, a mouse moves the chart.
_DRAG = "[pointerdown[event.pointerType === 'mouse'], window:pointerup] > window:pointermove!"
_COLUMNS = (
    Column(name="lane", title="Runs on"),
    Column(name="what", title="What"),
    Column(name="index", title="#", kind="count"),
    Column(name="module", title="Module", lookup="operators.module"),
    Column(name="start", title="Start", kind="seconds"),
    Column(name="time", title="Time", kind="seconds"),
    Column(name="bytes", title="Bytes", kind="bytes"),
    Column(name="origin", title="Origin"),
)


class _Event(NamedTuple):
    lane: str
    what: str
    operator: int | None
    module: str
    start: float
    time: float
    bytes: int | None
    origin: str


def chart(analysis: Analysis) -> Chart | None:
    """Return the chart of the best plan (the last of cpu, gpu, hybrid); None where none has a time or room."""
    plan = best_plan(analysis)
    if plan is None and analysis.plans:
        return None
    events: list[_Event] = []
    clock = 0.0
    for event in _events(analysis, plan):
        events.append(event._replace(start=clock))
        clock += event.time
    if all(event.lane == COPY for event in events):
        return None
    origins = {event.origin for event in events}
    shown = [lane for lane in (CPU, COPY, GPU) if any(event.lane == lane for event in events)]
    zoom = {
        "type": "interval",
        "encodings": ["x"],
        # The wheel alone scrolls the page; who only reads on must not be caught in a chart.
        "zoom": "wheel![event.shiftKey]",
        "translate": _DRAG,
    }
    # A launch of microseconds in a plan of seconds stays a pixel wide and can be clicked.
    bars = _bars("lane", shown, "lane", shown, _COLUMNS, cursor="pointer", strokeWidth=0.3, minBandSize=1)
    bars["encoding"]["color"]["legend"] = None
    bars["encoding"]["fillOpacity"] = vega.paler_if_predicted(0.7)
    return Chart(
        name="timeline",
        title="The best plan, step by step",
        lead="Operators one after another where the plan puts them, and the copies between. Times are the "
        "operators' own; the plan's latency also holds what runs between. Hover for the particulars, click "
        "for the row; shift and wheel zoom, drag moves. "
        f"Times are {origin_words(origins)}{'; what was predicted is paler' if len(origins) > 1 else ''}.",
        alternative=_plan_words(events, plan),
        spec=vega.layered(
            60 * len(shown),
            bars | {"params": [{"name": "zoom", "select": zoom, "bind": "scales"}]},
            transform=[{"calculate": "datum.start + datum.time", "as": "end"}],
        ),
        columns=_COLUMNS,
        rows=tuple(events),
    )


def _events(analysis: Analysis, plan: PlanResult | None) -> list[_Event]:
    """Return operators and copies in their order, none of them placed in time."""
    before: list[_Event] = []
    after_operator: dict[int, list[_Event]] = defaultdict(list)
    after: list[_Event] = []
    producer = {tensor.name: operator.index for operator in analysis.operators for tensor in operator.outputs}
    for copy in plan.transfers.items if plan else ():
        if copy.where == "output":
            after.append(_copy_event(copy))
        elif copy.where == "inside" and copy.tensor in producer:
            after_operator[producer[copy.tensor]].append(_copy_event(copy))
        else:
            before.append(_copy_event(copy))
    events = before
    for operator in analysis.operators:
        lane, time = (GPU, operator.gpu) if operator.placement == "gpu" else (CPU, operator.cpu)
        # What takes no time (views, what is folded away) would be a bar without width.
        if time is not None and time.time_s:
            what = (operator.op_type, operator.index, operator.module)
            events.append(_Event(lane, *what, 0.0, time.time_s, None, time.origin))
        events += after_operator[operator.index]
    return events + after


def _copy_event(copy: TransferItem) -> _Event:
    way = "to the GPU" if copy.direction == "to_gpu" else "to the CPU"
    # In a measured plan too a copy's time is the link's model: latency and bytes over bandwidth.
    what = f"{copy.tensor} {way} ({copy.where})"
    return _Event(COPY, what, None, "", 0.0, copy.time_s, copy.bytes, "predicted")


def _plan_words(events: Sequence[_Event], plan: PlanResult | None) -> str:
    parts = []
    for lane in (CPU, GPU):
        in_lane = [event.time for event in events if event.lane == lane]
        if in_lane:
            # Views and what became part of another operator run too, in no time: these are not among them.
            takes = "that takes time" if len(in_lane) == 1 else "that take time"
            parts.append(f"{plural(len(in_lane), 'operator')} {takes}: {seconds(sum(in_lane))} on the {lane}")
    copies = [event for event in events if event.lane == COPY]
    if copies:
        moved = byte_count(sum(copy.bytes or 0 for copy in copies))
        taken = plural(len(copies), "copy takes", "copies take")
        parts.append(f"{taken} {seconds(sum(copy.time for copy in copies))} for {moved}")
    title = f" The plan's latency is {seconds(plan.latency_s)}." if plan else ""
    return "; ".join(parts) + "." + title


def _bars(
    lane: str,
    shown: Sequence[str],
    colour: str,
    names: Sequence[str],
    columns: Sequence[Column],
    *,
    until: float | None = None,
    **mark: Any,
) -> Spec:
    """Return bars from ``start`` to ``end`` in lanes, on an axis of time."""
    scale: Spec = {} if until is None else {"domain": [0, until], "nice": False}
    encoding = {
        "x": vega.amount("start", "seconds", "Time since the start", 8, **scale),
        "x2": {"field": "end"},
        "y": vega.lanes(lane, shown, labelLimit=130),
        "color": vega.coloured(colour, names),
        "tooltip": vega.tooltip(*columns),
    }
    return vega.layer("bar", encoding, stroke="var(--surface)", clip=until is not None, **mark)


_REQUEST = (
    Column(name="device", title="Runs on"),
    Column(name="phase", title="Phase"),
    Column(name="start", title="Start", kind="seconds"),
    Column(name="end", title="End", kind="seconds"),
    Column(name="time", title="Time", kind="seconds"),
    Column(name="origin", title="Origin"),
)
# A slower lane is drawn whole up to so many times the other's length; beyond, the other would be a line.
_WHOLE_LANE = 3.0
_AIR = 1.12


def request(analysis: Analysis, result: GenerationResult) -> Chart:
    """Return one request: prefill, then decode, and the CPU's where it is known."""
    # Short, as a phone leaves no room for names: ``CPU``, ``GPU``, ``8 GPUs``.
    name = {0: CPU, 1: GPU}.get(result.gpus, plural(result.gpus, "GPU"))
    times: dict[str, RequestTimes] = {name: result}
    if result.cpu is not None and result.gpus:
        times[CPU] = result.cpu
    names = {CPU: analysis.devices.cpu.name, name: device(analysis, result)}
    rows = tuple(
        (lane, phase, start, end, end - start, one.origin)
        for lane, one in times.items()
        for phase, start, end in ((PREFILL, 0.0, one.ttft_s), (DECODE, one.ttft_s, one.request_s))
    )
    longest, shortest = (f(one.request_s for one in times.values()) for f in (max, min))
    whole = longest <= _WHOLE_LANE * shortest
    end = (longest if whole else shortest) * _AIR
    read, made = count(result.prompt_tokens), count(result.output_tokens)
    lead = f"{read} tokens are read (prefill), {made} are made (decode)."
    bars = _bars("device", [*times], "phase", (PREFILL, DECODE), _REQUEST, until=end, height=18, yOffset=8)
    place = {**bars["encoding"], "text": {"field": "label"}}
    label = {channel: place[channel] for channel in ("x", "y", "text")}
    return Chart(
        name="generation-request",
        title="One request",
        lead=lead if whole else f"{lead} The slower one goes on beyond the right edge.",
        alternative=" ".join(
            f"{names[lane]}: the first token after {seconds(one.ttft_s)}, then one every "
            f"{seconds(one.tpot_s)}, all after {seconds(one.request_s)}."
            for lane, one in times.items()
        ),
        spec=vega.layered(64 * len(times), bars, *vega.words("labels", label, dx=2, dy=-13, fontSize=12)),
        columns=_REQUEST,
        rows=rows,
        extra={
            "labels": tuple(
                {
                    "device": lane,
                    "start": 0.0,
                    "label": f"TTFT {seconds(one.ttft_s)}, TPOT {seconds(one.tpot_s)}, "
                    f"all {seconds(one.request_s)}",
                }
                for lane, one in times.items()
            )
        },
    )
