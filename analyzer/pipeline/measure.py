"""Running the model where that is possible, and joining what was measured to the graph's operators."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import metadata
from pathlib import Path
from types import MappingProxyType
from typing import Any

from analyzer.devices.calibration import load_calibration
from analyzer.errors import (
    AnalyzerError,
    InputError,
    MemoryEndedError,
    MemoryForeseenError,
    ShapesRefusedError,
)
from analyzer.figures import Figure, total
from analyzer.graph import Graph
from analyzer.loading.loaded import Loaded
from analyzer.loading.python.input_spec import InputSpec, parse_input
from analyzer.loading.python.layers import beyond_table
from analyzer.loading.weights import Runnable, deciding_values, filled_with_text, materialise
from analyzer.measurement.child_process import measure
from analyzer.measurement.cuda_libraries import free_bytes
from analyzer.measurement.machine_load import default_threads
from analyzer.measurement.request import Measurement, MeasureRequest
from analyzer.measurement.tensor_files import load_tensors, save_tensors
from analyzer.memory.fit import peak_memory_bytes
from analyzer.options import Options
from analyzer.ort.execution import Group, Session
from analyzer.ort.fusion import executed_names, groups_from_optimized
from analyzer.pipeline.compared_outputs import agreement_rows, with_one_thread
from analyzer.pipeline.machine import does_not_fit, planned_bytes, smaller_batch
from analyzer.pipeline.target_devices import Targets, measures_here
from analyzer.prediction.estimate import Estimate, limited
from analyzer.progress import Progress
from analyzer.run_folder import run_folder
from analyzer.text import first_few
from analyzer.units import byte_count

# Weights live three times for a while: in PyTorch, in the file's cache and in ONNX Runtime's session.
_WEIGHT_COPIES = 3
# ONNX Runtime keeps what its arena took for the first run, growing in powers of two, beside the block that it
# plans for the others: 2.0 to 2.7 times the plan on a U-Net and ResNet-50 at batches 8 and 64.
_ARENA_SLACK = 2.7
# The same for what is alive at the peak of a training step, weights and states fed to it among it: 1.8 to 2.4
# times on BERT, ViT-B/16, a small convolutional net and ResNet-50 at batches 8 and 16.
_STEP_SLACK = 2.4
# A plain PyTorch call for comparison is made where ONNX Runtime needs less than this: it runs in this process,
# where no time limit holds.
_COMPARE_BELOW_S = 10.0
# What gradients of float32 may be off by float64's, over the largest of the tensor.
_GRADIENT_TOLERANCE = 1e-3


@dataclass(frozen=True, kw_only=True, eq=False)
class Measured:
    """The measurements at one batch; empty parts were not measured.

    Attributes:
        cpu_latency, cuda_latency: One call, host to host.
        cpu_groups, cpu_times: What the CPU session executed, and its times.
        cuda_groups, cuda_times: The same for the CUDA session.
        shapes: Of tensors, as the CPU session had them.
        busy: Whether other processes disturbed the CPU's run.
        facts: For ``environment.measurement``.
        messages: What went wrong, in plain sentences.
        fails: Why nothing could be measured, where a session was tried; else empty.
    """

    cpu_latency: Figure | None = None
    cpu_groups: tuple[Group, ...] = ()
    cpu_times: tuple[Estimate | None, ...] = ()
    cuda_latency: Figure | None = None
    cuda_groups: tuple[Group, ...] = ()
    cuda_times: tuple[Estimate | None, ...] = ()
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    busy: bool = False
    facts: Mapping[str, Any] = field(default_factory=dict)
    messages: tuple[str, ...] = ()
    fails: str = ""

    @property
    def cpu_alone(self) -> Measured:
        """The CPU's part, which holds for any GPU."""
        return replace(self, cuda_latency=None, cuda_groups=(), cuda_times=())

    def with_message(self, message: str, **changes: Any) -> Measured:
        """Return the same with one more message."""
        return replace(self, messages=(*self.messages, message), **changes)


@dataclass(frozen=True, kw_only=True, eq=False)
class _Run:
    """A model at one batch that is run, with its files in a folder."""

    loaded: Loaded
    graph: Graph
    batch: int | None
    options: Options
    folder: Path
    progress: Progress


