"""Represent a figure: a value with its 90 % interval and its origin (leaf: imports nothing of ours)."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Literal, Self

Origin = Literal["measured", "predicted", "mixed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A value in SI units or dollars; its holder's name says of what and in which unit.

    Attributes:
        value: The expected value.
        low, high: Ends of the 90 % interval.
        origin: ``measured``, ``predicted``, or ``mixed`` for a sum of both.

    Raises:
        ValueError: The value is negative, not a number, or outside of its interval.
    """

    value: float
    low: float
    high: float
    origin: Origin = "predicted"

    def __post_init__(self) -> None:
        """Refuse what nothing can take or cost: a fault of ours, which would decide a purchase unseen."""
        # Only an error of a part that has no value of its own goes below nothing.
        least = -math.inf if self.value == 0 else 0.0
        if not least <= self.low <= self.value <= self.high:
            raise ValueError(f"no figure with its interval: {self.low} <= {self.value} <= {self.high}")

    def scaled(self, factor: float) -> Self:
        """Return the figure of a share or a multiple of the same thing, or in another unit."""
        if factor == 1:
            return self
        return replace(self, value=self.value * factor, low=self.low * factor, high=self.high * factor)

    def widened(self, factor: float) -> Self:
        """Return the same value with an interval that is so many times as wide on either side."""
        return self if factor == 1 else replace(self, low=self.low / factor, high=self.high * factor)

    def keys(self, name: str) -> dict[str, Any]:
        """Return the figure as the record's flat keys: ``latency_s``, ``low_s``, ``high_s`` and ``origin``."""
        unit = name[name.rindex("_") :]
        return {name: self.value, f"low{unit}": self.low, f"high{unit}": self.high, "origin": self.origin}


def total(parts: Iterable[Figure]) -> Figure:
    """Return the sum of figures whose errors are shared (one device), so that interval ends add as well."""
    items = tuple(parts)
    origins = {item.origin for item in items if item.value > 0}
    origin: Origin = origins.pop() if len(origins) == 1 else ("mixed" if origins else "predicted")
    return Figure(
        value=sum(item.value for item in items),
        low=sum(item.low for item in items),
        high=sum(item.high for item in items),
        origin=origin,
    )
