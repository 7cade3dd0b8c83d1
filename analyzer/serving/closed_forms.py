"""Queues that are solved: single requests on several servers (M/D/c), and batches of all that wait."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from analyzer.arrays import Floats, Ints
from analyzer.errors import UsageError
from analyzer.figures import QueueLoad
from analyzer.serving.queue import PERCENTILES, by_percentile

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
        return float(_poisson(arrivals, mean) @ self.at_most[left])

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
        """All of it as a plain value; no request was looked at."""
        return QueueLoad(
            rate_per_s=self.rate_per_s,
            mean_s=self.mean_s,
            **by_percentile(map(self.percentile_s, PERCENTILES)),
            mean_batch=1.0,
            utilisation=self.rate_per_s * self.service_s / self.servers,
        )


def single_requests(rate_per_s: float, service_s: float, servers: int = 1) -> SingleRequests:
    """Solves M/D/c by its numbers of requests a service time apart (Crommelin, 1932).

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
    came = _poisson(np.arange(states), rate_per_s * service_s)
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


def _poisson(numbers: Ints, mean: float) -> Floats:
    """Return the probability of each number of arrivals; ``scipy.stats`` takes most of a second to import."""
    from scipy.special import gammaln, xlogy

    return np.asarray(np.exp(xlogy(numbers, mean) - gammaln(numbers + 1) - mean), dtype=np.float64)