def measure_batches(
    loaded: Loaded,
    options: Options,
    targets: Targets,
    progress: Progress,
    steps: Mapping[int, Loaded | None] = MappingProxyType({}),
) -> dict[int, Measured]:
    """Measure each requested batch here; by batch, 0 for a model without one.

    ``steps`` is a training step at other batches than its own, None where the user's code forbids one.
    """
    if not measures_here(options, targets) or loaded.empty_inputs:
        return {}
    messages: tuple[str, ...] = ()
    installed = installed_release()
    if options.onnxruntime and minor(installed) != minor(options.onnxruntime):
        # Its CUDA session may place operators elsewhere: those times would contradict the placement.
        release = options.onnxruntime
        on_cpu = (
            f"Operators are placed by the kernels of ONNX Runtime {release}; "
            f"times measured on the CPU are of the installed one, {installed}."
        )
        on_gpu = (
            f"Not measured on CUDA, predicted instead: ONNX Runtime {release} was asked for, "
            f"and {installed} is installed."
        )
        messages = (*[on_cpu] * targets.local_cpu, *[on_gpu] * targets.local_gpu)
        targets = replace(targets, local_gpu=False)
    by_batch = {}
    for batch in options.batches or (loaded.batch,):
        at_batch = steps.get(batch, loaded) if batch is not None else loaded
        if at_batch is None or (batch != at_batch.batch and not (batch and at_batch.supports(batch))):
            continue
        measured = Measured()
        if measures_here(options, targets):
            measured = measure_batch(
                at_batch,
                at_batch.graph(batch),
                batch,
                options,
                cpu=targets.local_cpu,
                cuda=targets.local_gpu,
                progress=progress,
            )
        by_batch[batch or 0] = replace(measured, messages=(*measured.messages, *messages))
    return by_batch


def installed_release() -> str:
    """Version of the ONNX Runtime that a session here runs on; not imported for it."""
    return installed_version("onnxruntime-gpu") or installed_version("onnxruntime") or "unknown"


def installed_version(package: str) -> str | None:
    """Return the version of a distribution; None where it is not installed."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def minor(version: str) -> list[str]:
    """Return the part that two patches of a release have in common."""
    return version.split(".")[:2]


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
    """Run the model at one batch; what fails becomes a message, and the rest goes on.

    Raises:
        MemoryForeseenError: The run would not fit into memory.
        InputError: ONNX Runtime refuses the shapes.
    """
    foresee_memory(graph)
    with run_folder() as folder:
        progress("making weights and inputs", None)
        try:
            runnable = materialise(loaded, batch, folder, as_if_trained=True)
        except MemoryForeseenError:
            raise
        except AnalyzerError as error:
            return Measured(messages=(f"The model was not run: {in_one_text(error)}",))
        save_tensors(folder / "feeds.npz", runnable.feeds, types=runnable.feed_types)
        measured = Measured(messages=(*deciding_values(loaded, graph), *filled_with_text(loaded, graph)))
        run = _Run(loaded=loaded, graph=graph, batch=batch, options=options, folder=folder, progress=progress)
        if cpu:
            measured = _run_session(measured, run, "cpu")
        if cuda:
            measured = _on_cuda(measured, run)
        return _compared(measured, run, runnable)


def in_one_text(error: AnalyzerError) -> str:
    """Return an error's message and hint as one text."""
    hint = error.hint or ""
    if hint.startswith("pip "):  # a command keeps its case
        hint = f"run {hint}"
    return f"{error.message.rstrip('.')}. {hint[:1].upper()}{hint[1:]}".strip()


def foresee_memory(graph: Graph) -> None:
    """Refuse a run that would not fit, before any weight is made."""
    import psutil

    weights = graph.parameter_bytes * _WEIGHT_COPIES
    parts = f"{byte_count(graph.parameter_bytes)} of weights three times over, " if weights else ""
    if graph.is_training_step:
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


def _on_cuda(measured: Measured, run: _Run) -> Measured:
    """Return the CUDA session where the GPU has room for it; else a message names the batch that fits."""
    batch = run.batch or run.loaded.batch
    problem = does_not_fit(run.loaded, run.graph, batch, free_bytes())
    if problem:
        return measured.with_message(f"Not measured on CUDA, predicted instead: {problem}")

    def advice() -> str:  # asked for after the failure: what is free then counts
        return smaller_batch(run.loaded, run.graph, batch, free_bytes())

    return _run_session(measured, run, "cuda", advice)


