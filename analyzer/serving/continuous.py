"""A model that generates, under traffic: continuous batching with a cache that holds so many tokens.

A server goes step by step. Where a request waits, a slot is free and the cache has room for its prompt and all
of its output, its prompt is read next, alone, and gives its first token; all others wait meanwhile. Else one
step makes the next token of every running request. That is what an engine does which reads prompts first and
whole; one that mixes them into steps in chunks has shorter stalls and later first tokens.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from analyzer.arrays import Floats, Ints
from analyzer.errors import UsageError
from analyzer.figures import QueueLoad
from analyzer.serving.queue import PERCENTILES, by_percentile

_NEVER = np.iinfo(np.int64).max


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationServer:
    """A server's times of steps, and its room.

    Attributes:
        prefill: Tokens of a prompt and seconds until its first token, by rising tokens; lines between, and
            beyond the ends as the two nearest have it.
        decode: Batch, seconds of a step with empty caches, and seconds more for each token that each sequence
            has cached, by rising batch; lines between.
        cache_tokens: Tokens of all sequences together that the cache holds.
        max_batch: Sequences at once, at most the last batch of ``decode``.
    """

    prefill: tuple[tuple[int, float], ...]
    decode: tuple[tuple[int, float, float], ...]
    cache_tokens: int
    max_batch: int
    max_delay_s: ClassVar[float] = 0.0

    def __post_init__(self) -> None:
        """Check what cannot be."""
        if not self.prefill or not self.decode:
            raise UsageError("A server that generates needs times of prefill and of decode.")
        if not 1 <= self.max_batch <= self.decode[-1][0]:
            raise UsageError(
                f"A batch of {self.max_batch} is none: decode is known from 1 to {self.decode[-1][0]}.",
                hint="Give a smaller max_batch, or times of that batch.",
            )

    def prefill_s(self, tokens: Floats) -> Floats:
        """Return seconds until the first token, for prompts of so many tokens."""
        known, seconds = (np.array(column, dtype=np.float64) for column in zip(*self.prefill, strict=True))
        if len(known) == 1:
            return np.asarray(tokens * (seconds[0] / known[0]))
        at = np.clip(np.searchsorted(known, tokens) - 1, 0, len(known) - 2)
        slope = (seconds[at + 1] - seconds[at]) / (known[at + 1] - known[at])
        # Beyond the first point the line may fall below what any prompt takes.
        line = seconds[at] + slope * (tokens - known[at])
        return np.asarray(np.maximum(line, 0.1 * seconds.min()))

    def decode_table(self) -> Floats:
        """Return seconds of a step and seconds a cached token, by batch, ``[2, max_batch + 1]``."""
        batches, fixed, each = zip(*self.decode, strict=True)
        at = np.arange(self.max_batch + 1)
        return np.stack([np.interp(at, batches, fixed), np.interp(at, batches, each)])


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Conversations:
    """The requests: tokens of each prompt and of each answer, ``[requests]``."""

    prompts: Ints
    outputs: Ints

    def __post_init__(self) -> None:
        """Check that there is one, and that every one gives a token."""
        if not len(self.prompts) or len(self.prompts) != len(self.outputs):
            raise UsageError("Every request needs a prompt and an output length.")
        if self.prompts.min() < 1 or self.outputs.min() < 1:
            raise UsageError("A prompt and an output have at least one token.")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class GenerationScenario:
    """A server at a rate, looked at in so many lanes, in each of which so many requests count.

    ``patient`` says whether requests that wait at the highest rates are waited for: a lane begins without any.
    """

    server: GenerationServer
    rate_per_s: float
    conversations: Conversations
    lanes: int
    requests: int
    patient: bool = True


def highest_throughput_per_s(server: GenerationServer, conversations: Conversations) -> float:
    """Return requests per second of a server that never waits for one; 0 where one has no room."""
    prompts, outputs = conversations.prompts.astype(np.float64), conversations.outputs.astype(np.float64)
    longest = int((conversations.prompts + conversations.outputs).max())
    if longest > server.cache_tokens:
        return 0.0
    cached = float((prompts + outputs).mean())
    batch = min(server.max_batch, max(1, int(server.cache_tokens / cached)))
    # A sequence is there for each of its steps: the long ones are there more often.
    context = float(((prompts + outputs / 2) * outputs).sum() / outputs.sum())
    fixed, each = server.decode_table()[:, batch]
    steps = float((outputs - 1).mean()) * (fixed + each * context) / batch
    return float(1 / (float(server.prefill_s(prompts).mean()) + steps))


def simulated_generation(scenarios: Sequence[GenerationScenario], *, seed: int = 0) -> list[QueueLoad]:
    """Many servers at once, which takes little more than one."""
    highest = [highest_throughput_per_s(one.server, one.conversations) for one in scenarios]
    able = [one for one, most in zip(scenarios, highest, strict=True) if one.rate_per_s < most]
    loads = iter(_loads(able, seed) if able else [])
    return [
        replace(next(loads), utilisation=one.rate_per_s / most)
        if one.rate_per_s < most
        else QueueLoad(rate_per_s=one.rate_per_s, saturated=True)
        for one, most in zip(scenarios, highest, strict=True)
    ]


# A queue near the highest throughput has forgotten its beginning after so many requests over the square of what
# is free of it; nobody looks closer to the end than this.
_OVER_FREE_SQUARED, _LEAST_FREE = 3, 0.04
# Lanes that are done are dropped once they are this share.
_DONE = 0.1


def _loads(scenarios: Sequence[GenerationScenario], seed: int) -> list[QueueLoad]:
    lanes = [
        _lane(one, (seed, lane), left_out)
        for one, left_out in ((one, _left_out(one)) for one in scenarios)
        for lane in range(one.lanes)
    ]
    requests = _Requests(
        lanes,
        [one.server for one in scenarios],
        np.repeat(np.arange(len(scenarios)), [one.lanes for one in scenarios]),
    )
    first_tokens, last_tokens, mean_batch = _serve(requests)
    result, row = [], 0
    for one in scenarios:
        rows = range(row, row + one.lanes)
        row += one.lanes
        counted = np.concatenate(
            [np.arange(requests.first[at] + lanes[at].left_out, requests.last[at]) for at in rows]
        )
        ttft = first_tokens[counted] - requests.arrivals[counted]
        steps = requests.outputs[counted] - 1
        several = steps > 0
        tpot = (last_tokens[counted] - first_tokens[counted])[several] / steps[several]
        result.append(
            QueueLoad(
                rate_per_s=one.rate_per_s,
                mean_s=float(ttft.mean()),
                **by_percentile(map(float, np.percentile(ttft, PERCENTILES))),
                tpot_p50_s=float(np.percentile(tpot, 50)) if len(tpot) else 0.0,
                tpot_p99_s=float(np.percentile(tpot, 99)) if len(tpot) else 0.0,
                mean_batch=float(mean_batch[rows.start : rows.stop].mean()),
                requests=len(counted),
            )
        )
    return result


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Lane:
    """Requests of one lane; the first ``left_out`` fill it up."""

    arrivals: Floats
    prompts: Ints
    outputs: Ints
    prefill: Floats
    left_out: int


def _left_out(scenario: GenerationScenario) -> int:
    stay = scenario.rate_per_s * _stay_s(scenario)
    if not scenario.patient:
        return math.ceil(stay)
    top = highest_throughput_per_s(scenario.server, scenario.conversations)
    free = max(1 - scenario.rate_per_s / top, _LEAST_FREE)
    return math.ceil(stay + _OVER_FREE_SQUARED / free**2)


def _lane(scenario: GenerationScenario, seed: tuple[int, int], left_out: int) -> _Lane:
    rng = np.random.default_rng(seed)
    conversations, server = scenario.conversations, scenario.server
    number = left_out + scenario.requests
    # First of all that is drawn: two rates then see the same traffic, one faster than the other.
    arrivals = np.cumsum(rng.exponential(size=number)) / scenario.rate_per_s
    which = rng.integers(0, len(conversations.prompts), number)
    prompts, outputs = conversations.prompts[which], conversations.outputs[which]
    # Those that run already: each is the longer there the more it writes, and somewhere in its output.
    # About as many as run at any time.
    room = int(server.cache_tokens / float((conversations.prompts + conversations.outputs).mean()))
    number = min(server.max_batch, room, int(scenario.rate_per_s * _stay_s(scenario)))
    running = rng.choice(
        len(conversations.outputs), number, p=conversations.outputs / conversations.outputs.sum()
    )
    done = (rng.random(number) * conversations.outputs[running]).astype(np.int64)
    return _Lane(
        arrivals=np.concatenate((np.zeros(number), arrivals)),
        prompts=np.concatenate((conversations.prompts[running] + done, prompts)),
        outputs=np.concatenate((conversations.outputs[running] - done, outputs)),
        prefill=np.concatenate((np.zeros(number), server.prefill_s(prompts.astype(np.float64)))),
        left_out=number + left_out,
    )


def _stay_s(scenario: GenerationScenario) -> float:
    """About how long a request is served: as many run as come in that time."""
    server, conversations = scenario.server, scenario.conversations
    table = server.decode_table()
    context, steps = (
        float((conversations.prompts + conversations.outputs / 2).mean()),
        float(conversations.outputs.mean()),
    )
    prefill = float(server.prefill_s(conversations.prompts.astype(np.float64)).mean())
    # Prompts of others stop a step: of the time that is left a step takes its own.
    left = max(1 - scenario.rate_per_s * prefill, 0.05)
    stay = 0.0
    for _ in range(30):
        batch = min(server.max_batch, max(1, math.ceil(scenario.rate_per_s * stay)))
        stay = (prefill + steps * (table[0, batch] + table[1, batch] * context)) / left
    return stay


class _Requests:
    """All lanes' requests, one lane behind the other, and who serves them."""

    def __init__(self, lanes: Sequence[_Lane], servers: Sequence[GenerationServer], server: Ints) -> None:
        counts = np.array([len(lane.arrivals) for lane in lanes])
        self.last = np.cumsum(counts)
        self.first = self.last - counts
        self.arrivals = np.concatenate([lane.arrivals for lane in lanes])
        self.prompts = np.concatenate([lane.prompts for lane in lanes])
        self.outputs = np.concatenate([lane.outputs for lane in lanes])
        self.prefill = np.concatenate([lane.prefill for lane in lanes])
        self.kept = self.prompts + self.outputs
        self.server = server
        self.max_batch = np.array([one.max_batch for one in servers])
        self.cache = np.array([one.cache_tokens for one in servers])
        self.decode = np.zeros((len(servers), 2, int(self.max_batch.max()) + 1))
        for row, one in enumerate(servers):
            self.decode[row, :, : one.max_batch + 1] = one.decode_table()


