"""When requests come: Poisson, or as a recorded trace has it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from analyzer.arrays import Floats
from analyzer.errors import UsageError
from analyzer.serving.poisson import streams
from analyzer.serving.queue import Queue
from analyzer.serving.streams import Stream


class Arrivals(Protocol):
    """Makes the requests of one queue."""

    def streams(
        self, queue: Queue, rate_per_s: float, lanes: int, requests: int, left_out: int, seed: int
    ) -> tuple[Stream, ...]:
        """Independent lanes at a rate below the queue's capacity, in the queue's unit of time.

        Args:
            queue: Whose requests they are.
            rate_per_s: Mean rate.
            lanes: How many.
            requests: How many should count in each.
            left_out: Requests before them, of arrivals that go on for ever.
            seed: Of what is drawn.
        """
        ...


@dataclass(frozen=True, slots=True)
class Poisson:
    """Requests that know nothing of each other."""

    def streams(
        self, queue: Queue, rate_per_s: float, lanes: int, requests: int, left_out: int, seed: int
    ) -> tuple[Stream, ...]:
        """Lanes of a queue that has been open for long."""
        return streams(queue, rate_per_s * queue.unit_s, lanes, requests, left_out, seed)


POISSON = Poisson()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Trace:
    """Requests as they were recorded, faster or slower as a whole, and dealt out to instances.

    Attributes:
        arrivals_s: Seconds since the start, rising, ``[requests]``.
        whole_rate_per_s: The mean rate of all requests together. An instance at a lower rate gets its share of
            them, drawn at random: its bursts then last as long as theirs.
    """

    arrivals_s: Floats
    whole_rate_per_s: float

    @property
    def own_rate_per_s(self) -> float:
        """The mean rate at which it was recorded."""
        return mean_rate_per_s(self.arrivals_s)

    def streams(
        self, queue: Queue, rate_per_s: float, lanes: int, requests: int, left_out: int, seed: int
    ) -> tuple[Stream, ...]:
        """Every lane is another instance's share of the trace, as many as make up the requests asked for."""
        del left_out  # a trace begins where it begins
        speed = self.own_rate_per_s / max(self.whole_rate_per_s, rate_per_s)
        arrivals = (self.arrivals_s - self.arrivals_s[0]) * (speed / queue.unit_s)
        share = min(1.0, rate_per_s / self.whole_rate_per_s)
        enough = math.ceil(requests * lanes / (share * len(arrivals)))
        instance = np.random.default_rng(seed).random(len(arrivals)) / share
        shares = (
            arrivals[(lane <= instance) & (instance < lane + 1)]
            for lane in range(min(lanes, enough, int(1 / share)))
        )
        free = np.zeros(queue.servers)
        # Whose batch would have been filled after the trace's end, nobody knows.
        known = arrivals[-1] - queue.max_delay
        return tuple(
            Stream(
                # An instance to which nobody comes has the first request alone: there is always one to tell of.
                arrivals=own if len(own) else arrivals[:1],
                counted_from=0,
                counted_to=max(1, int(own.searchsorted(known, side="right"))),
                free=free,
            )
            for own in shares
        )


def mean_rate_per_s(arrivals_s: Floats) -> float:
    """Requests a second of a trace.

    Raises:
        UsageError: All come at once.
    """
    span_s = float(arrivals_s[-1] - arrivals_s[0])
    if not span_s > 0:
        raise UsageError(
            "All requests of the trace come at the same time: it has no rate.",
            hint="The first column holds seconds since the start.",
        )
    return (len(arrivals_s) - 1) / span_s
