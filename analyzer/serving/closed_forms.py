"""Queues that are solved: single requests on several servers (M/D/c), and batches of all that wait."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from analyzer.arrays import Floats
from analyzer.errors import UsageError
from analyzer.serving.load import PERCENTILES, QueueLoad, by_percentile

# Of the probability of a long queue, beyond which states are left out.
_TAIL = 1e-12
# Of a batch: a system of so many equations takes a second.
_MOST_STATES = 3000


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SingleRequests:
    """M/D/c: Poisson arrivals, ``servers`` that take one request each, always ``service_s`` long.

    Attributes:
        rate_per_s, service_s, servers: What is asked.
        at_most: Probability of so many requests waiting or less, those in service left aside, ``[states]``.
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
        from scipy.stats import poisson

        wait = latency_s - self.service_s
        if wait < 0:
            return 0.0
        services = math.floor(wait / self.service_s) + 1  # the wait lies below so many services
        mean = self.rate_per_s * (services * self.service_s - wait)
        arrivals = np.arange(services * self.servers)
        left = np.minimum(services * self.servers - 1 - arrivals, len(self.at_most) - 1)
        return float(poisson.pmf(arrivals, mean) @ self.at_most[left])

    def percentile_s(self, percentile: float) -> float:
        """The latency within which this share of requests is answered, in percent."""
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
    from scipy.linalg import solve
    from scipy.stats import poisson

    load = rate_per_s * service_s / servers
    if not 0 < load < 1:
        raise UsageError(
            f"At a load of {load:g} the queue has no steady state.", hint="It must be above 0 and below 1."
        )
    # Whoever is in service now has left a service time later, and nobody who came meanwhile: of j requests
    # max(j - c, 0) stay, and as many come as Poisson has it.
    decay = -math.log(_TAIL) / (2 * (1 - load) / load)  # of the queue: heavy traffic's, which is the longest
    states = servers + math.ceil(decay + 6 * math.sqrt(rate_per_s * service_s) + 20)
    came = poisson.pmf(np.arange(states), rate_per_s * service_s)
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
    numbers = np.maximum(solve(equations, right), 0.0)
    return SingleRequests(
        rate_per_s=rate_per_s,
        service_s=service_s,
        servers=servers,
        at_most=np.minimum(np.cumsum(numbers)[servers:], 1.0),
    )


def all_waiting_bound_s(rate_per_s: float, each_s: float, fixed_s: float) -> float:
    """Upper bound of the mean latency where one server takes all that wait as one batch, however many.

    A batch of b takes ``fixed_s + b * each_s``. With E[B] of a batch known, the mean latency is exact; it falls
    with E[B], which is at least 1, and at least what it would be if no server ever waited for a request
    (Inoue, "Queueing analysis of GPU-based inference servers with dynamic batching", arXiv 1912.06322).

    Raises:
        UsageError: Requests come as fast as they are served in a batch without end, or faster.
    """
    load = rate_per_s * each_s
    if not load < 1:
        raise UsageError(f"At a load of {load:g} the queue has no steady state.", hint="It must be below 1.")
    batch = max(1.0, rate_per_s * fixed_s / (1 - load))
    # Of B' = max(1, Poisson(rate * (fixed + each * B))), squared and averaged: E[B^2] / E[B].
    squares = (1 + load * (2 * rate_per_s * fixed_s) + (rate_per_s * fixed_s) ** 2 / batch) / (1 - load**2)
    # A request waits half of the service that it comes in, counted by length, and then its own batch's.
    waits = load * each_s * squares / 2 + load * fixed_s + rate_per_s * fixed_s**2 / (2 * batch)
    return waits + each_s * squares + fixed_s


def all_waiting_mean_s(rate_per_s: float, each_s: float, fixed_s: float) -> float:
    """The mean latency itself, from the sizes of batches as a Markov chain.

    A batch of b takes ``fixed_s + b * each_s``; the next one holds those who came meanwhile, at least one.

    Raises:
        UsageError: As for ``all_waiting_bound_s``, or batches are too large to be solved.
    """
    from scipy.linalg import solve
    from scipy.stats import poisson

    load = rate_per_s * each_s
    bound_s = all_waiting_bound_s(rate_per_s, each_s, fixed_s)
    # Of an autoregression: the mean that follows from itself, and the spread that Poisson gives it.
    usual = (rate_per_s * fixed_s + 1) / (1 - load)
    largest = math.ceil(usual + 10 * math.sqrt(usual / (1 - load**2)) + 20)
    if largest > _MOST_STATES:
        raise UsageError(
            f"Batches of {usual:,.0f} are too large to be solved.", hint=f"The mean is at most {bound_s:g} s."
        )
    sizes = np.arange(1, largest + 1, dtype=np.int64)
    service_s = fixed_s + each_s * sizes
    came = np.asarray(poisson.pmf(np.arange(largest + 1)[:, None], rate_per_s * service_s))
    moves = came[1:]
    moves[0] += came[0]  # nobody came: the next request is served alone
    moves[-1] += 1 - moves.sum(axis=0)
    equations = moves - np.eye(largest)
    equations[0] = 1.0
    shares = solve(equations, np.eye(1, largest)[0])
    # A request comes in a batch's time, half of which it waits, more of them in longer ones; then its own's.
    waited = rate_per_s * (shares @ service_s**2) / 2
    return float((waited + shares @ (sizes * service_s)) / (shares @ sizes))
