"""Translations of our own by qualified name, and what they are written with."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeVar, cast, overload

from analyzer.loading.torch_export.untranslatable import OPAQUE_DOMAIN
from analyzer.loading.torch_private import PythonKernel, emit_node

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

    Inputs = Sequence[ir.Value | None]
    Result = ir.Value | Sequence[ir.Value]
    """What a translation gives: one value for each output of the operator."""


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


@overload
def emit(  # type: ignore[overload-overlap]  # 1 is a number as well: a count that is not written out gives several
    domain: str, op_type: str, inputs: Inputs, attributes: Mapping[str, Any], outputs: Literal[1]
) -> ir.Value: ...


@overload
def emit(
    domain: str, op_type: str, inputs: Inputs, attributes: Mapping[str, Any], outputs: int
) -> Sequence[ir.Value]: ...


def emit(
    domain: str, op_type: str, inputs: Inputs, attributes: Mapping[str, Any], outputs: int
) -> ir.Value | Sequence[ir.Value]:
    """Inside a translation: one node of any domain; its output, or a sequence of its outputs."""
    import onnx_ir

    inputs = list(inputs)
    while inputs and inputs[-1] is None:  # optional inputs at the end are left out in ONNX, not empty
        inputs.pop()
    node = onnx_ir.Node(
        domain,
        op_type,
        inputs=inputs,
        attributes=onnx_ir.convenience.convert_attributes(dict(attributes)),
        num_outputs=outputs,
        version=1 if domain else None,  # of the default domain the graph's opset holds
    )
    emit_node(node)
    return node.outputs[0] if outputs == 1 else node.outputs


def opaque(name: str, outputs: int, arguments: Iterable[object], keywords: Mapping[str, object]) -> Result:
    """A node that says what it is and nothing about how it computes; of several outputs their sequence."""
    import onnx_ir

    values: list[ir.Value | None] = []
    for argument in (*arguments, *keywords.values()):
        parts = argument if isinstance(argument, (tuple, list)) else (argument,)
        values += [value for value in parts if isinstance(value, onnx_ir.Value)]
    return emit(OPAQUE_DOMAIN, name, values, {}, outputs)


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


def shaped(value: ir.Value, shape: Sequence[int], like: Symbol) -> Symbol:
    """Tells the shape of a result that the tracer does not know, with another tensor's type."""
    import onnx_ir

    # PyTorch's tracer sets these after a whole translation; inside one the next helper asks for them.
    value.shape, value.dtype = onnx_ir.Shape([int(size) for size in shape]), like.dtype
    return cast("Symbol", value)


def take_type(value: ir.Value, like: ir.Value) -> None:
    """Gives a value the shape and element type of another."""
    value.shape = like.shape
    if like.dtype is not None:
        value.dtype = like.dtype
