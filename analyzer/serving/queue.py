"""One queue: the time of each batch, how batches are formed, how many servers take them."""

from __future__ import annotations

import math
from dataclasses import dataclass

from analyzer.arrays import Floats
from analyzer.errors import UsageError
from analyzer.serving.service_curve import ServiceCurve


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
    """Checks what a user gave; the arguments are those of ``simulate``.

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
