"""Reporting: the charts of a comparison as pictures."""

from __future__ import annotations

from collections.abc import Sequence

from analyzer import __version__
from analyzer.report.charts.caption import Caption, origin_sentences
from analyzer.report.compare.comparison import Comparison
from analyzer.report.compare.html_page import charts_of, title_of
from analyzer.report.pictures.draw import Captioned, as_png, as_svg, wanted


def svg(comparison: Comparison, names: Sequence[str] = ()) -> dict[str, bytes]:
    """A document for each chart, by its name.

    Args:
        comparison: What the charts are of.
        names: The charts that are wanted; all that there are where none is named.

    Raises:
        UsageError: There is no such chart, or none at all.
        LibraryError: The library that draws is not installed.
    """
    return as_svg(_captioned(comparison, names))


def png(comparison: Comparison, names: Sequence[str] = ()) -> dict[str, bytes]:
    """As :func:`svg`, in pixels."""
    return as_png(_captioned(comparison, names))


def _captioned(comparison: Comparison, names: Sequence[str]) -> list[Captioned]:
    return [
        (
            chart,
            Caption(
                title=chart.title,
                description=chart.alternative,
                subject=title_of(comparison.labels),
                footer=f"{origin_sentences(chart)} Made by analyze {__version__}.",
            ),
        )
        for chart in wanted(charts_of(comparison), names, of="comparison")
    ]
