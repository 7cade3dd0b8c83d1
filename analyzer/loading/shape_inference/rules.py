"""Loading: what the rules for common operators are made of."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from analyzer.graph import DType
from analyzer.loading.shape_inference.protobuf_values import Attributes, Type

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]

Sizes = tuple[int, ...]
Told = Sequence[Type] | None
# What an ONNX node's attributes hold differs by name: numbers, texts, arrays and lists of them.
Given = Mapping[str, Any]


class Known(Protocol):
    """An input whose sizes are all known; where a node lacks one that a rule reads, the rule raises."""

    @property
    def dtype(self) -> DType:
        """Its element type."""

    @property
    def shape(self) -> Sizes:
        """Its sizes."""

    @property
    def value(self) -> Array | None:
        """Its elements where they are few and known."""


ShapeRule = Callable[[Sequence[Known], Given, int], Told]
"""A rule reads inputs, attributes and the number of outputs; it may raise on a node that cannot be."""

RULES: dict[str, ShapeRule] = {}


def rule(op_types: str) -> Callable[[ShapeRule], ShapeRule]:
    """Registers the rule of these operators, whose names stand apart by spaces."""

    def decorate(function: ShapeRule) -> ShapeRule:
        RULES.update(dict.fromkeys(op_types.split(), function))
        return function

    return decorate


def plain(attributes: Given) -> Given:
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


def axes_of(inputs: Sequence[Known], attributes: Given) -> Sequence[int] | None:
    """Axes as attribute (older opsets) or as second input; None where there are none, or not known."""
    if len(inputs) > 1:
        return numbers(inputs[1])
    return attributes.get("axes")


def numbers(tensor: Known | None) -> list[int] | None:
    """The elements of a known tensor of whole numbers."""
    if tensor is None or tensor.value is None:
        return None
    array = tensor.value
    numbers: list[int] = array.tolist() if array.ndim == 1 else array.ravel().tolist()
    return numbers
