"""Gradients of operators, and what the forward pass of training has and inference has not: statistics, a loss.

Which function each is the gradient of: PyTorch's tools/autograd/derivatives.yaml. Where a formula is called
after a Python function, that is of torch/_decomp/decompositions.py.

What each output position reads along one axis when it is resized is a matrix: row ``i`` holds the weights with
which output ``i`` takes the inputs, as PyTorch computes them. Axes are resized one after another, so such
matrices are all that the gradient needs.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import floor, pi, prod, sqrt
from typing import TYPE_CHECKING

from analyzer.graph import DTYPES, Node, Tensor
from analyzer.training_operators.definition import Definition, required, sizes

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Matrix = NDArray[np.float64]


def batch_norm(b: Definition, node: Node) -> None:
    """Inputs: x, scale, bias, running mean and variance (any of the four may be absent).

    Outputs: y, mean, reciprocal deviation, new running mean and variance.
    """
    (x,) = required(node, 0)
    scale, bias, running_mean, running_var = (node.input(i) for i in range(1, 5))
    shape = sizes(x)
    axes, by_channel = _by_channel(shape)
    number = prod(shape) // shape[1]
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


def _running(b: Definition, old: Tensor, new: Tensor, momentum: float, into: Tensor | None) -> None:
    weighted_old = b.op("Mul", old, b.like(1 - momentum, old))
    b.op("Add", weighted_old, b.op("Mul", new, b.like(momentum, new)), into=into)


def nll_loss(b: Definition, node: Node) -> None:
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
    b: Definition, scores: Tensor, labels: Tensor, weights: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Return whether each label counts, its weight (0 where it does not), and the label or 0."""
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


def conv_grad(b: Definition, node: Node) -> None:
    """Inputs: gradient, x, weight. Outputs: gradients of x, weight, bias, each where it is wanted."""
    gradient, x, weight = required(node, 0, 1, 2)
    # Two convolutions, each with exactly as many products as the forward one has, strided or not.
    transposed = bool(node.attributes.get("transposed", 0))
    if node.output(0) is not None:
        if transposed:
            _through_transposed(b, node, gradient, weight, node.output(0))
        else:
            _to_input(b, node, gradient, x, weight, node.output(0))
    if node.output(1) is not None:
        # A transposed convolution is the gradient of a plain one: its operands trade places.
        source, upstream = (gradient, x) if transposed else (x, gradient)
        _to_weight(b, node, upstream, source, weight, node.output(1))
    if node.output(2) is not None:
        rank = len(sizes(gradient))
        b.sum(gradient, [axis for axis in range(rank) if axis != 1], into=node.output(2))


def _geometry(node: Node) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], int]:
    attributes = node.attributes
    return attributes["strides"], attributes["pads"], attributes["dilations"], attributes["group"]


def _to_input(
    b: Definition, node: Node, gradient: Tensor, x: Tensor, weight: Tensor, into: Tensor | None
) -> None:
    strides, pads, dilations, group = _geometry(node)
    input_sizes, gradient_sizes, kernel = sizes(x)[2:], sizes(gradient)[2:], sizes(weight)[2:]
    output_padding = [
        size - ((g - 1) * s - 2 * p + d * (k - 1) + 1)
        for size, g, s, p, d, k in zip(
            input_sizes, gradient_sizes, strides, pads, dilations, kernel, strict=True
        )
    ]
    # A stride leaves rows of the input at the end that no window began at: output_padding gives them zeros.
    b.op(
        "ConvTranspose", gradient, weight, into=into, kernel_shape=kernel, strides=strides, pads=(*pads, *pads),
        dilations=dilations, group=group, output_padding=tuple(output_padding),
    )  # fmt: skip


def _through_transposed(
    b: Definition, node: Node, gradient: Tensor, weight: Tensor, into: Tensor | None
) -> None:
    strides, pads, dilations, group = _geometry(node)
    b.op(
        "Conv", gradient, weight, into=into, kernel_shape=sizes(weight)[2:], strides=strides,
        pads=(*pads, *pads), dilations=dilations, group=group,
    )  # fmt: skip


