"""Reporting: charts of a comparison: every record's plans and where its time goes, a colour a record."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from analyzer.record.analysis import Analysis, OperatorResult
from analyzer.report.charts.chart import (
    Chart,
    Column,
    Row,
    axis,
    bars,
    combined_origin,
    decades,
    faded,
    layered,
    legend_selection,
    nominal,
    page_colours,
    quantity,
    tooltip,
)
from analyzer.report.compare.comparison import Comparison
from analyzer.report.summary.figure_words import PLAN_TITLES
from analyzer.report.summary.leading_operators import time_in_plan
from analyzer.units import seconds, share

# Bars drawn for each record, and how far inside modules are looked into before the model counts as flat.
LARGEST, DEEPEST = 12, 6
# Six shapes and the page's eight colours meet again at the 25th record only.
SHAPES = ("circle", "square", "diamond", "triangle-up", "triangle-down", "cross")
_PLANS = (
    Column(name="record", title="Record"),
    Column(name="plan", title="Plan"),
    Column(name="latency", title="Latency", kind="seconds"),
    Column(name="low", title="Low (90 %)", kind="seconds"),
    Column(name="high", title="High (90 %)", kind="seconds"),
    Column(name="origin", title="Origin"),
)
_PARTS = (
    Column(name="record", title="Record"),
    Column(name="time", title="Time", kind="seconds"),
    Column(name="share", title="Share of the record's time", kind="share"),
    Column(name="operators", title="Operators", kind="count"),
    Column(name="origin", title="Origin"),
)


def record_shapes(labels: Sequence[str]) -> dict[str, list[str]]:
    """A shape for each record beside its colour."""
    return {"domain": list(labels), "range": [SHAPES[at % len(SHAPES)] for at in range(len(labels))]}


def labelled(comparison: Comparison) -> Iterator[tuple[str, Analysis, int]]:
    """Label, analysis, and by how many inferences its times are divided: its batch where batches differ."""
    for label, analysis in zip(comparison.labels, comparison.analyses, strict=True):
        yield label, analysis, 1 if comparison.one_batch else analysis.model.batch or 1


def plans(comparison: Comparison) -> Chart | None:
    """Latency of each plan with its interval, record by record; for one inference where batches differ."""
    rows = tuple(
        (
            label,
            PLAN_TITLES[plan.name],
            plan.latency_s / per,
            plan.low_s / per,
            plan.high_s / per,
            plan.origin,
        )
        for label, analysis, per in labelled(comparison)
        for plan in analysis.plans
    )
    if not rows:
        return None
    titles = [title for title in PLAN_TITLES.values() if any(row[1] == title for row in rows)]
    latencies = ". ".join(
        f"{title}: " + ", ".join(f"{row[0]} {seconds(row[2])}" for row in rows if row[1] == title)
        for title in titles
    )
    return Chart(
        name="latencies",
        title="Latency by plan" if comparison.one_batch else "Time of one inference by plan",
        lead="A point for each record with its 90 % interval. The axis is logarithmic: the same distance is "
        "the same factor. Where the bars of two records overlap, their order is not certain.",
        alternative=f"{latencies}.",
        spec=_plan_spec(comparison, titles, rows),
        columns=_PLANS,
        rows=rows,
        height=16 * len(comparison.labels) * len(titles) + 90,
    )


def _plan_spec(comparison: Comparison, titles: list[str], rows: tuple[Row, ...]) -> dict[str, Any]:
    labels = comparison.labels
    title = "Latency" if comparison.one_batch else "Time of one inference"
    # In pixels, or the points at both ends would be cut in half; ``nice`` would add up to a decade.
    scale = {"type": "log", "nice": False, "padding": 12}
    ticks = axis("seconds", title, values=decades(value for row in rows for value in row[2:5]))
    place = {
        "y": _rows_of("plan", titles, scale={"paddingInner": 0.3}),
        "yOffset": {"field": "record", "sort": list(labels)},
        "color": _by_record(labels),
        "opacity": faded("record", 0.1),
    }
    return layered(
        {"step": 18},
        [
            {
                "mark": {"type": "rule", "strokeWidth": 3, "strokeOpacity": 0.4},
                "encoding": {**place, "x": quantity("low", ticks, **scale), "x2": {"field": "high"}},
            },
            {
                "params": [legend_selection("record", "record")],
                "mark": {"type": "point", "filled": True, "size": 90},
                "encoding": {
                    **place,
                    "x": quantity("latency", **scale),
                    "shape": {"field": "record", "scale": record_shapes(labels), "title": None},
                    "tooltip": tooltip(*_PLANS),
                },
            },
        ],
    )


def _rows_of(field: str, order: Sequence[str], **more: Any) -> dict[str, Any]:
    return nominal(field, sort=list(order), title=None, **more)


def _by_record(labels: Sequence[str]) -> dict[str, Any]:
    return {**_rows_of("record", labels), "scale": page_colours(labels), "legend": {"columns": 3}}


def by_type(comparison: Comparison) -> Chart | None:
    """What each operator type takes of the best plan, record beside record; None where no time is known."""
    return _parts(comparison, "types", "operator type", lambda operator: operator.op_type)


def by_module(comparison: Comparison) -> Chart | None:
    """The same by module, as far inside as it takes to tell them apart; None for models without modules."""
    timed = [[operator for operator in one.operators if time_in_plan(operator)] for one in comparison.analyses]

    def distinct(depth: int) -> int:
        return max(len({_module_at(each, depth) for each in items if each.module}) for items in timed)

    # Many models are wrapped ("model.encoder. ..."): at depth 1 all of them would be one bar.
    depth = next((depth for depth in range(1, DEEPEST + 1) if distinct(depth) > 1), None)
    if depth is None:
        return None
    return _parts(comparison, "modules", "module", lambda operator: _module_at(operator, depth))


def _module_at(operator: OperatorResult, depth: int) -> str:
    return ".".join(operator.module.split(".")[:depth]) or "(outside of modules)"


def _parts(comparison: Comparison, name: str, what: str, key: Callable[[OperatorResult], str]) -> Chart | None:
    records = [_by_part(analysis, per, key) for _, analysis, per in labelled(comparison)]
    ranked = sorted(
        {part for parts in records for part in parts},
        # By the largest share in any record: what only one of them has is a difference worth seeing.
        key=lambda part: (-max(parts[part][1] if part in parts else 0.0 for parts in records), part),
    )
    if not ranked:
        return None
    rows = tuple(
        (part, label, *parts[part])
        for part in ranked[:LARGEST]
        for label, parts in zip(comparison.labels, records, strict=True)
        # A record without this part has no bar: one of no length could not be told from a short one.
        if part in parts
    )
    lead = f"What each {what} takes in the best plan of each record"
    lead += "." if comparison.one_batch else ", for one inference."
    if len(ranked) > LARGEST:
        lead += f" The largest {LARGEST} of {len(ranked)}."
    return Chart(
        name=f"record-{name}",
        title=f"Time by {what}",
        lead=lead,
        alternative=" ".join(_largest(label, rows) for label in comparison.labels),
        spec=_part_spec(comparison.labels, ranked[:LARGEST]),
        columns=(Column(name="part", title=what.capitalize()), *_PARTS),
        rows=rows,
        height=(11 * len(comparison.labels) + 6) * len(ranked[:LARGEST]) + 90,
    )


def _by_part(
    analysis: Analysis, per: int, key: Callable[[OperatorResult], str]
) -> dict[str, tuple[float, float, int, str]]:
    """Return time, share of all, number and origin of the operators of each part that take time."""
    timed: dict[str, list[OperatorResult]] = defaultdict(list)
    for operator in analysis.operators:
        if time_in_plan(operator):
            timed[key(operator)].append(operator)
    times = {part: sum((time_in_plan(each) or 0.0) / per for each in inside) for part, inside in timed.items()}
    whole = sum(times.values())
    origins = {
        part: {time.origin for each in inside if (time := each.gpu if each.placement == "gpu" else each.cpu)}
        for part, inside in timed.items()
    }
    return {
        part: (times[part], times[part] / whole, len(inside), combined_origin({*origins[part]}))
        for part, inside in timed.items()
    }


def _largest(label: str, rows: tuple[Row, ...]) -> str:
    largest = sorted((row for row in rows if row[1] == label), key=lambda row: -float(row[2]))[:3]
    if not largest:
        return f"{label}: no time is known."
    return f"{label}: " + ", ".join(f"{row[0]} {seconds(row[2])} ({share(row[3])})" for row in largest) + "."


def _part_spec(labels: Sequence[str], order: list[str]) -> dict[str, Any]:
    encoding = {
        "y": _rows_of("part", order, axis={"labelLimit": 150}, scale={"paddingInner": 0.35}),
        "yOffset": {"field": "record", "sort": list(labels)},
        "x": quantity("time", axis("seconds", "Time in the best plan", tickCount=6)),
        "color": _by_record(labels),
        "opacity": faded("record", 0.1),
        "tooltip": tooltip(Column(name="part", title="Part"), *_PARTS),
    }
    return bars({"step": 11}, legend_selection("record", "record"), {"cornerRadiusEnd": 2}, encoding)
