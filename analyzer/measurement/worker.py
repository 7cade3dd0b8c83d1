"""The child process of a measurement: ``python -m analyzer.measurement.worker``.

Its task holds the request, and with ``blocking`` the latency to which operators are scaled. What kills this
process costs what it had not yet measured.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from analyzer.measurement.child_messages import Reporter, work_as_child
from analyzer.measurement.request import Latency, MeasureRequest, from_message
from analyzer.process import Channel, run_as_child


def main(channel: Channel) -> None:
    """Measure as the parent asks."""
    work_as_child(channel, _measure, "use a smaller --batch, or --no-run")


def _measure(task: Mapping[str, Any], folder: Path, reporter: Reporter) -> None:
    import onnxruntime

    from analyzer.measurement.machine_load import load_average

    request = from_message(task["request"], MeasureRequest)
    reporter.environment(
        onnxruntime=onnxruntime.__version__,
        spinning=request.spinning,
        time_budget_s=request.time_budget_s,
        load_before=load_average(),
    )
    if task.get("blocking") is not None:
        from analyzer.measurement.launch_blocking import measure_blocking

        measure_blocking(request, folder, reporter, from_message(task["blocking"], Latency))
    elif request.provider == "cuda":
        from analyzer.measurement.on_cuda import measure_cuda

        measure_cuda(request, folder, reporter)
    else:
        from analyzer.measurement.on_cpu import measure_cpu

        measure_cpu(request, folder, reporter)
    reporter.progress("done", 1.0)


if __name__ == "__main__":
    run_as_child(main)
