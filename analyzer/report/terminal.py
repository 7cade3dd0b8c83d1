"""Reporting: a document on a terminal, in colour by Rich, and as plain text for files and mails."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from analyzer.report.document import (
    ANSWER,
    SCREEN,
    WHOLE,
    Action,
    Block,
    Command,
    Document,
    Figures,
    Headline,
    Item,
    Items,
    Table,
    Text,
    some_rows,
    without_columns,
)
from analyzer.report.figure_text import marked
from analyzer.text import loggable, middle_cut, module_cut, printable

if TYPE_CHECKING:
    from rich.console import Console

# Columns of a file, which has no width of its own.
WIDTH = 100
# Letters of a table's first column and of a dotted path for whose sake other columns are left out, and the
# fewest of each where that is not enough.
_NAME, _PATH = 24, 12
_FEWEST_OF_NAMES, _FEWEST_OF_PATHS = 12, 8
# Blanks between two columns.
_GAP = 2
# Columns for the names of figures, and for figures; a longer figure ends with a colon.
_NAMES, _FIGURES = 16, 12
_TONES = {"cpu": "cyan", "gpu": "yellow"}


def mail(document: Document) -> str:
    """Return the answer of a document as lines to be pasted into a mail or a ticket, none of them wrapped."""
    shown = document.at(ANSWER)
    parts = ("\n".join(map(printable, filter(None, _mailed(block)))) for _, blocks in shown for block in blocks)
    # A line for each sentence: whatever a name of the model holds.
    return loggable("\n\n".join(parts)) + "\n"


def text(document: Document) -> str:
    """Return all of a document as plain text of at most 100 columns."""
    from rich.console import Console

    written = io.StringIO()
    print_document(document, Console(file=written, width=WIDTH, color_system=None), WHOLE)
    return "\n".join(line.rstrip() for line in written.getvalue().splitlines()) + "\n"


def print_document(document: Document, console: Console, detail: int = SCREEN) -> None:
    """Print the blocks of a document at a detail, an empty line between those that do not belong together."""
    last: Block | None = None
    for section, blocks in document.at(detail):
        for block in blocks:
            if last is not None and (block is blocks[0] or not _continues(last, block)):
                console.print()
            if block is blocks[0] and section.title:
                _print_line(console, section.title, "bold")
            _print_block(console, block, detail)
            last = block


def _continues(last: Block, block: Block) -> bool:
    """Return whether a block belongs to the one before, without an empty line between them."""
    if isinstance(block, Text):
        return isinstance(last, Headline | Text | Table)
    return isinstance(block, Items | Command) and isinstance(last, Headline | Text | Items)


def _print_block(console: Console, block: Block, detail: int) -> None:
    match block:
        case Headline():
            _print_line(console, f"{block.name}: {block.subject}", "dim")
            _print_line(console, block.sentence, "bold")
        case Text():
            style = {"error": "bold red", "small": "dim"}.get(block.style, "")
            _print_line(console, block.text, style)
        case Items():
            _print_line(console, block.title, "bold")
            for item in block.items:
                _print_line(console, _item(item), first="  - ")
                if isinstance(item, Action) and item.command:
                    _print_command(console, f"    {item.command}")
        case Figures():
            for line in _figure_lines(block):
                _print_line(console, line, rest=" " * _NAMES)
        case Command():
            _print_command(console, f"{block.label}: {block.line}")
        case Table():
            _print_table(console, block, detail)


def _item(item: Item) -> str:
    return ": ".join(item) if isinstance(item, tuple) else str(item)


def _print_command(console: Console, line: str) -> None:
    # Not broken: a line to be copied is one.
    console.print(_clean(line), markup=False, highlight=False, soft_wrap=True)


def _clean(text: str) -> str:
    # A mark and not a blank for what would steer the terminal: a reader sees that something was there.
    return loggable("".join(char if char.isprintable() else "?" for char in text))


def _print_line(console: Console, text: str, style: str = "", *, first: str = "", rest: str = "") -> None:
    """Print a paragraph, wrapped at words, its further lines below its first word or after ``rest``."""
    import textwrap

    lines = textwrap.wrap(
        _clean(text),
        console.width,
        initial_indent=first,
        subsequent_indent=rest or " " * len(first),
        # Paths and names of instances stay whole.
        break_on_hyphens=False,
    )
    # A wrapped line may begin anywhere: none may be a command to a CI server.
    shown = loggable("\n".join(lines))
    console.print(shown, style=style or None, markup=False, highlight=False, soft_wrap=True)


def _figure_lines(block: Figures) -> Iterator[str]:
    for one in block.figures:
        value = marked(one.figure, one.origin)
        # After a longer one, which is a name, no column stays.
        value = f"{value}:" if len(value) > _FIGURES and one.note else value
        interval = f"({one.interval}) " if one.interval else ""
        yield f"{one.name:<{_NAMES}}{value:<{_FIGURES}} {interval}{one.note}".rstrip()


def _print_table(console: Console, sheet: Table, detail: int) -> None:
    """Print a table without the columns that have no room; names are cut where figures leave too little."""
    from rich import box
    from rich import table as rich_table
    from rich.text import Text as Styled

    if sheet.shown and len(sheet.shown) < len(sheet.rows):
        sheet = some_rows(sheet, sheet.shown)
    if sheet.title:
        _print_line(console, sheet.title, "bold")
    if sheet.lead and detail == WHOLE:
        _print_line(console, sheet.lead)
    sheet = _fitted(sheet, console.width - (_GAP + 1 if sheet.chosen is not None else 0))
    grid = rich_table.Table(box=box.SIMPLE_HEAD, padding=(0, _GAP - 1, 0, 0), show_edge=False, pad_edge=False)
    if sheet.chosen is not None:
        grid.add_column("", no_wrap=True)
    for at, name in enumerate(sheet.head):
        grid.add_column(Styled(_clean(name)), justify="right" if at in sheet.figures else "left", no_wrap=True)
    for at, row in enumerate(sheet.rows):
        mark = [] if sheet.chosen is None else [">" if at == sheet.chosen else ""]
        style = "bold" if at == sheet.chosen else "dim" if at in sheet.pale else ""
        tone = _TONES.get(sheet.tones[at], "") if sheet.tones else ""
        grid.add_row(*map(Styled, (*mark, *row)), style=f"{style} {tone}".strip())
    console.print(grid)
    for line in sheet.below:
        if detail == WHOLE and line in sheet.lead:
            continue
        _print_line(console, line, first="  - ")


def _fitted(sheet: Table, width: int) -> Table:
    """Return a table whose rows have at most ``width`` letters."""
    rows = [list(map(_clean, row)) for row in sheet.rows]
    if sheet.beside:
        extra = [
            [f"{cell} ({_clean(more)})" if more else cell for cell, more in zip(row, smaller, strict=True)]
            for row, smaller in zip(rows, sheet.beside, strict=True)
        ]
        whole = _needed(sheet, extra, range(len(sheet.head)))
        rows = extra if whole <= width else rows
    left = list(range(len(sheet.head)))
    for at in sorted((at for at, when in enumerate(sheet.drop) if when), key=lambda at: -sheet.drop[at]):
        if _needed(sheet, rows, left) <= width:
            break
        left.remove(at)
    # Names give way before figures, which are none where they are cut.
    over = _needed(sheet, rows, left, least=False) - width
    words = [at for at in left[1:] if at not in sheet.figures and at not in sheet.paths]
    for column in (*sheet.paths, 0, *reversed(words)):
        if over > 0 and column in left:
            longest = max(len(row[column]) for row in rows)
            fewest = _FEWEST_OF_NAMES if column == 0 else _FEWEST_OF_PATHS
            room = max(longest - over, min(fewest, longest))
            cut = module_cut if column in sheet.paths else middle_cut
            for row in rows:
                row[column] = cut(row[column], room)
            over -= longest - room
    dropped = [at for at in range(len(sheet.head)) if at not in left]
    return without_columns(replace(sheet, rows=tuple(map(tuple, rows)), beside=()), dropped)


def _needed(sheet: Table, rows: list[list[str]], columns: Iterable[int], *, least: bool = True) -> int:
    """Return the letters of a row of these columns, names and paths at their least unless all are wanted."""
    total = -_GAP
    for at in columns:
        longest = max(map(len, (sheet.head[at], *(row[at] for row in rows))))
        if least and at in sheet.paths:
            longest = min(longest, _PATH)
        elif least and at == 0:
            longest = min(longest, _NAME)
        total += longest + _GAP
    return total


def _mailed(block: Block) -> Iterator[str]:
    """Yield the lines of a block: a line for each sentence, figure and row."""
    match block:
        case Headline():
            yield from (f"{block.name}: {block.subject}", "", block.sentence)
        case Text():
            yield block.text
        case Items():
            yield f"{block.title}:"
            for item in block.items:
                yield f"- {_item(item)}"
                yield item.command if isinstance(item, Action) else ""
        case Figures():
            for one in block.figures:
                interval = f" ({one.interval})" if one.interval else ""
                note = f", {one.note}" if one.note else ""
                yield f"{one.title}: {marked(one.figure, one.origin)}{interval}{note}"
        case Command():
            yield f"{block.label}: {block.line}"
        case Table():
            for row in block.rows:
                cells = (f"{head} {cell}" for head, cell in zip(block.head[1:], row[1:], strict=True) if cell)
                yield f"{row[0]}: {', '.join(cells)}"
