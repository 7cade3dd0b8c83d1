"""Reporting: charts as SVG and PNG (the only user of vl-convert).

The library carries the JavaScript of Vega and a few fonts in one file and runs them by itself: no browser, and
no address is open to it.
"""

from __future__ import annotations

import re
import struct
import zlib
from collections.abc import Iterable, Sequence
from typing import Any

from analyzer import __version__
from analyzer.errors import LibraryError, UsageError
from analyzer.record.analysis import Analysis
from analyzer.report import page
from analyzer.report.charts.caption import Caption, caption, origin_sentences
from analyzer.report.charts.chart import Chart
from analyzer.report.compare import html_page
from analyzer.report.compare.comparison import Comparison
from analyzer.report.pictures.sheet import GENERATOR, sheet
from analyzer.report.pictures.specification import specification
from analyzer.text import printable

PIP_LINE = "pip install 'onnx-analyzer[pictures]'"
# Of Vega-Lite, as the page's own (templates/vendor/README.md), as near as the library has one.
_VEGA_LITE = "6.4"
# Pixels of the picture for each of the drawing: sharp on a slide, and on a screen of twice the pixels.
_SCALE = 2.0
_CLIP = re.compile(r'( id="| clip-path="url\(#)clip(\d+)')
# In a PNG before its pixels: a signature of 8 bytes, then IHDR with 13 bytes of content and 12 around it.
_BEFORE_TEXTS = 8 + 13 + 12


def svg(subject: Analysis | Comparison, names: Sequence[str] = ()) -> dict[str, bytes]:
    """A document for each chart, by its name; the same record or comparison gives the same bytes.

    Args:
        subject: What the charts are of.
        names: The charts that are wanted; all that there are where none is named.

    Raises:
        UsageError: There is no such chart, or none at all.
        LibraryError: The library that draws is not installed.
    """
    return {
        chart.name: sheet(chart.name, drawing(chart), words).encode()
        for chart, words in _captioned(subject, names)
    }


def png(subject: Analysis | Comparison, names: Sequence[str] = ()) -> dict[str, bytes]:
    """As :func:`svg`, twice as many pixels as the drawing has, with the same words in the file."""
    convert = library()
    return {
        chart.name: _with_words(
            convert.svg_to_png(sheet(chart.name, drawing(chart), words), scale=_SCALE), words
        )
        for chart, words in _captioned(subject, names)
    }


def _captioned(subject: Analysis | Comparison, names: Sequence[str]) -> list[tuple[Chart, Caption]]:
    if isinstance(subject, Analysis):
        charts = wanted(page.charts_of(subject), names, of=f"record of {subject.model.name}")
        return [(chart, caption(subject, chart)) for chart in charts]
    return [
        (
            chart,
            Caption(
                title=chart.title,
                description=chart.alternative,
                subject=html_page.title_of(subject.labels),
                footer=f"{origin_sentences(chart)} Made by analyze {__version__}.",
            ),
        )
        for chart in wanted(html_page.charts_of(subject), names, of="comparison")
    ]


def wanted(charts: Iterable[Chart], names: Sequence[str], *, of: str) -> tuple[Chart, ...]:
    """The charts of these names, in the order of the page; all where none is named.

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
    """The chart alone as an SVG document."""
    convert, spec = library(), specification(chart)
    # No address may be asked for anything.
    if chart.engine == "vega":
        drawn = convert.vega_to_svg(spec, allowed_base_urls=[])
    else:
        drawn = convert.vegalite_to_svg(spec, vl_version=_VEGA_LITE, allowed_base_urls=[])
    # Vega counts clips over all that a process draws, and in a page with several pictures ids must differ.
    numbers: dict[str, int] = {}
    return _CLIP.sub(
        lambda match: f"{match[1]}{chart.name}-clip{numbers.setdefault(match[2], len(numbers))}", drawn
    )


def _with_words(picture: bytes, words: Caption) -> bytes:
    """A PNG with its title and its words, by the keywords that the format gives them.

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
    """What draws the pictures.

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
