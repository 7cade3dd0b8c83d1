"""Instances of a model that generates: what one takes within limits, how many are needed."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from queue_models import simulate_generation

from analyzer.figures import QueueLoad
from analyzer.serving.continuous import Conversations, GenerationServer
from analyzer.serving.queue import Server
from analyzer.serving.search import GeneratingServer, GenerationDemand, _Sequences, sizings

ASKED = Conversations(prompts=np.array([1024]), outputs=np.array([128]))


def server(factor: float) -> GenerationServer:
    return GenerationServer(
        prefill=((128, 0.02 * factor), (2048, 0.15 * factor)),
        decode=((1, 0.012 * factor, 1e-7 * factor), (64, 0.020 * factor, 5e-6 * factor)),
        cache_tokens=200_000,
        max_batch=64,
    )


def instance(factor: float = 1.0, copies: int = 1) -> GeneratingServer:
    return Server(times=server(factor), quick=server(0.8 * factor), slow=server(1.25 * factor), copies=copies)


def test_at_the_highest_rate_both_limits_are_just_kept() -> None:
    demand = GenerationDemand(rate_per_s=10, conversations=ASKED, limit_s=0.4, tpot_s=0.06)
    sizing = sizings([instance()], demand)[instance()]
    most = server(1.0)
    limited = GenerationServer(
        prefill=most.prefill, decode=most.decode, cache_tokens=most.cache_tokens, max_batch=sizing.max_batch
    )
    below = simulate_generation(limited, 0.9 * sizing.highest_rate_per_s, ASKED, requests=20_000)
    assert below.p99_s <= 0.4
    assert below.tpot_p99_s <= 0.06
    above = simulate_generation(limited, 1.12 * sizing.highest_rate_per_s, ASKED, requests=20_000)
    assert above.saturated or above.p99_s > 0.4 or above.tpot_p99_s > 0.06


def test_the_count_is_the_rate_with_headroom_over_that_of_one_rounded_up_and_the_spare_ones() -> None:
    demand = GenerationDemand(
        rate_per_s=40, conversations=ASKED, limit_s=0.4, tpot_s=0.06, headroom=0.25, spare=2
    )
    sizing = sizings([instance()], demand)[instance()]
    assert sizing.count == math.ceil(40 * 1.25 / sizing.highest_rate_per_s) + 2
    assert sizing.low_rate_per_s < sizing.highest_rate_per_s < sizing.high_rate_per_s
    assert sizing.load.p99_s <= 0.4
    assert sizing.load.rate_per_s == pytest.approx(40 / sizing.count)


def test_two_copies_take_twice_as_much_as_one() -> None:
    demand = GenerationDemand(rate_per_s=10, conversations=ASKED, limit_s=0.4, tpot_s=0.06)
    sized = sizings([instance(), instance(copies=2)], demand)
    one, two = sized[instance()], sized[instance(copies=2)]
    for name in ("low_rate_per_s", "highest_rate_per_s", "high_rate_per_s"):
        assert getattr(two, name) == pytest.approx(2 * getattr(one, name))
    assert [row.rate_per_s for row in two.within] == [pytest.approx(2 * row.rate_per_s) for row in one.within]


def test_rates_rise_with_the_limit_and_the_one_asked_for_is_among_them() -> None:
    demand = GenerationDemand(rate_per_s=10, conversations=ASKED, limit_s=0.4)
    sizing = sizings([instance()], demand)[instance()]
    rates = [row.rate_per_s for row in sizing.within]
    assert rates == sorted(rates)
    assert any(row.limit_s == 0.4 and row.rate_per_s == sizing.highest_rate_per_s for row in sizing.within)


def test_limits_that_one_request_alone_breaks_are_kept_at_no_rate() -> None:
    demand = GenerationDemand(rate_per_s=10, conversations=ASKED, limit_s=0.01)
    sizing = sizings([instance()], demand)[instance()]
    assert (sizing.highest_rate_per_s, sizing.count, sizing.load) == (0.0, None, None)
    slow_steps = GenerationDemand(rate_per_s=10, conversations=ASKED, limit_s=5.0, tpot_s=0.011)
    assert sizings([instance()], slow_steps)[instance()].count is None


def test_between_two_rates_the_limit_that_is_met_first_ends_the_search() -> None:
    search = _Sequences(GenerationDemand(rate_per_s=10, conversations=ASKED, limit_s=0.4, tpot_s=0.06))
    light, kept, late, full = (
        QueueLoad(rate_per_s=rate, p99_s=first_s, tpot_p99_s=further_s)
        for rate, first_s, further_s in ((1, 0.2, 0.03), (2, 0.3, 0.05), (4, 0.5, 0.09), (6, None, None))
    )
    # Half of the way to the first limit, a quarter of it to the second.
    assert search._rate([light, kept, late], 0.4) == pytest.approx(2 + 2 / 4)
    assert search._rate([light, kept, late], 0.31) == pytest.approx(2 + 2 / 20)
    assert search._rate([light, kept, full], 0.4) == 2  # nothing is known of what lies between
    assert search._rate([light, kept], 0.4) == 2
    assert search._rate([late, light], 0.4) == search._rate([], 0.4) == 0
    assert [search.is_over(load) for load in (light, kept, late, full)] == [False, False, True, True]
    assert search._rate([light, replace(kept, p99_s=0.4, tpot_p99_s=0.06)], 0.4) == 2


@pytest.mark.parametrize(
    ("given", "batches"),
    [({}, [16, 64]), ({"max_batch": 8}, [8]), ({"max_batch": 99}, [64]), ({"tpot_s": 0.05}, [38, 64])],
)
def test_fewer_sequences_at_once_are_tried(given: dict[str, Any], batches: list[int]) -> None:
    # A step takes 12.1 ms and 0.2116 ms for each sequence but the first: 38 are within 0.4 * 50 ms.
    search = _Sequences(GenerationDemand(rate_per_s=10, conversations=ASKED, limit_s=0.4, **given))
    assert [way.max_batch for way in search.ways(instance())] == batches
