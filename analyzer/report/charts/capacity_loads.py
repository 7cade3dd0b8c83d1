"""Reporting: latency and what runs together against the load of one instance, up to its highest rate.

Of a model that generates the latencies are those of the first token and of each further one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from analyzer.figures import QueueLoad
from analyzer.record.capacity import CapacityOption, CapacityResult, InstanceLoads
from analyzer.report import capacity_words as words
from analyzer.report.charts.chart import (
    Chart,
    Column,
    Row,
    axis,
    decades,
    faded,
    layered,
    legend_selection,
    limit_lines,
    limit_rows,
    quantity,
    rate_lines,
    rate_rows,
    ring,
    series,
    tooltip,
)
from analyzer.report.generation_words import rate
from analyzer.text import plural
from analyzer.units import count, digits, dollars, seconds, share

_RATE = Column(name="rate", title="Requests per second", kind="per_second")
_UTILISATION = Column(name="utilisation", title="Utilisation", kind="share")
_PERCENTILES = {
    "p50": "var(--record-3)",
    "p90": "var(--record-1)",
    "p95": "var(--record-4)",
    "p99": "var(--record-5)",
}
_MEAN = {"mean": "var(--record-8)"}
# Of the axis' length: from where on a mark's words are written to the left of it.
_LATE = 0.6
# Of the horizontal axis.
_X = quantity("rate", zero=True, nice=False)


def charts(told: CapacityResult) -> tuple[Chart, ...]:
    """Of the best option, else of the one that comes nearest; nothing where too few loads of it are known."""
    at = told.best if told.best is not None else words.nearest(told)
    one = words.loads(told, at) if at is not None else None
    if one is None or at is None or len(one.loads) < 2:
        return ()
    option = told.options[at]
    lines = (_latency(told, option, one), *filter(None, (_further(told, option, one),)))
    return (*lines, _batch(told, option, one))


def _chart(
    told: CapacityResult,
    option: CapacityOption,
    points: tuple[QueueLoad, ...],
    spec: dict[str, Any],
    extra: dict[str, Any],
    **more: Any,
) -> Chart:
    """Return a chart over the load, with where an instance stands at the planned rate, and its most."""
    marks = []
    if option.count:
        share_of_each = words.planned(told) / option.count
        each = f"each of {count(option.count)}" if option.count > 1 else "planned"
        marks.append((share_of_each, f"{each}: {rate(share_of_each)}/s"))
    if option.highest_rate_per_s is not None:
        marks.append((option.highest_rate_per_s, f"highest: {rate(option.highest_rate_per_s)}/s"))
    end = points[-1].rate_per_s
    return Chart(spec=spec, extra={**extra, "marks": rate_rows(marks, end * _LATE)}, height=360, **more)


def _times(
    told: CapacityResult,
    option: CapacityOption,
    points: tuple[QueueLoad, ...],
    colours: Mapping[str, str],
    *,
    prefix: str = "",
    thick: str,
    time: str,
    limit_s: float | None,
    below: bool,
    **more: Any,
) -> Chart:
    """Return a chart of percentiles of a time.

    Args:
        told: The answer.
        option: What it is of.
        points: Its loads.
        colours: By percentile.
        prefix: Of the keys of the time.
        thick: The percentile whose line is thick.
        time: Its name.
        limit_s: Of the time; None for none.
        below: Whether the limit's words stand below its line, on the side where the lines are not.
        more: Title, lead and so on.
    """
    columns = (
        _RATE,
        Column(name="of", title="Latency of"),
        Column(name="latency", title=time, kind="seconds"),
        _UTILISATION,
        Column(name="limited", title="Limited"),
    )
    rows: tuple[Row, ...] = tuple(
        (
            point.rate_per_s,
            name,
            getattr(point, f"{prefix}{name}_s"),
            point.utilisation,
            "yes" if name == thick else "no",
        )
        for name in colours
        for point in points
    )
    # No whole decade below the lines, where nothing is.
    y = quantity("latency", type="log", nice=False, padding=18)
    scale = {"domain": list(colours), "range": list(colours.values())}
    drawn = {
        "x": _X,
        "y": y,
        "color": {**series("of", scale), "sort": list(colours)},
        "opacity": faded("latencies", 0.1),
    }
    up = axis("seconds", time, values=decades([*(row[2] for row in rows), limit_s]))
    spec = layered(
        280,
        [
            {
                "mark": {"type": "line"},
                "encoding": {
                    **drawn,
                    "x": {**_X, "axis": _across()},
                    "y": {**y, "axis": up},
                    "strokeWidth": {
                        "condition": {"test": "datum.limited === 'yes'", "value": 3.5},
                        "value": 1.5,
                    },
                },
            },
            {
                "params": [legend_selection("latencies", "of")],
                "mark": ring(40, 1.6),
                "encoding": {**drawn, "tooltip": tooltip(*columns[:-1])},
            },
            *(limit_lines({**y, "field": "limit"}, below=below) if limit_s is not None else ()),
            *rate_lines("marks", _X, "var(--muted)"),
        ],
    )
    extra = {"limits": limit_rows(limit_s)}
    return _chart(told, option, points, spec, extra, columns=columns, rows=rows, **more)


def _across() -> dict[str, Any]:
    return axis("per_second", "Requests per second to one instance", grid=False, tickCount=6)


def _latency(told: CapacityResult, option: CapacityOption, one: InstanceLoads) -> Chart:
    generates, kept = words.generates(told), words.limited(told)
    answered = "have their first token" if generates else "are answered"
    lead = (
        f"Of one {words.name(option)}, waiting included: half of the requests {answered} within p50, 99 of 100 "
        f"within p99. The thick line is {kept}, which is limited"
    )
    lead += "." if option.feasible else f"; at no rate does it keep the {words.limits(told)}."
    low, high = (
        f"{seconds(point.latency_s(told.percentile))} at {words.requests(point.rate_per_s)}"
        for point in (one.loads[0], one.loads[-1])
    )
    what = " to the first token" if generates else ""
    said = f"{kept}{what} of one {words.name(option)}: {low}, {high}. The limit is {seconds(told.limit_s)}"
    if option.highest_rate_per_s is not None:
        # Of two limits it may be the other that is reached there.
        both = "; both limits are kept" if told.tpot_limit_s is not None else ", kept"
        said = f"{said}{both} up to {words.requests(option.highest_rate_per_s)}"
    return _times(
        *(told, option, one.loads),
        _PERCENTILES if told.percentile is not None else _PERCENTILES | _MEAN,
        thick=kept,
        time="Time to the first token" if generates else "Latency",
        limit_s=told.limit_s,
        below=told.best is None,
        name="capacity-latency",
        title="First token by load" if generates else "Latency by load",
        lead=lead,
        alternative=f"{said}.",
    )


def _further(told: CapacityResult, option: CapacityOption, one: InstanceLoads) -> Chart | None:
    """Each further token; None where the answers have none, or too few loads of them are known."""
    loads = tuple(point for point in one.loads if point.tpot_p50_s and point.tpot_p99_s)
    if not words.generates(told) or len(loads) < 2:
        return None
    kept, limit_s = words.further(told), words.further_limit_s(told)
    least = min(words.further_s(told, point) or 0.0 for point in loads)
    thick = f" The thick line is {kept}, which is limited." if limit_s is not None else ""
    low, high = (
        f"{seconds(words.further_s(told, point))} at {words.requests(point.rate_per_s)}"
        for point in (loads[0], loads[-1])
    )
    limit = f" The limit is {seconds(limit_s)}." if limit_s is not None else ""
    return _times(
        *(told, option, loads),
        {name: _PERCENTILES[name] for name in ("p50", "p99")},
        prefix="tpot_",
        thick=kept if limit_s is not None else "",
        time="Time of each further token",
        limit_s=limit_s,
        below=least > (limit_s or least),
        name="capacity-tpot",
        title="Further tokens by load",
        lead=(
            f"Of one {words.name(option)}, a request's mean after its first token: longer the more sequences "
            f"run and the more prompts are read.{thick}"
        ),
        alternative=f"{kept} of each further token of one {words.name(option)}: {low}, {high}.{limit}",
    )


def _batch(told: CapacityResult, option: CapacityOption, one: InstanceLoads) -> Chart:
    rows: tuple[Row, ...] = tuple(
        (point.rate_per_s, point.mean_batch, point.utilisation) for point in one.loads
    )
    generates = words.generates(told)
    busy = "of what could be finished" if generates else "busy"
    low, high = (
        f"{digits(point.mean_batch or 0.0, 2)} at {words.requests(point.rate_per_s)}, "
        f"{share(point.utilisation)} {busy}"
        for point in (one.loads[0], one.loads[-1])
    )
    most = f", at most {count(option.max_batch)}" if option.max_batch is not None else ""
    lead = f"How many requests form a batch on average{most}. The more wait, the larger the batches."
    if generates:
        lead = (
            f"How many sequences run on average on each copy of the model{most}. The longer a token takes, the "
            "longer each of them stays."
        )
    title, colour = "Sequences" if generates else "Mean batch", f"var(--{option.kind})"
    columns = (_RATE, Column(name="batch", title=title, kind="number"), _UTILISATION)
    y = quantity("batch", domain=[0, 1.1 * max(row[1] for row in rows)], nice=False)
    up = axis("number", title, tickCount=6)
    spec = layered(
        310,
        [
            {
                "mark": {"type": "line", "strokeWidth": 2.5, "color": colour},
                "encoding": {"x": {**_X, "axis": _across()}, "y": {**y, "axis": up}},
            },
            {
                "mark": ring(40, 1.6, color=colour, opacity=1),
                "encoding": {"x": _X, "y": y, "tooltip": tooltip(*columns)},
            },
            *rate_lines("marks", _X, "var(--muted)"),
        ],
    )
    return _chart(
        *(told, option, one.loads, spec, {}),
        name="capacity-batch",
        title="Sequences by load" if generates else "Batch by load",
        lead=lead,
        alternative=f"{'Sequences that run' if generates else 'Requests in a batch'}: {low}; {high}.",
        columns=columns,
        rows=rows,
    )


_TRAFFIC = (
    Column(name="rate", title="From this rate on", kind="per_second"),
    Column(name="count", title="Instances", kind="count"),
    Column(name="usd", title="Per month", kind="dollars"),
)
# As many labels as an axis of this height has room for.
_MOST_TICKS = 8
# Of the axis' length: from where on a mark's words are written to the left of it.
_TRAFFIC_LATE = 0.7


def traffic(told: CapacityResult) -> Chart | None:
    """The steps; None without an answer, or where fewer than two are known."""
    option = told.best_option
    if option is None or len(told.traffic) < 2:
        return None
    rows: tuple[Row, ...] = tuple(
        (point.rate_per_s, point.count, point.usd_per_month) for point in told.traffic
    )
    # The last step goes on: its line ends with the axis, behind the last rate that is known.
    end = max(rows[-1][0], words.planned(told)) * 1.05
    spare = f", {plural(told.spare, 'spare')} among them" if told.spare else ""
    return Chart(
        name="capacity-traffic",
        title=f"{words.name(option)} by traffic",
        lead=(
            f"How many {words.name(option)} the traffic needs{spare}, with {share(told.headroom)} headroom, "
            f"and what they cost a month. {'Growth is in the traffic. ' if told.growth != 1 else ''}"
            "Each step is one instance more."
        ),
        alternative=_traffic_words(told, option, rows),
        spec=_traffic_spec(rows, option, end),
        columns=_TRAFFIC,
        rows=rows,
        extra={
            "end": ({"rate": rows[-1][0], "end": end, "count": rows[-1][1]},),
            "asked": rate_rows(_asked_rates(told), end * _TRAFFIC_LATE),
        },
        height=340,
    )


def _asked_rates(told: CapacityResult) -> tuple[tuple[float, str], ...]:
    """The question's rate, and with growth the one that is planned for."""
    asked = (told.rate_per_s, f"{words.asked(told.rate_per_s)}/s asked")
    if told.growth == 1:
        return (asked,)
    return (asked, (words.planned(told), f"{words.asked(words.planned(told))}/s with growth"))


