"""For each kind of instance: how many sequences at once, what it takes within limits, how many are needed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from analyzer.figures import LimitPoint, QueueLoad
from analyzer.serving.continuous import (
    Conversations,
    GenerationScenario,
    GenerationServer,
    highest_throughput_per_s,
    simulated_generation,
)
from analyzer.serving.load import Need, Server, Sizing


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneEffort:
    """How closely a rate is looked at; see ``GenerationScenario``."""

    lanes: int
    requests: int
    patient: bool


# Shares of the highest throughput that are looked at, and how closely.
_SHARES = (0.002, 0.01, 0.03, 0.1, 0.2, 0.35, 0.5, 0.62, 0.72, 0.8, 0.87, 0.93)
_END_SHARES = (0.05, 0.2, 0.4, 0.6, 0.75, 0.9)
_CHOOSING, _FINAL = (
    LaneEffort(lanes=6, requests=100, patient=False),
    LaneEffort(lanes=16, requests=250, patient=True),
)
# Near the highest throughput queues last: of the lanes that wait for them there are fewer, and each is longer.
_NEAR, _FEWER, _LONGER = 0.7, 3, 4
# By how much a rate is lowered at which the limits were not seen to be kept.
_LESS = 0.03
# Closer looks about the share at which a limit is reached.
_FACTORS = (0.85, 0.95, 1.05, 1.15)
# A step of the largest batch takes these parts of the limit of further tokens.
_PARTS_OF_TPOT = (0.4, 0.65, 0.9)
_TIMES_THE_LIMIT = (0.25, 0.5, 0.75, 1.5, 2.0, 4.0, 8.0)


@dataclass(frozen=True, kw_only=True, eq=False)
class GenerationDemand(Need):
    """Traffic of prompts.

    Attributes:
        conversations: Their lengths.
        tpot_s: Limit of the percentile of the time of each further token of a request; None for no limit.
    """

    conversations: Conversations
    tpot_s: float | None = None


GeneratingServer = Server[GenerationServer]


def generation_sizings(
    instances: Sequence[GeneratingServer], demand: GenerationDemand
) -> dict[GeneratingServer, Sizing]:
    """Return the sizing of every instance; all of them are searched at once."""
    every = tuple(dict.fromkeys(instances))
    # Copies side by side know nothing of each other: one of them is searched.
    searched = _searched(tuple(dict.fromkeys(replace(one, copies=1) for one in every)), demand)
    of_each = [searched[replace(one, copies=1)] for one in every]
    of_each, counts, at_count = _confirmed(every, of_each, demand)
    return {
        one: _sizing(one, found, count, load, demand)
        for one, found, count, load in zip(every, of_each, counts, at_count, strict=True)
    }


def _sizing(
    one: GeneratingServer,
    found: _Found,
    count: int | None,
    load: QueueLoad | None,
    demand: GenerationDemand,
) -> Sizing:
    """Return what was found of one copy for an instance."""
    throughput_per_s = highest_throughput_per_s(found.server, demand.conversations) * one.copies

    def on_all(load: QueueLoad) -> QueueLoad:
        rate_per_s = load.rate_per_s * one.copies
        return replace(load, rate_per_s=rate_per_s, utilisation=min(1.0, rate_per_s / throughput_per_s))

    if load is not None and count is not None and not load.saturated:
        part = demand.rate_per_s / (count * throughput_per_s)
        load = replace(load, rate_per_s=load.rate_per_s * one.copies, utilisation=min(1.0, part))
    return Sizing(
        max_batch=found.server.max_batch,
        highest_rate_per_s=found.rate_per_s * one.copies,
        low_rate_per_s=min(found.low_rate_per_s, found.rate_per_s) * one.copies,
        high_rate_per_s=max(found.high_rate_per_s, found.rate_per_s) * one.copies,
        count=count,
        load=load,
        loads=tuple(on_all(load) for load in found.looked[found.server] if not load.saturated),
        within=_within(one, found, demand),
    )


def _confirmed(
    instances: Sequence[GeneratingServer],
    found: Sequence[_Found],
    demand: GenerationDemand,
) -> tuple[list[_Found], list[int | None], list[QueueLoad | None]]:
    """Rates, counts and loads that agree: so many instances were seen to keep the limits."""
    confirmed = list(found)
    numbers = [
        demand.count(of_one.rate_per_s * one.copies) for of_one, one in zip(found, instances, strict=True)
    ]
    loads = _at_count(instances, [one.server for one in confirmed], numbers, demand)
    for last in (False, False, False, True):
        over = [
            number
            for number, load in enumerate(loads)
            if load is not None and not _keeps(load, demand, demand.limit_s)
        ]
        for number in over:
            one, copies = confirmed[number], instances[number].copies
            load = loads[number]
            assert load is not None
            rate_per_s = 0.0 if last else min(one.rate_per_s, load.rate_per_s) * (1 - _LESS)
            confirmed[number] = replace(one, rate_per_s=rate_per_s)
            numbers[number] = demand.count(rate_per_s * copies)
        again = _at_count(
            [instances[number] for number in over],
            [confirmed[number].server for number in over],
            [numbers[number] for number in over],
            demand,
        )
        for number, load in zip(over, again, strict=True):
            loads[number] = load
    return confirmed, numbers, loads


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Found:
    """One copy with as many sequences as let the most requests through, and all that were looked at."""

    server: GenerationServer
    rate_per_s: float
    low_rate_per_s: float
    high_rate_per_s: float
    looked: Mapping[GenerationServer, Sequence[QueueLoad]]


def _searched(
    instances: Sequence[GeneratingServer], demand: GenerationDemand
) -> dict[GeneratingServer, _Found]:
    ways = [_ways(one, demand) for one in instances]
    every = [way for of_one in ways for way in of_one]
    looked = dict(zip(every, _at_shares(every, [_SHARES] * len(every), demand, _CHOOSING), strict=True))
    chosen = [max(of_one, key=lambda way: _rate(looked[way], demand, demand.limit_s)) for of_one in ways]
    middle = _closely(chosen, [looked[way] for way in chosen], demand)
    slow, quick = (
        _at_ends(
            [replace(end, max_batch=way.max_batch) for end, way in zip(ends, chosen, strict=True)],
            demand,
        )
        for ends in ([one.slow for one in instances], [one.quick for one in instances])
    )
    return {
        one: _Found(
            server=way,
            rate_per_s=rate,
            low_rate_per_s=low,
            high_rate_per_s=high,
            looked={way: looked[way] for way in of_one},
        )
        for one, of_one, way, rate, low, high in zip(instances, ways, chosen, middle, slow, quick, strict=True)
    }


def _ways(one: GeneratingServer, demand: GenerationDemand) -> list[GenerationServer]:
    """The server with fewer sequences at once: steps are then shorter, and more requests wait."""
    server = one.times
    if demand.max_batch is not None:
        return [replace(server, max_batch=min(demand.max_batch, server.max_batch))]
    batches = {server.max_batch}
    if demand.tpot_s is not None:
        table = server.decode_table()
        asked = demand.conversations
        steps_s = table[0] + table[1] * float((asked.prompts + asked.outputs / 2).mean())
        fitting = {int(np.count_nonzero(steps_s[1:] <= part * demand.tpot_s)) for part in _PARTS_OF_TPOT}
        batches |= fitting - {0}
    else:
        batches |= {max(1, server.max_batch // 4)}
    return [replace(server, max_batch=batch) for batch in sorted(batches)]


Loads = Sequence[QueueLoad]


def _at_shares(
    servers: Sequence[GenerationServer],
    shares: Sequence[Sequence[float]],
    demand: GenerationDemand,
    effort: LaneEffort,
    seed: int = 0,
) -> list[list[QueueLoad]]:
    rates = [highest_throughput_per_s(server, demand.conversations) for server in servers]
    scenarios = [
        GenerationScenario(
            server=server,
            # A server without room for a request takes none: any rate is beyond it.
            rate_per_s=max(share * rate, 1e-9),
            conversations=demand.conversations,
            lanes=effort.lanes // (_FEWER if long else 1),
            requests=effort.requests * (_LONGER if long else 1),
            patient=effort.patient,
        )
        for server, rate, of_one in zip(servers, rates, shares, strict=True)
        for share in of_one
        for long in [effort.patient and share > _NEAR]
    ]
    loads = iter(simulated_generation(scenarios, seed=seed))
    return [[next(loads) for _ in of_one] for of_one in shares]


def _keeps(load: QueueLoad, demand: GenerationDemand, ttft_s: float) -> bool:
    if load.p99_s is None or load.tpot_p99_s is None:
        return False
    return load.p99_s <= ttft_s and (demand.tpot_s is None or load.tpot_p99_s <= demand.tpot_s)


def _rate(loads: Loads, demand: GenerationDemand, ttft_s: float) -> float:
    """The highest rate that keeps the limits, between those that were looked at; 0 where none does.

    Both times rise with the rate: the first rate that keeps one of them no longer ends the search.
    """
    last = None
    for load in loads:
        if not _keeps(load, demand, ttft_s):
            return 0.0 if last is None else _between(last, load, demand, ttft_s)
        last = load
    return 0.0 if last is None else last.rate_per_s


def _between(below: QueueLoad, above: QueueLoad, demand: GenerationDemand, ttft_s: float) -> float:
    parts = [1.0]
    for name, limit_s in (("p99_s", ttft_s), ("tpot_p99_s", demand.tpot_s)):
        low, high = getattr(below, name), getattr(above, name)
        if limit_s is not None and high is not None and high > limit_s:
            parts.append((limit_s - low) / (high - low))
        elif high is None:
            parts.append(0.0)  # beyond what can be finished: nothing is known of what lies between
    return below.rate_per_s + min(parts) * (above.rate_per_s - below.rate_per_s)


def _closely(
    servers: Sequence[GenerationServer], looked: Sequence[Loads], demand: GenerationDemand
) -> list[float]:
    rates = [highest_throughput_per_s(server, demand.conversations) for server in servers]
    about = [_rate(loads, demand, demand.limit_s) for loads in looked]
    shares = [
        [min(0.97, factor * found / rate) for factor in _FACTORS] if found > 0 else []
        for found, rate in zip(about, rates, strict=True)
    ]
    closer = _at_shares(servers, shares, demand, _FINAL)
    return [
        # Where not even the lowest of the closer ones keeps the limits, the first look was lucky.
        _rate(loads, demand, demand.limit_s) or min(found, loads[0].rate_per_s * 0.9 if loads else 0.0)
        for loads, found in zip(closer, about, strict=True)
    ]


def _at_ends(servers: Sequence[GenerationServer], demand: GenerationDemand) -> list[float]:
    looked = _at_shares(servers, [_END_SHARES] * len(servers), demand, _CHOOSING)
    return [_rate(loads, demand, demand.limit_s) for loads in looked]


def _at_count(
    instances: Sequence[GeneratingServer],
    servers: Sequence[GenerationServer],
    counts: Sequence[int | None],
    demand: GenerationDemand,
) -> list[QueueLoad | None]:
    # Other traffic than the rates were found with.
    shares = [
        []
        if count is None
        else [demand.rate_per_s / (count * one.copies) / highest_throughput_per_s(server, demand.conversations)]
        for one, server, count in zip(instances, servers, counts, strict=True)
    ]
    return [loads[0] if loads else None for loads in _at_shares(servers, shares, demand, _FINAL, seed=1)]


def _within(one: GeneratingServer, found: _Found, demand: GenerationDemand) -> tuple[LimitPoint, ...]:
    def within(limit_s: float, rate: float, batch: int) -> LimitPoint:
        return LimitPoint(limit_s=limit_s, rate_per_s=rate * one.copies, max_batch=batch, max_delay_s=0.0)

    rows = [within(demand.limit_s, found.rate_per_s, found.server.max_batch)]
    for times in _TIMES_THE_LIMIT:
        limit_s = times * demand.limit_s
        rate, batch = max((_rate(loads, demand, limit_s), way.max_batch) for way, loads in found.looked.items())
        # A looser limit is kept by whatever keeps the one that was asked for.
        rate = max(rate, found.rate_per_s) if times > 1 else min(rate, found.rate_per_s)
        rows.append(within(limit_s, rate, batch))
    return tuple(sorted(rows, key=lambda row: row.limit_s))
