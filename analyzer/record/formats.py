"""The formats that a record can be written in: names -> who writes them, looked up in data.

The writers lie above the record. They are named here by module and function, so that ``Analysis.render`` finds
them and nothing in this folder imports upward.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from analyzer.errors import UsageError

if TYPE_CHECKING:
    from analyzer.record.analysis import Analysis


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """A way to write an analysis down.

    Attributes:
        name: What ``--format`` calls it.
        extension: Of the file it goes to, with the dot.
        writer: ``module:function``; the function takes an ``Analysis`` (of a comparison: a ``Comparison``) and
            returns the text.
        mark: What in its beginning or its end tells a report of ours from any other file.
    """

    name: str
    extension: str
    writer: str
    mark: re.Pattern[str]

    def write(self, subject: Any) -> str:
        """The text of what is written down; the writer is imported here."""
        module, function = self.writer.split(":")
        writer: Callable[[Any], str] = getattr(import_module(module), function)
        return writer(subject)


def marked_by(text: str) -> re.Pattern[str]:
    """The mark of a format, ``^`` and ``$`` at every line."""
    return re.compile(text, re.MULTILINE)


# The last line of a report of findings: what was checked.
_CHECKED = r"^(?:passed: |failed: )?(?:\d+ (?:error|warning|note)s?|no findings).* \(.+ at opset \d+, .+\)\s*\Z"
# What writes the page, or the policy of one of an older release.
HTML_MARK = marked_by(
    r'<meta name="generator" content="analyze[ "]'
    r"|content=\"default-src 'none'; script-src (?:'sha256-[\w+/=]+' )+'unsafe-eval'; style-src 'unsafe-"
)
_DECIDED = r"decided for (?:latency|throughput|cost|energy)"
# What a report of a model that generates begins with: what was asked.
_GENERATED = r"[\d,]+ tokens in, [\d,]+ out, batch \d+"


# No format of a file: what a notebook shows of an analysis that is the value of its cell.
NOTEBOOK = Format(
    name="notebook", extension="", writer="analyzer.report.notebook:render", mark=marked_by(r"\A(?!)")
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
        writer="analyzer.record.json_writer:to_json",
        mark=marked_by(r'\A\{\s*"schema_version":\s*\d+,\s*"tool":\s*\{\s*"name":\s*"analyze"'),
    ),
    Format(
        name="text",
        extension=".txt",
        writer="analyzer.report.text:render",
        mark=marked_by(rf"\A.+: .*{_DECIDED}$|\A.+: {_GENERATED}|{_CHECKED}"),
    ),
    Format(
        name="markdown",
        extension=".md",
        writer="analyzer.report.markdown:render",
        mark=marked_by(rf"\A## .+: .+\n\n(?:.*{_DECIDED}\.|{_GENERATED})|\A## Analyzer check of "),
    ),
    Format(
        name="csv",
        extension=".csv",
        writer="analyzer.report.csv_table:render",
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
    return find(format).write(analysis)