def _to_weight(
    b: Definition, node: Node, upstream: Tensor, x: Tensor, weight: Tensor, into: Tensor | None
) -> None:
    """A convolution of the input by the gradient, with strides and dilations exchanged.

    ``dW[o, c, k] = sum over n, i of x[n, c, i s + k d - p] dy[n, o, i]``: the sum over examples is that over
    channels, the gradient is the kernel. Groups stand side by side among those channels: no product is wasted.
    """
    strides, pads, dilations, group = _geometry(node)
    batch, channels, *spatial = sizes(x)
    outputs, gradient_sizes = sizes(upstream)[1], sizes(upstream)[2:]
    kernel = sizes(weight)[2:]
    rank = len(spatial)
    ends = [
        (g - 1) * s + (k - 1) * d + 1 - size - p
        for size, g, s, p, d, k in zip(spatial, gradient_sizes, strides, pads, dilations, kernel, strict=True)
    ]
    if any(end < 0 for end in ends):  # the last columns that no window reaches
        x, spatial = _cropped(b, x, ends)
        ends = [max(end, 0) for end in ends]
    inner = channels // group
    flat = b.reshape(x, (batch, group, inner, *spatial))
    flat = b.transpose(flat, (2, 1, 0, *range(3, 3 + rank)))
    flat = b.reshape(flat, (inner, group * batch, *spatial))
    filters = b.transpose(upstream, (1, 0, *range(2, 2 + rank)))
    transposed_gradient = b.op(
        "Conv", flat, filters, shape=(inner, outputs, *kernel), kernel_shape=tuple(gradient_sizes),
        strides=dilations, pads=(*pads, *ends), dilations=strides, group=group,
    )  # fmt: skip
    b.transpose(transposed_gradient, (1, 0, *range(2, 2 + rank)), into=into)


def _cropped(b: Definition, x: Tensor, ends: list[int]) -> tuple[Tensor, list[int]]:
    batch, channels, *spatial = sizes(x)
    cropped = [size + min(end, 0) for size, end in zip(spatial, ends, strict=True)]
    axes = tuple(range(2, 2 + len(spatial)))
    starts = b.const((0,) * len(spatial), "int64")
    ends_at, along = b.const(tuple(cropped), "int64"), b.const(axes, "int64")
    return b.op("Slice", x, starts, ends_at, along, shape=(batch, channels, *cropped)), cropped


def _by_channel(shape: tuple[int, ...]) -> tuple[list[int], tuple[int, ...]]:
    """Return the axes that a channel's statistics are taken over, and the shape that spreads them."""
    return [axis for axis in range(len(shape)) if axis != 1], (1, shape[1], *(1 for _ in shape[2:]))


def batch_norm_grad(b: Definition, node: Node) -> None:
    """Inputs: gradient, x, scale (may be absent), mean, reciprocal deviation. Outputs: of x, scale, bias."""
    gradient, x, mean, inverse = required(node, 0, 1, 3, 4)
    scale = node.input(2)
    shape = sizes(x)
    axes, by_channel = _by_channel(shape)
    # native_batch_norm_backward: dx = scale / deviation (dy - mean(dy) - normal mean(dy normal)).
    number = prod(shape) // shape[1]
    inverse = b.reshape(inverse, by_channel)
    normal = b.op("Mul", b.op("Sub", x, b.reshape(mean, by_channel)), inverse)
    to_bias = b.sum(gradient, axes, keep=True)
    to_scale = b.sum(b.op("Mul", gradient, normal), axes, keep=True)
    if node.output(0) is not None:
        share = b.like(1 / number, gradient)
        along_normal = b.op("Mul", normal, b.op("Mul", to_scale, share))
        centred = b.op("Sub", b.op("Sub", gradient, b.op("Mul", to_bias, share)), along_normal)
        factor = b.op("Mul", inverse, b.reshape(scale, by_channel)) if scale is not None else inverse
        b.op("Mul", centred, factor, into=node.output(0))
    if node.output(1) is not None:
        b.reshape(to_scale, (shape[1],), into=node.output(1))
    if node.output(2) is not None:
        b.reshape(to_bias, (shape[1],), into=node.output(2))


