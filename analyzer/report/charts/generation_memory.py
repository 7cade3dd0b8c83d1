"""Reporting: the largest batch that fits by context, on one device and on several."""

from __future__ import annotations

from typing import Any

from analyzer.record.generation import FrontierPoint, GenerationResult
from analyzer.report.charts.chart import (
    Chart,
    Column,
    Row,
    axis,
    decades,
    faded,
    layered,
    legend_selection,
    page_colours,
    quantity,
    ring,
    series,
    text_over_marks,
    tooltip,
)
from analyzer.text import listed, plural
from analyzer.units import count

_COLUMNS = (
    Column(name="devices", title="Devices"),
    Column(name="context", title="Context", kind="count"),
    Column(name="batch", title="Largest batch", kind="count"),
)


def chart(told: GenerationResult) -> Chart | None:
    """The frontier; None where nothing fits anywhere or there is one context alone."""
    points = sorted(told.frontier, key=lambda point: (point.gpus, point.context))
    if not any(point.largest_batch for point in points) or len({point.context for point in points}) < 2:
        return None
    rows = tuple((_devices(point), point.context, point.largest_batch) for point in points)
    lines = list(dict.fromkeys(row[0] for row in rows))
    none = [name for name in lines if not any(row[2] for row in rows if row[0] == name)]
    lead = "What lies below a line fits in memory: weights, cache and activations, whatever time it takes."
    if none:
        lead += f" Nothing fits {listed(none)}."
    context = told.prompt_tokens + told.output_tokens
    return Chart(
        name="generation-frontier",
        title="Largest batch by context",
        lead=lead,
        alternative=_words(rows, lines),
        spec=_spec(rows, lines),
        columns=_COLUMNS,
        rows=rows,
        extra={"asked": ({"context": context, "batch": told.batch, "label": "as asked"},)},
        height=330,
    )


def _devices(point: FrontierPoint) -> str:
    return plural(point.gpus, "GPU") if point.gpus else "the CPU"


def _words(rows: tuple[Row, ...], lines: list[str]) -> str:
    parts = []
    for name in lines:
        line = [row for row in rows if row[0] == name and row[2]]
        if line:
            first, last = line[0], line[-1]
            parts.append(
                f"On {name}: batch {count(first[2])} at {count(first[1])} tokens to {count(last[2])} at "
                f"{count(last[1])}."
            )
        else:
            parts.append(f"Nothing fits {name}.")
    return " ".join(parts)


def _spec(rows: tuple[Row, ...], lines: list[str]) -> dict[str, Any]:
    contexts = list(dict.fromkeys(row[1] for row in rows))
    x, y = quantity("context", type="log", base=2), quantity("batch", type="log")
    drawn = {
        "x": {**x, "axis": axis("count", "Context, tokens", grid=False, values=sorted(contexts))},
        "y": {**y, "axis": axis("count", "Largest batch", values=decades([*(row[2] for row in rows), 1]))},
        "color": series("devices", page_colours(lines), columns=3),
        "opacity": faded("widths", 0.1),
    }
    asked = {"x": x, "y": y}
    mark = {"type": "text", "align": "left", "dx": 9, "dy": -1, "fontSize": 11, "color": "var(--text)"}
    # A logarithm has no place for none; the words and the table tell it.
    some = [{"filter": "datum.batch > 0"}]
    point = {"type": "point", "shape": "diamond", "filled": True, "size": 90, "color": "var(--text)"}
    return layered(
        270,
        [
            {"transform": some, "mark": {"type": "line", "strokeWidth": 2}, "encoding": drawn},
            {
                "transform": some,
                "params": [legend_selection("widths", "devices")],
                "mark": ring(46, 1.8),
                "encoding": {**drawn, "tooltip": tooltip(*_COLUMNS)},
            },
            {"data": {"name": "asked"}, "mark": point, "encoding": asked},
            *text_over_marks("asked", mark, {**asked, "text": {"field": "label"}}),
        ],
    )
