"""Reporting: what a chart is: a specification for Vega-Lite or Vega, its data and its words.

Page and picture draw the same specification, and what draws a picture knows none of the page's own functions:
labels in a drawing are told in functions that every Vega has (https://vega.github.io/vega/docs/expressions/),
whose ``format`` is D3's (https://d3js.org/d3-format).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, Literal

from analyzer.report.summary.figure_words import MARKS, PLAN_TITLES
from analyzer.text import listed
from analyzer.units import seconds

ColumnKind = Literal[
    "text", "count", "number", "seconds", "bytes", "flops", "rate", "share", "dollars", "factor", "per_second"
]

# What stands behind the prefix.
_UNITS: dict[ColumnKind, str] = {
    "seconds": "s",
    "bytes": "B",
    "flops": "FLOP",
    "rate": "FLOP/s",
    "per_second": "/s",
}


def tick(kind: ColumnKind, value: str = "datum.value") -> str:
    """The label of an axis: a round number with its unit and no padding zeros.

    Args:
        kind: How figures of the axis are shown.
        value: An expression for the number; from 1e-9 on and below 1e18, or 0.
    """
    whole = f"format({value}, ',.0f')"
    if kind == "share":
        return share(value)
    if kind == "dollars":
        return f"'$' + ({value} >= 1e3 ? {whole} : {_digits(value)})"
    if kind == "factor":
        return f"({_digits(value, 2)}) + 'x'"
    if kind == "number":
        return _digits(value)
    if kind not in _UNITS:
        return f"format({value}, ',')"
    prefixed = _with_prefix(value, _UNITS[kind])
    if kind == "seconds":
        return f"{value} >= 1e3 ? {whole} + ' s' : {prefixed}"
    if kind == "per_second":
        return f"{value} > 0 && {value} < 1 ? {_digits(value)} + ' /s' : {prefixed}"
    return prefixed


def share(value: str) -> str:
    """A percentage that reads 0 % or 100 % only when it is exactly that."""
    percent = f"({value}) * 100"
    # Halves to the even number, as Python rounds: half of it has no half left where the number is even.
    rounded = f"(abs({percent} % 1) === 0.5 ? 2 * round({percent} / 2) : round({percent}))"
    return (
        f"(({value}) > 0 && ({value}) < 0.01 ? '<1 %' : ({value}) > 0.99 && ({value}) < 1 ? '>99 %' : "
        f"{rounded} + ' %')"
    )


def _digits(value: str, significant: int = 3) -> str:
    """So many significant digits without an exponent; all of those before the point."""
    return f"(abs({value}) >= 100 ? format({value}, '.0f') : format({value}, '.{significant}~r'))"


def _with_prefix(value: str, unit: str) -> str:
    """``1.5 ms``: D3 writes 1.5m, whose last letter, if there is one, is set apart."""
    return f"replace(format({value}, '.3~s'), regexp('[^0-9.]*$'), ' $&{unit}')"


Row = tuple[Any, ...]

# Up to three decades leave room on an axis for 1, 2 and 5 of each: the labels of more would overlap.
_FEW_DECADES = 3
# As many labels as stand side by side where two charts share the page's width.
_MOST_BATCH_TICKS = 10
CPU, GPU, BEST = PLAN_TITLES["cpu"], PLAN_TITLES["gpu"], PLAN_TITLES["hybrid"]
# Colours are variables of the page's style sheet, so that a chart follows light and dark.
SERIES_COLOURS: Mapping[str, str] = {CPU: "var(--cpu)", GPU: "var(--gpu)", BEST: "var(--hybrid)"}
# What was computed, not timed, is hollow or paler in every chart: the channel's condition, to be given a value.
_PREDICTED = "datum.origin === 'predicted'"
# Filled with the page's own colour and not left without any: the line below would show through a ring.
HOLLOW_IF_PREDICTED: Mapping[str, str] = {"test": _PREDICTED, "value": "var(--surface)"}


_RIM = {"stroke": "var(--surface)", "strokeWidth": 4, "strokeJoin": "round", "opacity": 0.85}


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One column of a chart's data.

    Attributes:
        name: Its key.
        title: Its heading.
        kind: How its figures are shown.
        lookup: Where the page holds these values already (``operators.type``): they are not sent twice.
            The row's ``index`` or ``id`` says which operator or module.
        read: What ``rows_of`` reads of an item: an attribute's name, or a function of it.
    """

    name: str
    title: str
    kind: ColumnKind = "text"
    lookup: str = ""
    read: str | Callable[[Any], Any] = ""


