"""Sizes of a guessed input for which a layer gets the width that it takes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from analyzer.loading.python.input_spec import InputSpec

# Beyond the frequencies, steps and pixels of usual inputs a trial takes seconds.
_LARGEST = 1024
Specs = tuple[InputSpec, ...]


def with_width(
    specs: Specs, others: Sequence[Sequence[InputSpec]], taken: int, width_at: Callable[[Specs], int | None]
) -> Specs | None:
    """The inputs with the least size at which the layer gets what it takes; None where no size gives that.

    Args:
        specs: A guess at which the layer gets another width.
        others: By input, further guesses: axes on which they differ are those that the first layers leave open.
        taken: The width that the layer takes.
        width_at: What it is given, None where the call ends before it. Larger inputs give larger widths.
    """
    for position, shapes in enumerate(others):
        shape = specs[position].shape
        alike = [other.shape for other in shapes if len(other.shape) == len(shape)]
        axes = [axis for axis, size in enumerate(shape) if any(other[axis] != size for other in alike)]
        deciding = _deciding(specs, position, axes, width_at)
        solved = _least(specs, position, deciding, taken, width_at) if deciding else None
        if solved is not None:
            return solved
    return None


def _deciding(
    specs: Specs, position: int, axes: Sequence[int], width_at: Callable[[Specs], int | None]
) -> list[int]:
    """The axes on which the width depends: the others keep their size."""
    width = width_at(specs)
    found = []
    for axis in axes:
        size = specs[position].shape[axis]
        if size is not None and width_at(_sized(specs, position, [axis], 2 * size)) != width:
            found.append(axis)
    return found


def _least(
    specs: Specs, position: int, axes: Sequence[int], taken: int, width_at: Callable[[Specs], int | None]
) -> Specs | None:
    low, high = 1, _LARGEST
    while low < high:
        middle = (low + high) // 2
        # What ends before the layer is too small for a kernel, or for a pooling.
        if (width_at(_sized(specs, position, axes, middle)) or 0) < taken:
            low = middle + 1
        else:
            high = middle
    solved = _sized(specs, position, axes, low)
    return solved if width_at(solved) == taken else None


def _sized(specs: Specs, position: int, axes: Sequence[int], size: int) -> Specs:
    shape = list(specs[position].shape)
    for axis in axes:
        shape[axis] = size
    return (*specs[:position], replace(specs[position], shape=tuple(shape)), *specs[position + 1 :])
