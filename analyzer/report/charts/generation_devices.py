"""Reporting: devices that hold a model that generates, by the time of a token and the dollars of a million."""

from __future__ import annotations

import math
from typing import Any

from analyzer.record.generation import GenerationResult
from analyzer.report.charts.chart import (
    CPU,
    GPU,
    Chart,
    Column,
    Row,
    axis,
    by_line,
    colours,
    layered,
    legend_selection,
    limit_lines,
    limit_rows,
    nominal,
    quantity,
    ring,
    rows_of,
    text_over_marks,
    tooltip,
)
from analyzer.report.generation_words import on
from analyzer.units import dollars, seconds

# Of the axes' lengths: what a name takes, and from where on it is written to the left.
_WIDE, _HIGH, _LATE = 0.4, 0.07, 0.55
_KEPT = {None: "none given", True: "kept", False: "missed"}
_COLUMNS = (
    Column(name="device", title="Device", read=lambda row: on(row.name, row.gpus)),
    Column(name="side", title="Runs on", read=lambda row: GPU if row.kind == "gpu" else CPU),
    Column(name="tpot", title="TPOT", kind="seconds", read="tpot_s"),
    Column(name="ttft", title="TTFT", kind="seconds", read="ttft_s"),
    Column(name="usd", title="Per million tokens", kind="dollars", read="usd_per_million_tokens"),
    Column(name="hour", title="Per hour", kind="dollars", read="usd_per_hour"),
    Column(name="batch", title="Largest batch", kind="count", read="largest_batch"),
    Column(name="limits", title="Limits at the asked batch", read=lambda row: _KEPT[row.meets_limits]),
    Column(name="instance", title="Instance", read="machine"),
    Column(name="asked", title="As asked"),
)


def chart(told: GenerationResult) -> Chart | None:
    """Dollars against time; None where fewer than two devices have a price."""
    priced = [row for row in told.devices if row.usd_per_million_tokens]
    if len(priced) < 2:
        return None
    asked = ("yes" if (row.device, row.gpus) == (told.device, told.gpus) else "no" for row in priced)
    rows = tuple((*row, one) for row, one in zip(rows_of(_COLUMNS, priced), asked, strict=True))
    at = "each one's largest batch that keeps the limits" if told.limited else f"batch {told.batch}"
    lead = (
        f"Left is faster, below is cheaper. TPOT is at batch {told.batch}, dollars are at {at}, at full use. "
    )
    lead += "Named are what was asked for and, where there is room, those that no other beats in both."
    if any(row[7] == "missed" for row in rows):
        lead += f" Pale points miss a limit at batch {told.batch}."
    if len(priced) < len(told.devices):
        lead += f" {len(told.devices) - len(priced)} of {len(told.devices)} devices have no price here."
    limit = told.tpot_limit_s
    return Chart(
        name="generation-devices",
        title="Devices by time and price",
        lead=lead,
        alternative=_words(rows),
        spec=_spec(rows, limit),
        columns=_COLUMNS,
        rows=rows,
        extra={"named": _labels(rows), "limits": limit_rows(limit)},
        height=380,
    )


def _frontier(rows: tuple[Row, ...]) -> list[Row]:
    """Those that no other beats in both time and dollars."""
    return [
        row
        for row in rows
        if not any(other[2] <= row[2] and other[4] <= row[4] and other != row for other in rows)
    ]


def _labels(rows: tuple[Row, ...]) -> tuple[dict[str, Any], ...]:
    """Names beside points: what was asked for first, then the others as far as names do not lie on names."""
    places = {
        row: (_place(row[2], [other[2] for other in rows]), _place(row[4], [other[4] for other in rows]))
        for row in rows
    }
    wanted = sorted(_frontier(rows), key=lambda row: (row[4], row[2]))
    named: list[Row] = []
    for row in (*(row for row in rows if row[9] == "yes"), *wanted):
        across, up = places[row]
        near = any(
            abs(across - places[other][0]) < _WIDE and abs(up - places[other][1]) < _HIGH for other in named
        )
        if not near:
            named.append(row)
    return tuple(
        # A name at the right edge is written to the left of its point.
        {"device": row[0], "tpot": row[2], "usd": row[4], "late": places[row][0] > _LATE}
        for row in named
    )


def _place(value: float, values: list[float]) -> float:
    """Where a value lies on a logarithmic axis that ends with the values, 0 to 1."""
    low, high = math.log(min(values)), math.log(max(values))
    return (math.log(value) - low) / (high - low) if high > low else 0.5


def _words(rows: tuple[Row, ...]) -> str:
    cheapest = min(rows, key=lambda row: (row[4], row[0]))
    fastest = min(rows, key=lambda row: (row[2], row[0]))
    return (
        f"The cheapest is {cheapest[0]}: {dollars(cheapest[4])} per million tokens, {seconds(cheapest[2])} a "
        f"token. The fastest with a price is {fastest[0]}: {seconds(fastest[2])} a token, "
        f"{dollars(fastest[4])}."
    )


def _spec(rows: tuple[Row, ...], limit: float | None) -> dict[str, Any]:
    sides = [side for side in (CPU, GPU) if any(row[1] == side for row in rows)]
    x = quantity("tpot", type="log", nice=False, padding=24)
    y = quantity("usd", type="log", nice=False, padding=24)
    shapes = {"domain": ["no", "yes"], "range": ["circle", "diamond"]}
    mark = {"type": "text", **by_line(9), "fontSize": 11, "color": "var(--text)"}
    return layered(
        320,
        [
            {
                "params": [legend_selection("side", "side")],
                "mark": ring(70, 2),
                "encoding": {
                    "x": {**x, "axis": axis("seconds", "Time per token", tickCount=6)},
                    "y": {**y, "axis": axis("dollars", "US dollars per million tokens", tickCount=6)},
                    "color": nominal("side", scale=colours(*sides), title=None),
                    "opacity": {
                        "condition": [
                            {"test": {"not": {"param": "side"}}, "value": 0.08},
                            {"test": "datum.limits === 'missed'", "value": 0.35},
                        ],
                        "value": 1,
                    },
                    "shape": nominal("asked", scale=shapes, legend=None),
                    "tooltip": tooltip(*_COLUMNS[:-1]),
                },
            },
            *text_over_marks("named", mark, {"x": x, "y": y, "text": {"field": "device"}}),
            *(limit_lines(quantity("limit"), upright=True) if limit is not None else ()),
        ],
    )
