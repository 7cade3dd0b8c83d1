"""``--onnxruntime VERSION``: placement, kernels and reasons by another release than the newest."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest

from analyzer import analyze, load_report
from analyzer.api import analyze_record
from analyzer.cli import run_command_line
from analyzer.errors import UsageError
from analyzer.ort.kernels import REGISTRY_VERSION
from analyzer.pipeline import measure
from analyzer.record.analysis import Analysis

# LpNormalization has a CUDA kernel of bfloat16 from 1.30 on (the releases' own listings).
OLD, NEW = "1.29.0", "1.30.0"


def normed() -> onnx.ModelProto:
    return onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["" : 22]> g (bfloat16[4,8] x) => (bfloat16[4,8] y) '
        "{ a = Relu (x) b = LpNormalization (a) y = Sigmoid (b) }"
    )


def placed(analysis: Analysis) -> list[str]:
    return [operator.gpu.placed_on for operator in analysis.operators]


@pytest.mark.parametrize(
    ("asked", "release", "norm"),
    [("1.29", OLD, "cpu"), (OLD, OLD, "cpu"), ("1.30", NEW, "cuda"), (None, REGISTRY_VERSION, "cuda")],
)
def test_operators_are_placed_by_the_release_and_the_record_names_it(
    asked: str | None, release: str, norm: str
) -> None:
    analysis = analyze(normed(), gpu="l4", run=False, onnxruntime=asked)
    assert placed(analysis) == ["cuda", norm, "cuda"]
    assert analysis.onnxruntime == release


def test_an_unknown_release_is_one_error() -> None:
    with pytest.raises(UsageError, match=r"1\.27"):
        analyze(normed(), run=False, onnxruntime="1.27")


def test_a_check_finds_what_the_release_lacks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    onnx.save(normed(), tmp_path / "normed.onnx")

    def check(release: str) -> tuple[int, str]:
        status = run_command_line(["check", str(tmp_path / "normed.onnx"), "--onnxruntime", release])
        return status, capsys.readouterr().out

    status, out = check("1.29")
    assert status == 1
    assert "A104 ONNX Runtime cannot create a se" in out
    assert check("1.30")[0] == 0


def test_a_record_is_decided_anew_by_its_own_release(tmp_path: Path) -> None:
    path = tmp_path / "normed.json"
    path.write_text(analyze(normed(), gpu="l4", run=False, onnxruntime="1.29").render("json"), encoding="utf-8")
    again = analyze_record(load_report(path), gpu="a100")
    assert placed(again) == ["cuda", "cpu", "cuda"]
    assert again.onnxruntime == OLD


def test_a_record_that_names_no_release_is_decided_anew_by_the_newest(tmp_path: Path) -> None:
    path = tmp_path / "normed.json"
    text = analyze(normed(), gpu="l4", run=False, onnxruntime="1.29").render("json")
    path.write_text(text.replace(f'"onnxruntime": "{OLD}"', '"onnxruntime": ""'), encoding="utf-8")
    again = analyze_record(load_report(path), gpu="a100")
    assert placed(again) == ["cuda", "cuda", "cuda"]
    assert again.onnxruntime == REGISTRY_VERSION


def test_the_command_that_asks_again_names_the_release() -> None:
    analysis = analyze(normed(), gpu="l4", run=False, onnxruntime="1.29")
    assert analysis.invocation.options["onnxruntime"] == ("1.29",)


@pytest.mark.parametrize(("installed", "told"), [("1.31.1", True), ("1.29.2", False)])
def test_measured_times_are_told_to_be_of_the_installed_release(
    monkeypatch: pytest.MonkeyPatch, installed: str, told: bool
) -> None:
    monkeypatch.setattr(measure, "installed_release", lambda: installed)
    # No release's CPU provider has a kernel for the other model's bfloat16.
    rectified = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["" : 22]> g (float[4,8] x) => (float[4,8] y) { y = Relu (x) }'
    )
    analysis = analyze(rectified, gpu="l4", runs=2, onnxruntime="1.29")
    assert analysis.plan("cpu").origin == "measured"
    assert any(installed in message for message in analysis.environment.messages) is told
