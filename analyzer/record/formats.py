"""The formats that a record can be written in: names -> who writes them, looked up in data.

The writers lie above the record. They are named here by module and function, so that ``Analysis.render`` finds
them and nothing in this folder imports upward.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from types import MappingProxyType
from typing import TYPE_CHECKING

from analyzer.errors import UsageError

if TYPE_CHECKING:
    from analyzer.record.analysis import Analysis


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """A way to write an analysis down.

    Attributes:
        name: What ``--format`` calls it.
        extension: Of the file it goes to, with the dot.
        writer: ``module:function``; the function takes an ``Analysis`` and returns the text.
    """

    name: str
    extension: str
    writer: str


# In the order in which messages list them. No two share an extension: several may go to one folder.
_ALL = (
    Format(name="html", extension=".html", writer="analyzer.report.html:render"),
    Format(name="json", extension=".json", writer="analyzer.record.json_writer:to_json"),
    Format(name="text", extension=".txt", writer="analyzer.report.text:render"),
    Format(name="markdown", extension=".md", writer="analyzer.report.markdown:render"),
    Format(name="csv", extension=".csv", writer="analyzer.report.csv_table:render"),
    Format(name="junit", extension=".xml", writer="analyzer.report.junit:render"),
    Format(name="sarif", extension=".sarif", writer="analyzer.report.sarif:render"),
    Format(name="github", extension=".github.txt", writer="analyzer.report.github:render"),
)
FORMATS: Mapping[str, Format] = MappingProxyType({known.name: known for known in _ALL})


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
    module, function = find(format).writer.split(":")
    writer: Callable[[Analysis], str] = getattr(import_module(module), function)
    return writer(analysis)
