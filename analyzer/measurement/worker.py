"""The child process of a measurement: ``python -m analyzer.measurement.worker SPEC.json``.

SPEC holds the request, and with ``blocking`` the latency to which operators are scaled; its folder is the
working folder. Progress goes to standard output as lines of JSON, results into ``partial.json`` beside
SPEC. What kills this process costs what it had not yet measured.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from analyzer.errors import AnalyzerError
from analyzer.isolation.child import die_first_when_memory_ends, die_with_parent
from analyzer.measurement.child_messages import Reporter
from analyzer.measurement.request import Latency, MeasureRequest, request_from_json


def main(arguments: list[str]) -> int:
    """Measure what the file asks for; exit status 0, or 1 with the error in ``partial.json``."""
    spec = Path(arguments[0])
    # Before anything that may hang or grow.
    die_with_parent()
    die_first_when_memory_ends()
    reporter = Reporter(spec.parent)
    task = json.loads(spec.read_text(encoding="utf-8"))
    request = request_from_json(task["request"])
    latency = task.get("blocking")
    try:
        _measure(request, spec.parent, reporter, None if latency is None else Latency(**latency))
    except AnalyzerError as error:
        reporter.error(error.message, error.hint, type(error).__name__)
        return 1
    except MemoryError:
        reporter.error("out of memory", "use a smaller --batch, or --no-run", "MeasurementError")
        return 1
    return 0


def _measure(request: MeasureRequest, folder: Path, reporter: Reporter, blocking: Latency | None) -> None:
    _versions(reporter, request)
    if blocking is not None:
        from analyzer.measurement.gpu_trace.launch_blocking import measure_blocking

        measure_blocking(request, folder, reporter, blocking)
    elif request.provider == "cuda":
        from analyzer.measurement.on_cuda import measure_cuda

        measure_cuda(request, folder, reporter)
    else:
        from analyzer.measurement.on_cpu import measure_cpu

        measure_cpu(request, folder, reporter)
    reporter.progress("done", 1.0)


def _versions(reporter: Reporter, request: MeasureRequest) -> None:
    import onnxruntime

    from analyzer.measurement.noise import machine_load

    reporter.environment(
        onnxruntime=onnxruntime.__version__,
        spinning=request.spinning,
        time_budget_s=request.time_budget_s,
        load_before=machine_load.load_average(),
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
