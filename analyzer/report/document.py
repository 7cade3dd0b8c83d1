"""Reporting: the document of a record, which every format for people lays out: texts, lists, tables.

A document is built once from a record (``record_document``, ``compare``, ``fleet``). Markdown, the terminal,
plain text, notebooks and the static parts of the page render its blocks, so that all say the same figures in
the same words. A new fact is one block.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any, Literal

# How much a format shows: the answer alone (for a mail), one screen of a terminal, or all.
ANSWER, SCREEN, WHOLE = 0, 1, 2


@dataclass(frozen=True, slots=True)
class AnswerFigure:
    """A figure of the answer; ``note`` says what it is for, ``bad`` that it misses a limit."""

    name: str
    title: str
    figure: str
    note: str = ""
    interval: str = ""
    origin: str = ""
    bad: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A part of a document; ``detail`` is the least detail at which a format shows it."""

    detail: int = WHOLE


@dataclass(frozen=True, slots=True, kw_only=True)
class Headline(Block):
    """An answer in one sentence: ``name`` and ``subject`` say of what; ``level`` is that of its heading."""

    name: str
    subject: str
    sentence: str
    level: int = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Text(Block):
    """A paragraph; of ``small`` texts a format may make less."""

    text: str
    style: Literal["", "error", "small"] = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """An item of a list: a change with its gain, the operator and the line that it is about, and its command.

    ``index`` is the operator's; ``others`` are words for further ones.
    """

    title: str
    gain: str
    operator: str = ""
    index: int | None = None
    others: str = ""
    place: str = ""
    command: str = ""

    def __str__(self) -> str:
        about = ", ".join(filter(None, (self.gain, self.operator + self.others, self.place)))
        return f"{self.title}: {about}."


Item = str | tuple[str, str] | Action


