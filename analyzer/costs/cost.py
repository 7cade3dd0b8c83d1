"""Costs: what an operator computes and moves, whatever device it runs on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

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
        """The sum; unknown parts add nothing and are remembered in the basis."""
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
