"""A time with its interval and where it comes from."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from typing import Literal

Bound = Literal["compute", "memory", "overhead"]
Origin = Literal["measured", "predicted", "mixed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Overhead:
    """What of a time on a GPU is not the operator's own arithmetic and traffic, in seconds.

    See ``prediction.gpu.launch``, and ``prediction.gpu.kernels`` for the last.

    Attributes:
        floor_s: Of kernels with nothing to do.
        gap_s: Between kernels in a CUDA graph.
        host_s: What launching node by node adds: longer gaps, and the host's surplus where it is the slower.
        surplus_s: That surplus, a part of ``host_s``.
        layout_s: Of kernels that turn a convolution's tensors to channels last and back.
    """

    floor_s: float
    gap_s: float
    host_s: float
    surplus_s: float = 0.0
    layout_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """Seconds, with a 90 % interval.

    Attributes:
        time_s: The expected time.
        low_s, high_s: 90 % interval.
        origin: ``measured``, ``predicted``, or ``mixed`` for a sum of both.
        bound: What limits it: ``compute`` (its own instructions, of arithmetic or not), ``memory`` or
            ``overhead`` (launch, dispatch); None where not known.
        method: How it was obtained, in a few words, for the report.
        overhead: Part of ``time_s``; None on a CPU and where it was measured.

    Raises:
        ValueError: It is negative, not a number, or its interval does not hold it.
    """

    time_s: float
    low_s: float
    high_s: float
    origin: Origin
    bound: Bound | None = None
    method: str = ""
    overhead: Overhead | None = None

    def __post_init__(self) -> None:
        """Refuse what no run can take: such a figure is a fault of ours, and decides a purchase unseen."""
        # Only an error of a part that has no time of its own goes below nothing.
        least = -math.inf if self.time_s == 0 else 0.0
        if not least <= self.low_s <= self.time_s <= self.high_s:
            raise no_time(self.low_s, self.time_s, self.high_s)

    def scaled(self, factor: float) -> Estimate:
        """The same estimate of a share (or a multiple) of the work."""
        if factor == 1:
            return self
        return Estimate(
            time_s=self.time_s * factor,
            low_s=self.low_s * factor,
            high_s=self.high_s * factor,
            origin=self.origin,
            bound=self.bound,
            method=self.method,
            overhead=None
            if (part := self.overhead) is None
            else Overhead(**{each.name: getattr(part, each.name) * factor for each in fields(part)}),
        )

    def widened(self, factor: float) -> Estimate:
        """Return the same time with an interval that is so many times as wide on either side."""
        return self if factor == 1 else replace(self, low_s=self.low_s / factor, high_s=self.high_s * factor)


def no_time(low_s: object, time_s: object, high_s: object) -> ValueError:
    """Return the error of a time that is negative, not a number, or outside of its interval."""
    return ValueError(f"no time with its interval: {low_s} <= {time_s} <= {high_s} s")


def share_of_group(whole: Estimate, part: float) -> Estimate:
    """An operator's part of the time of the group that it runs in, 0 to 1.

    A group of several is one kernel: that takes the time that was measured, and how it divides is modelled.
    """
    time = whole.scaled(part)
    return replace(time, origin="mixed") if part < 1 and whole.origin == "measured" else time


def total(parts: Iterable[Estimate]) -> Estimate:
    """The sum of estimates whose errors are shared (one device), so that interval ends add as well."""
    items = tuple(parts)
    origins = {item.origin for item in items if item.time_s > 0}
    origin: Origin = origins.pop() if len(origins) == 1 else ("mixed" if origins else "predicted")
    return Estimate(
        time_s=sum(item.time_s for item in items),
        low_s=sum(item.low_s for item in items),
        high_s=sum(item.high_s for item in items),
        origin=origin,
    )
