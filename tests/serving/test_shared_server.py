"""A device that several models share, held against formulas and a plain simulation."""

from __future__ import annotations

import math

import numpy as np
import pytest

from analyzer.arrays import Floats
from analyzer.serving.shared_server import (
    RunStream,
    load_of,
    runs_per_s,
    wait_s,
    waits_at_most,
)


def erlang_share_above(load: float, wait: float) -> float:
    """Of M/D/1 with services of 1, P(wait > t); Erlang, 1909."""
    terms = (
        (-load * (wait - k)) ** k / math.factorial(k) * math.exp(load * (wait - k))
        for k in range(math.floor(wait) + 1)
    )
    return 1 - (1 - load) * sum(terms)


def simulated_waits(streams: list[RunStream], runs: int, seed: int) -> Floats:
    """Waits of runs one after the other (Lindley's recursion)."""
    rng = np.random.default_rng(seed)
    rates = np.array([stream.runs_per_s for stream in streams])
    between = rng.exponential(1 / rates.sum(), runs)
    times = np.array([stream.time_s for stream in streams])[
        rng.choice(len(streams), runs, p=rates / rates.sum())
    ]
    # W[n + 1] = max(0, W[n] + time - between): what a sum is above its own lowest value.
    walk = np.concatenate(([0.0], np.cumsum(times[:-1] - between[1:])))
    return walk - np.minimum.accumulate(walk)


MIXES = [
    [RunStream(runs_per_s=60.0, time_s=0.01)],
    [RunStream(runs_per_s=30.0, time_s=0.01), RunStream(runs_per_s=1.0, time_s=0.3)],
    [
        RunStream(runs_per_s=200.0, time_s=0.001),
        RunStream(runs_per_s=5.0, time_s=0.05),
        RunStream(runs_per_s=2.0, time_s=0.1),
    ],
    [RunStream(runs_per_s=0.5, time_s=0.2), RunStream(runs_per_s=8.0, time_s=0.004)],
]


@pytest.mark.parametrize("load", [0.05, 0.3, 0.6])
@pytest.mark.parametrize("wait", [0.2, 0.9, 2.0, 4.5])
def test_a_limit_is_kept_from_the_probability_that_erlang_has_on(load: float, wait: float) -> None:
    streams = [RunStream(runs_per_s=load, time_s=1.0)]
    above = erlang_share_above(load, wait)
    if above < 1e-3:
        pytest.skip("no limit is about so few requests")
    # Rounded up by a step of 1/512 of the wait, some ten of which make a long wait.
    assert waits_at_most(streams, above * 1.08, wait)
    assert not waits_at_most(streams, above * 0.999, wait)


@pytest.mark.parametrize("streams", MIXES)
def test_the_mean_wait_is_that_of_a_simulation(streams: list[RunStream]) -> None:
    waits = simulated_waits(streams, 2_000_000, seed=1)
    assert wait_s(streams, None, longest_s=math.inf) == pytest.approx(waits.mean(), rel=0.03)


@pytest.mark.parametrize("streams", MIXES)
@pytest.mark.parametrize("tail", [0.1, 0.05, 0.01])
def test_a_percentile_is_never_below_a_simulations_and_little_above(
    streams: list[RunStream], tail: float
) -> None:
    waits = simulated_waits(streams, 2_000_000, seed=2)
    longest = 2 * float(np.quantile(waits, 1 - tail)) + 1e-3
    told = wait_s(streams, tail, longest_s=longest)
    # 5 % for the simulation's own error; the lattice lengthens waits by some steps.
    assert (waits > told).mean() <= tail * 1.05
    assert (waits > told * 0.97 - longest / 512).mean() >= tail * 0.95
    assert waits_at_most(streams, tail, told * 1.001)


def test_a_further_stream_never_shortens_a_wait() -> None:
    rng = np.random.default_rng(3)
    for _ in range(50):
        times = rng.uniform(0.001, 0.2, 5)
        streams = [RunStream(runs_per_s=float(0.15 / time), time_s=float(time)) for time in times]
        for count in range(1, 5):
            few = wait_s(streams[:count], 0.01, longest_s=3.0)
            assert few <= wait_s(streams[: count + 1], 0.01, longest_s=3.0)


def test_a_device_that_is_rarely_busy_keeps_the_shortest_limit() -> None:
    # Who comes waits at all with the probability of the load, 0.8 %.
    streams = [RunStream(runs_per_s=1.0, time_s=0.008)]
    assert waits_at_most(streams, 0.01, 0.0)
    assert not waits_at_most(streams, 0.005, 0.0)
    assert wait_s(streams, 0.01, longest_s=1.0) == 0.0


def test_more_than_a_device_can_serve_is_never_kept() -> None:
    streams = [RunStream(runs_per_s=10.0, time_s=0.1)]
    assert load_of(streams) == pytest.approx(1.0)
    assert not waits_at_most(streams, 0.5, 1e9)
    assert wait_s(streams, None, longest_s=math.inf) == math.inf


@pytest.mark.parametrize(("rate", "batch", "delay"), [(30.0, 8, 0.1), (200.0, 8, 0.1), (3.0, 4, 0.05)])
def test_batches_leave_as_often_as_a_simulation_forms_them(rate: float, batch: int, delay: float) -> None:
    gaps = np.random.default_rng(4).exponential(1 / rate, (200_000, batch))
    cycle = gaps[:, 0] + np.minimum(delay, gaps[:, 1:].sum(axis=1))
    assert runs_per_s(rate, batch, delay) == pytest.approx(1 / cycle.mean(), rel=0.01)


def test_without_a_limit_every_batch_is_full() -> None:
    assert runs_per_s(30.0, 8, None) == 30 / 8
    assert runs_per_s(30.0, 1, 0.1) == 30.0