def _traffic_words(told: CapacityResult, option: CapacityOption, rows: tuple[Row, ...]) -> str:
    first, last = rows[0], rows[-1]
    return (
        f"{plural(first[1], 'instance')} ({dollars(first[2])} a month) from {words.requests(first[0])} on, "
        f"{count(last[1])} ({dollars(last[2])}) from {words.requests(last[0])} on. "
        f"{words.asked(words.planned(told))} requests/s need {count(option.count)}, "
        f"{dollars(option.usd_per_month)} a month."
    )


def _traffic_spec(rows: tuple[Row, ...], option: CapacityOption, end: float) -> dict[str, Any]:
    colour = f"var(--{option.kind})"
    # Both axes are the same steps: their labels stand at the same heights.
    steps = sorted({(row[1], row[2]) for row in rows})
    labelled = steps[:: -(-len(steps) // _MOST_TICKS)]
    x = quantity("rate", domain=[0, end], nice=False)
    up = axis("count", "Instances", values=[step[0] for step in labelled])
    right = axis(
        "dollars", "US dollars a month", values=[step[1] for step in labelled], grid=False, orient="right"
    )
    # A tenth above the last step is left for the words of the marks.
    most, dearest = (1.1 * value for value in steps[-1])
    number = quantity("count", up, domain=[0, most], nice=False)
    money = quantity("usd", right, domain=[0, dearest], nice=False)
    line = {"type": "line", "interpolate": "step-after", "strokeWidth": 2.5, "color": colour}
    counted: list[dict[str, Any]] = [
        {
            "mark": line,
            "encoding": {
                "x": {**x, "axis": axis("per_second", "Requests per second", grid=False)},
                "y": number,
            },
        },
        {
            "data": {"name": "end"},
            "mark": {"type": "rule", "strokeWidth": 2.5, "color": colour},
            "encoding": {"x": x, "x2": {"field": "end"}, "y": number},
        },
        {
            "mark": {"type": "point", "filled": True, "size": 50, "color": colour, "opacity": 1},
            "encoding": {"x": x, "y": number, "tooltip": tooltip(*_TRAFFIC)},
        },
    ]
    dearer = {"mark": {"type": "point", "opacity": 0}, "encoding": {"x": x, "y": money}}
    asked = rate_lines("asked", x, "var(--text)")
    return layered(270, [{"layer": counted}, dearer, *asked], resolve={"scale": {"y": "independent"}})
