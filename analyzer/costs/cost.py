"""Costs: what an operator computes and moves, whatever device runs it; sizes as numbers, bytes it must move.

Each input element that is needed is read once, each output element written once, each tensor with its own
width. An operator that needs part of an input only says so by ``@reads``; a view moves nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, Literal, Protocol

from analyzer.graph import DEFAULT_DOMAIN, Node, Tensor, packed_bytes
from analyzer.operators import is_view

Basis = Literal["exact", "modelled", "unknown"]
# The weakest part decides a sum's basis.
_RANK = {"exact": 0, "modelled": 1, "unknown": 2}


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """FLOPs and compulsory memory traffic of one operator or of a sum of them. Costs add.

    Attributes:
        flops: Floating-point (or integer) operations; a multiply-accumulate is 2. None where not known.
        macs: Multiply-accumulates of products alone (no bias, softmax or gate arithmetic).
        bytes_read: Bytes that must be read at least once, weights included.
        bytes_written: Bytes that must be written.
        basis: ``exact`` (follows from shapes alone), ``modelled`` (rests on an assumption that ``note``
            names) or ``unknown`` (no rule, or a shape is missing).
        note: The assumption, or why it is unknown.

    In a sum ``None`` counts as nothing and the basis becomes the weakest of the parts: a total whose
    basis is ``unknown`` reads "at least".
    """

    flops: int | None = 0
    macs: int | None = 0
    bytes_read: int | None = 0
    bytes_written: int | None = 0
    basis: Basis = "exact"
    note: str = ""

    def __add__(self, other: Cost) -> Cost:
        """Return the sum; unknown parts add nothing and are remembered in the basis."""
        return Cost(
            flops=_plus(self.flops, other.flops),
            macs=_plus(self.macs, other.macs),
            bytes_read=_plus(self.bytes_read, other.bytes_read),
            bytes_written=_plus(self.bytes_written, other.bytes_written),
            basis=max(self.basis, other.basis, key=_RANK.__getitem__),
            note=self.note or other.note,
        )

    @property
    def bytes_moved(self) -> int | None:
        """Bytes read and written together."""
        if self.bytes_read is None or self.bytes_written is None:
            return None
        return self.bytes_read + self.bytes_written

    @property
    def intensity(self) -> float | None:
        """Arithmetic intensity, FLOPs per byte moved; None where either is not known or nothing moves."""
        moved = self.bytes_moved
        return None if self.flops is None or not moved else self.flops / moved


ZERO = Cost()


def _plus(left: int | None, right: int | None) -> int | None:
    if left is None and right is None:
        return None
    return (left or 0) + (right or 0)


class Costs(Protocol):
    """The part of a ``CostTable`` that prediction and decision read: costs in the graph's order."""

    @property
    def costs(self) -> Sequence[Cost]:
        """One per node."""


class OpenSizeError(ValueError):
    """A size that a rule needs is not known.

    Attributes:
        tensor: The tensor whose size it is, None where the whole tensor is missing.
    """

    def __init__(self, message: str, tensor: Tensor | None = None) -> None:
        super().__init__(message)
        self.tensor = tensor


def dims(tensor: Tensor | None) -> tuple[int, ...]:
    """Return a tensor's shape with every size known.

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
    """Return a tensor's number of elements.

    Raises:
        OpenSizeError: It is not known.
    """
    return prod(dims(tensor))


def nbytes(tensor: Tensor) -> int:
    """Return a tensor's bytes, sub-byte types rounded up.

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
    """Return the number of elements of an output."""
    return prod(dims(node.output(position)))


def value(tensor: Tensor | None) -> tuple[int | float, ...] | None:
    """Return the elements of a small tensor known before the run, flat; None where they are not known."""
    if tensor is None or tensor.value is None:
        return None
    return tuple(tensor.value.ravel().tolist())


Parts = Callable[[Node], Mapping[int, int]]
_READS: dict[tuple[str, str], Parts] = {}
_WRITES: dict[tuple[str, str], Parts] = {}
_EMPTY: Mapping[int, int] = {}


