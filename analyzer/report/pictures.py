"""Reporting: charts as SVG and PNG (the only user of vl-convert).

The library carries the JavaScript of Vega and a few fonts in one file and runs them by itself: no browser, and
no address is open to it.
"""

from __future__ import annotations

import re
import struct
import textwrap
import zlib
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any
from xml.etree import ElementTree
from xml.sax.saxutils import escape, quoteattr

from analyzer import __version__
from analyzer.errors import LibraryError, UsageError
from analyzer.record.analysis import Analysis
from analyzer.report import html
from analyzer.report.charts.caption import Caption, caption, caption_of
from analyzer.report.charts.chart import Chart, compact, vega_config
from analyzer.report.compare import document
from analyzer.report.compare.comparison import Comparison
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
    """Return the variables of the page's style sheet, as they are on paper and in daylight."""
    sheet = (templates_dir() / "report.css").read_text(encoding="utf-8")
    # Its first rule; those of dark pages come later and say more.
    rule = re.search(r"^:root \{(.*?)^\}", sheet, re.DOTALL | re.MULTILINE)
    if rule is None:
        raise ValueError("report.css defines no colours")
    return dict(re.findall(r"--([\w-]+):\s*([^;]+);", rule[1]))


def plain_colour(text: str) -> str:
    """Return a text with the style sheet's variables replaced by their values."""
    return _VARIABLE.sub(lambda match: light_colours()[match[1]], text)


def specification(chart: Chart) -> dict[str, Any]:
    """Return what Vega-Lite draws; nothing in it refers to the page."""
    names = [column.name for column in chart.columns]
    # Figures as the page has them, which draws the same points.
    table = [dict(zip(names, map(compact, row), strict=True)) for row in chart.rows]
    spec: dict[str, Any] = {**chart.spec, "width": WIDTH, "config": vega_config(FONT) | {"aria": False}}
    # No operator is selected in a picture.
    spec["datasets"] = {
        "table": table,
        "picked": [],
        **{name: list(rows) for name, rows in chart.extra.items()},
    }
    return {key: _plain(part) for key, part in spec.items()}


def _plain(value: Any) -> Any:
    """Return a copy with plain colours, without what is for a pointer or what no XML holds."""
    if isinstance(value, str):
        return plain_colour(printable(value))
    if isinstance(value, dict):
        return {key: _plain(part) for key, part in value.items() if key not in _FOR_A_POINTER}
    return [_plain(part) for part in value] if isinstance(value, (list, tuple)) else value


# By which a picture is told from any other: ``record/formats.py`` looks for it.
GENERATOR = "analyze"
# In pixels.
_MARGIN = 20
_TITLE_SIZE, _SMALL_SIZE = 17, 12
_LEADING = 1.35
# Of a letter, as a share of the size: that of a wide text in Liberation Sans, so that no line is cut.
_LETTER = 0.56


def sheet(name: str, drawing: str, caption: Caption) -> str:
    """Return a drawing, an SVG document, with its words as a document that can be forwarded alone."""
    size = ElementTree.fromstring(drawing).attrib
    width = float(size["width"]) + 2 * _MARGIN
    small: dict[str, Any] = {"size": _SMALL_SIZE, "weight": 400, "colour": "var(--muted)"}
    title, top = _block(caption.title, _MARGIN, width, size=_TITLE_SIZE, weight=600, colour="var(--text)")
    subject, top = _block(caption.subject, top, width, **small)
    top += _SMALL_SIZE
    footer, height = _block(caption.footer, top + float(size["height"]) + _SMALL_SIZE, width, **small)
    height += _MARGIN
    placed = drawing.replace("<svg ", f'<svg x="{_MARGIN}" y="{top:.2f}" ', 1)
    label = quoteattr(f"{name}-title {name}-description")
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" data-generator="{GENERATOR}" role="img" '
        f'aria-labelledby={label} width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="0 0 {width:.0f} {height:.0f}">'
        f'<title id="{name}-title">{_text(caption.title)}</title>'
        f'<desc id="{name}-description">{_text(caption.description)}</desc>'
        f'<rect width="100%" height="100%" fill="{plain_colour("var(--surface)")}"/>'
        f"{title}{subject}{placed}{footer}</svg>\n"
    )


