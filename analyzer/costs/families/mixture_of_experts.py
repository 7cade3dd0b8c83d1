"""Counting what is left of ONNX Runtime's own operators: mixtures of experts."""

from __future__ import annotations

from collections.abc import Mapping

from analyzer.costs.cost import Cost, dims, elements, nbytes, reads
from analyzer.costs.families.per_element import CONTRIB
from analyzer.costs.families.products import product
from analyzer.costs.registry import rule
from analyzer.graph import Node, Tensor

_SPREAD = "tokens spread over the experts: as many are read as there are choices, at most all"


@rule("MoE", domain=CONTRIB, assumes=_SPREAD)
def mixture(node: Node) -> Cost:
    """2 * tokens * k * (weights of one expert), biases, 5 an inner element for the activation.

    The gate's softmax.

    Every token runs through k experts; only the weights of experts that are chosen are read.
    """
    # Weights and biases of fc1, fc2 and fc3 in turn (core/graph/contrib_ops/contrib_defs.cc).
    expert = sum(_each(node.input(position)) for position in (2, 4, 6))
    return _mixture(node, expert, biases=(3, 5, 7))


@rule("QMoE", domain=CONTRIB, assumes=_SPREAD)
def quantized_mixture(node: Node) -> Cost:
    """As MoE, and 2 a weight of the experts that are chosen, to dequantise it.

    Weights are packed, 8 / bits a byte.
    """
    # Each weight's scales stand between it and its bias. Of what is packed, the depth follows from the widths:
    # fc1 has a row for each inner element, or two where it makes gates as well.
    width, rows, third = dims(node.inputs[0])[-1], dims(node.input(2))[1], node.input(8)
    fused = third is None and "swiglu" in str(node.attributes.get("activation_type", ""))
    inner = rows // 2 if fused else rows
    expert = width * (rows + inner + (inner if third is not None else 0))
    return _mixture(node, expert, biases=(4, 7, 10), dequantize=2)


def _mixture(node: Node, expert: int, *, biases: tuple[int, ...], dequantize: int = 0) -> Cost:
    tokens, experts = dims(node.inputs[1])
    chosen = tokens * node.attributes.get("k", 1)
    bias = sum(_each(node.input(position)) for position in biases)
    first = dims(node.input(2))
    extra = chosen * (bias + 5 * first[1]) + 5 * elements(node.inputs[1]) + 2 * elements(node.inputs[0])
    # A weight is dequantised once, however many tokens chose its expert.
    extra += dequantize * min(chosen, experts) * expert
    return product(node, chosen * expert, extra)


def _each(tensor: Tensor | None) -> int:
    """Elements for one expert of a tensor whose first axis are experts; 0 where it is absent."""
    return elements(tensor) // max(dims(tensor)[0], 1) if tensor is not None else 0


@reads("MoE", "QMoE", domain=CONTRIB)
def _chosen_experts(node: Node) -> Mapping[int, int]:
    tokens, experts = dims(node.inputs[1])
    chosen = min(tokens * node.attributes.get("k", 1), experts)
    bytes_read = {}
    for position in range(2, len(node.inputs)):
        tensor = node.input(position)
        if tensor is not None and tensor.shape and tensor.shape[0] == experts:
            bytes_read[position] = nbytes(tensor) * chosen // max(experts, 1)
    return bytes_read