def _serve(requests: _Requests) -> tuple[Floats, Floats, Floats]:
    """When each request had its first and its last token, and how many ran in each lane on average."""
    number, lanes = len(requests.arrivals), len(requests.first)
    first, last = np.zeros(number), np.zeros(number)
    ran, over = np.zeros(lanes), np.zeros(lanes)
    lane = np.arange(lanes)
    state = _Slots(lanes, int(requests.max_batch.max()))
    head, now = requests.first.copy(), np.zeros(lanes)
    while len(lane):
        end = requests.last[lane]
        some = head < end
        at = np.minimum(head, number - 1)
        arrives = np.where(some, requests.arrivals[at], np.inf)
        idle = state.running == 0
        now = np.where(idle & some, np.maximum(now, arrives), now)
        server = requests.server[lane]
        room = (state.running < requests.max_batch[server]) & (
            state.kept + requests.kept[at] <= requests.cache[server]
        )
        admits = some & room & (arrives <= now)
        rows = np.flatnonzero(admits)
        if len(rows):
            request = at[rows]
            before = now[rows]
            now[rows] += requests.prefill[request]
            first[request] = now[rows]
            ran[lane[rows]] += state.running[rows] * (now[rows] - before)
            alone = requests.outputs[request] == 1
            last[request[alone]] = now[rows[alone]]
            state.admit(rows[~alone], request[~alone], requests)
            head[rows] += 1
        rows = np.flatnonzero(~admits & ~idle)
        if len(rows):
            batch = state.running[rows]
            fixed, each = requests.decode[server[rows], 0, batch], requests.decode[server[rows], 1, batch]
            context = state.context[rows] / batch
            # Steps grow with the cache: so many of them last until the next request comes.
            soon = room[rows] & np.isfinite(arrives[rows])
            away, first_step = np.where(soon, arrives[rows] - now[rows], 0.0), fixed + each * (context - 0.5)
            root = np.sqrt(np.maximum(first_step**2 + 2 * each * away, 0.0))
            until = np.where(soon, 2 * away / (first_step + root), np.inf)
            to_finish = state.next_finish[rows] - state.steps[rows]
            steps = np.minimum(to_finish, np.maximum(1, np.ceil(np.minimum(until, to_finish)))).astype(np.int64)
            took = steps * (fixed + each * context) + each * steps * (steps - 1) / 2
            now[rows] += took
            ran[lane[rows]] += batch * took
            which, request = state.advance(rows, steps, requests)
            last[request] = now[which]
        left = (head < end) | (state.running > 0)
        # Dropping those that are done copies all others.
        if left.sum() <= (1 - _DONE) * len(left) or not left.any():
            over[lane[~left]] = now[~left]
            lane, head, now = lane[left], head[left], now[left]
            state = state.only(left)
    return first, last, ran / over