def frozen_batch_norm_grad(b: Definition, node: Node) -> None:
    """Inputs: gradient, x, scale (may be absent), running mean and variance. Outputs: of x, scale, bias."""
    gradient, x, mean, variance = required(node, 0, 1, 3, 4)
    scale = node.input(2)
    # The same function where it does not train: the statistics are constants, so no mean is taken off.
    axes, across = _by_channel(sizes(x))
    deviation = b.op("Sqrt", b.op("Add", variance, b.like(node.attributes["eps"], variance)))
    inverse = b.op("Reciprocal", deviation)
    if node.output(0) is not None:
        factor = b.op("Mul", inverse, scale) if scale is not None else inverse
        b.op("Mul", gradient, b.reshape(factor, across), into=node.output(0))
    if node.output(1) is not None:
        normal = b.op("Mul", b.op("Sub", x, b.reshape(mean, across)), b.reshape(inverse, across))
        b.sum(b.op("Mul", gradient, normal), axes, into=node.output(1))
    if node.output(2) is not None:
        b.sum(gradient, axes, into=node.output(2))


def layer_norm_grad(b: Definition, node: Node) -> None:
    """Inputs: gradient, x, mean, reciprocal deviation, scale (may be absent). Outputs: of x, scale, bias."""
    gradient, x, mean, inverse = required(node, 0, 1, 2, 3)
    scale = node.input(4)
    rank, axis = len(sizes(x)), node.attributes["axis"]
    # native_layer_norm_backward: as batch norm's, over the last axes, the scale inside of the means.
    inner, outer = list(range(axis, rank)), list(range(axis))
    normal = b.op("Mul", b.op("Sub", x, mean), inverse)
    if node.output(0) is not None:
        scaled = b.op("Mul", gradient, scale) if scale is not None else gradient
        average = b.sum(scaled, inner, keep=True, kind="Mean")
        along_normal = b.sum(b.op("Mul", scaled, normal), inner, keep=True, kind="Mean")
        centred = b.op("Sub", b.op("Sub", scaled, average), b.op("Mul", normal, along_normal))
        b.op("Mul", centred, inverse, into=node.output(0))
    if node.output(1) is not None:
        b.sum(b.op("Mul", gradient, normal), outer, into=node.output(1))
    if node.output(2) is not None:
        b.sum(gradient, outer, into=node.output(2))


def softmax_grad(b: Definition, node: Node) -> None:
    """Inputs: gradient, result."""
    gradient, y = required(node, 0, 1)
    product = b.op("Mul", gradient, y)  # _softmax_backward_data: y dy - y sum(y dy)
    total = b.sum(product, [node.attributes["axis"]], keep=True)
    b.op("Sub", product, b.op("Mul", y, total), into=node.output(0))


def log_softmax_grad(b: Definition, node: Node) -> None:
    """Inputs: gradient, result."""
    gradient, y = required(node, 0, 1)
    # _log_softmax_backward_data: dy - exp(y) sum(dy)
    total = b.sum(gradient, [node.attributes["axis"]], keep=True)
    b.op("Sub", gradient, b.op("Mul", b.op("Exp", y), total), into=node.output(0))


def relu_grad(b: Definition, node: Node) -> None:
    """Inputs: gradient, x or result."""
    gradient, y = required(node, 0, 1)
    # threshold_backward: at the threshold itself nothing passes.
    passed = b.op("Greater", y, b.like(node.attributes.get("threshold", 0.0), y), dtype=DTYPES["bool"])
    b.op("Where", passed, gradient, b.like(0.0, gradient), into=node.output(0))


