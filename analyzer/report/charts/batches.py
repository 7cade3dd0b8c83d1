"""Reporting: latency by plan, and latency and throughput over the batch, of one record or of several.

Of one record each plan is a series; of several each record is, and its devices differ by the line.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from analyzer.record.analysis import Analysis
from analyzer.record.batch_ranges import about, interval_words
from analyzer.report.charts import vega
from analyzer.report.charts.chart import Chart, Column, ColumnKind, Row, origin_words
from analyzer.report.charts.vega import BEST, CPU, GPU, Spec
from analyzer.report.figure_text import PLAN_TITLES, per_second
from analyzer.report.summary import crossover, uses_gpu
from analyzer.text import listed
from analyzer.units import seconds

_COLUMNS = (
    Column(name="record", title="Record"),
    Column(name="batch", title="Batch", kind="count"),
    Column(name="plan", title="Plan"),
    Column(name="latency", title="Latency", kind="seconds"),
    Column(name="low", title="Low (90 %)", kind="seconds"),
    Column(name="high", title="High (90 %)", kind="seconds"),
    Column(name="throughput", title="Per second", kind="per_second"),
    Column(name="throughput_low", title="Per second, low", kind="per_second"),
    Column(name="throughput_high", title="Per second, high", kind="per_second"),
    Column(name="origin", title="Origin"),
    Column(name="fits", title="Fits in memory"),
    Column(name="own", title="The record's own batch"),
)
_PLANS = tuple(
    column for column in _COLUMNS if column.name in ("record", "plan", "latency", "low", "high", "origin")
)
# Measured and predicted differ by their filling; a sum of both is neither, and gets a shape.
_ORIGINS = {"measured": "circle", "predicted": "circle", "mixed": "diamond"}
_DASHES = {CPU: [5, 4], GPU: [1, 0]}
_LEADS = {
    "latency": "Time for one batch, inputs and outputs copied.",
    "throughput": "Inferences per second. Where a line flattens, larger batches gain nothing.",
}


class _Point(NamedTuple):
    """A row of the data: one plan of one record at one batch."""

    record: str
    batch: int
    plan: str
    latency: float | None
    low: float | None
    high: float | None
    throughput: float | None
    throughput_low: float | None
    throughput_high: float | None
    origin: str
    fits: str
    own: str


def charts(*records: Analysis, labels: Sequence[str] = ("",)) -> tuple[Chart, ...]:
    """Return latency and throughput over the batch; nothing where fewer than two batches can run."""
    points = [point for label, one in zip(labels, records, strict=True) for point in _points(label, one)]
    if len(records) > 1:
        # The best plan is one of the two or near it: a third curve a record would hide the others.
        points = [point for point in points if point.plan != BEST]
    if len({point.batch for point in points if point.fits == "yes"}) < 2:
        return ()
    return tuple(_chart(field, points, records, labels) for field in _LEADS)


def _points(label: str, analysis: Analysis) -> Iterator[_Point]:
    for row in analysis.sweep:
        for name, plan in row.plans.items():
            # A throughput is the batch over its latency: the slow end of the one is the low end of the other.
            known = plan.low_s and plan.high_s
            yield _Point(
                record=label,
                batch=row.batch,
                plan=PLAN_TITLES[name],
                latency=plan.latency_s,
                low=plan.low_s,
                high=plan.high_s,
                throughput=plan.throughput_per_s,
                throughput_low=row.batch / plan.high_s if known else None,
                throughput_high=row.batch / plan.low_s if known else None,
                origin=plan.origin,
                fits="yes" if plan.fits else "no",
                own="yes" if row.batch == analysis.model.batch else "no",
            )


def _chart(field: str, points: list[_Point], records: Sequence[Analysis], labels: Sequence[str]) -> Chart:
    several = len(records) > 1
    # A batch that a device has no room for has no time: it is in the table alone.
    drawn = [point for point in points if point.fits == "yes"]
    origins = {point.origin for point in points}
    lead = [_LEADS[field], "Bands are 90 % intervals."]
    if several and len({point.plan for point in drawn}) > 1:
        lead.append("Whole lines are the GPU's plan, dashed ones the CPU's.")
    if any(point.own == "yes" for point in drawn):
        lead.append("Large points are at the batch that was asked for.")
    if len(origins) == 1:
        lead.append(f"All points are {origin_words(origins)}.")
    else:
        mixed = ", diamonds mixed" if not several and "mixed" in origins else ""
        lead.append(f"Filled points were measured, rings predicted{mixed}.")
    if len(drawn) < len(points):
        breaks = "" if several else ", and the best plan's breaks there"
        lead.append(f"A line ends where its device has no room for the batch{breaks}.")
    words = [crossover(records[0])] if not several and records[0].devices.gpu else []
    return Chart(
        name=f"{'record' if several else 'batch'}-{field}",
        title=f"{field.capitalize()} by batch",
        lead=" ".join(lead),
        alternative=" ".join([*words, *_ends(field, points)]),
        spec=_spec(field, drawn, labels),
        columns=_COLUMNS if several else _COLUMNS[1:],
        rows=tuple(tuple(point) if several else tuple(point[1:]) for point in points),
        extra={"marks": () if several else _marks(records[0])},
    )


def _ends(field: str, points: list[_Point]) -> Iterator[str]:
    """Say each curve's first and last figure; records that read the same are named together."""
    figure = seconds if field == "latency" else per_second
    named: dict[tuple[str, str], list[str]] = {}
    for record, plan in dict.fromkeys((point.record, point.plan) for point in points):
        curve = sorted(
            (point for point in points if (point.record, point.plan, point.fits) == (record, plan, "yes")),
            key=lambda point: point.batch,
        )
        ends = [
            f"{figure(getattr(point, field))} at batch {point.batch}" for point in (*curve[:1], *curve[-1:])
        ]
        span = " to ".join(dict.fromkeys(ends)) or "fits at no batch"
        named.setdefault((plan, span), []).append(record)
    for (plan, span), records in named.items():
        yield f"{listed(records)} on the {plan}: {span}." if any(records) else f"{plan}: {span}."


