"""What this machine has, and what of this program works on it: each thing tried, not asked for by name."""

from __future__ import annotations

import os
import platform
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from analyzer import __version__
from analyzer.devices.calibration import disturbance, load
from analyzer.devices.detection import local_gpu, this_cpu
from analyzer.devices.nvml import DriverFacts, driver_facts
from analyzer.errors import AnalyzerError
from analyzer.loading.cache import cache_folder
from analyzer.measurement.child_process import measure
from analyzer.measurement.request import Measurement, MeasureRequest
from analyzer.ort.execution import Provider
from analyzer.ort.releases_data import releases
from analyzer.pipeline.environment import installed_version
from analyzer.progress import Progress
from analyzer.run_folder import run_folder
from analyzer.text import first_few
from analyzer.units import byte_count, seconds

MachineState = Literal["works", "note", "absent", "broken"]

_NEEDED = ("torch", "onnx", "onnxscript", "onnx-ir", "numpy")
_RUNTIMES = ("onnxruntime-gpu", "onnxruntime")
# What is worth having, and what for.
_EXTRAS = {
    "ray": ("analyze fleet --on ray", "pip install 'onnx-analyzer[ray]'"),
    "transformers": (
        "configurations that leave sizes to their class",
        "pip install 'onnx-analyzer[transformers]'",
    ),
    "vl-convert-python": ("--format svg and png", "pip install 'onnx-analyzer[pictures]'"),
    "pyarrow": ("fleet.parquet", "pip install pyarrow"),
}
# Releases whose private names were looked at; see pyproject.toml.
_TORCH = ((2, 11), (2, 13))
# An export of a model of a few gigabytes is written to the temporary folder.
_LITTLE_ROOM = 2 * 2**30
_OLD_DAYS = 180
_BUDGET_S, _TIMEOUT_S = 0.5, 240.0
_WIDTH, _ROWS = 256, 64


@dataclass(frozen=True, slots=True, kw_only=True)
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


def examine(progress: Progress = lambda _stage, _share: None) -> tuple[MachineCheck, ...]:
    """Looks at all of it; the sessions are run in processes of their own."""
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
    python = f"{platform.python_version()} on {platform.system()} {platform.machine()}"
    yield MachineCheck(section="software", name="Python", state="works", found=python)
    yield MachineCheck(section="software", name="analyze", state="works", found=__version__)
    for name in _NEEDED:
        version = installed_version(name)
        if version is None:
            hint = "pip install onnx-analyzer"
            yield MachineCheck(section="software", name=name, state="broken", found="not installed", hint=hint)
        elif name == "torch" and not _TORCH[0] <= _release(version) <= _TORCH[1]:
            known = " to ".join(".".join(map(str, end)) for end in _TORCH)
            yield MachineCheck(
                section="software", name=name, state="note", found=f"{version}; tested are {known}",
                hint="Exports may fail: pip install 'torch<2.14'",
            )  # fmt: skip
        else:
            yield MachineCheck(section="software", name=name, state="works", found=version)
    yield _runtime()
    for name, (use, install) in _EXTRAS.items():
        version = installed_version(name)
        found = version or f"not installed; for {use}"
        yield MachineCheck(
            section="software", name=name, state="works" if version else "absent", found=found,
            hint="" if version else install,
        )  # fmt: skip


def _runtime() -> MachineCheck:
    """ONNX Runtime: one of its distributions, in a release whose kernels are known."""
    installed = {name: version for name in _RUNTIMES if (version := installed_version(name)) is not None}
    name = " and ".join(installed) or "onnxruntime"
    if not installed:
        return MachineCheck(
            section="software", name=name, state="broken", found="not installed",
            hint="pip install onnxruntime-gpu (or onnxruntime where there is no NVIDIA GPU)",
        )  # fmt: skip
    version = next(iter(installed.values()))
    if len(installed) > 1:  # both write to the same folder, and the later one's files win
        return MachineCheck(
            section="software", name=name, state="broken", found="both are installed, over each other",
            hint="pip uninstall -y onnxruntime onnxruntime-gpu, then pip install onnxruntime-gpu",
        )  # fmt: skip
    if version not in releases():
        return MachineCheck(
            section="software", name=name, state="note",
            found=f"{version}; its kernels are not known, {releases()[-1]} stands in",
            hint="Placement is exact for releases that `analyze apply --onnxruntime` names.",
        )  # fmt: skip
    return MachineCheck(section="software", name=name, state="works", found=version)


def _cpu() -> Iterator[MachineCheck]:
    cpu = this_cpu()
    assumed = f"; assumed: {first_few(map(_in_words, cpu.assumed))}" if cpu.assumed else ""
    yield MachineCheck(
        section="CPU", name=cpu.name, state="note" if assumed else "works",
        found=f"{cpu.units} cores{assumed}",
        hint="`analyze calibrate` measures what is assumed." if assumed else "",
    )  # fmt: skip
    kept = load()
    if kept is None:
        yield MachineCheck(
            section="CPU", name="calibration", state="absent", found="none for this processor and ONNX Runtime",
            hint="`analyze calibrate` (about a minute) makes predictions for this CPU closer.",
        )  # fmt: skip
        return
    days = (datetime.now(UTC) - _when(kept.date)).days
    disturbed = disturbance(kept.values)
    old = f", {days} days old" if days > _OLD_DAYS else ""
    yield MachineCheck(
        section="CPU", name="calibration", state="note" if old or disturbed else "works",
        found=f"of {kept.date[:10]}{old}{disturbed and f', {disturbed}'}, in {kept.path}",
        hint="`analyze calibrate` on a quiet machine measures anew." if old or disturbed else "",
    )  # fmt: skip


