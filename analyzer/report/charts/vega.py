"""Reporting: the layers that charts are made of: axes, lines, bands, points, bars, rules with their words.

A chart is ``layered`` of ``layer``s over channels: ``amount``, ``logarithmic`` and ``doublings`` are axes,
``coloured`` tells series apart, ``faded`` follows a click on the legend. Names are those of Vega-Lite's
specification (https://vega.github.io/vega-lite/docs/).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from analyzer.report.charts.chart import Column, ColumnKind, tick
from analyzer.report.figure_text import PLAN_TITLES
from analyzer.units import seconds

Spec = dict[str, Any]

CPU, GPU, BEST = PLAN_TITLES["cpu"], PLAN_TITLES["gpu"], PLAN_TITLES["hybrid"]
COPY, PREFILL, DECODE = "Copy", "Prefill", "Decode"
# Colours are variables of the page's style sheet, so that a chart follows light and dark.
_COLOURS: Mapping[str, str] = {
    CPU: "var(--cpu)",
    GPU: "var(--gpu)",
    BEST: "var(--hybrid)",
    COPY: "var(--copy)",
    PREFILL: "var(--record-4)",
    DECODE: "var(--record-6)",
    "p50": "var(--record-3)",
    "p90": "var(--record-1)",
    "p95": "var(--record-4)",
    "p99": "var(--record-5)",
    "mean": "var(--record-8)",
}
# Vega's symbols that differ most. Six shapes and the page's eight colours meet again at the 25th series only.
_SHAPES = ("circle", "square", "diamond", "triangle-up", "triangle-down", "cross")
# Up to three decades leave room on an axis for 1, 2 and 5 of each: the labels of more would overlap.
_FEW_DECADES = 3
# As many labels as stand side by side where two charts share the page's width.
_MOST_BATCH_TICKS = 10
# What was computed, not timed, is hollow or paler in every chart.
_PREDICTED = "datum.origin === 'predicted'"
# In pixels: the points at both ends of an axis are not cut in half.
_PADDING = 14
_RIM: Spec = {"stroke": "var(--surface)", "strokeWidth": 4, "strokeJoin": "round", "opacity": 0.85}


def layered(height: int, *layers: Spec, **more: Any) -> Spec:
    """Return a specification as wide as the page, of layers over the data set ``table``."""
    return {"width": "container", "height": height, "data": {"name": "table"}, "layer": [*layers], **more}


def layer(
    kind: str,
    encoding: Mapping[str, Any],
    *,
    data: str = "",
    only: str = "",
    select: Sequence[str] = (),
    **mark: Any,
) -> Spec:
    """Return one layer, of the data set ``table`` unless another is named.

    Rows that meet the condition ``only`` are drawn. Legends of the fields ``select`` select; a selection has
    the name of its field.
    """
    clicks = [
        {"name": name, "select": {"type": "point", "fields": [name]}, "bind": "legend"} for name in select
    ]
    return {
        **({"data": {"name": data}} if data else {}),
        **({"transform": [{"filter": only}]} if only else {}),
        **({"params": clicks} if clicks else {}),
        "mark": {"type": kind, **mark},
        "encoding": dict(encoding),
    }


def amount(
    field: str,
    kind: ColumnKind,
    title: str,
    ticks: int | Sequence[float] = 6,
    *,
    grid: bool = True,
    orient: str = "",
    **scale: Any,
) -> Spec:
    """Return a channel of figures; the labels of its axis carry their unit.

    ``ticks`` are the figures that have labels, or about how many; ``orient`` is the axis' side, if not the
    usual one.
    """
    axis = {"title": title, "labelExpr": tick(kind), "grid": grid}
    axis |= {"tickCount": ticks} if isinstance(ticks, int) else {"values": ticks}
    axis |= {"orient": orient} if orient else {}
    return {"field": field, "type": "quantitative", "axis": axis, **({"scale": scale} if scale else {})}


def logarithmic(field: str, kind: ColumnKind, title: str, figures: Iterable[float | None], **more: Any) -> Spec:
    """Return a channel on which the same distance is the same factor, as long as the figures reach."""
    scale = {"type": "log", "nice": False, "padding": _PADDING}
    return amount(field, kind, title, decades(figures), **{**scale, **more})


def doublings(field: str, title: str, values: Iterable[int]) -> Spec:
    """Return a channel of batches or lengths, each of which is mostly twice the one before."""
    distinct = sorted(set(values))
    # Rounded up: ``-(-n // d)`` is the ceiling of a division of integers.
    labelled = distinct[:: -(-len(distinct) // _MOST_BATCH_TICKS)]
    return amount(field, "count", title, labelled, grid=False, type="log", base=2)


def decades(values: Iterable[float | None]) -> list[float]:
    """Return round numbers for a logarithmic axis: powers of ten, with their 2 and 5 if there are few."""
    known = [value for value in values if value is not None and 0 < value < math.inf]
    if not known:
        return []
    low, high = math.floor(math.log10(min(known))), math.ceil(math.log10(max(known)))
    steps = (1, 2, 5) if high - low <= _FEW_DECADES else (1,)
    return [float(f"{step}e{power}") for power in range(low, high + 1) for step in steps]


def on(channel: Mapping[str, Any], field: str) -> Spec:
    """Return the channel for another column on the same axis."""
    return {**channel, "field": field}


def nominal(field: str, /, **more: Any) -> Spec:
    """Return a channel of names."""
    return {"field": field, "type": "nominal", **more}


def lanes(field: str, names: Sequence[str], **axis: Any) -> Spec:
    """Return a vertical channel with a band for each name, in this order."""
    return nominal(field, sort=list(names), scale={"domain": list(names)}, title=None, axis=axis or {})


def palette(names: Sequence[str]) -> dict[str, list[str]]:
    """Return a scale of colours: those of devices, phases and percentiles, or else the page's series."""
    if all(name in _COLOURS for name in names):
        return {"domain": list(names), "range": [_COLOURS[name] for name in names]}
    return {"domain": list(names), "range": [f"var(--record-{1 + at % 8})" for at in range(len(names))]}