def rows_of(columns: Sequence[Column], items: Iterable[Any]) -> tuple[Row, ...]:
    """A row for each item, of the columns that say what they read of it."""
    asked = [column.read for column in columns if column.read]
    reads = [attrgetter(read) if isinstance(read, str) else read for read in asked]
    return tuple(tuple(read(item) for read in reads) for item in items)


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """A chart as the page needs it.

    Attributes:
        name: Its anchor on the page.
        title: A noun phrase.
        lead: What it shows and how to read it, a sentence or two.
        alternative: The chart in words, for who cannot see it.
        spec: That library's specification; its data set ``table`` is filled from ``rows``.
        columns, rows: The data, shown as a table and given away as CSV too.
        height: Height of the drawing in CSS pixels, reserved before it is drawn.
        engine: Which library draws it.
        extra: Further data sets of the specification by name, each a tuple of rows as mappings.
    """

    name: str
    title: str
    lead: str
    alternative: str
    spec: Mapping[str, Any]
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    height: int
    engine: Literal["vega-lite", "vega"] = "vega-lite"
    extra: Mapping[str, tuple[Mapping[str, Any], ...]] = field(default_factory=dict)

    def payload(self) -> dict[str, Any]:
        """What the page's script needs to draw it."""
        return {
            "engine": self.engine,
            "spec": self.spec,
            "columns": [
                {"name": column.name, "title": column.title, "kind": column.kind} for column in self.columns
            ],
            # By column and not by row: keys are sent once, and so is a text that many rows share.
            "cells": [packed(column, at, self.rows) for at, column in enumerate(self.columns)],
            "extra": {name: list(rows) for name, rows in self.extra.items()},
        }


def packed(column: Column, at: int, rows: tuple[Row, ...]) -> Any:
    """One column of a table: ``coded`` text, a list of figures, or where to look them up."""
    if column.lookup:
        return {"lookup": column.lookup.split(".")}
    values = (row[at] for row in rows)
    return coded(values) if column.kind == "text" else [compact(value) for value in values]


def coded(values: Iterable[str]) -> dict[str, Any]:
    """Distinct texts in order of appearance, and the place of each value among them."""
    codes: dict[str, int] = {}
    at = [codes.setdefault(value, len(codes)) for value in values]
    return {"of": list(codes), "at": at}


def compact(value: Any) -> Any:
    """A float with four significant digits, as a page shows no more; None for one that is not finite."""
    if not isinstance(value, float):
        return value
    # JSON has neither infinity nor NaN: a browser's parser refuses the whole of the page's data.
    return float(f"{value:.4g}") if math.isfinite(value) else None


def colours(*series: str) -> dict[str, list[str]]:
    """A Vega-Lite colour scale for these series."""
    return {"domain": list(series), "range": [SERIES_COLOURS[name] for name in series]}


def tooltip(*columns: Column) -> list[dict[str, str]]:
    """Vega-Lite's tooltip channel: every figure with its unit."""
    return [_tooltip_field(column) for column in columns]


def _tooltip_field(column: Column) -> dict[str, str]:
    # Indices and batches are names more than amounts: they are shown as they are, without rounding.
    numeric = column.kind not in ("text", "count")
    field = {"field": column.name, "title": column.title, "type": "quantitative" if numeric else "nominal"}
    # ``figure`` is an expression function that templates/js/charts.js registers with Vega.
    return {**field, "formatType": "figure", "format": column.kind} if numeric else field


def axis(kind: ColumnKind, title: str, **more: Any) -> dict[str, Any]:
    """An axis whose labels carry their unit."""
    return {"title": title, "labelExpr": tick(kind), **more}