def sigmoid_grad(b: Definition, node: Node) -> None:
    """Inputs: gradient, result."""
    gradient, y = required(node, 0, 1)
    slope = b.op("Mul", y, b.op("Sub", b.like(1.0, y), y))
    b.op("Mul", gradient, slope, into=node.output(0))


def tanh_grad(b: Definition, node: Node) -> None:
    """Inputs: gradient, result."""
    gradient, y = required(node, 0, 1)
    b.op("Mul", gradient, b.op("Sub", b.like(1.0, y), b.op("Mul", y, y)), into=node.output(0))


def silu_grad(b: Definition, node: Node) -> None:
    """Inputs: gradient, x."""
    gradient, x = required(node, 0, 1)
    gate = b.op("Sigmoid", x)  # silu_backward: dy s (1 + x (1 - s))
    bend = b.op("Mul", x, b.op("Sub", b.like(1.0, x), gate))
    slope = b.op("Mul", gate, b.op("Add", bend, b.like(1.0, x)))
    b.op("Mul", gradient, slope, into=node.output(0))


def gelu_grad(b: Definition, node: Node) -> None:
    """Inputs: gradient, x."""
    gradient, x = required(node, 0, 1)
    slope = _tanh_slope(b, x) if node.attributes.get("approximate") == "tanh" else _erf_slope(b, x)
    b.op("Mul", gradient, slope, into=node.output(0))


def _erf_slope(b: Definition, x: Tensor) -> Tensor:
    # gelu_backward: cdf(x) + x pdf(x) of the normal distribution.
    error = b.op("Erf", b.op("Mul", x, b.like(1 / sqrt(2), x)))
    below = b.op("Mul", b.op("Add", error, b.like(1.0, x)), b.like(0.5, x))
    density = b.op("Exp", b.op("Mul", b.op("Mul", x, x), b.like(-0.5, x)))
    return b.op("Add", below, b.op("Mul", b.op("Mul", x, density), b.like(1 / sqrt(2 * pi), x)))


def _tanh_slope(b: Definition, x: Tensor) -> Tensor:
    beta, kappa = sqrt(2 / pi), 0.044715  # kBeta and kKappa of gelu_backward
    square = b.op("Mul", x, x)
    cubed = b.op("Add", b.op("Mul", square, b.like(kappa * beta, x)), b.like(beta, x))
    bent = b.op("Tanh", b.op("Mul", cubed, x))
    left = b.op("Mul", b.op("Add", bent, b.like(1.0, x)), b.like(0.5, x))
    inner = b.op("Add", b.op("Mul", square, b.like(3 * kappa * beta, x)), b.like(beta, x))
    slope = b.op("Sub", b.like(1.0, x), b.op("Mul", bent, bent))
    right = b.op("Mul", b.op("Mul", b.op("Mul", x, b.like(0.5, x)), slope), inner)
    return b.op("Add", left, right)


def max_pool_grad(b: Definition, node: Node) -> None:
    """Inputs: gradient, indices into the whole flattened input. Outputs: the input's gradient."""
    gradient, indices = required(node, 0, 1)
    shape = sizes(node.output(0))
    number = prod(sizes(gradient))
    # Added: windows that overlap may have chosen the same place.
    zeros = _filled(b, 0.0, (prod(shape),), gradient)
    flat = b.op(
        "ScatterElements", zeros, b.reshape(indices, (number,)), b.reshape(gradient, (number,)),
        shape=(prod(shape),), axis=0, reduction="add",
    )  # fmt: skip
    b.reshape(flat, shape, into=node.output(0))


