"""The request of a measurement and its reply: plain values, shared by parent and child process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from analyzer.figures import Figure, Origin
from analyzer.ort.execution import Provider

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasureRequest:
    """The request of a measurement.

    Attributes:
        model_path: An ``.onnx`` file in which every node has its own name; weights inside or beside it.
        provider: ``cpu``, or ``cuda`` for a session with [CUDA, CPU].
        feeds: Inputs as written by ``tensor_files.save_tensors`` (a plain ``numpy.savez`` file will do too);
            None lets the child make some from the session's input types.
        outputs: Where to keep what the model returns, for a comparison; None keeps nothing.
        time_budget_s: About how long the runs may take together, loading apart.
        runs: Exact number of timed runs; None adapts it to the budget.
        threads: Intra-op threads; None is one per core, as ONNX Runtime does it.
        timeout_s: After this many seconds without the child's end it is killed.
        profile: Whether to time the operators as well.
        replay: Whether nodes below the profiler's clock are timed alone.
        spinning: Whether worker threads spin between operators (ONNX Runtime's default).
        tf32: Whether CUDA may use TF32 for float32 products (ONNX Runtime's default).
        cuda_graph: Whether to try the CUDA graph as well.
        sharing_s: The best times of ``core_distance`` on this machine: with as many threads, and with one; None
            is not known.
        in_place: By input, the output that is written into its memory: a cache and its next value. All inputs
            and outputs then lie in memory of their own, as a program that generates has them; None copies them
            each time.
        ids: With ``in_place`` on CUDA: inputs that the host sends anew before each run, as it does tokens' ids.
        ids_back: And how many ids, of 8 bytes each, it reads after it.
        needed_bytes: Memory that the run is expected to need; it is not started where there is less.
    """

    model_path: Path
    provider: Provider = "cpu"
    # A file, not arrays: the child is another process.
    feeds: Path | None = None
    outputs: Path | None = None
    time_budget_s: float = 10.0
    runs: int | None = None
    threads: int | None = None
    timeout_s: float = 300.0
    profile: bool = True
    replay: bool = True
    spinning: bool = True
    tf32: bool = True
    cuda_graph: bool = True
    device_id: int = 0
    sharing_s: tuple[float, float] | None = None
    in_place: Mapping[str, str] | None = None
    ids: Sequence[str] = ()
    ids_back: int = 0
    needed_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Latency(Figure):
    """One call of the model, unprofiled: the median of the timed runs, in seconds.

    Attributes:
        low, high: Of the runs (5th to 95th percentile), at least 2 % to each side, wider on a busy machine.
        p10_s, p90_s, min_s: Of the timed runs.
        runs: Timed runs; ``warmup_runs`` came before.
        method: How it was obtained, in a few words.
    """

    origin: Origin = "measured"
    p10_s: float
    p90_s: float
    min_s: float
    runs: int
    warmup_runs: int
    method: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutedNode:
    """A node that a session executed.

    Attributes:
        name: As in ONNX Runtime's profile (the event's name without ``_kernel_time``).
        op_type: Type of the executed node (``FusedConv``).
    """

    name: str
    op_type: str
    provider: Provider

    def timed(self, value: float, low: float, high: float, **facts: Any) -> NodeTime:
        """Return the node's share of a run, in seconds, with further fields of ``NodeTime``."""
        time = Figure(value=value, low=low, high=high, origin="measured")
        return NodeTime(name=self.name, op_type=self.op_type, provider=self.provider, time=time, **facts)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeTime(ExecutedNode):
    """One executed node's share of a run.

    Attributes:
        time: Seconds; all nodes together give the unprofiled latency.
        raw_s: What the profiler showed, before bias and scale.
        kernels: Launches on the GPU, None on the CPU or where not seen.
        gap_s: The part of ``time`` in which the GPU waited for the host; None where not seen.
        method: How it was obtained, in a few words.
    """

    time: Figure
    raw_s: float
    method: str
    kernels: float | None = None
    gap_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """The results of a child process; ``messages`` says which are missing and why.

    Attributes:
        provider: The session that was measured.
        latency: Host to host: inputs and outputs in the host's memory, copies included; of what is run with
            ``in_place``, as it is run there.
        ways: The same by way: ``copies`` (which is ``latency``), ``resident`` (inputs and outputs stay on
            the GPU), ``graph`` (resident, as one CUDA graph).
        nodes: Times by executed node, in execution order; empty where there are none. They add up to the
            latency, on CUDA to the one without copies.
        factor: What unprofiled runs took beside the profiled ones, over what the nodes' times before
            scaling and the cost of a call explain;
            None without nodes.
        residual_s: The same as a difference.
        bias_s: What the profiler adds to each node, taken off.
        load_s: Creating the session.
        first_run_s: The first run, which allocates and (on CUDA) chooses algorithms.
        arena_peak_bytes: Largest use of the arena by the session's provider, weights included.
        rss_peak_bytes: Peak resident memory of the whole child process.
        device_peak_bytes: GPU memory in use at most, less what was in use before; None on the CPU.
        busy: Whether other processes disturbed the measurement.
        environment: Threads, load, other processes' share, versions, provider options.
        messages: For the user, in plain sentences.
        outputs: The ``.npz`` of outputs, None where not asked for or not reached.
        optimized: The graph that ran (``onnx.ModelProto`` without weights); None where it was not saved.
        output_shapes: By executed node, the shapes of its outputs, where they were the same in every run.
    """

    provider: Provider
    latency: Latency
    ways: Mapping[str, Latency] = field(default_factory=dict)
    nodes: tuple[NodeTime, ...] = ()
    factor: float | None = None
    residual_s: float | None = None
    bias_s: float | None = None
    load_s: float | None = None
    first_run_s: float | None = None
    arena_peak_bytes: int | None = None
    rss_peak_bytes: int | None = None
    device_peak_bytes: int | None = None
    busy: bool = False
    environment: Mapping[str, Any] = field(default_factory=dict)
    messages: tuple[str, ...] = ()
    outputs: Path | None = None
    optimized: Any = None
    output_shapes: Mapping[str, Sequence[Sequence[int]]] = field(default_factory=dict)


def to_message(value: object) -> Any:
    """Return a message between parent and child as plain JSON values; paths are texts."""
    return msgspec.to_builtins(value, enc_hook=str)


def from_message(values: Any, kind: type[T]) -> T:
    """Return what ``to_message`` made plain as an instance of its type."""
    return msgspec.convert(values, kind, dec_hook=lambda path, text: path(text))
