"""Reporting: the best plan along the execution order, with its copies."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from analyzer.record.analysis import Analysis, PlanResult, TransferItem
from analyzer.report.charts.chart import CPU, GPU, Chart, Column, Row, axis, origin_words, tooltip
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
TimelineEvent = tuple[str, str, int | None, str, float, int | None, str]


def chart(analysis: Analysis) -> Chart | None:
    """The chart of the best plan (the last of cpu, gpu, hybrid); None where no operator has a time."""
    plan = analysis.plan("hybrid") or analysis.plan("gpu") or analysis.plan("cpu")
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
        engine="vega-lite",
        spec=_spec(lanes),
        columns=_COLUMNS,
        rows=rows,
        extra={},
        height=60 * len(lanes) + 45,
    )


def _events(analysis: Analysis, plan: PlanResult | None) -> list[TimelineEvent]:
    first, inside, last = _copies(analysis, plan)
    events = [_copy(item) for item in first]
    for item in analysis.operators:
        lane = GPU if item.placement == "gpu" else CPU
        time = item.gpu if item.placement == "gpu" else item.cpu
        if time is not None and time.time_s:
            events.append((lane, item.op_type, item.index, item.module, time.time_s, None, time.origin))
        events += [_copy(copy) for copy in inside[item.index]]
    return events + [_copy(item) for item in last]


def _copies(
    analysis: Analysis, plan: PlanResult | None
) -> tuple[list[TransferItem], dict[int, list[TransferItem]], list[TransferItem]]:
    """The copies before the first operator, after the operator that writes the tensor, and after the last."""
    first: list[TransferItem] = []
    inside: dict[int, list[TransferItem]] = defaultdict(list)
    last: list[TransferItem] = []
    maker = {tensor.name: item.index for item in analysis.operators for tensor in item.outputs}
    for copy in plan.transfers.items if plan else ():
        if copy.where == "output":
            last.append(copy)
        elif copy.where == "inside" and copy.tensor in maker:
            inside[maker[copy.tensor]].append(copy)
        else:
            first.append(copy)
    return first, inside, last


def _copy(item: TransferItem) -> TimelineEvent:
    way = "to the GPU" if item.direction == "to_gpu" else "to the CPU"
    return (COPY, f"{item.tensor} {way} ({item.where})", None, "", item.time_s, item.bytes, "predicted")


def _laid_out(events: list[TimelineEvent]) -> tuple[Row, ...]:
    rows, clock = [], 0.0
    for lane, what, index, module, time, size, origin in events:
        rows.append((lane, what, index, module, clock, time, size, origin))
        clock += time
    return tuple(rows)


def _words(rows: tuple[Row, ...], plan: PlanResult | None) -> str:
    parts = []
    for lane in (CPU, GPU):
        mine = [row for row in rows if row[0] == lane]
        if mine:
            takes = "takes" if len(mine) == 1 else "take"
            spent = seconds(sum(row[5] for row in mine))
            parts.append(f"{plural(len(mine), 'operator')} {takes} {spent} on the {lane}")
    copies = [row for row in rows if row[0] == COPY]
    if copies:
        moved = byte_count(sum(row[6] or 0 for row in copies))
        taken = plural(len(copies), "copy takes", "copies take")
        parts.append(f"{taken} {seconds(sum(row[5] for row in copies))} for {moved}")
    title = f" The plan's latency is {seconds(plan.latency_s)}." if plan else ""
    return "; ".join(parts) + "." + title


def _spec(lanes: list[str]) -> dict[str, Any]:
    tints = {CPU: "var(--cpu)", COPY: "var(--copy)", GPU: "var(--gpu)"}
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
            "minBandSize": 1,
        },
        "encoding": {
            "x": {
                "field": "start",
                "type": "quantitative",
                "axis": axis("seconds", "Time since the start", tickCount=8),
            },
            "x2": {"field": "end"},
            "y": {"field": "lane", "type": "nominal", "sort": lanes, "scale": {"domain": lanes}, "title": None},
            "color": {
                "field": "lane",
                "type": "nominal",
                "legend": None,
                "scale": {"domain": lanes, "range": [tints[lane] for lane in lanes]},
            },
            "fillOpacity": {"condition": {"test": "datum.origin === 'predicted'", "value": 0.7}, "value": 1},
            "tooltip": tooltip(*_COLUMNS),
        },
    }
