"""Running the model where that is possible, and joining what was measured to the graph's operators."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from analyzer.devices.calibration import load_calibration
from analyzer.errors import AnalyzerError, MemoryEndedError, MemoryForeseenError
from analyzer.graph import Graph
from analyzer.loading.loaded import Loaded
from analyzer.loading.weights import Runnable, materialise
from analyzer.measurement.child_process import measure
from analyzer.measurement.gpu_memory import free_bytes
from analyzer.measurement.noise.machine_load import default_threads
from analyzer.measurement.output_agreement import agreement
from analyzer.measurement.request import Measurement, MeasureRequest, NodeTime
from analyzer.measurement.tensor_files import load_tensors, save_tensors
from analyzer.memory.liveness import peak_memory_bytes
from analyzer.ort.execution import Group, Session
from analyzer.ort.fusion import executed_names, groups_from_optimized
from analyzer.pipeline.measurement_memory import does_not_fit, planned_bytes, smaller_batch
from analyzer.pipeline.options import Options
from analyzer.prediction.estimate import Estimate
from analyzer.progress import Progress
from analyzer.units import byte_count

# Weights live three times for a while: in PyTorch, in the file's cache and in ONNX Runtime's session.
_WEIGHT_COPIES = 3
# ONNX Runtime keeps what its arena took for the first run, growing in powers of two, beside the block that it
# plans for the others: 2.0 to 2.7 times the plan on a U-Net and ResNet-50 at batches 8 and 64.
_ARENA_SLACK = 2.7
# The same for what is alive at the peak of a training step, weights and states fed to it among it: 1.8 to 2.4
# times on BERT, ViT-B/16, a small convolutional net and ResNet-50 at batches 8 and 16.
_STEP_SLACK = 2.4
# A plain PyTorch call for comparison is made where ONNX Runtime needs less than this.
_COMPARE_BELOW_S = 10.0

# What gradients of float32 may be off by float64's, over the largest of the tensor.
_GRADIENT_TOLERANCE = 1e-3


@dataclass(frozen=True, kw_only=True, eq=False)
class Measured:
    """What was measured at one batch; empty parts were not.

    Attributes:
        cpu_latency, cuda_latency: One call, host to host.
        cpu_groups, cpu_times: What the CPU session executed, and its times.
        cuda_groups, cuda_times: The same for the CUDA session.
        facts: For ``environment.measurement``.
        messages: What went wrong, in plain sentences.
        warmup_runs, runs, threads, load_before, load_after: Of the CPU's measurement.
    """

    cpu_latency: Estimate | None = None
    cpu_groups: tuple[Group, ...] = ()
    cpu_times: tuple[Estimate | None, ...] = ()
    cuda_latency: Estimate | None = None
    cuda_groups: tuple[Group, ...] = ()
    cuda_times: tuple[Estimate | None, ...] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)
    messages: tuple[str, ...] = ()

    @property
    def cpu_alone(self) -> Measured:
        """What holds beside any GPU."""
        return replace(self, cuda_latency=None, cuda_groups=(), cuda_times=())


def measure_batch(
    loaded: Loaded,
    graph: Graph,
    batch: int | None,
    options: Options,
    *,
    cpu: bool,
    cuda: bool,
    progress: Progress,
) -> Measured:
    """Runs the model at one batch; what fails becomes a message, and the rest goes on.

    Raises:
        MemoryForeseenError: The run would not fit into memory.
    """
    foresee_memory(graph)
    with tempfile.TemporaryDirectory(prefix="analyzer-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        progress("making weights and inputs", None)
        try:
            runnable = materialise(loaded, batch, folder)
        except MemoryForeseenError:
            raise
        except AnalyzerError as error:
            return Measured(messages=(f"The model was not run: {said(error)}",))
        save_tensors(folder / "feeds.npz", runnable.feeds, types=runnable.feed_types)
        measured = Measured()
        if cpu:
            measured = _one_side(measured, graph, options, folder, "cpu", progress)
        if cuda:
            measured = _on_cuda(measured, loaded, graph, batch, options, folder, progress)
        return _compared(measured, runnable, folder, progress, exact=options.precision == "fp32")


def said(error: AnalyzerError) -> str:
    """An error's message and hint as one text."""
    hint = error.hint or ""
    return f"{error.message.rstrip('.')}. {hint[:1].upper()}{hint[1:]}".strip()


