"""Arrivals: Poisson processes and traces.

A lane that began empty would spend its first part filling up: at 95 % of what the servers can take, thousands
of requests. The fluid server, which takes single requests as fast as full batches would leave, is solved
exactly (M/D/1), and a lane begins with a backlog drawn from that solution. What requests wait for the fluid
server in a lane is then known beside what they wait on average: a lane which by chance had more traffic counts
for less (``weights``).
"""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TypeAlias

import numpy as np

from analyzer.arrays import Floats
from analyzer.errors import UsageError
from analyzer.serving.continuous import Conversations
from analyzer.serving.queue import Queue


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Stream:
    """Requests before one queue; times in the queue's unit.

    Attributes:
        arrivals: Rising from 0 or later, ``[requests]``.
        counted_from, counted_to: The first request that counts, and the first behind those that do: the ones
            that come later fill the batches of the others, and nobody comes to fill their own.
        free: When each server is free for the first time, ``[servers]``.
        fluid_wait: What each request that counts waits for the fluid server of ``poisson``; None where that
            is not solved, or not wanted.
    """

    arrivals: Floats
    counted_from: int
    counted_to: int
    free: Floats
    fluid_wait: Floats | None = None


# Rounds of all servers after which a lane has forgotten how its first batches were cut, and of a queue near its
# capacity, where a batch that came out large makes the next one large: it grows as one over what is free.
_WARM_UP_ROUNDS = 5
_MOST_WARM_UP_ROUNDS = 100
# Fewer say nothing of how a lane's traffic and its latencies go together.
_LEAST_LANES = 8
# As much faster than full batches others may be.
_EFFICIENT = 1.05
# Below this load hardly a request waits for the fluid server.
_LEAST_LOAD = 0.3


def usual_batch(queue: Queue, rate: float) -> float:
    """About as many requests as a batch has: those that come while a server is busy, or the oldest waits."""
    most, least = float(queue.max_batch), max(1.0, 1 + rate * queue.max_delay)
    before, batch = 0.0, min(most, least)
    # A fixed point, from below.
    while batch - before > 0.01 * batch:
        before = batch
        batch = min(most, max(least, rate * float(queue.times[math.ceil(batch)]) / queue.servers))
    return batch


def warm_up(queue: Queue, rate: float) -> int:
    """Return the requests that a lane leaves out before it counts."""
    free = max(1 - rate / queue.capacity, 0.0)
    rounds = min(_WARM_UP_ROUNDS + 1 / max(free, 1e-9), _MOST_WARM_UP_ROUNDS)
    batch = usual_batch(queue, rate)
    # Single requests are served as by the fluid server, from whose backlog a lane begins.
    return math.ceil((_WARM_UP_ROUNDS if batch < 2 else rounds) * queue.servers * batch)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Draws:
    """Random draws of a lane, whatever its rate: two rates see the same traffic, one faster.

    Attributes:
        arrivals: At one request a unit of time, ``[requests]``.
        since: How much of a server's turn has gone by at the beginning, from 0 to 1.
        idle: Which of the servers are idle then, as far as some are.
        rests, many: Of what is before the fluid server: parts of services, and how many of them.
    """

    arrivals: Floats
    since: float
    idle: float
    rests: Floats
    many: float

    def work(self, load: float) -> float:
        """Services that M/D/1 has before it: a geometric number of uniform rests (Pollaczek, Khinchine)."""
        number = min(int(math.log(1 - self.many) / math.log(load)), len(self.rests))
        return float(self.rests[:number].sum())


# At 0.995 of the capacity the geometric number of rests is larger once in 10^9 times.
_MOST_RESTS = 4096


@lru_cache(maxsize=256)
def _draws(seed: int, lane: int, power: int) -> _Draws:
    """With ``2**power`` requests; kept, as every rate of a search asks for the same."""
    rng = np.random.default_rng((seed, lane))
    since, idle, many = rng.random(3)
    rests = rng.random(_MOST_RESTS)
    return _Draws(
        arrivals=np.cumsum(rng.exponential(size=2**power)), since=since, idle=idle, rests=rests, many=many
    )


