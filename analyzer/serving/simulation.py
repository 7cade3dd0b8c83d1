"""Requests served by the rule: latencies, batches and how busy the servers are."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from analyzer.arrays import Floats, Ints
from analyzer.errors import UsageError
from analyzer.figures import QueueLoad
from analyzer.serving.arrivals import POISSON, Arrivals, Stream, usual_batch, warm_up, weights
from analyzer.serving.queue import PERCENTILES, Queue, ServiceCurve, by_percentile, make_queue

# Lanes that are done are dropped once they are this share: dropping copies all others.
_DONE = 0.1


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Lanes:
    """Streams of requests, and who serves them; times in any one unit a lane.

    Attributes:
        arrivals: Of all lanes, one lane behind the other, from 0 and rising within each, ``[requests]``.
        counts: Requests of each lane, at least one, ``[lanes]``.
        times: Time of a batch by curve and size, ``[curves, largest batch + 1]``.
        curve: Row of ``times`` of each lane, ``[lanes]``.
        max_batch, max_delay: ``[lanes]``.
        free: When each server is free for the first time, ``[lanes, servers]``; infinite where a lane has
            fewer servers.
    """

    arrivals: Floats
    counts: Ints
    times: Floats
    curve: Ints
    max_batch: Ints
    max_delay: Floats
    free: Floats


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FormedBatches:
    """Batches of all lanes, one lane behind the other, each lane's in the order of their start.

    All are ``[batches]``.
    """

    sizes: Ints
    starts: Floats
    ends: Floats


def form_batches(lanes: Lanes) -> FormedBatches:
    """Serve every request."""
    if lanes.max_batch.max() == 1:
        return _singly(lanes)
    formed: list[tuple[Ints, Ints, Floats, Floats]] = []
    ends_at = np.cumsum(lanes.counts)
    at = ends_at - lanes.counts  # each lane's oldest waiting request
    # All lanes' arrivals on one line, a lane's behind those of the lane before: one search finds in all.
    whole = lanes.arrivals[ends_at - 1]
    behind = np.cumsum(whole + 1.0) - (whole + 1.0)
    line = lanes.arrivals + np.repeat(behind, lanes.counts)
    arrivals = np.append(lanes.arrivals, np.inf)  # the last lane's, too, has a next one
    lane, free = np.arange(len(at)), lanes.free.copy()
    while len(lane):
        columns = ends_at, whole, behind, lanes.curve, lanes.max_batch, lanes.max_delay
        last, until, offset, curve, most, delay = (column[lane] for column in columns)
        delayed, rows = bool(delay.any()), np.arange(len(lane))
        while len(lane) - np.count_nonzero(left := last - at) <= _DONE * (len(lane) - 1):
            server = (rows, free.argmin(axis=1)) if free.shape[1] > 1 else (slice(None), 0)
            start = np.maximum(free[server], oldest := arrivals[at])
            if delayed:
                full_at = np.where(most <= left, arrivals[np.minimum(at + most, last) - 1], np.inf)
                start = np.maximum(start, np.minimum(full_at, oldest + delay))
            # Its own oldest request is in it, however the two additions of an offset were rounded.
            came = line.searchsorted(np.minimum(start, until) + offset, side="right")
            size = np.minimum(np.minimum(np.maximum(came - at, 1), most), left)  # 0 where a lane is done
            free[server] = end = start + lanes.times[curve, size]
            formed.append((lane, size, start, end))
            at = at + size
        lane, at, free = lane[left > 0], at[left > 0], free[left > 0]
    lane, sizes, starts, ends = (np.concatenate(column) for column in zip(*formed, strict=True))
    # Stable: a lane's batches stay in their order. What a lane that was done did is left out.
    # Of 16 bits NumPy sorts by radix, which takes a tenth of the time.
    lane = lane.astype(np.min_scalar_type(len(ends_at)))
    order = np.argsort(np.where(sizes > 0, lane, len(ends_at)), kind="stable")
    order = order[: int(np.count_nonzero(sizes))]
    return FormedBatches(sizes=sizes[order], starts=starts[order], ends=ends[order])


def _singly(lanes: Lanes) -> FormedBatches:
    """Serve requests one by one, of which a lane's all take as long.

    They leave in the order in which they came: each begins when it has come and the one has left that came as
    many before it as there are servers (Lindley's recursion, of each server's turns by itself).
    """
    starts, services = [], lanes.times[lanes.curve, 1]
    streams = np.split(lanes.arrivals, np.cumsum(lanes.counts)[:-1])
    for arrivals, service_s, free in zip(streams, services.tolist(), lanes.free, strict=True):
        servers = int(np.isfinite(free).sum())
        before = np.arange(-(-len(arrivals) // servers))[:, None] * service_s
        ahead = np.resize(arrivals, (len(before), servers)) - before
        ahead[0] = np.maximum(ahead[0], np.sort(free)[:servers])
        starts.append((np.maximum.accumulate(ahead) + before).ravel()[: len(arrivals)])
    begun, one_each = np.concatenate(starts), np.ones(len(lanes.arrivals), dtype=np.int64)
    return FormedBatches(sizes=one_each, starts=begun, ends=begun + np.repeat(services, lanes.counts))


# Requests that come while a batch is served and waited for, of which hardly one meets another.
_ALONE = 1e-3
_MOST_LANES, _REQUESTS_AT_ONCE = 128, 800_000
# Requests that count for each that a lane spends on warming up.
_COUNTED_PER_WARM_UP = 4
# Share of time below which rounding may be all that is idle.
_NEVER_IDLE = 1e-9
# Looked at where fewer were asked for, as far as that takes no second: so many batches, and so many requests
# over the square of the free capacity, as that is how long a queue remembers.
_BATCHES, _FREE_SQUARED, _TIMES_ASKED, _REQUESTS = 20_000, 2000, 5, 1_000_000


def simulate(
    curve: ServiceCurve,
    rate_per_s: float,
    *,
    servers: int = 1,
    max_batch: int | None = None,
    max_delay_s: float = 0.0,
    requests: int = 200_000,
    seed: int = 0,
) -> QueueLoad:
    """Poisson arrivals at a rate, in steady state.

    Args:
        curve: Seconds of a batch.
        rate_per_s: Requests a second.
        servers: How many take batches from the one queue.
        max_batch: Most requests in a batch; None for the curve's last.
        max_delay_s: How long the oldest may wait for its batch to fill while a server is free, in seconds.
        requests: How many are looked at, at least.
        seed: Of the arrivals: the same seed gives the same answer.

    Raises:
        UsageError: A value that cannot be right.
    """
    queue = make_queue(curve, servers=servers, max_batch=max_batch, max_delay_s=max_delay_s)
    if not 0 < rate_per_s < math.inf:
        raise UsageError(f"A rate of {rate_per_s:g} requests a second is none.", hint="Give one above zero.")
    if requests < 1:
        raise UsageError("At least one request must be looked at.", hint="For example requests=200_000.")
    rate = min(rate_per_s / queue.capacity_per_s, 1.0) * queue.capacity
    free = max(1 - rate / queue.capacity, 1e-6)
    enough = max(_BATCHES * usual_batch(queue, rate), _FREE_SQUARED / free**2)
    requests = math.ceil(max(requests, min(enough, _TIMES_ASKED * requests, _REQUESTS)))
    # In lanes that are long beside their warm-up.
    left_out = warm_up(queue, rate)
    lanes = max(1, min(_MOST_LANES, requests // (_COUNTED_PER_WARM_UP * left_out)))
    scenario = Scenario(
        queue=queue,
        rate_per_s=rate_per_s,
        lanes=lanes,
        requests=math.ceil(requests / lanes),
        left_out=left_out,
    )
    return simulated([scenario], seed=seed)[0].load()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Scenario:
    """A queue at a rate, looked at in so many lanes: in each so many requests count, and come before those."""

    queue: Queue
    rate_per_s: float
    lanes: int
    requests: int
    left_out: int
    arrivals: Arrivals = POISSON

    def usual_batches(self) -> float:
        """Return about the number of batches of a lane."""
        rate = self.rate_per_s * self.queue.unit_s
        return (self.left_out + self.requests) / usual_batch(self.queue, rate)

    def in_units(self) -> tuple[Hashable, Scenario]:
        """Return what tells it from others, and the same with one second for a full batch."""
        queue = self.queue
        if self.arrivals is not POISSON:
            return self, self
        # Digits that a division by the unit leaves.
        rate = float(f"{self.rate_per_s / queue.capacity_per_s:.15g}") * queue.capacity
        alike = replace(self, queue=replace(queue, unit_s=1.0), rate_per_s=rate)
        form = queue.times.tobytes(), queue.servers, queue.max_delay, rate
        return (*form, self.lanes, self.requests, self.left_out), alike


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Served:
    """The results of a scenario; without a request where it is saturated.

    Attributes:
        scenario: What was asked.
        latencies_s: Of the requests that count, rising, ``[requests]``.
        shares: Of all of them, that are as quick or quicker, ``[requests]``; the last is 1.
        mean_s: Of the latency.
        mean_batch, utilisation: As in ``QueueLoad``.
    """

    scenario: Scenario
    latencies_s: Floats
    shares: Floats
    mean_s: float
    mean_batch: float
    utilisation: float

    def of(self, scenario: Scenario) -> Served:
        """Return the same of a scenario whose queue has another unit of time."""
        times = scenario.queue.unit_s / self.scenario.queue.unit_s
        latencies_s = self.latencies_s * times
        return replace(self, scenario=scenario, latencies_s=latencies_s, mean_s=self.mean_s * times)

    def latency_s(self, percentile: float | None) -> float:
        """Return percentile of the latency; with None its mean. Infinite where the queue grows without end."""
        if percentile is None or not len(self.latencies_s):
            return self.mean_s
        # Sums of weights end a rounding below 1.
        at = int(np.searchsorted(self.shares, percentile / 100 - 1e-12))
        return float(self.latencies_s[min(at, len(self.latencies_s) - 1)])

    def late_share(self, limit_s: float) -> float:
        """Share of requests that take longer."""
        at = int(np.searchsorted(self.latencies_s, limit_s * (1 + 1e-12), side="right"))
        return 1.0 - (float(self.shares[at - 1]) if at else 0.0)

    def load(self) -> QueueLoad:
        """Return the same as a plain value."""
        if not len(self.latencies_s):
            return QueueLoad(rate_per_s=self.scenario.rate_per_s, utilisation=1.0, saturated=True)
        return QueueLoad(
            rate_per_s=self.scenario.rate_per_s,
            mean_s=self.mean_s,
            **by_percentile(map(self.latency_s, PERCENTILES)),
            mean_batch=self.mean_batch,
            utilisation=self.utilisation,
            requests=len(self.latencies_s),
        )


def simulated(scenarios: Sequence[Scenario], *, seed: int = 0) -> list[Served]:
    """Simulate many queues at once, and alike ones once."""
    forms, in_units = zip(*[one.in_units() for one in scenarios], strict=True) if scenarios else ((), ())
    distinct = dict(zip(forms, in_units, strict=True))
    served: dict[Hashable, Served] = {}
    for singly in (True, False):
        several = ((form, one) for form, one in distinct.items() if (one.queue.max_batch == 1) is singly)
        # Lanes that form about as many batches are done at the same time.
        alike = dict(sorted(several, key=lambda item: item[1].usual_batches()))
        result = (served for some in _portions([*alike.values()]) for served in _simulated(some, seed))
        served |= zip(alike, result, strict=True)
    return [served[form].of(one) for form, one in zip(forms, scenarios, strict=True)]


def _portions(scenarios: Sequence[Scenario]) -> Iterator[Sequence[Scenario]]:
    """As many at once as a processor's caches hold."""
    first, requests = 0, 0
    for number, scenario in enumerate(scenarios):
        more = scenario.lanes * (scenario.left_out + scenario.requests)
        if requests and requests + more > _REQUESTS_AT_ONCE:
            yield scenarios[first:number]
            first, requests = number, 0
        requests += more
    yield scenarios[first:]


