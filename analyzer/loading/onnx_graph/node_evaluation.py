"""Loading: what a node calls, on what, and whether its outputs are known before the run."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from analyzer.graph import DEFAULT_DOMAIN, Graph, Shape, Tensor, Trips
from analyzer.loading.onnx_graph import constant_folding
from analyzer.loading.shape_inference.protobuf_values import GRAPH_KINDS, LONGEST, SMALL, Type, tensor_value
from analyzer.operators import CLASSICAL_DOMAIN, CONTRIB_DOMAIN, NEVER_FOLDED

if TYPE_CHECKING:
    import numpy as np
    import onnx

    Array = np.ndarray[Any, Any]


SHAPE_OPERATORS = ("Shape", "Size")
"""Operators that need the shape of what they read alone."""

# Of any other domain nobody says that equal inputs give equal outputs.
_FOLDABLE = frozenset({DEFAULT_DOMAIN, CLASSICAL_DOMAIN, CONTRIB_DOMAIN})
# Floats decide sizes only as the few that Resize (scales) or Range reads.
_FEW_FLOATS = 8
# Nothing goes in, yet nothing is random: an empty sequence or optional is known before the run.
_WITHOUT_INPUTS = frozenset({"SequenceEmpty", "Optional"})


class Call(NamedTuple):
    """A node while it is read: what it calls, on what, as which of its graph's."""

    proto: onnx.NodeProto
    op_type: str
    domain: str
    inputs: tuple[Tensor | None, ...]
    attributes: Mapping[str, Any]
    graphs: Mapping[str, Graph]
    trips: Trips | None = None
    place: int = 0


def all_constant(inputs: Sequence[Tensor | None]) -> bool:
    """Whether all that is read is known before the run."""
    for tensor in inputs:  # noqa: SIM110  # a generator takes three times as long, for every node
        if tensor is not None and not tensor.constant:
            return False
    return True


def has_graphs(attributes: Sequence[onnx.AttributeProto]) -> bool:
    """Whether any of a node's attributes is a subgraph."""
    return any(entry.type in GRAPH_KINDS for entry in attributes)


def is_constant(call: Call) -> bool:
    """Whether a node's outputs follow from initializers and shapes alone."""
    inputs, op_type = call.inputs, call.op_type
    if op_type in SHAPE_OPERATORS and call.domain == DEFAULT_DOMAIN:
        return inputs[0] is not None and inputs[0].elements is not None
    if op_type == "CastLike":  # of its second input it needs the type alone
        return inputs[0] is not None and inputs[0].constant
    if not all_constant(inputs):
        return False
    if call.domain not in _FOLDABLE or op_type in NEVER_FOLDED:
        return False
    if call.graphs:
        branch = call.graphs.get(taken_branch(inputs)) if op_type == "If" else None
        return branch is not None and all(tensor.constant for tensor in branch.outputs)
    return bool(inputs) or op_type in _WITHOUT_INPUTS


def taken_branch(inputs: Sequence[Tensor | None]) -> str:
    """The branch that an If with a known condition takes; empty where the condition is not known."""
    condition = inputs[0].value if inputs and inputs[0] is not None else None
    if condition is None:
        return ""
    return "then_branch" if condition.reshape(-1)[0] else "else_branch"


def shape_or_size(op_type: str, shape: Shape, attributes: Mapping[str, Any]) -> Array | None:
    """Return what Shape or Size gives of a shape; None where the shape is not known."""
    import numpy as np

    if shape is None or None in shape:
        return None
    if op_type == "Size":
        return np.asarray(math.prod(size or 0 for size in shape), np.int64)
    return np.asarray(shape[attributes.get("start", 0) : attributes.get("end")], np.int64)


def is_large(kind: Type | None) -> bool:
    """Whether a result is not worth folding: shapes and axes are few, and so are the floats that make them."""
    if kind is None or kind[1] is None or None in kind[1]:
        return False
    size = 1
    for length in kind[1]:
        size *= length or 0
    return size > (_FEW_FLOATS if kind[0].is_float else SMALL)


# Values known before the run and yet too long for a graph to keep: computed if asked for.
_INTEGERS = frozenset({"int32", "int64"})
# Operators in a row of which each needs the one before.
_DEPTH = 32


class LateValues:
    """Where the rows of integers come from that a model knows before it runs: bounds of its loops."""

    def __init__(self) -> None:
        self._stored: dict[str, onnx.TensorProto] = {}
        self._computed: dict[str, tuple[str, Mapping[str, Any], Sequence[Tensor | None], int]] = {}
        self._known: dict[str, Array | None] = {}

    def stored(self, tensor: Tensor, proto: onnx.TensorProto) -> None:
        """Remembers an initializer whose value the graph does not keep."""
        if tensor.dtype.name in _INTEGERS and tensor.rank == 1:
            self._stored[tensor.name] = proto

    def computed(
        self, op_type: str, attributes: Mapping[str, Any], inputs: Sequence[Tensor | None], names: Sequence[str]
    ) -> None:
        """Remembers a constant operator of the default domain whose results the graph does not keep."""
        for position, name in enumerate(names):
            self._computed[name] = (op_type, attributes, inputs, position)

    def value(self, tensor: Tensor, depth: int = _DEPTH) -> Array | None:
        """A tensor's elements; None where they are no row of integers, or many, or not known."""
        if tensor.value is not None:
            return tensor.value
        if not tensor.constant or depth == 0:
            return None
        name = tensor.name
        if name not in self._known:
            self._known[name] = self._found(tensor, depth)
        return self._known[name]

    def _found(self, tensor: Tensor, depth: int) -> Array | None:
        stored = self._stored.get(tensor.name)
        if stored is not None:
            return tensor_value(stored, LONGEST)
        call = self._computed.get(tensor.name)
        if call is None or tensor.dtype.name not in _INTEGERS:
            return None
        op_type, attributes, inputs, position = call
        arrays = [None if given is None else self.value(given, depth - 1) for given in inputs]
        for array, given in zip(arrays, inputs, strict=True):
            if array is None and given is not None:
                return None
        results = constant_folding.fold(op_type, attributes, arrays, most=LONGEST)
        return results[position] if results is not None and position < len(results) else None
