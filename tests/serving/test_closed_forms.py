"""Queues that are solved, held against older formulas and plain recursions."""

from __future__ import annotations

import math

import numpy as np
import pytest
from queue_models import exact_mean_of_all_waiting

from analyzer.errors import UsageError
from analyzer.serving import ServiceCurve, simulate
from analyzer.serving.queue import single_requests


def erlang_share_within(rate: float, service: float, wait: float) -> float:
    """Of M/D/1, P(wait <= t); Erlang, 1909. The terms alternate, so that it holds for short waits alone."""
    load = rate * service
    terms = (
        (-rate * (wait - k * service)) ** k / math.factorial(k) * math.exp(rate * (wait - k * service))
        for k in range(math.floor(wait / service) + 1)
    )
    return (1 - load) * sum(terms)


@pytest.mark.parametrize("load", [0.1, 0.5, 0.8, 0.95, 0.99])
def test_one_server_has_the_mean_of_pollaczek_and_khinchine(load: float) -> None:
    solved = single_requests(load / 0.004, 0.004)
    assert solved.mean_s == pytest.approx(0.004 * (1 + load / (2 * (1 - load))), rel=1e-6)


@pytest.mark.parametrize("load", [0.3, 0.7, 0.9])
@pytest.mark.parametrize("wait", [0.0, 0.3, 1.0, 1.5, 2.7, 4.2])
def test_one_server_has_erlangs_shares(load: float, wait: float) -> None:
    solved = single_requests(load, 1.0)
    assert solved.share_within(1.0 + wait) == pytest.approx(erlang_share_within(load, 1.0, wait), abs=1e-9)


@pytest.mark.parametrize("servers", [2, 5])
def test_several_servers_wait_as_kiefer_and_wolfowitz_have_it(servers: int) -> None:
    # Of equal services the request before the last `servers` ones is the one that leaves first.
    rng, load = np.random.default_rng(1), 0.7
    arrivals = np.cumsum(rng.exponential(1 / (load * servers), 400_000))
    starts = np.empty_like(arrivals)
    for number, at in enumerate(arrivals):
        starts[number] = max(at, starts[number - servers] + 1 if number >= servers else 0.0)
    latencies = (starts - arrivals + 1)[10_000:]

    solved = single_requests(load * servers, 1.0, servers)

    assert solved.mean_s == pytest.approx(latencies.mean(), rel=0.01)
    for percentile in (50, 90, 95, 99):
        assert solved.percentile_s(percentile) == pytest.approx(np.percentile(latencies, percentile), rel=0.03)


@pytest.mark.parametrize("load", [0.0, 1.0, 1.3])
def test_a_queue_without_a_steady_state_is_an_error(load: float) -> None:
    with pytest.raises(UsageError, match="no steady state"):
        single_requests(load, 1.0)


@pytest.mark.parametrize("load", [0.1, 0.2, 0.5, 0.8, 0.95])
def test_the_simulation_of_all_that_wait_agrees_with_what_is_solved(load: float) -> None:
    curve = ServiceCurve(points=((1, 0.006), (4096, 0.005 + 4.096)))
    mean = simulate(curve, load / 0.001).mean_s
    assert mean == pytest.approx(exact_mean_of_all_waiting(load / 0.001, 0.001, 0.005), rel=0.02)
