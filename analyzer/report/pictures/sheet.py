"""Reporting: a drawing on a sheet of its own: title, words, what it is of, whence its figures are."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass
from xml.etree import ElementTree
from xml.sax.saxutils import escape, quoteattr

from analyzer.report.charts.caption import Caption
from analyzer.report.pictures.specification import FONT, plain_colour
from analyzer.text import printable

# By which a picture is told from any other: ``record/formats.py`` looks for it.
GENERATOR = "analyze"
# In pixels.
_MARGIN = 20
_TITLE_SIZE, _SMALL_SIZE = 17, 12
_LEADING = 1.35
# Of a letter, as a share of the size: that of a wide text in Liberation Sans, so that no line is cut.
_LETTER = 0.56


@dataclass(frozen=True, slots=True, kw_only=True)
class _Lines:
    lines: tuple[str, ...]
    size: int
    weight: int
    colour: str

    @property
    def height(self) -> float:
        return len(self.lines) * self.size * _LEADING

    def markup(self, top: float) -> str:
        """The lines as SVG, the first of them below ``top``."""
        return "".join(
            f'<text x="{_MARGIN}" y="{top + self.size + at * self.size * _LEADING:.2f}" '
            f'font-family="{FONT}" font-size="{self.size}px" font-weight="{self.weight}" '
            f'fill="{plain_colour(self.colour)}">{escape(line)}</text>'
            for at, line in enumerate(self.lines)
        )


def sheet(name: str, drawing: str, caption: Caption) -> str:
    """A drawing as a document that can be forwarded alone.

    Args:
        name: Of the chart; ids of the document begin with it.
        drawing: An SVG document.
        caption: What is written above and below.
    """
    size = ElementTree.fromstring(drawing).attrib
    width = float(size["width"]) + 2 * _MARGIN
    title = _lines(caption.title, width, size=_TITLE_SIZE, weight=600, colour="var(--text)")
    subject = _lines(caption.subject, width, size=_SMALL_SIZE, weight=400, colour="var(--muted)")
    footer = _lines(caption.footer, width, size=_SMALL_SIZE, weight=400, colour="var(--muted)")
    top = _MARGIN + title.height + subject.height + _SMALL_SIZE
    bottom = top + float(size["height"]) + _SMALL_SIZE
    height = bottom + footer.height + _MARGIN
    placed = drawing.replace("<svg ", f'<svg x="{_MARGIN}" y="{top:.2f}" ', 1)
    label = quoteattr(f"{name}-title {name}-description")
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" data-generator="{GENERATOR}" role="img" '
        f'aria-labelledby={label} width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="0 0 {width:.0f} {height:.0f}">'
        f'<title id="{name}-title">{_text(caption.title)}</title>'
        f'<desc id="{name}-description">{_text(caption.description)}</desc>'
        f'<rect width="100%" height="100%" fill="{plain_colour("var(--surface)")}"/>'
        f"{title.markup(_MARGIN)}{subject.markup(_MARGIN + title.height)}{placed}{footer.markup(bottom)}"
        "</svg>\n"
    )


def _lines(text: str, width: float, *, size: int, weight: int, colour: str) -> _Lines:
    letters = int((width - 2 * _MARGIN) / (size * _LETTER))
    return _Lines(lines=tuple(textwrap.wrap(printable(text), letters)), size=size, weight=weight, colour=colour)


def _text(text: str) -> str:
    return escape(printable(text))
