"""For each kind of instance: how to batch, what one of them takes within the limit, how many are needed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from analyzer.figures import LimitPoint, QueueLoad
from analyzer.serving.arrivals import POISSON, Arrivals, Poisson
from analyzer.serving.closed_forms import single_requests
from analyzer.serving.highest_rate import (
    FIRST_SHARES,
    Effort,
    HighestRate,
    highest_rates,
    loads_at,
    share_within,
)
from analyzer.serving.load import Need, Server, Sizing
from analyzer.serving.queue import MOST_SERVERS_OF_BATCHES, Queue, ServiceCurve, make_queue
from analyzer.serving.simulation import Served

# Shares of the capacity at which every batching is looked at before one is chosen.
_SHARES = (0.03, 0.1, 0.2, 0.35, 0.5, 0.65, 0.78, 0.87, 0.93, 0.97)
_CHOOSING = Effort(requests=600, lanes=4)
_COMPARING = (Effort(requests=500, lanes=4), Effort(requests=2000, lanes=8))
_FINAL = (Effort(requests=2000, lanes=16), Effort(requests=8000, lanes=16))
# What is solved at once: shares of the capacity and servers.
_SOLVED_TO, _SOLVED_SERVERS = 0.9, 32
_AT_COUNT = Effort(requests=12_000, lanes=16)
# A batch that takes these parts of the limit is tried as the largest, beside all powers of two.
_PARTS_OF_LIMIT = (0.35, 0.5, 0.7, 1.0)
# Parts of the limit that the oldest request may wait for its batch to fill.
_DELAYS = (0.1, 0.25)
# What a delay must gain to be advised: less is the noise of what was looked at.
_GAIN = 1.02
# Parts by which a highest rate is taken to be lower, one after the other, where the load that follows from it
# was seen above the limit; and how near to that rate a load is for which it can be to blame.
_LESS = (0.01, 0.02, 0.04, 0.08, 0.16)
_NEAR = 0.95
# Limits, beside the one that was asked for, at which the highest rate is told.
_TIMES_THE_LIMIT = (*(0.1, 0.14, 0.2, 0.28, 0.4, 0.56, 0.75), *(1.33, 1.8, 2.5, 3.5, 5.0, 7.0, 10.0))


@dataclass(frozen=True, kw_only=True, eq=False)
class Demand(Need):
    """Traffic of single requests; ``max_delay_s`` is None to choose."""

    arrivals: Arrivals = POISSON
    max_delay_s: float | None = None


BatchServer = Server[ServiceCurve]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Tried:
    """A batching, and one instance with it at ``_SHARES`` of its capacity."""

    queue: Queue
    loads: tuple[Served, ...]

    def rate_within(self, limit_s: float, percentile: float | None) -> float:
        return share_within(self.loads, limit_s, percentile) * self.queue.capacity_per_s


def sizings(servers: Sequence[BatchServer], demand: Demand) -> dict[BatchServer, Sizing]:
    """The sizing of every server; all of them are searched at once."""
    every = tuple(dict.fromkeys(servers))
    if not every:
        return {}
    tried = _all_tried(every, demand)
    queues = [_best(tried[server], demand.limit_s, demand.percentile).queue for server in every]
    if demand.max_delay_s is None:
        queues = _delayed(queues, [server.times for server in every], demand)
    middle = _highest(queues, demand, _FINAL)
    low = _highest(_like(queues, [server.slow for server in every]), demand, _COMPARING, _SHARES)
    high = _highest(_like(queues, [server.quick for server in every]), demand, _COMPARING, _SHARES)
    confirmed = _confirmed(queues, [found.rate_per_s for found in middle], demand)
    return {
        server: Sizing(
            max_batch=queue.max_batch,
            max_delay_s=queue.max_delay * queue.unit_s,
            highest_rate_per_s=rate_per_s,
            # What was looked at less closely may come out on the other side of what was looked at closely.
            low_rate_per_s=min(slow.rate_per_s, rate_per_s),
            high_rate_per_s=max(quick.rate_per_s, rate_per_s),
            count=count,
            load=load,
            loads=tuple(
                served.load()
                for served in (found.looked_at or _best(tried[server], demand.limit_s, demand.percentile).loads)
            ),
            within=_within(tried[server], queue, rate_per_s, demand),
        )
        for server, queue, found, slow, quick, (rate_per_s, count, load) in zip(
            every, queues, middle, low, high, confirmed, strict=True
        )
    }


def _all_tried(servers: Sequence[BatchServer], demand: Demand) -> dict[BatchServer, list[_Tried]]:
    queues = [_to_try(server, demand) for server in servers]
    every = [queue for of_server in queues for queue in of_server]
    loads = iter(loads_at(every, [_SHARES] * len(every), demand.arrivals, _CHOOSING))
    return {
        server: [_Tried(queue=queue, loads=tuple(next(loads))) for queue in of_server]
        for server, of_server in zip(servers, queues, strict=True)
    }


def _to_try(server: BatchServer, demand: Demand) -> list[Queue]:
    """Batchings of a server, of those with larger batches the ones that bring something."""
    curve, delay_s = server.times, demand.max_delay_s or 0.0
    times_s = curve.times()[1:]

    def within(limit_s: float) -> int:
        return int(np.count_nonzero(times_s <= limit_s))

    if demand.max_batch is not None:
        batches = {min(demand.max_batch, curve.largest_batch)}
    else:
        powers = {2**power for power in range(within(_TIMES_THE_LIMIT[-1] * demand.limit_s).bit_length())}
        batches = {1} | powers | {within(part * demand.limit_s) for part in _PARTS_OF_LIMIT} - {0}
    queues: list[Queue] = []
    for batch in sorted(batches):
        # Of more copies than batches can be told of, as many take part: the rate is at least so high.
        copies = server.copies if batch == 1 else min(server.copies, MOST_SERVERS_OF_BATCHES)
        queue = make_queue(curve, servers=copies, max_batch=batch, max_delay_s=delay_s)
        if not queues or queue.capacity_per_s > _GAIN * queues[-1].capacity_per_s:
            queues.append(queue)
    return queues


def _best(tried: Sequence[_Tried], limit_s: float, percentile: float | None) -> _Tried:
    """Of the highest rate; where none keeps the limit, the quickest."""

    def rank(one: _Tried) -> tuple[float, float]:
        # A batch that takes longer than the limit keeps it only as long as it does not fill.
        rate_per_s = one.rate_within(limit_s, percentile) if one.queue.unit_s <= limit_s else 0.0
        return (-rate_per_s, one.queue.unit_s)

    return min(tried, key=rank)


def _delayed(queues: Sequence[Queue], curves: Sequence[ServiceCurve], demand: Demand) -> list[Queue]:
    """With a delay where that lets more requests through."""
    able = [number for number, queue in enumerate(queues) if queue.max_batch > 1]
    result, rates = list(queues), [0.0] * len(queues)
    for part in (0.0, *_DELAYS):
        delay_s = part * demand.limit_s
        # Alone, the first request waits the whole delay.
        now = [number for number in able if curves[number].time_s(1) + delay_s <= demand.limit_s]
        delayed = [_batched(curves[number], queues[number], delay_s) for number in now]
        looked = loads_at(delayed, [_SHARES] * len(delayed), demand.arrivals, _CHOOSING)
        for number, queue, served in zip(now, delayed, looked, strict=True):
            rate_per_s = share_within(served, demand.limit_s, demand.percentile) * queue.capacity_per_s
            if rate_per_s > rates[number] * _GAIN and _keeps_below(served, rate_per_s, demand):
                rates[number], result[number] = rate_per_s, queue
    return result


def _keeps_below(served: Sequence[Served], rate_per_s: float, demand: Demand) -> bool:
    """Whether the limit is kept at lower rates too: at night fewer requests come to fill a batch."""
    below = [one for one in served if one.scenario.rate_per_s < rate_per_s]
    return all(one.latency_s(demand.percentile) <= demand.limit_s for one in below)


def _batched(curve: ServiceCurve, like: Queue, delay_s: float) -> Queue:
    return make_queue(curve, servers=like.servers, max_batch=like.max_batch, max_delay_s=delay_s)


def _like(queues: Sequence[Queue], curves: Sequence[ServiceCurve]) -> list[Queue]:
    """The same batchings with other times."""
    return [
        _batched(curve, queue, queue.max_delay * queue.unit_s)
        for queue, curve in zip(queues, curves, strict=True)
    ]


def _highest(
    queues: Sequence[Queue],
    demand: Demand,
    efforts: tuple[Effort, Effort],
    shares: Sequence[float] = FIRST_SHARES,
) -> list[HighestRate]:
    return highest_rates(queues, demand.limit_s, demand.percentile, demand.arrivals, efforts, shares)


def _confirmed(
    queues: Sequence[Queue], highest: Sequence[float], demand: Demand
) -> list[tuple[float, int | None, QueueLoad | None]]:
    """Highest rates, counts and loads that agree: so many instances were seen to keep the limit.

    A highest rate is a per cent or two off. Where the load that follows from it is above the limit, the rate is
    taken to be lower. That does not help where the load is light, and requests wait for their batch to fill.
    """
    rates = list(highest)
    counts = [demand.count(rate_per_s) for rate_per_s in rates]
    loads = _at_count(queues, counts, demand)

    def is_over(number: int) -> bool:
        load = loads[number]
        return load is not None and (load.latency_s(demand.percentile) or math.inf) > demand.limit_s

    for less in _LESS:
        over = [
            number
            for number, load in enumerate(loads)
            if load is not None and is_over(number) and load.rate_per_s > _NEAR * rates[number]
        ]
        for number in over:
            load = loads[number]
            assert load is not None
            rates[number] = min(rates[number], load.rate_per_s) * (1 - less)
            counts[number] = demand.count(rates[number])
        again = _at_count([queues[number] for number in over], [counts[number] for number in over], demand)
        for number, load in zip(over, again, strict=True):
            loads[number] = load
    return [
        (0.0, None, load) if is_over(number) else (rate_per_s, count, load)
        for number, (rate_per_s, count, load) in enumerate(zip(rates, counts, loads, strict=True))
    ]


def _at_count(queues: Sequence[Queue], counts: Sequence[int | None], demand: Demand) -> list[QueueLoad | None]:
    shares = [
        () if count is None else (demand.rate_per_s / count / queue.capacity_per_s,)
        for queue, count in zip(queues, counts, strict=True)
    ]
    solved = [_solved(queue, share, demand) for queue, share in zip(queues, shares, strict=True)]
    open_shares = [() if load else share for load, share in zip(solved, shares, strict=True)]
    loads = loads_at(queues, open_shares, demand.arrivals, _AT_COUNT)
    return [load or (served[0].load() if served else None) for load, served in zip(solved, loads, strict=True)]


def _solved(queue: Queue, share: tuple[float, ...], demand: Demand) -> QueueLoad | None:
    """Single requests are solved exactly, in little time but near the capacity."""
    if not share or queue.max_batch > 1 or not isinstance(demand.arrivals, Poisson):
        return None
    if share[0] > _SOLVED_TO or queue.servers > _SOLVED_SERVERS:
        return None
    return single_requests(share[0] * queue.capacity_per_s, queue.unit_s, queue.servers).load()


def _within(
    tried: Sequence[_Tried], queue: Queue, highest_rate_per_s: float, demand: Demand
) -> tuple[LimitPoint, ...]:
    """The highest rate by limit; at the limit that was asked for it is the one that was looked at closely."""

    def within(limit_s: float, rate_per_s: float, queue: Queue) -> LimitPoint:
        return LimitPoint(
            limit_s=limit_s,
            rate_per_s=rate_per_s,
            max_batch=queue.max_batch,
            max_delay_s=queue.max_delay * queue.unit_s,
        )

    rows = [within(demand.limit_s, highest_rate_per_s, queue)]
    for times in _TIMES_THE_LIMIT:
        limit_s = times * demand.limit_s
        best = _best(tried, limit_s, demand.percentile)
        rate_per_s = best.rate_within(limit_s, demand.percentile) if best.queue.unit_s <= limit_s else 0.0
        # A looser limit is kept by whatever keeps the one that was asked for.
        rate_per_s = max(rate_per_s, highest_rate_per_s) if times > 1 else min(rate_per_s, highest_rate_per_s)
        rows.append(within(limit_s, rate_per_s, best.queue))
    return tuple(sorted(rows, key=lambda row: row.limit_s))