def _run_session(
    measured: Measured, run: _Run, session: Session, advice: Callable[[], str] | None = None
) -> Measured:
    """One session in a process of its own; ``advice`` says what to do where memory ended.

    Raises:
        InputError: The shapes do not fit each other: times predicted for them would be of a run that cannot be.
    """
    options, folder, progress = run.options, run.folder, run.progress
    request = MeasureRequest(
        model_path=folder / "model.onnx",
        provider=session,
        feeds=folder / "feeds.npz",
        outputs=folder / f"outputs-{session}.npz",
        time_budget_s=options.time_budget_s,
        runs=options.runs,
        threads=options.threads,
        # The budget is for timed runs alone; making the session, warming up and profiling come on top.
        timeout_s=max(300.0, 20 * options.time_budget_s),
        tf32=options.precision != "fp32",  # ONNX Runtime's own default is to round to TF32
        sharing_s=sharing(options.threads or default_threads()),
    )
    where = "the CPU" if session == "cpu" else "CUDA"

    def on_device(stage: str, share: float | None) -> None:
        progress(f"running on {where}: {stage}", share)

    progress(f"running on {where}", 0.0)
    try:
        measurement = measure(request, progress=on_device)
    except MemoryForeseenError:
        raise
    except ShapesRefusedError as error:
        raise InputError(
            f"ONNX Runtime cannot run the model with these inputs: {error.message}",
            hint="Give inputs that fit with --input NAME=SHAPE:DTYPE=LOW..HIGH; --no-run predicts without it.",
        ) from error
    except AnalyzerError as error:
        if advice is not None and isinstance(error, MemoryEndedError):
            error = MemoryEndedError(error.message, hint=advice())
        fails = "" if measured.cpu_latency is not None else in_one_text(error)
        message = f"Not measured on {where}, predicted instead: {in_one_text(error)}"
        return measured.with_message(message, fails=fails)
    return _joined(measured, run.graph, measurement, session)


def sharing(threads: int) -> tuple[float, float] | None:
    """Return how this machine's cores share work, from its calibration."""
    calibration = load_calibration() or {}
    shared, alone = calibration.get(f"sharing.t{threads}"), calibration.get("sharing.t1")
    return None if shared is None or alone is None else (shared, alone)


def _joined(measured: Measured, graph: Graph, measurement: Measurement, session: Session) -> Measured:
    groups: tuple[Group, ...] = ()
    times: tuple[Estimate | None, ...] = ()
    # Without the session's own optimized graph nothing tells which operators an executed node stands for; the
    # latency holds all the same.
    if measurement.nodes and measurement.optimized is not None:
        groups = groups_from_optimized(graph, measurement.optimized, session)
        # Of each group its executed nodes together; None where the profile shows none.
        nodes = {node.name: node for node in measurement.nodes}
        times = tuple(
            limited(replace(total(nodes[name].time for name in names), origin="measured"), None)
            if names
            else None
            for names in executed_names(groups, nodes)
        )
    # In a run with copies the state would cross as well, which stays on the device.
    stays = session == "cuda" and bool(graph.carried) and not graph.is_training_step
    latency = measurement.ways.get("resident") if stays else measurement.latency
    facts = {**measured.facts, session: facts_of(measurement)}
    messages = (*measured.messages, *measurement.messages)
    own: dict[str, Any] = {"latency": latency, "groups": groups, "times": times}
    if session == "cpu":
        # Of a node that left an output out no shape is known.
        shapes: dict[str, tuple[int, ...]] = {}
        for node in measurement.optimized.graph.node if measurement.optimized is not None else ():
            result, names = measurement.output_shapes.get(node.name, ()), [name for name in node.output if name]
            if len(result) == len(names) == len(node.output):
                shapes |= {name: tuple(shape) for name, shape in zip(names, result, strict=True)}
        more: dict[str, Any] = {"shapes": shapes, "busy": measurement.busy}
    else:
        more = {"fails": ""}
    more |= {f"{session}_{name}": value for name, value in own.items()}
    return replace(measured, facts=facts, messages=messages, **more)


def facts_of(measurement: Measurement) -> dict[str, Any]:
    """Return a measurement as plain values for the record."""
    latency = measurement.latency
    return {
        "origin": latency.method,
        "median_s": latency.value,
        "p10_s": latency.p10_s,
        "p90_s": latency.p90_s,
        "min_s": latency.min_s,
        "runs": latency.runs,
        "warmup_runs": latency.warmup_runs,
        "ways": {name: way.value for name, way in measurement.ways.items()},
        "nodes": len(measurement.nodes),
        "scale_factor": measurement.factor,
        # No time is negative: that the nodes exceed the run, by what the profiler costs, is in the factor.
        "residual_s": None if measurement.residual_s is None else max(0.0, measurement.residual_s),
        "profiler_bias_s": measurement.bias_s,
        "session_load_s": measurement.load_s,
        "first_run_s": measurement.first_run_s,
        "arena_peak_bytes": measurement.arena_peak_bytes,
        "rss_peak_bytes": measurement.rss_peak_bytes,
        "device_peak_bytes": measurement.device_peak_bytes,
        "busy": measurement.busy,
        **{str(key): value for key, value in measurement.environment.items()},
    }