def streams(
    queue: Queue, rate: float, lanes: int, requests: int, left_out: int, seed: int
) -> tuple[Stream, ...]:
    """Return lanes in each of which so many requests count, behind those that are left out.

    ``rate`` is in requests a unit of time, that of the queue's times, below its capacity. Lanes of equal seed
    and number see the same traffic at every rate, faster or slower.
    """
    batch = usual_batch(queue, rate)
    service = float(queue.times[math.ceil(batch)])
    turns = np.arange(queue.servers)
    share_busy = min(1.0, rate * service / (batch * queue.servers))
    counted_to = left_out + requests
    # Requests that come within the delay, or fill a batch: the last that counts must not wait for none.
    expected = rate * queue.max_delay
    to_fill = math.ceil(expected + 6 * math.sqrt(expected)) if queue.max_delay else 0
    number = counted_to + min(queue.max_batch - 1, to_fill)
    # Where smaller batches are served faster than full ones, the fluid server is slower than the queue.
    sizes = np.arange(1, queue.max_batch + 1)
    is_fluid = bool((sizes / queue.times[1:]).max() <= _EFFICIENT * queue.max_batch / queue.times[-1])
    weighted = is_fluid and lanes >= _LEAST_LANES and rate >= _LEAST_LOAD * queue.capacity
    drawn = [_draws(seed, lane, math.ceil(math.log2(number))) for lane in range(lanes)]
    later = np.stack([one.arrivals[:number] for one in drawn]) / rate
    backlogs = [one.work(rate / queue.capacity) if is_fluid else 0.0 for one in drawn]
    fluid_waits: Sequence[Floats | None] = [None] * lanes
    if weighted:
        # What the fluid server has before it when a request comes: Lindley's recursion in one sweep.
        between = 1 / queue.capacity
        served = np.arange(number) * between
        ahead = np.maximum.accumulate(later - served, axis=1)
        ahead = np.maximum(ahead, np.array(backlogs)[:, None] * between)
        fluid_waits = list((ahead + served - later)[:, left_out:counted_to])
    result = []
    for one, arrivals, backlog, fluid_wait in zip(drawn, later, backlogs, fluid_waits, strict=True):
        # Servers take turns: `since` of a turn has gone by. Those who came meanwhile, but for the first, wait.
        busy = turns < share_busy * queue.servers - one.idle
        waiting = int(backlog + (one.since * (batch - 1) if busy.all() else 0.0))
        result.append(
            Stream(
                arrivals=np.concatenate((np.zeros(waiting), arrivals)) if waiting else arrivals,
                counted_from=waiting + left_out,
                counted_to=waiting + counted_to,
                free=np.where(busy, (turns + 1 - one.since) / queue.servers * service, 0.0),
                fluid_wait=fluid_wait,
            )
        )
    return tuple(result)


def weights(queue: Queue, rate: float, waits: Sequence[Floats]) -> Floats:
    """Return each lane's weight, near one: it makes the fluid server's load the expected one.

    ``waits`` are those of each lane's requests for that server. It is the regression estimator of surveys
    written as weights, so that percentiles profit as means do.
    """
    load, service = rate / queue.capacity, 1 / queue.capacity
    mean = load * service / (2 * (1 - load))
    # Waits of M/G/1 with a constant service on average, and their squares (Kleinrock, Queueing Systems 1, 5.7).
    expected = np.array([mean, 2 * mean**2 + load * service**2 / (3 * (1 - load))])
    scaled = np.array([[wait.mean(), np.square(wait).mean()] for wait in waits]) / expected
    centred = scaled - scaled.mean(axis=0)
    # Seldom do waits and their squares differ in what they tell: the pseudo-inverse leaves out what is noise.
    slope = np.linalg.pinv(centred.T @ centred / len(scaled), rcond=1e-3) @ (1 - scaled.mean(axis=0))
    # Below zero a lane would count backwards.
    return np.asarray(np.maximum(1 + centred @ slope, 0.0), dtype=np.float64)


