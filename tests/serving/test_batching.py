"""Requests become batches as the rule says, lane by lane."""

from __future__ import annotations

import numpy as np
import pytest
from queue_models import batches_by_loop, latencies_by_events

from analyzer.serving.simulation import Lanes, form_batches


@pytest.mark.parametrize("seed", range(12))
def test_every_lane_is_served_as_a_plain_loop_serves_it(seed: int) -> None:
    rng = np.random.default_rng(seed)
    lanes, servers = int(rng.integers(1, 12)), int(rng.integers(1, 5))
    counts = rng.integers(1, 60, lanes)
    # Some requests come together, and some lanes have fewer servers than others.
    arrivals = [np.sort(np.round(rng.uniform(0, 30, count), int(rng.integers(0, 4)))) for count in counts]
    arrivals = [own - own[0] for own in arrivals]
    max_batch = rng.integers(1, 9, lanes)
    max_delay = np.where(rng.random(lanes) < 0.5, 0.0, rng.uniform(0, 2, lanes))
    times = np.concatenate((np.zeros((3, 1)), rng.uniform(0.1, 3, (3, 8))), axis=1)
    curve = rng.integers(0, 3, lanes)
    free = np.where(rng.random((lanes, servers)) < 0.3, np.inf, rng.uniform(0, 1, (lanes, servers)))
    free[:, 0] = 0.0

    formed = form_batches(
        Lanes(
            arrivals=np.concatenate(arrivals),
            counts=counts,
            times=times,
            curve=curve,
            max_batch=max_batch,
            max_delay=max_delay,
            free=free,
        )
    )

    begin = 0
    for lane in range(lanes):
        expected = batches_by_loop(
            arrivals[lane].tolist(),
            times[curve[lane]].tolist(),
            free=free[lane].tolist(),
            max_batch=int(max_batch[lane]),
            max_delay=float(max_delay[lane]),
        )
        own = slice(begin, begin := begin + len(expected))
        assert formed.sizes[own].tolist() == [size for size, _, _ in expected]
        assert formed.starts[own] == pytest.approx([start for _, start, _ in expected])
        assert formed.ends[own] == pytest.approx([end for _, _, end in expected])


@pytest.mark.parametrize(
    ("servers", "max_batch", "max_delay"), [(1, 1, 0.0), (1, 8, 0.0), (3, 4, 0.5), (2, 16, 1.5)]
)
def test_events_one_after_the_other_come_to_the_same_latencies(
    servers: int, max_batch: int, max_delay: float
) -> None:
    times = np.concatenate(([0.0], 1 + 0.3 * np.arange(1, max_batch + 1)))
    rate = 0.8 * servers * max_batch / times[-1]
    arrivals = np.cumsum(np.random.default_rng(5).exponential(1 / rate, 3000))
    by_events, batches = latencies_by_events(
        arrivals.tolist(), times.tolist(), servers=servers, max_batch=max_batch, max_delay_s=max_delay
    )

    formed = form_batches(
        Lanes(
            arrivals=arrivals,
            counts=np.array([3000]),
            times=times[None],
            curve=np.array([0]),
            max_batch=np.array([max_batch]),
            max_delay=np.array([max_delay]),
            free=np.zeros((1, servers)),
        )
    )

    # The last requests may wait for a batch that never fills: both wait the delay out.
    assert np.repeat(formed.ends, formed.sizes) - arrivals == pytest.approx(by_events, abs=1e-9)
    assert len(formed.sizes) == batches