def coloured(field: str, names: Sequence[str], *, title: str | None = None, **legend: Any) -> Spec:
    """Return a colour for each name, with squares in the legend."""
    shown = {"symbolType": "square", **legend}
    return nominal(field, scale=palette(names), sort=list(names), title=title, legend=shown)


def shaped(field: str, names: Sequence[str], shapes: Sequence[str] = _SHAPES, **more: Any) -> Spec:
    """Return a shape for each name."""
    scale = {"domain": list(names), "range": [shapes[at % len(shapes)] for at in range(len(names))]}
    return nominal(field, scale=scale, **more)


def faded(*selections: str, pale: float = 0.1) -> Spec:
    """Return an opacity: what the legends' selections leave out is this pale."""
    return {"condition": {"test": {"and": [{"param": name} for name in selections]}, "value": 1}, "value": pale}


def faded_or(condition: str, selection: str, pale: float = 0.35) -> Spec:
    """Return an opacity: pale where the condition holds; what the legend hides stays hidden in any case."""
    hidden = {"test": {"not": {"param": selection}}, "value": 0.08}
    return {"condition": [hidden, {"test": condition, "value": pale}], "value": 1}


def paler_if_predicted(opacity: float) -> Spec:
    """Return a fill's opacity: this where a time was predicted, opaque where it was measured."""
    return {"condition": {"test": _PREDICTED, "value": opacity}, "value": 1}


def hollow_if_predicted(colour: Mapping[str, Any]) -> Spec:
    """Return the channels of a point that is filled where its time was measured."""
    # Filled with the page's own colour and not left without any: the line below would show through a ring.
    hollow = {"test": _PREDICTED, "value": "var(--surface)"}
    return {"stroke": colour, "fill": {"condition": hollow, **colour, "legend": None}}


def if_so(column: str, so: float, otherwise: float) -> Spec:
    """Return a size or width that depends on whether a column says ``yes``."""
    return {"condition": {"test": f"datum.{column} === 'yes'", "value": so}, "value": otherwise}


