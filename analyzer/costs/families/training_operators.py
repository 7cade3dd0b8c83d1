"""Counting the compact operators of a training step: gradients, batch statistics, optimizer steps."""

from __future__ import annotations

from math import prod

from analyzer.costs.cost import Cost
from analyzer.costs.dimensions import elements
from analyzer.costs.registry import count_node, rule
from analyzer.costs.traffic import cost
from analyzer.graph import Node
from analyzer.training_operators import DOMAIN, definition
from analyzer.training_operators.spatial import axis_matrices


@rule(
    "ConvGrad", "BatchNorm", "BatchNormGrad", "LayerNormGrad", "SoftmaxGrad", "LogSoftmaxGrad", "ReluGrad",
    "NllLoss", "NllLossGrad", "HardtanhGrad", "SigmoidGrad", "TanhGrad", "SiluGrad", "GeluGrad",
    "MaxPoolGrad", "EmbeddingGrad", "FrozenBatchNormGrad", "SliceGrad",
    "Sgd", "Adam", "AdamW", "Rmsprop", "Adagrad", "Adamax", "Adadelta",
    domain=DOMAIN,
)  # fmt: skip
def compact(node: Node) -> Cost:
    """The sum over the operators of its definition; its own inputs and outputs as bytes.

    A convolution's gradient is one product for the input and one for the weight, each with the multiplications
    of the forward pass; one that is not wanted is not counted. What a definition keeps in between is not
    moved: it is the traffic of a fused kernel.
    """
    # Counted from the definition that ONNX Runtime is given to run, so that the two cannot drift apart.
    parts = definition(node)
    assert parts is not None
    part_costs = [count_node(part) for part in parts.nodes]
    return cost(
        node,
        flops=sum(part_cost.flops or 0 for part_cost in part_costs),
        macs=sum(part_cost.macs or 0 for part_cost in part_costs),
    )


@rule("AveragePoolGrad", domain=DOMAIN)
def average_pool_grad(node: Node) -> Cost:
    """(1 + window) * gradients: a division, and a sum for each position of the window."""
    taps = prod(node.attributes["kernel_shape"])
    return cost(node, flops=(1 + taps) * elements(node.inputs[0]))


@rule("ResizeGrad", domain=DOMAIN)
def resize_grad(node: Node) -> Cost:
    """Taps of all outputs: a sum for each with nearest neighbours, a product and a sum where it is linear."""
    each = 1 if str(node.attributes["mode"]).startswith("nearest") else 2
    return cost(node, flops=each * _taps(node))


def _taps(node: Node) -> int:
    """Pairs of an output and an input that it takes, over all axes and channels."""
    import numpy as np

    tensor = node.inputs[0]
    assert tensor is not None
    assert tensor.shape is not None
    matrices = axis_matrices(node)
    planes = prod(size or 1 for size in tensor.shape[: len(tensor.shape) - len(matrices)])
    return planes * prod(int(np.count_nonzero(matrix)) for matrix in matrices)