def foresee_memory(graph: Graph) -> None:
    """Refuses a run that would not fit, before any weight is made.

    Raises:
        MemoryForeseenError: With the estimate.
    """
    import psutil

    weights = graph.parameter_bytes * _WEIGHT_COPIES
    parts = f"{byte_count(graph.parameter_bytes)} of weights three times over, " if weights else ""
    if graph.carried:
        # A step's own plan is not modelled: what is alive at its peak instead.
        alive, slack = peak_memory_bytes(graph) or 0, _STEP_SLACK
        parts += f"{byte_count(alive)} of weights, states, gradients and activations"
    else:
        alive, slack = planned_bytes(graph, "cpu") or 0, _ARENA_SLACK
        parts += f"{byte_count(alive)} of activations"
    needed, available = weights + int(alive * slack), psutil.virtual_memory().available
    if needed > available:
        raise MemoryForeseenError(
            f"Running the model would need about {byte_count(needed)} of memory ({parts}, for which ONNX "
            f"Runtime takes up to {slack} times as much); {byte_count(available)} are free.",
            hint="Use --no-run to count and predict without weights, or a smaller --batch.",
        )


def _on_cuda(
    measured: Measured,
    loaded: Loaded,
    graph: Graph,
    batch: int | None,
    options: Options,
    folder: Path,
    progress: Progress,
) -> Measured:
    """The CUDA session, where the GPU has room for it; where it has not, the batch that would fit is named."""
    batch = batch or loaded.batch
    problem = does_not_fit(loaded, graph, batch, free_bytes())
    if problem:
        message = f"Not measured on CUDA, predicted instead: {problem}"
        return replace(measured, messages=(*measured.messages, message))

    def smaller() -> str:
        return smaller_batch(loaded, graph, batch, free_bytes())

    return _one_side(measured, graph, options, folder, "cuda", progress, smaller=smaller)


def _one_side(
    measured: Measured,
    graph: Graph,
    options: Options,
    folder: Path,
    session: Session,
    progress: Progress,
    *,
    smaller: Callable[[], str] | None = None,
) -> Measured:
    """One session; ``smaller`` says what to do where memory ended."""
    request = MeasureRequest(
        model_path=folder / "model.onnx",
        provider=session,
        feeds=folder / "feeds.npz",
        outputs=folder / f"outputs-{session}.npz",
        time_budget_s=options.time_budget_s,
        runs=options.runs,
        threads=options.threads,
        timeout_s=max(300.0, 20 * options.time_budget_s),
        tf32=options.precision != "fp32",
        sharing_s=_sharing(options.threads or default_threads()),
    )
    where = "the CPU" if session == "cpu" else "CUDA"

    def tell(stage: str, share: float | None) -> None:
        progress(f"running on {where}: {stage}", share)

    progress(f"running on {where}", 0.0)
    try:
        found = measure(request, progress=tell)
    except MemoryForeseenError:
        raise
    except AnalyzerError as error:
        if smaller is not None and isinstance(error, MemoryEndedError):
            error = MemoryEndedError(error.message, hint=smaller())
        message = f"Not measured on {where}, predicted instead: {said(error)}"
        return replace(measured, messages=(*measured.messages, message))
    return _joined(measured, graph, found, session)


def _sharing(threads: int) -> tuple[float, float] | None:
    """What is known of this machine's cores from its calibration."""
    known = load_calibration() or {}
    shared, alone = known.get(f"sharing.t{threads}"), known.get("sharing.t1")
    return None if shared is None or alone is None else (shared, alone)


def _joined(measured: Measured, graph: Graph, found: Measurement, session: Session) -> Measured:
    groups: tuple[Group, ...] = ()
    times: tuple[Estimate | None, ...] = ()
    if found.nodes and found.optimized is not None:
        groups = groups_from_optimized(graph, found.optimized, session)
        times = group_times(groups, found)
    latency = Estimate(
        time_s=found.latency.median_s,
        low_s=found.latency.low_s,
        high_s=found.latency.high_s,
        origin="measured",
        method=found.latency.origin,
    )
    facts = {**measured.facts, session: facts_of(found)}
    messages = (*measured.messages, *found.messages)
    if session == "cpu":
        return replace(
            measured, cpu_latency=latency, cpu_groups=groups, cpu_times=times, facts=facts, messages=messages
        )
    return replace(
        measured, cuda_latency=latency, cuda_groups=groups, cuda_times=times, facts=facts, messages=messages
    )


def group_times(groups: Sequence[Group], found: Measurement) -> tuple[Estimate | None, ...]:
    """The measured time of each group, its executed nodes together; None where the profile shows none."""
    nodes = {node.name: node for node in found.nodes}
    return tuple(
        _summed([nodes[name] for name in names]) if names else None for names in executed_names(groups, nodes)
    )


def _summed(nodes: Sequence[NodeTime]) -> Estimate:
    return Estimate(
        time_s=sum(node.time_s for node in nodes),
        low_s=sum(node.low_s for node in nodes),
        high_s=sum(node.high_s for node in nodes),
        origin="measured",
        method=nodes[0].origin,
    )


