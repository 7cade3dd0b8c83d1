"""Translations of our own by qualified name, and what they are written with."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, TypeVar

from analyzer.loading.torch_export.untranslatable import emit
from analyzer.loading.torch_private import PythonKernel

Function = TypeVar("Function", bound=PythonKernel)

if TYPE_CHECKING:
    import onnx_ir as ir
    from numpy.typing import DTypeLike

    class Symbol(ir.Value):
        """A value while a step is translated: PyTorch's tracer knows its sizes and type.

        At run time it is a SymbolicTensor (torch/onnx/_internal/exporter/_tensors.py).
        """

        shape: tuple[int, ...]  # type: ignore[assignment]  # a value of onnx_ir may have none
        dtype: ir.DataType


OWN: dict[str, PythonKernel] = {}


def register(name: str, function: PythonKernel) -> None:
    """Makes a function the translation of an operator of ``aten``, all its overloads.

    Raises:
        ValueError: There is one already.
    """
    if f"aten::{name}" in OWN:
        raise ValueError(f"{name} has two translations")
    OWN[f"aten::{name}"] = function


def translates(*names: str) -> Callable[[Function], Function]:
    """Registers the decorated function as the translation of these operators, all overloads of each."""

    def decorate(function: Function) -> Function:
        for name in names:
            register(name, function)
        return function

    return decorate


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
