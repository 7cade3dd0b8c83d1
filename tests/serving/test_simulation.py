"""The simulation in steady state, held against solved queues, an independent loop and laws."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from queue_models import batches_by_loop

from analyzer.errors import UsageError
from analyzer.serving import ServiceCurve, simulate, simulation
from analyzer.serving.arrivals import POISSON, usual_batch, warm_up, weights
from analyzer.serving.highest_rate import Effort, loads_at
from analyzer.serving.queue import make_queue, single_requests
from analyzer.serving.simulation import Scenario

CURVE = ServiceCurve(points=((1, 0.004), (8, 0.011), (64, 0.070)))


@pytest.mark.parametrize("servers", [1, 4, 16])
@pytest.mark.parametrize("load", [0.2, 0.8, 0.95])
def test_single_requests_come_out_as_they_are_solved(servers: int, load: float) -> None:
    rate = load * servers / 0.004
    solved, seen = single_requests(rate, 0.004, servers), simulate(CURVE, rate, servers=servers, max_batch=1)
    assert seen.mean_s == pytest.approx(solved.mean_s, rel=0.01)
    assert seen.p50_s == pytest.approx(solved.percentile_s(50), rel=0.03)
    assert seen.p90_s == pytest.approx(solved.percentile_s(90), rel=0.05)
    assert seen.p99_s == pytest.approx(solved.percentile_s(99), rel=0.1)
    assert seen.utilisation == pytest.approx(load, rel=0.01)
    assert seen.mean_batch == 1


@pytest.mark.parametrize(
    ("load", "servers", "max_batch", "delay_s"),
    [(0.2, 1, 64, 0.0), (0.5, 2, 8, 0.002), (0.8, 1, 16, 0.0), (0.8, 4, 64, 0.005), (0.9, 2, 2, 0.001)],
)
def test_batches_come_out_as_a_plain_loop_has_them(
    load: float, servers: int, max_batch: int, delay_s: float
) -> None:
    times = [0.0, *(CURVE.time_s(batch) for batch in range(1, max_batch + 1))]
    rate = load * servers * max_batch / times[-1]
    requests = 300_000
    arrivals = np.cumsum(np.random.default_rng(77).exponential(1 / rate, requests))
    batches = batches_by_loop(
        arrivals.tolist(), times, free=[0.0] * servers, max_batch=max_batch, max_delay=delay_s
    )
    ends = np.repeat([end for _, _, end in batches], [size for size, _, _ in batches])
    latencies = (ends - arrivals)[requests // 10 :]
    busy = sum(end - start for _, start, end in batches) / servers / ends[-1]

    seen = simulate(CURVE, rate, servers=servers, max_batch=max_batch, max_delay_s=delay_s)

    assert seen.mean_s == pytest.approx(latencies.mean(), rel=0.04)
    for name, percentile, tolerance in (("p50_s", 50, 0.04), ("p95_s", 95, 0.05), ("p99_s", 99, 0.1)):
        assert getattr(seen, name) == pytest.approx(np.percentile(latencies, percentile), rel=tolerance)
    assert seen.mean_batch == pytest.approx(requests / len(batches), rel=0.03)
    assert seen.utilisation == pytest.approx(busy, rel=0.02)


def busy_with_pairs(load: float, alone: float) -> float:
    """Share of time in which one server is busy that takes two requests at once in 1, and one in ``alone``.

    By what is left behind at the ends of batches: of n that wait two are taken, one alone, or the next to come.
    A server is idle only after a batch that nobody is left behind, and then for one over the rate on average.
    """
    from scipy.stats import poisson

    rate, states = 2 * load, 2000
    moves = np.zeros((states, states))
    for left in range(states):
        came = poisson.pmf(np.arange(states), rate * (alone if left < 2 else 1.0))
        stays = max(left - 2, 0)
        moves[left, stays:] = came[: states - stays]
    moves[:, -1] += 1 - moves.sum(axis=1)
    equations = moves.T - np.eye(states)
    equations[0] = 1.0
    shares = np.linalg.solve(equations, np.eye(1, states)[0])
    busy = alone * shares[:2].sum() + shares[2:].sum()
    return float(busy / (busy + shares[0] / rate))


@pytest.mark.parametrize("load", [0.3, 0.8, 0.96, 0.985])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_few_requests_tell_how_busy_a_server_of_pairs_is(load: float, seed: int) -> None:
    curve = ServiceCurve(points=((1, 0.9), (2, 1.0)))
    seen = simulate(curve, 2 * load, requests=4000, seed=seed).utilisation
    exact = busy_with_pairs(load, 0.9)
    # What is idle is seldom seen: half of it at most is wrong, and 0.015 where much is.
    assert abs(seen - exact) < min(0.015, (1 - exact) / 2)


@pytest.mark.parametrize("servers", [1, 4])
@pytest.mark.parametrize("load", [0.01, 0.5, 0.97, 0.995])
def test_where_each_request_takes_as_long_in_any_batch_the_load_is_the_utilisation(
    servers: int, load: float
) -> None:
    curve = ServiceCurve(points=((1, 0.004), (32, 0.128)))
    seen = simulate(curve, load * servers / 0.004, servers=servers, requests=1000)
    assert seen.utilisation == pytest.approx(load, rel=1e-9)


@pytest.mark.parametrize("servers", [1, 3])
@pytest.mark.parametrize("delay_s", [0.0, 0.01])
@pytest.mark.parametrize("load", [0.05, 0.4, 0.9])
def test_servers_are_busy_for_their_batches_and_no_longer(servers: int, delay_s: float, load: float) -> None:
    # A batch costs 3 ms, a request in it 1 ms: busy time a request is 1 ms and its share of 3 ms.
    curve = ServiceCurve(points=((1, 0.004), (32, 0.035)))
    rate = load * servers * 32 / 0.035
    seen = simulate(curve, rate, servers=servers, max_delay_s=delay_s, requests=8000)
    assert seen.utilisation * servers == pytest.approx(rate * (0.001 + 0.003 / seen.mean_batch), rel=0.01)


def test_what_comes_as_fast_as_full_batches_leave_has_no_times() -> None:
    seen = simulate(CURVE, 64 / 0.070)
    assert seen.saturated
    assert (seen.mean_s, seen.p50_s, seen.p90_s, seen.p95_s, seen.p99_s) == (None,) * 5
    assert simulate(CURVE, 0.99 * 64 / 0.070, requests=1000).saturated is False


def test_one_queue_before_two_servers_waits_less_than_two_queues() -> None:
    rate = 0.85 / 0.004
    together = simulate(CURVE, 2 * rate, servers=2, max_batch=1)
    apart = simulate(CURVE, rate, max_batch=1)
    assert together.mean_s < apart.mean_s
    assert together.p99_s < apart.p99_s


def test_percentiles_rise_and_the_same_seed_gives_the_same_answer() -> None:
    seen = simulate(CURVE, 700, seed=3)
    assert 0.004 <= seen.p50_s <= seen.p90_s <= seen.p95_s <= seen.p99_s
    assert simulate(CURVE, 700, seed=3) == seen
    assert simulate(CURVE, 700, seed=4) != seen


def test_at_a_light_load_a_delay_is_waited_out() -> None:
    seen = simulate(CURVE, 0.01, max_delay_s=0.5, requests=2000)
    assert seen.p50_s == pytest.approx(0.504, rel=1e-6)


def test_at_least_as_many_requests_are_looked_at_as_were_asked_for() -> None:
    assert simulate(CURVE, 100, requests=1234).requests >= 1234


@pytest.mark.parametrize(
    "keywords",
    [
        {"rate_per_s": 0.0},
        {"rate_per_s": float("nan")},
        {"rate_per_s": 1.0, "servers": 0},
        {"rate_per_s": 1.0, "max_batch": 65},
        {"rate_per_s": 1.0, "max_batch": 0},
        {"rate_per_s": 1.0, "max_delay_s": -1.0},
        {"rate_per_s": 1.0, "requests": 0},
    ],
)
def test_what_cannot_be_is_an_error(keywords: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        simulate(CURVE, **keywords)


@pytest.mark.parametrize(
    "points", [(), ((0, 0.1),), ((1, 0.1), (1, 0.2)), ((8, 0.1), (1, 0.2)), ((1, 0.0),), ((1, float("inf")),)]
)
def test_a_curve_that_is_none_is_an_error(points: tuple[tuple[int, float], ...]) -> None:
    with pytest.raises(UsageError):
        ServiceCurve(points=points)


def test_a_curve_is_a_line_between_its_points_and_flat_below_them() -> None:
    curve = ServiceCurve(points=((4, 0.010), (8, 0.020)))
    assert [curve.time_s(batch) for batch in (1, 4, 6, 8)] == pytest.approx([0.010, 0.010, 0.015, 0.020])
    assert curve.times(5).tolist() == pytest.approx([0, 0.010, 0.010, 0.010, 0.010, 0.0125])


# Any batch of up to eight takes as long: capacity 8 requests a unit of time for each server.
FLAT = ServiceCurve(points=((1, 0.5), (8, 0.5)))


@pytest.mark.parametrize(
    ("rate", "servers", "delay_s", "batch", "rounds"),
    [
        (0.5, 1, 0.0, 1, 5),
        (3, 1, 0.0, 3, 5 + 8 / 5),  # those that come while a batch is served; 5 of 8 are free
        (3, 2, 0.0, 1.5, 5),  # of two servers every other is another's; single requests are as solved
        (1, 1, 0.5, 2, 5 + 8 / 7),  # the first, and the one that comes while it waits
        (7.96, 1, 0.0, 7.96, 100),
        (100, 1, 0.0, 8, 100),
    ],
)
def test_the_usual_batch_is_what_comes_meanwhile_and_a_lane_warms_up_for_rounds_of_it(
    rate: float, servers: int, delay_s: float, batch: float, rounds: float
) -> None:
    queue = make_queue(FLAT, servers=servers, max_delay_s=delay_s)
    assert usual_batch(queue, rate) == pytest.approx(batch, rel=0.01)
    assert warm_up(queue, rate) == math.ceil(rounds * servers * usual_batch(queue, rate))


def test_weighted_lanes_wait_as_long_as_is_solved() -> None:
    # M/D/1 at 3/4 of a capacity of 8: means of the wait and of its square (Kleinrock, Queueing Systems 1, 5.7).
    load, service = 0.75, 1 / 8
    mean = load * service / (2 * (1 - load))
    square = 2 * mean**2 + load * service**2 / (3 * (1 - load))
    # Two waits a lane, whose mean and square are these parts of the solved ones.
    parts = [(1.1, 1.0), (0.9, 1.05), (1.0, 0.9), (1.05, 1.1)]
    apart = [math.sqrt(of_square * square - (of_mean * mean) ** 2) for of_mean, of_square in parts]
    waits = [of_mean * mean + np.array([-far, far]) for (of_mean, _), far in zip(parts, apart, strict=True)]
    each = weights(make_queue(FLAT), 6.0, waits)
    assert each.mean() == pytest.approx(1)
    assert each @ [wait.mean() for wait in waits] / len(waits) == pytest.approx(mean)
    assert each @ [np.square(wait).mean() for wait in waits] / len(waits) == pytest.approx(square)


@pytest.mark.parametrize(
    ("share", "servers", "lanes", "requests", "left_out"),
    [
        (0.05, 1, 32, 125, 5),  # at a light load four times as many: 4000 in 32 lanes
        (0.05, 32, 3, 334, 160),  # not before many servers: twice the warm-up counts, in few lanes
        (0.5, 1, 17, 59, 28),
        (0.995, 1, 1, 1000, 796),
        (0.9999, 2, 1, 1000, 1000),
    ],
)
def test_a_look_at_a_rate_counts_more_in_each_lane_than_it_leaves_out(
    share: float, servers: int, lanes: int, requests: int, left_out: int
) -> None:
    queue = make_queue(FLAT, servers=servers)
    ((served,),) = loads_at([queue], [[share]], POISSON, Effort(requests=1000, lanes=32))
    scenario = served.scenario
    assert (scenario.lanes, scenario.requests, scenario.left_out) == (lanes, requests, left_out)
    assert scenario.rate_per_s == share * queue.capacity_per_s


def test_a_percentile_is_the_first_latency_that_so_many_do_not_exceed() -> None:
    ((served,),) = loads_at([make_queue(FLAT)], [[0.5]], POISSON, Effort(requests=10, lanes=1))
    four = replace(served, latencies_s=np.arange(1.0, 5.0), shares=np.array([0.1, 0.7, 0.9, 1.0]))
    assert [four.latency_s(share) for share in (10, 11, 70, 70.1, 90, 100)] == [1, 2, 2, 3, 3, 4]
    assert four.latency_s(None) == served.mean_s
    assert [four.late_share(limit) for limit in (0.5, 1, 2.5, 4)] == pytest.approx([1, 0.9, 0.3, 0])


def test_as_many_scenarios_are_simulated_at_once_as_have_800_000_requests() -> None:
    queue = make_queue(FLAT)
    each = [
        Scenario(queue=queue, rate_per_s=1.0, lanes=2, requests=n, left_out=10**5)
        for n in (10**5, 10**5, 1, 9**9)
    ]
    assert [len(some) for some in simulation._portions(each)] == [2, 1, 1]
