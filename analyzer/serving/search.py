"""For each kind of instance: how to batch, what one of them takes within the limits, how many are needed.

Single inferences wait for a batch, sequences of a model that generates run side by side. One search serves
both; what differs is a discipline: ways to batch, what is simulated of them, the rate that keeps the limits.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from analyzer.figures import LimitPoint, QueueLoad
from analyzer.serving.arrivals import POISSON, Arrivals, Poisson
from analyzer.serving.continuous import (
    Conversations,
    GenerationScenario,
    GenerationServer,
    highest_throughput_per_s,
    simulated_generation,
)
from analyzer.serving.highest_rate import Effort, highest_rates, loads_at, share_within
from analyzer.serving.queue import (
    MOST_SERVERS_OF_BATCHES,
    Need,
    Queue,
    Server,
    ServiceCurve,
    Sizing,
    make_queue,
    single_requests,
)
from analyzer.serving.simulation import Served


@dataclass(frozen=True, kw_only=True, eq=False)
class Demand(Need):
    """Traffic of single requests; ``max_delay_s`` is None to choose."""

    arrivals: Arrivals = POISSON
    max_delay_s: float | None = None


@dataclass(frozen=True, kw_only=True, eq=False)
class GenerationDemand(Need):
    """Traffic of prompts.

    ``tpot_s`` limits the percentile of the time of each further token of a request; None for no limit.
    """

    conversations: Conversations
    tpot_s: float | None = None


BatchServer = Server[ServiceCurve]
GeneratingServer = Server[GenerationServer]
_Looks = Sequence[Any]  # what was simulated of a way to batch, by rising rate
_Tried = Sequence[tuple[Any, _Looks]]


def sizings(servers: Sequence[Server[Any]], demand: Demand | GenerationDemand) -> dict[Server[Any], Sizing]:
    """Return the sizing of every server; all of them are searched at once."""
    every = tuple(dict.fromkeys(servers))
    if not every:
        return {}
    # Copies of a model that generates know nothing of each other, and one is searched.
    discipline: _Batches | _Sequences
    if isinstance(demand, Demand):
        discipline, copies, searched = _Batches(demand), [1] * len(every), every
    else:
        discipline, copies = _Sequences(demand), [server.copies for server in every]
        searched = tuple(replace(server, copies=1) for server in every)
    by_server = _searched(tuple(dict.fromkeys(searched)), discipline)
    result = [by_server[server] for server in searched]
    confirmed = _confirmed(result, copies, discipline)
    return {
        server: _sizing(one, number, discipline, *agreed)
        for server, one, number, agreed in zip(every, result, copies, confirmed, strict=True)
    }


def latency_ends(
    server: Server[Any], sizing: Sizing, demand: Demand | GenerationDemand
) -> tuple[float | None, float | None]:
    """Return the limited latency at a sizing's load with quick and slow times; None where the queue grows."""
    discipline, copies = (
        (_Batches(demand), 1) if isinstance(demand, Demand) else (_Sequences(demand), server.copies)
    )
    ways: list[Any] = [
        discipline.way(server, times, sizing.max_batch, sizing.max_delay_s)
        for times in (server.quick, server.slow)
    ]
    rate = None if sizing.load is None else sizing.load.rate_per_s / copies
    quick, slow = (
        None if load is None or load.saturated else load.latency_s(demand.percentile)
        for load in discipline.at_rates(ways, [rate, rate])
    )
    return quick, slow


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Sized:
    """A way to batch with its highest rate, those at the ends of its times, and all that was tried."""

    way: Any
    rate_per_s: float
    low_rate_per_s: float
    high_rate_per_s: float
    loads: Sequence[QueueLoad]
    tried: _Tried


