"""Reporting: the operators as CSV, one row each, figures unrounded in SI base units.

Of a record that was asked for instances, these: they are its answer.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from analyzer.record.analysis import Analysis
from analyzer.record.operator_rows import COLUMNS, row
from analyzer.text import loggable, printable

# What a spreadsheet begins a formula with, in full width too (OWASP, "CSV Injection"): names of a model are a
# stranger's text. A blank before it does not hold some of them back, nor does what `printable` makes one of: a
# tab, a line break, a blank of no width.
_FORMULA = ("=", "+", "-", "@", "\uff1d", "\uff0b", "\uff0d", "\uff20")


def render(analysis: Analysis) -> str:
    """RFC 4180 with one heading line; an empty cell is "not known"."""
    if analysis.capacity is not None:
        options = analysis.capacity.options
        return table(INSTANCES, ({name: getattr(option, name) for name in INSTANCES} for option in options))
    return table(COLUMNS, (row(operator) for operator in analysis.operators))


def table(columns: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> str:
    """RFC 4180 with one heading line; an empty cell is "not known"."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\r\n")
    writer.writerow(columns)
    writer.writerows([cell(cells[name]) for name in columns] for cells in rows)
    return text.getvalue()


def cell(value: Any) -> Any:
    """Return a value as a cell: text that a spreadsheet would take for a formula is marked as text."""
    if isinstance(value, str):
        # On one line: a file of one row for each operator is read line by line too.
        text = loggable(printable(value))
        return f"'{text}" if text.lstrip().startswith(_FORMULA) else text
    if isinstance(value, float) and value == 0:
        return 0.0  # never "-0.0", which a record of somebody else's may hold
    # None is not known; a 0 in its place would be a figure.
    return "" if value is None else value


INSTANCES = (
    *("provider", "instance", "region", "device", "kind", "precision", "feasible", "reason", "origin"),
    *("price_date", "device_name", "replicas", "count", "low_count", "high_count", "max_batch", "max_delay_s"),
    *(
        "highest_rate_per_s",
        "low_rate_per_s",
        "high_rate_per_s",
        "utilisation",
        "mean_batch",
        "mean_s",
        "p50_s",
    ),
    *("p90_s", "p95_s", "p99_s", "tpot_p50_s", "tpot_p99_s", "tokens_per_s", "width", "room", "gpu_count"),
    "usd_per_hour",
    *("usd_per_month", "low_usd_per_month", "high_usd_per_month", "usd_per_million", "usd_per_million_tokens"),
)
