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
class OptionTable:
    """A table of text: the first column is a heading.

    Attributes:
        name: Its anchor on the page.
        title: A noun phrase.
        head, rows: The cells; all rows are as long as the head.
        figures: Columns that are flush right.
        narrow: Columns for a terminal.
        sort: What each cell is sorted by, where the rows can be: a figure, a text, or None for not known.
        beside: What is told of each cell in smaller letters, an interval most often; empty where nothing is.
        chosen: The row that the record is about.
        mark: What the page writes beside the name of that row.
        pale: Rows that are no answer, told for the sake of their reason.
        links: Where the first cell of each row leads on the page; empty where it leads nowhere.
        lead: A sentence or two on how to read it.
    """

    name: str
    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    figures: tuple[int, ...]
    narrow: tuple[int, ...]
    sort: tuple[tuple[float | str | None, ...], ...] = ()
    beside: tuple[tuple[str, ...], ...] = ()
    chosen: int | None = None
    mark: str = "as asked"
    pale: tuple[int, ...] = ()
    links: tuple[str, ...] = ()
    lead: str = ""


@dataclass(frozen=True, slots=True)
class OptionColumn:
    """A column of a table of options.

    Attributes:
        head: Its heading.
        text: A row's cell.
        value: By which the cell is sorted.
        beside: The cell's smaller text.
        narrow: Whether a terminal has it.
        figure: Whether it is flush right.
    """

    head: str
    text: Callable[[Any], str]
    value: Callable[[Any], float | str | None]
    beside: Callable[[Any], str] | None = None
    narrow: bool = True
    figure: bool = True


def option_table(rows: Sequence[Any], columns: Sequence[OptionColumn], **more: Any) -> OptionTable:
    """Return a table of options by its columns; ``more`` are further attributes of it."""
    return OptionTable(
        head=tuple(column.head for column in columns),
        rows=tuple(tuple(column.text(row) for column in columns) for row in rows),
        figures=tuple(at for at, column in enumerate(columns) if column.figure),
        narrow=tuple(at for at, column in enumerate(columns) if column.narrow),
        sort=tuple(tuple(column.value(row) for column in columns) for row in rows),
        beside=tuple(tuple(column.beside(row) if column.beside else "" for column in columns) for row in rows)
        if any(column.beside for column in columns)
        else (),
        **more,
    )


def first_rows(sheet: OptionTable, most: int) -> OptionTable:
    """The first rows of a table; its title says of how many they are."""
    if len(sheet.rows) <= most:
        return sheet
    title = f"{sheet.title}, the first {most} of {len(sheet.rows)}"
    cut = {name: getattr(sheet, name)[:most] for name in ("rows", "sort", "beside", "links")}
    return replace(sheet, title=title, **cut)


def narrowed(sheet: OptionTable) -> OptionTable:
    """The columns for a terminal alone."""
    kept = sheet.narrow
    return OptionTable(
        name=sheet.name,
        title=sheet.title,
        head=tuple(sheet.head[at] for at in kept),
        rows=tuple(tuple(row[at] for at in kept) for row in sheet.rows),
        figures=tuple(place for place, at in enumerate(kept) if at in sheet.figures),
        narrow=tuple(range(len(kept))),
    )
