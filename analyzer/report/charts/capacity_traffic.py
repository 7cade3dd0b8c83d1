"""Reporting: how many instances, and dollars, each traffic needs: the steps of the best option."""

from __future__ import annotations

from typing import Any

from analyzer.record.capacity import CapacityOption, CapacityResult
from analyzer.report import capacity_words as words
from analyzer.report.charts.chart import (
    Chart,
    Column,
    Row,
    axis,
    by_line,
    layered,
    lines_with_words,
    quantity,
    tooltip,
)
from analyzer.text import plural
from analyzer.units import count, dollars, share

_COLUMNS = (
    Column(name="rate", title="From this rate on", kind="per_second"),
    Column(name="count", title="Instances", kind="count"),
    Column(name="usd", title="Per month", kind="dollars"),
)
# As many labels as an axis of this height has room for.
_MOST_TICKS = 8
# Of the axis' length: from where on a mark's words are written to the left of it.
_LATE = 0.7


def chart(told: CapacityResult) -> Chart | None:
    """The steps; None without an answer, or where fewer than two are known."""
    option = words.best(told)
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
        alternative=_words(told, option, rows),
        spec=_spec(rows, option, end),
        columns=_COLUMNS,
        rows=rows,
        extra={
            "end": ({"rate": rows[-1][0], "end": end, "count": rows[-1][1]},),
            "asked": tuple(
                {"rate": value, "label": label, "late": value > end * _LATE, "line": 8 + 14 * line}
                for line, (value, label) in enumerate(_marks(told))
            ),
        },
        height=340,
    )


def _marks(told: CapacityResult) -> tuple[tuple[float, str], ...]:
    """The question's rate, and with growth the one that is planned for."""
    asked = (told.rate_per_s, f"{words.asked(told.rate_per_s)}/s asked")
    if told.growth == 1:
        return (asked,)
    return (asked, (words.planned(told), f"{words.asked(words.planned(told))}/s with growth"))


def _words(told: CapacityResult, option: CapacityOption, rows: tuple[Row, ...]) -> str:
    first, last = rows[0], rows[-1]
    return (
        f"{plural(first[1], 'instance')} ({dollars(first[2])} a month) from {words.requests(first[0])} on, "
        f"{count(last[1])} ({dollars(last[2])}) from {words.requests(last[0])} on. "
        f"{words.asked(words.planned(told))} requests/s need {count(option.count)}, "
        f"{dollars(option.usd_per_month)} a month."
    )


def _spec(rows: tuple[Row, ...], option: CapacityOption, end: float) -> dict[str, Any]:
    colour = f"var(--{option.kind})"
    # Both axes are the same steps: their labels stand at the same heights.
    steps = sorted({(row[1], row[2]) for row in rows})
    labelled = steps[:: -(-len(steps) // _MOST_TICKS)]
    x = quantity("rate", domain=[0, end], nice=False)
    across = axis("per_second", "Requests per second", grid=False)
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
        {"mark": line, "encoding": {"x": {**x, "axis": across}, "y": number}},
        {
            "data": {"name": "end"},
            "mark": {"type": "rule", "strokeWidth": 2.5, "color": colour},
            "encoding": {"x": x, "x2": {"field": "end"}, "y": number},
        },
        {
            "mark": {"type": "point", "filled": True, "size": 50, "color": colour, "opacity": 1},
            "encoding": {"x": x, "y": number, "tooltip": tooltip(*_COLUMNS)},
        },
    ]
    dearer = {"mark": {"type": "point", "opacity": 0}, "encoding": {"x": x, "y": money}}
    words = {**by_line(6), "dy": {"expr": "datum.line"}}
    asked = lines_with_words("asked", {"x": x}, rule="var(--text)", **words)
    return layered(270, [{"layer": counted}, dearer, *asked], resolve={"scale": {"y": "independent"}})
