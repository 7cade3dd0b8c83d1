"""Join recorded GPU activity to ONNX Runtime's nodes. Pure: two recorded files in, times by node out.

Both are the system's clock, give or take what each converts it from. What must come out right: launches fall
into windows of nodes that run on the GPU, views launch nothing and the others something, each the same in
every run.

ONNX Runtime's profile brackets the host's part of each node: its calls that launch kernels. CUPTI (through
torch.profiler, whose traces Kineto writes) records those calls with their host time, thread and correlation
id, and each kernel, copy or fill on the GPU with the same id. So a kernel belongs to the node in whose
window its launch fell. Host times of both are the system's clock: ``profiling start + 1000 ts`` nanoseconds
in the profile, ``baseTimeNanoseconds + 1000 ts`` in the trace, give or take a shift that is looked for.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from analyzer.figures import Figure
from analyzer.measurement.profile import Execution, ProfileEvent, Run, runs
from analyzer.measurement.request import ExecutedNode, Latency, NodeTime
from analyzer.measurement.timing_loops import median, spread_around
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
    """Return shift nearby at that more nodes launch what they should, the same where none is clearly better."""
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
    """Return the launches of one call; ``launches`` are in order."""
    first = bisect_right(launches, call.start_us - shift)
    return launches[first : bisect_right(launches, call.end_us + TICK_US - shift)]


def _best(score: Callable[[float], float], middle: float, width: float, step: float) -> float:
    """Return the middle of the best-scoring stretch around ``middle``."""
    steps = int(width / step)
    shifts = [middle + number * step for number in range(-steps, steps + 1)]
    scores = [score(shift) for shift in shifts]
    most = max(scores)
    best = [shift for shift, value in zip(shifts, scores, strict=True) if value == most]
    nearest = min(best, key=lambda shift: abs(shift - middle))
    stretch = [shift for shift in best if abs(shift - nearest) <= width / 4]
    return median(stretch)


def edges(windows: Sequence[Execution]) -> tuple[list[float], list[float]]:
    """Return begins and ends of windows, in order."""
    ordered = sorted(windows, key=lambda node: node.start_us)
    return [float(node.start_us) for node in ordered], [node.end_us + TICK_US for node in ordered]


def find(starts: Sequence[float], ends: Sequence[float], moment: float) -> int | None:
    """Index of the window that holds this moment."""
    index = bisect_right(starts, moment) - 1  # windows do not overlap: a session runs node after node
    return index if index >= 0 and moment <= ends[index] else None


# Categories of Kineto's Chrome trace (libkineto's ActivityType): what the host called, what the GPU did.
_HOST = frozenset({"cuda_runtime", "cuda_driver"})
_DEVICE = frozenset({"kernel", "gpu_memcpy", "gpu_memset"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Activity:
    """Something the GPU did, and when the host asked for it; microseconds on the profile's clock.

    ``kind`` is ``kernel``, ``gpu_memcpy`` or ``gpu_memset``.
    """

    name: str
    kind: str
    launched_us: float
    start_us: float
    duration_us: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TracedNode(ExecutedNode):
    """A node's part of a run, medians over the runs, in seconds.

    Attributes:
        kernels: Kernels and fills launched in one run.
        kernel_names: Which, in the order of the first run.
        device_s: The GPU's time in them.
        copy_s: The GPU's time in copies that this node asked for.
        gap_s: Idle time of the GPU before this node's work; for a node on the CPU, the idle time it caused.
        busy: Kernels and copies together, with the 5th and 95th percentile.
    """

    kernels: float
    kernel_names: tuple[str, ...]
    device_s: float
    copy_s: float
    gap_s: float
    busy: Figure


@dataclass(frozen=True, slots=True, kw_only=True)
class Traced:
    """All nodes of a run.

    Attributes:
        nodes: In execution order.
        runs: How many runs were joined.
        tail_s: From the end of the GPU's last work to the end of the call.
        matched: Share of the GPU's records that belong to a node.
        lost: Share of the GPU's time in records whose host call was not recorded; they belong to no node.
        shift_us: By how much the clocks were apart.
    """

    nodes: tuple[TracedNode, ...]
    runs: int
    tail_s: float
    matched: float
    lost: float
    shift_us: float

    @property
    def busy_s(self) -> float:
        """The GPU's time in one run."""
        return sum(node.busy.value for node in self.nodes)


