"""The formats of a record for people, by one name each."""

from __future__ import annotations

import io

from rich.console import Console

from analyzer.record.analysis import Analysis
from analyzer.report import html, record_document, terminal


def text(analysis: Analysis) -> str:
    """Return the record as plain text."""
    return record_document.render_text(analysis)


def markdown(analysis: Analysis) -> str:
    """Return the record as Markdown."""
    return record_document.render_markdown(analysis)


def mail(analysis: Analysis) -> str:
    """Return the answer for a mail."""
    return terminal.mail(record_document.document(analysis))


def notebook(analysis: Analysis) -> str:
    """Return what a notebook shows."""
    return html.notebook(analysis)


def screen(analysis: Analysis, width: int = 100) -> str:
    """Return one screen of a terminal."""
    console = Console(file=io.StringIO(), width=width, color_system=None)
    terminal.print_document(record_document.document(analysis), console)
    shown = console.file
    assert isinstance(shown, io.StringIO)
    return shown.getvalue()