def facts_of(found: Measurement) -> dict[str, Any]:
    """A measurement as plain values for the record."""
    latency = found.latency
    return {
        "origin": found.origin,
        "median_s": latency.median_s,
        "p10_s": latency.p10_s,
        "p90_s": latency.p90_s,
        "min_s": latency.min_s,
        "runs": latency.runs,
        "warmup_runs": latency.warmup_runs,
        "ways": {name: way.median_s for name, way in found.ways.items()},
        "nodes": len(found.nodes),
        "scale_factor": found.factor,
        "residual_s": found.residual_s,
        "profiler_bias_s": found.bias_s,
        "session_load_s": found.load_s,
        "first_run_s": found.first_run_s,
        "arena_peak_bytes": found.arena_peak_bytes,
        "rss_peak_bytes": found.rss_peak_bytes,
        "device_peak_bytes": found.device_peak_bytes,
        "busy": found.busy,
        **{str(key): value for key, value in found.environment.items()},
    }


def _compared(
    measured: Measured, runnable: Runnable, folder: Path, progress: Progress, *, exact: bool
) -> Measured:
    """Adds how well the outputs agree: ONNX Runtime with PyTorch, CUDA with the CPU.

    ``exact`` says that CUDA was kept from rounding the factors of float32 products to TF32.
    """
    rows: list[dict[str, Any]] = []
    outputs = {
        side: list(load_tensors(folder / f"outputs-{side}.npz").items())
        for side in ("cpu", "cuda")
        if (folder / f"outputs-{side}.npz").exists()
    }
    latency = measured.cpu_latency or measured.cuda_latency
    if runnable.gradients is not None and outputs and latency and latency.time_s < _COMPARE_BELOW_S:
        progress("comparing gradients with PyTorch", None)
        return _gradients_compared(
            measured, runnable.gradients, dict(outputs["cpu" if "cpu" in outputs else "cuda"])
        )
    if runnable.eager is not None and outputs and latency and latency.time_s < _COMPARE_BELOW_S:
        progress("comparing with PyTorch", None)
        side, rounding = ("cpu", None) if "cpu" in outputs else ("cuda", None if exact else "tf32")
        try:
            expected = runnable.eager()
        except Exception as error:  # the user's code; the comparison is an extra
            problem = f"PyTorch could not run the model for comparison: {error}"
            measured = replace(measured, messages=(*measured.messages, problem))
        else:
            rows += _rows("PyTorch and ONNX Runtime", expected, outputs[side], precision=rounding)
    if len(outputs) > 1:
        on_cpu = [value for _, value in outputs["cpu"]]
        rows += _rows("CPU and CUDA", on_cpu, outputs["cuda"], precision=None if exact else "tf32")
    return replace(measured, facts={**measured.facts, "agreement": rows}) if rows else measured


def _gradients_compared(
    measured: Measured, reference: Callable[[], Mapping[str, Any]], found: Mapping[str, Any]
) -> Measured:
    """Adds how far loss and gradients are from PyTorch's in float64: the loss, then the worst gradient."""
    from analyzer.loading.training.runnable_step import relative_errors

    try:
        expected = reference()
    except Exception as error:  # the user's code; the comparison is an extra
        problem = f"PyTorch could not run the step in float64 for comparison: {error}"
        return replace(measured, messages=(*measured.messages, problem))
    errors = relative_errors(expected, found)
    worst = max((row for row in errors if row[0] != "loss"), key=lambda row: row[2], default=None)
    chosen = [row for row in errors if row[0] == "loss"] + ([worst] if worst else [])
    rows = [
        {
            "between": "PyTorch in float64 and ONNX Runtime",
            "output": name if name == "loss" else f"{name} (the worst of {len(errors) - 1} gradients)",
            "max_abs_error": absolute,
            "max_rel_error": relative,
            "agrees": relative < _GRADIENT_TOLERANCE,
        }
        for name, absolute, relative in chosen
    ]
    return replace(measured, facts={**measured.facts, "agreement": rows})


def _rows(
    between: str, expected: Sequence[Any], found: Sequence[tuple[str, Any]], *, precision: str | None = None
) -> list[dict[str, Any]]:
    if len(expected) != len(found):
        return []
    pairs = {name: value for (name, _), value in zip(found, expected, strict=True)}
    rows = []
    for item in agreement(pairs, dict(found), precision=precision).outputs:
        rows.append(
            {
                "between": between,
                "output": item.name,
                "max_abs_error": item.max_absolute,
                "max_rel_error": item.max_relative,
                "agrees": item.agrees,
            }
        )
    return rows
