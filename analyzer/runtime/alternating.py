"""Runs with and without the profiler, in turns.

The speed of a shared machine changes within seconds, and runs before such a change cannot be compared with runs
after it. Both kinds therefore take turns: the operators' times describe the same moments as the latency.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from analyzer.runtime.statistics import median
from analyzer.runtime.timing import Budget, is_enough, timed_runs

Call = Callable[[], object]

# Worker threads of the session that ran before go on spinning for some milliseconds.
SETTLE_S = 0.01
# A run this long hardly notices what the other session left (some 10 ms in its first operators).
_LONG_S = 1.0
# The speed of the machine is not known from fewer turns.
_LEAST_TURNS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """What is run in one turn: profiled runs, then others within a budget."""

    profiled_runs: int
    plain: Budget


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """What one turn gave.

    Attributes:
        samples: Seconds of the unprofiled runs.
        profiled: Numbers of the profiled calls that count, the first call of the session being 0.
    """

    samples: tuple[float, ...]
    profiled: range = range(0)


def turns_for(
    run_s: float, profiled_runs: int, seconds: float, *, runs: int | None, most: int
) -> tuple[Turn, ...]:
    """Turns that share the work evenly.

    Args:
        run_s: Seconds of one run.
        profiled_runs: Of all turns together.
        seconds: For the unprofiled runs of all turns together.
        runs: Exactly so many unprofiled runs; None adapts to the seconds.
        most: Turns at most; fewer where a turn would hold less than a run of each kind.
    """
    plain = runs if runs is not None else int(seconds / max(run_s, 1e-9))
    number = max(1, min(most, profiled_runs, plain))
    return tuple(
        Turn(
            profiled_runs=_part(profiled_runs, number, turn),
            plain=Budget(
                seconds=seconds / number,
                runs=None if runs is None else _part(runs, number, turn),
                least_seconds=seconds / number,
            ),
        )
        for turn in range(number)
    )


def _part(total: int, turns: int, turn: int) -> int:
    return total * (turn + 1) // turns - total * turn // turns


def alternate(
    plain: Call | None,
    profiled: Call,
    turns: tuple[Turn, ...],
    *,
    run_s: float,
    already: int,
    tick: Callable[[float], None],
) -> tuple[Taken, ...]:
    """Run both in turns, until the latency is known well or the turns are over.

    Args:
        plain: A call without the profiler; None runs the profiled ones alone.
        profiled: A call with it.
        turns: What to run.
        run_s: About how long a run takes.
        already: Profiled calls made before.
        tick: Told after each turn how much is done.
    """
    taken: list[Taken] = []
    count = already
    for number, turn in enumerate(turns, 1):
        count += settle(profiled, run_s) if plain is not None else 0
        for _ in range(turn.profiled_runs):
            profiled()
        counted = range(count, count + turn.profiled_runs)
        count = counted.stop
        samples: list[float] = []
        if plain is not None:
            settle(plain, run_s)
            samples = timed_runs(plain, turn.plain)
        taken.append(Taken(samples=tuple(samples), profiled=counted))
        tick(number / len(turns))
        known = [sample for one in taken for sample in one.samples]
        if number >= _LEAST_TURNS and turn.plain.runs is None and is_enough(known):
            break
    return tuple(taken)


def quieter_half(turns: Sequence[Sequence[float]]) -> frozenset[int]:
    """Numbers of the turns whose medians are the lower half (of an odd number the middle one is in it).

    What disturbs a machine makes runs slower, never faster, and lasts longer than a run.
    """
    order = sorted((median(one), number) for number, one in enumerate(turns) if one)
    return frozenset(number for _, number in order[: (len(order) + 1) // 2])


def settle(call: Call, run_s: float, *, clock: Callable[[], float] = time.perf_counter) -> int:
    """Wait until the session that ran before no longer disturbs; returns the calls that this took."""
    if run_s > _LONG_S:
        time.sleep(SETTLE_S)
        return 0
    begin, calls = clock(), 0
    while calls == 0 or clock() - begin < SETTLE_S:
        call()
        calls += 1
    return calls