def _simulated(scenarios: Sequence[Scenario], seed: int) -> list[Served]:
    parts = {}
    for number, scenario in enumerate(scenarios):
        queue = scenario.queue
        if scenario.rate_per_s >= queue.capacity_per_s:
            continue  # saturated: requests come as fast as full batches leave, or faster
        # So few that none meets another are made no fewer: further apart, a clock that counts from the first of
        # them would lose the times of single batches.
        rate_per_s = max(scenario.rate_per_s, _ALONE / (1 + queue.max_delay) / queue.unit_s)
        parts[number] = scenario.arrivals.streams(
            queue, rate_per_s, scenario.lanes, scenario.requests, scenario.left_out, seed
        )
    served = _served([scenarios[number] for number in parts], list(parts.values())) if parts else []
    by_number = dict(zip(parts, served, strict=True))
    none = np.empty(0)
    return [
        by_number.get(number)
        or Served(
            scenario=scenario,
            latencies_s=none,
            shares=none,
            mean_s=math.inf,
            mean_batch=scenario.queue.max_batch,
            utilisation=1.0,
        )
        for number, scenario in enumerate(scenarios)
    ]


def _served(scenarios: Sequence[Scenario], parts: Sequence[Sequence[Stream]]) -> list[Served]:
    lanes = _lanes([scenario.queue for scenario in scenarios], parts)
    batches = form_batches(lanes)
    latencies = np.repeat(batches.ends, batches.sizes) - lanes.arrivals
    begins = np.cumsum(lanes.counts) - lanes.counts
    counted_from = begins + np.array([part.counted_from for of_one in parts for part in of_one])
    counted_to = begins + np.array([part.counted_to for of_one in parts for part in of_one])
    # Batches of the requests that count: those whose first request does.
    served_before = np.concatenate(([0], np.cumsum(batches.sizes)))
    from_batch, to_batch = (np.searchsorted(served_before, counted) for counted in (counted_from, counted_to))
    formed, last = to_batch - from_batch, np.maximum(to_batch - 1, from_batch)
    starts, lasted = np.append(batches.starts, 0.0), np.append(batches.ends - batches.starts, 0.0)
    busy = np.add.reduceat(lasted, np.stack((from_batch, to_batch), axis=1).ravel())[::2] * (formed > 0)
    sizes = served_before[to_batch] - served_before[from_batch]
    # From the start of a lane's first batch to that of its last, which is left out: a single server is busy
    # in that time for no longer than it lasts.
    spans, served_then = (each[last] - each[from_batch] for each in (starts, served_before))
    busy_then = busy - lasted[last] * (formed > 0)
    result, row = [], 0
    for scenario, of_one in zip(scenarios, parts, strict=True):
        rows = slice(row, row + len(of_one))
        row += len(of_one)
        counted = zip(counted_from[rows], counted_to[rows], strict=True)
        own = [latencies[start:end] for start, end in counted]
        queue = scenario.queue
        waits = [part.fluid_wait for part in of_one if part.fluid_wait is not None]
        lane_weights = (
            weights(queue, scenario.rate_per_s * queue.unit_s, waits) if waits else np.ones(len(of_one))
        )
        # A lane in which no batch began after its warm-up has too few requests to tell a batch by.
        requests, number = float(lane_weights @ sizes[rows]), float(lane_weights @ formed[rows])
        busy_each = float(lane_weights @ busy[rows]) / requests if requests else 0.0
        seen = (float(lane_weights @ of[rows]) for of in (spans, busy_then, served_then))
        every = np.concatenate(own) * queue.unit_s
        each = np.repeat(lane_weights, [len(one) for one in own])
        total = float(each.sum())
        if waits:
            order = np.argsort(every)
            latencies_s, shares = every[order], np.cumsum(each[order]) / total
        else:
            # Of equal weights the order is of no use, and sorting without it takes a fifth of the time.
            latencies_s, shares = np.sort(every), np.arange(1, len(every) + 1) / total
        result.append(
            Served(
                scenario=scenario,
                latencies_s=latencies_s,
                shares=shares,
                mean_s=float((every * each).sum()) / total,
                mean_batch=requests / number if number else float(queue.max_batch),
                utilisation=_utilisation(scenario, busy_each, *seen),
            )
        )
    return result


