"""ONNX Runtime's profile: events of one file to times by node and run. Pure, knows the format alone.

The file is a list of Chrome trace events. ``cat`` is ``Session`` (``model_run`` brackets one call) or ``Node``
(``<name>_kernel_time``, one per execution); ``ts`` and ``dur`` are whole microseconds.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from analyzer.figures import Figure
from analyzer.measurement.request import ExecutedNode
from analyzer.measurement.timing_loops import spread_around

ProfileEvent = Mapping[str, Any]

# The only kind of Node event since the fences before and after it were removed.
_SUFFIX = "_kernel_time"
# Operators whose subgraphs' nodes appear as events of their own, inside the operator's window.
_HOLDS_GRAPHS = frozenset({"If", "Loop", "Scan", "SequenceMap"})
_MICRO = 1e-6  # seconds of the profile's unit


@dataclass(frozen=True, slots=True, kw_only=True)
class Execution(ExecutedNode):
    """One execution of one node.

    Attributes:
        start_us, end_us: On the profile's clock, microseconds.
        order: Position in the file.
        inputs: Types and shapes of what it read, weights that were packed beforehand missing.
        outputs: Types and shapes of what it wrote.
    """

    start_us: int
    end_us: int
    order: int = 0
    inputs: tuple[tuple[str, tuple[int, ...]], ...] = ()
    outputs: tuple[tuple[str, tuple[int, ...]], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One call of the model with its nodes in order of execution, subgraphs' nodes counted with their owner."""

    start_us: int
    end_us: int
    nodes: tuple[Execution, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RawTime(ExecutedNode):
    """A node's times over the runs, as the profiler shows them (seconds).

    ``time`` is the mean over the middle half of the runs, from the 5th to the 95th percentile over all.
    """

    time: Figure
    calls: float
    inputs: tuple[tuple[str, tuple[int, ...]], ...] = ()
    outputs: tuple[tuple[str, tuple[int, ...]], ...] = ()


def ended(session: Any) -> list[ProfileEvent]:
    """Return the events of a session that profiled, whose file is removed."""
    path = Path(session.end_profiling())
    events = read(path)
    path.unlink(missing_ok=True)
    return events


def read(path: Path) -> list[ProfileEvent]:
    """Return the events of a file; one that was cut off (the process died) gives what it holds."""
    text = path.read_text(encoding="utf-8", errors="replace").strip()
    try:
        events = json.loads(text)
    except ValueError:
        events = []
        for line in text.splitlines():  # one event a line, as ONNX Runtime writes them
            with suppress(ValueError):
                events.append(json.loads(line.strip().rstrip(",")))
    return [event for event in events if isinstance(event, dict)]


def runs(events: Sequence[ProfileEvent], *, skip: Collection[int] = ()) -> tuple[Run, ...]:
    """Return the calls in order, without those whose numbers (the first is 0) are to be skipped."""
    calls = sorted(
        (event for event in events if event.get("cat") == "Session" and event.get("name") == "model_run"),
        key=lambda event: int(event["ts"]),
    )
    nodes = sorted(_executions(events), key=lambda node: (node.start_us, node.end_us))
    calls_with_nodes = []
    position = 0
    for number, call in enumerate(calls):
        start, end = int(call["ts"]), int(call["ts"]) + int(call["dur"])
        while position < len(nodes) and nodes[position].start_us < start:
            position += 1
        inside = []
        while position < len(nodes) and nodes[position].start_us <= end:
            inside.append(nodes[position])
            position += 1
        if number not in skip and inside:
            owners = [node for node in inside if node.op_type in _HOLDS_GRAPHS]
            outermost = tuple(node for node in inside if not any(_encloses(owner, node) for owner in owners))
            calls_with_nodes.append(Run(start_us=start, end_us=end, nodes=outermost))
    return tuple(calls_with_nodes)


def _executions(events: Sequence[ProfileEvent]) -> list[Execution]:
    executions = []
    for order, event in enumerate(events):
        name = str(event.get("name", ""))
        if event.get("cat") != "Node" or not name.endswith(_SUFFIX):
            continue
        args = event.get("args", {})
        executions.append(
            Execution(
                name=name.removesuffix(_SUFFIX),
                op_type=str(args.get("op_name", "")),
                provider="cuda" if args.get("provider") == "CUDAExecutionProvider" else "cpu",
                start_us=int(event["ts"]),
                end_us=int(event["ts"]) + int(event["dur"]),
                order=order,
                inputs=_shapes(args.get("input_type_shape")),
                outputs=_shapes(args.get("output_type_shape")),
            )
        )
    return executions


def _shapes(entries: object) -> tuple[tuple[str, tuple[int, ...]], ...]:
    if not isinstance(entries, list):
        return ()
    return tuple(
        (str(kind), tuple(int(size) for size in sizes))
        for entry in entries
        if isinstance(entry, dict)
        for kind, sizes in entry.items()
    )


def _encloses(owner: Execution, node: Execution) -> bool:
    if owner is node or owner.end_us - owner.start_us < node.end_us - node.start_us:
        return False
    within = owner.start_us <= node.start_us and node.end_us <= owner.end_us
    # An event is written when it ends: what is inside comes before its owner, what follows comes after.
    return within and node.order < owner.order


def by_node(calls: Sequence[Run]) -> tuple[RawTime, ...]:
    """Time by node over the runs, in the order of the first run that has it; repeated names add up.

    The middle half of the runs, by the sum of their nodes, is the same for all nodes, so that their times add
    up to such a run's: on a machine with several speeds the middle of each node alone would not.
    """
    samples: dict[str, list[float]] = {}
    typical: dict[str, list[float]] = {}
    first: dict[str, Execution] = {}
    count: Counter[str] = Counter()
    # Runs that are neither among the fastest nor the slowest quarter; below four runs none is left out.
    order = sorted(range(len(calls)), key=[length_us(call) for call in calls].__getitem__)
    middle = frozenset(order[len(order) // 4 : len(order) - len(order) // 4])
    for number, call in enumerate(calls):
        per_run: dict[str, int] = {}
        for node in call.nodes:
            first.setdefault(node.name, node)
            per_run[node.name] = per_run.get(node.name, 0) + node.end_us - node.start_us
            count[node.name] += 1
        for name, duration in per_run.items():
            samples.setdefault(name, []).append(duration * _MICRO)
            if number in middle:
                typical.setdefault(name, []).append(duration * _MICRO)
    return tuple(
        RawTime(
            name=name,
            op_type=(node := first[name]).op_type,
            provider=node.provider,
            time=spread_around(math.fsum(usual := typical.get(name, times)) / len(usual), times),
            calls=count[name] / len(calls),
            inputs=node.inputs,
            outputs=node.outputs,
        )
        for name, times in samples.items()
    )


def length_us(call: Run) -> int:
    """Microseconds of a run's nodes together."""
    return sum(node.end_us - node.start_us for node in call.nodes)


def output_shapes(calls: Sequence[Run]) -> dict[str, tuple[tuple[int, ...], ...]]:
    """By node, the shapes of what it wrote; not of one whose runs or executions differ."""
    seen: dict[str, set[tuple[tuple[int, ...], ...]]] = {}
    for call in calls:
        for node in call.nodes:
            seen.setdefault(node.name, set()).add(tuple(shape for _, shape in node.outputs))
    return {name: next(iter(shapes)) for name, shapes in seen.items() if len(shapes) == 1}


def arena_peak_bytes(events: Sequence[ProfileEvent], provider: str) -> int | None:
    """Largest use of the provider's arena, weights included; None where the profile does not tell."""
    name = {"cpu": "CPUExecutionProvider", "cuda": "CUDAExecutionProvider"}[provider]
    nodes = (event.get("args", {}) for event in events if event.get("cat") == "Node")
    # The arena's counters stand at each node's event, as text.
    peaks = (int(args.get("mem_in_use_peak", 0)) for args in nodes if args.get("provider") == name)
    return max(peaks, default=0) or None
