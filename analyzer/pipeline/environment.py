"""The circumstances of an analysis: the only part of a record that may change from run to run."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from analyzer import __version__
from analyzer.devices.calibration import disturbance, taken_meanwhile
from analyzer.devices.device import Device
from analyzer.pipeline.measure import Measured, installed_version
from analyzer.record.analysis import Environment

# The two distributions of ONNX Runtime carry one module; whichever is installed is named.
_PACKAGES = ("torch", "onnx", "onnxscript", "onnx-ir", "onnxruntime-gpu", "onnxruntime", "numpy")


def describe(
    *,
    measured: Measured | None,
    timings_s: Mapping[str, float],
    cached: bool,
    cpu: Device,
) -> Environment:
    """Return the run's entry in the report's method section; ``measured`` is of the report's own batch."""
    facts: Mapping[str, Any] = measured.facts if measured else {}
    # Threads, load and runs are of the CPU's session: a CUDA session's are in ``measurement``.
    run = facts.get("cpu", {})
    messages, disturbed = measured.messages if measured else (), disturbance(cpu.calibration)
    if disturbed:
        off = "too slow" if taken_meanwhile(cpu.calibration) else "too slow or too quick"
        messages = (
            *messages,
            f"This CPU was {disturbed}: what is predicted for it may be {off}, its intervals are widened; "
            "`analyze calibrate` on a quiet machine measures anew.",
        )
    return Environment(
        versions=versions(),
        platform=f"{platform.system()} {platform.machine()}",
        cpu=cpu.name,
        threads=run.get("threads"),
        load_before=run.get("load_before"),
        load_after=run.get("load_after"),
        warmup_runs=run.get("warmup_runs"),
        runs=run.get("runs"),
        date=datetime.now(UTC).isoformat(timespec="seconds"),
        export_cached=cached,
        timings_s={name: round(value, 4) for name, value in timings_s.items()},
        measurement=facts,
        messages=messages,
    )


def versions() -> dict[str, str]:
    """Versions of what takes part, by package; absent ones are left out."""
    installed = {"analyzer": __version__, "python": platform.python_version()}
    return installed | {name: version for name in _PACKAGES if (version := installed_version(name)) is not None}
