"""Reporting: a chart's specification as a picture is drawn from it: with data, a width and plain colours."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

from analyzer.report.charts import style
from analyzer.report.charts.chart import Chart, compact
from analyzer.report.html import templates_dir
from analyzer.text import printable

# The first of them comes with vl-convert, so that every machine measures and writes the same letters; the
# others are as wide (https://en.wikipedia.org/wiki/Liberation_fonts): they stand in where an SVG is opened.
FONT = "Liberation Sans, Arial, Helvetica, sans-serif"
# Of a drawing, in pixels, without its axes.
WIDTH = 760
# What a picture cannot do.
_FOR_A_POINTER = frozenset({"tooltip", "hover", "cursor"})
_VARIABLE = re.compile(r"var\(--([\w-]+)\)")


@lru_cache(maxsize=1)
def light_colours() -> dict[str, str]:
    """The variables of the page's style sheet, as they are on paper and in daylight."""
    sheet = (templates_dir() / "report.css").read_text(encoding="utf-8")
    # Its first rule; those of dark pages come later and say more.
    rule = re.search(r"^:root \{(.*?)^\}", sheet, re.DOTALL | re.MULTILINE)
    if rule is None:
        raise ValueError("report.css defines no colours")
    return dict(re.findall(r"--([\w-]+):\s*([^;]+);", rule[1]))


def plain_colour(text: str) -> str:
    """A text with the style sheet's variables replaced by their values."""
    return _VARIABLE.sub(lambda match: light_colours()[match[1]], text)


def specification(chart: Chart) -> dict[str, Any]:
    """What Vega-Lite, or Vega, draws; nothing in it refers to the page."""
    names = [column.name for column in chart.columns]
    # Figures as the page has them, which draws the same points.
    table = [dict(zip(names, map(compact, row), strict=True)) for row in chart.rows]
    spec: dict[str, Any] = {**chart.spec, "width": WIDTH, "config": style.config(FONT) | {"aria": False}}
    if chart.engine == "vega":
        first, *others = spec["data"]
        spec["data"] = [{**first, "values": table}, *others]
        # No operator is selected in a picture.
        spec["signals"] = [*spec["signals"], {"name": "picked", "value": -1}]
    else:
        sets = {name: list(rows) for name, rows in chart.extra.items()}
        spec["datasets"] = {"table": table, "picked": [], **sets}
    return {key: _plain(part) for key, part in spec.items()}


def _plain(value: Any) -> Any:
    """A copy with plain colours, without what is for a pointer and without characters that no XML holds."""
    if isinstance(value, str):
        return plain_colour(printable(value))
    if isinstance(value, dict):
        return {key: _plain(part) for key, part in value.items() if key not in _FOR_A_POINTER}
    return [_plain(part) for part in value] if isinstance(value, (list, tuple)) else value
