"""Whatever a record's texts hold: no format steers a terminal, commands a CI server or is broken by it."""

import base64
import csv
import dataclasses
import gzip
import io
import json
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any
from xml.etree import ElementTree

import pytest
import rendering
import report_factory as factory

from analyzer.errors import RecordError
from analyzer.record import from_dict, from_json, to_dict, to_json
from analyzer.record.analysis import Analysis, Finding
from analyzer.record.formats import FORMATS
from analyzer.report import findings_text, markdown, operator_columns
from analyzer.report.ci import junit, sarif
from analyzer.report.compare import build, document
from analyzer.text import json_escaped, loggable

# C0, DEL, C1, what turns the direction of writing, line separators.
CONTROLS = "\x00\x07\x1b[31m\x7f\x85\x9b2J\u061c\u200e\u200f\u2028\u2029\u202e\u2066"
# GitHub's runner trims a line before it looks for "::", and looks for "##[" anywhere in it.
HOSTILE = f"::error::a{CONTROLS}b\n::error::c\r\n \t ::stop-commands::d ##[error]e ##vso[task.complete]f]]>g"
FORBIDDEN = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)
COMMAND = re.compile(r"(?m)^\s*::(?:error|stop-commands)::|##\w*\[")


def texts(value: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    if isinstance(value, str):
        yield path
    elif isinstance(value, (dict, list)):
        for key, entry in value.items() if isinstance(value, dict) else enumerate(value):
            yield from texts(entry, (*path, key))


def put(record: Any, path: tuple[str | int, ...], value: str) -> str:
    *way, last = path
    for key in way:
        record = record[key]
    before: str = record[last]
    record[last] = value
    return before


@pytest.fixture(scope="module")
def hostile() -> Analysis:
    """A record with this in each text that may be any."""
    base = factory.analysis(4)
    finding = Finding(code="A101", severity="error", operator=1, message="m", fix="f", seconds=1e-3)
    record = to_dict(base) | {"findings": to_dict_of(finding)}
    places = list(texts(record))
    for path in places:
        before = put(record, path, HOSTILE)
        try:
            from_dict(record)
        except RecordError:  # one of a few words: a device, an origin
            put(record, path, before)
    kept = sum(value == HOSTILE for value in flat(record))
    assert kept > 40
    return from_dict(record)


def to_dict_of(finding: Finding) -> list[dict[str, Any]]:
    return [
        {name: getattr(finding, name) for name in ("code", "severity", "operator", "message", "fix", "seconds")}
    ]


def flat(value: Any) -> Iterator[Any]:
    if isinstance(value, (dict, list)):
        for entry in value.values() if isinstance(value, dict) else value:
            yield from flat(entry)
    else:
        yield value


def compared(write: Callable[[Any], str]) -> Callable[[Analysis], str]:
    return lambda analysis: write(build.compare([(HOSTILE, analysis), ("b" + HOSTILE, analysis)]))


def summary(analysis: Analysis) -> str:
    out = io.StringIO()
    out.write(rendering.screen(analysis, 120))
    return out.getvalue()


WRITERS: dict[str, Callable[[Analysis], str]] = {
    **{name: lambda analysis, name=name: analysis.render(name) for name in FORMATS},  # type: ignore[misc]
    "findings text": findings_text.render_text,
    "findings markdown": findings_text.render_markdown,
    "comparison text": compared(document.render_text),
    "comparison markdown": compared(document.render_markdown),
    "comparison json": compared(build.to_json),
    "comparison html": compared(document.render),
    "summary": summary,
    "summary to paste": rendering.mail,
}


@pytest.mark.parametrize("name", WRITERS)
def test_no_format_holds_a_control_character_or_a_command_of_a_strangers(hostile: Analysis, name: str) -> None:
    text = WRITERS[name](hostile)
    assert not FORBIDDEN.search(text)
    if name == "github":  # its commands are its own, and each finding is one
        assert sum(line.lstrip().startswith("::") for line in text.splitlines()) == 1
        assert "##[" not in text
    else:
        assert not COMMAND.search(text)


def test_what_a_page_carries_packed_holds_no_raw_control_character_either(hostile: Analysis) -> None:
    page = hostile.render("html")
    (packed,) = re.findall(r'<script type="text/plain" data-gzip="application/json"[^>]*>([^<]*)<', page)
    data = gzip.decompress(base64.b64decode(packed)).decode()
    assert not FORBIDDEN.search(data)
    assert json.loads(data)["name"] == HOSTILE


def test_machines_read_what_people_do_not_see(hostile: Analysis) -> None:
    assert from_json(to_json(hostile)) == hostile
    assert json.loads(hostile.render("sarif"))["runs"][0]["results"][0]["message"]["text"].startswith(HOSTILE)
    ElementTree.fromstring(junit.render(hostile).encode())


def test_a_rule_of_a_later_version_is_shown_by_its_code() -> None:
    finding = Finding(code="A999", severity="error", operator=None, message="m", fix="f")
    later = factory.analysis(2, findings=(finding,))
    for name in FORMATS:
        if name not in ("csv", "model-explorer"):  # operators alone
            assert "A999" in later.render(name), name
    assert "ruleIndex" not in json.loads(sarif.render(later))["runs"][0]["results"][0]
    assert "A999" in findings_text.render_markdown(later)


@pytest.mark.parametrize("name", ["m\udcff.onnx", "/a\udcff/m.onnx", "C:\\a\udcff\\m.onnx"])
def test_a_file_name_that_is_no_utf_8_is_written_in_every_format(name: str) -> None:
    base = factory.analysis(
        2, findings=(Finding(code="A101", severity="error", operator=None, message=name, fix="f"),)
    )
    record = to_dict(base)
    record["model"] |= {"name": name, "source": name}
    with suppress(RecordError):
        from_dict(record)
        pytest.fail("a record is read that no file can hold")
    named = dataclasses.replace(base, model=dataclasses.replace(base.model, name=name, source=name))
    for write in WRITERS.values():
        write(named).encode()
    # Read again it is a text of the same characters, with the half one spelled out.
    assert from_json(to_json(named)).model.name.isascii()
    assert "\\ud" in from_json(to_json(named)).model.name


BLANKS = ("", " ", "\t", "\u00a0", "\u200b", "\ufeff", "\r\n")


@pytest.mark.parametrize("sign", ["=", "+", "-", "@", "\uff1d", "\uff0b", "\uff0d", "\uff20"])
@pytest.mark.parametrize("text", [f"{blank}{{}}1" for blank in BLANKS])
def test_what_a_spreadsheet_may_take_for_a_formula_is_marked_as_text(text: str, sign: str) -> None:
    written = io.StringIO()
    csv.writer(written).writerow([operator_columns.cell(text.format(sign))])
    assert written.getvalue().startswith("'")
    assert written.getvalue().count("\n") == 1


def test_a_cell_holds_figures_and_words_as_they_are() -> None:
    assert [operator_columns.cell(value) for value in (0, -0.0, 0.5, False, None, "a=b")] == [
        0,
        0.0,
        0.5,
        False,
        "",
        "a=b",
    ]
    assert str(operator_columns.cell(-0.0)) == "0.0"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("::error::x", ": :error::x"),
        ("a\n \t::error::x", "a\n \t: :error::x"),
        ("\ufeff::error::x", "\ufeff: :error::x"),
        ("a ##[error]b", "a # #[error]b"),
        ("###vso[x", "## #vso[x"),
        ("## a ::b [c]\n:d", "## a ::b [c]\n:d"),
        ("a\x1b[2J\x9bb\r\n", "a\ufffd[2J\ufffdb\ufffd\n"),
    ],
)
def test_a_log_holds_no_line_that_a_ci_server_takes_for_a_command(text: str, said: str) -> None:
    assert loggable(text) == said


def test_escaped_json_has_the_same_value() -> None:
    value = {"a": HOSTILE, HOSTILE: ["é", "\U0001f600", "\\u001b", 'a"b']}
    for text in (json.dumps(value), json.dumps(value, ensure_ascii=False, indent=1)):
        assert json.loads(json_escaped(text)) == value
    assert json.loads(markdown.ascii_json(value)) == value
    assert markdown.ascii_json(value).isascii()
