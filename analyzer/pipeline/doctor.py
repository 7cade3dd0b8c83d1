"""This machine's state, and the parts of this program that work on it: each is tried."""

from __future__ import annotations

import os
import platform
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Literal

from analyzer import __version__
from analyzer.devices.calibration import disturbance, load
from analyzer.devices.detection import local_gpu, this_cpu
from analyzer.devices.nvml import DriverFacts, driver_facts
from analyzer.errors import AnalyzerError, LibraryError
from analyzer.loading import torch_private
from analyzer.loading.cache import cache_folder
from analyzer.measurement.child_process import measure
from analyzer.measurement.probes import Probe, floats, model_of
from analyzer.measurement.request import Measurement, MeasureRequest
from analyzer.ort.execution import Provider
from analyzer.ort.kernels import releases
from analyzer.pipeline.measure import installed_version
from analyzer.progress import Progress, silent
from analyzer.run_folder import run_folder
from analyzer.text import first_few
from analyzer.units import byte_count, seconds

MachineState = Literal["works", "note", "absent", "broken"]

_NEEDED = ("onnx", "onnxscript", "onnx-ir", "numpy")
_RUNTIMES = ("onnxruntime-gpu", "onnxruntime")
# What is worth having, and what for.
_EXTRAS = {
    "torch": ("Python and .pt2 models", torch_private.PIP_LINE),
    "ray": ("analyze fleet --on ray", "pip install 'onnx-analyzer[ray]'"),
    "transformers": (
        "configurations that leave sizes to their class",
        "pip install 'onnx-analyzer[transformers]'",
    ),
    "vl-convert-python": ("--format svg and png", "pip install 'onnx-analyzer[pictures]'"),
    "pyarrow": ("fleet.parquet", "pip install pyarrow"),
}
# An export of a model of a few gigabytes is written to the temporary folder.
_LITTLE_ROOM = 2 * 2**30
_OLD_DAYS = 180
_BUDGET_S, _TIMEOUT_S = 0.5, 240.0
_WIDTH, _ROWS = 256, 64


@dataclass(frozen=True, slots=True)
class MachineCheck:
    """One thing that was looked at.

    Attributes:
        section: ``software``, ``CPU``, ``GPU``, ``storage`` or ``what works``.
        name: The thing.
        state: ``works``; ``note`` for what works and could be better; ``absent`` for what is not there;
            ``broken`` for what is there and does not work.
        found: What was found, in a few words.
        hint: What to do about it; empty where there is nothing.
    """

    section: str
    name: str
    state: MachineState
    found: str
    hint: str = ""


def examine(progress: Progress = silent) -> tuple[MachineCheck, ...]:
    """Look at all of it; the sessions are run in processes of their own."""
    with run_folder() as folder:
        checks = [*_software(), *_cpu(), *_storage()]
        progress("running a small model on the CPU", None)
        cpu = _run("cpu", _written(folder / "small.onnx"))
        gpu: Measurement | AnalyzerError | None = None
        driver = driver_facts()
        if not isinstance(driver, str) and driver.gpus:
            progress("running a small model on the GPU", None)
            gpu = _run("cuda", folder / "small.onnx")
    checks += _gpu(driver, gpu)
    return (*checks, *_what_works(cpu, gpu))


def _software() -> Iterator[MachineCheck]:
    check = partial(MachineCheck, "software")
    python = f"{platform.python_version()} on {platform.system()} {platform.machine()}"
    yield check("Python", "works", python)
    yield check("analyze", "works", __version__)
    for name in _NEEDED:
        version = installed_version(name)
        if version is None:
            yield check(name, "broken", "not installed", "pip install onnx-analyzer")
        else:
            yield check(name, "works", version)
    # ONNX Runtime: one of its distributions, in a release whose kernels are known.
    installed = {name: version for name in _RUNTIMES if (version := installed_version(name)) is not None}
    name, version = " and ".join(installed) or "onnxruntime", next(iter(installed.values()), "")
    if not installed:
        hint = "pip install onnxruntime-gpu (or onnxruntime where there is no NVIDIA GPU)"
        yield check(name, "broken", "not installed", hint)
    elif len(installed) > 1:  # both write to the same folder, and the later one's files win
        hint = "pip uninstall -y onnxruntime onnxruntime-gpu, then pip install onnxruntime-gpu"
        yield check(name, "broken", "both are installed, over each other", hint)
    elif version not in releases():
        result = f"{version}; its kernels are not known, {releases()[-1]} stands in"
        hint = "Placement is exact for releases that `analyze apply --onnxruntime` names."
        yield check(name, "note", result, hint)
    else:
        yield check(name, "works", version)
    for name, (use, install) in _EXTRAS.items():
        own = installed_version(name)
        if own is None:
            yield check(name, "absent", f"not installed; for {use}", install)
        else:
            newer = torch_private.untested(own) if name == "torch" else ""
            yield check(name, "note" if newer else "works", own, newer)


def _cpu() -> Iterator[MachineCheck]:
    check, cpu = partial(MachineCheck, "CPU"), this_cpu()
    if cpu.assumed:
        # ``bandwidth_bytes_per_s`` -> ``bandwidth``.
        names = (
            field.removesuffix("_per_s").removesuffix("_bytes").removesuffix("_flops").replace("_", " ")
            for field in cpu.assumed
        )
        result = f"{cpu.units} cores; assumed: {first_few(names)}"
        yield check(cpu.name, "note", result, "`analyze calibrate` measures what is assumed.")
    else:
        yield check(cpu.name, "works", f"{cpu.units} cores")
    saved = load()
    if saved is None:
        hint = "`analyze calibrate` (about a minute) makes predictions for this CPU closer."
        yield check("calibration", "absent", "none for this processor and ONNX Runtime", hint)
        return
    days = 0
    with suppress(ValueError):
        days = (datetime.now(UTC) - datetime.fromisoformat(saved.date)).days
    disturbed = disturbance(saved.values)
    old = f", {days} days old" if days > _OLD_DAYS else ""
    result = f"of {saved.date[:10]}{old}{disturbed and f', {disturbed}'}, in {saved.path}"
    if old or disturbed:
        yield check("calibration", "note", result, "`analyze calibrate` on a quiet machine measures anew.")
    else:
        yield check("calibration", "works", result)


