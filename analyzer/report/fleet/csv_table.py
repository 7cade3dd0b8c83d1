"""Reporting: a fleet's cells as CSV, one a row, for spreadsheets and scripts."""

from __future__ import annotations

from analyzer.record.fleet import Fleet
from analyzer.report.csv_table import table
from analyzer.report.fleet import flat


def render(fleet: Fleet) -> str:
    """The rows; see ``report.csv_table``."""
    return table(flat.COLUMNS, flat.rows(fleet))
