"""Reporting: what answers are made of, whatever was asked: figures with a note, tables of options."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerFigure:
    """A figure of the answer; ``note`` says what it is for, ``bad`` that something asked for is not kept."""

    name: str
    title: str
    figure: str
    interval: str = ""
    note: str = ""
    origin: str = ""
    bad: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TextTable:
    """A table of text for every format: the first column is a heading.

    Attributes:
        name: Its anchor on the page.
        title: A noun phrase.
        head, rows: The cells; all rows are as long as the head.
        figures: Columns that are flush right.
        narrow: Columns for a terminal; empty for all.
        sort: What each cell is sorted by, where the rows can be: a figure, a text, or None for not known.
        beside: What stands at each cell in smaller letters, an interval most often; empty where nothing does.
        chosen: The row that the record is about.
        mark: What the page writes beside the name of that row.
        pale: Rows that are no answer, shown for the sake of their reason.
        links: Where the first cell of each row leads on the page; empty where it leads nowhere.
        lead: A sentence or two on how to read it.
    """

    name: str = ""
    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    figures: tuple[int, ...]
    narrow: tuple[int, ...] = ()
    sort: tuple[tuple[float | str | None, ...], ...] = ()
    beside: tuple[tuple[str, ...], ...] = ()
    chosen: int | None = None
    mark: str = "as asked"
    pale: tuple[int, ...] = ()
    links: tuple[str, ...] = ()
    lead: str = ""


@dataclass(frozen=True, slots=True)
class TextColumn:
    """A column of a table.

    Attributes:
        head: Its heading.
        text: A row's cell.
        value: By which the cell is sorted; None for the cell's own text.
        beside: The cell's smaller text.
        narrow: Whether a terminal has it.
        figure: Whether it is flush right.
    """

    head: str
    text: Callable[[Any], str]
    value: Callable[[Any], float | str | None] | None = None
    beside: Callable[[Any], str] | None = None
    narrow: bool = True
    figure: bool = True


def text_table(rows: Sequence[Any], columns: Sequence[TextColumn], **more: Any) -> TextTable:
    """Return a table by its columns; ``more`` are further attributes of it."""
    return TextTable(
        head=tuple(column.head for column in columns),
        rows=tuple(tuple(column.text(row) for column in columns) for row in rows),
        figures=tuple(at for at, column in enumerate(columns) if column.figure),
        narrow=tuple(at for at, column in enumerate(columns) if column.narrow),
        sort=tuple(tuple((column.value or column.text)(row) for column in columns) for row in rows),
        beside=tuple(tuple(column.beside(row) if column.beside else "" for column in columns) for row in rows)
        if any(column.beside for column in columns)
        else (),
        **more,
    )


def some_rows(sheet: TextTable, rows: Sequence[int], title: str) -> TextTable:
    """Return these rows of a table under another title."""
    shown: dict[str, Any] = {
        name: tuple(getattr(sheet, name)[at] for at in rows)
        for name in ("rows", "sort", "beside", "links")
        if getattr(sheet, name)
    }
    chosen = rows.index(sheet.chosen) if sheet.chosen in rows else None
    pale = tuple(place for place, at in enumerate(rows) if at in sheet.pale)
    return replace(sheet, title=title, chosen=chosen, pale=pale, **shown)


def first_rows(sheet: TextTable, most: int) -> TextTable:
    """Return the first rows of a table; its title says of how many they are."""
    if len(sheet.rows) <= most:
        return sheet
    return some_rows(sheet, range(most), f"{sheet.title}, the first {most} of {len(sheet.rows)}")


def narrowed(sheet: TextTable) -> TextTable:
    """Return the columns for a terminal alone."""
    kept = sheet.narrow or range(len(sheet.head))
    cut: dict[str, Any] = {
        name: tuple(tuple(row[at] for at in kept) for row in getattr(sheet, name))
        for name in ("rows", "sort", "beside")
    }
    return replace(
        sheet,
        head=tuple(sheet.head[at] for at in kept),
        figures=tuple(place for place, at in enumerate(kept) if at in sheet.figures),
        narrow=(),
        **cut,
    )
