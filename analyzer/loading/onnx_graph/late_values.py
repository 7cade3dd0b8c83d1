"""Loading: values known before the run and yet too long for a graph to keep: computed if asked for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from analyzer.graph import Tensor
from analyzer.loading.onnx_graph import constant_folding
from analyzer.loading.shape_inference.protobuf_values import LONGEST, tensor_value

if TYPE_CHECKING:
    import numpy as np
    import onnx

    Array = np.ndarray[Any, Any]

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
