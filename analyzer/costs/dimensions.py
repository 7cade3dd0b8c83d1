"""Counting: sizes of tensors as numbers, or an error that names what is open."""

from __future__ import annotations

from math import prod

from analyzer.graph import Node, Tensor, packed_bytes


class OpenSizeError(ValueError):
    """A size that a rule needs is not known.

    Attributes:
        tensor: The tensor whose size it is, None where the whole tensor is missing.
    """

    def __init__(self, message: str, tensor: Tensor | None = None) -> None:
        super().__init__(message)
        self.tensor = tensor


def dims(tensor: Tensor | None) -> tuple[int, ...]:
    """A tensor's shape with every size known.

    Raises:
        OpenSizeError: The rank or a size is open; the message names tensor and axis.
    """
    if tensor is None:
        raise OpenSizeError("an input that the count needs is absent")
    shape = tensor.shape
    if shape is None or None in shape:
        raise OpenSizeError(_open_size(tensor), tensor)
    return shape  # type: ignore[return-value]  # no None is left, mypy cannot see it


def _open_size(tensor: Tensor) -> str:
    if tensor.shape is None:
        return f"the shape of '{tensor.name}' is not known"
    axes = ", ".join(str(axis) for axis, size in enumerate(tensor.shape) if size is None)
    return f"the size of '{tensor.name}' along axis {axes} is not known"


def elements(tensor: Tensor | None) -> int:
    """A tensor's number of elements.

    Raises:
        OpenSizeError: It is not known.
    """
    return prod(dims(tensor))


def nbytes(tensor: Tensor) -> int:
    """A tensor's bytes, sub-byte types rounded up.

    Raises:
        OpenSizeError: Its shape is open or its elements have no fixed width (strings, sequences).
    """
    size = packed_bytes(tensor.shape, tensor.dtype.bits)
    if size is not None:
        return size
    if tensor.dtype.bits is None:
        raise OpenSizeError(f"elements of '{tensor.name}' ({tensor.dtype.name}) have no fixed width", tensor)
    raise OpenSizeError(_open_size(tensor), tensor)


def out(node: Node, position: int = 0) -> int:
    """Number of elements of an output."""
    return prod(dims(node.output(position)))


def value(tensor: Tensor | None) -> tuple[int | float, ...] | None:
    """The elements of a small tensor that is known before the run, flat; None where they are not known."""
    if tensor is None or tensor.value is None:
        return None
    return tuple(tensor.value.ravel().tolist())