def sized(column: str, least: float, most: float) -> Spec:
    """Return an area that grows with a column, its root, so that the largest do not cover the others."""
    scale = {"type": "sqrt", "range": [least, most]}
    return {"field": column, "type": "quantitative", "scale": scale, "legend": None}


def ring(encoding: Mapping[str, Any], select: Sequence[str] = (), **mark: Any) -> Spec:
    """Return a layer of hollow points, as what was predicted is."""
    look: Spec = {"filled": False, "fill": "var(--surface)", "size": 46, "strokeWidth": 1.8}
    return layer("point", encoding, select=select, **{**look, **mark})


def tooltip(*columns: Column) -> list[dict[str, str]]:
    """Return Vega-Lite's tooltip channel: every figure with its unit."""
    fields = []
    for column in columns:
        # Indices and batches are names more than amounts: they are shown as they are, without rounding.
        numeric = column.kind not in ("text", "count")
        kind = "quantitative" if numeric else "nominal"
        # ``figure`` is an expression function that templates/js/charts.js registers with Vega.
        shown = {"formatType": "figure", "format": column.kind} if numeric else {}
        fields.append({"field": column.name, "title": column.title, "type": kind, **shown})
    return fields


def words(data: str, encoding: Mapping[str, Any], **mark: Any) -> list[Spec]:
    """Return two layers that write the same words: a rim in the page's colour, then the text over it.

    One mark cannot be both: SVG draws a text's stroke over its fill, so a rim of its own eats the letters.
    """
    look: Spec = {"fontSize": 11, "align": "left", "color": "var(--text)", **mark}
    uncoloured = {name: channel for name, channel in encoding.items() if name != "color"}
    return [layer("text", uncoloured, data=data, **look, **_RIM), layer("text", encoding, data=data, **look)]


def aside(distance: int) -> Spec:
    """Return where words at a point or line stand: to the left of it if it is late on the axis."""
    return {
        "align": {"expr": "datum.late ? 'right' : 'left'"},
        "dx": {"expr": f"datum.late ? -{distance} : {distance}"},
    }


def mark_rows(marks: Iterable[tuple[float, str]], late: float = math.inf) -> tuple[dict[str, Any], ...]:
    """Return the data of ``rules``: figures with their words, which beyond ``late`` stand to the left."""
    return tuple(
        # One above the other: they may lie close together.
        {"at": value, "label": label, "late": value > late, "line": 8 + 14 * line}
        for line, (value, label) in enumerate(marks)
    )


def limit_rows(limit_s: float | None, *, below: bool = False, late: bool = False) -> tuple[dict[str, Any], ...]:
    """Return the data of ``rules`` for a limit of time; nothing for none.

    Its words stand ``below`` the line, or right of an upright one; ``late``: left of it.
    """
    if limit_s is None:
        return ()
    label = f"limit {seconds(limit_s)}"
    return ({"at": limit_s, "label": label, "late": late, "line": 8 if below else -7},)


def rules(
    data: str, channel: Mapping[str, Any], *, across: str = "x", colour: str = "var(--muted)"
) -> list[Spec]:
    """Return dashed lines at the rows of a data set, each with its ``label``; on ``x`` they are upright."""
    place = {across: on(channel, "at")}
    text: Spec = {"y": {"value": 0}}
    look: Spec = {"color": "var(--text)", **aside(6)}
    if across == "y":
        # In the middle: upright lines with words of their own mostly stand at the ends.
        text, look = {"x": {"value": {"expr": "width / 2"}}}, {"color": colour, "align": "center"}
    return [
        layer("rule", place, data=data, strokeDash=[4, 4], color=colour, strokeWidth=1.5),
        *words(data, {**place, **text, "text": {"field": "label"}}, dy={"expr": "datum.line"}, **look),
    ]


def limits(channel: Mapping[str, Any], across: str = "y") -> list[Spec]:
    """Return the line of ``limit_rows``."""
    return rules("limits", channel, across=across, colour="var(--bad)")
