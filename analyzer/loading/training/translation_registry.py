"""Translations of our own by qualified name, and what they are written with."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from analyzer.loading.torch_export.untranslatable import OPAQUE_DOMAIN
from analyzer.loading.training.torch_interfaces import emit

OWN: dict[str, Callable[..., Any]] = {}


def translates(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Registers the decorated function as the translation of these operators, all overloads of each."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        OWN.update({f"aten::{name}": function for name in names})
        return function

    return decorate


def opaque(name: str, outputs: int, arguments: Any, keywords: Mapping[str, Any]) -> Any:
    """A node that says what it is and nothing about how it computes."""
    import onnx_ir

    found: list[Any] = []
    for argument in (*arguments, *keywords.values()):
        items = argument if isinstance(argument, (tuple, list)) else (argument,)
        found += [item for item in items if isinstance(item, onnx_ir.Value)]
    return emit(OPAQUE_DOMAIN, name, found, {}, outputs)


def spread(sizes: Any, rank: int) -> list[int]:
    """One number an axis, where a single one stands for all."""
    listed = [int(size) for size in sizes]
    return listed * rank if len(listed) == 1 else listed


def constant(values: Any, dtype: str) -> Any:
    """A small constant."""
    import numpy as np
    import onnx_ir

    return emit("", "Constant", [], {"value": onnx_ir.tensor(np.asarray(values, dtype))}, 1)


def numbers(values: Sequence[int]) -> Any:
    """A constant of whole numbers."""
    return constant(list(values), "int64")


def shaped(value: Any, shape: Sequence[int], like: Any) -> Any:
    """Tells the shape of a result that the tracer does not know, with another tensor's type."""
    import onnx_ir

    value.shape, value.dtype = onnx_ir.Shape([int(size) for size in shape]), like.dtype
    return value