class _Slots:
    """The sequences that run in each lane.

    A sequence is done at a step of its lane that is known when it is admitted, so that a step touches no slot.
    """

    def __init__(self, lanes: int, slots: int) -> None:
        self.finish = np.full((lanes, slots), _NEVER)
        self.next_finish = np.full(lanes, _NEVER)
        self.owner = np.zeros((lanes, slots), dtype=np.int64)
        self.steps = np.zeros(lanes, dtype=np.int64)
        self.running = np.zeros(lanes, dtype=np.int64)
        self.context = np.zeros(lanes)  # cached tokens of all that run
        self.kept = np.zeros(lanes, dtype=np.int64)  # tokens that the cache keeps room for

    def admit(self, rows: Ints, request: Ints, requests: _Requests) -> None:
        slot = (self.finish[rows] == _NEVER).argmax(axis=1)
        finish = self.steps[rows] + requests.outputs[request] - 1
        self.finish[rows, slot] = finish
        self.next_finish[rows] = np.minimum(self.next_finish[rows], finish)
        self.owner[rows, slot] = request
        self.running[rows] += 1
        self.context[rows] += requests.prompts[request] + 1
        self.kept[rows] += requests.kept[request]

    def advance(self, rows: Ints, steps: Ints, requests: _Requests) -> tuple[Ints, Ints]:
        """Make so many tokens of every sequence; returns the lane and the request of each that is done."""
        self.steps[rows] += steps
        self.context[rows] += steps * self.running[rows]
        rows = rows[self.steps[rows] == self.next_finish[rows]]
        row, slot = np.nonzero(self.finish[rows] == self.steps[rows][:, None])
        done = rows[row]
        request = self.owner[done, slot]
        self.finish[done, slot] = _NEVER
        self.next_finish[rows] = self.finish[rows].min(axis=1)
        np.subtract.at(self.running, done, 1)
        np.subtract.at(self.context, done, requests.kept[request])
        np.subtract.at(self.kept, done, requests.kept[request])
        return done, request

    def only(self, left: np.typing.NDArray[np.bool_]) -> _Slots:
        new = object.__new__(_Slots)
        new.finish, new.next_finish = self.finish[left], self.next_finish[left]
        new.owner, new.steps = self.owner[left], self.steps[left]
        new.running, new.context, new.kept = self.running[left], self.context[left], self.kept[left]
        return new
