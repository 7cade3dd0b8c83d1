"""How long a server takes for a batch: what the queue knows of a model on a device."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from analyzer.arrays import Floats
from analyzer.errors import UsageError


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceCurve:
    """The time of a batch: linear between the points, that of the first below it, no batch above the last.

    Attributes:
        points: Batch and seconds, by rising batch.

    Raises:
        UsageError: No point, a batch that is no whole number from 1, twice the same, or a time of none.
    """

    points: tuple[tuple[int, float], ...]

    def __post_init__(self) -> None:
        """Checks the points."""
        points = tuple((batch, float(time_s)) for batch, time_s in self.points)
        if not points:
            raise UsageError("A service curve needs a point.", hint="Give (batch, seconds).")
        batches = [batch for batch, _ in points]
        if any(batch != int(batch) or batch < 1 for batch in batches) or sorted(set(batches)) != batches:
            raise UsageError(
                "The batches of a service curve must be whole numbers from 1, each above the one before.",
                hint="For example ((1, 0.004), (8, 0.011)).",
            )
        if not all(0 < time_s < math.inf for _, time_s in points):
            raise UsageError("The times of a service curve must be above zero.", hint="In seconds.")
        object.__setattr__(self, "points", points)

    @property
    def largest_batch(self) -> int:
        """The last point's."""
        return int(self.points[-1][0])

    def times(self, largest: int | None = None) -> Floats:
        """Seconds by batch, ``[largest + 1]``; the first, of no request at all, is 0."""
        batches, times_s = zip(*self.points, strict=True)
        at = np.arange(1, (largest or self.largest_batch) + 1)
        return np.concatenate(([0.0], np.interp(at, batches, times_s)))

    def time_s(self, batch: float) -> float:
        """Seconds of one batch."""
        batches, times_s = zip(*self.points, strict=True)
        return float(np.interp(batch, batches, times_s))
