"""The gate over a fleet: every model by its own record, one file of each format."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from xml.etree import ElementTree as ET

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from analyzer.cli import run_command_line
from analyzer.record.analysis import Tool
from analyzer.record.encoding import fleet_to_json
from analyzer.record.fleet import Fleet, FleetFailure, FleetModel

# MaxPool of opset 22 has no CUDA kernel.
OPSETS = {"falls": 22, "stays": 21}


def stem(opset: int) -> onnx.ModelProto:
    weights = numpy_helper.from_array(np.zeros((8, 3, 3, 3), dtype=np.float32), "w")
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], name="first", pads=[1, 1, 1, 1]),
        helper.make_node("MaxPool", ["c"], ["p"], name="pool", kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Relu", ["p"], ["y"], name="relu"),
    ]
    graph = helper.make_graph(
        nodes,
        "stem",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [4, 3, 16, 16])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [4, 8, 8, 8])],
        [weights],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)


def row(name: str, failure: FleetFailure | None = None) -> FleetModel:
    return FleetModel(name=name, reference=f"zoo/{name}.onnx", failure=failure)


NO_PACKAGE = FleetFailure(kind="error", message="The file needs the package timm.", hint="Install timm.")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Both models' records, and a fleet of them."""
    path = tmp_path_factory.mktemp("fleet")
    for name, opset in OPSETS.items():
        onnx.save(stem(opset), path / f"{name}.onnx")
        target = str(path / f"{name}.json")
        run_command_line(["check", str(path / f"{name}.onnx"), "--format", "json", "--output", target])
    return path


