"""Measuring a model: in a child process, so that a crash costs that measurement only."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import IO, Any, TypeVar

from analyzer import errors
from analyzer.errors import AnalyzerError, MeasurementError, MemoryForeseenError
from analyzer.isolation.process import child_environment
from analyzer.measurement.child_messages import OPTIMIZED, RESULT
from analyzer.measurement.gpu_trace.launch_blocking import ENVIRONMENT
from analyzer.measurement.noise import machine_load
from analyzer.measurement.request import (
    Latency,
    Measurement,
    MeasureRequest,
    NodeTime,
    from_message,
    to_message,
)
from analyzer.progress import Progress
from analyzer.run_folder import run_folder
from analyzer.units import byte_count

__all__ = [
    "Latency",
    "MeasureRequest",
    "Measurement",
    "NodeTime",
    "measure",
    "measure_with_blocking_launches",
]

Result = TypeVar("Result")
WORKER = "analyzer.measurement.worker"


def measure(request: MeasureRequest, *, progress: Progress | None = None) -> Measurement:
    """Latency and operator times of a model.

    Args:
        request: What to measure.
        progress: Told the stage ("warming up") and how much is done, 0 to 1.

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
    measurement = _child(request, {"request": to_message(request)}, progress, _measured)
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


def _child(
    request: MeasureRequest,
    spec: Mapping[str, Any],
    progress: Progress | None,
    finish: Callable[[MeasureRequest, Path, dict[str, Any]], Result],
    extra: Mapping[str, str] | None = None,
) -> Result:
    """Run a child in a folder of its own and read what it left there."""
    with run_folder() as folder:
        path = folder / "spec.json"
        path.write_text(json.dumps(spec), encoding="utf-8")
        ending = _run_child(path, request.timeout_s, progress, extra)
        return finish(request, folder, _values(folder, ending, request.timeout_s))


def run_task(
    module: str, task: Mapping[str, Any], folder: Path, *, timeout_s: float, progress: Progress | None = None
) -> dict[str, Any]:
    """Has a child work on a task that it reads from a file.

    Args:
        module: What the child runs; it leaves its results as a measuring child does.
        task: Plain JSON values.
        folder: The child's own, which holds nothing else.
        timeout_s: After this many seconds it is killed.
        progress: Told what the child tells.

    Returns:
        What it found; ``trouble`` is the error that ended it early, where there was one.
    """
    path = folder / "spec.json"
    path.write_text(json.dumps(task), encoding="utf-8")
    return _values(folder, _run_child(path, timeout_s, progress, module=module), timeout_s)


def measure_with_blocking_launches(
    request: MeasureRequest, measurement: Measurement, progress: Progress | None = None
) -> Measurement:
    """The same with operators from blocking launches, in another child (``gpu_trace.launch_blocking``)."""
    spec = {
        "request": to_message(replace(request, outputs=None)),
        "blocking": to_message(measurement.ways["resident"]),
    }
    values = _child(request, spec, progress, lambda _request, _folder, results: results, ENVIRONMENT)
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


# Windows ends a process that faults with an NTSTATUS of severity "error" (0xC0000005: access violation).
_NTSTATUS_ERROR = 0xC0000000


class ChildExit:
    """How the child ended: its status, whether it ran out of time, and the end of its standard error."""

    def __init__(self, status: int, timed_out: bool, stderr: str) -> None:
        self.status = status
        self.timed_out = timed_out
        self.stderr = stderr

    def trouble(self, timeout_s: float) -> tuple[str, str] | None:
        """What went wrong and what to do, None where nothing did."""
        if self.timed_out:
            return (
                f"the measurement took longer than {timeout_s:g} s",
                "raise the time limit or use a smaller --batch",
            )
        # A negative status is a signal, which Windows does not have: nor does its module ``signal`` the names.
        if self.status < 0 and self.status == -signal.SIGKILL:
            return "the system killed the measurement, most likely for lack of memory", "use a smaller --batch"
        if self.status < 0 or self.status >= _NTSTATUS_ERROR:
            name = signal.Signals(-self.status).name if self.status < 0 else f"{self.status:#x}"
            return (
                f"ONNX Runtime crashed ({name}){self._tail()}",
                "try another version of onnxruntime, or --no-run",
            )
        if self.status > 1 or (self.status == 1 and self.stderr):
            return f"the measurement ended with status {self.status}{self._tail()}", "use --no-run"
        return None

    def _tail(self) -> str:
        lines = [line for line in self.stderr.splitlines() if line.strip()]
        return f": {lines[-1].strip()[:300]}" if lines else ""