def decades(values: Iterable[float | None]) -> list[float]:
    """Round numbers for a logarithmic axis: powers of ten, with their 2 and 5 where the values span few."""
    known = [value for value in values if value is not None and 0 < value < math.inf]
    if not known:
        return []
    low, high = math.floor(math.log10(min(known))), math.ceil(math.log10(max(known)))
    steps = (1, 2, 5) if high - low <= _FEW_DECADES else (1,)
    return [float(f"{step}e{power}") for power in range(low, high + 1) for step in steps]


def origin_words(origins: Iterable[str]) -> str:
    """``measured and predicted``, in a fixed order."""
    distinct = set(origins)
    return listed(name for name in MARKS if name in distinct) or "of unknown origin"


def combined_origin(origins: set[str]) -> str:
    """The origin of a sum whose parts have these: theirs where they agree, else ``mixed``."""
    return next(iter(origins)) if len(origins) == 1 else "mixed"


def paler_if_predicted(opacity: float) -> dict[str, Any]:
    """A fill's opacity channel: this where a time was predicted, opaque where it was measured."""
    return {"condition": {"test": _PREDICTED, "value": opacity}, "value": 1}


def legend_selection(name: str, field: str) -> dict[str, Any]:
    """A selection that clicks on the legend of ``field`` make; it keeps the data's rows of those values."""
    return {"name": name, "select": {"type": "point", "fields": [field]}, "bind": "legend"}


