"""Queues with batches: their parameters and closed forms."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Generic, Literal, TypeVar

import numpy as np

from analyzer.arrays import Floats
from analyzer.errors import UsageError
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
    """The number of instances of a kind, and their load.

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
        """Check the points."""
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
        """Return seconds by batch, ``[largest + 1]``; the first, of no request at all, is 0."""
        batches, times_s = zip(*self.points, strict=True)
        at = np.arange(1, (largest or self.largest_batch) + 1)
        return np.concatenate(([0.0], np.interp(at, batches, times_s)))

    def time_s(self, batch: float) -> float:
        """Return seconds of one batch."""
        batches, times_s = zip(*self.points, strict=True)
        return float(np.interp(batch, batches, times_s))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Queue:
    """A queue and its servers. Times are in units of a full batch's, so that none is too small or too large.

    Attributes:
        times: Of a batch by its size, ``[max_batch + 1]``; the last is 1.
        servers: How many take batches.
        max_batch: Most requests in a batch.
        max_delay: How long the oldest request may wait for its batch to fill.
        unit_s: Seconds of a full batch.
    """

    times: Floats
    servers: int
    max_batch: int
    max_delay: float
    unit_s: float

    @property
    def capacity(self) -> float:
        """Requests a unit of time where every batch is full: what comes faster waits ever longer."""
        return float(self.servers * self.max_batch)

    @property
    def max_delay_s(self) -> float:
        """The longest delay in seconds."""
        return self.max_delay * self.unit_s

    @property
    def fastest_s(self) -> float:
        """Seconds of the quickest batch: no latency is below it."""
        return float(self.times[1:].min()) * self.unit_s

    @property
    def capacity_per_s(self) -> float:
        """The same a second."""
        return self.capacity / self.unit_s


# Before many servers a queue that forms batches has two ways to go on: single requests, of which one server or
# another is always free for the next, and large batches, which once begun go on for hundreds of services. Which
# of them lasts takes more requests to tell than are looked at: at 64 servers a plain loop's 99th percentile is
# within a few per cent, at 256 it is 13 % above.
MOST_SERVERS_OF_BATCHES = 64


def make_queue(
    curve: ServiceCurve, *, servers: int = 1, max_batch: int | None = None, max_delay_s: float = 0.0
) -> Queue:
    """Check what a user gave; the arguments are those of ``simulate``.

    Raises:
        UsageError: A value that cannot be right.
    """
    most = curve.largest_batch if max_batch is None else max_batch
    if servers < 1:
        raise UsageError("A queue needs a server.", hint="servers=1 or more.")
    if not 1 <= most <= curve.largest_batch:
        raise UsageError(
            f"A batch of {most} is none: the service curve holds batches from 1 to {curve.largest_batch}.",
            hint="Give a smaller max_batch, or a curve with that batch.",
        )
    if most > 1 and servers > MOST_SERVERS_OF_BATCHES:
        raise UsageError(
            f"Batches before {servers:,} servers of one queue are not looked at.",
            hint=f"Up to {MOST_SERVERS_OF_BATCHES} are: split the traffic among queues, or give max_batch=1.",
        )
    if not 0 <= max_delay_s < math.inf:
        raise UsageError(f"A delay of {max_delay_s:g} s is none.", hint="Give seconds from 0.")
    times_s = curve.times(most)
    unit_s = float(times_s[most])
    return Queue(
        times=times_s / unit_s, servers=servers, max_batch=most, max_delay=max_delay_s / unit_s, unit_s=unit_s
    )


