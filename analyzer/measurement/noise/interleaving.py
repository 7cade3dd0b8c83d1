"""Runs with and without the profiler, in turns.

The speed of a shared machine changes within seconds, and runs before such a change cannot be compared with runs
after it. Both kinds therefore take turns: the operators' times describe the same moments as the latency.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from analyzer.measurement.noise.core_migration import APART_RATIO, CoreDistance, Reading
from analyzer.measurement.noise.timing_loops import Budget, TimedCall, is_enough, settle, timed_runs
from analyzer.measurement.statistics import median

# The speed of the machine is not known from fewer turns: the quieter half of four is two.
LEAST_TURNS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """What is run in one turn: profiled runs, then others within a budget."""

    profiled_runs: int
    plain: Budget


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnResult:
    """What one turn gave.

    Attributes:
        samples: Seconds of the unprofiled runs.
        profiled: Numbers of the profiled calls that count, the first call of the session being 0.
        readings: Of the distance between cores, before and after.
    """

    samples: tuple[float, ...]
    profiled: range = range(0)
    readings: tuple[Reading, ...] = ()


def turns_for(
    run_s: float, profiled_runs: int, seconds: float, *, runs: int | None, most: int
) -> tuple[Turn, ...]:
    """Turns that share the work evenly, ``most`` of them; ``profiled_runs`` and ``seconds`` are of all.

    ``runs`` is an exact number of unprofiled runs; None adapts to the seconds.
    """
    # A turn holds a run of each kind at least, or the kinds would not describe the same moments.
    plain = runs if runs is not None else int(seconds / max(run_s, 1e-9))
    number = max(1, min(most, profiled_runs, plain))
    return tuple(
        Turn(
            profiled_runs=_share(profiled_runs, number, turn),
            plain=Budget(
                seconds=seconds / number,
                runs=None if runs is None else _share(runs, number, turn),
                least_seconds=seconds / number,
            ),
        )
        for turn in range(number)
    )


def _share(total: int, turns: int, turn: int) -> int:
    # Differences of a rounded running total: the parts add up exactly.
    return total * (turn + 1) // turns - total * turn // turns


def alternate(
    plain: TimedCall | None,
    profiled: TimedCall,
    turns: tuple[Turn, ...],
    *,
    run_s: float,
    already: int,
    tick: Callable[[float], None],
    distance: CoreDistance,
) -> tuple[TurnResult, ...]:
    """Run both in turns, until the latency is known well or the turns are over.

    Without a ``plain`` call the profiled ones run alone; ``already`` were made before. The cores' distance is
    read before and after each turn.
    """
    taken: list[TurnResult] = []
    count = already
    latest = distance.read()
    for number, turn in enumerate(turns, 1):
        before = distance.awaited(latest)
        count += settle(profiled, run_s) if plain is not None else 0
        for _ in range(turn.profiled_runs):
            profiled()
        counted = range(count, count + turn.profiled_runs)
        count = counted.stop
        samples: list[float] = []
        if plain is not None:
            settle(plain, run_s)
            samples = timed_runs(plain, turn.plain)
        latest = distance.read()
        taken.append(TurnResult(samples=tuple(samples), profiled=counted, readings=(before, latest)))
        tick(number / len(turns))
        # An exact number of runs was asked for: all of them are made.
        if turn.plain.runs is None and _is_known(taken, distance):
            break
    return tuple(taken)


def _is_known(taken: Sequence[TurnResult], distance: CoreDistance) -> bool:
    """Whether enough turns, taken while the cores were close, agree on the latency."""
    counted = [one for one in taken if distance.ratio(*one.readings) <= APART_RATIO]
    return len(counted) >= LEAST_TURNS and is_enough([sample for one in counted for sample in one.samples])


def quieter_half(turns: Sequence[Sequence[float]], among: Collection[int] | None = None) -> frozenset[int]:
    """Numbers of the turns whose medians are the lower half (of an odd number the middle one is in it).

    What disturbs a machine makes runs slower, never faster, and lasts longer than a run. Only turns ``among``
    those count, None counts all.
    """
    order = sorted(
        (median(one), number) for number, one in enumerate(turns) if one and (among is None or number in among)
    )
    return frozenset(number for _, number in order[: (len(order) + 1) // 2])