def join(
    trace: Mapping[str, Any], profile: Sequence[ProfileEvent], *, start_ns: int, skip: int = 0
) -> Traced | None:
    """Join a Kineto trace, as ``torch.profiler`` exports it, to a profile of the same runs.

    ``start_ns`` is ``session.get_profiling_start_time_ns()``; the first ``skip`` runs are left out.

    Returns:
        None where no run has a record of the GPU: CUPTI was not there, or the trace is of something else.
    """
    activities = device_activities(trace, start_ns)
    # Both clocks are the system's, but each is converted from another counter.
    calls = runs(profile, skip=range(skip))
    shift = clock_shift([activity.launched_us for activity in activities], calls)
    per_run = [_joined(call, activities, shift) for call in calls]
    seen = [result for result in per_run if result is not None]
    if not seen:
        return None
    total = sum(result.records for result in seen)
    events = trace.get("traceEvents", ())
    whole = sum(float(event.get("dur", 0.0)) for event in events if event.get("cat") in _DEVICE)
    return Traced(
        # In the order of the first run that has the node: branches may differ between runs.
        nodes=tuple(
            _median_of([result.parts[name] for result in seen if name in result.parts])
            for name in dict.fromkeys(name for result in seen for name in result.parts)
        ),
        runs=len(seen),
        tail_s=median([result.tail_us for result in seen]) * 1e-6,
        matched=sum(result.matched for result in seen) / total if total else 0.0,
        lost=max(0.0, 1 - sum(activity.duration_us for activity in activities) / whole) if whole else 0.0,
        shift_us=shift,
    )


def device_activities(trace: Mapping[str, Any], start_ns: int) -> list[Activity]:
    """Return GPU's records with the host call that asked for each, in order of launch; others are left out."""
    base = int(trace.get("baseTimeNanoseconds", 0) or 0)
    events = [event for event in trace.get("traceEvents", ()) if event.get("ph") == "X"]
    # Other threads of the process may use the GPU as well (torch); a session launches from one.
    thread = _launching_thread(events)
    launches: dict[int, float] = {}
    for event in events:
        correlation = event.get("args", {}).get("correlation")
        if event.get("cat") in _HOST and correlation is not None and event.get("tid") == thread:
            launches.setdefault(int(correlation), _on_profile_clock(event, base, start_ns))
    activities = []
    for event in events:
        correlation = event.get("args", {}).get("correlation")
        if event.get("cat") in _DEVICE and correlation is not None and int(correlation) in launches:
            activities.append(
                Activity(
                    name=str(event.get("name", "")),
                    kind=str(event["cat"]),
                    launched_us=launches[int(correlation)],
                    start_us=_on_profile_clock(event, base, start_ns),
                    duration_us=float(event.get("dur", 0.0)),
                )
            )
    return sorted(activities, key=lambda activity: (activity.launched_us, activity.start_us))


def _on_profile_clock(event: ProfileEvent, base_ns: int, start_ns: int) -> float:
    # The two large numbers are subtracted as integers: a float would lose 100 nanoseconds and more.
    return float(event["ts"]) + (base_ns - start_ns) / 1000.0


def _launching_thread(events: Iterable[ProfileEvent]) -> object:
    """Return the thread that makes most of the calls that GPU records refer to."""
    wanted = {
        event["args"]["correlation"]
        for event in events
        if event.get("cat") in _DEVICE and "correlation" in event.get("args", {})
    }
    counts = Counter(
        event.get("tid")
        for event in events
        if event.get("cat") in _HOST and event.get("args", {}).get("correlation") in wanted
    )
    return counts.most_common(1)[0][0] if counts else None


@dataclass(slots=True)
class _Part:
    """One node's part of one run, microseconds."""

    node: Execution
    kernels: list[str]
    device_us: float = 0.0
    copy_us: float = 0.0
    gap_us: float = 0.0


@dataclass(frozen=True, slots=True)
class _Result:
    parts: Mapping[str, _Part]
    tail_us: float
    records: int
    matched: int


