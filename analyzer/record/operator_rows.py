"""The operators of a record as rows of plain values, for tables of others: CSV, data frames."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from analyzer.record.analysis import OperatorResult, TensorInfo


def columns(operators: Iterable[OperatorResult]) -> dict[str, list[Any]]:
    """The rows of all operators column by column, in the order of ``COLUMNS``; None is not known."""
    rows = [row(operator) for operator in operators]
    return {name: [cells[name] for cells in rows] for name in COLUMNS}


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
