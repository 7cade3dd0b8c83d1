"""Reporting: what a chart of the page is: a specification for Vega-Lite or Vega, its data and its words."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from analyzer.report.summary import MARKS
from analyzer.text import listed

ColumnKind = Literal[
    "text", "count", "number", "seconds", "bytes", "flops", "rate", "share", "dollars", "factor", "per_second"
]
Row = tuple[Any, ...]

_FEW_DECADES = 3
CPU, GPU, BEST = "CPU", "GPU", "Best plan"
PLAN_SERIES: Mapping[str, str] = {"cpu": CPU, "gpu": GPU, "hybrid": BEST}
# Colours are variables of the page's style sheet, so that a chart follows light and dark.
SERIES_COLOURS: Mapping[str, str] = {CPU: "var(--cpu)", GPU: "var(--gpu)", BEST: "var(--hybrid)"}
ORIGIN_SHAPES: Mapping[str, str] = {"measured": "circle", "predicted": "circle-open", "mixed": "diamond"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One column of a chart's data.

    Attributes:
        name: Its key.
        title: Its heading.
        kind: How its figures are shown.
        lookup: Where the page holds these values already (``operators.type``): they are not sent twice.
            The row's ``index`` or ``id`` says which operator or module.
    """

    name: str
    title: str
    kind: ColumnKind = "text"
    lookup: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """A chart as the page needs it.

    Attributes:
        name: Its anchor on the page.
        title: A noun phrase.
        lead: What it shows and how to read it, a sentence or two.
        alternative: The chart in words, for who cannot see it.
        engine: Which library draws it.
        spec: That library's specification; its data set ``table`` is filled from ``rows``.
        columns, rows: The data, shown as a table and given away as CSV too.
        extra: Further data sets of the specification by name, each a tuple of rows as mappings.
        height: Height of the drawing in CSS pixels, reserved before it is drawn.
    """

    name: str
    title: str
    lead: str
    alternative: str
    engine: Literal["vega-lite", "vega"]
    spec: Mapping[str, Any]
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    extra: Mapping[str, tuple[Mapping[str, Any], ...]]
    height: int

    def payload(self) -> dict[str, Any]:
        """What the page's script needs to draw it."""
        return {
            "engine": self.engine,
            "spec": self.spec,
            "columns": [{"name": item.name, "title": item.title, "kind": item.kind} for item in self.columns],
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
    places: dict[str, int] = {}
    codes = [places.setdefault(value, len(places)) for value in values]
    return {"of": list(places), "at": codes}


def compact(value: Any) -> Any:
    """A float with four significant digits, as a page shows no more; None for one that is not finite."""
    if not isinstance(value, float):
        return value
    return float(f"{value:.4g}") if math.isfinite(value) else None


def colours(*series: str) -> dict[str, list[str]]:
    """A Vega-Lite colour scale for these series."""
    return {"domain": list(series), "range": [SERIES_COLOURS[name] for name in series]}


def tooltip(*columns: Column) -> list[dict[str, str]]:
    """Vega-Lite's tooltip channel: every figure with its unit."""
    return [_tip(column) for column in columns]


def _tip(column: Column) -> dict[str, str]:
    numeric = column.kind not in ("text", "count")
    tip = {"field": column.name, "title": column.title, "type": "quantitative" if numeric else "nominal"}
    return {**tip, "formatType": "figure", "format": column.kind} if numeric else tip


def axis(kind: ColumnKind, title: str, **more: Any) -> dict[str, Any]:
    """An axis whose labels carry their unit."""
    return {"title": title, "formatType": "tick", "format": kind, **more}


def decades(values: Iterable[float | None]) -> list[float]:
    """Round numbers for a logarithmic axis: powers of ten, with their 2 and 5 where the values span few."""
    known = [value for value in values if value]
    if not known:
        return []
    low, high = math.floor(math.log10(min(known))), math.ceil(math.log10(max(known)))
    steps = (1, 2, 5) if high - low <= _FEW_DECADES else (1,)
    return [float(f"{step}e{power}") for power in range(low, high + 1) for step in steps]


def origin_words(origins: Iterable[str]) -> str:
    """``measured and predicted``, in a fixed order."""
    found = set(origins)
    return listed(name for name in MARKS if name in found) or "of unknown origin"
