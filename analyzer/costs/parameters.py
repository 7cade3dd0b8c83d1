"""Parameters of a model: its weights as what they stand for, not as they are stored.

Scales and zero points say how weights are stored and are none; packed weights are as many as they unpack to;
those of classical models stand in attributes.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from analyzer.graph import Graph, Node
from analyzer.operators import CLASSICAL_DOMAIN, CONTRIB_DOMAIN, TreeSums

_FLOAT_BYTES = 4
# Of ai.onnx.ml: what was learnt (onnx/defs/traditionalml/defs.cc).
_LEARNT = (
    *("nodes_values", "nodes_splits", "target_weights", "class_weights", "leaf_weights", "base_values"),
    *("coefficients", "intercepts", "support_vectors", "rho", "prob_a", "prob_b", "offset", "scale"),
)
# Inputs that tell how others are stored: scales, zero points, orders of groups.
_UNARY, _BINARY = (1, 2, 3, 4), (1, 2, 4, 5, 6, 7)
_STORAGE: Mapping[str, tuple[int, ...]] = MappingProxyType(
    {
        "QuantizeLinear": (1, 2),
        "DequantizeLinear": (1, 2),
        "QLinearConv": _BINARY,
        "QLinearMatMul": _BINARY,
        "QLinearAdd": _BINARY,
        "QLinearMul": _BINARY,
        "QGemm": (1, 2, 4, 5, 7, 8),
        "MatMulInteger": (2, 3),
        "ConvInteger": (2, 3),
        "MatMulIntegerToFloat": (2, 3, 4, 5),
        "DynamicQuantizeMatMul": (2, 3),
        "MatMulNBits": (2, 3, 4),
        "GatherBlockQuantized": (2, 3),
        **dict.fromkeys(("QLinearSigmoid", "QLinearLeakyRelu", "QLinearSoftmax"), _UNARY),
        **dict.fromkeys(("QLinearAveragePool", "QLinearGlobalAveragePool", "QLinearReduceMean"), _UNARY),
    }
)


def parameters(graph: Graph) -> int:
    """How many numbers the model has learnt, those of bodies too; open shapes count nothing."""
    return sum(map(_own_parameters, graph.with_bodies))


def _own_parameters(graph: Graph) -> int:
    described: set[str] = set()
    weights: set[str] = set()
    packed: dict[str, int] = {}
    learnt = 0
    for node in graph.nodes:
        storage = _storage(node)
        for position, tensor in enumerate(node.inputs):
            if tensor is not None and tensor.initializer:
                (described if position in storage else weights).add(tensor.name)
        learnt += _in_attributes(node)
        stored = node.input(1)
        if node.identity == (CONTRIB_DOMAIN, "MatMulNBits") and stored is not None:
            packed[stored.name] = int(node.attributes["N"] * node.attributes["K"])
    only_described = described - weights
    return learnt + sum(
        packed.get(tensor.name, tensor.elements or 0)
        for tensor in graph.initializers
        if tensor.name not in only_described
    )


def parameter_bytes(graph: Graph) -> int:
    """Bytes of all that is stored, each tensor in its own type; attributes of classical models too."""
    learnt = sum(_in_attributes(node) for each in graph.with_bodies for node in each.nodes)
    return graph.parameter_bytes + _FLOAT_BYTES * learnt


def _storage(node: Node) -> tuple[int, ...]:
    if node.op_type == "QLinearConcat":
        return tuple(position for position in range(len(node.inputs)) if position < 2 or position % 3 != 2)
    return _STORAGE.get(node.op_type, ())


def _in_attributes(node: Node) -> int:
    if node.domain != CLASSICAL_DOMAIN:
        return 0
    learnt = (node.attributes.get(name) for name in _LEARNT)
    trees = TreeSums.of(node.attributes)
    return (0 if trees is None else trees.learnt) + sum(
        len(values) for values in learnt if isinstance(values, tuple)
    )