def _block(text: str, top: float, width: float, *, size: int, weight: int, colour: str) -> tuple[str, float]:
    """Return a text as lines of SVG, the first of them below ``top``, and where the last ends."""
    lines = textwrap.wrap(printable(text), int((width - 2 * _MARGIN) / (size * _LETTER)))
    written = (
        f'<text x="{_MARGIN}" y="{top + size + at * size * _LEADING:.2f}" font-family="{FONT}" '
        f'font-size="{size}px" font-weight="{weight}" fill="{plain_colour(colour)}">{escape(line)}</text>'
        for at, line in enumerate(lines)
    )
    return "".join(written), top + len(lines) * size * _LEADING


def _text(text: str) -> str:
    return escape(printable(text))


PIP_LINE = "pip install 'onnx-analyzer[pictures]'"
# Of Vega-Lite, as the page's own (templates/vendor/README.md), as near as the library has one.
_VEGA_LITE = "6.4"
# Pixels of the picture for each of the drawing: sharp on a slide, and on a screen of twice the pixels.
_SCALE = 2.0
_CLIP = re.compile(r'( id="| clip-path="url\(#)clip(\d+)')
# In a PNG before its pixels: a signature of 8 bytes, then IHDR with 13 bytes of content and 12 around it.
_BEFORE_TEXTS = 8 + 13 + 12


def svg(subject: Analysis | Comparison, names: Sequence[str] = ()) -> dict[str, bytes]:
    """Return a document for each chart of these names, or of all; the same subject gives the same bytes.

    Raises:
        UsageError: There is no such chart, or none at all.
        LibraryError: The library that draws is not installed.
    """
    return {
        chart.name: sheet(chart.name, drawing(chart), words).encode()
        for chart, words in _captioned(subject, names)
    }


def png(subject: Analysis | Comparison, names: Sequence[str] = ()) -> dict[str, bytes]:
    """Return as :func:`svg`, twice as many pixels as the drawing has, with the same words in the file."""
    convert = library()
    return {
        chart.name: _with_words(
            convert.svg_to_png(sheet(chart.name, drawing(chart), words), scale=_SCALE), words
        )
        for chart, words in _captioned(subject, names)
    }


def _captioned(subject: Analysis | Comparison, names: Sequence[str]) -> list[tuple[Chart, Caption]]:
    if isinstance(subject, Analysis):
        charts = wanted(html.charts_of(subject), names, of=f"record of {subject.model.name}")
        return [(chart, caption(subject, chart)) for chart in charts]
    charts = wanted(document.charts_of(subject), names, of="comparison")
    title, maker = document.title(subject.labels), f"analyze {__version__}"
    return [(chart, caption_of(chart, title, maker)) for chart in charts]


def wanted(charts: Iterable[Chart], names: Sequence[str], *, of: str) -> tuple[Chart, ...]:
    """Return the charts of these names, in the order of the page; all where none is named.

    Raises:
        UsageError: One of them is not there, or there is none at all.
    """
    known = {chart.name: chart for chart in charts}
    if not known:
        raise UsageError(f"The {of} has no chart.", hint="The page says what is not known: --format html.")
    for name in names:
        if name not in known:
            raise UsageError(f"The {of} has no chart {name!r}.", hint=f"It has {', '.join(known)}.")
    return tuple(chart for name, chart in known.items() if not names or name in names)


def drawing(chart: Chart) -> str:
    """Return the chart alone as an SVG document."""
    # No address may be asked for anything.
    drawn = library().vegalite_to_svg(specification(chart), vl_version=_VEGA_LITE, allowed_base_urls=[])
    # Vega counts clips over all that a process draws, and in a page with several pictures ids must differ.
    numbers: dict[str, int] = {}
    return _CLIP.sub(
        lambda match: f"{match[1]}{chart.name}-clip{numbers.setdefault(match[2], len(numbers))}", drawn
    )


def _with_words(picture: bytes, words: Caption) -> bytes:
    """Return a PNG with its title and its words, by the keywords that the format gives them.

    PNG Specification (Third Edition), 11.3.3 Textual information.
    """
    texts = [_chunk(b"tEXt", b"Software\0" + GENERATOR.encode())]
    for keyword, text in ((b"Title", words.title), (b"Description", words.description)):
        # Five zeros: the keyword's end, not compressed, no method, no language, no translated keyword.
        texts.append(_chunk(b"iTXt", keyword + b"\0\0\0\0\0" + printable(text).encode()))
    return picture[:_BEFORE_TEXTS] + b"".join(texts) + picture[_BEFORE_TEXTS:]


def _chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


def library() -> Any:
    """Return the library that draws the pictures.

    Raises:
        LibraryError: It is not installed.
    """
    try:
        import vl_convert
    except ImportError as error:
        raise LibraryError(
            "Pictures are drawn by vl-convert, which is not installed.", hint=PIP_LINE
        ) from error
    return vl_convert
