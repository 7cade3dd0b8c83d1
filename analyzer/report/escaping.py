"""Reporting: user text that neither formats a Markdown page nor drives a terminal."""

from __future__ import annotations

import json
from typing import Any

from analyzer.text import json_escaped

# "as": the formats have it from here, beside `escape`.
from analyzer.text import printable as printable

# Beside what formats: in a pull request # links an issue, @ mentions somebody and $ begins a formula
# (https://docs.github.com/en/get-started/writing-on-github), and everywhere | ends a table's cell.
_MARKDOWN = str.maketrans(
    {char: f"\\{char}" for char in "\\`*_[]|~#$"} | {"<": "&lt;", ">": "&gt;", "&": "&amp;", "@": "&#64;"}
)


def escape(text: str) -> str:
    """Text that Markdown and HTML take for nothing but text, on one line."""
    return " ".join(printable(text).split()).translate(_MARKDOWN)


def ascii_json(value: Any) -> str:
    """Plain values as indented JSON in ASCII alone, so that no reader's guess of an encoding can spoil it."""
    # Read again in between: halves of characters are texts of whole ones then, which every reader takes.
    sound = json.loads(json_escaped(json.dumps(value, ensure_ascii=False, allow_nan=False)))
    return json_escaped(json.dumps(sound, indent=2)) + "\n"
