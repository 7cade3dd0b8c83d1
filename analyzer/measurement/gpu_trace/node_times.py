"""GPU activity joined to ONNX Runtime's nodes. Pure: two recorded files in, times by node out.

ONNX Runtime's profile brackets the host's part of each node: its calls that launch kernels. CUPTI (through
torch.profiler, whose traces Kineto writes) records those calls with their host time, thread and correlation
id, and each kernel, copy or fill on the GPU with the same id. So a kernel belongs to the node in whose
window its launch fell. Host times of both are the system's clock: ``profiling start + 1000 ts`` nanoseconds
in the profile, ``baseTimeNanoseconds + 1000 ts`` in the trace, give or take a shift that is looked for.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from analyzer.figures import Figure
from analyzer.measurement.gpu_trace.clock_alignment import TICK_US, clock_shift, edges, find
from analyzer.measurement.profile import Execution, ProfileEvent, Run, runs
from analyzer.measurement.request import ExecutedNode, Latency, NodeTime
from analyzer.measurement.statistics import median, spread_around

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
    """The GPU's records with the host call that asked for each, in order of launch; others are left out."""
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
    """The thread that makes most of the calls that GPU records refer to."""
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
    """What one node did in one run, microseconds."""

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
    """Times that add up to the unprofiled, device-resident latency.

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