def _storage() -> Iterator[MachineCheck]:
    check = partial(MachineCheck, "storage")
    for name, folder, variable in (
        ("exports kept", cache_folder(), "ANALYZER_CACHE_DIR"),
        ("temporary files", Path(tempfile.gettempdir()), "TMPDIR"),
    ):
        there = next(place for place in (folder, *folder.parents) if place.exists())
        free = shutil.disk_usage(there).free
        if not os.access(there, os.W_OK):
            yield check(name, "broken", f"{folder} cannot be written", f"Set {variable} to a folder that can.")
        elif free < _LITTLE_ROOM:
            hint = f"Large models need more: set {variable} to another disk."
            yield check(name, "note", f"{folder}, {byte_count(free)} free", hint)
        else:
            yield check(name, "works", f"{folder}, {byte_count(free)} free")


def _gpu(driver: DriverFacts | str, ran: Measurement | AnalyzerError | None) -> Iterator[MachineCheck]:
    check = partial(MachineCheck, "GPU")
    if isinstance(driver, str):
        yield check("NVIDIA driver", "absent", driver)
        return
    yield check("NVIDIA driver", "works", f"{driver.version}, up to CUDA {driver.cuda}")
    if not driver.gpus:
        yield check("GPU", "absent", "the driver sees none")
        return
    known = local_gpu()
    if known is None:
        hint = "CUDA_VISIBLE_DEVICES may hide it; `analyze devices` lists what is known."
        yield check("GPU", "broken", f"{first_few(driver.gpus)}; CUDA sees none", hint)
    else:
        hidden = f", the first of {len(driver.gpus)}" if len(driver.gpus) > 1 else ""
        result = f"{known.slug} of the catalogue, {byte_count(known.memory_bytes)}{hidden}"
        notes = known.notes if known.assumed else ""
        yield check(known.name, "note" if notes else "works", result, notes)
    if isinstance(ran, AnalyzerError):
        yield check("CUDA session", "broken", ran.message, ran.hint or "")
    elif ran is not None:
        result = f"a small matrix multiplication takes {seconds(ran.latency.value)}, copies included"
        yield check("CUDA session", "works", result)
        if ran.nodes:
            yield check("operator times", "works", ran.nodes[0].method)
        else:
            # Launches are timed without it, so that a machine without PyTorch has no fault.
            state: MachineState = "broken" if installed_version("torch") else "absent"
            hint = f"A CUDA build of PyTorch brings CUPTI: {torch_private.PIP_LINE}"
            yield check("operator times", state, first_few(ran.messages) or "none came back", hint)


def _what_works(
    cpu: Measurement | AnalyzerError, gpu: Measurement | AnalyzerError | None
) -> Iterator[MachineCheck]:
    check = partial(MachineCheck, "what works")
    yield check("counts, CUDA placement, predictions, `check`", "works", "needs no GPU, runs nothing")
    if installed_version("torch") is None:
        yield check("Python and .pt2 models", "absent", "torch is not installed", torch_private.PIP_LINE)
    else:
        try:
            torch_private.require_torch()
            yield check("Python and .pt2 models", "works", "")
        except LibraryError as error:
            yield check("Python and .pt2 models", "broken", error.message, error.hint or "")
    if isinstance(cpu, AnalyzerError):
        yield check("measuring the CPU", "broken", cpu.message, cpu.hint or "")
    else:
        result = f"a small matrix multiplication takes {seconds(cpu.latency.value)}"
        busy = f"{result}; other processes disturbed it" if cpu.busy else result
        yield check("measuring the CPU", "note" if cpu.busy else "works", busy)
    if gpu is None:
        yield check("measuring a GPU", "absent", "there is none: GPUs are predicted from the catalogue")
    elif isinstance(gpu, AnalyzerError):
        yield check("measuring a GPU", "broken", gpu.message, gpu.hint or "")
    else:
        yield check("measuring a GPU", "works", "latency and operators" if gpu.nodes else "latency alone")
    ray = installed_version("ray") is not None
    yield check("a fleet on this machine", "works", "")
    yield check("a fleet on a Ray cluster", "works" if ray else "absent", "" if ray else "Ray is not installed")


def _run(provider: Provider, model: Path) -> Measurement | AnalyzerError:
    """Return a small product in a session of its own, or why there is none."""
    request = MeasureRequest(
        model_path=model, provider=provider, time_budget_s=_BUDGET_S, timeout_s=_TIMEOUT_S, replay=False,
        cuda_graph=False,
    )  # fmt: skip
    try:
        return measure(request)
    except AnalyzerError as error:
        return error


def _written(path: Path) -> Path:
    """Return a product of a batch of rows with a constant."""
    inputs, stored = (floats(_ROWS, _WIDTH), floats(_WIDTH, _WIDTH)), frozenset({1})
    probe = Probe(key="", amount=1.0, per="time", op_type="MatMul", inputs=inputs, constants=stored, opset=17)
    path.write_bytes(model_of(probe))
    return path
