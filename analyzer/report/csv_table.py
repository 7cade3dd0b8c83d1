"""Reporting: the operators as CSV, one row each, figures unrounded in SI base units.

Of a record that was asked for instances, these: they are its answer.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from typing import Any

from analyzer.record.analysis import Analysis, OperatorResult, TensorInfo
from analyzer.record.capacity import CapacityOption
from analyzer.text import loggable, printable

# What a spreadsheet begins a formula with, in full width too (OWASP, "CSV Injection"): names of a model are a
# stranger's text. A blank before it does not hold some of them back, nor does what `printable` makes one of: a
# tab, a line break, a blank of no width.
_FORMULA = ("=", "+", "-", "@", "\uff1d", "\uff0b", "\uff0d", "\uff20")


def render(analysis: Analysis) -> str:
    """RFC 4180 with one heading line; an empty cell is "not known"."""
    if analysis.capacity is not None:
        options = analysis.capacity.options
        return _table(INSTANCES, ({name: getattr(option, name) for name in INSTANCES} for option in options))
    return _table(COLUMNS, (row(operator) for operator in analysis.operators))


def _table(columns: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\r\n")
    writer.writerow(columns)
    writer.writerows([cell(cells[name]) for name in columns] for cells in rows)
    return text.getvalue()


def cell(value: Any) -> Any:
    """A value as a cell: text that a spreadsheet would take for a formula is marked as text."""
    if isinstance(value, str):
        # On one line: a file of one row for each operator is read line by line too.
        text = loggable(printable(value))
        return f"'{text}" if text.lstrip().startswith(_FORMULA) else text
    if isinstance(value, float) and value == 0:
        return 0.0  # never "-0.0", which a record of somebody else's may hold
    # None is not known; a 0 in its place would be a figure.
    return "" if value is None else value


def row(operator: OperatorResult) -> Mapping[str, Any]:
    """The record's keys of one operator, nested ones joined by an underscore."""
    return dict(_pairs(operator))


def _pairs(operator: OperatorResult) -> Iterator[tuple[str, Any]]:
    for name in ("index", "name", "op_type", "domain", "module", "module_class", "phase"):
        yield name, getattr(operator, name)
    yield "file", operator.source.file if operator.source else None
    yield "line", operator.source.line if operator.source else None
    yield "code", operator.source.code if operator.source else None
    yield "inputs", _tensors(operator.inputs)
    yield "outputs", _tensors(operator.outputs)
    for name in ("flops", "macs", "bytes_read", "bytes_written", "intensity", "basis", "note"):
        yield name, getattr(operator, name)
    for side in ("cpu", "gpu"):
        for name in ("time_s", "low_s", "high_s", "origin", "bound"):
            yield f"{side}_{name}", getattr(getattr(operator, side), name, None)
    for name in ("supported", "placed_on", "why"):
        yield f"gpu_{name}", getattr(operator.gpu, name, None)
    for name in ("device", "speedup", "reason", "explanation"):
        yield f"verdict_{name}", getattr(operator.verdict, name)
    yield "placement", operator.placement


def _tensors(tensors: tuple[TensorInfo, ...]) -> str:
    return "; ".join(f"{tensor.name}:{_shape(tensor)}:{tensor.dtype}" for tensor in tensors)


def _shape(tensor: TensorInfo) -> str:
    # A sequence or an optional has no shape; a scalar's is empty.
    if tensor.shape is None:
        return "?"
    return "x".join("?" if dim is None else str(dim) for dim in tensor.shape)


# Written out and not taken from the first row: a model without operators has its heading too.
COLUMNS = (
    *("index", "name", "op_type", "domain", "module", "module_class", "phase", "file", "line", "code"),
    *("inputs", "outputs", "flops", "macs", "bytes_read", "bytes_written", "intensity", "basis", "note"),
    *("cpu_time_s", "cpu_low_s", "cpu_high_s", "cpu_origin", "cpu_bound"),
    *(
        "gpu_time_s",
        "gpu_low_s",
        "gpu_high_s",
        "gpu_origin",
        "gpu_bound",
        "gpu_supported",
        "gpu_placed_on",
        "gpu_why",
    ),
    *("verdict_device", "verdict_speedup", "verdict_reason", "verdict_explanation", "placement"),
)

INSTANCES = tuple(item.name for item in fields(CapacityOption))
