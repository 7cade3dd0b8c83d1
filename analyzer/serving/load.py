"""What must be taken, by what, and what comes of it: the same for batches and for continuous batching."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Generic, Literal, TypeVar

from analyzer.figures import LimitPoint, QueueLoad

Percentile = Literal[50, 90, 95, 99]
PERCENTILES: tuple[Percentile, ...] = (50, 90, 95, 99)
CopyTimes = TypeVar("CopyTimes")


def by_percentile(values: Iterable[float]) -> dict[str, Any]:
    """Return values of ``PERCENTILES`` by the names that a load has for them."""
    return {f"p{name}_s": value for name, value in zip(PERCENTILES, values, strict=True)}


@dataclass(frozen=True, kw_only=True, eq=False)
class Need:
    """Traffic and what it may take.

    Attributes:
        rate_per_s: Of all requests, growth with it.
        limit_s: Of the percentile of the latency, or of its mean where that is None; of a model that generates,
            of the time to the first token.
        headroom: Share of the rate that must be free as well.
        spare: Instances that may fail.
        max_batch: None to choose.
    """

    rate_per_s: float
    limit_s: float
    percentile: Percentile | None = 99
    headroom: float = 0.0
    spare: int = 0
    max_batch: int | None = None

    def count(self, highest_rate_per_s: float) -> int | None:
        """Return how many instances are needed, the spare ones with them; None where one takes nothing."""
        if highest_rate_per_s <= 0:
            return None
        return needed(self.rate_per_s, highest_rate_per_s, self.headroom) + self.spare


def needed(rate_per_s: float, highest_rate_per_s: float, headroom: float) -> int:
    """Return the instances for a rate, without spare ones; the highest rate is one instance's, above 0."""
    # A rate that is met exactly stays so, however its product was rounded.
    return max(1, math.ceil(rate_per_s * (1 + headroom) / highest_rate_per_s * (1 - 1e-12)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Server(Generic[CopyTimes]):
    """A model's copies on one instance, behind one queue; of a model that generates each with its own.

    Attributes:
        times: Of one copy; ``quick`` and ``slow`` are the ends of its 90 % interval.
        copies: Run side by side.
    """

    times: CopyTimes
    quick: CopyTimes
    slow: CopyTimes
    copies: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizing:
    """How one kind of instance meets a need.

    Attributes:
        max_batch, max_delay_s: The batching with the highest rate.
        highest_rate_per_s: Of one instance; 0 where no rate keeps the limit, or no number of instances at the
            rate that is needed. ``low_rate_per_s`` and ``high_rate_per_s`` are those of the slow and the
            quick end of the service times.
        count: Instances, the spare ones with them; None where no number keeps the limit.
        load: One of them at its part of the rate; above the limit where so light a load keeps it from being
            kept, None where no rate keeps it.
        loads: One of them at rates up to near its capacity.
        within: By rising limit.
    """

    max_batch: int
    max_delay_s: float = 0.0
    highest_rate_per_s: float
    low_rate_per_s: float
    high_rate_per_s: float
    count: int | None
    load: QueueLoad | None
    loads: tuple[QueueLoad, ...]
    within: tuple[LimitPoint, ...]
