"""What `analyze doctor` says of machines that have much, little, or something that does not work."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from analyzer.cli import command_line
from analyzer.devices.catalogue import device
from analyzer.devices.nvml import DriverFacts
from analyzer.errors import MeasurementError
from analyzer.figures import Figure
from analyzer.loading import torch_private
from analyzer.measurement.request import Latency, Measurement, MeasureRequest, NodeTime
from analyzer.pipeline import build_record, doctor
from analyzer.pipeline.doctor import MachineCheck, examine
from analyzer.pipeline.measure import installed_version

TOOK = Latency(
    value=4e-5,
    p10_s=4e-5,
    p90_s=5e-5,
    min_s=4e-5,
    low=4e-5,
    high=5e-5,
    runs=9,
    warmup_runs=1,
    method="runs",
)
NODE = NodeTime(
    name="n",
    op_type="MatMul",
    provider="cuda",
    time=Figure(value=1e-5, low=1e-5, high=1e-5, origin="measured"),
    raw_s=1e-5,
    method="by CUPTI",
)


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Has sessions end as they are told to, and the driver say what it is told to."""

    def say(driver: DriverFacts | str, cuda: Any = None, **cpu: Any) -> None:
        def measure(request: MeasureRequest) -> Measurement:
            if request.provider == "cpu":
                return Measurement(provider="cpu", latency=TOOK, **cpu)
            if isinstance(cuda, Exception):
                raise cuda
            return Measurement(provider="cuda", latency=TOOK, nodes=cuda)

        monkeypatch.setattr(doctor, "measure", measure)
        monkeypatch.setattr(doctor, "driver_facts", lambda: driver)

    return say


def found(name: str, section: str = "") -> MachineCheck:
    (check,) = (one for one in examine() if one.name == name and section in one.section)
    return check


H100 = DriverFacts(version="570.86", cuda="12.8", gpus=("NVIDIA H100 80GB HBM3",))


def test_a_machine_without_a_gpu_is_told_what_works_all_the_same(runs: Callable[..., None]) -> None:
    runs("NVML Shared Library Not Found")
    assert found("NVIDIA driver").state == "absent"
    assert found("measuring a GPU").state == "absent"
    assert found("measuring the CPU").state == "works"
    assert found("counts, CUDA placement, predictions, `check`").state == "works"


def test_a_gpu_whose_libraries_are_missing_is_told_with_what_to_install(runs: Callable[..., None]) -> None:
    runs(
        H100, MeasurementError("the CUDA provider cannot load: libcublas.so.12 not found", hint="pip install x")
    )
    session = found("CUDA session")
    assert (session.state, session.hint) == ("broken", "pip install x")
    assert "libcublas.so.12" in session.found
    assert found("measuring a GPU").state == "broken"
    assert found("NVIDIA driver").found == "570.86, up to CUDA 12.8"
    ended = CliRunner().invoke(command_line, ["doctor"])
    assert ended.exit_code == 1
    assert "✗ CUDA session" in ended.output


def test_where_nobody_records_the_gpu_operator_times_are_said_to_be_missing(runs: Callable[..., None]) -> None:
    runs(H100, (NODE,))
    assert found("operator times").found == "by CUPTI"
    assert found("measuring a GPU").found == "latency and operators"
    runs(H100, ())
    assert found("operator times").state == "broken"
    assert found("measuring a GPU").found == "latency alone"


@pytest.mark.parametrize(
    ("version", "state", "hint"),
    [
        (None, "absent", 'pip install "onnx-analyzer[torch]"'),
        ("9.9.0", "note", "newer than"),
        ("2.11.0", "works", ""),
    ],
)
def test_pytorch_is_an_extra_of_which_newer_releases_are_a_note(
    runs: Callable[..., None], monkeypatch: pytest.MonkeyPatch, version: str | None, state: str, hint: str
) -> None:
    runs("none")
    monkeypatch.setattr(
        doctor, "installed_version", lambda name: version if name == "torch" else installed_version(name)
    )
    assert found("torch").state == state
    assert hint in found("torch").hint
    models = found("Python and .pt2 models")
    assert (models.state, models.hint) == (("absent", hint) if version is None else ("works", ""))


def test_the_record_of_an_export_by_a_newer_pytorch_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build_record, "installed_version", lambda name: "9.9.0" if name == "torch" else None)

    def messages(exported: bool) -> tuple[str, ...]:
        return build_record.describe(
            measured=None, timings_s={}, cached=False, cpu=device("epyc-9654"), exported=exported
        ).messages

    assert messages(exported=False) == ()
    assert messages(exported=True) == (torch_private.untested("9.9.0"),) != ("",)


def test_a_disturbed_run_is_said_to_be_one(runs: Callable[..., None]) -> None:
    runs("none", busy=True)
    assert found("measuring the CPU").state == "note"
    assert "other processes disturbed it" in found("measuring the CPU").found


@pytest.mark.parametrize(
    ("installed", "state", "words"),
    [
        ({"onnxruntime": "1.31.1", "onnxruntime-gpu": "1.31.1"}, "broken", "over each other"),
        ({}, "broken", "not installed"),
        ({"onnxruntime": "9.9.9"}, "note", "its kernels are not known"),
        ({"onnxruntime-gpu": "1.31.1"}, "works", "1.31.1"),
    ],
)
def test_distributions_of_onnx_runtime_that_exclude_each_other_are_found(
    runs: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
    installed: dict[str, str],
    state: str,
    words: str,
) -> None:
    runs("none")
    real = metadata.version

    def version(name: str) -> str:
        if name.startswith("onnxruntime"):
            if name not in installed:
                raise metadata.PackageNotFoundError(name)
            return installed[name]
        return real(name)

    monkeypatch.setattr(metadata, "version", version)
    (check,) = (one for one in examine() if one.name.startswith("onnxruntime"))
    assert check.state == state
    assert words in check.found
    assert bool(check.hint) == (state != "works")


@pytest.mark.skipif(os.name == "nt" or os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_cannot_be_written_is_named(
    runs: Callable[..., None], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    runs("none")
    tmp_path.chmod(0o500)
    monkeypatch.setenv("ANALYZER_CACHE_DIR", str(tmp_path))
    assert found("exports kept").state == "broken"
    assert "ANALYZER_CACHE_DIR" in found("exports kept").hint


def test_this_machine_runs_the_small_model() -> None:
    ended = CliRunner().invoke(command_line, ["doctor", "--format", "json"])
    checks = {one["name"]: one for one in json.loads(ended.stdout)}
    assert checks["measuring the CPU"]["state"] in ("works", "note")
    assert checks["torch"]["found"] == metadata.version("torch")
    broken = [one for one in checks.values() if one["state"] == "broken"]
    assert ended.exit_code == bool(broken)
