"""Reporting: a fleet's cells as CSV, one a row, for spreadsheets and scripts."""

from __future__ import annotations

import csv
import io

from analyzer.record.fleet import Fleet
from analyzer.report.csv_table import cell
from analyzer.report.fleet import flat


def render(fleet: Fleet) -> str:
    """RFC 4180 with one heading line; an empty cell is "not known"."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\r\n")
    writer.writerow(flat.COLUMNS)
    writer.writerows([cell(row[name]) for name in flat.COLUMNS] for row in flat.rows(fleet))
    return text.getvalue()