def _searched(servers: Sequence[Server[Any]], discipline: _Batches | _Sequences) -> dict[Server[Any], _Sized]:
    ways: list[list[Any]] = [[*discipline.ways(server)] for server in servers]
    looks: Iterator[_Looks] = iter(discipline.briefly([way for of_one in ways for way in of_one]))
    tried = [[(way, next(looks)) for way in of_one] for of_one in ways]
    best = [discipline.best(of_one, discipline.demand.limit_s)[0] for of_one in tried]
    middle = discipline.highest(servers, best)
    chosen: list[Any] = [way for way, _, _ in middle]
    low, high = (
        discipline.at_end(chosen, ends)
        for ends in ([one.slow for one in servers], [one.quick for one in servers])
    )
    return {
        server: _Sized(
            way=way, rate_per_s=rate, low_rate_per_s=slow, high_rate_per_s=quick, loads=loads, tried=of_one
        )
        for server, of_one, (way, rate, loads), slow, quick in zip(
            servers, tried, middle, low, high, strict=True
        )
    }


def _confirmed(
    candidates: Sequence[_Sized], copies: Sequence[int], discipline: _Batches | _Sequences
) -> list[tuple[float, int | None, QueueLoad | None]]:
    """Return highest rates, counts and loads that agree: so many instances were seen to keep the limits.

    A highest rate is a per cent or two off. Where the load that follows from it is above a limit, the rate is
    taken to be lower. That does not help where the load is light, and requests wait for their batch to fill.
    """
    demand, rates = discipline.demand, [one.rate_per_s for one in candidates]
    counts = [demand.count(rate * number) for rate, number in zip(rates, copies, strict=True)]

    def at_counts(numbers: Sequence[int]) -> list[QueueLoad | None]:
        shared = [
            None if (count := counts[number]) is None else demand.rate_per_s / (count * copies[number])
            for number in numbers
        ]
        return discipline.at_rates([candidates[number].way for number in numbers], shared)

    loads = at_counts(range(len(candidates)))
    for less in discipline.less:
        over = []
        for number, load in enumerate(loads):
            if load and discipline.is_over(load) and load.rate_per_s > discipline.near * rates[number]:
                rates[number] = min(rates[number], load.rate_per_s) * (1 - less)
                counts[number] = demand.count(rates[number] * copies[number])
                over.append(number)
        for number, again in zip(over, at_counts(over), strict=True):
            loads[number] = again
    return [
        (0.0, None, load) if load and discipline.is_over(load) else (rate, count, load)
        for rate, count, load in zip(rates, counts, loads, strict=True)
    ]


def _sizing(
    sized: _Sized,
    copies: int,
    discipline: _Batches | _Sequences,
    rate_per_s: float,
    count: int | None,
    load: QueueLoad | None,
) -> Sizing:
    """Return what was found of one copy, or of all behind one queue, for an instance."""

    def of_all(load: QueueLoad) -> QueueLoad:
        return replace(load, rate_per_s=load.rate_per_s * copies)

    limit_s = discipline.demand.limit_s
    rows = [(limit_s, rate_per_s, sized.way)]
    for times in discipline.times_the_limit:
        (way, _), rate = discipline.best(sized.tried, times * limit_s)
        # A looser limit is kept by all that keeps the demand's own.
        rows.append((times * limit_s, (max if times > 1 else min)(rate, rate_per_s), way))
    return Sizing(
        max_batch=sized.way.max_batch,
        max_delay_s=sized.way.max_delay_s,
        highest_rate_per_s=rate_per_s * copies,
        # What was simulated briefly may come out on the other side of what was simulated closely.
        low_rate_per_s=min(sized.low_rate_per_s, rate_per_s) * copies,
        high_rate_per_s=max(sized.high_rate_per_s, rate_per_s) * copies,
        count=count,
        load=load and of_all(load),
        loads=tuple(of_all(load) for load in sized.loads if not load.saturated),
        within=tuple(
            LimitPoint(
                limit_s=limit, rate_per_s=rate * copies, max_batch=way.max_batch, max_delay_s=way.max_delay_s
            )
            for limit, rate, way in sorted(rows, key=lambda row: row[0])
        ),
    )


