"""Bringing the clock of the GPU's records and that of ONNX Runtime's profile together. Pure.

Both are the system's clock, give or take what each converts it from. What must come out right: launches fall
into windows of nodes that run on the GPU, views launch nothing and the others something, each the same in
every run.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Sequence

from analyzer.measurement.profile import Execution, Run
from analyzer.measurement.statistics import median
from analyzer.ort.execution import launches as usual_launches

# The profile's times are whole microseconds, rounded down.
TICK_US = 1.0
# How far the two clocks may be apart, and how finely that is searched, in microseconds.
_MOST_SHIFT_US, _COARSE_US, _FINE_US = 2000.0, 4.0, 0.5
_WELL_MATCHED = 0.98
# Where windows lie side by side, a launch beside its own window is still in one: the neighbour's.
_NEAR_US = 20.0
# By so many nodes in a run must another shift do better.
_BETTER = 0.75
_MOST_RUNS, _MOST_LAUNCHES = 20, 2000


def clock_shift(launches: Sequence[float], calls: Sequence[Run]) -> float:
    """Microseconds to add to the trace's host times so that launches fall into the right nodes' windows.

    None is looked for where almost all fall into some window already. The neighbourhood is then searched for
    one at which more nodes launch what they should. Of equally good shifts the nearest is taken.
    """
    windows = [node for call in calls for node in call.nodes if node.provider == "cuda"]
    if not launches or not windows:
        return 0.0
    starts, ends = edges(windows)
    # Every n-th launch: the search looks at a thousand shifts.
    sample = launches[:: max(1, len(launches) // _MOST_LAUNCHES)]

    def inside(shift: float) -> float:
        return sum(find(starts, ends, launch + shift) is not None for launch in sample) / len(sample)

    shift = 0.0
    if inside(0.0) < _WELL_MATCHED:
        # Launches before the first window or after the last belong to runs that were not profiled.
        coarse = _best(inside, 0.0, _MOST_SHIFT_US, _COARSE_US)
        fine = _best(inside, coarse, _COARSE_US, _FINE_US)
        shift = fine if inside(fine) > inside(0.0) else 0.0
    return _agreed(launches, calls, shift, inside)


def _agreed(
    launches: Sequence[float], calls: Sequence[Run], shift: float, inside: Callable[[float], float]
) -> float:
    """A shift nearby at which more nodes launch what they should, the same where none is clearly better."""
    seen = [call for call in calls if _during(launches, call, shift)][-_MOST_RUNS:]
    if len(seen) < 2:
        return shift

    in_a_run = len(launches) / len(calls)

    def score(moved: float) -> float:
        return inside(moved) * in_a_run + _right(launches, seen, moved)

    better = _best(score, shift, _NEAR_US, _FINE_US)
    return better if score(better) > score(shift) + _BETTER else shift


def _right(launches: Sequence[float], calls: Sequence[Run], shift: float) -> float:
    """Nodes of a run that launch as often as they mostly do, and those that launch where their type does."""
    counts: dict[str, list[int]] = {}
    expected = 0
    for call in calls:
        nodes = [node for node in call.nodes if node.provider == "cuda"]
        starts, ends = edges(nodes)
        owners = Counter(find(starts, ends, launch + shift) for launch in _during(launches, call, shift))
        for position, node in enumerate(sorted(nodes, key=lambda node: node.start_us)):
            counts.setdefault(node.name, []).append(owners[position])
            expected += (owners[position] > 0) == (usual_launches(node.op_type) > 0)
    usual = sum(Counter(seen).most_common(1)[0][1] for seen in counts.values())
    return (usual + expected) / len(calls)


def _during(launches: Sequence[float], call: Run, shift: float) -> Sequence[float]:
    """The launches of one call; ``launches`` are in order."""
    first = bisect_right(launches, call.start_us - shift)
    return launches[first : bisect_right(launches, call.end_us + TICK_US - shift)]


def _best(score: Callable[[float], float], middle: float, width: float, step: float) -> float:
    """The middle of the best-scoring stretch around ``middle``."""
    steps = int(width / step)
    shifts = [middle + number * step for number in range(-steps, steps + 1)]
    scores = [score(shift) for shift in shifts]
    most = max(scores)
    best = [shift for shift, value in zip(shifts, scores, strict=True) if value == most]
    nearest = min(best, key=lambda shift: abs(shift - middle))
    stretch = [shift for shift in best if abs(shift - nearest) <= width / 4]
    return median(stretch)


def edges(windows: Sequence[Execution]) -> tuple[list[float], list[float]]:
    """Begins and ends of windows, in order."""
    ordered = sorted(windows, key=lambda node: node.start_us)
    return [float(node.start_us) for node in ordered], [node.end_us + TICK_US for node in ordered]


def find(starts: Sequence[float], ends: Sequence[float], moment: float) -> int | None:
    """Index of the window that holds this moment."""
    index = bisect_right(starts, moment) - 1  # windows do not overlap: a session runs node after node
    return index if index >= 0 and moment <= ends[index] else None
