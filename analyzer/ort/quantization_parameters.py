"""Scales and zero points of QuantizeLinear and DequantizeLinear as ONNX Runtime compares them.

Mirrors ``onnxruntime/core/optimizer/qdq_transformer/qdq_util.cc``.
"""

from __future__ import annotations

import numpy as np

from analyzer.graph import Tensor
from analyzer.ort.rewriting import ExecutedNode, Rewriting

QUANTIZE, DEQUANTIZE = "QuantizeLinear", "DequantizeLinear"
QUANTIZERS = frozenset((QUANTIZE, DEQUANTIZE))
SMALL = frozenset({"int8", "uint8"})
WIDE = frozenset({"int16", "uint16"})


def scalar(graph: Rewriting, name: str | None) -> Tensor | None:
    """The constant of one element that has this name."""
    tensor = None if name is None or not graph.is_constant(name) else graph.tensors[name]
    return tensor if tensor is not None and tensor.elements == 1 and (tensor.rank or 0) <= 1 else None


def input_of(executed: ExecutedNode, position: int) -> str | None:
    """Name of what a node reads at a position; None where there is none."""
    return executed.reads[position] if position < len(executed.reads) else None


def has_scalars(graph: Rewriting, executed: ExecutedNode) -> bool:
    """Whether scale and zero point, if there is one, are constants of one element."""
    zero_point = input_of(executed, 2)
    return scalar(graph, input_of(executed, 1)) is not None and (
        zero_point is None or scalar(graph, zero_point) is not None
    )


# ``IsQDQPairSupported`` of qdq_util.cc
def quantize_alike(graph: Rewriting, one: ExecutedNode, other: ExecutedNode) -> bool:
    """Whether two nodes quantise alike: constant scales and zero points of one element, which are equal."""
    for position in (1, 2):
        tensors = [scalar(graph, input_of(executed, position)) for executed in (one, other)]
        first, second = tensors
        if first is None or second is None or first.dtype != second.dtype:
            return False
        if first is not second and not equal_values(first, second):
            return False
    return True


def equal_values(one: Tensor, other: Tensor) -> bool:
    """Whether two constants are known and hold the same elements."""
    if one.value is None or other.value is None:
        return False
    return bool(np.array_equal(one.value.reshape(-1), other.value.reshape(-1)))
