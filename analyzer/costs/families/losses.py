"""Counting losses and ONNX's preview of training operators."""

from __future__ import annotations

from analyzer.costs.cost import Cost
from analyzer.costs.dimensions import elements
from analyzer.costs.registry import rule
from analyzer.costs.traffic import cost
from analyzer.graph import Node

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
