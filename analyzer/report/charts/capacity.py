"""Reporting: latency against the load of one instance up to its highest rate, and instances against traffic.

Of a model that generates the latencies are those of the first token and of each further one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from analyzer.figures import QueueLoad
from analyzer.record.capacity import CapacityOption, CapacityResult
from analyzer.report import capacity_words as words
from analyzer.report.charts import vega
from analyzer.report.charts.chart import Chart, Column, Row
from analyzer.report.charts.vega import Spec
from analyzer.report.generation_words import rate
from analyzer.text import plural
from analyzer.units import count, dollars, seconds, share

# Of the axis' length: from where on a mark's words are written to the left of it.
_LATE = 0.6


def charts(told: CapacityResult) -> tuple[Chart, ...]:
    """Return the latencies of the best option, else of the one that comes nearest, if its loads are known."""
    at = told.best if told.best is not None else words.nearest(told)
    one = words.loads(told, at) if at is not None else None
    if one is None or at is None or len(one.loads) < 2:
        return ()
    option = told.options[at]
    further = tuple(point for point in one.loads if point.tpot_p50_s and point.tpot_p99_s)
    latency = _latency(told, option, one.loads)
    return (
        (latency, _further(told, option, further)) if words.generates(told) and len(further) > 1 else (latency,)
    )


def _latency(told: CapacityResult, option: CapacityOption, points: Sequence[QueueLoad]) -> Chart:
    generates, kept, of = words.generates(told), words.limited(told), words.name(option)
    answered = "have their first token" if generates else "are answered"
    lead = (
        f"Of one {of}, waiting included: half of the requests {answered} within p50, 99 of 100 "
        f"within p99. The thick line is {kept}, which is limited"
    )
    low, high = (
        f"{seconds(point.latency_s(told.percentile))} at {words.requests(point.rate_per_s)}"
        for point in (points[0], points[-1])
    )
    said = f"{kept}{' to the first token' if generates else ''} of one {of}: {low}, {high}. "
    said += f"The limit is {seconds(told.limit_s)}"
    if option.highest_rate_per_s is not None:
        # Of two limits it may be the other that is reached there.
        both = "; both limits are kept" if told.tpot_limit_s is not None else ", kept"
        said += f"{both} up to {words.requests(option.highest_rate_per_s)}"
    return _times(
        *(told, option, points),
        ("p50", "p90", "p95", "p99") if told.percentile is not None else ("p50", "p90", "p95", "p99", "mean"),
        thick=kept,
        time="Time to the first token" if generates else "Latency",
        limit_s=told.limit_s,
        below=told.best is None,
        name="capacity-latency",
        title="First token by load" if generates else "Latency by load",
        lead=f"{lead}." if option.feasible else f"{lead}; at no rate does it keep the {words.limits(told)}.",
        alternative=f"{said}.",
    )


def _further(told: CapacityResult, option: CapacityOption, points: Sequence[QueueLoad]) -> Chart:
    kept, limit_s, of = words.further(told), words.further_limit_s(told), words.name(option)
    times = [words.further_s(told, point) or 0.0 for point in points]
    low, high = (
        f"{seconds(time)} at {words.requests(point.rate_per_s)}"
        for time, point in ((times[0], points[0]), (times[-1], points[-1]))
    )
    thick = f" The thick line is {kept}, which is limited." if limit_s is not None else ""
    limit = f" The limit is {seconds(limit_s)}." if limit_s is not None else ""
    return _times(
        *(told, option, points),
        ("p50", "p99"),
        prefix="tpot_",
        thick=kept if limit_s is not None else "",
        time="Time of each further token",
        limit_s=limit_s,
        below=min(times) > (limit_s or min(times)),
        name="capacity-tpot",
        title="Further tokens by load",
        lead=f"Of one {of}, a request's mean after its first token: longer the more sequences "
        f"run and the more prompts are read.{thick}",
        alternative=f"{kept} of each further token of one {of}: {low}, {high}.{limit}",
    )


def _times(
    told: CapacityResult,
    option: CapacityOption,
    points: Sequence[QueueLoad],
    percentiles: Sequence[str],
    *,
    prefix: str = "",
    thick: str,
    time: str,
    limit_s: float | None,
    below: bool,
    **named: Any,
) -> Chart:
    """Return percentiles of a time over the load, with the planned rate of an instance and its highest.

    Args:
        told: The answer.
        option: What it is of.
        points: Its loads.
        percentiles: One line each.
        prefix: Of the keys of the time.
        thick: The percentile whose line is thick.
        time: Its name.
        limit_s: Of the time; None for none.
        below: Whether the limit's words stand below its line, on the side where the lines are not.
        named: Name, title, lead and alternative.
    """
    columns = (
        Column(name="rate", title="Requests per second", kind="per_second"),
        Column(name="of", title="Latency of"),
        Column(name="latency", title=time, kind="seconds"),
        Column(name="utilisation", title="Utilisation", kind="share"),
        Column(name="batch", title="Sequences" if words.generates(told) else "Mean batch", kind="number"),
        Column(name="limited", title="Limited"),
    )
    rows: tuple[Row, ...] = tuple(
        (
            point.rate_per_s,
            name,
            getattr(point, f"{prefix}{name}_s"),
            point.utilisation,
            point.mean_batch,
            "yes" if name == thick else "no",
        )
        for name in percentiles
        for point in points
    )
    line = {
        "x": vega.amount(
            "rate", "per_second", "Requests per second to one instance", grid=False, zero=True, nice=False
        ),
        "y": vega.logarithmic("latency", "seconds", time, [*(row[2] for row in rows), limit_s], padding=18),
        "color": vega.coloured("of", percentiles),
        "opacity": vega.faded("of"),
    }
    marks = []
    if option.count:
        share_of_each = words.planned(told) / option.count
        each = f"each of {count(option.count)}" if option.count > 1 else "planned"
        marks.append((share_of_each, f"{each}: {rate(share_of_each)}/s"))
    if option.highest_rate_per_s is not None:
        marks.append((option.highest_rate_per_s, f"highest: {rate(option.highest_rate_per_s)}/s"))
    return Chart(
        spec=vega.layered(
            280,
            vega.layer("line", {**line, "strokeWidth": vega.if_so("limited", 3.5, 1.5)}),
            vega.ring(
                {**line, "tooltip": vega.tooltip(*columns[:-1])}, select=("of",), size=40, strokeWidth=1.6
            ),
            *(vega.limits(line["y"]) if limit_s is not None else ()),
            *vega.rules("marks", line["x"]),
        ),
        columns=columns,
        rows=rows,
        extra={
            "limits": vega.limit_rows(limit_s, below=below),
            "marks": vega.mark_rows(marks, points[-1].rate_per_s * _LATE),
        },
        **named,
    )


_TRAFFIC = (
    Column(name="rate", title="From this rate on", kind="per_second"),
    Column(name="count", title="Instances", kind="count"),
    Column(name="usd", title="Per month", kind="dollars"),
)
# As many labels as an axis of this height has room for.
_MOST_TICKS = 8


def traffic(told: CapacityResult) -> Chart | None:
    """Return instances and dollars by traffic; None without an answer or with fewer than two steps."""
    option = told.best_option
    if option is None or len(told.traffic) < 2:
        return None
    rows = tuple((point.rate_per_s, point.count, point.usd_per_month) for point in told.traffic)
    first, last, planned = rows[0], rows[-1], words.planned(told)
    asked = [(told.rate_per_s, f"{words.asked(told.rate_per_s)}/s asked")]
    if told.growth != 1:
        asked.append((planned, f"{words.asked(planned)}/s with growth"))
    # The last step goes on: its line ends with the axis, behind the last rate that is known.
    end = max(last[0], planned) * 1.05
    # Both axes are the same steps: their labels stand at the same heights, a tenth above is left for words.
    steps = sorted({row[1:] for row in rows})
    labelled = steps[:: -(-len(steps) // _MOST_TICKS)]
    x = vega.amount("rate", "per_second", "Requests per second", grid=False, domain=[0, end], nice=False)
    counts, prices = zip(*labelled, strict=True)
    most, dearest = (1.1 * value for value in steps[-1])
    number = vega.amount("count", "count", "Instances", counts, domain=[0, most], nice=False)
    right: Spec = {"grid": False, "orient": "right", "domain": [0, dearest], "nice": False}
    money = vega.amount("usd", "dollars", "US dollars a month", prices, **right)
    colour = f"var(--{option.kind})"
    stroke: Spec = {"strokeWidth": 2.5, "color": colour}
    counted: Spec = {"x": x, "y": number}
    spare = f", {plural(told.spare, 'spare')} among them" if told.spare else ""
    return Chart(
        name="capacity-traffic",
        title=f"{words.name(option)} by traffic",
        lead=(
            f"How many {words.name(option)} the traffic needs{spare}, with {share(told.headroom)} headroom, "
            f"and what they cost a month. {'Growth is in the traffic. ' if told.growth != 1 else ''}"
            "Each step is one instance more."
        ),
        alternative=(
            f"{plural(first[1], 'instance')} ({dollars(first[2])} a month) from {words.requests(first[0])} on, "
            f"{count(last[1])} ({dollars(last[2])}) from {words.requests(last[0])} on. "
            f"{words.asked(planned)} requests/s need {count(option.count)}, "
            f"{dollars(option.usd_per_month)} a month."
        ),
        spec=vega.layered(
            270,
            {
                "layer": [
                    vega.layer("line", counted, interpolate="step-after", **stroke),
                    vega.layer("rule", {**counted, "x2": {"field": "end"}}, data="end", **stroke),
                    vega.layer(
                        "point",
                        {**counted, "tooltip": vega.tooltip(*_TRAFFIC)},
                        filled=True,
                        size=50,
                        color=colour,
                    ),
                ]
            },
            vega.layer("point", {"x": x, "y": money}, opacity=0),
            *vega.rules("asked", x),
            resolve={"scale": {"y": "independent"}},
        ),
        columns=_TRAFFIC,
        rows=rows,
        extra={
            "end": ({"rate": last[0], "end": end, "count": last[1]},),
            "asked": vega.mark_rows(asked, end * _LATE),
        },
    )
