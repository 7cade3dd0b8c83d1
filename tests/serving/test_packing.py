"""Packings, held against every partition of few models, laws, and simulations of what shares a device."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import pytest

from analyzer.arrays import Floats
from analyzer.serving.packing import (
    MOST_BUSY,
    MachineKind,
    Packing,
    ServiceDemand,
    ServiceMode,
    alone,
    pack,
)

GB = 10**9


def mode(device: str, time_s: float, *, batch: int = 1, memory: int = GB) -> ServiceMode:
    return ServiceMode(device=device, batch=batch, time_s=time_s, memory_bytes=memory)


def fleet(
    models: int,
    devices: int,
    seed: int,
    *,
    batches: Sequence[int] = (1, 8),
    scale: float = 1.0,
    mean: bool = False,
) -> tuple[list[ServiceDemand], list[MachineKind]]:
    """Models of many sizes on devices of many speeds; faster ones cost more, though less by the run."""
    rng = np.random.default_rng(seed)
    speeds = 2 ** rng.uniform(0, 4, devices)
    kinds = [
        MachineKind(
            device=f"d{number}",
            usd_per_hour=round(float(0.2 * speed**0.8 * rng.uniform(0.7, 1.3)), 4),
            memory_bytes=int(rng.choice([16, 24, 80])) * GB,
        )
        for number, speed in enumerate(speeds)
    ]
    demands = []
    for _ in range(models):
        work = 10 ** rng.uniform(-2.5, -1)
        memory = int(10 ** rng.uniform(8.5, 9.8))
        modes = tuple(
            mode(kind.device, float(work / speed * (0.5 + 0.5 * batch**0.8)), batch=batch, memory=memory)
            for kind, speed in zip(kinds, speeds, strict=True)
            for batch in batches
        )
        demands.append(
            ServiceDemand(
                rate_per_s=float(scale * 10 ** rng.uniform(-1, 1.5)),
                modes=modes,
                limit_s=float(work * 10 ** rng.uniform(0.1, 1)) if rng.random() < 0.8 else None,
                percentile=0 if mean else float(rng.choice([0, 95, 99])),
            )
        )
    return demands, kinds


def partitions(items: list[int]) -> Iterator[list[list[int]]]:
    if not items:
        yield []
        return
    first, *rest = items
    for smaller in partitions(rest):
        yield [[first], *smaller]
        for index, group in enumerate(smaller):
            yield [*smaller[:index], [first, *group], *smaller[index + 1 :]]


def carries(demands: Sequence[ServiceDemand], kind: MachineKind) -> bool:
    """By Pollaczek and Khinchine's mean alone, which these demands are limited by."""
    modes = [next(one for one in demand.modes if one.device == kind.device) for demand in demands]
    loads = [demand.rate_per_s * one.time_s for demand, one in zip(demands, modes, strict=True)]
    if sum(loads) > MOST_BUSY or sum(one.memory_bytes for one in modes) > (kind.memory_bytes or math.inf):
        return False
    wait = sum(load * one.time_s for load, one in zip(loads, modes, strict=True)) / (2 * (1 - sum(loads)))
    return all(
        demand.limit_s is None or wait + one.time_s <= demand.limit_s
        for demand, one in zip(demands, modes, strict=True)
    )


def brute_force(demands: Sequence[ServiceDemand], kinds: Sequence[MachineKind]) -> float:
    best = math.inf
    cheapest: dict[tuple[int, ...], float] = {}
    for size in range(1, len(demands) + 1):
        for chosen in itertools.combinations(range(len(demands)), size):
            able = (kind.usd_per_hour for kind in kinds if carries([demands[one] for one in chosen], kind))
            cheapest[chosen] = min(able, default=math.inf)
    for partition in partitions(list(range(len(demands)))):
        best = min(best, sum(cheapest[tuple(sorted(group))] for group in partition))
    return best


@pytest.mark.parametrize("seed", range(12))
def test_of_all_partitions_of_few_models_the_cheapest_is_found(seed: int) -> None:
    demands, kinds = fleet(6, 3, seed, batches=(1,), scale=0.3, mean=True)
    # Each of them whole on any device that carries it: what must be divided has other choices.
    demands = [one for one in demands if all(_whole(one, kind) for kind in kinds)]
    found = pack(demands, kinds)
    assert found.usd_per_hour == pytest.approx(brute_force(demands, kinds))
    assert found.least_usd_per_hour == pytest.approx(found.usd_per_hour, rel=1e-4)


def _whole(demand: ServiceDemand, kind: MachineKind) -> bool:
    """Carried whole, or not at all however few its requests are."""
    return carries([demand], kind) or not carries([replace(demand, rate_per_s=1e-9)], kind)