def batch_ticks(batches: Iterable[int]) -> list[int]:
    """At most ten of the batches, evenly spread, for the labels of an axis."""
    distinct = sorted(set(batches))
    # Rounded up: ``-(-n // d)`` is the ceiling of a division of integers.
    return distinct[:: -(-len(distinct) // _MOST_BATCH_TICKS)]


def quantity(field: str, ticks: Mapping[str, Any] | None = None, /, **scale: Any) -> dict[str, Any]:
    """A channel of figures, with its axis and scale where they are not Vega-Lite's own."""
    channel = {"field": field, "type": "quantitative"}
    return {**channel, **({"scale": scale} if scale else {}), **({"axis": ticks} if ticks else {})}


def nominal(field: str, /, **more: Any) -> dict[str, Any]:
    """A channel of names."""
    return {"field": field, "type": "nominal", **more}


def bars(
    height: Any, legend: Mapping[str, Any], mark: Mapping[str, Any], encoding: Mapping[str, Any]
) -> dict[str, Any]:
    """A specification as wide as the page, of bars over the data set ``table`` with one legend's selection."""
    whole = {"width": "container", "height": height, "data": {"name": "table"}, "params": [legend]}
    return {**whole, "mark": {"type": "bar", **mark}, "encoding": encoding}


def series(field: str, scale: Mapping[str, Any], *, title: str | None = None, **legend: Any) -> dict[str, Any]:
    """A colour channel: one of the scale's for each name in ``field``, squares in the legend."""
    return nominal(field, scale=scale, title=title, legend={"symbolType": "square", **legend})


def page_colours(names: Sequence[str]) -> dict[str, list[str]]:
    """A colour scale of the page's eight series; beyond eight they repeat."""
    return {"domain": list(names), "range": [f"var(--record-{1 + at % 8})" for at in range(len(names))]}


def faded(param: str, value: float) -> dict[str, Any]:
    """An opacity channel: what a legend's selection leaves out is this pale."""
    return {"condition": {"param": param, "value": 1}, "value": value}


def layered(height: Any, layers: Sequence[Mapping[str, Any]], **more: Any) -> dict[str, Any]:
    """A specification as wide as the page, of layers over the data set ``table``."""
    return {"width": "container", "height": height, "data": {"name": "table"}, "layer": list(layers), **more}


def ring(size: int, width: float, **more: Any) -> dict[str, Any]:
    """A point's mark that is hollow, as what was predicted is."""
    mark = {"type": "point", "filled": False, "fill": "var(--surface)", "size": size, "strokeWidth": width}
    return {**mark, **more}


def by_line(distance: int) -> dict[str, Any]:
    """Where the words at a vertical line stand: on its left if the line is late on the axis."""
    return {
        "align": {"expr": "datum.late ? 'right' : 'left'"},
        "dx": {"expr": f"datum.late ? -{distance} : {distance}"},
    }


def lines_with_words(
    data: str, place: Mapping[str, Any], *, rule: str, words: str = "", **mark: Any
) -> list[dict[str, Any]]:
    """Dashed lines across the chart at the rows of a data set, each with its ``label``.

    Args:
        data: The data set.
        place: The channel ``x`` or ``y`` that the lines stand at.
        rule: Colour of the lines.
        words: Colour of the words, if another.
        mark: Where the words stand, as properties of the mark.
    """
    dashed = {"type": "rule", "strokeDash": [4, 4], "color": rule, "strokeWidth": 1.5}
    text = {"type": "text", "fontSize": 11, "color": words or rule, **mark}
    other = {"y" if "x" in place else "x": {"value": 0}}
    return [
        {"data": {"name": data}, "mark": dashed, "encoding": place},
        *text_over_marks(data, text, {**place, **other, "text": {"field": "label"}}),
    ]


def limit_rows(limit_s: float | None) -> tuple[dict[str, Any], ...]:
    """Return the data ``limits`` of ``limit_lines``."""
    return () if limit_s is None else ({"limit": limit_s, "label": f"limit {seconds(limit_s)}"},)


def limit_lines(
    place: Mapping[str, Any], *, below: bool = False, upright: bool = False
) -> list[dict[str, Any]]:
    """Return a dashed line at a limit of time, with its words.

    Args:
        place: The channel of the limit.
        below: Whether the words stand below the line.
        upright: Whether it is a time on the horizontal axis.
    """
    if upright:
        return lines_with_words("limits", {"x": place}, rule="var(--bad)", align="right", dx=-5, dy=8)
    dy = 8 if below else -7
    return lines_with_words("limits", {"y": place}, rule="var(--bad)", align="left", dx=4, dy=dy)


def rate_rows(marks: Iterable[tuple[float, str]], late: float) -> tuple[dict[str, Any], ...]:
    """Return the data of ``rate_lines``: rates with their words, which beyond ``late`` stand to the left."""
    return tuple(
        # One above the other: they may lie close together.
        {"rate": value, "label": label, "late": value > late, "line": 8 + 14 * line}
        for line, (value, label) in enumerate(marks)
    )


def rate_lines(data: str, x: Mapping[str, Any], colour: str) -> list[dict[str, Any]]:
    """Return dashed lines at rates, with their words."""
    words = {**by_line(6), "dy": {"expr": "datum.line"}}
    return lines_with_words(data, {"x": x}, rule=colour, words="var(--text)", **words)


def text_over_marks(data: str, mark: Mapping[str, Any], encoding: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Two layers that write the same words: a rim in the page's colour, then the text, as points lie below.

    One mark cannot be both: SVG draws a text's stroke over its fill, so a rim of its own eats the letters.
    """
    source = {"data": {"name": data}}
    return [
        {**source, "mark": {**mark, **_RIM}, "encoding": {**encoding}},
        {**source, "mark": {**mark}, "encoding": {**encoding}},
    ]


# What the reader's own system writes in.
PAGE_FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"


def vega_config(font: str = PAGE_FONT) -> dict[str, Any]:
    """Vega's configuration; colours are variables of the page's style sheet.

    Args:
        font: The families that all text is written in, as CSS names them.
    """
    written = {"labelFont": font, "titleFont": font, "titleFontWeight": 500, "titleFontSize": 12}
    return {
        "background": "transparent",
        "font": font,
        "customFormatTypes": True,
        "view": {"stroke": None},
        "axis": {
            **written,
            "labelColor": "var(--muted)",
            "titleColor": "var(--muted)",
            "gridColor": "var(--line)",
            "domainColor": "var(--line)",
            "tickColor": "var(--line)",
            "labelFontSize": 11,
            "labelOverlap": True,
        },
        "legend": {
            **written,
            "labelColor": "var(--text)",
            "titleColor": "var(--muted)",
            "orient": "top",
            "labelFontSize": 12,
            "columns": 8,
            "symbolOpacity": 1,
            "symbolStrokeColor": "var(--muted)",
            "symbolFillColor": "var(--muted)",
            "labelLimit": 220,
        },
        "text": {"font": font, "color": "var(--text)"},
    }
