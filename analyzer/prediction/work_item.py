"""A piece of work: one kernel's worth of an operator, in the numbers that a device's model needs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from analyzer.arrays import Bools


class Kind(IntEnum):
    """The kind of kernel of a piece; each has its own form in the device models."""

    NONE = 0
    VECTOR = 1
    REDUCE = 2
    NORM = 3
    SOFTMAX = 4
    MOVE = 5
    POOL = 6
    MATMUL = 7
    CONV = 8
    DEPTHWISE = 9
    RECURRENT = 10
    TREE = 11
    ATTENTION = 12
    EXPERTS = 13
    BIAS = 14


PRODUCTS = frozenset(
    {Kind.MATMUL, Kind.CONV, Kind.DEPTHWISE, Kind.RECURRENT, Kind.TREE, Kind.ATTENTION, Kind.EXPERTS}
)


def among(kinds: Iterable[Kind]) -> Bools:
    """By ``Kind``, whether it is one of these, for indexing by kinds: np.isin takes a hundred times longer."""
    table = np.zeros(len(Kind), dtype=np.bool_)
    table[[int(kind) for kind in kinds]] = True
    return table


IS_PRODUCT = among(PRODUCTS)
MALFORMED = (ArithmeticError, IndexError, TypeError, ValueError)
"""Exceptions of a rule at a node whose sizes or attributes its operator cannot have; others are bugs."""
# Bytes of one floating-point element as pieces count them; a precision scales them.
FLOAT_BYTES = 4.0


@dataclass(slots=True, kw_only=True)
class Piece:
    """One kernel's worth of work. Floating-point bytes are counted as fp32 and scaled by the precision.

    Attributes:
        kind: Form of its model.
        op: Operator type, for the per-element costs of a CPU.
        flops: Floating-point operations.
        read, written: Floating-point bytes at four bytes an element.
        fixed: Bytes of integers, indices and booleans, whatever the precision.
        weights: The part of ``read`` that is constant.
        kept: The part of ``read`` and ``written`` that lies where the last run left it: keys and values.
        fixed_weights: The part of ``fixed`` that is constant: packed weights.
        batch, m, n, k: A product's shape: ``batch`` products of [m, k] by [k, n]. Of a move, the tensors.
        taps: Kernel positions of a convolution or pooling window.
        stride: Product of a convolution's strides; of a reduction, from an element to the next one.
        spatial: Output positions of a convolution along its spatial axes.
        rows, row: Rows and elements per row of a norm, softmax or reduction.
        steps: Steps that must follow each other.
        elements: Elements written (or read by a reduction).
        narrow: 1 for a product of floats of 8 bits, and for what makes them of wider ones, else 0.
        unpacked: 1 for a product that unpacks its weights on the way, else 0.
        least: Share of its work that is surely done: less than 1 where sequences may be shorter.
        repeats: How often it is done, one after the other: the trips of a loop.
        spread: Factor by which it may be done more or less often, where data decide that.
        shared_by: Threads of a CPU at most that can share it out; 0: as many as there are.
        width: Bits of an element over those of the elements that its loop was measured with.

    Of a fused attention, ``batch`` are sequences, ``m`` new tokens of each, ``n`` keys before them, ``k`` the
    size of a head, ``rows`` heads, ``row`` heads of keys and values, ``taps`` the window (0: none), ``stride``
    1 where it is causal, else 0, and ``spatial`` bytes of an element of the cache (0: a float's). Of experts,
    ``m`` are tokens, ``k`` their width, ``n`` an expert's, ``batch`` experts, ``steps`` how many a token takes,
    ``taps`` its products, and ``spatial`` 1 where their 8-bit floats have a scale for each block. Of trees,
    ``n`` are the nodes of one.
    """

    kind: Kind
    op: str
    flops: float = 0.0
    read: float = 0.0
    written: float = 0.0
    fixed: float = 0.0
    weights: float = 0.0
    kept: float = 0.0
    fixed_weights: float = 0.0
    batch: float = 1.0
    m: float = 0.0
    n: float = 0.0
    k: float = 0.0
    taps: float = 1.0
    stride: float = 1.0
    spatial: float = 0.0
    rows: float = 1.0
    row: float = 0.0
    steps: float = 1.0
    elements: float = 0.0
    narrow: float = 0.0
    unpacked: float = 0.0
    least: float = 1.0
    repeats: float = 1.0
    spread: float = 1.0
    shared_by: float = 0.0
    width: float = 1.0
