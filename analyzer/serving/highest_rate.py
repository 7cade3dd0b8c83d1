"""The highest rate at which a limit of latency is kept."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from analyzer.errors import UsageError
from analyzer.serving.arrivals import POISSON, Arrivals, warm_up
from analyzer.serving.queue import Queue, ServiceCurve, make_queue
from analyzer.serving.simulation import Scenario, Served, simulated

# Shares of the capacity that are looked at first. Latency rises as one over what is free: closer at the end.
FIRST_SHARES = (
    *(0.002, 0.005, 0.01, 0.02, 0.05, 0.11, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8),
    *(0.87, 0.92, 0.96, 0.985),
)
# Nobody plans closer to the capacity than this.
_LAST_SHARE = 0.995
# Then those about the one at which the limit is reached, by what is taken over what is free.
_ODDS = (0.75, 1.0, 1.33)
# At a low share few requests are slow: it takes more of them to see how few.
_LOW_SHARE, _MORE = 0.1, 4
# But before so many servers hardly one is: a request finds a free one, and all are as quick.
_MANY_SERVERS = 32
# Beside so many, each of which a step looks at, no more requests are looked at: near its highest rate latency
# rises so steeply that the rate hangs little on them.
_VERY_MANY_SERVERS, _AMONG_VERY_MANY = 256, 8000
# Closer looks at a queue, at most.
_CLOSE_LOOKS, _ROUNDING = 3, 1e-9
# Times a share from which another one is far.
_NEAR = 1.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """The effort of one look at a rate: requests that are served, in at most so many lanes."""

    requests: int
    lanes: int


_FIRST, _THEN = Effort(requests=4000, lanes=32), Effort(requests=20_000, lanes=32)


def highest_rate(
    curve: ServiceCurve,
    limit_s: float,
    *,
    percentile: float | None = 99,
    servers: int = 1,
    max_batch: int | None = None,
    max_delay_s: float = 0.0,
) -> float:
    """Return the highest rate of Poisson arrivals at which a percentile of the latency keeps a limit.

    Args:
        curve: Seconds of a batch.
        limit_s: Seconds from a request's arrival to its answer.
        percentile: Of the latency, above 0 and below 100; None for its mean.
        servers: How many take batches from the one queue.
        max_batch: Most requests in a batch; None for the curve's last.
        max_delay_s: How long the oldest may wait for its batch to fill while a server is free, in seconds.

    Returns:
        Requests a second; 0.0 where no rate keeps the limit.

    Raises:
        UsageError: A value that cannot be right.
    """
    queue = make_queue(curve, servers=servers, max_batch=max_batch, max_delay_s=max_delay_s)
    if not 0 < limit_s < math.inf:
        raise UsageError(f"A limit of {limit_s:g} s is none.", hint="Give seconds above zero.")
    if percentile is not None and not 0 < percentile < 100:
        raise UsageError(f"There is no {percentile:g}th percentile.", hint="Give one above 0 and below 100.")
    looked = loads_at([queue], [FIRST_SHARES], POISSON, _FIRST)
    return highest_rates([queue], limit_s, percentile, POISSON, _THEN, looked)[0][0]


def highest_rates(
    queues: Sequence[Queue],
    limit_s: float,
    percentile: float | None,
    arrivals: Arrivals,
    effort: Effort,
    looked: Sequence[Sequence[Served]],
) -> list[tuple[float, list[Served]]]:
    """Return the highest rate of each queue, 0 where none keeps the limit, and all that was simulated of it.

    ``looked`` was simulated of it, by rising rate. About the rate at which that reaches the limit follows a
    closer look with ``effort``, and a further one where it shows that the first was mistaken.
    """
    seen = [list(served) for served in looked]
    able = [number for number, queue in enumerate(queues) if queue.fastest_s <= limit_s]
    rates, left = [0.0] * len(queues), able
    for _ in range(_CLOSE_LOOKS):
        near: list[Sequence[float]] = []
        for number in left:
            share = share_within(seen[number], limit_s, percentile)
            # By what is taken over what is free: latency is nearly a line in that.
            odds = share / (1 - share) if share > 0 else FIRST_SHARES[0] / 10
            near.append([min(odds * factor / (1 + odds * factor), _LAST_SHARE) for factor in _ODDS])
        mistaken = []
        looks = loads_at([queues[number] for number in left], near, arrivals, effort)
        for number, close in zip(left, looks, strict=True):
            least, *_, most = [one.scenario.rate_per_s for one in close]
            below = [one for one in seen[number] if one.scenario.rate_per_s < least]
            # A brief look above a closer one that does not keep the limit was lucky.
            above = [one for one in seen[number] if one.scenario.rate_per_s > most]
            keeps = [one.latency_s(percentile) <= limit_s for one in close]
            seen[number] = [*below, *close, *(above if keeps[-1] else ())]
            rates[number] = share_within(seen[number], limit_s, percentile) * queues[number].capacity_per_s
            if rates[number] and not least * (1 - _ROUNDING) <= rates[number] <= most * (1 + _ROUNDING):
                mistaken.append(number)
        left = mistaken
    return list(zip(rates, seen, strict=True))


def loads_at(
    queues: Sequence[Queue], shares: Sequence[Sequence[float]], arrivals: Arrivals, effort: Effort
) -> list[list[Served]]:
    """Return every queue at its own shares of its capacity."""
    scenarios = [
        _scenario(queue, share, arrivals, effort)
        for queue, of_queue in zip(queues, shares, strict=True)
        for share in of_queue
    ]
    served = iter(simulated(scenarios))
    return [[next(served) for _ in of_queue] for of_queue in shares]


def _scenario(queue: Queue, share: float, arrivals: Arrivals, effort: Effort) -> Scenario:
    more = share <= _LOW_SHARE and queue.servers < _MANY_SERVERS
    count = effort.requests * (_MORE if more else 1)
    if queue.servers >= _VERY_MANY_SERVERS:
        count = min(count, _AMONG_VERY_MANY)
    # A lane's warm-up serves nobody: of long ones there are few, and none longer than what counts.
    left_out = min(warm_up(queue, share * queue.capacity), count)
    lanes = max(1, min(effort.lanes, count // (2 * left_out)))
    return Scenario(
        queue=queue,
        rate_per_s=share * queue.capacity_per_s,
        lanes=lanes,
        requests=math.ceil(count / lanes),
        left_out=left_out,
        arrivals=arrivals,
    )


def share_within(served: Sequence[Served], limit_s: float, percentile: float | None) -> float:
    """Return the largest share that keeps the limit, between those that were looked at; 0 where none does."""
    capacity_per_s = served[0].scenario.queue.capacity_per_s
    shares = [one.scenario.rate_per_s / capacity_per_s for one in served]
    latencies_s = [one.latency_s(percentile) for one in served]
    # The last that keeps it, not the one before the first that does not: where requests wait for their batch
    # to fill, the low rates are the slow ones.
    last = max((number for number, latency_s in enumerate(latencies_s) if latency_s <= limit_s), default=None)
    if last is None:
        return 0.0
    if last + 1 == len(shares) or not math.isfinite(latencies_s[last + 1]):
        return shares[last]
    below_s, above_s = latencies_s[last : last + 2]
    part = (limit_s - below_s) / (above_s - below_s)
    if percentile is not None and shares[last + 1] < _NEAR * shares[last]:
        # From near the share of requests that are late is a line in the rate, and the percentile is none.
        late, late_above = (one.late_share(limit_s) for one in served[last : last + 2])
        allowed = 1 - percentile / 100
        part = min(max((allowed - late) / (late_above - late), 0.0), 1.0) if late_above > late else part
    below, above = (share / (1 - share) for share in shares[last : last + 2])
    odds = below + part * (above - below)
    return odds / (1 + odds)
