"""`analyze apply` as it is typed: files, statuses, and the line that a report ends with."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper

from analyzer.cli import run_command_line
from analyzer.figures import Figure
from analyzer.pipeline.apply.result import Applied, Verified


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["rows", 64])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["rows", 64])
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"], name="relu")], "net", [x], [y])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    onnx.save(model, tmp_path / "net.onnx")
    monkeypatch.setenv("ANALYZER_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_folder_is_named_last_and_what_was_verified_before(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["apply", "net.onnx", "--batch", "3", "--gpu", "l4", "--no-run", "--plan", "gpu", "--output", "out"]
    assert run_command_line(words) == 0
    said = capsys.readouterr().out
    assert said.splitlines()[-1] == "out"
    assert "numbers: verified. Bit for bit" in said
    written = json.loads((folder / "out" / "apply.json").read_text())
    assert (written["plan"], written["batch"], written["nodes"]) == ("gpu", 3, {"relu": "CUDA"})


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["net.onnx"], "--output names the folder"),
        (["net.onnx", "--output", "-"], "--output names the folder"),
        (["net.onnx", "--output", "net.onnx"], "is a file"),
        (["gone.onnx", "--output", "out"], "No such file"),
        (["net.onnx", "--output", "out", "--onnxruntime", "0.9"], "kernels of this release are not known"),
        (["net.onnx", "--output", "out", "--opset", "newest"], "an opset is a whole number"),
    ],
)
def test_bad_input_is_one_error_with_a_hint_and_status_2(
    folder: Path, words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command_line(["apply", *words]) == 2
    said = capsys.readouterr().err
    assert message in said
    assert "hint:" in said
    assert not (folder / "out").exists()


def test_status_1_says_that_something_is_not_as_planned(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong = Verified(numbers=False, reasons={"numbers": "y: off by 3"})
    plan = Applied(
        folder=folder / "out",
        plan="cpu",
        model="net.onnx",
        batch=1,
        opset=20,
        precision="fp32",
        where="a CPU",
        cpu="a-cpu",
        gpu=None,
        nodes={"relu": "CPU"},
        copies=0,
        annotated=0,
        **Figure(value=1.0, low=0.5, high=2.0).keys("latency_s"),
        onnxruntime="1.31.1",
        verified=wrong,
    )
    monkeypatch.setattr("analyzer.cli.reports.call", lambda *_args, **_given: plan)
    assert run_command_line(["apply", "net.onnx", "--output", "out"]) == 1
    assert "numbers: NOT as planned. y: off by 3" in capsys.readouterr().out


def test_the_command_of_a_report_applies_its_plan(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["net.onnx", "--batch", "3,5", "--gpu", "l4,t4", "--no-run", "--pin", "relu=gpu"]
    assert run_command_line([*asked, "--format", "text", "--output", "-"]) == 0
    printed = capsys.readouterr().out.splitlines()
    (line,) = (one for one in printed if one.startswith("To run this plan: "))
    line = line.removeprefix("To run this plan: ")
    assert shlex.split(line)[:3] == ["analyze", "apply", "net.onnx"]
    assert run_command_line(shlex.split(line)[1:]) == 0
    written = json.loads((folder / "deployed" / "net" / "apply.json").read_text())
    assert (written["batch"], written["gpu"], written["plan"]) == (3, "l4", "hybrid")