@pytest.mark.parametrize(
    ("models", "devices", "seed"),
    [*((3, 2, seed) for seed in range(3)), *((8, 4, seed) for seed in range(3)), (30, 6, 0)],
)
def test_the_bound_is_below_the_packing_and_that_below_machines_of_their_own(
    models: int, devices: int, seed: int
) -> None:
    found = pack(*fleet(models, devices, seed))
    assert 0 < found.least_usd_per_hour <= found.usd_per_hour <= found.apart_usd_per_hour


@pytest.mark.parametrize("seed", range(2))
def test_twice_the_traffic_never_costs_less(seed: int) -> None:
    costs, bounds, apart = [], [], []
    for scale in (0.25, 1.0, 4.0, 16.0):
        found = pack(*fleet(10, 3, seed, scale=scale))
        costs.append(found.usd_per_hour)
        bounds.append(found.least_usd_per_hour)
        apart.append(found.apart_usd_per_hour)
    assert costs == sorted(costs)
    assert bounds == sorted(bounds)
    assert apart == sorted(apart)


@pytest.mark.parametrize("seed", range(3))
def test_a_further_kind_of_machine_lowers_the_bound_and_no_lower_price_raises_it(seed: int) -> None:
    demands, kinds = fleet(8, 4, seed)
    all_kinds = pack(demands, kinds)
    fewer = pack(demands, kinds[:-1])
    if not fewer.left_out:
        assert all_kinds.least_usd_per_hour <= fewer.usd_per_hour
    halved = pack(demands, [replace(kind, usd_per_hour=kind.usd_per_hour / 2) for kind in kinds])
    assert halved.usd_per_hour == pytest.approx(all_kinds.usd_per_hour / 2, rel=1e-6)


@pytest.mark.parametrize(("models", "devices"), [(8, 4), (25, 6)])
def test_every_request_is_carried_once_and_every_device_holds_what_it_carries(
    models: int, devices: int
) -> None:
    demands, kinds = fleet(models, devices, 5, scale=3.0)
    found = pack(demands, kinds)
    rates: dict[int, float] = defaultdict(float)
    for machine in found.machines:
        kind = kinds[machine.kind]
        assert len(machine.devices) <= kind.devices
        for runs in machine.devices:
            assert sum(demands[run.demand].modes[run.mode].memory_bytes for run in runs) <= kind.memory_bytes
            assert sum(run.share for run in runs) <= MOST_BUSY + 1e-6
            assert all(demands[run.demand].modes[run.mode].device == kind.device for run in runs)
            for run in runs:
                rates[run.demand] += machine.count * run.rate_per_s
                limit = demands[run.demand].limit_s
                assert (run.latency_s is None) == (limit is None)
                assert limit is None or run.latency_s <= limit * (1 + 1e-9)
    assert sum(machine.count * kinds[machine.kind].usd_per_hour for machine in found.machines) == pytest.approx(
        found.usd_per_hour
    )
    for index, demand in enumerate(demands):
        if index not in found.left_out:
            assert rates[index] == pytest.approx(demand.rate_per_s)


def test_the_same_question_has_the_same_answer() -> None:
    assert pack(*fleet(12, 4, 7)) == pack(*fleet(12, 4, 7))


def simulated(
    found: Packing, demands: Sequence[ServiceDemand], device: int, seed: int
) -> Iterator[tuple[int, Floats]]:
    """Latencies of each model's requests on one device: batches are formed, and runs done in order."""
    runs = found.machines[device].devices[0]
    rng = np.random.default_rng(seed)
    until = 300_000 / sum(run.rate_per_s for run in runs)
    asked: list[tuple[float, int, list[float]]] = []
    for number, run in enumerate(runs):
        chosen = demands[run.demand].modes[run.mode]
        limit = demands[run.demand].limit_s
        smallest = min(one.batch for one in demands[run.demand].modes if one.device == chosen.device)
        single = chosen.batch == smallest
        delay = math.inf if limit is None else (limit - chosen.time_s) / 2
        arrivals = np.cumsum(rng.exponential(1 / run.rate_per_s, int(1.2 * until * run.rate_per_s) + 50))
        at = 0
        while at < len(arrivals):
            size = 1
            while (
                not single
                and size < chosen.batch
                and at + size < len(arrivals)
                and arrivals[at + size] <= arrivals[at] + delay
            ):
                size += 1
            full = single or size == chosen.batch
            batch = arrivals[at : at + size]
            asked.append((float(batch[-1] if full else batch[0] + min(delay, 1e9)), number, list(batch)))
            at += size
    latencies: list[list[float]] = [[] for _ in runs]
    free = 0.0
    for ready, number, arrived in sorted(asked):
        if ready > until:
            break
        run = runs[number]
        free = max(free, ready) + demands[run.demand].modes[run.mode].time_s
        latencies[number] += [free - arrival for arrival in arrived]
    for run, values in zip(runs, latencies, strict=True):
        yield run.demand, np.array(values)


