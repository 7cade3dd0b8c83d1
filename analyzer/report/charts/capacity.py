"""Charts of capacity and of rented machines.

Of a model that generates the latencies are those of the first token and of each further one.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from analyzer.figures import QueueLoad
from analyzer.record.analysis import Analysis, CostRow
from analyzer.record.batch_ranges import batch_of, has_batch
from analyzer.record.capacity import CapacityOption, CapacityResult
from analyzer.record.generation import GenerationResult
from analyzer.report import capacity_words as words
from analyzer.report import figure_text, summary
from analyzer.report.charts import vega
from analyzer.report.charts.chart import Chart, Column, Row, origin_words, rows_of
from analyzer.report.charts.vega import CPU, GPU, Spec
from analyzer.report.generation_text import batches, rate
from analyzer.report.generation_text import on as on_device
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
            f"up to {count(last[1])} ({dollars(last[2])}) from {words.requests(last[0])} on. "
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


# Of the axes' lengths: what a name takes, and from where on it is written to the left.
_WIDE, _HIGH, _INSTANCES_LATE = 0.4, 0.07, 0.55
# None is "no limit was given", which a False would deny.
_LIMIT_WORDS = {None: "no limit given", True: "yes", False: "no"}
_INSTANCES = (
    Column(name="label", title="Instance", read=lambda row: f"{row.provider} {row.instance}"),
    Column(name="provider", title="Provider", read="provider"),
    Column(name="gpu", title="GPU", read=lambda row: row.gpu or ""),
    Column(name="device", title="Runs on", read=lambda row: GPU if row.gpu else CPU),
    Column(name="usd", title="Per million", kind="dollars", read="usd_per_million"),
    Column(name="usd_per_hour", title="Per hour", kind="dollars", read="usd_per_hour"),
    Column(name="throughput", title="Per second", kind="per_second", read="throughput_per_s"),
    Column(name="time", title="Latency", kind="seconds", read="latency_s"),
    Column(name="kept", title="Meets the latency limit", read=lambda row: _LIMIT_WORDS[row.meets_slo]),
    Column(name="price_date", title="Price of", read="price_date"),
    Column(name="origin", title="Origin", read="origin"),
    Column(name="low", title="Per million, low (90 %)", kind="dollars", read="usd_low_per_million"),
    Column(name="high", title="Per million, high (90 %)", kind="dollars", read="usd_high_per_million"),
    Column(name="runs_on", title="Device", read="device_name"),
    Column(name="batch", title="Batch", kind="count", read="batch"),
    Column(name="pricing", title="Paid", read=lambda row: figure_text.WAYS[row.pricing]),
    Column(name="region", title="Region", read="region"),
    Column(name="host", title="CPU beside the GPU", read=lambda row: _host_words(row)),
)
_DEVICES = (
    Column(name="label", title="Device", read=lambda row: on_device(row.name, row.gpus)),
    Column(name="device", title="Runs on", read=lambda row: GPU if row.kind == "gpu" else CPU),
    Column(name="time", title="TPOT", kind="seconds", read="tpot_s"),
    Column(name="ttft", title="TTFT", kind="seconds", read="ttft_s"),
    Column(name="usd", title="Per million tokens", kind="dollars", read="usd_per_million_tokens"),
    Column(name="usd_per_hour", title="Per hour", kind="dollars", read="usd_per_hour"),
    Column(name="batch", title="Largest batch", kind="count", read="largest_batch"),
    Column(
        name="kept",
        title="Meets the limits at the asked batch",
        read=lambda row: _LIMIT_WORDS[row.meets_limits],
    ),
    Column(name="instance", title="Instance", read="machine"),
    Column(name="origin", title="Origin", read="origin"),
    Column(name="asked", title="As asked"),
)


def chart(analysis: Analysis) -> Chart | None:
    """Return dollars against latency of each instance; None where no price is known, and of a request."""
    if analysis.generation is not None:
        return None  # its devices have a chart, and one step's dollars answer nothing
    if analysis.instances:
        batched = has_batch(analysis)
        offers = [row if batched else replace(row, batch=None) for row in analysis.instances if row.latency_s]
    else:
        # Of a training step nothing is ranked: the instances are those of the verdict's device.
        batch = batch_of(analysis)
        offers = [
            replace(row, device_name=row.gpu or "", batch=batch) for row in analysis.costs if row.latency_s
        ]
    # The same price is common (one GPU in machines of several sizes): the names keep the order of bytes.
    offers.sort(key=lambda row: (row.usd_per_million, row.provider, row.instance))
    if not offers:
        return None
    limited = any(row.meets_slo is not None for row in offers)
    lead = (
        f"US dollars for a million {summary.examples(analysis)} at full use and at "
        f"{figure_text.KINDS[offers[0].pricing]}: left is faster, below is cheaper. Latencies are "
        f"{origin_words(row.origin for row in offers)}, the thin lines 90 % intervals of the dollars."
    )
    if len({row.batch for row in offers}) > 1:
        lead += " Each instance is at the batch at which it costs least"
        lead += " within the limit." if limited else "."
    if any(row.meets_slo is False for row in offers):
        lead += " Pale points miss the latency limit."
    keeping = [row for row in offers if row.meets_slo is not False]
    cheapest = [next((row for row in keeping if bool(row.gpu) == gpu), None) for gpu in (False, True)]
    that = " that keeps the limit" if limited else ""
    return _chart(
        rows_of(_INSTANCES, offers),
        _INSTANCES,
        limit_s=analysis.verdict.slo_s,
        axes=("Latency", "US dollars per million"),
        name="cost",
        title="Dollars by instance",
        lead=lead,
        alternative=" ".join(
            f"The cheapest {GPU if row.gpu else CPU} instance{that} is {row.provider} {row.instance}"
            f"{f' with {row.gpu}' if row.gpu else ''}: {dollars(row.usd_per_million)} per million."
            for row in cheapest
            if row is not None
        ),
    )


def _host_words(row: CostRow) -> str:
    """Return the processor beside an instance's GPU, and how surely it is that."""
    if row.host_basis == "assumed":
        return f"not known, taken as {row.host}"
    return f"{row.host}, the nearest known" if row.host_basis == "nearest" else row.host


