"""The formats that a record can be written in: names -> who writes them, looked up in data.

The writers lie above the record. They are named here by module and function, so that ``Analysis.render`` finds
them and nothing in this folder imports upward.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from analyzer.errors import UsageError
from analyzer.text import did_you_mean

if TYPE_CHECKING:
    from analyzer.record.analysis import Analysis


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """A way to write an analysis down.

    Attributes:
        name: What ``--format`` calls it.
        extension: Of the file it goes to, with the dot.
        writer: ``module:function``; the function takes an ``Analysis`` (of a comparison: a ``Comparison``) and
            returns the text. Of a picture it takes the names of charts too, and returns a file's content for
            each.
        mark: What in its beginning or its end tells a report of ours from any other file.
        charts: Of pictures, the names of all charts there may be, each a file of its own.
    """

    name: str
    extension: str
    writer: str
    mark: re.Pattern[str]
    charts: tuple[str, ...] = ()

    @property
    def is_picture(self) -> bool:
        """Return whether it is a picture of each chart."""
        return bool(self.charts)

    def write(self, subject: Any) -> str:
        """Return the text of what is written down; the writer is imported here.

        Raises:
            UsageError: It is no text but a picture of each chart.
        """
        if self.is_picture:
            raise UsageError(
                f"{self.name} is a picture of one chart, not a report.",
                hint=f"analysis.pictures({self.name!r}), or analyze render REPORT.json --format {self.name}.",
            )
        writer: Callable[[Any], str] = self._function()
        return writer(subject)

    def draw(self, subject: Any, charts: Sequence[str] = ()) -> dict[str, bytes]:
        """Return the pictures of these charts by name, of all where none is named.

        Raises:
            UsageError: There is no such chart, or the format is no picture.
        """
        if not self.is_picture:
            raise UsageError(f"{self.name} is no picture.", hint=f"Choose among {', '.join(PICTURES)}.")
        writer: Callable[[Any, Sequence[str]], dict[str, bytes]] = self._function()
        return writer(subject, charts)

    def _function(self) -> Any:
        module, function = self.writer.split(":")
        return getattr(import_module(module), function)


def marked_by(text: str) -> re.Pattern[str]:
    """Return the mark of a format, ``^`` and ``$`` at every line."""
    return re.compile(text, re.MULTILINE)


# The last line of a report of findings: what was checked.
_CHECKED = r"^(?:passed: |failed.*: )?(?:[\d,]+ (?:error|warning|note)s?|no findings).* \(.+\)\s*\Z"
HTML_MARK = marked_by(r'<meta name="generator" content="analyze[ "]')
_DECIDED = r"decided for (?:latency|throughput|cost|energy)"
# What a report of a model that generates begins with: what was asked.
_GENERATED = r"[\d,]+ tokens in, [\d,]+ out, batch \d+"


# No format of a file: what a notebook shows of an analysis that is the value of its cell.
NOTEBOOK = Format(
    name="notebook", extension="", writer="analyzer.report.html:notebook", mark=marked_by(r"\A(?!)")
)
# In the order in which messages list them. No two share an extension: several may go to one folder.
_ALL = (
    Format(
        name="html",
        extension=".html",
        writer="analyzer.report.html:render",
        mark=HTML_MARK,
    ),
    Format(
        name="json",
        extension=".json",
        writer="analyzer.record.encoding:to_json",
        mark=marked_by(r'\A\{\s*"schema_version":\s*\d+,\s*"tool":\s*\{\s*"name":\s*"analyze"'),
    ),
    Format(
        name="text",
        extension=".txt",
        writer="analyzer.report.record_document:render_text",
        mark=marked_by(rf"\A.+: .*{_DECIDED}$|\A.+: {_GENERATED}|{_CHECKED}"),
    ),
    Format(
        name="markdown",
        extension=".md",
        writer="analyzer.report.record_document:render_markdown",
        mark=marked_by(rf"\A## .+: .+\n\n(?:.*{_DECIDED}\.|{_GENERATED})|\A##? Analyzer check of "),
    ),
    Format(
        name="csv",
        extension=".csv",
        writer="analyzer.report.operator_columns:render",
        mark=marked_by(r"\Aindex,name,op_type,domain,module,"),
    ),
    Format(
        name="junit",
        extension=".xml",
        writer="analyzer.report.ci.junit:render",
        mark=marked_by(r'\A<\?xml .*\?>\s*<testsuites name="analyze"'),
    ),
    Format(
        name="sarif",
        extension=".sarif",
        writer="analyzer.report.ci.sarif:render",
        mark=marked_by(
            r'\A\{\s*"\$schema":.*,\s*"version":.*,\s*"runs":\s*\[\s*\{\s*"tool":\s*\{\s*"driver":\s*\{\s*"name":\s*"analyze"'
        ),
    ),
    Format(
        name="github",
        extension=".github.txt",
        writer="analyzer.report.ci.github:render",
        mark=marked_by(_CHECKED),
    ),
    Format(
        name="model-card",
        extension=".card.md",
        writer="analyzer.report.model_card:render",
        mark=marked_by(r"\A---\n# Written by analyze "),
    ),
    Format(
        name="model-explorer",
        extension=".explorer.json",
        writer="analyzer.report.model_explorer:render",
        mark=marked_by(r'\A\{\s*"name": "analyze: '),
    ),
)
FORMATS: Mapping[str, Format] = MappingProxyType({known.name: known for known in _ALL})
# In the order of the page; the names of ``report/charts``.
CHARTS = (
    "by-type",
    "by-module",
    "roofline",
    "batch-latency",
    "batch-throughput",
    "timeline",
    "cost",
    "generation-request",
    "generation-parts",
    "generation-tpot",
    "generation-tokens",
    "generation-ttft",
    "generation-frontier",
    "generation-devices",
    "capacity-traffic",
    "capacity-latency",
    "capacity-tpot",
)


def pictures(module: str, charts: tuple[str, ...]) -> dict[str, Format]:
    """Return the formats of pictures by name: no whole reports, but a file for each chart.

    Args:
        module: Has a function for each, of its name.
        charts: The names of all charts there may be.
    """
    # Both bear the program's name, an SVG as an attribute, a PNG as text.
    marks = {
        "svg": r'\A<svg [^>]*data-generator="analyze"',
        "png": r"\A\ufffdPNG[\s\S]*?tEXtSoftware\0analyze",
    }
    return {
        name: Format(
            name=name,
            extension=f".{name}",
            writer=f"{module}:{name}",
            mark=marked_by(mark),
            charts=charts,
        )
        for name, mark in marks.items()
    }


# The module that draws.
DRAWING = "analyzer.report.pictures"
PICTURES: Mapping[str, Format] = MappingProxyType(pictures(DRAWING, CHARTS))
# Those of a comparison.
COMPARED_CHARTS = (
    "latencies",
    "record-latency",
    "record-throughput",
    "record-types",
    "record-roofline",
)


def find(name: str) -> Format:
    """Return the format of this name.

    Raises:
        UsageError: There is none.
    """
    known = {**FORMATS, **PICTURES}
    try:
        return known[name]
    except KeyError:
        raise UsageError(
            f"No report format is called {name!r}.", hint=f"Choose among {', '.join(known)}."
        ) from None


def named_by_ending(output: str, known: Iterable[Format]) -> str:
    """Return the format that a file's name asks for: ``html`` of ``x.html``; empty where it asks for none."""
    ending = os.path.splitext(output)[1].lower()
    return "" if os.path.isdir(output) else next((form.name for form in known if form.extension == ending), "")


def find_charts(names: Iterable[str], known: Sequence[str] = CHARTS) -> tuple[str, ...]:
    """Return names of charts, each once.

    Args:
        names: What the user gave.
        known: All that there may be.

    Raises:
        UsageError: There is no chart of such a name.
    """
    chosen = tuple(dict.fromkeys(name.strip() for name in names if name.strip()))
    for name in chosen:
        if name not in known:
            hint = did_you_mean(name, known, f"Choose among {', '.join(known)}.")
            raise UsageError(f"No chart is called {name!r}.", hint=hint)
    return chosen


def render(analysis: Analysis, format: str) -> str:  # noqa: A002 - the option's own name
    """Return the analysis in this format.

    The same analysis gives the same text: no clock, and no file is read but the page's own templates.

    Raises:
        UsageError: No format has this name, or it is a picture.
    """
    return find(format).write(analysis)
