"""Loading: what the rules for common operators are made of."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from analyzer.graph import Tensor
from analyzer.loading.shape_inference.protobuf_values import Attributes, Type

Sizes = tuple[int, ...]
Told = Sequence[Type] | None
ShapeRule = Callable[[Sequence[Any], Mapping[str, Any], int], Told]
"""A rule reads inputs, attributes and the number of outputs; it may raise on a node that cannot be."""

RULES: dict[str, ShapeRule] = {}


def rule(op_types: str) -> Callable[[ShapeRule], ShapeRule]:
    """Registers the rule of these operators, whose names stand apart by spaces."""

    def decorate(function: ShapeRule) -> ShapeRule:
        RULES.update(dict.fromkeys(op_types.split(), function))
        return function

    return decorate


def plain(attributes: Mapping[str, Any]) -> Mapping[str, Any]:
    """The same, faster to ask several times."""
    return attributes.plain() if isinstance(attributes, Attributes) else attributes


def axis_of(axis: int, rank: int) -> int:
    """The axis counted from the front.

    Raises:
        ValueError: There is no such axis.
    """
    if not -rank <= axis < rank:
        raise ValueError(f"no axis {axis} among {rank}")
    return axis % rank


def axes_of(inputs: Sequence[Any], attributes: Mapping[str, Any]) -> Sequence[int] | None:
    """Axes as attribute (older opsets) or as second input; None where there are none, or not known."""
    if len(inputs) > 1:
        return numbers(inputs[1])
    return attributes.get("axes")


def numbers(tensor: Tensor | None) -> list[int] | None:
    """The elements of a known tensor of whole numbers."""
    if tensor is None or tensor.value is None:
        return None
    array = tensor.value
    numbers: list[int] = array.tolist() if array.ndim == 1 else array.ravel().tolist()
    return numbers
