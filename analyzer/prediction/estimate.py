"""A time with its interval and where it comes from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any, Literal, Self

from analyzer.arrays import Floats
from analyzer.figures import Figure
from analyzer.record.analysis import GpuOverhead

Bound = Literal["compute", "memory", "overhead"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate(Figure):
    """Seconds of an operator or a group, with what limits them.

    Attributes:
        bound: What limits it: ``compute`` (its own instructions, of arithmetic or not), ``memory`` or
            ``overhead`` (launch, dispatch); None where not known.
        overhead: Part of ``value``; None on a CPU and where it was measured.
    """

    bound: Bound | None = None
    overhead: GpuOverhead | None = None

    def scaled(self, factor: float) -> Estimate:
        """Return the estimate of a share or a multiple of the work."""
        if factor == 1:
            return self
        return Estimate(
            value=self.value * factor,
            low=self.low * factor,
            high=self.high * factor,
            origin=self.origin,
            bound=self.bound,
            overhead=None
            if (part := self.overhead) is None
            else GpuOverhead(**{each.name: getattr(part, each.name) * factor for each in fields(part)}),
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Times:
    """Columns of predicted times in seconds, with their 90 % intervals.

    Raises:
        ValueError: A time is negative, not a number, or outside of its interval.
    """

    value: Floats
    low: Floats
    high: Floats

    def __post_init__(self) -> None:
        """Refuse what nothing can take, as ``Figure`` does."""
        fine = (self.low >= 0) & (self.low <= self.value) & (self.value <= self.high)
        if not fine.all():
            ends = self.low[~fine][0], self.value[~fine][0], self.high[~fine][0]
            raise ValueError("no time with its interval: {} <= {} <= {} s".format(*ends))

    def changed(self, change: Callable[[Floats], Floats], **others: Any) -> Self:
        """Return the times with all three columns changed alike, and other fields replaced."""
        return replace(self, value=change(self.value), low=change(self.low), high=change(self.high), **others)

    def of(self, place: int) -> Figure:
        """Return the time at one place."""
        return Figure(value=float(self.value[place]), low=float(self.low[place]), high=float(self.high[place]))

    def total(self) -> Figure:
        """Return the sum, whose errors are shared, so that interval ends add as well."""
        return self.changed(lambda column: column.sum(keepdims=True)).of(0)


def limited(time: Figure, bound: Bound | None) -> Estimate:
    """Return a time with what limits it."""
    return Estimate(value=time.value, low=time.low, high=time.high, origin=time.origin, bound=bound)


def share_of_group(whole: Estimate, part: float) -> Estimate:
    """Return an operator's part of the time of the group that it runs in, 0 to 1.

    A group of several is one kernel: that takes the time that was measured, and how it divides is modelled.
    """
    time = whole.scaled(part)
    return replace(time, origin="mixed") if part < 1 and whole.origin == "measured" else time