def _joined(call: Run, activities: Sequence[Activity], shift: float) -> _Result | None:
    """One run: its records, given to nodes; None where the GPU left no record."""
    # A launch belongs to a run by its host time: the kernel itself may start later than the next launch.
    begin, end = call.start_us - shift, call.end_us + TICK_US - shift
    launched = [activity for activity in activities if begin <= activity.launched_us <= end]
    if not launched:
        return None
    ordered = sorted(call.nodes, key=lambda node: node.start_us)
    starts, ends = edges(ordered)
    owners = [find(starts, ends, activity.launched_us + shift) for activity in launched]
    parts = {node.name: _Part(node, []) for node in ordered}
    for activity, owner in zip(launched, owners, strict=True):
        if owner is not None:
            part = parts[ordered[owner].name]
            if activity.kind == "gpu_memcpy":
                part.copy_us += activity.duration_us
            else:
                part.kernels.append(activity.name)
                part.device_us += activity.duration_us
    _gaps(launched, owners, ordered, parts, begin)
    last = max(activity.start_us + activity.duration_us for activity in launched)
    return _Result(
        parts, max(0.0, end - TICK_US - last), len(launched), sum(owner is not None for owner in owners)
    )


def _gaps(
    launched: Sequence[Activity],
    owners: Sequence[int | None],
    ordered: Sequence[Execution],
    parts: Mapping[str, _Part],
    begin: float,
) -> None:
    """Give the GPU's idle time to the node whose work ends it, nodes on the CPU before it first."""
    free_at = begin
    position = 0
    for activity, owner in sorted(zip(launched, owners, strict=True), key=lambda pair: pair[0].start_us):
        # Streams may overlap: the GPU is idle only where none of them works.
        gap = max(0.0, activity.start_us - free_at)
        free_at = max(free_at, activity.start_us + activity.duration_us)
        if owner is None:
            continue
        # A node on the CPU between two on the GPU makes the GPU wait: the gap is its doing, as far as it lasts.
        waiting = [node for node in ordered[position:owner] if node.provider == "cpu"]
        position = max(position, owner + 1)
        spent = sum(node.end_us - node.start_us for node in waiting)
        share = min(1.0, gap / spent) if spent else 0.0
        for node in waiting:
            parts[node.name].gap_us += share * (node.end_us - node.start_us)
        parts[ordered[owner].name].gap_us += gap - share * spent


def _median_of(parts: Sequence[_Part]) -> TracedNode:
    first = next((part for part in parts if part.kernels), parts[0])
    device, copied = (median([getattr(part, name) for part in parts]) for name in ("device_us", "copy_us"))
    busy = spread_around(device + copied, [part.device_us + part.copy_us for part in parts])
    return TracedNode(
        name=first.node.name,
        op_type=first.node.op_type,
        provider=first.node.provider,
        kernels=median([float(len(part.kernels)) for part in parts]),
        kernel_names=tuple(first.kernels),
        device_s=device * 1e-6,
        copy_s=copied * 1e-6,
        gap_s=median([part.gap_us for part in parts]) * 1e-6,
        busy=busy.scaled(1e-6),
    )


def node_times(traced: Traced, latency: Latency) -> tuple[tuple[NodeTime, ...], float]:
    """Time that add up to the unprofiled, device-resident latency.

    The GPU's own times are true under profiling, the gaps between are not: profiling slows the host. So what
    the latency has beyond the GPU's work is shared out by the gaps that were seen. Where the GPU's work alone
    is longer than the latency, it is scaled.

    Returns:
        The nodes, and the latency over what the trace shows.
    """
    wall, busy = latency.value, traced.busy_s
    gaps = sum(node.gap_s for node in traced.nodes)
    shrink = min(1.0, wall / busy) if busy > 0 else 1.0
    idle = max(0.0, wall - busy)
    spread = latency.low / wall, latency.high / wall
    times = tuple(
        _node_time(node, shrink, idle * (node.gap_s / gaps if gaps > 0 else 1 / len(traced.nodes)), spread)
        for node in traced.nodes
    )
    return times, wall / (busy + gaps + traced.tail_s)


def _node_time(node: TracedNode, shrink: float, gap: float, spread: tuple[float, float]) -> NodeTime:
    busy = node.busy.scaled(shrink)
    time_s = busy.value + gap
    # How idle time is shared out is known to a factor of two at best.
    return node.timed(
        time_s,
        min(busy.low + gap * 0.5, time_s * spread[0]),
        max(busy.high + gap * 1.5, time_s * spread[1]),
        raw_s=node.busy.value,
        method="kernels recorded by CUPTI, idle time of the GPU shared out"
        if node.provider == "cuda"
        else "idle time of the GPU that this node on the CPU caused",
        kernels=node.kernels,
        gap_s=gap,
    )