@pytest.fixture
def folder(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GITHUB_STEP_SUMMARY", raising=False)
    for name in OPSETS:
        shutil.copy(made / f"{name}.json", tmp_path)
    write(tmp_path, row("falls"), row("stays"))
    return tmp_path


def write(folder: Path, *models: FleetModel, left: int = 0) -> None:
    fleet = Fleet(models=models, devices=(), left=left, tool=Tool(name="onnx-analyzer", version="1"))
    (folder / "fleet.json").write_text(fleet_to_json(fleet), encoding="utf-8")


def check(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    status = run_command_line(["check", *map(str, arguments)])
    captured = capsys.readouterr()
    return status, captured.out, captured.err


def test_one_model_that_fails_fails_the_fleet_and_each_is_told_as_it_is_alone(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    alone = check(capsys, "falls.json")[1]
    status, out, _ = check(capsys, "fleet.json")
    assert status == 1
    assert alone in out
    assert out.splitlines()[-1].startswith("failed in 1 model: ")
    assert out.splitlines()[-1].endswith("(fleet.json, 2 models)")
    write(folder, row("stays"))
    status, out, _ = check(capsys, "fleet.json")
    assert status == 0
    assert out.splitlines()[-1].startswith("passed: ")


def test_sarif_has_one_run_with_the_results_of_all_models(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(folder, row("falls"), row("stays"), row("gone", NO_PACKAGE))
    status, out, _ = check(capsys, "fleet.json", "--format", "sarif")
    assert status == 1
    (run,) = json.loads(out)["runs"]
    assert run["properties"]["models"] == ["falls", "stays", "gone"]
    by_model: dict[str, list[str]] = {}
    for result in run["results"]:
        by_model.setdefault(result["properties"]["model"], []).append(result["ruleId"])
        assert result["message"]["text"].startswith(f"{result['properties']['model']}: ")
    assert "A101" in by_model["falls"]
    assert "A101" not in by_model["stays"]
    assert by_model["gone"] == ["A703"]
    gone = next(result for result in run["results"] if result["ruleId"] == "A703")
    assert gone["message"]["text"] == "gone: The file needs the package timm. Fix: Install timm."
    place = gone["locations"][0]["physicalLocation"]["artifactLocation"]
    assert place == {"uri": "zoo/gone.onnx", "uriBaseId": "%SRCROOT%"}
    assert run["tool"]["driver"]["rules"][gone["ruleIndex"]]["id"] == "A703"
    prints = [result["partialFingerprints"]["operator/v1"] for result in run["results"]]
    assert len(set(prints)) == len(prints)


def test_junit_has_a_suite_for_each_model(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(folder, row("falls"), row("stays"), row("gone", NO_PACKAGE))
    _, out, _ = check(capsys, "fleet.json", "--format", "junit")
    root = ET.fromstring(out)
    suites = root.findall("testsuite")
    assert [suite.attrib["name"].split()[-1] for suite in suites] == ["falls", "stays", "gone"]
    failures = [int(suite.attrib["failures"]) for suite in suites]
    assert failures[1] == 0
    assert failures[2] == 1
    assert int(root.attrib["failures"]) == sum(failures)
    assert int(root.attrib["tests"]) == sum(int(suite.attrib["tests"]) for suite in suites)


def test_github_gets_commands_of_all_models_and_one_summary(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", "summary.md")
    write(folder, row("falls"), row("stays"), row("gone", NO_PACKAGE))
    _, out, _ = check(capsys, "fleet.json", "--format", "github")
    errors = [line for line in out.splitlines() if line.startswith("::error ")]
    assert any("falls: " in line for line in errors)
    assert any(line.startswith("::error file=zoo/gone.onnx,title=A703") for line in errors)
    summary = (folder / "summary.md").read_text()
    assert summary.startswith("# Analyzer check of 3 models: failed in 2 models")
    assert "| stays | passed |" in summary
    assert "## Analyzer check of falls: failed" in summary
    assert "## Analyzer check of stays" not in summary


def test_several_formats_are_files_named_after_the_fleet(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, _, _ = check(capsys, "fleet.json", "--format", "sarif,junit,text,markdown", "--output", "out/")
    assert status == 1
    assert {path.suffix for path in (folder / "out").iterdir()} == {".sarif", ".xml", ".txt", ".md"}
    assert {path.name.split(".")[0] for path in (folder / "out").iterdir()} == {"fleet"}


def test_what_settings_ignore_or_raise_holds_for_all_models(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(folder, row("stays"), row("gone", NO_PACKAGE))
    assert check(capsys, "fleet.json")[0] == 1
    status, out, _ = check(capsys, "fleet.json", "--ignore", "A703")
    assert status == 0
    assert "ignored: A703" in out
    assert check(capsys, "fleet.json", "--fail-on", "never")[0] == 0
    status, out, _ = check(capsys, "fleet.json", "--ignore", "A703", "--format", "sarif")
    (set_aside,) = (one for one in json.loads(out)["runs"][0]["results"] if one["ruleId"] == "A703")
    assert set_aside["suppressions"][0]["status"] == "accepted"
    status, out, _ = check(capsys, "fleet.json", "--ignore", "A703", "--max-latency", "1ns")
    assert status == 1
    assert "A60" in out


def test_models_that_are_not_done_are_told(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(folder, row("stays"), left=3)
    _, out, _ = check(capsys, "fleet.json")
    assert out.splitlines()[-1].endswith("(fleet.json, 1 model; 3 models not done yet)")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--format", "json"], "--format json is about one model"),
        (["--format", "html"], "--format html is about one model"),
        (["--baseline", "falls.json"], "falls.json would be the baseline of 2 models"),
        (["--gpu", "t4"], "--gpu changes nothing about a saved report"),
    ],
)
def test_what_is_about_one_model_is_refused(
    folder: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    status, _, err = check(capsys, "fleet.json", *arguments)
    assert status == 2
    assert message in err


def test_a_record_that_is_missing_is_one_error_before_any_is_judged(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(folder, row("stays"), row("lost"))
    status, out, err = check(capsys, "fleet.json")
    assert (status, out) == (2, "")
    assert "there is no record lost.json, which the fleet names" in err


def test_a_name_that_leaves_the_folder_is_refused(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    inner = folder / "inner"
    inner.mkdir()
    write(inner, row("../stays"))
    status, _, err = check(capsys, "inner/fleet.json")
    assert status == 2
    assert "is no name of a fleet's model" in err


def test_names_of_strangers_stay_text(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bad = FleetFailure(kind="error", message="\x1b[31m::error::boom\n::error::more", hint="")
    write(folder, row("::error::x", bad))
    for name in ("text", "markdown", "github", "junit", "sarif"):
        _, out, _ = check(capsys, "fleet.json", "--format", name)
        assert "\x1b" not in out
        lines = out.splitlines()
        assert sum(line.lstrip().startswith("::") for line in lines) == (1 if name == "github" else 0)


def test_a_folder_of_one_models_record_is_checked_as_before(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert check(capsys, "stays.json")[0] == 0
    assert check(capsys, "falls.json")[0] == 1
