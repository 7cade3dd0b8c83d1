"""Measure a model, or run ONNX Runtime's model tools, in a child process: a crash costs that result only."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from analyzer import errors
from analyzer.errors import AnalyzerError, MeasurementError, MemoryForeseenError
from analyzer.measurement import machine_load
from analyzer.measurement.child_messages import OPTIMIZED, RESULTS
from analyzer.measurement.launch_blocking import ENVIRONMENT
from analyzer.measurement.request import Measurement, MeasureRequest, NodeTime, from_message, to_message
from analyzer.process import Child, ChildEndedError
from analyzer.progress import Progress
from analyzer.run_folder import run_folder
from analyzer.units import byte_count

WORKER = "analyzer.measurement.worker"
# Of a child's standard error, which may hold all that native code prints.
_STDERR_BYTES = 4000


def measure(request: MeasureRequest, *, progress: Progress | None = None) -> Measurement:
    """Latency and operator times of a model.

    Returns:
        At least the latency. Where the child died later on, what it had found by then, and a message.

    Raises:
        MeasurementError: There is not even a latency; says why in plain words.
        MemoryForeseenError: The run would need more memory than there is.
        InputError: The inputs do not fit the model.
    """
    import psutil

    available = psutil.virtual_memory().available
    if request.provider == "cpu" and request.needed_bytes is not None and request.needed_bytes > available:
        message = f"the run would need {byte_count(request.needed_bytes)}, {byte_count(available)} are free"
        raise MemoryForeseenError(message, hint="use a smaller --batch, or --no-run")
    task = {"request": to_message(request)}
    with run_folder() as folder:
        values = run_task(WORKER, task, folder, timeout_s=request.timeout_s, progress=progress)
        measurement = _measured(request, folder, values)
    if (
        # Nobody could record the GPU (no CUPTI): CUDA reads CUDA_LAUNCH_BLOCKING when a process begins, so that
        # it takes another child.
        request.provider == "cuda"
        and request.profile
        and not measurement.nodes
        and "resident" in measurement.ways
    ):
        return measure_with_blocking_launches(request, measurement, progress)
    return measurement


def run_task(
    module: str,
    task: Mapping[str, Any],
    folder: Path,
    *,
    timeout_s: float,
    progress: Progress | None = None,
    environment: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Have a child work on a task of plain values; it never outlives this call, whatever ends it.

    It runs ``module`` (``child_messages.work_as_child``) in a ``folder`` of its own, with more variables in its
    ``environment``, and is killed after ``timeout_s``.

    Returns:
        Its results; ``trouble`` is the error that ended it early, where there was one.
    """
    values: dict[str, Any] = {"messages": []}
    # Temporary files go with the child's folder: ONNX Runtime leaves a ``.ses`` among them.
    child = Child.start(module, environment={"TMPDIR": str(folder), **(environment or {})})
    deadline = time.monotonic() + timeout_s
    try:
        child.send([str(folder), task])
        while True:
            kind, content = child.receive(deadline - time.monotonic())
            if kind == RESULTS:
                values |= content
            elif progress is not None:
                progress(*content)
    except ChildEndedError as ended:
        trouble = _trouble(values.pop("error", None), ended, child.printed(_STDERR_BYTES), timeout_s)
    finally:
        child.close()
    return values if trouble is None else {**values, "trouble": trouble}


def measure_with_blocking_launches(
    request: MeasureRequest, measurement: Measurement, progress: Progress | None = None
) -> Measurement:
    """Return the same with operators from blocking launches, in another child (``launch_blocking``)."""
    spec = {
        "request": to_message(replace(request, outputs=None)),
        "blocking": to_message(measurement.ways["resident"]),
    }
    with run_folder() as folder:
        values = run_task(
            WORKER, spec, folder, timeout_s=request.timeout_s, progress=progress, environment=ENVIRONMENT
        )
    trouble = values.pop("trouble", None)
    messages = [*measurement.messages, *values["messages"]]
    if trouble is not None:
        messages.append(f"operator times: none, {trouble.message}")
    return replace(
        measurement,
        nodes=from_message(values.get("nodes", ()), tuple[NodeTime, ...]),
        factor=values.get("factor"),
        residual_s=values.get("residual_s"),
        bias_s=values.get("bias_s"),
        messages=tuple(dict.fromkeys(messages)),
    )


def _measured(request: MeasureRequest, folder: Path, values: dict[str, Any]) -> Measurement:
    trouble = values.pop("trouble", None)
    if "latency" not in values:
        raise trouble or MeasurementError("the measurement gave no result", hint="use --no-run")
    if trouble is not None:
        values["messages"].append(f"the measurement is not complete: {trouble.message}")
    optimized = folder / OPTIMIZED if values.pop("optimized", False) else None
    model = None
    if optimized is not None and optimized.exists():
        import onnx

        model = onnx.load(optimized, load_external_data=False)
    values["environment"]["load_after"] = machine_load.load_average()
    return replace(from_message({**values, "provider": request.provider}, Measurement), optimized=model)


def _trouble(
    error: Mapping[str, Any] | None, ended: ChildEndedError, stderr: str, timeout_s: float
) -> AnalyzerError | None:
    """Return why a child ended early; None where it did not."""
    if error is not None:
        kind: type[AnalyzerError] = getattr(errors, error["kind"], MeasurementError)
        return kind(error["message"], hint=error["hint"])
    lines = [line for line in stderr.splitlines() if line.strip()]
    last = f": {lines[-1].strip()[:300]}" if lines else ""
    if ended.reason == "time":
        return MeasurementError(
            f"the measurement took longer than {timeout_s:g} s",
            hint="raise the time limit or use a smaller --batch",
        )
    if ended.fault == "SIGKILL":
        return MeasurementError(
            "the system killed the measurement, most likely for lack of memory", hint="use a smaller --batch"
        )
    if ended.fault:
        return MeasurementError(
            f"ONNX Runtime crashed ({ended.fault}){last}",
            hint="try another version of onnxruntime, or --no-run",
        )
    if ended.status > 1 or (ended.status == 1 and stderr):
        return MeasurementError(f"the measurement ended with status {ended.status}{last}", hint="use --no-run")
    return None


_CHILD = "analyzer.measurement.model_tools_child"
# To calibrate a large model takes as long as some dozen runs of it without any fusion.
_TIMEOUT_S = 3600.0


def rewritten(
    tool: str, model: Path, folder: Path, progress: Progress | None = None, **arguments: Any
) -> Mapping[str, Any]:
    """Write what a tool makes of a model, with its weights beside it, into an empty folder; return its results.

    The tool, one of ``model_tools_child``, takes plain values besides. The model's file has its own name there.

    Raises:
        MeasurementError: It makes nothing of the model.
    """
    task = {"tool": tool, "model": str(model), "folder": str(folder), **arguments}
    with run_folder() as own:
        values = run_task(_CHILD, task, own, timeout_s=_TIMEOUT_S, progress=progress)
    trouble = values.get("trouble")
    if trouble is not None:
        raise MeasurementError(trouble.message, hint=trouble.hint)
    reported: Mapping[str, Any] = values.get("told") or {}
    if not (folder / model.name).exists():
        raise MeasurementError("the tool wrote no model")
    return reported
