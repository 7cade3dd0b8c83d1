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
OutputTypes = Sequence[Type] | None
"""The type of each output; None where ONNX's own inference is to be asked."""

# What an ONNX node's attributes hold differs by name: numbers, texts, arrays and lists of them.
AttributeValues = Mapping[str, Any]


# A protocol and no Tensor: a Tensor's shape may be open, and with its type every rule would have to say that
# this one is not. An input that is absent, or open after all, raises in the rule, which the caller takes as "no
# answer".
class KnownInput(Protocol):
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


ShapeRule = Callable[[Sequence[KnownInput], AttributeValues, int], OutputTypes]
"""A rule reads inputs, attributes and the number of outputs; it may raise on a node that cannot be."""

RULES: dict[str, ShapeRule] = {}


def rule(op_types: str) -> Callable[[ShapeRule], ShapeRule]:
    """Registers the rule of these operators, whose names stand apart by spaces.

    Raises:
        ValueError: One of them has a rule already.
    """

    def decorate(function: ShapeRule) -> ShapeRule:
        names = op_types.split()
        # Else the file that is imported last would decide, without a word.
        twice = [name for name in names if name in RULES or names.count(name) > 1]
        if twice:
            raise ValueError(f"{twice[0]} has two shape rules")
        RULES.update(dict.fromkeys(names, function))
        return function

    return decorate


def as_dictionary(attributes: AttributeValues) -> AttributeValues:
    """The same, faster to ask several times: a dict answers without a call of Python code."""
    return attributes.as_dictionary() if isinstance(attributes, Attributes) else attributes


def axis_of(axis: int, rank: int) -> int:
    """The axis counted from the front.

    Raises:
        ValueError: There is no such axis.
    """
    if not -rank <= axis < rank:
        raise ValueError(f"no axis {axis} among {rank}")
    return axis % rank


def axes_of(inputs: Sequence[KnownInput], attributes: AttributeValues) -> Sequence[int] | None:
    """Axes as attribute (older opsets) or as second input; None where there are none, or not known."""
    # An input since opset 13 for Squeeze, Unsqueeze and ReduceSum, since 18 for the other reductions.
    if len(inputs) > 1:
        return numbers(inputs[1])
    return attributes.get("axes")


def numbers(tensor: KnownInput | None) -> list[int] | None:
    """The elements of a known tensor of whole numbers."""
    if tensor is None or tensor.value is None:
        return None
    array = tensor.value
    numbers: list[int] = array.tolist() if array.ndim == 1 else array.ravel().tolist()
    return numbers