@pytest.mark.parametrize(("seed", "scale"), [(0, 1.0), (1, 1.0), (2, 5.0), (3, 20.0), (4, 0.3)])
def test_what_shares_a_device_keeps_its_limits_in_a_simulation(seed: int, scale: float) -> None:
    demands, kinds = fleet(12, 4, seed, scale=scale)
    found = pack(demands, kinds)
    looked_at = 0
    for number, machine in enumerate(found.machines):
        told = {run.demand: run.latency_s or 0.0 for run in machine.devices[0]}
        for index, latencies in simulated(found, demands, number, seed):
            demand = demands[index]
            if demand.limit_s is None or len(latencies) < 5000:
                continue  # too few to tell a percentile by
            looked_at += 1
            if demand.percentile == 0:
                assert latencies.mean() <= told[index] * 1.03
                assert told[index] <= demand.limit_s * (1 + 1e-9)
                continue
            # Of 5,000 requests 50 are above a 99th percentile, and they come in crowds.
            tail = 1 - demand.percentile / 100
            assert (latencies > demand.limit_s).mean() <= tail * 1.3
            assert (latencies > told[index] + 1e-7).mean() <= tail * 1.3
    assert looked_at >= 3


def test_a_busy_model_is_divided_and_a_batch_saves_devices_where_its_limit_lets_it_fill() -> None:
    kinds = [MachineKind(device="l4", usd_per_hour=1.0)]
    single = (mode("l4", 0.010),)
    # 700 requests of 10 ms keep 7 devices busy, of 70 % each 10.
    alone = pack([ServiceDemand(rate_per_s=700.0, modes=single)], kinds)
    assert alone.usd_per_hour == pytest.approx(10.0)
    # 32 in 40 ms: 875 ms a second, two devices.
    both = (*single, mode("l4", 0.040, batch=32))
    loose = pack([ServiceDemand(rate_per_s=700.0, modes=both, limit_s=1.0)], kinds)
    assert loose.usd_per_hour == pytest.approx(2.0)
    # A batch of 32 takes longer than this limit.
    strict = pack([ServiceDemand(rate_per_s=700.0, modes=both, limit_s=0.039)], kinds)
    assert strict.usd_per_hour >= 10.0


def test_machines_of_several_devices_are_rented_where_they_cost_less() -> None:
    kinds = [
        MachineKind(device="a100", usd_per_hour=3.0),
        MachineKind(device="a100", usd_per_hour=16.0, devices=8),
    ]
    demands = [ServiceDemand(rate_per_s=60.0, modes=(mode("a100", 0.010),)) for _ in range(9)]
    # 60 % each: no two share; nine devices for 16 + 3 dollars and not 27.
    found = pack(demands, kinds)
    assert found.usd_per_hour == pytest.approx(19.0)
    assert sorted((machine.kind, machine.count, len(machine.devices)) for machine in found.machines) == [
        (0, 1, 1),
        (1, 1, 8),
    ]
    assert found.apart_usd_per_hour == pytest.approx(27.0)


def test_memory_keeps_models_apart_that_are_rarely_asked() -> None:
    demands = [ServiceDemand(rate_per_s=0.01, modes=(mode("t4", 0.01, memory=6 * GB),)) for _ in range(6)]
    found = pack(demands, [MachineKind(device="t4", usd_per_hour=0.5, memory_bytes=16 * GB)])
    assert found.usd_per_hour == pytest.approx(1.5)  # two of 6 GB on each 16
    assert found.least_usd_per_hour == pytest.approx(1.5, rel=1e-4)


def test_what_no_machine_carries_is_left_out_with_its_reason() -> None:
    kinds = [MachineKind(device="t4", usd_per_hour=0.5, memory_bytes=16 * GB)]
    demands = [
        ServiceDemand(rate_per_s=1.0, modes=(mode("t4", 0.01),)),
        ServiceDemand(rate_per_s=1.0, modes=(mode("t4", 0.01, memory=17 * GB),)),
        ServiceDemand(rate_per_s=1.0, modes=(mode("t4", 0.02),), limit_s=0.01),
        ServiceDemand(rate_per_s=1.0, modes=(mode("h100", 0.01),)),
    ]
    found = pack(demands, kinds)
    assert found.left_out == {
        1: "no machine has room for it",
        2: "on every machine a single run takes longer than its limit",
        3: "no machine that it runs on can be rented",
    }
    assert found.usd_per_hour == pytest.approx(0.5)


@pytest.mark.parametrize("seed", range(2))
def test_each_alone_costs_together_what_all_apart_do(seed: int) -> None:
    demands, kinds = fleet(12, 4, seed, scale=5.0)
    each = sum(alone(demand, kinds).usd_per_hour for demand in demands)
    assert each == pytest.approx(pack(demands, kinds).apart_usd_per_hour)


def test_no_demand_costs_nothing() -> None:
    assert pack([], [MachineKind(device="t4", usd_per_hour=0.5)]).usd_per_hour == 0
