"""For each kind of instance: its batching, its highest rate, how many are needed."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from analyzer.serving import ServiceCurve, highest_rate, simulate
from analyzer.serving.arrivals import POISSON, Trace
from analyzer.serving.highest_rate import FIRST_SHARES, Effort, highest_rates, loads_at
from analyzer.serving.queue import Percentile, Server, Sizing, make_queue, needed, single_requests
from analyzer.serving.search import BatchServer, Demand, latency_ends, sizings

# A batch costs 3 ms and 1 ms a request: 250/s one by one, nearly 1000/s in large batches.
CURVE = ServiceCurve(points=((1, 0.004), (256, 0.259)))
DEMAND = Demand(rate_per_s=5000.0, limit_s=0.05)


def times(curve: ServiceCurve, factor: float) -> ServiceCurve:
    return ServiceCurve(points=tuple((batch, factor * time_s) for batch, time_s in curve.points))


def server(curve: ServiceCurve = CURVE, copies: int = 1) -> BatchServer:
    return Server(times=curve, quick=times(curve, 0.7), slow=times(curve, 1.5), copies=copies)


def sized(demand: Demand = DEMAND, of: BatchServer | None = None) -> Sizing:
    of = of or server()
    return sizings([of], demand)[of]


@pytest.mark.parametrize(
    ("rate", "highest", "headroom", "count"),
    [
        (1000.0, 300.0, 0.0, 4),  # 3.33
        (1000.0, 300.0, 0.2, 4),  # exactly 4, though 1.2 is none in binary
        (1000.0, 300.0, 0.21, 5),
        (0.001, 300.0, 0.0, 1),
        (0.3, 0.1, 0.0, 3),  # 0.3 / 0.1 is a little below 3 in binary, and 0.1 * 3 a little above
        (1e9, 1.0, 0.0, 10**9),
    ],
)
def test_the_count_is_rate_and_headroom_over_the_highest_rate_rounded_up(
    rate: float, highest: float, headroom: float, count: int
) -> None:
    assert needed(rate, highest, headroom) == count


# Each percentile and the mean, each of a short, a middle and a long limit, and the usual percentile twice.
@pytest.mark.parametrize(("percentile", "limit_s"), [(50, 0.2), (99, 0.02), (99, 0.05), (None, 0.05)])
def test_no_batching_that_was_not_chosen_lets_clearly_more_through(
    percentile: Percentile | None, limit_s: float
) -> None:
    found = sized(replace(DEMAND, limit_s=limit_s, percentile=percentile))
    queues = [make_queue(CURVE, servers=1, max_batch=1, max_delay_s=0.0)] + [
        make_queue(CURVE, servers=1, max_batch=most, max_delay_s=delay_s)
        for most in (2, 4, 8, 16, 32, 64, 128, 256)
        for delay_s in (0.0, limit_s / 10, limit_s / 4)
    ]
    looked = loads_at(queues, [FIRST_SHARES] * len(queues), POISSON, Effort(requests=4000, lanes=32))
    close = Effort(requests=20_000, lanes=32)
    rates = [rate for rate, _ in highest_rates(queues, limit_s, percentile, POISSON, close, looked)]
    assert found.highest_rate_per_s >= 0.94 * max(rates)


@pytest.mark.parametrize("rate", [140.0, 180.0])
def test_the_latency_has_an_interval_of_quick_and_slow_times(rate: float) -> None:
    """One server and single Poisson requests: the mean is s + ρ s / 2(1 - ρ), without an end from ρ = 1 on."""
    demand = Demand(rate_per_s=rate, limit_s=0.05, percentile=None, max_batch=1)
    means = [
        time_s * (1 + rate * time_s / (2 * (1 - rate * time_s))) if rate * time_s < 1 else math.inf
        for time_s in (0.7 * 0.004, 1.5 * 0.004)
    ]
    found = sized(demand)
    assert found.count == 1
    ends = [math.inf if end is None else end for end in latency_ends(server(), found, demand)]
    assert ends == pytest.approx(means, rel=1e-6)


def test_the_highest_rate_is_that_of_its_batching() -> None:
    found = sized()
    alone = highest_rate(
        CURVE, DEMAND.limit_s, max_batch=found.max_batch, max_delay_s=found.max_delay_s, percentile=99
    )
    assert found.highest_rate_per_s == pytest.approx(alone, rel=0.05)


@pytest.mark.parametrize("factor", [2.0**-10, 2.0**10])
def test_of_a_server_that_is_slower_as_the_limit_is_longer_all_rates_are_lower(factor: float) -> None:
    # Nothing in a queue knows how long a second is. Powers of two round nothing.
    demand = replace(DEMAND, rate_per_s=DEMAND.rate_per_s / factor, limit_s=DEMAND.limit_s * factor)
    found, scaled = sized(), sized(demand, server(times(CURVE, factor)))
    assert (scaled.count, scaled.max_batch) == (found.count, found.max_batch)
    for name in ("low_rate_per_s", "highest_rate_per_s", "high_rate_per_s"):
        assert getattr(scaled, name) * factor == pytest.approx(getattr(found, name))
    assert scaled.max_delay_s / factor == pytest.approx(found.max_delay_s)
    assert [(row.limit_s / factor, row.rate_per_s * factor) for row in scaled.within] == [
        (pytest.approx(row.limit_s), pytest.approx(row.rate_per_s)) for row in found.within
    ]


@pytest.mark.parametrize("copies", [1, 4])
def test_single_requests_are_sized_as_they_are_solved(copies: int) -> None:
    demand = replace(DEMAND, max_batch=1, max_delay_s=0.0)
    found = sized(demand, server(copies=copies))
    low, high = 0.0, copies / 0.004
    while high - low > 1e-3 * high:
        rate = (low + high) / 2
        within = single_requests(rate, 0.004, copies).share_within(0.05) >= 0.99
        low, high = (rate, high) if within else (low, rate)
    assert found.highest_rate_per_s == pytest.approx(low, rel=0.05)
    assert found.max_batch == 1


def test_quick_and_slow_times_give_the_ends_of_the_highest_rate() -> None:
    found = sized()
    assert found.low_rate_per_s < found.highest_rate_per_s < found.high_rate_per_s
    for factor, rate in ((1.5, found.low_rate_per_s), (0.7, found.high_rate_per_s)):
        end = highest_rate(times(CURVE, factor), 0.05, max_batch=found.max_batch, max_delay_s=found.max_delay_s)
        assert rate == pytest.approx(end, rel=0.08)


def test_the_load_at_the_count_is_what_a_longer_look_has() -> None:
    found = sized(replace(DEMAND, headroom=0.3))
    assert found.count is not None
    assert found.load is not None
    seen = simulate(
        CURVE, DEMAND.rate_per_s / found.count, max_batch=found.max_batch, max_delay_s=found.max_delay_s
    )
    assert found.load.rate_per_s == pytest.approx(DEMAND.rate_per_s / found.count)
    assert found.load.p99_s == pytest.approx(seen.p99_s, rel=0.1)
    assert found.load.utilisation == pytest.approx(seen.utilisation, rel=0.02)
    assert found.load.mean_batch == pytest.approx(seen.mean_batch, rel=0.05)


# Each percentile, and the mean, with each limit; each of them with light traffic and with heavy.
@pytest.mark.parametrize(
    ("percentile", "limit_s", "rate"),
    [
        (50, 0.0045, 40.0),
        (50, 0.009, 5000.0),
        (50, 0.05, 1e6),
        (99, 0.0045, 900.0),
        (99, 0.0045, 77_777.0),
        (99, 0.009, 40.0),
        (99, 0.009, 1e6),
        (99, 0.05, 5000.0),
        (99, 0.05, 77_777.0),
        (None, 0.0045, 1e6),
        (None, 0.009, 40.0),
        (None, 0.009, 77_777.0),
        (None, 0.05, 900.0),
    ],
)
def test_a_count_keeps_the_limit_whatever_it_is(
    rate: float, percentile: Percentile | None, limit_s: float
) -> None:
    servers = [server(copies=copies) for copies in (1, 2, 8)]
    for found in sizings(servers, Demand(rate_per_s=rate, limit_s=limit_s, percentile=percentile)).values():
        assert found.count is not None
        assert found.load is not None
        assert found.load.latency_s(percentile) <= limit_s
        assert found.count == needed(rate, found.highest_rate_per_s, 0.0)


def test_spare_instances_come_on_top_and_headroom_below_the_rounding() -> None:
    plain, spare = sized(), sized(replace(DEMAND, spare=2))
    assert spare.count == plain.count + 2
    roomy = sized(replace(DEMAND, headroom=0.5))
    assert roomy.count == math.ceil(1.5 * 5000 / roomy.highest_rate_per_s)


def test_a_limit_below_the_quickest_batch_has_neither_rate_nor_count() -> None:
    found = sized(replace(DEMAND, limit_s=0.0039))
    assert (found.highest_rate_per_s, found.count, found.load) == (0.0, None, None)


def test_a_delay_that_a_light_load_waits_out_has_no_count_and_says_at_which_latency() -> None:
    # A request waits 60 ms for others that do not come, and is served in 4.
    demand = Demand(rate_per_s=1.0, limit_s=0.05, max_batch=8, max_delay_s=0.06)
    found = sized(demand)
    assert (found.highest_rate_per_s, found.count) == (0.0, None)
    assert found.load is not None
    assert found.load.p99_s == pytest.approx(0.064, rel=0.05)
    # A load that fills its batches in time is another matter: 8 requests come in 16 ms.
    assert sized(replace(demand, rate_per_s=500.0)).count == 1


def test_a_delay_that_is_chosen_keeps_the_limit_at_night_too() -> None:
    # A batch costs 20 ms whatever is in it: waiting for more is worth it.
    flat = ServiceCurve(points=((1, 0.020), (64, 0.0201)))
    found = sized(Demand(rate_per_s=1e5, limit_s=0.06), server(flat))
    for share in (0.001, 0.01, 0.1, 0.3, 0.6, 0.9):
        seen = simulate(
            flat,
            share * found.highest_rate_per_s,
            max_batch=found.max_batch,
            max_delay_s=found.max_delay_s,
            requests=20_000,
        )
        assert seen.p99_s <= 0.06 * 1.03


def test_what_is_given_is_used() -> None:
    found = sized(replace(DEMAND, max_batch=8, max_delay_s=0.002))
    assert found.max_batch == 8
    assert found.max_delay_s == pytest.approx(0.002)
    # No batch above the curve's last is known of.
    assert sized(replace(DEMAND, max_batch=10**6, max_delay_s=0.0)).max_batch == 256


def test_the_rates_by_limit_rise_and_hold_the_one_that_was_asked_for() -> None:
    found = sized()
    limits, rates = [row.limit_s for row in found.within], [row.rate_per_s for row in found.within]
    assert limits == sorted(limits)
    assert rates == sorted(rates)
    asked = next(row for row in found.within if row.limit_s == 0.05)
    assert (asked.rate_per_s, asked.max_batch) == (found.highest_rate_per_s, found.max_batch)
    for row in (*found.within[::3], asked):
        own = highest_rate(CURVE, row.limit_s, max_batch=row.max_batch, max_delay_s=row.max_delay_s)
        # Few requests are looked at for limits that nobody asked about; of a light load few of them are slow.
        tolerance = 0.3 if own > 0.2 * asked.rate_per_s else 1.0
        assert row.rate_per_s == pytest.approx(own, rel=tolerance)


def test_rates_of_loads_rise_with_their_latency() -> None:
    loads = sized().loads
    rates = [load.rate_per_s for load in loads]
    assert rates == sorted(set(rates))
    means = np.array([load.mean_s for load in loads])
    assert (np.diff(means) > -0.02 * means[1:]).all()
    assert all(load.utilisation <= 1 for load in loads)


def test_bursts_take_more_instances_than_chance() -> None:
    rng = np.random.default_rng(3)
    # Groups of twenty within a millisecond, at the same mean rate as Poisson.
    groups = np.cumsum(rng.exponential(0.2, 500))
    arrivals_s = np.sort((groups[:, None] + rng.uniform(0, 0.001, (500, 20))).ravel())
    traced = replace(DEMAND, rate_per_s=1000.0, arrivals=Trace(arrivals_s=arrivals_s, whole_rate_per_s=1000.0))
    bursty, chance = sized(traced), sized(replace(DEMAND, rate_per_s=1000.0))
    assert bursty.highest_rate_per_s < chance.highest_rate_per_s
    assert bursty.count >= chance.count
    assert bursty.load is not None
    assert bursty.load.p99_s <= 0.05


def test_nothing_to_size_gives_nothing() -> None:
    assert sizings([], DEMAND) == {}


def test_a_server_is_sized_the_same_alone_and_beside_others() -> None:
    others = [server(copies=2), server(times(CURVE, 3.0))]
    assert sizings([*others, server()], DEMAND)[server()] == sized()


@pytest.mark.parametrize("rate", [1e-300, 1e-12, 1e-6, 1e-3])
def test_requests_that_come_once_in_a_life_time_take_as_long_as_one_alone(rate: float) -> None:
    seen = simulate(CURVE, rate, requests=2000)
    assert seen.p99_s == pytest.approx(0.004)
    assert seen.utilisation == pytest.approx(rate * 0.004, rel=0.01)
    assert sized(replace(DEMAND, rate_per_s=rate)).count == 1