@dataclass(frozen=True, slots=True, kw_only=True)
class Items(Block):
    """A list under a title; an item of two texts is a label and what it labels."""

    title: str
    items: tuple[Item, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures(Block):
    """The figures of an answer, the most wanted first."""

    figures: tuple[AnswerFigure, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Command(Block):
    """A command line to be copied, and what it does."""

    label: str
    line: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Table(Block):
    """A table of text; the first column is a heading.

    Attributes:
        name: Its anchor on the page.
        title: A noun phrase.
        head, rows: The cells; all rows are as long as the head.
        figures: Columns that are flush right.
        drop: For each column when a narrow format leaves it out: the highest first, 0 never; empty for never.
        paths: Columns of dotted paths, whose ends stay where they are cut.
        sort: The value by which each cell is sorted, a figure or a text; None for not known. Empty where rows
            are not sorted.
        beside: Smaller text at each cell, mostly an interval; empty where there is none.
        chosen: The row that the record is about.
        mark: The page's word for that row.
        pale: Rows that are no answer, shown for their reason.
        tones: The device of each row, ``cpu``, ``gpu`` or empty, by which a terminal colours it.
        cell_marks: The page's class of each cell, ``better`` or ``worse``; empty for none.
        head_marks: The page's class of each heading; empty for none.
        links: Where the first cell of each row leads on the page; empty where it leads nowhere.
        lead: A sentence or two on how to read it.
        below: Sentences for formats that have no room for all columns.
        shown: The rows that a terminal shows; empty for all.
        most: Above so many rows Markdown folds the table up.
    """

    name: str = ""
    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    figures: tuple[int, ...] = ()
    drop: tuple[int, ...] = ()
    paths: tuple[int, ...] = ()
    sort: tuple[tuple[float | str | None, ...], ...] = ()
    beside: tuple[tuple[str, ...], ...] = ()
    chosen: int | None = None
    mark: str = "as requested"
    pale: tuple[int, ...] = ()
    tones: tuple[str, ...] = ()
    cell_marks: tuple[tuple[str, ...], ...] = ()
    head_marks: tuple[str, ...] = ()
    links: tuple[str, ...] = ()
    lead: str = ""
    below: tuple[str, ...] = ()
    shown: tuple[int, ...] = ()
    most: int | None = None


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table.

    Attributes:
        head: Its heading.
        text: A row's cell.
        value: By which the cell is sorted; None for the cell's own text.
        beside: The cell's smaller text.
        drop: When a narrow format leaves it out: the highest first, 0 never.
        figure: Whether it is flush right.
    """

    head: str
    text: Callable[[Any], str]
    value: Callable[[Any], float | str | None] | None = None
    beside: Callable[[Any], str] | None = None
    drop: int = 0
    figure: bool = True


def amount(head: str, key: str, words: Callable[[Any], str], **more: Any) -> Column:
    """Return a column of an attribute of each row, as ``words`` write it; ``more`` as in ``Column``."""
    value = attrgetter(key)
    return Column(head, lambda row: words(value(row)), value, **more)


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """Blocks under a title, empty for none; ``name`` is the section's anchor on the page."""

    name: str
    title: str = ""
    blocks: tuple[Block, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """Everything that formats for people say of a record."""

    title: str
    sections: tuple[Section, ...]

    @classmethod
    def of(cls, title: str, *sections: Section) -> Document:
        """Return the document of those sections that have anything to say."""
        return cls(title=title, sections=tuple(section for section in sections if section.blocks))

    def at(self, detail: int) -> Iterator[tuple[Section, tuple[Block, ...]]]:
        """Yield the sections that have blocks at a detail, each with these blocks."""
        for section in self.sections:
            blocks = tuple(block for block in section.blocks if block.detail <= detail)
            if blocks:
                yield section, blocks


def texts(*result: str, **more: Any) -> Iterator[Text]:
    """Yield a paragraph for each text that is not empty."""
    return (Text(text=text, **more) for text in result if text)


def items(title: str, entries: Sequence[Item], **more: Any) -> Iterator[Items]:
    """Yield a list where it has any item."""
    if entries:
        yield Items(title=title, items=tuple(entries), **more)


def table(rows: Sequence[Any], columns: Sequence[Column], **more: Any) -> Table:
    """Return a table by its columns; ``more`` are further attributes of it."""
    return Table(
        head=tuple(column.head for column in columns),
        rows=tuple(tuple(column.text(row) for column in columns) for row in rows),
        figures=tuple(at for at, column in enumerate(columns) if column.figure),
        drop=tuple(column.drop for column in columns),
        sort=tuple(tuple((column.value or column.text)(row) for column in columns) for row in rows),
        beside=tuple(tuple(column.beside(row) if column.beside else "" for column in columns) for row in rows)
        if any(column.beside for column in columns)
        else (),
        **more,
    )


def some_rows(sheet: Table, rows: Sequence[int]) -> Table:
    """Return these rows of a table; its title says of how many they are."""
    shown: dict[str, Any] = {
        name: tuple(getattr(sheet, name)[at] for at in rows)
        for name in ("rows", "sort", "beside", "tones", "cell_marks", "links")
        if getattr(sheet, name)
    }
    return replace(
        sheet,
        title=f"{sheet.title} ({len(rows)} of {len(sheet.rows)})",
        chosen=rows.index(sheet.chosen) if sheet.chosen in rows else None,
        pale=tuple(place for place, at in enumerate(rows) if at in sheet.pale),
        shown=(),
        **shown,
    )


def without_columns(sheet: Table, dropped: Sequence[int]) -> Table:
    """Return a table without these columns."""
    left = [at for at in range(len(sheet.head)) if at not in dropped]
    cut: dict[str, Any] = {
        name: tuple(tuple(row[at] for at in left) for row in getattr(sheet, name))
        for name in ("rows", "sort", "beside")
    }
    return replace(
        sheet,
        head=tuple(sheet.head[at] for at in left),
        figures=tuple(place for place, at in enumerate(left) if at in sheet.figures),
        drop=tuple(sheet.drop[at] for at in left) if sheet.drop else (),
        paths=tuple(place for place, at in enumerate(left) if at in sheet.paths),
        **cut,
    )