def _run_child(
    spec: Path,
    timeout_s: float,
    progress: Progress | None,
    extra: Mapping[str, str] | None = None,
    module: str = WORKER,
) -> ChildExit:
    """Run the child to its end; it never outlives this call, whatever ends it."""
    # A file, not a pipe: nobody has to read it while the child runs, and native code writes there too.
    stderr = spec.with_name("stderr.txt")
    with stderr.open("wb") as log:
        child = subprocess.Popen(
            _command(spec, module),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
            # Temporary files go with the child's folder: ONNX Runtime leaves a ``.ses`` among them.
            env=child_environment({"TMPDIR": str(spec.parent), **(extra or {})}),
            start_new_session=True,  # Ctrl-C reaches us alone, and we end the child
        )
        try:
            timed_out = _follow(child, timeout_s, progress)
        finally:
            if child.poll() is None:
                # The whole session of the child: a library may have started processes of its own.
                if hasattr(os, "killpg"):
                    os.killpg(child.pid, signal.SIGKILL)
                else:
                    child.kill()
            child.wait()
            if child.stdout is not None:
                child.stdout.close()
    return ChildExit(child.returncode, timed_out, stderr.read_text(encoding="utf-8", errors="replace")[-4000:])


def _command(spec: Path, module: str) -> list[str]:
    # -P: a file of the user's working folder must not stand in for a module.
    return [sys.executable, "-P", "-m", module, str(spec)]


def _follow(child: subprocess.Popen[bytes], timeout_s: float, progress: Progress | None) -> bool:
    """Pass progress on until the child closes its output; True where it takes too long."""
    lines: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
    # A thread, since a pipe cannot be read with a time limit on every system.
    threading.Thread(target=_read, args=(child.stdout, lines), daemon=True).start()
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            line = lines.get(timeout=max(0.0, deadline - time.monotonic()))
        except queue.Empty:
            return True
        if line is None:
            break
        _pass_on_progress(line, progress)
    try:
        child.wait(max(0.0, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        return True
    return False


def _read(stream: IO[bytes] | None, lines: queue.SimpleQueue[bytes | None]) -> None:
    for line in stream or ():
        lines.put(line)
    lines.put(None)


def _pass_on_progress(line: bytes, progress: Progress | None) -> None:
    if progress is None:
        return
    try:
        message = json.loads(line)
        progress(str(message["stage"]), float(message["fraction"]))
    except (ValueError, KeyError, TypeError):
        return  # something else wrote to standard output


def _values(folder: Path, ending: ChildExit, timeout_s: float) -> dict[str, Any]:
    """What the child found; ``trouble`` is why it ended early."""
    try:
        values = json.loads((folder / RESULT).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        values = {"messages": []}
    trouble = _trouble(values.pop("error", None), ending, timeout_s)
    return values if trouble is None else {**values, "trouble": trouble}


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


def _trouble(error: Mapping[str, Any] | None, ending: ChildExit, timeout_s: float) -> AnalyzerError | None:
    if error is not None:
        kind: type[AnalyzerError] = getattr(errors, error["kind"], MeasurementError)
        return kind(error["message"], hint=error["hint"])
    trouble = ending.trouble(timeout_s)
    return None if trouble is None else MeasurementError(trouble[0], hint=trouble[1])
