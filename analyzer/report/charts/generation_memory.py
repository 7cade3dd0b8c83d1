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
    legend_selection,
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
    series = list(dict.fromkeys(row[0] for row in rows))
    none = [name for name in series if not any(row[2] for row in rows if row[0] == name)]
    lead = "What lies below a line fits in memory: weights, cache and activations, whatever time it takes."
    if none:
        lead += f" Nothing fits {listed(none)}."
    context = told.prompt_tokens + told.output_tokens
    return Chart(
        name="generation-frontier",
        title="Largest batch by context",
        lead=lead,
        alternative=_words(rows, series),
        engine="vega-lite",
        spec=_spec(rows, series),
        columns=_COLUMNS,
        rows=rows,
        extra={"asked": ({"context": context, "batch": told.batch, "label": "as asked"},)},
        height=330,
    )


def _devices(point: FrontierPoint) -> str:
    return plural(point.gpus, "GPU") if point.gpus else "the CPU"


def _words(rows: tuple[Row, ...], series: list[str]) -> str:
    parts = []
    for name in series:
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


def _spec(rows: tuple[Row, ...], series: list[str]) -> dict[str, Any]:
    contexts = list(dict.fromkeys(row[1] for row in rows))
    colour = {
        "field": "devices",
        "type": "nominal",
        "scale": {"domain": series, "range": [f"var(--record-{at % 8 + 1})" for at in range(len(series))]},
        "title": None,
        "legend": {"symbolType": "square", "columns": 3},
    }
    x = {"field": "context", "type": "quantitative", "scale": {"type": "log", "base": 2}}
    y = {"field": "batch", "type": "quantitative", "scale": {"type": "log"}}
    drawn = {
        "x": {**x, "axis": axis("count", "Context, tokens", grid=False, values=sorted(contexts))},
        "y": {**y, "axis": axis("count", "Largest batch", values=decades([*(row[2] for row in rows), 1]))},
        "color": colour,
        "opacity": {"condition": {"param": "widths", "value": 1}, "value": 0.1},
    }
    asked = {"x": x, "y": y}
    mark = {"type": "text", "align": "left", "dx": 9, "dy": -1, "fontSize": 11, "color": "var(--text)"}
    # A logarithm has no place for none; the words and the table tell it.
    some = [{"filter": "datum.batch > 0"}]
    return {
        "width": "container",
        "height": 270,
        "data": {"name": "table"},
        "layer": [
            {"transform": some, "mark": {"type": "line", "strokeWidth": 2}, "encoding": drawn},
            {
                "transform": some,
                "params": [legend_selection("widths", "devices")],
                "mark": {
                    "type": "point",
                    "filled": False,
                    "fill": "var(--surface)",
                    "size": 46,
                    "strokeWidth": 1.8,
                },
                "encoding": {**drawn, "tooltip": tooltip(*_COLUMNS)},
            },
            {
                "data": {"name": "asked"},
                "mark": {
                    "type": "point",
                    "shape": "diamond",
                    "filled": True,
                    "size": 90,
                    "color": "var(--text)",
                },
                "encoding": asked,
            },
            *text_over_marks("asked", mark, {**asked, "text": {"field": "label"}}),
        ],
    }
