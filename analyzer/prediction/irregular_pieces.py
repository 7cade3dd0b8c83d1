"""Operators whose time follows neither what they write nor the bytes they move.

Indexed moves, searches, transforms, determinants, and boxes.

Each function makes the piece of one operator, whose ``elements`` are units that ``cpu.vectors`` has a time for.
"""

from __future__ import annotations

import math
from dataclasses import replace

from analyzer.costs.cost import Cost
from analyzer.graph import Node, Tensor
from analyzer.prediction.work_item import Kind, Piece


def indexed(node: Node, _cost: Cost, base: Piece) -> list[Piece]:
    """GatherND copies a run for each index; scatters copy the data and then write the updates."""
    run = base.elements
    if node.op_type == "GatherND":
        indices = node.input(1)
        width = _last(indices)
        many = elements_of(indices) / width if width else 0.0
    else:
        updates = node.input(2)
        run = elements_of(updates)
        width = _last(node.input(1)) if node.op_type == "ScatterND" else 0
        many = elements_of(node.input(1)) / width if width else 1.0
    many = max(1.0, many)
    return [replace(base, kind=Kind.MOVE, elements=run, rows=many, row=run / many)]


def transforms(node: Node, _cost: Cost, base: Piece) -> list[Piece]:
    """DFT and STFT: butterflies, of each frame ``n log2 n``."""
    source = node.input(0)
    if source is None or not source.shape or source.elements is None:
        return [base]
    sizes = tuple(size or 0 for size in source.shape)
    if node.op_type == "STFT":
        window = value_of(node.input(3)) or elements_of(node.input(2))
        written = node.output(0)
        frames = float(sizes[0] * (written.shape[1] or 0)) if written is not None and written.shape else 0.0
    else:
        axis = int(
            node.attributes.get("axis", 1) if node.version < _AXIS_IS_INPUT else value_of(node.input(2), -2)
        )
        if not -len(sizes) <= axis < len(sizes) or not sizes[axis]:
            return [base]
        window = value_of(node.input(1)) or float(sizes[axis])
        frames = math.prod(sizes[:-1]) / sizes[axis]
    return [replace(base, kind=Kind.VECTOR, op=BUTTERFLIES, elements=frames * _butterflies(int(window)))]


BUTTERFLIES = "FourierButterflies"
_AXIS_IS_INPUT = 20


def _butterflies(length: int) -> float:
    """Of one transform; of a length that is no power of two those of longer ones (Bluestein)."""
    if length < 2:
        return float(length)
    if length & (length - 1) == 0:
        return length * math.log2(length)
    # The next power of two from twice the length; two of its transforms took as long (400: 64 to 97 us).
    longer = 1 << (2 * length - 1).bit_length()
    return _OF_OTHER_LENGTHS * longer * math.log2(longer)


_OF_OTHER_LENGTHS = 2.0


def determinants(node: Node, _cost: Cost, base: Piece) -> list[Piece]:
    """Det: each matrix is eliminated, rows by rows; of 3, 8, 16 and 64 rows in 0.15, 0.65, 1.4 and 25 us."""
    size = _last(node.input(0))
    return [
        replace(base, kind=Kind.VECTOR, elements=base.elements * (_OF_A_MATRIX + _OF_A_ROW * float(size) ** 2))
    ]


_OF_A_MATRIX, _OF_A_ROW = 130.0, 5.5


def boxes(node: Node, _cost: Cost, base: Piece) -> list[Piece]:
    """NonMaxSuppression: scores are compared and sorted, however few boxes are kept."""
    return [replace(base, kind=Kind.VECTOR, elements=elements_of(node.input(1)))]


def elements_of(tensor: Tensor | None) -> float:
    """How many elements a tensor has; 0 where that is not known."""
    return float((tensor.elements if tensor is not None else 0) or 0)


def value_of(tensor: Tensor | None, default: int = 0) -> int:
    """The first element of a tensor whose value is known."""
    if tensor is None or tensor.value is None or not tensor.value.size:
        return default
    return int(tensor.value.reshape(-1)[0])


def _last(tensor: Tensor | None) -> int:
    return int((tensor.shape[-1] if tensor is not None and tensor.shape else 0) or 0)
