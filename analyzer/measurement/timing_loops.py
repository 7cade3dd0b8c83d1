"""Timing loops and robust summaries: warm-up until steady, then the runs that are needed or fit."""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from analyzer.figures import Figure
from analyzer.measurement.request import Latency

# Medians of a quiet machine come back within this share a few minutes later.
LEAST_HALF_WIDTH = 0.02
# One run tells nothing of the others: a tenth either way is assumed, shared by as many runs as there are.
_SINGLE_HALF_WIDTH = 0.1
# Where the cores shared no cache, nine models took 0.78 (a convolution that writes 100 MB) to 1.5 times as
# long, nine turns of ten within 4 % of that: 1 / 0.78 at most on cores that do.
_MOST_GAIN = 1.3


def quantile(values: Sequence[float], share: float) -> float:
    """Return the quantile, linear between neighbours.

    Raises:
        ValueError: No values.
    """
    if not values:
        raise ValueError("no values")
    ordered = sorted(values)
    position = share * (len(ordered) - 1)  # as numpy.quantile, which need not be loaded for it
    below = math.floor(position)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (position - below)


def median(values: Sequence[float]) -> float:
    """Return the middle value."""
    return quantile(values, 0.5)


def spread_around(middle: float, samples: Sequence[float]) -> Figure:
    """Return a middle of samples, in their unit, with their 5th and 95th percentile around it."""
    low, high = quantile(samples, 0.05), quantile(samples, 0.95)
    return Figure(value=middle, low=min(low, middle), high=max(high, middle), origin="measured")


def summarize(
    samples: Sequence[float],
    *,
    warmup_runs: int,
    method: str,
    contention: float = 0.0,
    threads: int = 1,
    sharing: float = 1.0,
    undisturbed: Sequence[float] = (),
) -> Latency:
    """Return a latency from timed runs: the median of the ``undisturbed``, else of all, in the interval of all.

    Two things widen the interval. ``contention`` is the share of the needed cores that other processes took; of
    several ``threads`` what one of them lost, all lost. ``sharing`` is how many times worse than at best the
    threads shared their work throughout (``core_distance``): the runs may be too long by as much, or too short.
    """
    middle = median(undisturbed or samples)
    least = max(LEAST_HALF_WIDTH, _SINGLE_HALF_WIDTH / len(samples))
    low = min(quantile(samples, 0.05), middle * (1 - least))
    high = max(quantile(samples, 0.95), middle * (1 + least))
    return Latency(
        value=middle,
        p10_s=quantile(samples, 0.1),
        p90_s=quantile(samples, 0.9),
        min_s=min(samples),
        # Models on two threads with one to two cores taken took 2.0 to 2.7 times as long as on the quiet
        # machine (defectnet 282 ms instead of 141, LayoutLM 360 instead of 137, ModernBERT 412 instead of 164).
        low=low / (1 + contention) ** (2 if threads > 1 else 1) / sharing,
        high=high * (1 + contention) * min(sharing, _MOST_GAIN),
        runs=len(samples),
        warmup_runs=warmup_runs,
        method=method,
    )


def is_steady(samples: Sequence[float]) -> bool:
    """Return whether the last three runs are no faster than those before them, so that warm-up is over."""
    return len(samples) >= 6 and median(samples[-3:]) >= median(samples[-6:-3]) * 0.95


Clock = Callable[[], float]
TimedCall = Callable[[], object]

LEAST_RUNS = 5
MOST_RUNS = 20_000
# Enough is enough once the median is known to half a percent, but not from one lucky moment.
_ENOUGH_ERROR = 0.005
_ENOUGH_RUNS = 50
# Runs that bring a session's memory back into the caches.
_SETTLE_S = 0.01
# A run this long hardly notices what the other session left (some 10 ms in its first operators).
_LONG_S = 1.0
# A system counts processor time in ticks of up to 15.6 ms.
_REST_S, _MOST_REST_S = 0.016, 0.25


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """The budget of a loop.

    Attributes:
        seconds: About so long.
        runs: Exactly so many; None adapts.
        least_seconds: Not shorter than this, so that a lucky moment does not pass for the truth.
    """

    seconds: float
    runs: int | None = None
    least_seconds: float = 0.0


