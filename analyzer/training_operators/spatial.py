"""Averages and resizing over the axes of an image, and their gradients."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING

from analyzer.graph import Node, Tensor
from analyzer.training_operators.definition import DefinitionBuilder, sizes
from analyzer.training_operators.windows import repeats, resized, window_counts

if TYPE_CHECKING:
    from analyzer.training_operators.windows import Matrix


def average_pool_grad(b: DefinitionBuilder, node: Node) -> None:
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


def _shared(b: DefinitionBuilder, node: Node, gradient: Tensor) -> tuple[Tensor, float]:
    """The gradient divided by its window's count where counts differ, and the share of what is left."""
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
    """How many positions the windows of an average count, axis by axis; a window's count is their product."""
    attributes = node.attributes
    rows = zip(
        sizes(node.output(0))[2:], sizes(node.inputs[0])[2:], attributes["kernel_shape"], attributes["strides"],
        attributes["pads"], strict=True,
    )  # fmt: skip
    return [window_counts(*row, include_pad=bool(attributes["include_pad"])) for row in rows]


def through_matrices(b: DefinitionBuilder, node: Node) -> None:
    """Inputs: gradient. One product for each axis whose size changes, or a sum over repeated positions."""
    (tensor,) = node.present_inputs
    matrices = axis_matrices(node)
    for axis, matrix in enumerate(matrices, len(sizes(tensor)) - len(matrices)):
        tensor = _to_inputs(b, tensor, axis, matrix)
    b.reshape(tensor, sizes(node.output(0)), into=node.output(0))


def axis_matrices(node: Node) -> list[Matrix]:
    """The forward operator's weights along each axis of space, outputs by inputs."""
    attributes = node.attributes
    rows = zip(sizes(node.output(0))[2:], sizes(node.inputs[0])[2:], attributes["scales"], strict=True)
    corners = bool(attributes["align_corners"])
    return [resized(attributes["mode"], before, after, float(scale), corners) for before, after, scale in rows]


def _to_inputs(b: DefinitionBuilder, gradient: Tensor, axis: int, matrix: Matrix) -> Tensor:
    """The gradient along one axis taken back to the inputs."""
    repetitions = repeats(matrix)
    if repetitions == 1:
        return gradient
    if not repetitions:  # the gradient of a matrix's product is that of its transpose
        return _multiplied(b, gradient, axis, matrix.T)
    shape = sizes(gradient)
    repeated = b.reshape(gradient, (*shape[:axis], shape[axis] // repetitions, repetitions, *shape[axis + 1 :]))
    return b.sum(repeated, [axis + 1])


def _multiplied(b: DefinitionBuilder, tensor: Tensor, axis: int, matrix: Matrix) -> Tensor:
    """A matrix times every row along one axis."""
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