def embedding_grad(b: Definition, node: Node) -> None:
    """Inputs: gradient, indices. Rows of the table collect the gradients of where they were used."""
    gradient, indices = required(node, 0, 1)
    rows, width = sizes(node.output(0))
    number = prod(sizes(indices))
    updates = b.reshape(gradient, (number, width))
    padding_idx = node.attributes.get("padding_idx", -1)
    places = b.reshape(indices, (number, 1))
    if padding_idx >= 0:  # embedding_dense_backward: that row gets nothing
        is_padding = b.op("Equal", places, b.const(padding_idx, places.dtype.name), dtype=DTYPES["bool"])
        updates = b.op(
            "Where", is_padding, b.like(0.0, updates), updates, shape=(number, width), dtype=updates.dtype
        )
    if places.dtype.name != "int64":
        places = b.op("Cast", places, dtype=DTYPES["int64"], to=7)
    b.op(
        "ScatterND",
        _filled(b, 0.0, (rows, width), gradient),
        places,
        updates,
        into=node.output(0),
        reduction="add",
    )


def _filled(b: Definition, value: float, shape: tuple[int, ...], like: Tensor) -> Tensor:
    return b.op("Expand", b.like(value, like), b.const(shape, "int64"), shape=shape)


def nll_loss_grad(b: Definition, node: Node) -> None:
    """Inputs: gradient, log-probabilities, class numbers, class weights (may be absent), total weight."""
    gradient, scores, labels, total = required(node, 0, 1, 2, 4)
    weights = node.input(3)
    _, weight, safe = label_weights(b, scores, labels, weights)
    # _nll_loss_backward: -weight at the label, over the total weight where the loss is a mean.
    if node.attributes["reduction"] == 1:
        gradient = b.op("Div", gradient, total)
    shape, classes = sizes(labels), sizes(scores)[1]
    negated = b.reshape(b.op("Neg", b.op("Mul", weight, gradient)), (shape[0], 1, *shape[1:]))
    numbers = b.const(range(classes), labels.dtype.name)
    numbers = b.reshape(numbers, (1, classes, *(1 for _ in shape[1:])))
    is_label = b.op("Equal", b.reshape(safe, (shape[0], 1, *shape[1:])), numbers, dtype=DTYPES["bool"])
    b.op("Where", is_label, negated, b.like(0.0, negated), into=node.output(0))


def hardtanh_grad(b: Definition, node: Node) -> None:
    """Inputs: gradient, x. What was clipped gets nothing, nor what lies on a limit (hardtanh_backward)."""
    gradient, x = required(node, 0, 1)
    above = b.op("Greater", x, b.like(node.attributes["minimum"], x), dtype=DTYPES["bool"])
    below = b.op("Less", x, b.like(node.attributes["maximum"], x), dtype=DTYPES["bool"])
    b.op("Where", b.op("And", above, below), gradient, b.like(0.0, gradient), into=node.output(0))


def slice_grad(b: Definition, node: Node) -> None:
    """Inputs: gradient. The places that a slice with a step took get it, those between them zeros."""
    (gradient,) = required(node, 0)
    axis, start, step = (node.attributes[name] for name in ("axis", "start", "step"))
    shape, gradient_sizes = sizes(node.output(0)), sizes(gradient)
    with_step_axis = b.reshape(gradient, (*gradient_sizes[: axis + 1], 1, *gradient_sizes[axis + 1 :]))
    spread = _padded(b, with_step_axis, axis + 1, 0, step - 1)
    length = gradient_sizes[axis] * step
    flat = b.reshape(spread, (*gradient_sizes[:axis], length, *gradient_sizes[axis + 1 :]))
    _padded(b, flat, axis, start, shape[axis] - start - length, into=node.output(0))


def _padded(
    b: Definition, tensor: Tensor, axis: int, before: int, after: int, into: Tensor | None = None
) -> Tensor:
    """Zeros around a tensor along one axis; a negative number takes away."""
    shape = list(sizes(tensor))
    pads = [0] * (2 * len(shape))
    pads[axis], pads[len(shape) + axis] = before, after
    shape[axis] += before + after
    return b.op("Pad", tensor, b.const(pads, "int64"), shape=shape, into=into)


