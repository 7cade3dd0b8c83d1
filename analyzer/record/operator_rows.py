"""The operators of a record as rows of plain values, for tables of others: CSV, data frames."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from analyzer.record.analysis import OperatorResult, TensorInfo


# Which attribute of an operator holds them (empty: the operator itself), what goes before the names, the names.
_PARTS = (
    ("", "", ("index", "name", "op_type", "domain", "module", "module_class", "phase")),
    ("source", "", ("file", "line", "code")),
    (
        "",
        "",
        ("inputs", "outputs", "flops", "macs", "bytes_read", "bytes_written", "intensity", "basis", "note"),
    ),
    ("cpu", "cpu_", ("time_s", "low_s", "high_s", "origin", "bound")),
    ("gpu", "gpu_", ("time_s", "low_s", "high_s", "origin", "bound", "supported", "placed_on", "why")),
    ("verdict", "verdict_", ("device", "speedup", "reason", "explanation")),
    ("", "", ("placement",)),
)
COLUMNS = tuple(f"{prefix}{name}" for _, prefix, names in _PARTS for name in names)


def columns(operators: Iterable[OperatorResult]) -> dict[str, list[Any]]:
    """Return the rows of all operators column by column, in the order of ``COLUMNS``; None is not known."""
    rows = [row(operator) for operator in operators]
    return {name: [cells[name] for cells in rows] for name in COLUMNS}


def row(operator: OperatorResult) -> Mapping[str, Any]:
    """Return the record's keys of one operator, nested ones joined by an underscore."""
    cells = {
        f"{prefix}{name}": getattr(getattr(operator, part) if part else operator, name, None)
        for part, prefix, names in _PARTS
        for name in names
    }
    return {**cells, "inputs": _tensors(operator.inputs), "outputs": _tensors(operator.outputs)}


def _tensors(tensors: tuple[TensorInfo, ...]) -> str:
    return "; ".join(f"{tensor.name}:{_shape(tensor)}:{tensor.dtype}" for tensor in tensors)


def _shape(tensor: TensorInfo) -> str:
    # A sequence or an optional has no shape; a scalar's is empty.
    if tensor.shape is None:
        return "?"
    return "x".join("?" if dim is None else str(dim) for dim in tensor.shape)
