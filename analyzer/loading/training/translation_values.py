"""What translations of our own are written with: constants, sizes and types."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from analyzer.loading.torch_private import emit

if TYPE_CHECKING:
    import onnx_ir as ir
    from numpy.typing import DTypeLike

    class Symbol(ir.Value):
        """A value while a step is translated: PyTorch's tracer knows its sizes and type.

        At run time it is a SymbolicTensor (torch/onnx/_internal/exporter/_tensors.py).
        """

        shape: tuple[int, ...]  # type: ignore[assignment]  # a value of onnx_ir may have none
        dtype: ir.DataType


def spread(sizes: Iterable[int], rank: int) -> list[int]:
    """One number an axis, where a single one stands for all."""
    listed = [int(size) for size in sizes]
    return listed * rank if len(listed) == 1 else listed


def constant(values: object, dtype: DTypeLike) -> ir.Value:
    """A small constant."""
    import numpy as np
    import onnx_ir

    return emit("", "Constant", [], {"value": onnx_ir.tensor(np.asarray(values, dtype))}, 1)


def numbers(values: Sequence[int]) -> ir.Value:
    """A constant of whole numbers."""
    return constant(list(values), "int64")


def take_type(value: ir.Value, like: ir.Value) -> None:
    """Gives a value the shape and element type of another."""
    value.shape = like.shape
    if like.dtype is not None:
        value.dtype = like.dtype