def _utilisation(scenario: Scenario, busy_each: float, span: float, busy: float, served: float) -> float:
    """Share of time in which a server is busy, of a queue that is not saturated.

    By the utilisation law it is the rate times the time that a server is busy for a request, over the servers.
    Where larger batches take less for each request, a sample in which by chance fewer came has smaller ones:
    its busy time is then divided by its own length, and what is left is to bring its own rate to the one that
    is asked for. For that the odds of being busy are held to those of servers that take as long for any request
    as for one of a full batch: the ratio does not depend on the rate where requests are alone, nor where each
    takes as long in any batch, and no odds are those of a server that is always busy.

    A server is busy ``busy_each`` for a request. From the first batch of the sample to its last, of one lane or
    of a weighted sum of several, is the ``span``; all servers together are ``busy`` so long with the batches
    that begin in it, which hold the requests ``served``.
    """
    queue = scenario.queue
    rate = scenario.rate_per_s * queue.unit_s
    if scenario.arrivals is not POISSON or not span > 0:
        # A trace's rate is that of its span.
        return min(1.0, busy_each * rate / queue.servers)
    full, full_then = rate / queue.capacity, served / span / queue.capacity
    if full_then > 1 - _NEVER_IDLE:
        # It came as fast as full batches leave, and says nothing of the rate at which they are not full.
        batch = usual_batch(queue, rate)
        time = float(np.interp(batch, np.arange(len(queue.times)), queue.times))
        return min(1.0, rate * time / batch / queue.servers)
    idle_then = max(1 - busy / span / queue.servers, 0.0)
    odds = busy / (served / queue.capacity * queue.servers) * full
    return odds / (odds + idle_then / (1 - full_then) * (1 - full))


def _lanes(queues: Sequence[Queue], parts: Sequence[Sequence[Stream]]) -> Lanes:
    every = [part for of_queue in parts for part in of_queue]
    repeats = [len(of_queue) for of_queue in parts]
    times = np.zeros((len(queues), max(queue.max_batch for queue in queues) + 1))
    for row, queue in enumerate(queues):
        times[row, : queue.max_batch + 1] = queue.times
    free = np.full((len(every), max(queue.servers for queue in queues)), np.inf)
    for row, part in enumerate(every):
        free[row, : len(part.free)] = part.free
    return Lanes(
        arrivals=np.concatenate([part.arrivals for part in every]),
        counts=np.array([len(part.arrivals) for part in every]),
        times=times,
        curve=np.repeat(np.arange(len(queues)), repeats),
        max_batch=np.repeat([queue.max_batch for queue in queues], repeats),
        max_delay=np.repeat([queue.max_delay for queue in queues], repeats),
        free=free,
    )
