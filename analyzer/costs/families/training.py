"""Count losses, gradients, batch statistics and optimizer steps."""

from __future__ import annotations

from math import prod

from analyzer.costs.cost import Cost, cost, elements
from analyzer.costs.registry import count_node, rule
from analyzer.graph import Node
from analyzer.training_operators import DOMAIN, definition
from analyzer.training_operators.gradients import axis_matrices

TRAINING = "ai.onnx.preview.training"


@rule("SoftmaxCrossEntropyLoss")
def softmax_cross_entropy(node: Node) -> Cost:
    """5 * scores (log-softmax) and 2 * labels (negate, sum), 1 * labels more for weights."""
    return cost(
        node, flops=5 * elements(node.inputs[0]) + (2 + (node.input(2) is not None)) * elements(node.inputs[1])
    )


@rule("NegativeLogLikelihoodLoss")
def negative_log_likelihood(node: Node) -> Cost:
    """2 * labels (negate, sum), 1 * labels more for weights."""
    return cost(node, flops=(2 + (node.input(2) is not None)) * elements(node.inputs[1]))


def _parameters(node: Node, states: int) -> int:
    """Elements of the tensors that are optimised: inputs are R, T, then X, G and the states of each."""
    # R is the learning rate, T the number of updates so far (onnx/defs/training/defs.cc).
    count = (len(node.inputs) - 2) // (2 + states)
    return sum(elements(tensor) for tensor in node.inputs[2 : 2 + count])


@rule("Adagrad", domain=TRAINING)
def adagrad(node: Node) -> Cost:
    """9 a parameter: regularise 2, square and add 2, root and epsilon 2, multiply, divide, subtract."""
    return cost(node, flops=9 * _parameters(node, 1))


@rule("Adam", domain=TRAINING)
def adam(node: Node) -> Cost:
    """14 a parameter: regularise 2, first moment 3, second moment 4, root, epsilon, divide, multiply.

    Subtract.
    """
    return cost(node, flops=14 * _parameters(node, 2))


@rule("Momentum", domain=TRAINING)
def momentum(node: Node) -> Cost:
    """7 a parameter: regularise 2, momentum 3, multiply, subtract; 2 more with Nesterov's rule."""
    each = 9 if node.attributes.get("mode") == "nesterov" else 7
    return cost(node, flops=each * _parameters(node, 1))


@rule(
    "Gradient",
    domain=TRAINING,
    assumes="1 FLOP for each element of a gradient: what is differentiated is not seen",
)
def gradient(node: Node) -> Cost:
    """1 * outputs, the least there can be: the operators that are differentiated lie outside the node."""
    return cost(node, flops=sum(elements(tensor) for tensor in node.present_outputs))


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
