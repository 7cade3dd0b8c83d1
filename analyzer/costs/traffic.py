"""Counting: the bytes that an operator must move, alone.

Each input element that is needed is read once, each output element written once, each tensor with its own
width. An operator that needs part of an input only says so by ``@reads``; a view moves nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from analyzer.costs.cost import Basis, Cost
from analyzer.costs.dimensions import OpenSizeError, nbytes
from analyzer.graph import DEFAULT_DOMAIN, Node, packed_bytes
from analyzer.operators import is_view

Parts = Callable[[Node], Mapping[int, int]]
_READS: dict[tuple[str, str], Parts] = {}
_WRITES: dict[tuple[str, str], Parts] = {}
_EMPTY: Mapping[int, int] = {}


def reads(*op_types: str, domain: str = DEFAULT_DOMAIN) -> Callable[[Parts], Parts]:
    """Registers a function that gives, by input position, the bytes read where they are not the whole input."""
    return _registered(_READS, op_types, domain)


def writes(*op_types: str, domain: str = DEFAULT_DOMAIN) -> Callable[[Parts], Parts]:
    """Registers a function that gives, by output position, the bytes written where they are not all."""
    return _registered(_WRITES, op_types, domain)


def _registered(
    table: dict[tuple[str, str], Parts], op_types: tuple[str, ...], domain: str
) -> Callable[[Parts], Parts]:
    def decorate(function: Parts) -> Parts:
        table.update(((domain, op_type), function) for op_type in op_types)
        return function

    return decorate


def read_by_tensor(node: Node) -> dict[str, int]:
    """Bytes read of each tensor, by name; a tensor used twice is read once.

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
    """Bytes written to each output, by name.

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
    """Bytes read and bytes written.

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
    """A Cost with these operations and the node's compulsory traffic.

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