# A trace's bursts are seldom: so many times as many of its requests are looked at as of Poisson arrivals.
_OF_A_TRACE = 4


@dataclass(frozen=True, slots=True)
class Poisson:
    """Requests that know nothing of each other."""

    def streams(
        self, queue: Queue, rate_per_s: float, lanes: int, requests: int, left_out: int, seed: int
    ) -> tuple[Stream, ...]:
        """Return lanes of a queue that has been open for long."""
        return streams(queue, rate_per_s * queue.unit_s, lanes, requests, left_out, seed)


POISSON = Poisson()
# Either makes the requests of one queue: so many lanes, in each of which ``requests`` should count and
# ``left_out`` come before, at a rate below the queue's capacity, in the queue's unit of time.
Arrivals: TypeAlias = "Poisson | Trace"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Trace:
    """Requests as they were recorded, faster or slower as a whole, and dealt out to instances.

    Attributes:
        arrivals_s: Seconds since the start, rising, ``[requests]``.
        whole_rate_per_s: The mean rate of all requests together. An instance at a lower rate gets its share of
            them, drawn at random: its bursts then last as long as theirs.
    """

    arrivals_s: Floats
    whole_rate_per_s: float

    def streams(
        self, queue: Queue, rate_per_s: float, lanes: int, requests: int, left_out: int, seed: int
    ) -> tuple[Stream, ...]:
        """Every lane is another instance's share of the trace, or of a part where the whole is too much."""
        share = min(1.0, rate_per_s / self.whole_rate_per_s)
        scale = mean_rate_per_s(self.arrivals_s) / max(self.whole_rate_per_s, rate_per_s) / queue.unit_s
        wanted = _OF_A_TRACE * requests
        if lanes * wanted < share * len(self.arrivals_s):
            parts = self._parts(share, lanes, left_out, wanted, seed)
        else:
            left_out = 0  # a trace begins where it begins
            parts = self._shares(
                share, lanes, math.ceil(requests * lanes / (share * len(self.arrivals_s))), seed
            )
        result = []
        for part in parts:
            arrivals = part * scale
            # Whose batch would have been filled after the trace's end, nothing tells.
            known = int(arrivals.searchsorted(arrivals[-1] - queue.max_delay, side="right"))
            counted_from = min(left_out, len(arrivals) - 1)
            result.append(
                Stream(
                    arrivals=arrivals,
                    counted_from=counted_from,
                    counted_to=max(known, counted_from + 1),
                    free=np.zeros(queue.servers),
                )
            )
        return tuple(result)

    def _shares(self, share: float, lanes: int, enough: int, seed: int) -> Iterator[Floats]:
        """Yield requests of as many instances as are enough; all of them together have every request once."""
        instance = np.random.default_rng(seed).random(len(self.arrivals_s)) / share
        for lane in range(min(lanes, enough, int(1 / share))):
            own = self.arrivals_s[(lane <= instance) & (instance < lane + 1)]
            # An instance to which nobody comes has the first request alone: there is always one to tell of.
            yield (own if len(own) else self.arrivals_s[:1]) - self.arrivals_s[0]

    def _parts(self, share: float, lanes: int, left_out: int, wanted: int, seed: int) -> Iterator[Floats]:
        """One instance's requests in parts of the trace that lie evenly in it."""
        number = left_out + wanted
        beyond = max(0, len(self.arrivals_s) - math.ceil(number / share))
        for lane in range(lanes):
            start = int(beyond * (lane + 0.5) / lanes)
            # So far apart are requests of which each is this instance's with the same probability.
            places = start - 1 + np.cumsum(np.random.default_rng((seed, lane)).geometric(share, number))
            own = self.arrivals_s[places[places < len(self.arrivals_s)]]
            yield own - own[0]