def time_call(call: TimedCall, clock: Clock = time.perf_counter) -> float:
    """Return seconds of one call."""
    start = clock()
    call()
    return clock() - start


def warm_up(call: TimedCall, budget: Budget, *, clock: Clock = time.perf_counter) -> list[float]:
    """Call until they get no faster; at least 3, or 2 where a single one exceeds the budget.

    The second is no steady one either: ONNX Runtime knows from the first what its buffers need, and takes them
    as one block of new memory. (A U-Net at batch 64: 24.8 s, 25.5 s, then 14.2 s.)

    Returns:
        Seconds by call; the first is what a cold start costs.
    """
    begin = clock()
    samples = [time_call(call, clock)]
    while not is_steady(samples):
        # The cold start is one call, the second is no steady one: only a third would be.
        if clock() - begin > budget.seconds and len(samples) >= (2 if samples[0] > budget.seconds else 3):
            break
        samples.append(time_call(call, clock))
    return samples


def settle(call: TimedCall, run_s: float) -> int:
    """Wait until the session that ran before no longer disturbs; returns the calls that this took."""
    rest()
    if run_s > _LONG_S:
        return 0
    begin, calls = time.perf_counter(), 0
    while calls == 0 or time.perf_counter() - begin < _SETTLE_S:
        call()
        calls += 1
    return calls


def rest() -> None:
    """Wait until no thread of this process computes.

    Worker threads of an idle session spin before they sleep, 33 ms on a core of their own and 55 ms beside
    another session: with two cores the first 30 runs of a model of 1.3 ms took 1.9 (ONNX Runtime 1.31).
    """
    used = time.process_time()
    for _ in range(round(_MOST_REST_S / _REST_S)):
        time.sleep(_REST_S)
        now = time.process_time()
        if now - used < 0.1 * _REST_S:
            return
        used = now


def timed_runs(
    call: TimedCall,
    budget: Budget,
    *,
    clock: Clock = time.perf_counter,
    tick: Callable[[float], None] | None = None,
) -> list[float]:
    """Seconds by call, garbage collection held off; ``tick`` hears ten times a second how much is used."""
    # Python's collector stops the caller for milliseconds, at moments that have nothing to do with the model.
    samples: list[float] = []
    with _no_garbage_collection():
        begin = last_tick = clock()
        while not _done(samples, budget, clock() - begin):
            samples.append(time_call(call, clock))
            now = clock()
            if tick is not None and now - last_tick > 0.1:
                last_tick = now
                used = (now - begin) / max(budget.seconds, 1e-9)
                tick(min(1.0, used if budget.runs is None else len(samples) / max(budget.runs, 1)))
    return samples


def _done(samples: Sequence[float], budget: Budget, elapsed: float) -> bool:
    count = len(samples)
    if budget.runs is not None:
        return count >= budget.runs
    if count >= MOST_RUNS and elapsed >= budget.least_seconds:
        return True
    if elapsed >= budget.seconds:
        return count >= min(LEAST_RUNS, max(1, round(4 * budget.seconds / max(elapsed / max(count, 1), 1e-9))))
    # Looking at every sample each time would cost more than the call itself.
    worth_looking = count & (count - 1) == 0
    return worth_looking and elapsed >= budget.least_seconds and is_enough(samples)


def is_enough(samples: Sequence[float]) -> bool:
    """Return whether the median is known to half a percent."""
    return len(samples) >= _ENOUGH_RUNS and relative_error(samples) < _ENOUGH_ERROR


def relative_error(samples: Sequence[float]) -> float:
    """Return the relative standard error of the median, from the quartiles (normal approximation)."""
    # 1.2533 = sqrt(pi/2) for the median; 1.349 quartile distance of a unit normal.
    spread = (quantile(samples, 0.75) - quantile(samples, 0.25)) / 1.349
    return 1.2533 * spread / math.sqrt(len(samples)) / max(median(samples), 1e-12)


@contextmanager
def _no_garbage_collection() -> Iterator[None]:
    was_on = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