# Shares of the capacity at which every batching is simulated, before the limit's own is looked at closely.
_LOW_SHARES, _SHARES = (0.005, 0.03), (0.12, 0.35, 0.6, 0.8, 0.9, 0.96, 0.985)
_BRIEF, _CLOSE = Effort(requests=600, lanes=4), Effort(requests=8000, lanes=16)
_AT_COUNT = Effort(requests=12_000, lanes=16)
# What is solved instead: shares of the capacity and servers.
_SOLVED_TO, _SOLVED_SERVERS = 0.9, 32
# A batch that takes these parts of the limit is tried as the largest, beside all powers of two.
_PARTS_OF_LIMIT = (0.35, 0.5, 0.7, 1.0)
# Parts of the limit that the oldest request may wait for its batch to fill.
_DELAYS = (0.1, 0.25)
# What a delay must gain to be advised: less is the noise of what was simulated.
_GAIN = 1.02


# Times the limit: the loosest for which a highest rate is reported.
LOOSEST_LIMIT = 10.0


class _Batches:
    """Requests that wait for a batch to be served.

    ``times_the_limit`` are factors of further limits for which the highest rate is reported. Where the load
    that follows from that rate is above the limit, it is taken to be lower by parts ``less``, one after the
    other, as long as the load is so ``near`` to it that it can be to blame.
    """

    times_the_limit = (
        *(0.1, 0.14, 0.2, 0.28, 0.4, 0.56, 0.75),
        *(1.33, 1.8, 2.5, 3.5, 5.0, 7.0, LOOSEST_LIMIT),
    )
    less = (0.01, 0.02, 0.04, 0.08, 0.16)
    near = 0.95

    def __init__(self, demand: Demand) -> None:
        self.demand = demand

    def briefly(self, queues: Sequence[Queue]) -> list[list[Served]]:
        # Of several batchings a smaller one takes what a larger one takes at a low share of its capacity.
        several = self.demand.max_batch is None
        shares = [
            _SHARES if several and queue.max_batch > 1 and not queue.max_delay else _LOW_SHARES + _SHARES
            for queue in queues
        ]
        return loads_at(queues, shares, self.demand.arrivals, _BRIEF)

    def ways(self, server: BatchServer) -> list[Queue]:
        """Return batchings of a server, of those with larger batches the ones that bring something."""
        demand, curve = self.demand, server.times
        times_s = curve.times()[1:]

        def within(limit_s: float) -> int:
            return int(np.count_nonzero(times_s <= limit_s))

        if demand.max_batch is not None:
            batches = {min(demand.max_batch, curve.largest_batch)}
        else:
            powers = {2**power for power in range(within(LOOSEST_LIMIT * demand.limit_s).bit_length())}
            batches = {1} | powers | {within(part * demand.limit_s) for part in _PARTS_OF_LIMIT} - {0}
        queues: list[Queue] = []
        for batch in sorted(batches):
            queue = self.way(server, curve, batch, demand.max_delay_s or 0.0)
            if not queues or queue.capacity_per_s > _GAIN * queues[-1].capacity_per_s:
                queues.append(queue)
        return queues

    def way(self, server: BatchServer, curve: ServiceCurve, batch: int, delay_s: float) -> Queue:
        # Of more copies than batches are simulated for, as many take part: the rate is at least so high.
        copies = server.copies if batch == 1 else min(server.copies, MOST_SERVERS_OF_BATCHES)
        return make_queue(curve, servers=copies, max_batch=batch, max_delay_s=delay_s)

    def best(self, tried: _Tried, limit_s: float) -> tuple[tuple[Queue, _Looks], float]:
        """Return the way with the highest rate; where none keeps the limit, the quickest."""
        # A batch that takes longer than the limit keeps it only as long as it does not fill.
        rates = [self._rate(way, seen, limit_s) if way.unit_s <= limit_s else 0.0 for way, seen in tried]
        return min(zip(tried, rates, strict=True), key=lambda pair: (-pair[1], pair[0][0].unit_s))

    def _rate(self, queue: Queue, seen: _Looks, limit_s: float) -> float:
        return share_within(seen, limit_s, self.demand.percentile) * queue.capacity_per_s

    def highest(
        self, servers: Sequence[BatchServer], best: _Tried
    ) -> list[tuple[Queue, float, Sequence[QueueLoad]]]:
        """Return each way, delayed where that helps, its highest rate, and loads up to near its capacity."""
        demand, ways = self.demand, list(best)
        if demand.max_delay_s is None:
            self._delay(ways, [server.times for server in servers])
        queues = [queue for queue, _ in ways]
        low = [() if len(seen) > len(_SHARES) else _LOW_SHARES for _, seen in ways]
        looked = [
            [*lowest, *seen]
            for lowest, (_, seen) in zip(loads_at(queues, low, demand.arrivals, _BRIEF), ways, strict=True)
        ]
        result = highest_rates(queues, demand.limit_s, demand.percentile, demand.arrivals, _CLOSE, looked)
        return [
            (queue, rate_per_s, [served.load() for served in seen])
            for queue, (rate_per_s, seen) in zip(queues, result, strict=True)
        ]

    def _delay(self, ways: list[tuple[Queue, _Looks]], curves: Sequence[ServiceCurve]) -> None:
        """Replace those that carry the traffic on fewer instances where requests wait for a batch to fill."""
        demand = self.demand
        rates = [self._rate(way, seen, demand.limit_s) for way, seen in ways]
        for part in _DELAYS:
            delay_s = part * demand.limit_s
            # Alone, the first request waits the whole delay. Of one instance there are no fewer.
            able = [
                number
                for number, (queue, _) in enumerate(ways)
                if queue.max_batch > 1
                and curves[number].time_s(1) + delay_s <= demand.limit_s
                and demand.count(rates[number]) != 1 + demand.spare
            ]
            delayed = [_batched(curves[number], ways[number][0], delay_s) for number in able]
            for number, queue, seen in zip(able, delayed, self.briefly(delayed), strict=True):
                rate_per_s = self._rate(queue, seen, demand.limit_s)
                # At night fewer requests come to fill a batch: the limit must hold at lower rates too.
                below = (one for one in seen if one.scenario.rate_per_s < rate_per_s)
                if (
                    demand.count(rate_per_s) != demand.count(rates[number])
                    and rate_per_s > rates[number] * _GAIN
                    and all(one.latency_s(demand.percentile) <= demand.limit_s for one in below)
                ):
                    rates[number], ways[number] = rate_per_s, (queue, seen)

    def at_end(self, ways: Sequence[Queue], times: Sequence[ServiceCurve]) -> list[float]:
        """Return about the highest rates of the ways with other times."""
        queues = [_batched(curve, way, way.max_delay_s) for way, curve in zip(ways, times, strict=True)]
        rates = [0.0] * len(queues)
        left = [number for number, queue in enumerate(queues) if queue.fastest_s <= self.demand.limit_s]
        for shares in (_SHARES, _LOW_SHARES + _SHARES[:1]):
            some = [queues[number] for number in left]
            seen = loads_at(some, [shares] * len(left), self.demand.arrivals, _BRIEF)
            for number, queue, one in zip(left, some, seen, strict=True):
                rates[number] = self._rate(queue, one, self.demand.limit_s)
            left = [number for number in left if not rates[number]]
        return rates

    def at_rates(self, ways: Sequence[Queue], rates: Sequence[float | None]) -> list[QueueLoad | None]:
        shares = [
            () if rate is None else (rate / queue.capacity_per_s,)
            for queue, rate in zip(ways, rates, strict=True)
        ]
        solved = [self._solved(queue, share) for queue, share in zip(ways, shares, strict=True)]
        left = [() if load else share for load, share in zip(solved, shares, strict=True)]
        simulated = loads_at(ways, left, self.demand.arrivals, _AT_COUNT)
        return [
            load or (seen[0].load() if seen else None) for load, seen in zip(solved, simulated, strict=True)
        ]

    def _solved(self, queue: Queue, share: tuple[float, ...]) -> QueueLoad | None:
        """Solve single requests exactly, which takes little time but near the capacity."""
        if not share or queue.max_batch > 1 or not isinstance(self.demand.arrivals, Poisson):
            return None
        if share[0] > _SOLVED_TO or queue.servers > _SOLVED_SERVERS:
            return None
        return single_requests(share[0] * queue.capacity_per_s, queue.unit_s, queue.servers).load()

    def is_over(self, load: QueueLoad) -> bool:
        return (load.latency_s(self.demand.percentile) or math.inf) > self.demand.limit_s


