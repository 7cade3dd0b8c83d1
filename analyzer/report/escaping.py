"""Reporting: user text that neither formats a Markdown page nor drives a terminal."""

from __future__ import annotations

# Beside what formats: in a pull request # links an issue, @ mentions somebody and $ begins a formula
# (https://docs.github.com/en/get-started/writing-on-github), and everywhere | ends a table's cell.
_MARKDOWN = str.maketrans(
    {char: f"\\{char}" for char in "\\`*_[]|~#$"} | {"<": "&lt;", ">": "&gt;", "&": "&amp;", "@": "&#64;"}
)


def escape(text: str) -> str:
    """Text that Markdown and HTML take for nothing but text, on one line."""
    return " ".join(printable(text).split()).translate(_MARKDOWN)


def printable(text: str) -> str:
    """Text without what would steer a terminal or break a line."""
    return "".join(char if char.isprintable() else " " for char in text)