def _compared(measured: Measured, run: _Run, runnable: Runnable) -> Measured:
    """Add how well the outputs agree: ONNX Runtime with PyTorch, CUDA with the CPU.

    Where the CPU's session had more threads and differs from PyTorch, one thread is asked too.
    """
    graph, options, folder = run.graph, run.options, run.folder
    # CUDA rounds factors of float32 products to TF32 unless it is kept from that.
    tf32, threads = None if options.precision == "fp32" else "tf32", options.threads or default_threads()
    rows: list[dict[str, Any]] = []
    outputs = {
        session: list(load_tensors(folder / f"outputs-{session}.npz").items())
        for session in ("cpu", "cuda")
        if (folder / f"outputs-{session}.npz").exists()
    }
    latency = measured.cpu_latency or measured.cuda_latency
    if runnable.gradients is not None and outputs and latency and latency.value < _COMPARE_BELOW_S:
        run.progress("comparing gradients with PyTorch", None)
        return _gradients_compared(
            measured, runnable.gradients, dict(outputs["cpu" if "cpu" in outputs else "cuda"])
        )
    if runnable.eager is not None and outputs and latency and latency.value < _COMPARE_BELOW_S:
        run.progress("comparing with PyTorch", None)
        # The CPU's outputs where there are any: CUDA's may differ by TF32's rounding alone.
        session, rounding = ("cpu", None) if "cpu" in outputs else ("cuda", tf32)
        try:
            expected = runnable.eager()
        except Exception as error:  # the user's code; the comparison is an extra
            specs = (*run.loaded.specs, *map(parse_input, run.loaded.guessed))
            measured = measured.with_message(not_compared(error, graph, specs))
        else:
            between = "PyTorch and ONNX Runtime"
            rows += agreement_rows(between, expected, outputs[session], session=session, precision=rounding)
            rows = with_one_thread(rows, expected, graph, folder, threads) if session == "cpu" else rows
    if len(outputs) > 1:
        on_cpu = [value for _, value in outputs["cpu"]]
        rows += agreement_rows("CPU and CUDA", on_cpu, outputs["cuda"], session="cuda", precision=tf32)
    return replace(measured, facts={**measured.facts, "agreement": rows}) if rows else measured


def not_compared(error: Exception, graph: Graph, specs: Sequence[InputSpec]) -> str:
    """Return why the outputs were not compared, and which inputs' values are likely at fault."""
    message = str(error).strip()
    what = f"PyTorch could not run the model for comparison, so its outputs were never checked: {message}"
    table = beyond_table(error)
    if not table and "index out of range" not in message:
        return what
    # A difference of two values of a range (the width of a box) may be no row though each of them is.
    ranged = [spec for spec in specs if spec.values is not None and spec.values[0] != spec.values[1]]
    whole = {tensor.name: tensor for tensor in graph.inputs if not tensor.dtype.is_float}
    names = [spec.name for spec in ranged if "float" not in spec.dtype] or list(whole)
    examples = [replace(spec, values=(0, 0)).text for spec in ranged if spec.name in names]
    options = " ".join(f"--input {text}" for text in examples[:3])
    line = f", for example 0, which every table has ({options})" if examples else ""
    likely = f" The values of {first_few(names)} are likely at fault; give others{line}." if names else ""
    return f"{what}.{f' {table}' if table else ''}{likely}"


def _gradients_compared(
    measured: Measured, reference: Callable[[], Mapping[str, Any]], outputs: Mapping[str, Any]
) -> Measured:
    """Add how far loss and gradients are from PyTorch's in float64: the loss, then the worst gradient."""
    from analyzer.loading.training.load_step import relative_errors

    try:
        expected = reference()
    except Exception as error:  # the user's code; the comparison is an extra
        return measured.with_message(f"PyTorch could not run the step in float64 for comparison: {error}")
    errors = relative_errors(expected, outputs)
    # A model has hundreds of gradients: the record holds the worst one by name.
    worst = max((row for row in errors if row[0] != "loss"), key=lambda row: row[2], default=None)
    shown = [row for row in errors if row[0] == "loss"] + ([worst] if worst else [])
    rows = [
        {
            "between": "PyTorch in float64 and ONNX Runtime",
            "output": name if name == "loss" else f"{name} (the worst of {len(errors) - 1} gradients)",
            "max_abs_error": absolute,
            "max_rel_error": relative,
            "agrees": relative < _GRADIENT_TOLERANCE,
        }
        for name, absolute, relative in shown
    ]
    return replace(measured, facts={**measured.facts, "agreement": rows})
