"""What the forward pass of training has and inference has not: statistics of the batch, a loss."""

from __future__ import annotations

from analyzer.graph import DTYPES, Node, Tensor
from analyzer.training_operators.definition import DefinitionBuilder, count, required, sizes


def batch_norm(b: DefinitionBuilder, node: Node) -> None:
    """Inputs: x, scale, bias, running mean and variance (any of the four may be absent).

    Outputs: y, mean, reciprocal deviation, new running mean and variance.
    """
    (x,) = required(node, 0)
    scale, bias, running_mean, running_var = (node.input(i) for i in range(1, 5))
    shape = sizes(x)
    axes = [axis for axis in range(len(shape)) if axis != 1]
    by_channel = (1, shape[1], *(1 for _ in shape[2:]))
    number = count(shape) // shape[1]
    mean = b.sum(x, axes, keep=True, kind="Mean")
    centred = b.op("Sub", x, mean)
    variance = b.sum(b.op("Mul", centred, centred), axes, keep=True, kind="Mean")
    deviation = b.op("Sqrt", b.op("Add", variance, b.like(node.attributes["eps"], variance)))
    inverse = b.op("Reciprocal", deviation)
    y = b.op("Mul", centred, inverse)
    if scale is not None:
        y = b.op("Mul", y, b.reshape(scale, by_channel))
    zero = b.reshape(bias, by_channel) if bias is not None else b.like(0.0, y)
    b.op("Add", y, zero, into=node.output(0))
    flat = b.reshape(mean, (shape[1],), into=node.output(1))
    if node.output(2) is not None:
        b.reshape(inverse, (shape[1],), into=node.output(2))
    # aten/src/ATen/native/Normalization.cpp: outputs take the variance over n, running ones that over n - 1.
    momentum = node.attributes["momentum"]
    if running_mean is not None and node.output(3) is not None:
        _running(b, running_mean, flat, momentum, node.output(3))
    if running_var is not None and node.output(4) is not None:
        unbiased = b.op("Mul", variance, b.like(number / max(1, number - 1), variance))
        _running(b, running_var, b.reshape(unbiased, (shape[1],)), momentum, node.output(4))


def _running(b: DefinitionBuilder, old: Tensor, new: Tensor, momentum: float, into: Tensor | None) -> None:
    weighted_old = b.op("Mul", old, b.like(1 - momentum, old))
    b.op("Add", weighted_old, b.op("Mul", new, b.like(momentum, new)), into=into)


def nll_loss(b: DefinitionBuilder, node: Node) -> None:
    """Inputs: log-probabilities, class numbers, class weights (may be absent). Outputs: loss, total weight.

    Not ONNX's NegativeLogLikelihoodLoss, which keeps the total weight to itself; the gradient divides by it.
    """
    scores, labels = required(node, 0, 1)
    counted, weight, safe = label_weights(b, scores, labels, node.input(2))
    shape = sizes(labels)
    column = b.reshape(safe, (shape[0], 1, *shape[1:]))
    picked = b.op("GatherElements", scores, column, shape=(shape[0], 1, *shape[1:]), axis=1)
    weighted = b.op("Mul", b.op("Neg", b.reshape(picked, shape)), weight)
    losses = b.op("Where", counted, weighted, b.like(0.0, scores), dtype=scores.dtype)
    axes = list(range(len(shape)))
    total = b.sum(weight, axes, into=node.output(1))
    # 0 none, 1 mean, 2 sum (aten/src/ATen/core/Reduction.h). A mean is over weights, not over labels.
    if node.attributes["reduction"] == 0:
        b.op("Identity", losses, into=node.output(0))
    elif node.attributes["reduction"] == 2:
        b.sum(losses, axes, into=node.output(0))
    else:
        b.op("Div", b.sum(losses, axes), total, into=node.output(0))


def label_weights(
    b: DefinitionBuilder, scores: Tensor, labels: Tensor, weights: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Whether each label counts, its weight (0 where it does not), and the label or 0."""
    ignored = b.op(
        "Equal", labels, b.const(b.node.attributes["ignore_index"], labels.dtype.name), dtype=DTYPES["bool"]
    )
    counted = b.op("Not", ignored)
    # An ignored label may lie outside of the classes (-100), where a Gather would fail.
    safe = b.op("Where", counted, labels, b.const(0, labels.dtype.name), dtype=labels.dtype)
    class_weight = b.like(1.0, scores)
    if weights is not None:
        class_weight = b.op("Gather", weights, safe, shape=sizes(labels))
    weight = b.op("Where", counted, class_weight, b.like(0.0, scores), shape=sizes(labels), dtype=scores.dtype)
    return counted, weight, safe
