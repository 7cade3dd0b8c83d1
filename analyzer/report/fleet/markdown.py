"""Reporting: a fleet as Markdown for a pull request: the answer, what should move, every model, what failed."""

from __future__ import annotations

from analyzer.record.fleet import Fleet
from analyzer.report.answer import TextTable
from analyzer.report.escaping import escape
from analyzer.report.fleet import sheets, words
from analyzer.report.markdown import sheet_table, table
from analyzer.text import loggable

# More are folded up: a pull request's thread is read by many who want the answer alone.
MOST_ROWS = 12
# GitHub cuts a comment at 65,536 characters.
MOST_MODELS, MOST_MOVES, MOST_FAILURES = 200, 50, 50


def render(fleet: Fleet) -> str:
    """GitHub's Markdown; every text of the fleet is escaped, so that it neither formats nor mentions."""
    blocks = (
        f"## {escape(words.title(fleet))}",
        "\n".join(f"- {escape(text)}" for text in (*words.answer(fleet), words.left(fleet)) if text),
        _changes(fleet),
        _moves(fleet),
        _models(fleet),
        _failures(fleet),
        _shared(fleet),
        _biases(fleet),
        f"<sub>{escape(words.pricing(fleet))} {escape(fleet.tool.name)} {escape(fleet.tool.version)}</sub>",
    )
    return loggable("\n\n".join(block for block in blocks if block)) + "\n"


def _sheet(sheet: TextTable, most: int) -> str:
    left = len(sheet.rows) - most
    rest = f"\n\nThe page has {left:,} more." if left > 0 else ""
    return f"### {escape(sheet.title)}\n\n{sheet_table(sheet, MOST_ROWS, shown=most)}{rest}"


def _changes(fleet: Fleet) -> str:
    lines = "\n".join(f"- {escape(text)}" for text in fleet.changes)
    return f"### What changed\n\n{lines}" if lines else ""


def _moves(fleet: Fleet) -> str:
    sheet = sheets.moves(fleet)
    return _sheet(sheet, MOST_MOVES) if sheet is not None else ""


def _models(fleet: Fleet) -> str:
    return _sheet(sheets.models(fleet), MOST_MODELS) if fleet.models else ""


def _failures(fleet: Fleet) -> str:
    failures = words.failed(fleet)
    if not failures:
        return ""
    lines = [
        f"- **{escape(model.name)}** {words.FAILURES[model.failure.kind]}: {escape(model.failure.message)} "
        f"{escape(model.failure.hint)}".rstrip()
        for model in failures[:MOST_FAILURES]
        if model.failure is not None
    ]
    left = len(failures) - len(lines)
    rest = [f"- and {left:,} more"] if left else []
    return "\n".join(["### What failed", "", *lines, *rest])


def _shared(fleet: Fleet) -> str:
    if fleet.consolidation is None:
        return ""
    head = ("Machine", "Device", "Dollars", "Shared by")
    rows = [
        (
            escape(machine.title),
            escape(machine.device),
            escape(machine.dollars),
            escape(", ".join(f"{one.name} ({one.share})" for one in machine.models)),
        )
        for machine in sheets.shared(fleet)[:MOST_MOVES]
    ]
    said = " ".join(escape(text) for text in words.consolidated(fleet))
    return f"### Shared machines\n\n{said}\n\n{table(head, rows, (2,))}"


def _biases(fleet: Fleet) -> str:
    sheet = sheets.biases(fleet)
    return _sheet(sheet, MOST_ROWS) if sheet is not None else ""