def mean_rate_per_s(arrivals_s: Floats) -> float:
    """Return the requests per second of a trace, whose first and last come at different times."""
    return (len(arrivals_s) - 1) / float(arrivals_s[-1] - arrivals_s[0])


# Of a stranger's file: 100 MB of times are more than a day of a large service.
_MOST_REQUESTS = 10_000_000


def read_trace(path: Path, *, where: str = "--arrivals") -> Floats:
    """Seconds of each request since the start, from the first column of a CSV file; a header line is allowed.

    Raises:
        UsageError: No such file, fewer than two requests, what is no number, or times that fall.
    """
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            times: list[float] = []
            for number, row in _rows(file):
                time_s = _number(row[0])
                if time_s is None or not 0 <= time_s < math.inf:
                    raise UsageError(
                        f"{where} {path}: line {number} begins with {row[0][:20]!r}, which is no time.",
                        hint="The first column holds seconds since the start, from 0.",
                    )
                times.append(time_s)
                if len(times) > _MOST_REQUESTS:
                    raise UsageError(
                        f"{where} {path}: more than {_MOST_REQUESTS:,} requests.", hint="Give a part of it."
                    )
            arrivals_s = np.array(times)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise UsageError(
            f"{where} {path}: cannot be read ({error}).", hint="A CSV file, or `poisson`."
        ) from error
    if len(arrivals_s) < 2:
        rows = "no request" if not len(arrivals_s) else "one request"
        raise UsageError(
            f"{where} {path}: the trace has {rows}, and no rate follows from that.",
            hint="One row for each request, its seconds since the start in the first column.",
        )
    falling = np.flatnonzero(np.diff(arrivals_s) < 0)
    if len(falling):
        first = int(falling[0])
        raise UsageError(
            f"{where} {path}: request {first + 2}, at {arrivals_s[first + 1]:g} s, is before the one above it.",
            hint="Sort the rows by their first column.",
        )
    if arrivals_s[-1] == arrivals_s[0]:
        raise UsageError(
            f"{where} {path}: all requests come at the same time, and no rate follows from that.",
            hint="The first column holds seconds since the start.",
        )
    return arrivals_s


def _rows(file: Iterable[str]) -> Iterator[tuple[int, list[str]]]:
    """Yield rows with something in them, each with its line; a header that comes first is left out."""
    is_first = True
    for number, row in enumerate(csv.reader(file), 1):
        if not any(cell.strip() for cell in row):
            continue
        if not is_first or _number(row[0]) is not None:
            yield number, row
        is_first = False


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def read_conversations(path: Path, *, where: str = "--arrivals") -> tuple[float, Conversations]:
    """Return trace's mean rate and the tokens of each prompt and each answer from its second and third column.

    Raises:
        UsageError: As for ``read_trace``, or a row without both numbers of tokens.
    """
    arrivals_s = read_trace(path, where=where)
    lengths: list[tuple[int, int]] = []
    with path.open(encoding="utf-8-sig", newline="") as file:
        for number, row in _rows(file):
            tokens = [text.strip() for text in row[1:3]]
            if len(tokens) < 2 or not all(re.fullmatch(r"[0-9]{1,9}", text) for text in tokens):
                raise UsageError(
                    f"{where} {path}: line {number} has no numbers of tokens behind its time.",
                    hint="A model that generates needs seconds, tokens in and tokens out of each request.",
                )
            lengths.append((int(tokens[0]), int(tokens[1])))
    # A request without an answer takes none of the time that is planned for.
    answered = np.array([one for one in lengths if min(one) > 0], dtype=np.int64)
    if not len(answered):
        raise UsageError(f"{where} {path}: no request has tokens in and out.", hint="In columns two and three.")
    return mean_rate_per_s(arrivals_s), Conversations(prompts=answered[:, 0], outputs=answered[:, 1])