def reads(*op_types: str, domain: str = DEFAULT_DOMAIN) -> Callable[[Parts], Parts]:
    """Register a function that gives, by input position, the bytes read where they are not the whole input."""
    return _registered(_READS, op_types, domain)


def writes(*op_types: str, domain: str = DEFAULT_DOMAIN) -> Callable[[Parts], Parts]:
    """Register a function that gives, by output position, the bytes written where they are not all."""
    return _registered(_WRITES, op_types, domain)


def _registered(
    table: dict[tuple[str, str], Parts], op_types: tuple[str, ...], domain: str
) -> Callable[[Parts], Parts]:
    def decorate(function: Parts) -> Parts:
        table.update(((domain, op_type), function) for op_type in op_types)
        return function

    return decorate


def read_by_tensor(node: Node) -> dict[str, int]:
    """Return bytes read of each tensor, by name; a tensor used twice is read once.

    Raises:
        OpenSizeError: A size is not known.
    """
    if is_view(node):
        return {}
    special = _READS.get((node.domain, node.op_type))
    partial = special(node) if special else _EMPTY
    sizes: dict[str, int] = {}
    for position, tensor in enumerate(node.inputs):
        if tensor is not None:
            size = partial[position] if position in partial else nbytes(tensor)
            if size > sizes.get(tensor.name, -1):
                sizes[tensor.name] = size
    return sizes


def written_by_tensor(node: Node) -> dict[str, int]:
    """Return bytes written to each output, by name.

    Raises:
        OpenSizeError: A size is not known.
    """
    if is_view(node):
        return {}
    special = _WRITES.get((node.domain, node.op_type))
    partial = special(node) if special else _EMPTY
    return {
        tensor.name: partial[position] if position in partial else nbytes(tensor)
        for position, tensor in enumerate(node.outputs)
        if tensor is not None
    }


def traffic(node: Node) -> tuple[int, int]:
    """Return bytes read and bytes written.

    Raises:
        OpenSizeError: A size is not known.
    """
    key = (node.domain, node.op_type)
    if is_view(node):
        return 0, 0
    read = written = 0
    if key in _WRITES:
        written = sum(written_by_tensor(node).values())
    else:
        # Each tensor of each count passes here: ``nbytes``, a call more, is asked only to name what is open.
        for tensor in node.outputs:
            if tensor is not None:
                size = packed_bytes(tensor.shape, tensor.dtype.bits)
                written += nbytes(tensor) if size is None else size
    if key in _READS:
        return sum(read_by_tensor(node).values()), written
    inputs = node.inputs
    # ``x * x`` reads x once; a dict, not a set, so that of two open inputs the first is named in each run.
    may_repeat = len(inputs) > 2 or (len(inputs) == 2 and inputs[0] is inputs[1])
    for tensor in dict.fromkeys(inputs) if may_repeat else inputs:
        if tensor is not None:
            size = packed_bytes(tensor.shape, tensor.dtype.bits)
            read += nbytes(tensor) if size is None else size
    return read, written


def cost(node: Node, *, flops: int, macs: int = 0, basis: Basis = "exact", note: str = "") -> Cost:
    """Return a Cost with these operations and the node's compulsory traffic.

    Bytes are None, and the basis ``modelled``, where elements have no fixed width (strings, sequences); open
    shapes raise OpenSizeError, which the count reports as ``unknown`` with its reason.
    """
    try:
        read, written = traffic(node)
    except OpenSizeError as error:
        if error.tensor is None or error.tensor.dtype.bits is not None:
            raise
        note = note or f"{error}: bytes are not counted"
        return Cost(flops=flops, macs=macs, bytes_read=None, bytes_written=None, basis="modelled", note=note)
    # ``Cost(...)``, five times as fast: a frozen dataclass sets its fields one by one through ``object``.
    new: Any = _Draft()
    new.flops = flops
    new.macs = macs
    new.bytes_read = read
    new.bytes_written = written
    new.basis = basis
    new.note = note
    new.__class__ = Cost
    return new  # type: ignore[no-any-return]  # a Cost since the line above


class _Draft:
    __slots__ = Cost.__slots__
