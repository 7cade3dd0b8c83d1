"""Reporting: what a million inferences cost on each instance, with a CPU or a GPU, that can run the model."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from analyzer.record.analysis import Analysis, CostRow
from analyzer.record.batch_axis import batch_of, has_batch
from analyzer.report import price_words
from analyzer.report.charts.chart import (
    CPU,
    GPU,
    Chart,
    Column,
    Row,
    axis,
    colours,
    layered,
    legend_selection,
    nominal,
    origin_words,
    quantity,
    rows_of,
    tooltip,
)
from analyzer.report.summary import model_facts
from analyzer.units import dollars

# Drawn, at 24 pixels each, to fit on one screen; the table has them all. Of either side at least a few: what
# is looked for is by how much the one is cheaper than the other.
CHEAPEST, _OF_EITHER_SIDE = 20, 6
# None is "no limit was asked for", which a False would deny.
_KEPT = {None: "no limit given", True: "yes", False: "no"}
_COLUMNS = (
    Column(name="label", title="Instance", read=lambda row: f"{row.provider} {row.instance}"),
    Column(name="provider", title="Provider", read="provider"),
    Column(name="gpu", title="GPU", read=lambda row: row.gpu or ""),
    Column(name="device", title="Runs on", read=lambda row: GPU if row.gpu else CPU),
    Column(name="usd_per_million", title="Per million", kind="dollars", read="usd_per_million"),
    Column(name="usd_per_hour", title="Per hour", kind="dollars", read="usd_per_hour"),
    Column(name="throughput", title="Per second", kind="per_second", read="throughput_per_s"),
    Column(name="latency", title="Latency", kind="seconds", read="latency_s"),
    Column(name="slo", title="Meets the latency limit", read=lambda row: _KEPT[row.meets_slo]),
    Column(name="price_date", title="Price of", read="price_date"),
    Column(name="origin", title="Origin", read="origin"),
    Column(name="low", title="Per million, low (90 %)", kind="dollars", read="usd_low_per_million"),
    Column(name="high", title="Per million, high (90 %)", kind="dollars", read="usd_high_per_million"),
    Column(name="runs_on", title="Device", read="device_name"),
    Column(name="batch", title="Batch", kind="count", read="batch"),
    Column(name="pricing", title="Paid", read=lambda row: price_words.WAYS[row.pricing]),
    Column(name="region", title="Region", read="region"),
    Column(name="host", title="CPU beside the GPU", read=lambda row: host_words(row)),
)


def _offers(analysis: Analysis) -> Iterable[CostRow]:
    if analysis.ranking is not None:
        batched = has_batch(analysis)
        return [row if batched else replace(row, batch=None) for row in analysis.ranking.instances]
    # Where nothing is ranked (generation, training) the instances are those of the verdict's device.
    batch = batch_of(analysis)
    return [replace(row, device_name=row.gpu or "", batch=batch) for row in analysis.costs]


def chart(analysis: Analysis) -> Chart | None:
    """Instances by cost, the cheapest first; None where no price is known."""
    # The same price is common (one GPU in machines of several sizes): the names keep the order of bytes.
    ranked = sorted(_offers(analysis), key=lambda row: (row.usd_per_million, row.provider, row.instance))
    if not ranked:
        return None
    rows = rows_of(_COLUMNS, ranked)
    shown = _shown(rows)
    sides = [side for side in (CPU, GPU) if any(row[3] == side for row in rows)]
    lead = (
        f"US dollars for a million {model_facts.examples(analysis)} at full use, "
        f"at {price_words.KINDS[ranked[0].pricing]} of the date beside each. "
        f"Throughputs are {origin_words(row[10] for row in rows)}, the thin lines 90 % intervals."
    )
    if len({row[14] for row in rows}) > 1:
        lead += " Each instance is at the batch at which it costs least"
        lead += " within the limit." if any(row[8] != "no limit given" for row in rows) else "."
    if len(rows) > len(shown):
        both = " of either side" if len(sides) > 1 else ""
        lead += f" {len(shown)} of {len(rows)} are drawn, the cheapest{both}; the table has all."
    if any(row[8] == "no" for row in rows):
        lead += " Pale bars miss the latency limit."
    return Chart(
        name="cost",
        title="Dollars by instance",
        lead=lead,
        alternative=_words(rows),
        spec=_spec(shown, sides),
        columns=_COLUMNS,
        rows=rows,
        height=24 * len(shown) + 60,
    )


def _shown(rows: tuple[Row, ...]) -> list[str]:
    """The cheapest that keep the limit, as far as there is room, but some of either side."""
    wanted = sorted(rows, key=lambda row: (row[8] == "no", row[4], row[0]))
    few = [[row for row in wanted if row[3] == side][:_OF_EITHER_SIDE] for side in (CPU, GPU)]
    chosen = {row[0] for side in few for row in side}
    for row in wanted:
        if len(chosen) < CHEAPEST:
            chosen.add(row[0])
    return [row[0] for row in rows if row[0] in chosen]


def host_words(row: CostRow) -> str:
    """The processor beside an instance's GPU, and how surely it is that; empty of records that do not tell."""
    if row.host_basis == "assumed":
        return f"not known, taken as {row.host}"
    return f"{row.host}, the nearest known" if row.host_basis == "nearest" else row.host


def _words(rows: tuple[Row, ...]) -> str:
    parts = []
    for side in (CPU, GPU):
        cheapest = next((row for row in rows if row[3] == side), None)
        if cheapest:
            gpu = f" with {cheapest[2]}" if cheapest[2] else ""
            parts.append(
                f"The cheapest {side} instance is {cheapest[0]}{gpu}: {dollars(cheapest[4])} per million."
            )
    return " ".join(parts)


def _spec(shown: list[str], sides: list[str]) -> dict[str, Any]:
    dollars_axis = axis("dollars", "US dollars per million", tickCount=7)
    place = {
        "y": nominal("label", sort=shown, title=None, axis={"labelLimit": 190}),
        "opacity": {
            # In this order: what the legend hides stays hidden, whether it meets the limit or not.
            "condition": [
                {"test": {"not": {"param": "side"}}, "value": 0.1},
                {"test": "datum.slo === 'no'", "value": 0.35},
            ],
            "value": 1,
        },
    }
    bars = {
        "params": [legend_selection("side", "device")],
        "mark": {"type": "bar", "cornerRadiusEnd": 2, "height": 14},
        "encoding": {
            **place,
            "x": quantity("usd_per_million", dollars_axis),
            "color": nominal("device", scale=colours(*sides), title=None),
            "tooltip": tooltip(*_COLUMNS),
        },
    }
    intervals = {
        "transform": [{"filter": "isValid(datum.low) && isValid(datum.high)"}],
        "mark": {"type": "rule", "color": "var(--text)", "strokeWidth": 1.5},
        "encoding": {
            **place,
            "x": quantity("low", dollars_axis),
            "x2": {"field": "high"},
            "tooltip": tooltip(*_COLUMNS),
        },
    }
    drawn = {"filter": {"field": "label", "oneOf": shown}}
    return layered({"step": 24}, [bars, intervals], transform=[drawn])
