"""Reporting: a chart: a specification for Vega-Lite, its data and its words.

Page and picture draw the same specification, and what draws a picture knows none of the page's own functions:
labels in a drawing are written by functions that every Vega has (https://vega.github.io/vega/docs/expressions/),
whose ``format`` is D3's (https://d3js.org/d3-format).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from operator import attrgetter
from typing import Any, Literal

from analyzer.report.figure_text import MARKS
from analyzer.text import listed

ColumnKind = Literal[
    "text", "count", "number", "seconds", "bytes", "flops", "rate", "share", "dollars", "per_second"
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
    """Return the label of an axis: a round number with its unit and no padding zeros.

    Args:
        kind: How figures of the axis are shown.
        value: An expression for the number; from 1e-9 on and below 1e18, or 0.
    """
    whole = f"format({value}, ',.0f')"
    if kind == "share":
        return share(value)
    if kind == "dollars":
        return f"'$' + ({value} >= 1e3 ? {whole} : {_digits(value)})"
    if kind == "number":
        return _digits(value)
    if kind not in _UNITS:
        return f"format({value}, ',')"
    # D3 writes 1.5m of 1.5 ms: the last letter, if there is one, is set apart.
    prefixed = f"replace(format({value}, '.3~s'), regexp('[^0-9.]*$'), ' $&{_UNITS[kind]}')"
    if kind == "seconds":
        return f"{value} >= 1e3 ? {whole} + ' s' : {prefixed}"
    if kind == "per_second":
        return f"{value} > 0 && {value} < 1 ? {_digits(value)} + ' /s' : {prefixed}"
    return prefixed


def share(value: str) -> str:
    """Return a percentage that reads 0 % or 100 % only when it is exactly that."""
    percent = f"({value}) * 100"
    # Halves to the even number, as Python rounds: half of it has no half left where the number is even.
    rounded = f"(abs({percent} % 1) === 0.5 ? 2 * round({percent} / 2) : round({percent}))"
    return (
        f"(({value}) > 0 && ({value}) < 0.01 ? '<1 %' : ({value}) > 0.99 && ({value}) < 1 ? '>99 %' : "
        f"{rounded} + ' %')"
    )


def _digits(value: str) -> str:
    """Return three significant digits without an exponent; all of those before the point."""
    return f"(abs({value}) >= 100 ? format({value}, '.0f') : format({value}, '.3~r'))"


Row = tuple[Any, ...]
# In CSS pixels, where the page is as wide as a desk's: an axis below, and legends above.
_AXIS, _UNTITLED, _TITLED = 44, 42, 52
_IN_LEGENDS = ("color", "stroke", "shape", "strokeDash")


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
    """Return a row for each item, of the columns that say what they read of it."""
    readers = [column.read for column in columns if column.read]
    reads = [attrgetter(read) if isinstance(read, str) else read for read in readers]
    return tuple(tuple(read(item) for read in reads) for item in items)


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """A chart as the page needs it.

    Attributes:
        name: Its anchor on the page.
        title: A noun phrase.
        lead: What it shows and how to read it, a sentence or two.
        alternative: The chart in words, for who cannot see it.
        spec: Vega-Lite's specification; its data set ``table`` is filled from ``rows``.
        columns, rows: The data, shown as a table and given away as CSV too.
        extra: Further data sets of the specification by name, each a tuple of rows as mappings.
        origin: That of the figures, where the rows do not say theirs.
    """

    name: str
    title: str
    lead: str
    alternative: str
    spec: Mapping[str, Any]
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    extra: Mapping[str, tuple[Mapping[str, Any], ...]] = field(default_factory=dict)
    origin: str = ""

    @property
    def height(self) -> int:
        """Height in CSS pixels, legends and axes included: reserved on the page before it is drawn."""
        channels = [channel for one in self.spec["layer"] for channel in one.get("encoding", {}).items()]
        axis = any(channel.get("axis") for name, channel in channels if name in ("x", "y"))
        legends = [
            bool(channel.get("title"))
            for name, channel in channels
            if name in _IN_LEGENDS and "field" in channel and channel.get("legend", True)
        ]
        legend = max((_TITLED if titled else _UNTITLED for titled in legends), default=0)
        return int(self.spec["height"]) + (_AXIS if axis else 0) + legend

    def payload(self) -> dict[str, Any]:
        """Return what the page's script needs to draw it."""
        return {
            "spec": self.spec,
            "columns": [
                {"name": column.name, "title": column.title, "kind": column.kind} for column in self.columns
            ],
            # By column and not by row: keys are sent once, and so is a text that many rows share.
            "cells": [packed(column, at, self.rows) for at, column in enumerate(self.columns)],
            "extra": {name: list(rows) for name, rows in self.extra.items()},
        }


def packed(column: Column, at: int, rows: tuple[Row, ...]) -> Any:
    """Return one column of a table: ``coded`` text, figures, steps of numbers, or where to look them up."""
    if column.lookup:
        return {"lookup": column.lookup.split(".")}
    values = [row[at] for row in rows]
    if column.kind == "text":
        return coded(values)
    if column.kind == "count" and all(isinstance(value, int) for value in values):
        return steps(values)
    return [compact(value) for value in values]


def steps(numbers: Sequence[int]) -> dict[str, list[int]]:
    """Return numbers as steps from the one before, which are alike and pack well."""
    return {"steps": [number - before for before, number in pairwise((0, *numbers))]}


def coded(values: Iterable[str]) -> dict[str, Any]:
    """Return distinct texts in order of appearance, and the place of each value among them."""
    codes: dict[str, int] = {}
    at = [codes.setdefault(value, len(codes)) for value in values]
    return {"of": list(codes), "at": at}


def compact(value: Any) -> Any:
    """Return a float with four significant digits, as a page shows no more; None if it is not finite."""
    if not isinstance(value, float):
        return value
    # JSON has neither infinity nor NaN: a browser's parser refuses the whole of the page's data.
    return float(f"{value:.4g}") if math.isfinite(value) else None


def origin_words(origins: Iterable[str]) -> str:
    """Return ``measured and predicted``, in a fixed order."""
    distinct = set(origins)
    return listed(name for name in MARKS if name in distinct) or "of unknown origin"


def combined_origin(origins: set[str]) -> str:
    """Return the origin of a sum whose parts have these: theirs where they agree, else ``mixed``."""
    return next(iter(origins)) if len(origins) == 1 else "mixed"


# What the reader's own system writes in.
PAGE_FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"


def vega_config(font: str = PAGE_FONT) -> dict[str, Any]:
    """Return Vega's configuration; colours are variables of the page's style sheet."""
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