def _batched(curve: ServiceCurve, like: Queue, delay_s: float) -> Queue:
    """Return a queue of the same batching with other times, or another delay."""
    return make_queue(curve, servers=like.servers, max_batch=like.max_batch, max_delay_s=delay_s)


# The same of sequences: shares of the highest throughput that are simulated, and closer ones about the share at
# which a limit is reached.
_SEQUENCE_SHARES = (0.002, 0.01, 0.03, 0.1, 0.2, 0.35, 0.5, 0.62, 0.72, 0.8, 0.87, 0.93)
_END_SHARES = (0.05, 0.2, 0.4, 0.6, 0.75, 0.9)
_FACTORS = (0.85, 0.95, 1.05, 1.15)
_BRIEFLY, _CLOSELY = Effort(requests=100, lanes=6), Effort(requests=250, lanes=16)
# Near the highest throughput queues last: of the lanes that wait for them there are fewer, and each is longer.
_NEAR, _FEWER, _LONGER = 0.7, 3, 4
# A step of the largest batch takes these parts of the limit of further tokens.
_PARTS_OF_TPOT = (0.4, 0.65, 0.9)


class _Sequences:
    """Sequences of a model that generates, side by side; methods are those of ``_Batches``."""

    times_the_limit = (0.25, 0.5, 0.75, 1.5, 2.0, 4.0, 8.0)
    less = (0.03, 0.03, 0.03)
    near = 0.0

    def __init__(self, demand: GenerationDemand) -> None:
        self.demand = demand

    def briefly(self, servers: Sequence[GenerationServer]) -> list[list[QueueLoad]]:
        return self._seen(servers, [_SEQUENCE_SHARES] * len(servers), _BRIEFLY)

    def ways(self, one: GeneratingServer) -> list[GenerationServer]:
        """Return the server with fewer sequences at once: steps are then shorter, and more requests wait."""
        demand, server, batches = self.demand, one.times, {one.times.max_batch}
        if demand.max_batch is not None:
            batches = {min(demand.max_batch, server.max_batch)}
        elif demand.tpot_s is not None:
            table, lengths = server.decode_table(), demand.conversations
            steps_s = table[0] + table[1] * float((lengths.prompts + lengths.outputs / 2).mean())
            fitting = {int(np.count_nonzero(steps_s[1:] <= part * demand.tpot_s)) for part in _PARTS_OF_TPOT}
            batches |= fitting - {0}
        else:
            batches |= {max(1, server.max_batch // 4)}
        return [replace(server, max_batch=batch) for batch in sorted(batches)]

    def way(
        self, one: GeneratingServer, times: GenerationServer, batch: int, delay_s: float
    ) -> GenerationServer:
        del one, delay_s
        return replace(times, max_batch=batch)

    def _capacity(self, server: GenerationServer) -> float:
        return highest_throughput_per_s(server, self.demand.conversations)

    def _seen(
        self,
        servers: Sequence[GenerationServer],
        shares: Sequence[Sequence[float]],
        effort: Effort,
        *,
        seed: int = 0,
    ) -> list[list[QueueLoad]]:
        patient = effort is _CLOSELY
        scenarios = [
            GenerationScenario(
                server=server,
                # A server without room for a request takes none: any rate is beyond it.
                rate_per_s=max(share * capacity, 1e-9),
                conversations=self.demand.conversations,
                lanes=effort.lanes // (_FEWER if long else 1),
                requests=effort.requests * (_LONGER if long else 1),
                patient=patient,
            )
            for server, capacity, of_one in zip(servers, map(self._capacity, servers), shares, strict=True)
            for share in of_one
            for long in [patient and share > _NEAR]
        ]
        loads = iter(simulated_generation(scenarios, seed=seed))
        return [[next(loads) for _ in of_one] for of_one in shares]

    def best(self, tried: _Tried, limit_s: float) -> tuple[tuple[GenerationServer, _Looks], float]:
        return max(((one, self._rate(one[1], limit_s)) for one in tried), key=lambda pair: pair[1])

    def _keeps(self, load: QueueLoad, ttft_s: float) -> bool:
        if load.p99_s is None or load.tpot_p99_s is None:
            return False
        return load.p99_s <= ttft_s and (self.demand.tpot_s is None or load.tpot_p99_s <= self.demand.tpot_s)

    def _rate(self, loads: Sequence[QueueLoad], ttft_s: float) -> float:
        """Return the highest rate that keeps the limits, between those that were simulated; 0 where none does.

        Both times rise with the rate: the first rate that keeps one of them no longer ends the search.
        """
        last = None
        for load in loads:
            if not self._keeps(load, ttft_s):
                return 0.0 if last is None else self._between(last, load, ttft_s)
            last = load
        return 0.0 if last is None else last.rate_per_s

    def _between(self, below: QueueLoad, above: QueueLoad, ttft_s: float) -> float:
        parts = [1.0]
        for name, limit_s in (("p99_s", ttft_s), ("tpot_p99_s", self.demand.tpot_s)):
            low, high = getattr(below, name), getattr(above, name)
            if limit_s is not None and high is not None and high > limit_s:
                parts.append((limit_s - low) / (high - low))
            elif high is None:
                parts.append(0.0)  # beyond what can be finished: nothing is known of what lies between
        return below.rate_per_s + min(parts) * (above.rate_per_s - below.rate_per_s)

    def highest(
        self, servers: Sequence[GeneratingServer], best: _Tried
    ) -> list[tuple[GenerationServer, float, Sequence[QueueLoad]]]:
        del servers
        limit_s, ways = self.demand.limit_s, [way for way, _ in best]
        about = [self._rate(seen, limit_s) for _, seen in best]
        shares = [
            [min(0.97, factor * rate / self._capacity(way)) for factor in _FACTORS] if rate > 0 else []
            for rate, way in zip(about, ways, strict=True)
        ]
        return [
            # Where not even the lowest of the closer ones keeps the limits, the first look was lucky.
            (way, self._rate(near, limit_s) or min(rate, near[0].rate_per_s * 0.9 if near else 0.0), seen)
            for near, rate, (way, seen) in zip(self._seen(ways, shares, _CLOSELY), about, best, strict=True)
        ]

    def at_end(self, ways: Sequence[GenerationServer], times: Sequence[GenerationServer]) -> list[float]:
        servers = [replace(end, max_batch=way.max_batch) for end, way in zip(times, ways, strict=True)]
        seen = self._seen(servers, [_END_SHARES] * len(servers), _BRIEFLY)
        return [self._rate(loads, self.demand.limit_s) for loads in seen]

    def at_rates(
        self, ways: Sequence[GenerationServer], rates: Sequence[float | None]
    ) -> list[QueueLoad | None]:
        # Other traffic than the rates were found with.
        shares = [
            [] if rate is None else [rate / self._capacity(way)] for way, rate in zip(ways, rates, strict=True)
        ]
        return [loads[0] if loads else None for loads in self._seen(ways, shares, _CLOSELY, seed=1)]

    def is_over(self, load: QueueLoad) -> bool:
        return not self._keeps(load, self.demand.limit_s)
