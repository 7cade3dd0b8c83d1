"""Whether what a session holds fits a device's memory, and the largest batch that does.

One model for the verdict, the sweep, a training step, the findings and a run on the GPU here: weights and
planned activations must lie in what the device leaves once its runtime has taken its own.
"""

from __future__ import annotations

from collections.abc import Callable

from analyzer.devices.device import Device
from analyzer.units import byte_count

# What a process holds of a GPU's memory before its first tensor: about 300 MB with CUDA 11.7 or newer, which
# loads kernels when they are used (a maintainer of PyTorch, github.com/pytorch/pytorch/issues/107667); the
# NAIRR's guide to GPU estimates says 300 MB to 1 GB with the libraries' workspaces. Assumed for every GPU.
CUDA_CONTEXT_BYTES = 300_000_000

# ONNX Runtime's arena doubles what it asks the GPU for (the default arena_extend_strategy, kNextPowerOfTwo;
# BFCArena::Extend in onnxruntime/core/framework/bfc_arena.cc): it may hold twice what is in use.
_ARENA_GROWTH = 2


def room(device: Device | None) -> int | None:
    """Bytes that a device leaves for weights and activations; None where its memory is not known."""
    if device is None or device.memory_bytes is None:
        return None
    # A CPU's memory counts whole: what the system and other processes hold of it is not known.
    return cuda_room(device.memory_bytes) if device.kind == "gpu" else device.memory_bytes


def cuda_room(free: int) -> int:
    """What CUDA's context leaves of this much memory of a GPU."""
    return max(0, free - CUDA_CONTEXT_BYTES)


def cuda_room_if_arena_grows(free: int) -> int:
    """What may be in use where the arena comes to hold the most that it may."""
    return cuda_room(free) // _ARENA_GROWTH


def fits(needed: int | None, available: int | None) -> bool:
    """Whether so much fits; true as well where either is not known."""
    # Unknown is no finding: a verdict may not rest on what nobody knows.
    return needed is None or available is None or needed <= available


def context_note(needed: int | None, memory: int | None) -> str:
    """What to say where a GPU's memory would do but for CUDA's own part of it; empty elsewhere."""
    if needed is None or memory is None or not cuda_room(memory) < needed <= memory:
        return ""
    return f" beside the {byte_count(CUDA_CONTEXT_BYTES)} of CUDA's own"


def largest_between(batch_fits: Callable[[int], bool], low: int, high: int) -> int:
    """The largest batch that fits, by bisection.

    Args:
        batch_fits: Whether a batch fits; no batch above one that does not fit does.
        low: One that fits, or one below all that are allowed.
        high: A larger one that does not.
    """
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if batch_fits(middle) else (low, middle)
    return low


def largest_from(batch_fits: Callable[[int], bool], guess: int) -> int:
    """The largest batch that fits, 0 where none does: from a guess in growing strides, then by bisection."""
    return largest_between(batch_fits, *_bracket(batch_fits, max(1, guess)))


def _bracket(batch_fits: Callable[[int], bool], guess: int) -> tuple[int, int]:
    """A batch that fits (0 where none does) and a larger one that does not."""
    # Growing strides: each try prepares a whole model, and the guess is usually near.
    stride = 1
    if batch_fits(guess):
        while batch_fits(guess + stride):
            guess, stride = guess + stride, 2 * stride
        return guess, guess + stride
    while guess > stride and not batch_fits(guess - stride):
        guess, stride = guess - stride, 2 * stride
    return max(0, guess - stride), guess


def largest_by_growth(fixed: int, needed: int | None, batch: int | None, available: int | None) -> int | None:
    """The largest batch where all but a fixed part grows with it.

    Args:
        fixed: Bytes that no batch changes.
        needed: Bytes at a batch.
        batch: That batch.
        available: Bytes that there are.

    Returns:
        0 where not even one fits; None where a figure is not known or nothing grows.
    """
    if needed is None or not batch or available is None or needed <= fixed:
        return None
    return max(0, (available - fixed) * batch // (needed - fixed))
