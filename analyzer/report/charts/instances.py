"""Reporting: dollars against time: instances that can run a model, and devices that hold one that generates."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from analyzer.record.analysis import Analysis, CostRow
from analyzer.record.batch_ranges import batch_of, has_batch
from analyzer.record.generation import GenerationResult
from analyzer.report import price_words
from analyzer.report.charts import vega
from analyzer.report.charts.chart import Chart, Column, Row, origin_words, rows_of
from analyzer.report.charts.vega import CPU, GPU
from analyzer.report.generation_words import batches
from analyzer.report.generation_words import on as on_device
from analyzer.report.summary import model_facts
from analyzer.units import dollars, seconds

# Of the axes' lengths: what a name takes, and from where on it is written to the left.
_WIDE, _HIGH, _LATE = 0.4, 0.07, 0.55
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
    Column(name="pricing", title="Paid", read=lambda row: price_words.WAYS[row.pricing]),
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
        f"US dollars for a million {model_facts.examples(analysis)} at full use and at "
        f"{price_words.KINDS[offers[0].pricing]}: left is faster, below is cheaper. Latencies are "
        f"{origin_words(row.origin for row in offers)}, the thin lines 90 % intervals of the dollars."
    )
    if len({row.batch for row in offers}) > 1:
        lead += " Each instance is at the batch at which it costs least"
        lead += " within the limit." if limited else "."
    if any(row.meets_slo is False for row in offers):
        lead += " Pale points miss the latency limit."
    cheapest = [next((row for row in offers if bool(row.gpu) == gpu), None) for gpu in (False, True)]
    return _chart(
        rows_of(_INSTANCES, offers),
        _INSTANCES,
        limit_s=analysis.verdict.slo_s,
        axes=("Latency", "US dollars per million"),
        name="cost",
        title="Dollars by instance",
        lead=lead,
        alternative=" ".join(
            f"The cheapest {GPU if row.gpu else CPU} instance is {row.provider} {row.instance}"
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
            labels.append({name: point[name] for name in ("label", "time", "usd")} | {"late": place[0] > _LATE})
    return tuple(labels)


def _place(value: float, values: Iterable[float]) -> float:
    """Return where a value lies on a logarithmic axis that ends with the values, 0 to 1."""
    low, high = (math.log(end(values)) for end in (min, max))
    return (math.log(value) - low) / (high - low) if high > low else 0.5
