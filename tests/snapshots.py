"""Reduce what a command or a report wrote to a snapshot that a person can read in a diff.

A record becomes one line per key: how many values stand at the key, their sum where they are numbers, and a
digest of all of them. A key that was renamed is a line that moved with its digest. Texts stay as they are,
pages as the text that they hold before any script runs.
"""

from __future__ import annotations

import csv
import difflib
import hashlib
import html.parser
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

# Where and when: the only parts that may differ between two runs of a command that measures nothing.
_ENVIRONMENT = ("environment", "tool")
# What a session here computed: kernels of another processor round otherwise.
_COMPUTED_HERE = ("max_abs_error", "max_rel_error")
# A text that names more characters than this is shown by its digest alone.
_LONGEST_SHOWN = 100
# Of a difference no more lines are shown.
_MOST_SHOWN = 60
# Digits that are compared: sums in another order, on another processor, differ in the last of 16.
_DIGITS = 9


def hold(path: Path, got: str, *, update: bool) -> None:
    """Hold a text against its snapshot, or write the snapshot anew."""
    if update:
        path.parent.mkdir(exist_ok=True)
        path.write_text(got, encoding="utf-8")
    wanted = path.read_text(encoding="utf-8") if path.exists() else ""
    changes = list(
        difflib.unified_diff(wanted.splitlines(), got.splitlines(), "expected", "got", lineterm="", n=0)
    )
    assert not changes, "\n".join([f"{len(changes)} lines differ", *changes[:_MOST_SHOWN]])


def of_json(text: str) -> str:
    """Return a line per key of a JSON document, list positions left out."""
    values: dict[str, list[Any]] = {}
    for place, value in _leaves(json.loads(text), ""):
        values.setdefault(place, []).append(value)
    return "\n".join(_line(place, found) for place, found in values.items())


def of_page(text: str) -> str:
    """Return the text of an HTML page, a line per block, without scripts and styles."""
    reader = _PageText()
    reader.feed(text)
    lines = (" ".join(line.split()) for line in "".join(reader.parts).splitlines())
    shown = "\n".join(line for line in lines if line)
    shown = re.sub(
        r"(?m)^(Date|Machine|Processor|Export from cache|Time to [a-z ]+)\n.*$", r"\1\n<here>", shown
    )
    # Where nothing is measured, to find that out takes long enough to be shown on a busy machine alone.
    shown = shown.replace("Time to measure\n<here>\n", "")
    return scrubbed(re.sub(r"(?m)^Versions\n(?:[\w-]+\n\d[\w.+-]*\n)+", "Versions\n<here>\n", shown))


def of_csv(text: str) -> str:
    """Return a line per column of a CSV table."""
    rows = list(csv.reader(text.splitlines()))
    return (
        "\n".join(_line(name, [row[at] for row in rows[1:]]) for at, name in enumerate(rows[0])) if rows else ""
    )


def of_file(path: Path) -> str:
    """Return the snapshot of a file by its extension; of a model, nothing."""
    if path.suffix in (".onnx", ".data", ".bin", ".png", ".npz"):
        return ""
    text = path.read_text(encoding="utf-8")
    if path.suffix in (".json", ".sarif"):
        return scrubbed(of_json(text))
    if path.suffix == ".html":
        return of_page(text)
    return of_csv(text) if path.suffix == ".csv" else scrubbed(text)


def scrubbed(text: str) -> str:
    """Return the text without dates of today, versions of libraries and durations of this run."""
    # Click names -h alone where a command was first met in its group.
    text = re.sub(r"(-h, )?--help +Show this", "--help  Show this", text)
    text = re.sub(r"\b20\d\d-\d\d-\d\d[T ]\d\d:\d\d(:\d\d)?(\.\d+)?([+-]\d\d:\d\d|Z)?( UTC)?", "<time>", text)
    return re.sub(r"\b(analyze|onnx-analyzer|torch|numpy|scipy|onnx) \d+\.\d+[\w.+]*", r"\1 <version>", text)


def _leaves(value: Any, place: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict) and value:
        for key, entry in value.items():
            if place or key not in _ENVIRONMENT:
                yield from _leaves(entry, f"{place}.{key}" if place else key)
    elif isinstance(value, list) and value:
        for entry in value:
            yield from _leaves(entry, f"{place}[]")
    else:
        yield place, value


def _number(text: str) -> str | float:
    try:
        return float(text)
    except ValueError:
        return text


def _line(place: str, values: list[Any]) -> str:
    if place.endswith(_COMPUTED_HERE):
        return f"{place}: <here>"
    rounded = [float(f"{value:.{_DIGITS}g}") if isinstance(value, float) else value for value in values]
    digest = hashlib.sha256(json.dumps(rounded, sort_keys=True).encode()).hexdigest()[:10]
    numbers = [value for value in rounded if isinstance(value, (int, float)) and not isinstance(value, bool)]
    if len(rounded) == 1 or len({*map(json.dumps, rounded)}) == 1:
        shown = scrubbed(json.dumps(rounded[0]))
        if len(shown) > _LONGEST_SHOWN:
            shown = f"{shown[:_LONGEST_SHOWN]}... {digest}"
        return f"{place}: {shown}" + (f" x {len(rounded)}" if len(rounded) > 1 else "")
    total = f" sum {sum(numbers):.6g}" if numbers else ""
    return f"{place}: {len(rounded)} values{total} {digest}"


class _PageText(html.parser.HTMLParser):
    _HIDDEN = ("script", "style", "template")
    _INLINE = (
        "a",
        "abbr",
        "b",
        "code",
        "em",
        "i",
        "kbd",
        "small",
        "span",
        "strong",
        "sub",
        "sup",
        "time",
        "var",
    )

    def __init__(self) -> None:
        super().__init__()
        self.parts: list[str] = []
        self._hidden = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:  # noqa: ARG002
        self._hidden += tag in self._HIDDEN
        if tag not in self._INLINE:
            self.parts.append(" | " if tag in ("td", "th") else "\n")

    def handle_endtag(self, tag: str) -> None:
        self._hidden -= tag in self._HIDDEN

    def handle_data(self, data: str) -> None:
        if not self._hidden:
            self.parts.append(" ".join(data.split("\n")))
