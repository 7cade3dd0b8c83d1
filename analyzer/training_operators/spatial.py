"""Averages and resizing over the axes of an image, and their gradients.

What each output position reads along one axis when it is resized is a matrix: row ``i`` holds the weights with
which output ``i`` takes the inputs, as PyTorch computes them. Axes are resized one after another, so such
matrices are all that the gradient needs.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import floor, prod
from typing import TYPE_CHECKING

from analyzer.graph import Node, Tensor
from analyzer.training_operators.definition import DefinitionBuilder, sizes

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Matrix = NDArray[np.float64]


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


def through_matrices(b: DefinitionBuilder, node: Node) -> None:
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


def _to_inputs(b: DefinitionBuilder, gradient: Tensor, axis: int, matrix: Matrix) -> Tensor:
    """Return the gradient along one axis taken back to the inputs."""
    repetitions = repeats(matrix)
    if repetitions == 1:
        return gradient
    if not repetitions:  # the gradient of a matrix's product is that of its transpose
        return _multiplied(b, gradient, axis, matrix.T)
    shape = sizes(gradient)
    repeated = b.reshape(gradient, (*shape[:axis], shape[axis] // repetitions, repetitions, *shape[axis + 1 :]))
    return b.sum(repeated, [axis + 1])


def _multiplied(b: DefinitionBuilder, tensor: Tensor, axis: int, matrix: Matrix) -> Tensor:
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