@lru_cache(maxsize=64)
def resized(mode: str, before: int, after: int, scale: float, corners: bool) -> Matrix:
    """Return weights of ``torch.nn.functional.interpolate`` along an axis; ``scale`` 0 follows the sizes."""
    import numpy as np

    matrix = np.zeros((after, before))
    # aten/src/ATen/native/UpSample.h places the samples, its kernels weigh them.
    step = _step(before, after, scale, corners)
    for output in range(after):
        if mode.startswith("nearest"):
            matrix[output, _nearest(mode, output, before, after, scale)] = 1.0
        else:
            _linear(matrix[output], output, step, corners)
    return matrix


def _step(before: int, after: int, scale: float, corners: bool) -> float:
    if corners:  # area_pixel_compute_scale of aten/src/ATen/native/UpSample.h
        return (before - 1) / (after - 1) if after > 1 else 0.0
    return 1 / scale if scale > 0 else before / after


def _nearest(mode: str, at: int, before: int, after: int, scale: float) -> int:
    """Positions in single precision, as ``nearest_idx`` of aten/src/ATen/native/UpSample.h has them."""
    import numpy as np

    step = np.float32(1 / scale if scale > 0 else np.float32(before) / np.float32(after))
    if mode == "nearest-exact":
        return min(floor((np.float32(at) + np.float32(0.5)) * step), before - 1)
    return min(floor(np.float32(at) * step), before - 1)


def _linear(row: Matrix, at: int, step: float, corners: bool) -> None:
    # area_pixel_compute_source_index: a place is not before the first input.
    place = at * step if corners else max((at + 0.5) * step - 0.5, 0.0)
    low = min(floor(place), len(row) - 1)
    high = min(low + 1, len(row) - 1)
    fraction = min(max(place - low, 0.0), 1.0)
    row[low] += 1 - fraction
    row[high] += fraction


