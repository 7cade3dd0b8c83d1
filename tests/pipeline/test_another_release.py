"""``--onnxruntime VERSION``: placement, kernels and reasons by another release than the newest."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest

from analyzer import analyze, load_report
from analyzer.api import analyze_record
from analyzer.cli import run_command_line
from analyzer.errors import UsageError
from analyzer.ort.releases_data import REGISTRY_VERSION
from analyzer.pipeline import measure
from analyzer.record.analysis import Analysis

# GlobalAveragePool has a CUDA kernel at opset 22 from 1.25 on (microsoft/onnxruntime, pull request 27733).
OLD, NEW = "1.24.4", "1.25.1"


def pooled(opset: int = 22) -> onnx.ModelProto:
    return onnx.parser.parse_model(
        f'<ir_version: 10, opset_import: ["" : {opset}]> g (float[4,8,16,16] x) => (float[4,8,1,1] y) '
        "{ a = Relu (x) b = GlobalAveragePool (a) y = Sigmoid (b) }"
    )


def placed(analysis: Analysis) -> list[str]:
    return [operator.gpu.placed_on for operator in analysis.operators]


@pytest.mark.parametrize(
    ("asked", "release", "pool"),
    [("1.24", OLD, "cpu"), (OLD, OLD, "cpu"), ("1.25", NEW, "cuda"), (None, REGISTRY_VERSION, "cuda")],
)
def test_operators_are_placed_by_the_release_and_the_record_names_it(
    asked: str | None, release: str, pool: str
) -> None:
    analysis = analyze(pooled(), gpu="l4", run=False, onnxruntime=asked)
    assert placed(analysis) == ["cuda", pool, "cuda"]
    assert analysis.onnxruntime == release


def test_the_opset_that_mends_it_is_the_releases_own() -> None:
    # In 1.24 the kernel of opset 1 serves every opset whose schema is that of 1: to 21, as the next is of 22.
    pool = analyze(pooled(), gpu="l4", run=False, onnxruntime=OLD).operators[1].gpu
    assert (pool.why, pool.kernel_opset) == ("no-kernel-for-opset", 21)


def test_an_unknown_release_is_one_error() -> None:
    with pytest.raises(UsageError, match=r"1\.22"):
        analyze(pooled(), run=False, onnxruntime="1.22")


def test_a_check_finds_what_the_release_lacks_and_what_it_does_not_load(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for opset in (22, 26):
        onnx.save(pooled(opset), tmp_path / f"opset{opset}.onnx")

    def check(opset: int, release: str) -> tuple[int, str]:
        status = run_command_line(["check", str(tmp_path / f"opset{opset}.onnx"), "--onnxruntime", release])
        return status, capsys.readouterr().out

    status, out = check(22, "1.24")
    assert status == 1
    assert "A101 GlobalAveragePool" in out
    assert check(22, "1.25")[0] == 0
    status, out = check(26, "1.24")
    assert status == 1
    assert "A701 ONNX Runtime 1.24.4 loads opsets up to 25" in out
    assert "A701" not in check(26, "1.25")[1]


def test_a_record_is_decided_anew_by_its_own_release(tmp_path: Path) -> None:
    path = tmp_path / "pooled.json"
    path.write_text(analyze(pooled(), gpu="l4", run=False, onnxruntime="1.24").render("json"), encoding="utf-8")
    again = analyze_record(load_report(path), gpu="a100")
    assert placed(again) == ["cuda", "cpu", "cuda"]
    assert again.onnxruntime == OLD


def test_a_record_that_names_no_release_is_decided_anew_by_the_newest(tmp_path: Path) -> None:
    path = tmp_path / "pooled.json"
    text = analyze(pooled(), gpu="l4", run=False, onnxruntime="1.24").render("json")
    path.write_text(text.replace(f'"onnxruntime": "{OLD}"', '"onnxruntime": ""'), encoding="utf-8")
    again = analyze_record(load_report(path), gpu="a100")
    assert placed(again) == ["cuda", "cuda", "cuda"]
    assert again.onnxruntime == REGISTRY_VERSION


def test_the_command_that_asks_again_names_the_release() -> None:
    analysis = analyze(pooled(), gpu="l4", run=False, onnxruntime="1.24")
    assert analysis.invocation.options["onnxruntime"] == ("1.24",)


@pytest.mark.parametrize(("installed", "told"), [("1.31.1", True), ("1.24.1", False)])
def test_measured_times_are_told_to_be_of_the_installed_release(
    monkeypatch: pytest.MonkeyPatch, installed: str, told: bool
) -> None:
    monkeypatch.setattr(measure, "installed_release", lambda: installed)
    analysis = analyze(pooled(), gpu="l4", runs=2, onnxruntime="1.24")
    assert analysis.plan("cpu").origin == "measured"
    assert any(installed in message for message in analysis.environment.messages) is told
    assert placed(analysis) == ["cuda", "cpu", "cuda"]