def _marks(analysis: Analysis) -> tuple[dict[str, Any], ...]:
    """Return the batches where something changes, each with its words."""
    verdict, batches = analysis.verdict, [row.batch for row in analysis.sweep]
    doubt = interval_words(verdict)
    marks = [
        (
            batch,
            f"crossover at {about(batch)}{f' ({doubt})' if doubt and batch == verdict.crossover_batch else ''}",
        )
        for batch in verdict.crossovers
    ]
    # A session that falls back to the CPU for everything is saturated by nothing.
    if verdict.saturation_batch and uses_gpu(analysis):
        marks.append((verdict.saturation_batch, f"GPU saturated from {verdict.saturation_batch}"))
    if verdict.largest_batch and verdict.largest_batch < max(batches):
        marks.append((verdict.largest_batch, f"largest that fits: {verdict.largest_batch}"))
    # The middle of a logarithmic axis is the geometric mean. A crossover may lie behind the last batch.
    middle = math.sqrt(min(batches) * max(batches))
    return vega.mark_rows(
        ((batch, text) for batch, text in marks if min(batches) <= batch <= max(batches)), middle
    )


def _spec(field: str, drawn: list[_Point], labels: Sequence[str]) -> Spec:
    several = len(labels) > 1
    kind: ColumnKind = "seconds" if field == "latency" else "per_second"
    low, high = ("low", "high") if field == "latency" else ("throughput_low", "throughput_high")
    plans = [title for title in PLAN_TITLES.values() if any(point.plan == title for point in drawn)]
    names = ("record", "plan") if several else ("plan",)
    figures = [getattr(point, name) for point in drawn for name in (field, low, high)]
    line: Spec = {
        "x": vega.doublings("batch", "Batch", (point.batch for point in drawn)),
        "y": vega.logarithmic(field, kind, field.capitalize(), figures),
        "color": vega.coloured("record", labels, columns=3) if several else vega.coloured("plan", plans),
        "detail": [{"field": "plan"}, {"field": "record"}],
        "opacity": vega.faded(*names),
    }
    band = {
        **line,
        "y": vega.on(line["y"], low),
        "y2": {"field": high},
        "opacity": {"value": 0.06 if several else 0.14},
    }
    dashes = {"domain": plans, "range": [_DASHES.get(plan, [1, 0]) for plan in plans]}
    origins = list(_ORIGINS)
    shape = vega.shaped("record", labels) if several else vega.shaped("origin", origins, [*_ORIGINS.values()])
    point = {
        **{channel: line[channel] for channel in ("x", "y", "opacity")},
        **vega.hollow_if_predicted(line["color"]),
        "shape": {**shape, "legend": None},
        "size": vega.if_so("own", 140, 50),
        "tooltip": vega.tooltip(*(_COLUMNS if several else _COLUMNS[1:])),
    }
    # The best plan often is one of the others: a broad pale line below, and no band, leaves both to be seen.
    # Behind the largest batch that the GPU holds it is another: its line does not go on.
    held = max((each.batch for each in drawn if each.plan == GPU), default=0)
    best = {**line, "detail": {"field": "held"}}
    broad: Spec = {"strokeWidth": 9, "strokeOpacity": 0.35, "strokeCap": "round"}
    dashed = {"strokeDash": vega.nominal("plan", scale=dashes, title=None)} if several else {}
    return vega.layered(
        270,
        vega.layer("area", band, only=f"datum.plan !== '{BEST}'"),
        *([vega.layer("line", best, only=f"datum.plan === '{BEST}'", **broad)] if BEST in plans else ()),
        vega.layer("line", line | dashed, only=f"datum.plan !== '{BEST}'", strokeWidth=2),
        vega.layer("point", point, select=names, filled=True, strokeWidth=2),
        *(vega.rules("marks", line["x"]) if not several else ()),
        transform=[
            {"filter": "datum.fits === 'yes'"},
            {"calculate": f"datum.batch <= {held}", "as": "held"},
        ],
    )


