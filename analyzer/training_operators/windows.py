"""What each output position reads along one axis when it is resized, as a matrix.

Row ``i`` holds the weights with which output ``i`` takes the inputs, as PyTorch computes them. Axes are resized
one after another, so such matrices are all that the gradient needs.
"""

from __future__ import annotations

from functools import lru_cache
from math import floor
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Matrix = NDArray[np.float64]


@lru_cache(maxsize=64)
def resized(mode: str, before: int, after: int, scale: float, corners: bool) -> Matrix:
    """The weights of ``torch.nn.functional.interpolate`` along one axis.

    Args:
        mode: ``nearest``, ``nearest-exact`` or ``linear``.
        before: Inputs.
        after: Outputs.
        scale: The factor that the user gave, 0 where sizes alone tell it.
        corners: Whether the first and last positions coincide (``align_corners``).
    """
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
    """How often each input is taken in a row, where all are taken equally often and unchanged; else 0."""
    import numpy as np

    after, before = matrix.shape
    if after % before:
        return 0
    even = np.kron(np.eye(before), np.ones((after // before, 1)))
    return after // before if np.array_equal(matrix, even) else 0


def window_counts(
    size: int, outputs: int, tap: int, stride: int, pad: int, *, include_pad: bool
) -> tuple[int, ...]:
    """How many positions each window of an average counts along one axis."""
    counts = []
    for output in range(outputs):
        first = output * stride - pad
        # aten/src/ATen/native/cpu/AvgPoolKernel.cpp: with ceil_mode a window may end beyond the pads.
        last = min(first + tap, size + pad)
        counts.append(last - first if include_pad else min(last, size) - max(first, 0))
    return tuple(counts)