def devices(result: GenerationResult) -> Chart | None:
    """Return dollars of tokens against their time; None where fewer than two devices have a price."""
    priced = [row for row in result.devices if row.usd_per_million_tokens]
    if len(priced) < 2:
        return None
    requested = ("yes" if (row.device, row.gpus) == (result.device, result.gpus) else "no" for row in priced)
    rows = tuple((*row, one) for row, one in zip(rows_of(_DEVICES, priced), requested, strict=True))
    lead = (
        f"Left is faster, below is cheaper. Both are at {batches(result)}, dollars at full use. "
        "Named are what was asked for and, where there is room, those that no other beats in both."
    )
    if any(row.meets_limits is False for row in priced):
        lead += " Pale points miss a limit."
    if len(priced) < len(result.devices):
        lead += f" {len(result.devices) - len(priced)} of {len(result.devices)} devices have no price here."
    by_time, by_usd = ({row[0]: row[at] for row in rows} for at in (2, 4))
    cheapest = min(by_usd, key=lambda name: (by_usd[name], name))
    fastest = min(by_time, key=lambda name: (by_time[name], name))
    return _chart(
        rows,
        _DEVICES,
        limit_s=result.tpot_limit_s,
        axes=("Time per token", "US dollars per million tokens"),
        name="generation-devices",
        title="Devices by time and price",
        lead=lead,
        alternative=f"The cheapest is {cheapest}: {dollars(by_usd[cheapest])} per million tokens, "
        f"{seconds(by_time[cheapest])} a token. The fastest with a price is {fastest}: "
        f"{seconds(by_time[fastest])} a token, {dollars(by_usd[fastest])}.",
    )


def _chart(
    rows: tuple[Row, ...],
    columns: tuple[Column, ...],
    *,
    limit_s: float | None,
    axes: tuple[str, str],
    **named: Any,
) -> Chart:
    """Return points by ``time`` and ``usd``, named where there is room, with the limit of the time."""
    points = [dict(zip((column.name for column in columns), row, strict=True)) for row in rows]
    sides = [side for side in (CPU, GPU) if any(point["device"] == side for point in points)]
    x, y = (
        vega.logarithmic(
            "time", "seconds", axes[0], [*(point["time"] for point in points), limit_s], padding=24
        ),
        vega.logarithmic(
            "usd",
            "dollars",
            axes[1],
            [point.get(at) for point in points for at in ("usd", "low", "high")],
            padding=24,
        ),
    )
    colour = vega.coloured("device", sides)
    shown = vega.tooltip(*(column for column in columns if column.name != "asked"))
    place = {"x": x, "y": y, "opacity": vega.faded_or("datum.kept === 'no'", "device"), "tooltip": shown}
    interval = {**place, "y": vega.on(y, "low"), "y2": {"field": "high"}, "color": colour}
    shape = vega.shaped("asked", ["no", "yes"], ["circle", "diamond"], legend=None)
    known = "isValid(datum.low) && isValid(datum.high)"
    point = {**place, **vega.hollow_if_predicted(colour), "shape": shape}
    return Chart(
        spec=vega.layered(
            320,
            *([vega.layer("rule", interval, only=known)] if "low" in points[0] else ()),
            vega.layer("point", point, select=("device",), filled=True, size=70, strokeWidth=2),
            *vega.words("named", {"x": x, "y": y, "text": {"field": "label"}}, **vega.aside(9)),
            *(vega.limits(x, "x") if limit_s is not None else ()),
        ),
        columns=columns,
        rows=rows,
        extra={"named": _labels(points), "limits": vega.limit_rows(limit_s, below=True, late=True)},
        **named,
    )


def _labels(points: Sequence[dict[str, Any]]) -> tuple[dict[str, Any], ...]:
    """Return names at points as far as there is room: what was asked for, then those that no other beats."""
    across, up = ([point[at] for point in points] for at in ("time", "usd"))
    unbeaten: list[dict[str, Any]] = []
    for point in sorted(points, key=lambda point: (point["usd"], point["time"], point["label"])):
        if not unbeaten or point["time"] < unbeaten[-1]["time"]:
            unbeaten.append(point)
    named: dict[str, tuple[float, float]] = {}
    labels = []
    for point in (*(point for point in points if point.get("asked") == "yes"), *unbeaten):
        place = _place(point["time"], across), _place(point["usd"], up)
        if not any(abs(place[0] - x) < _WIDE and abs(place[1] - y) < _HIGH for x, y in named.values()):
            named[point["label"]] = place
            # A name at the right edge is written to the left of its point.
            labels.append(
                {name: point[name] for name in ("label", "time", "usd")} | {"late": place[0] > _INSTANCES_LATE}
            )
    return tuple(labels)


def _place(value: float, values: Iterable[float]) -> float:
    """Return where a value lies on a logarithmic axis that ends with the values, 0 to 1."""
    low, high = (math.log(end(values)) for end in (min, max))
    return (math.log(value) - low) / (high - low) if high > low else 0.5
