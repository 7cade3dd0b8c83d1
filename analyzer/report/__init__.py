"""Reporting: an ``Analysis`` in, a string out; one module a format, imported when it is asked for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from types import MappingProxyType

from analyzer.errors import UsageError
from analyzer.record.analysis import Analysis


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """A way to write an analysis down.

    Attributes:
        name: What ``--format`` calls it.
        extension: Of the file it goes to, with the dot.
        module: Where its function lives.
        function: Takes an ``Analysis``, returns the text.
    """

    name: str
    extension: str
    module: str
    function: str = "render"


_ALL = (
    Format(name="html", extension=".html", module="analyzer.report.html"),
    Format(name="json", extension=".json", module="analyzer.record", function="to_json"),
    Format(name="text", extension=".txt", module="analyzer.report.text"),
    Format(name="markdown", extension=".md", module="analyzer.report.markdown"),
    Format(name="csv", extension=".csv", module="analyzer.report.csv_table"),
    Format(name="junit", extension=".xml", module="analyzer.report.junit"),
    Format(name="sarif", extension=".sarif", module="analyzer.report.sarif"),
    Format(name="github", extension=".github.txt", module="analyzer.report.github"),
)
FORMATS: Mapping[str, Format] = MappingProxyType({item.name: item for item in _ALL})


def find(name: str) -> Format:
    """The format of this name.

    Raises:
        UsageError: There is none.
    """
    try:
        return FORMATS[name]
    except KeyError:
        raise UsageError(
            f"No report format is called {name!r}.", hint=f"Choose among {', '.join(FORMATS)}."
        ) from None


def render(analysis: Analysis, format: str) -> str:  # noqa: A002 - the option's own name
    """The analysis in this format.

    The same analysis gives the same text: no clock, and no file is read but the page's own templates.

    Raises:
        UsageError: No format has this name.
    """
    chosen = find(format)
    text: str = getattr(import_module(chosen.module), chosen.function)(analysis)
    return text
