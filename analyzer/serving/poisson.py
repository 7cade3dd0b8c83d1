"""Poisson arrivals of a queue that has been open for long: lanes that begin in the midst of their traffic.

A lane that began empty would spend its first part filling up: at 95 % of what the servers can take, thousands
of requests. The fluid server, which takes single requests as fast as full batches would leave, is solved
exactly (M/D/1), and a lane begins with a backlog drawn from that solution. What requests wait for the fluid
server in a lane is then known beside what they wait on average: a lane which by chance had more traffic counts
for less (``weights``).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from analyzer.arrays import Floats
from analyzer.serving.queue import Queue


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Stream:
    """Requests before one queue; times in the queue's unit.

    Attributes:
        arrivals: Rising from 0 or later, ``[requests]``.
        counted_from, counted_to: The first request that counts, and the first behind those that do: the ones
            that come later fill the batches of the others, and nobody comes to fill their own.
        free: When each server is free for the first time, ``[servers]``.
        fluid_wait: What each request that counts waits for the fluid server of ``poisson``; None where that
            is not solved, or not wanted.
    """

    arrivals: Floats
    counted_from: int
    counted_to: int
    free: Floats
    fluid_wait: Floats | None = None


# Rounds of all servers after which a lane has forgotten how its first batches were cut, and of a queue near its
# capacity, where a batch that came out large makes the next one large: it grows as one over what is free.
_WARM_UP_ROUNDS = 5
_MOST_WARM_UP_ROUNDS = 100
# Fewer say nothing of how a lane's traffic and its latencies go together.
_LEAST_LANES = 8
# As much faster than full batches others may be.
_EFFICIENT = 1.05
# Below this load hardly a request waits for the fluid server.
_LEAST_LOAD = 0.3


def usual_batch(queue: Queue, rate: float) -> float:
    """About as many requests as a batch has: those that come while a server is busy, or the oldest waits."""
    most, least = float(queue.max_batch), max(1.0, 1 + rate * queue.max_delay)
    before, batch = 0.0, min(most, least)
    # A fixed point, from below.
    while batch - before > 0.01 * batch:
        before = batch
        batch = min(most, max(least, rate * float(queue.times[math.ceil(batch)]) / queue.servers))
    return batch


def warm_up(queue: Queue, rate: float) -> int:
    """Return the requests that a lane leaves out before it counts."""
    free = max(1 - rate / queue.capacity, 0.0)
    rounds = min(_WARM_UP_ROUNDS + 1 / max(free, 1e-9), _MOST_WARM_UP_ROUNDS)
    batch = usual_batch(queue, rate)
    # Single requests are served as by the fluid server, from whose backlog a lane begins.
    return math.ceil((_WARM_UP_ROUNDS if batch < 2 else rounds) * queue.servers * batch)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Draws:
    """Random draws of a lane, whatever its rate: two rates see the same traffic, one faster.

    Attributes:
        arrivals: At one request a unit of time, ``[requests]``.
        since: How much of a server's turn has gone by at the beginning, from 0 to 1.
        idle: Which of the servers are idle then, as far as some are.
        rests, many: Of what is before the fluid server: parts of services, and how many of them.
    """

    arrivals: Floats
    since: float
    idle: float
    rests: Floats
    many: float

    def work(self, load: float) -> float:
        """Services that M/D/1 has before it: a geometric number of uniform rests (Pollaczek, Khinchine)."""
        number = min(int(math.log(1 - self.many) / math.log(load)), len(self.rests))
        return float(self.rests[:number].sum())


# At 0.995 of the capacity the geometric number of rests is larger once in 10^9 times.
_MOST_RESTS = 4096


@lru_cache(maxsize=256)
def _draws(seed: int, lane: int, power: int) -> _Draws:
    """With ``2**power`` requests; kept, as every rate of a search asks for the same."""
    rng = np.random.default_rng((seed, lane))
    since, idle, many = rng.random(3)
    rests = rng.random(_MOST_RESTS)
    return _Draws(
        arrivals=np.cumsum(rng.exponential(size=2**power)), since=since, idle=idle, rests=rests, many=many
    )


def streams(
    queue: Queue, rate: float, lanes: int, requests: int, left_out: int, seed: int
) -> tuple[Stream, ...]:
    """Lanes in each of which so many requests count, behind those that are left out.

    ``rate`` is in requests a unit of time, that of the queue's times, below its capacity. Lanes of equal seed
    and number see the same traffic at every rate, faster or slower.
    """
    batch = usual_batch(queue, rate)
    service = float(queue.times[math.ceil(batch)])
    turns = np.arange(queue.servers)
    share_busy = min(1.0, rate * service / (batch * queue.servers))
    counted_to = left_out + requests
    # Requests that come within the delay, or fill a batch: the last that counts must not wait for none.
    expected = rate * queue.max_delay
    to_fill = math.ceil(expected + 6 * math.sqrt(expected)) if queue.max_delay else 0
    number = counted_to + min(queue.max_batch - 1, to_fill)
    # Where smaller batches are served faster than full ones, the fluid server is slower than the queue.
    sizes = np.arange(1, queue.max_batch + 1)
    is_fluid = bool((sizes / queue.times[1:]).max() <= _EFFICIENT * queue.max_batch / queue.times[-1])
    weighted = is_fluid and lanes >= _LEAST_LANES and rate >= _LEAST_LOAD * queue.capacity
    result = []
    for lane in range(lanes):
        drawn = _draws(seed, lane, math.ceil(math.log2(number)))
        later = drawn.arrivals[:number] / rate
        backlog = drawn.work(rate / queue.capacity) if is_fluid else 0.0
        # Servers take turns: `since` of a turn has gone by. Those who came meanwhile, but for the first, wait.
        busy = turns < share_busy * queue.servers - drawn.idle
        waiting = int(backlog + (drawn.since * (batch - 1) if busy.all() else 0.0))
        fluid_wait: Floats | None = None
        if weighted:
            # What the fluid server has before it when a request comes: Lindley's recursion in one sweep.
            between = 1 / queue.capacity
            served = np.arange(number) * between
            ahead = np.maximum(np.maximum.accumulate(later - served), backlog * between)
            fluid_wait = (ahead + served - later)[left_out:counted_to]
        result.append(
            Stream(
                arrivals=np.concatenate((np.zeros(waiting), later)),
                counted_from=waiting + left_out,
                counted_to=waiting + counted_to,
                free=np.where(busy, (turns + 1 - drawn.since) / queue.servers * service, 0.0),
                fluid_wait=fluid_wait,
            )
        )
    return tuple(result)


def weights(queue: Queue, rate: float, waits: Sequence[Floats]) -> Floats:
    """Return each lane's weight, near one: it makes the fluid server's load the expected one.

    ``waits`` are those of each lane's requests for that server. It is the regression estimator of surveys
    written as weights, so that percentiles profit as means do.
    """
    load, service = rate / queue.capacity, 1 / queue.capacity
    mean = load * service / (2 * (1 - load))
    # Waits of M/G/1 with a constant service on average, and their squares (Kleinrock, Queueing Systems 1, 5.7).
    expected = np.array([mean, 2 * mean**2 + load * service**2 / (3 * (1 - load))])
    scaled = np.array([[wait.mean(), np.square(wait).mean()] for wait in waits]) / expected
    centred = scaled - scaled.mean(axis=0)
    # Seldom do waits and their squares differ in what they tell: the pseudo-inverse leaves out what is noise.
    slope = np.linalg.pinv(centred.T @ centred / len(scaled), rcond=1e-3) @ (1 - scaled.mean(axis=0))
    # Below zero a lane would count backwards.
    return np.asarray(np.maximum(1 + centred @ slope, 0.0), dtype=np.float64)