def repeats(matrix: Matrix) -> int:
    """Return how often each input is repeated, where all are, equally and unchanged; else 0."""
    import numpy as np

    after, before = matrix.shape
    if after % before:
        return 0
    even = np.kron(np.eye(before), np.ones((after // before, 1)))
    return after // before if np.array_equal(matrix, even) else 0


def window_counts(
    size: int, outputs: int, tap: int, stride: int, pad: int, *, include_pad: bool
) -> tuple[int, ...]:
    """Return how many positions each window of an average counts along one axis."""
    counts = []
    for output in range(outputs):
        first = output * stride - pad
        # aten/src/ATen/native/cpu/AvgPoolKernel.cpp: with ceil_mode a window may end beyond the pads.
        last = min(first + tap, size + pad)
        counts.append(last - first if include_pad else min(last, size) - max(first, 0))
    return tuple(counts)


def average_pool_grad(b: Definition, node: Node) -> None:
    """Inputs: gradient. Each output's gradient goes to its window in equal parts."""
    (gradient,) = node.present_inputs
    attributes, shape = node.attributes, sizes(node.output(0))
    kernel, strides, pads = attributes["kernel_shape"], attributes["strides"], attributes["pads"]
    gradient, share = _shared(b, node, gradient)
    uncovered = [
        size - ((g - 1) * s - 2 * p + k)
        for size, g, s, p, k in zip(shape[2:], sizes(gradient)[2:], strides, pads, kernel, strict=True)
    ]
    # A convolution with equal weights, a group for each channel: overlapping windows add up.
    shares = b.op(
        "Expand", b.like(share, gradient), b.const((shape[1], 1, *kernel), "int64"),
        shape=(shape[1], 1, *kernel),
    )  # fmt: skip
    # A window may end beyond the input and its pads (ceil_mode).
    ends = [pad + max(0, -positions) for pad, positions in zip(pads, uncovered, strict=True)]
    b.op(
        "ConvTranspose", gradient, shares, into=node.output(0), kernel_shape=kernel, strides=strides,
        pads=(*pads, *ends), group=shape[1], output_padding=tuple(max(0, positions) for positions in uncovered),
    )  # fmt: skip


def _shared(b: Definition, node: Node, gradient: Tensor) -> tuple[Tensor, float]:
    """Return the gradient divided by its window's count where counts differ, and the share of what is left."""
    attributes = node.attributes
    if attributes["divisor"]:
        return gradient, 1 / attributes["divisor"]
    # A product of counts by axis is divided by one axis after another: each a row that broadcasts.
    counts = axis_counts(node)
    if all(len(set(axis)) == 1 for axis in counts):
        return gradient, 1 / prod(axis[0] for axis in counts)
    for position, axis in enumerate(counts):
        shape = [len(axis) if at == position else 1 for at in range(len(counts))]
        row = b.const([1 / number for number in axis], gradient.dtype.name)
        gradient = b.op("Mul", gradient, b.reshape(row, (1, 1, *shape)))
    return gradient, 1.0


def axis_counts(node: Node) -> list[tuple[int, ...]]:
    """Return the positions that windows of an average count, by axis; a window's count is their product."""
    attributes = node.attributes
    rows = zip(
        sizes(node.output(0))[2:], sizes(node.inputs[0])[2:], attributes["kernel_shape"], attributes["strides"],
        attributes["pads"], strict=True,
    )  # fmt: skip
    return [window_counts(*row, include_pad=bool(attributes["include_pad"])) for row in rows]


def through_matrices(b: Definition, node: Node) -> None:
    """Inputs: gradient. One product for each axis whose size changes, or a sum over repeated positions."""
    (tensor,) = node.present_inputs
    matrices = axis_matrices(node)
    for axis, matrix in enumerate(matrices, len(sizes(tensor)) - len(matrices)):
        tensor = _to_inputs(b, tensor, axis, matrix)
    b.reshape(tensor, sizes(node.output(0)), into=node.output(0))


def axis_matrices(node: Node) -> list[Matrix]:
    """Return the forward operator's weights along each axis of space, outputs by inputs."""
    attributes = node.attributes
    rows = zip(sizes(node.output(0))[2:], sizes(node.inputs[0])[2:], attributes["scales"], strict=True)
    corners = bool(attributes["align_corners"])
    return [resized(attributes["mode"], before, after, float(scale), corners) for before, after, scale in rows]


def _to_inputs(b: Definition, gradient: Tensor, axis: int, matrix: Matrix) -> Tensor:
    """Return the gradient along one axis taken back to the inputs."""
    repetitions = repeats(matrix)
    if repetitions == 1:
        return gradient
    if not repetitions:  # the gradient of a matrix's product is that of its transpose
        return _multiplied(b, gradient, axis, matrix.T)
    shape = sizes(gradient)
    repeated = b.reshape(gradient, (*shape[:axis], shape[axis] // repetitions, repetitions, *shape[axis + 1 :]))
    return b.sum(repeated, [axis + 1])


def _multiplied(b: Definition, tensor: Tensor, axis: int, matrix: Matrix) -> Tensor:
    """Return a matrix times every row along one axis."""
    shape = sizes(tensor)
    after = int(matrix.shape[0])
    if axis == len(shape) - 1:
        return b.op("MatMul", tensor, b.const(matrix.T, tensor.dtype.name), shape=(*shape[:-1], after))
    flat = b.reshape(tensor, _flat(shape, axis, shape[axis]))
    product = b.op(
        "MatMul", b.const(matrix, tensor.dtype.name), flat, shape=_flat(shape, axis, after), dtype=tensor.dtype
    )
    return b.reshape(product, (*shape[:axis], after, *shape[axis + 1 :]))


def _flat(shape: Sequence[int], axis: int, size: int) -> tuple[int, int, int]:
    return (prod(shape[:axis]), size, prod(shape[axis + 1 :]))
