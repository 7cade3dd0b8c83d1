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


def charts(result: CapacityResult) -> tuple[Chart, ...]:
    """Return the latencies of the best option, else of the one that comes nearest, if its loads are known."""
    at = result.best if result.best is not None else words.nearest(result)
    one = words.loads(result, at) if at is not None else None
    if one is None or at is None or len(one.loads) < 2:
        return ()
    option, generates, limited = result.options[at], words.generates(result), words.limited(result)
    of = words.name(option)
    first = (
        f"Of one {of}, waiting included: half of the requests "
        f"{'have their first token' if generates else 'are answered'} within p50, 99 of 100 within p99. "
        f"The thick line is {limited}, which is limited"
    )
    reached = ""
    if option.highest_rate_per_s is not None:
        # Of two limits it may be the other that is reached there.
        both = "; both limits are kept" if result.tpot_limit_s is not None else ", kept"
        reached = f"{both} up to {words.requests(option.highest_rate_per_s)}"
    latency = _times(
        *(
            result,
            option,
            one.loads,
            ("p50", "p90", "p95", "p99", *(("mean",) if result.percentile is None else ())),
        ),
        thick=limited,
        what=f"{limited} to the first token" if generates else limited,
        time="Time to the first token" if generates else "Latency",
        limit_s=result.limit_s,
        reached=reached,
        name="capacity-latency",
        title="First token by load" if generates else "Latency by load",
        lead=f"{first}."
        if option.feasible
        else f"{first}; at no rate does it keep the {words.limits(result)}.",
    )
    further = tuple(point for point in one.loads if point.tpot_p50_s and point.tpot_p99_s)
    if not generates or len(further) < 2:
        return (latency,)
    thick, limit_s = words.further(result), words.further_limit_s(result)
    lead = f" The thick line is {thick}, which is limited." if limit_s is not None else ""
    tpot = _times(
        *(result, option, further, ("p50", "p99")),
        prefix="tpot_",
        thick=thick,
        what=f"{thick} of each further token",
        time="Time of each further token",
        limit_s=limit_s,
        name="capacity-tpot",
        title="Further tokens by load",
        lead=f"Of one {of}, a request's mean after its first token: longer the more sequences run and the more "
        f"prompts are read.{lead}",
    )
    return latency, tpot


def _times(
    result: CapacityResult,
    option: CapacityOption,
    points: Sequence[QueueLoad],
    percentiles: Sequence[str],
    *,
    prefix: str = "",
    thick: str,
    what: str,
    time: str,
    limit_s: float | None,
    reached: str = "",
    **named: Any,
) -> Chart:
    """Return percentiles of a time over the load, with the planned rate of an instance and its highest.

    The line of the percentile ``thick``, in words ``what``, is thick where it is limited; ``prefix`` begins the
    keys of the time, and ``reached`` says up to which rate the limit is kept.
    """
    times = [getattr(point, f"{prefix}{thick}_s", None) or 0.0 for point in points]
    low, high = (f"{seconds(times[at])} at {words.requests(points[at].rate_per_s)}" for at in (0, -1))
    limit = f" The limit is {seconds(limit_s)}{reached}." if limit_s is not None else ""
    columns = (
        Column(name="rate", title="Requests per second", kind="per_second"),
        Column(name="of", title="Latency of"),
        Column(name="latency", title=time, kind="seconds"),
        Column(name="utilisation", title="Utilisation", kind="share"),
        Column(name="batch", title="Sequences" if words.generates(result) else "Mean batch", kind="number"),
        Column(name="limited", title="Limited"),
    )
    rows: tuple[Row, ...] = tuple(
        (
            point.rate_per_s,
            name,
            getattr(point, f"{prefix}{name}_s"),
            point.utilisation,
            point.mean_batch,
            "yes" if name == thick and limit_s is not None else "no",
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
        share_of_each = words.planned(result) / option.count
        each = f"each of {count(option.count)}" if option.count > 1 else "planned"
        marks.append((share_of_each, f"{each}: {rate(share_of_each)}/s"))
    if option.highest_rate_per_s is not None:
        marks.append((option.highest_rate_per_s, f"highest: {rate(option.highest_rate_per_s)}/s"))
    return Chart(
        alternative=f"{what} of one {words.name(option)}: {low}, {high}.{limit}",
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
            # Its words stand on the side of the limit where the lines are not.
            "limits": vega.limit_rows(limit_s, below=limit_s is not None and min(times) > limit_s),
            "marks": vega.mark_rows(marks, points[-1].rate_per_s * _LATE),
        },
        origin=option.origin if result.best is not None else "predicted",
        **named,
    )


_TRAFFIC = (
    Column(name="rate", title="From this rate on", kind="per_second"),
    Column(name="count", title="Instances", kind="count"),
    Column(name="usd", title="Per month", kind="dollars"),
)
# As many labels as an axis of this height has room for.
_MOST_TICKS = 8


def traffic(result: CapacityResult) -> Chart | None:
    """Return instances and dollars by traffic; None without an answer or with fewer than two steps."""
    option = result.best_option
    if option is None or len(result.traffic) < 2:
        return None
    rows = tuple((point.rate_per_s, point.count, point.usd_per_month) for point in result.traffic)
    first, last, planned = rows[0], rows[-1], words.planned(result)
    marks = [(result.rate_per_s, f"{words.requested(result.rate_per_s)}/s asked")]
    if result.growth != 1:
        marks.append((planned, f"{words.requested(planned)}/s with growth"))
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
    spare = f", {plural(result.spare, 'spare')} among them" if result.spare else ""
    return Chart(
        name="capacity-traffic",
        title=f"{words.name(option)} by traffic",
        lead=(
            f"How many {words.name(option)} the traffic needs{spare}, with {share(result.headroom)} headroom, "
            f"and what they cost a month. {'Growth is in the traffic. ' if result.growth != 1 else ''}"
            "Each step is one instance more."
        ),
        alternative=(
            f"{plural(first[1], 'instance')} ({dollars(first[2])} a month) from {words.requests(first[0])} on, "
            f"{count(last[1])} ({dollars(last[2])}) from {words.requests(last[0])} on. "
            f"{words.requested(planned)} requests/s need {count(option.count)}, "
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
        origin=option.origin,
        extra={
            "end": ({"rate": last[0], "end": end, "count": last[1]},),
            "asked": vega.mark_rows(marks, end * _LATE),
        },
    )
