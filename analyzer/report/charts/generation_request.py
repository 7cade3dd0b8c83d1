"""Reporting: one request from its prompt to its last token, and what both phases spend their time on."""

from __future__ import annotations

from typing import Any

from analyzer.record.analysis import Analysis
from analyzer.record.generation import GenerationResult, RequestTimes
from analyzer.report.charts.chart import (
    CPU,
    GPU,
    Chart,
    Column,
    Row,
    axis,
    bars,
    faded,
    layered,
    legend_selection,
    nominal,
    page_colours,
    quantity,
    series,
    text_over_marks,
    tooltip,
)
from analyzer.report.generation_words import device
from analyzer.text import plural
from analyzer.units import count, seconds, share

_TIMELINE = (
    Column(name="device", title="Runs on"),
    Column(name="phase", title="Phase"),
    Column(name="start", title="Start", kind="seconds"),
    Column(name="end", title="End", kind="seconds"),
    Column(name="time", title="Time", kind="seconds"),
    Column(name="origin", title="Origin"),
)
_PARTS = (
    Column(name="phase", title="Phase"),
    Column(name="part", title="Part"),
    Column(name="time", title="Time", kind="seconds"),
    Column(name="share", title="Share of the phase", kind="share"),
)
PREFILL, DECODE = "Prefill", "Decode"
# A slower lane is drawn whole up to so many times the other's length; beyond, the other would be a line.
_WHOLE_LANE = 3.0
_AIR = 1.12


def timeline(analysis: Analysis, told: GenerationResult) -> Chart:
    """Prefill, then decode; the CPU beside it where it is known."""
    lanes: list[tuple[str, RequestTimes]] = [(_lane(told), told)]
    if told.cpu is not None and told.gpus:
        lanes.append((CPU, told.cpu))
    names = {CPU: analysis.devices.cpu.name, _lane(told): device(analysis, told)}
    rows: list[Row] = []
    for lane, times in lanes:
        ttft, request = times.ttft_s, times.request_s
        rows.append((lane, PREFILL, 0.0, ttft, ttft, times.origin))
        rows.append((lane, DECODE, ttft, request, request - ttft, times.origin))
    longest = max(times.request_s for _, times in lanes)
    shortest = min(times.request_s for _, times in lanes)
    whole = longest <= _WHOLE_LANE * shortest
    end = (longest if whole else shortest) * _AIR
    labels = tuple(
        {
            "device": lane,
            "at": 0.0,
            "label": f"TTFT {seconds(times.ttft_s)}, TPOT {seconds(times.tpot_s)}, "
            f"all {seconds(times.request_s)}",
        }
        for lane, times in lanes
    )
    lead = (
        f"{count(told.prompt_tokens)} tokens are read (prefill), {count(told.output_tokens)} are made (decode)."
    )
    if not whole:
        lead += " The slower one goes on beyond the right edge."
    return Chart(
        name="generation-request",
        title="One request",
        lead=lead,
        alternative=" ".join(
            f"{names[lane]}: the first token after {seconds(times.ttft_s)}, then one every "
            f"{seconds(times.tpot_s)}, all after {seconds(times.request_s)}."
            for lane, times in lanes
        ),
        spec=_timeline_spec([lane[0] for lane in lanes], end),
        columns=_TIMELINE,
        rows=tuple(rows),
        extra={"labels": labels},
        height=64 * len(lanes) + 90,
    )


def _lane(told: GenerationResult) -> str:
    """Short, as a phone leaves no room for names: ``CPU``, ``GPU``, ``8 GPUs``."""
    if not told.gpus:
        return CPU
    return plural(told.gpus, "GPU") if told.gpus > 1 else GPU


def _timeline_spec(lanes: list[str], end: float) -> dict[str, Any]:
    tints = {"domain": [PREFILL, DECODE], "range": ["var(--record-4)", "var(--record-6)"]}
    scale = {"domain": [0, end], "nice": False}
    y = nominal("device", sort=lanes, scale={"domain": lanes}, title=None)
    lane_bars = {
        "mark": {"type": "bar", "height": 18, "clip": True, "minBandSize": 1, "yOffset": 8},
        "encoding": {
            "x": quantity("start", axis("seconds", "Time since the request", tickCount=6), **scale),
            "x2": {"field": "end"},
            "y": {**y, "axis": {"labelLimit": 130, "domain": False, "ticks": False}},
            "color": series("phase", tints),
            "tooltip": tooltip(*_TIMELINE),
        },
    }
    mark = {"type": "text", "align": "left", "dx": 2, "dy": -13, "fontSize": 12, "color": "var(--text)"}
    place = {"x": quantity("at", **scale), "y": y, "text": {"field": "label"}}
    return layered({"step": 64}, [lane_bars, *text_over_marks("labels", mark, place)])


def parts(told: GenerationResult) -> Chart | None:
    """Shares of each phase by part of the layers, stacked; None where no part takes time."""
    phases = (
        (PREFILL, [times["prefill"] for times in told.parts.values()]),
        (DECODE, [times["decode"] for times in told.parts.values()]),
    )
    if not all(sum(times) for _, times in phases):
        return None
    # What takes nothing would be an entry of the legend without a bar.
    timed = {part for part, times in told.parts.items() if any(times.values())}
    rows = tuple(
        (phase, {"Mlp": "MLP", "Linear": "Head"}.get(part, part), time, time / sum(times))
        for phase, times in phases
        for part, time in zip(told.parts, times, strict=True)
        if part in timed
    )
    return Chart(
        name="generation-parts",
        title="What both phases spend their time on",
        lead="All layers together, by the class of the modules. Both bars are drawn equally long: "
        + " and ".join(f"{phase.lower()} is {seconds(sum(times))}" for phase, times in phases)
        + (" a token." if told.output_tokens else "."),
        alternative=_part_words(rows),
        spec=_parts_spec(rows),
        columns=_PARTS,
        rows=rows,
        height=220,
    )


def _part_words(rows: tuple[Row, ...]) -> str:
    said = []
    for phase in dict.fromkeys(row[0] for row in rows):
        largest = sorted((row for row in rows if row[0] == phase), key=lambda row: (-row[3], row[1]))[:3]
        said.append(f"{phase}: " + ", ".join(f"{row[1]} {share(row[3])}" for row in largest) + ".")
    return " ".join(said)


def _parts_spec(rows: tuple[Row, ...]) -> dict[str, Any]:
    phases = list(dict.fromkeys(row[0] for row in rows))
    names = list(dict.fromkeys(row[1] for row in rows))
    shares = axis("share", "Share of the phase", tickCount=5)
    labels = {"labelLimit": 170, "domain": False, "ticks": False}
    encoding = {
        "y": nominal("phase", sort=phases, title=None, axis=labels),
        "x": {**quantity("share", shares, domain=[0, 1], nice=False), "stack": "zero"},
        "color": {**series("part", page_colours(names), columns=2), "sort": names},
        "opacity": faded("parts", 0.12),
        "tooltip": tooltip(*_PARTS),
    }
    mark = {"height": 28, "stroke": "var(--surface)", "strokeWidth": 0.6}
    return bars({"step": 52}, legend_selection("parts", "part"), mark, encoding)
