"""Reporting: the best plan along the execution order, with its copies."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from analyzer.record.analysis import Analysis, PlanResult, TransferItem
from analyzer.report.charts.chart import (
    CPU,
    GPU,
    Chart,
    Column,
    Row,
    axis,
    nominal,
    origin_words,
    paler_if_predicted,
    quantity,
    tooltip,
)
from analyzer.report.summary.plan_cards import best_plan
from analyzer.text import plural
from analyzer.units import byte_count, seconds

COPY = "Copy"
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
# Lane, what, operator's index, its module, seconds, bytes, origin.
TimelineEvent = tuple[str, str, int | None, str, float, int | None, str]


def chart(analysis: Analysis) -> Chart | None:
    """The chart of the best plan (the last of cpu, gpu, hybrid); None where none has a time or room."""
    plan = best_plan(analysis)
    if plan is None and analysis.plans:
        return None
    events = _events(analysis, plan)
    if all(event[0] == COPY for event in events):
        return None
    rows = _laid_out(events)
    origins = {row[7] for row in rows}
    lanes = [lane for lane in (CPU, COPY, GPU) if any(row[0] == lane for row in rows)]
    return Chart(
        name="timeline",
        title="The best plan, step by step",
        lead="Operators one after another where the plan puts them, and the copies between. Times are the "
        "operators' own; the plan's latency also holds what runs between. Hover for the particulars, click "
        "for the row; shift and wheel zoom, drag moves. "
        f"Times are {origin_words(origins)}{'; what was predicted is paler' if len(origins) > 1 else ''}.",
        alternative=_words(rows, plan),
        spec=_spec(lanes),
        columns=_COLUMNS,
        rows=rows,
        height=60 * len(lanes) + 45,
    )


def _events(analysis: Analysis, plan: PlanResult | None) -> list[TimelineEvent]:
    before, after_operator, after = _copies(analysis, plan)
    events = [_copy_event(copy) for copy in before]
    for operator in analysis.operators:
        lane = GPU if operator.placement == "gpu" else CPU
        time = operator.gpu if operator.placement == "gpu" else operator.cpu
        # What takes no time (views, what is folded away) would be a bar without width.
        if time is not None and time.time_s:
            what = (operator.op_type, operator.index, operator.module)
            events.append((lane, *what, time.time_s, None, time.origin))
        events += [_copy_event(copy) for copy in after_operator[operator.index]]
    return events + [_copy_event(copy) for copy in after]


def _copies(
    analysis: Analysis, plan: PlanResult | None
) -> tuple[list[TransferItem], dict[int, list[TransferItem]], list[TransferItem]]:
    """The copies before the first operator, after the operator that writes the tensor, and after the last."""
    before: list[TransferItem] = []
    after_operator: dict[int, list[TransferItem]] = defaultdict(list)
    after: list[TransferItem] = []
    producer = {tensor.name: operator.index for operator in analysis.operators for tensor in operator.outputs}
    for copy in plan.transfers.items if plan else ():
        if copy.where == "output":
            after.append(copy)
        elif copy.where == "inside" and copy.tensor in producer:
            after_operator[producer[copy.tensor]].append(copy)
        else:
            before.append(copy)
    return before, after_operator, after


def _copy_event(copy: TransferItem) -> TimelineEvent:
    way = "to the GPU" if copy.direction == "to_gpu" else "to the CPU"
    # In a measured plan too a copy's time is the link's model: latency and bytes over bandwidth.
    return (COPY, f"{copy.tensor} {way} ({copy.where})", None, "", copy.time_s, copy.bytes, "predicted")


def _laid_out(events: list[TimelineEvent]) -> tuple[Row, ...]:
    rows, clock = [], 0.0
    for lane, what, index, module, time, size, origin in events:
        rows.append((lane, what, index, module, clock, time, size, origin))
        clock += time
    return tuple(rows)


def _words(rows: tuple[Row, ...], plan: PlanResult | None) -> str:
    parts = []
    for lane in (CPU, GPU):
        in_lane = [row for row in rows if row[0] == lane]
        if in_lane:
            # Views and what became part of another operator run too, in no time: these are not among them.
            takes = "that takes time: " if len(in_lane) == 1 else "that take time: "
            time = seconds(sum(row[5] for row in in_lane))
            parts.append(f"{plural(len(in_lane), 'operator')} {takes}{time} on the {lane}")
    copies = [row for row in rows if row[0] == COPY]
    if copies:
        moved = byte_count(sum(row[6] or 0 for row in copies))
        taken = plural(len(copies), "copy takes", "copies take")
        parts.append(f"{taken} {seconds(sum(row[5] for row in copies))} for {moved}")
    title = f" The plan's latency is {seconds(plan.latency_s)}." if plan else ""
    return "; ".join(parts) + "." + title


def _spec(lanes: list[str]) -> dict[str, Any]:
    colour_of = {CPU: "var(--cpu)", COPY: "var(--copy)", GPU: "var(--gpu)"}
    tints = {"domain": lanes, "range": [colour_of[lane] for lane in lanes]}
    return {
        "width": "container",
        "height": {"step": 60},
        "data": {"name": "table"},
        "transform": [{"calculate": "datum.start + datum.time", "as": "end"}],
        "params": [
            {
                "name": "zoom",
                "select": {
                    "type": "interval",
                    "encodings": ["x"],
                    # The wheel alone scrolls the page; who only reads on must not be caught in a chart.
                    "zoom": "wheel![event.shiftKey]",
                    "translate": _DRAG,
                },
                "bind": "scales",
            },
        ],
        "mark": {
            "type": "bar",
            "cursor": "pointer",
            "stroke": "var(--surface)",
            "strokeWidth": 0.3,
            # A launch of microseconds in a plan of seconds stays a pixel wide and can be clicked.
            "minBandSize": 1,
        },
        "encoding": {
            "x": quantity("start", axis("seconds", "Time since the start", tickCount=8)),
            "x2": {"field": "end"},
            "y": nominal("lane", sort=lanes, scale={"domain": lanes}, title=None),
            "color": nominal("lane", legend=None, scale=tints),
            "fillOpacity": paler_if_predicted(0.7),
            "tooltip": tooltip(*_COLUMNS),
        },
    }