def plans(*records: Analysis, labels: Sequence[str]) -> Chart | None:
    """Return the latency of each plan with its interval, by record; of one inference where batches differ."""
    one_batch = len({one.model.batch for one in records}) < 2
    rows: tuple[Row, ...] = tuple(
        (
            label,
            PLAN_TITLES[plan.name],
            *(time / per for time in (plan.latency_s, plan.low_s, plan.high_s)),
            plan.origin,
        )
        for label, one in zip(labels, records, strict=True)
        for per in (1 if one_batch else one.model.batch or 1,)
        for plan in one.plans
    )
    if not rows:
        return None
    titles = [title for title in PLAN_TITLES.values() if any(row[1] == title for row in rows)]
    latencies = ". ".join(
        f"{title}: " + ", ".join(f"{row[0]} {seconds(row[2])}" for row in rows if row[1] == title)
        for title in titles
    )
    figures = [time for row in rows for time in row[2:5]]
    place = {
        "y": vega.lanes("plan", titles) | {"scale": {"domain": titles, "paddingInner": 0.3}},
        "yOffset": {"field": "record", "sort": [*labels]},
        "x": vega.logarithmic(
            "latency", "seconds", "Latency" if one_batch else "Time of one inference", figures
        ),
        "color": vega.coloured("record", labels, columns=3),
        "opacity": vega.faded("record"),
    }
    spec = vega.layered(
        18 * len(labels) * len(titles),
        vega.layer(
            "rule",
            {**place, "x": vega.on(place["x"], "low"), "x2": {"field": "high"}},
            strokeWidth=3,
            strokeOpacity=0.4,
        ),
        vega.layer(
            "point",
            {**place, "shape": vega.shaped("record", labels, legend=None), "tooltip": vega.tooltip(*_PLANS)},
            select=("record",),
            filled=True,
            size=90,
        ),
    )
    return Chart(
        name="latencies",
        title="Latency by plan" if one_batch else "Time of one inference by plan",
        lead="A point for each record with its 90 % interval. The axis is logarithmic: the same distance is "
        "the same factor. Where the bars of two records overlap, their order is not certain.",
        alternative=f"{latencies}.",
        spec=spec,
        columns=_PLANS,
        rows=rows,
    )
