"""A queue that forms batches, written anew: an event at a time with SimPy, and as a plain loop."""

from __future__ import annotations

import math
from collections.abc import Generator, Sequence
from typing import Any

import numpy as np
import simpy

from analyzer.arrays import Floats
from analyzer.figures import QueueLoad
from analyzer.serving.continuous import (
    Conversations,
    GenerationScenario,
    GenerationServer,
    simulated_generation,
)


def latencies_by_events(
    arrivals_s: Sequence[float], batch_s: Sequence[float], *, servers: int, max_batch: int, max_delay_s: float
) -> tuple[Floats, int]:
    """Latency of each request and the number of batches; ``batch_s[b]`` is the time of a batch of b.

    SimPy keeps the clock; who is waiting and which servers are free is looked at whenever something happens.
    """
    env = simpy.Environment()
    waiting: list[int] = []
    latency = np.zeros(len(arrivals_s))
    overdue: set[int] = set()
    state = {"free": servers, "batches": 0}

    def look() -> None:
        while state["free"] and waiting and (len(waiting) >= max_batch or waiting[0] in overdue):
            batch = waiting[:max_batch]
            del waiting[:max_batch]
            state["free"] -= 1
            state["batches"] += 1
            env.process(serve(batch))

    def serve(batch: list[int]) -> Generator[simpy.Event, Any, Any]:
        yield env.timeout(batch_s[len(batch)])
        for number in batch:
            latency[number] = env.now - arrivals_s[number]
        state["free"] += 1
        look()

    def request(number: int) -> Generator[simpy.Event, Any, Any]:
        yield env.timeout(arrivals_s[number])
        waiting.append(number)
        look()
        yield env.timeout(max_delay_s)
        overdue.add(number)
        look()

    for number in range(len(arrivals_s)):
        env.process(request(number))
    env.run()
    return latency, state["batches"]


def batches_by_loop(
    arrivals: Sequence[float],
    times: Sequence[float],
    *,
    free: Sequence[float],
    max_batch: int,
    max_delay: float,
) -> list[tuple[int, float, float]]:
    """Size, start and end of each batch."""
    servers, begin, result = list(free), 0, []
    while begin < len(arrivals):
        server = servers.index(min(servers))
        full_at = arrivals[begin + max_batch - 1] if begin + max_batch <= len(arrivals) else float("inf")
        start = max(servers[server], min(full_at, arrivals[begin] + max_delay))
        size = 1
        while size < max_batch and begin + size < len(arrivals) and arrivals[begin + size] <= start:
            size += 1
        servers[server] = start + times[size]
        result.append((size, start, servers[server]))
        begin += size
    return result


def exact_mean_of_all_waiting(rate: float, each: float, fixed: float, most: int = 2000) -> float:
    """The mean latency from the chain of batch sizes, solved by iteration."""
    sizes = np.arange(1, most + 1)
    log_factorials = np.array([math.lgamma(k + 1) for k in range(most + 1)])
    service = each * sizes + fixed
    share = np.full(most, 1 / most)
    means = rate * service
    came = np.exp(np.outer(np.log(means), np.arange(most + 1)) - means[:, None] - log_factorials)
    moves = came[:, 1:]
    moves[:, 0] += came[:, 0]  # nobody waits: the next request is served alone
    for _ in range(400):
        share = share @ moves
        share /= share.sum()
    # A request comes while a batch is served, longer ones more often, waits half of it and then its own batch.
    per_batch = share @ sizes
    return float((rate * (share @ service**2) / 2 + share @ (sizes * service)) / per_batch)


def simulate_generation(
    server: GenerationServer, rate_per_s: float, conversations: Conversations, *, requests: int = 4000
) -> QueueLoad:
    """Poisson arrivals of at least so many requests, whose lengths are drawn from given ones."""
    scenario = GenerationScenario(
        server=server,
        rate_per_s=rate_per_s,
        conversations=conversations,
        lanes=16,
        requests=math.ceil(requests / 16),
    )
    return simulated_generation([scenario])[0]
