"""The highest rate within a limit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from queue_models import batches_by_loop

from analyzer.errors import UsageError
from analyzer.serving import ServiceCurve, highest_rate, simulate
from analyzer.serving.queue import single_requests

CURVE = ServiceCurve(points=((1, 0.004), (8, 0.011), (64, 0.070)))


@pytest.mark.parametrize("limit_s", [0.006, 0.01, 0.02])
@pytest.mark.parametrize("servers", [1, 4])
def test_single_requests_keep_the_limit_up_to_the_rate_that_is_solved(limit_s: float, servers: int) -> None:
    low, high = 0.0, servers / 0.004
    while high - low > 1e-3 * high:
        rate = (low + high) / 2
        within = single_requests(rate, 0.004, servers).share_within(limit_s) >= 0.99
        low, high = (rate, high) if within else (low, rate)
    assert highest_rate(CURVE, limit_s, servers=servers, max_batch=1) == pytest.approx(low, rel=0.05)


@pytest.mark.parametrize("limit_s", [0.0041, 0.006])
def test_a_thousand_servers_keep_it_up_to_the_rate_that_is_solved(limit_s: float) -> None:
    rate = highest_rate(CURVE, limit_s, servers=1000, max_batch=1)
    assert single_requests(0.97 * rate, 0.004, 1000).share_within(limit_s) >= 0.99
    # Nobody plans closer to what all of them can take than half a per cent.
    most = 1.03 * rate
    assert most >= 1000 / 0.004 or single_requests(most, 0.004, 1000).share_within(limit_s) < 0.99


def test_batches_before_more_servers_than_can_be_told_are_refused() -> None:
    with pytest.raises(UsageError, match="Batches before 65 servers"):
        highest_rate(CURVE, 0.05, servers=65, max_batch=8)
    with pytest.raises(UsageError, match="not looked at"):
        simulate(CURVE, 1000.0, servers=256)
    assert highest_rate(CURVE, 0.05, servers=64, max_batch=8) > 0


@pytest.mark.parametrize(
    ("limit_s", "keywords"),
    [
        (0.02, {}),
        (0.05, {"servers": 2, "max_batch": 32}),
        (0.03, {"max_delay_s": 0.004}),
        (0.05, {"servers": 8, "max_batch": 16}),
    ],
)
def test_a_little_below_it_the_limit_is_kept_and_a_little_above_it_is_not(
    limit_s: float, keywords: dict[str, Any]
) -> None:
    rate = highest_rate(CURVE, limit_s, **keywords)
    assert simulate(CURVE, 0.96 * rate, **keywords).p99_s <= limit_s
    above = simulate(CURVE, 1.04 * rate, **keywords)
    assert above.saturated or above.p99_s > limit_s


def test_a_delay_above_the_limit_is_no_matter_where_batches_fill_in_time() -> None:
    curve = ServiceCurve(points=((1, 0.004), (256, 0.259)))
    times = [0.0, *(curve.time_s(batch) for batch in range(1, 9))]
    found = highest_rate(curve, 0.05, max_batch=8, max_delay_s=0.06)
    p99_s = []
    for rate in (0.95 * found, 1.05 * found):
        arrivals = np.cumsum(np.random.default_rng(5).exponential(1 / rate, 200_000))
        batches = batches_by_loop(arrivals.tolist(), times, free=[0.0], max_batch=8, max_delay=0.06)
        ends = np.repeat([end for _, _, end in batches], [size for size, _, _ in batches])
        p99_s.append(np.percentile((ends - arrivals)[10_000:], 99))
    assert p99_s[0] <= 0.05 < p99_s[1]


def test_no_rate_keeps_a_limit_below_the_quickest_batch() -> None:
    assert highest_rate(CURVE, 0.0039) == 0.0
    assert highest_rate(CURVE, 0.005, max_delay_s=0.002) == 0.0


def test_a_longer_limit_lets_more_through_and_no_limit_more_than_the_capacity() -> None:
    limits = (0.005, 0.01, 0.02, 0.04, 0.1, 1.0, 100.0)
    rates = [highest_rate(CURVE, limit_s) for limit_s in limits]
    assert rates == sorted(rates)
    assert 0.95 * 64 / 0.070 < rates[-1] < 64 / 0.070


def test_the_mean_and_lower_percentiles_keep_a_limit_at_higher_rates() -> None:
    rates = [highest_rate(CURVE, 0.03, percentile=percentile) for percentile in (99, 95, 90, 50)]
    assert rates == sorted(rates)
    assert rates[0] < highest_rate(CURVE, 0.03, percentile=None) < rates[-1] * 1.1


@pytest.mark.parametrize(("limit_s", "percentile"), [(0.0, 99), (-1.0, 99), (0.1, 0), (0.1, 100)])
def test_what_is_no_limit_is_an_error(limit_s: float, percentile: float) -> None:
    with pytest.raises(UsageError):
        highest_rate(CURVE, limit_s, percentile=percentile)
