"""Markdown of a document, with everything escaped that Markdown or HTML would read."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from analyzer.report.document import (
    WHOLE,
    Block,
    Command,
    Document,
    Figures,
    Headline,
    Item,
    Items,
    Table,
    Text,
)
from analyzer.report.figure_text import marked
from analyzer.text import json_escaped, loggable
from analyzer.text import printable as printable

# "as": the formats have it from here, beside `escape`.

# Beside what formats: in a pull request # links an issue, @ mentions somebody and $ begins a formula
# (https://docs.github.com/en/get-started/writing-on-github), and everywhere | ends a table's cell.
_MARKDOWN = str.maketrans(
    {char: f"\\{char}" for char in "\\`*_[]|~#$"} | {"<": "&lt;", ">": "&gt;", "&": "&amp;", "@": "&#64;"}
)


def escape(text: str) -> str:
    """Return text that Markdown and HTML take for nothing but text, on one line."""
    return " ".join(printable(text).split()).translate(_MARKDOWN)


def ascii_json(value: Any) -> str:
    """Plain values as indented JSON in ASCII alone, so that no reader's guess of an encoding can spoil it."""
    # Read again in between: halves of characters are texts of whole ones then, which every reader takes.
    sound = json.loads(json_escaped(json.dumps(value, ensure_ascii=False, allow_nan=False)))
    return json_escaped(json.dumps(sound, indent=2)) + "\n"


def markdown(document: Document, detail: int = WHOLE) -> str:
    """Return a document as GitHub's Markdown."""
    parts: list[str] = []
    for section, blocks in document.at(detail):
        if section.title:
            parts.append(f"### {escape(section.title)}")
        parts += (part for block in blocks for part in _parts(block) if part)
    return loggable("\n\n".join(parts)) + "\n"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]], right: Iterable[int] = ()) -> str:
    """Return a table whose cells are Markdown already."""
    flush = set(right)
    rule = ["---:" if at in flush else "---" for at in range(len(head))]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (head, rule, *rows))


def _parts(block: Block) -> Iterator[str]:
    match block:
        case Headline():
            yield f"{'#' * block.level} {escape(block.name)}: {escape(block.sentence)}"
            yield f"{escape(block.subject)}."
        case Text():
            shown = escape(block.text)
            yield {"error": f"**{shown}**", "small": f"<sub>{shown}</sub>"}.get(block.style, shown)
        case Items():
            yield f"**{escape(block.title)}**"
            yield "\n".join(f"- {_item(item)}" for item in block.items)
        case Figures():
            rows = (
                (
                    escape(one.title),
                    f"**{escape(marked(one.figure, one.origin))}**",
                    escape(one.interval),
                    escape(one.note),
                )
                for one in block.figures
            )
            yield _table(("", "", "90 % interval, share", ""), rows, (1, 2))
        case Command():
            yield f"{escape(block.label)}: {_code(block.line)}"
        case Table():
            yield from _sheet_parts(block)


def _item(item: Item) -> str:
    if isinstance(item, str):
        return escape(item)
    if isinstance(item, tuple):
        return f"**{escape(item[0])}:** {escape(item[1])}"
    about = escape(str(item).removeprefix(item.title))
    return f"**{escape(item.title)}**{about} {_code(item.command) if item.command else ''}".rstrip()


def _code(line: str) -> str:
    # Between backticks no escape is read.
    inside = printable(line).replace("`", "'")
    return f"`{inside}`"


def _sheet_parts(sheet: Table) -> Iterator[str]:
    """Yield title, lead and rows of a table, folded up where it has more rows than most readers want."""
    cells = [_cells(sheet, at) for at in range(len(sheet.rows))]
    rows = _table([escape(name) for name in sheet.head], cells, sheet.figures)
    title, lead = escape(sheet.title), escape(sheet.lead)
    if sheet.most is not None and len(cells) > sheet.most:
        parts = "\n\n".join(filter(None, (lead, rows)))
        yield f"<details><summary>{title} ({len(cells):,} rows)</summary>\n\n{parts}\n\n</details>"
        return
    yield from filter(None, (f"### {title}" if title else "", lead, rows))


def _cells(sheet: Table, at: int) -> list[str]:
    row = sheet.rows[at]
    extra = sheet.beside[at] if sheet.beside else [""] * len(row)
    # Without the sign of a number: "#7" would link to issue 7.
    shown = [
        escape((f"{cell} ({more})" if more else cell).replace(" #", " "))
        for cell, more in zip(row, extra, strict=True)
    ]
    return [f"**{cell}**" if at == sheet.chosen and cell else cell for cell in shown]