# Of the probability of a long queue, beyond which states are left out.
_TAIL = 1e-12


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SingleRequests:
    """M/D/c: Poisson arrivals, ``servers`` that take one request each, always ``service_s`` long.

    ``at_most`` is the probability of so many requests waiting or less, those in service left aside,
    ``[states]``.
    """

    rate_per_s: float
    service_s: float
    servers: int
    at_most: Floats

    @property
    def mean_s(self) -> float:
        """Mean latency, the service with it."""
        # Little: requests waiting on average, over the rate.
        waiting = float((1 - self.at_most).sum())
        return waiting / self.rate_per_s + self.service_s

    def share_within(self, latency_s: float) -> float:
        """Share of requests that are answered within so many seconds.

        Franx, "A simple solution for the M/D/c waiting time distribution", Operations Research Letters 29
        (2001): sums of positive terms, which stay exact where the older alternating ones cancel out.
        """
        wait = latency_s - self.service_s
        if wait < 0:
            return 0.0
        services = math.floor(wait / self.service_s) + 1  # the wait lies below so many services
        mean = self.rate_per_s * (services * self.service_s - wait)
        arrivals = np.arange(services * self.servers)
        left = np.minimum(services * self.servers - 1 - arrivals, len(self.at_most) - 1)
        return float(_poisson(len(arrivals), mean) @ self.at_most[left])

    def percentile_s(self, percentile: float) -> float:
        """Return the latency within which this share of requests is answered, in percent."""
        share = percentile / 100
        low, high = self.service_s, self.service_s
        if self.share_within(low) >= share:
            return low
        while self.share_within(high) < share:
            low, high = high, high + self.service_s
        for _ in range(50):
            middle = (low + high) / 2
            low, high = (middle, high) if self.share_within(middle) < share else (low, middle)
        return high

    def load(self) -> QueueLoad:
        """Return all of it as a plain value; no request was looked at."""
        return QueueLoad(
            rate_per_s=self.rate_per_s,
            mean_s=self.mean_s,
            **by_percentile(map(self.percentile_s, PERCENTILES)),
            mean_batch=1.0,
            utilisation=self.rate_per_s * self.service_s / self.servers,
        )


def single_requests(rate_per_s: float, service_s: float, servers: int = 1) -> SingleRequests:
    """Solve M/D/c by its numbers of requests a service time apart (Crommelin, 1932).

    Raises:
        UsageError: Requests come as fast as the servers can take them, or faster.
    """
    load = rate_per_s * service_s / servers
    if not 0 < load < 1:
        raise UsageError(
            f"At a load of {load:g} the queue has no steady state.", hint="It must be above 0 and below 1."
        )
    # Whoever is in service now has left a service time later, and nobody who came meanwhile: of j requests
    # max(j - c, 0) stay, and as many come as Poisson has it.
    decay = -math.log(_TAIL) / (2 * (1 - load) / load)  # of the queue: heavy traffic's, which is the longest
    states = servers + math.ceil(decay + 6 * math.sqrt(rate_per_s * service_s) + 20)
    came = _poisson(states, rate_per_s * service_s)
    stays = np.maximum(np.arange(states) - servers, 0)
    to, of = np.indices((states, states))
    more = to - stays[of]
    moves = np.where(more >= 0, came[np.maximum(more, 0)], 0.0)
    # The last state holds all longer queues, so that no probability is lost.
    moves[-1] += 1 - moves.sum(axis=0)
    equations = moves - np.eye(states)
    equations[0] = 1.0
    right = np.zeros(states)
    right[0] = 1.0
    numbers = np.maximum(np.linalg.solve(equations, right), 0.0)
    return SingleRequests(
        rate_per_s=rate_per_s,
        service_s=service_s,
        servers=servers,
        at_most=np.minimum(np.cumsum(numbers)[servers:], 1.0),
    )


def _poisson(count: int, mean: float) -> Floats:
    """Return the probability of 0, 1, ... arrivals, so many numbers; ``scipy.special`` takes long to import."""
    # Where a mean is rounded to 0 nobody comes.
    logs = np.arange(count) * math.log(max(mean, sys.float_info.min)) - _log_factorials(count) - mean
    return np.asarray(np.exp(logs), dtype=np.float64)


@lru_cache(maxsize=64)
def _log_factorials(count: int) -> Floats:
    return np.cumsum(np.log(np.maximum(np.arange(count), 1)))