def _storage() -> Iterator[MachineCheck]:
    for name, folder, variable in (
        ("exports kept", cache_folder(), "ANALYZER_CACHE_DIR"),
        ("temporary files", Path(tempfile.gettempdir()), "TMPDIR"),
    ):
        there = next(place for place in (folder, *folder.parents) if place.exists())
        if not os.access(there, os.W_OK):
            yield MachineCheck(
                section="storage", name=name, state="broken", found=f"{folder} cannot be written",
                hint=f"Set {variable} to a folder that can.",
            )  # fmt: skip
            continue
        free = shutil.disk_usage(there).free
        little = free < _LITTLE_ROOM
        yield MachineCheck(
            section="storage", name=name, state="note" if little else "works",
            found=f"{folder}, {byte_count(free)} free",
            hint=f"Large models need more: set {variable} to another disk." if little else "",
        )  # fmt: skip


def _gpu(driver: DriverFacts | str, ran: Measurement | AnalyzerError | None) -> Iterator[MachineCheck]:
    if isinstance(driver, str):
        yield MachineCheck(section="GPU", name="NVIDIA driver", state="absent", found=driver)
        return
    yield MachineCheck(
        section="GPU", name="NVIDIA driver", state="works", found=f"{driver.version}, up to CUDA {driver.cuda}"
    )
    if not driver.gpus:
        yield MachineCheck(section="GPU", name="GPU", state="absent", found="the driver sees none")
        return
    known, names = local_gpu(), first_few(driver.gpus)
    if known is None:
        hint = "CUDA_VISIBLE_DEVICES may hide it; `analyze devices` lists what is known."
        yield MachineCheck(
            section="GPU", name="GPU", state="broken", found=f"{names}; CUDA sees none", hint=hint
        )
    else:
        hidden = f", the first of {len(driver.gpus)}" if len(driver.gpus) > 1 else ""
        yield MachineCheck(
            section="GPU", name=known.name, state="note" if known.notes and known.assumed else "works",
            found=f"{known.slug} of the catalogue, {byte_count(known.memory_bytes)}{hidden}",
            hint=known.notes if known.assumed else "",
        )  # fmt: skip
    if isinstance(ran, AnalyzerError):
        yield MachineCheck(
            section="GPU", name="CUDA session", state="broken", found=ran.message, hint=ran.hint or ""
        )
    elif ran is not None:
        yield MachineCheck(
            section="GPU", name="CUDA session", state="works",
            found=f"a small product takes {seconds(ran.latency.value)}, copies included",
        )  # fmt: skip
        yield MachineCheck(
            section="GPU", name="operator times", state="works" if ran.nodes else "broken",
            found=ran.nodes[0].method if ran.nodes else first_few(ran.messages) or "none came back",
            hint="" if ran.nodes else "A CUDA build of PyTorch brings CUPTI; without it launches are timed.",
        )  # fmt: skip


def _what_works(
    cpu: Measurement | AnalyzerError, gpu: Measurement | AnalyzerError | None
) -> Iterator[MachineCheck]:
    torch = installed_version("torch") is not None

    def can(name: str, state: MachineState, found: str, hint: str = "") -> MachineCheck:
        return MachineCheck(section="what works", name=name, state=state, found=found, hint=hint)

    yield can("counts, CUDA placement, predictions, `check`", "works", "needs no GPU, runs nothing")
    yield can("Python and .pt2 models", "works" if torch else "broken", "" if torch else "torch is missing")
    if isinstance(cpu, AnalyzerError):
        yield can("measuring the CPU", "broken", cpu.message, cpu.hint or "")
    else:
        found = f"a small product takes {seconds(cpu.latency.value)}"
        busy = f"{found}; other processes disturbed it" if cpu.busy else found
        yield can("measuring the CPU", "note" if cpu.busy else "works", busy)
    if gpu is None:
        yield can("measuring a GPU", "absent", "there is none: GPUs are predicted from the catalogue")
    elif isinstance(gpu, AnalyzerError):
        yield can("measuring a GPU", "broken", gpu.message, gpu.hint or "")
    else:
        yield can("measuring a GPU", "works", "latency and operators" if gpu.nodes else "latency alone")
    ray = installed_version("ray") is not None
    yield can("a fleet on this machine", "works", "")
    yield can("a fleet on a Ray cluster", "works" if ray else "absent", "" if ray else "Ray is not installed")


def _run(provider: Provider, model: Path) -> Measurement | AnalyzerError:
    """A small product in a session of its own, or why there is none."""
    request = MeasureRequest(
        model_path=model, provider=provider, time_budget_s=_BUDGET_S, timeout_s=_TIMEOUT_S, replay=False,
        cuda_graph=False,
    )  # fmt: skip
    try:
        return measure(request)
    except AnalyzerError as error:
        return error


def _written(path: Path) -> Path:
    """A product of a batch of rows with a constant."""
    import numpy as np
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [_ROWS, _WIDTH])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [_ROWS, _WIDTH])
    weight = numpy_helper.from_array(np.full((_WIDTH, _WIDTH), 0.01, np.float32), "w")
    node = helper.make_node("MatMul", ["x", "w"], ["y"])
    graph = helper.make_graph([node], "small", [x], [y], [weight])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def _in_words(field: str) -> str:
    """``bandwidth_bytes_per_s`` -> ``bandwidth``."""
    return field.removesuffix("_per_s").removesuffix("_bytes").removesuffix("_flops").replace("_", " ")


def _release(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".")[:2] if part.isdigit())


def _when(date: str) -> datetime:
    try:
        return datetime.fromisoformat(date)
    except ValueError:
        return datetime.now(UTC)
