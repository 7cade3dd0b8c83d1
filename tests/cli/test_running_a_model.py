"""``analyze MODEL`` from the command line to the files, as a user runs it."""

from __future__ import annotations

import json
import textwrap
from pathlib import Path
from typing import Any

import pytest

from analyzer.cli import run_command_line

MODEL = """
    import torch
    from torch import nn

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.first = nn.Linear(64, 32)
            self.second = nn.Linear(32, 8)

        def forward(self, x):
            return self.second(torch.relu(self.first(x)))

    def example_inputs(batch=4):
        return torch.randn(batch, 64)
"""


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cache: Path) -> Path:
    monkeypatch.setenv("ANALYZER_CACHE_DIR", str(cache))
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "net.py"
    path.write_text(textwrap.dedent(MODEL))
    return path


def static(*arguments: object) -> int:
    return run_command_line([*map(str, arguments), "--no-run", "--quiet"])


def test_a_page_and_a_record_are_written_under_reports(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert static(model) == 0
    assert capsys.readouterr().out.split() == ["reports/net.html", "reports/net.json"]
    assert (tmp_path / "reports" / "net.html").read_text().lstrip().lower().startswith("<!doctype html>")


def test_the_record_counts_what_can_be_derived_by_hand(model: Path, tmp_path: Path) -> None:
    static(model, "--batch", 16, "--output", "out.json", "--format", "json")
    record = json.loads((tmp_path / "out.json").read_text())
    # Two products with bias: 2*16*64*32 + 16*32 and 2*16*32*8 + 16*8; one Relu of 16*32.
    assert record["totals"]["macs"] == 16 * 64 * 32 + 16 * 32 * 8
    assert record["totals"]["flops"] == 2 * record["totals"]["macs"] + 16 * 32 + 16 * 8 + 16 * 32
    assert record["model"]["parameters"] == 64 * 32 + 32 + 32 * 8 + 8
    assert record["model"]["batch"] == 16
    assert [operator["module"] for operator in record["operators"]][:1] == ["first"]
    assert record["operators"][0]["source"]["code"] == "return self.second(torch.relu(self.first(x)))"


def test_two_static_records_differ_in_their_environment_alone(model: Path, tmp_path: Path) -> None:
    for name in ("one.json", "two.json"):
        static(model, "--output", name, "--format", "json", *(["--no-cache"] if name == "two.json" else []))
    one, two = (json.loads((tmp_path / name).read_text()) for name in ("one.json", "two.json"))
    one.pop("environment")
    two.pop("environment")
    assert json.dumps(one) == json.dumps(two)


def test_a_run_measures_the_cpu_and_predicts_the_gpu_and_has_the_operators_of_a_static_analysis(
    model: Path, tmp_path: Path
) -> None:
    status = run_command_line(
        [str(model), "--quiet", "--runs", "5", "--output", "out.json", "--format", "json", "--gpu", "t4"]
    )
    assert status == 0
    record = json.loads((tmp_path / "out.json").read_text())
    plans = {plan["name"]: plan for plan in record["plans"]}
    assert plans["cpu"]["origin"] == "measured"
    assert plans["gpu"]["origin"] == "predicted"
    measured = [operator["cpu"] for operator in record["operators"] if operator["cpu"]["time_s"] is not None]
    # What ran fused with others has its share of what was measured.
    assert {item["origin"] for item in measured} <= {"measured", "mixed"}
    # Operator times add up to the latency of the plan.
    assert sum(item["time_s"] for item in measured) == pytest.approx(plans["cpu"]["latency_s"], rel=0.03)
    assert all(row["agrees"] for row in record["environment"]["measurement"]["agreement"])
    static(model, "--output", "static.json", "--format", "json")

    def untimed(name: str) -> list[dict[str, Any]]:
        record = json.loads((tmp_path / name).read_text())
        keys = ("name", "op_type", "module", "source", "inputs", "outputs", "flops", "bytes_read", "basis")
        return [{key: operator[key] for key in keys} for operator in record["operators"]]

    assert untimed("static.json") == untimed("out.json")


def test_without_a_gpu_there_is_one_plan_and_no_gpu_anywhere(model: Path, tmp_path: Path) -> None:
    static(model, "--gpu", "none", "--output", "out.json", "--format", "json")
    record = json.loads((tmp_path / "out.json").read_text())
    assert [plan["name"] for plan in record["plans"]] == ["cpu"]
    assert record["devices"]["gpu"] is None
    assert {json.dumps(operator["gpu"]) for operator in record["operators"]} == {"null"}
    assert record["verdict"]["device"] == "cpu"


def test_one_format_on_standard_output_is_the_report_alone(
    model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert static(model, "--format", "json", "--output", "-") == 0
    json.loads(capsys.readouterr().out)


def test_a_saved_record_renders_to_the_page_that_was_written_at_once(model: Path, tmp_path: Path) -> None:
    static(model)
    page = (tmp_path / "reports" / "net.html").read_text()
    assert run_command_line(["render", "reports/net.json", "--output", "again.html", "--quiet"]) == 0
    assert (tmp_path / "again.html").read_text() == page


def test_options_can_stand_in_pyproject(model: Path, tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text('[tool.analyzer]\ngpu = "t4"\nbatch = 32\n')
    static(model, "--output", "out.json", "--format", "json")
    record = json.loads((tmp_path / "out.json").read_text())
    assert (record["devices"]["gpu"]["slug"], record["model"]["batch"]) == ("t4", 32)
    static(model, "--batch", 2, "--output", "out.json", "--format", "json")
    assert json.loads((tmp_path / "out.json").read_text())["model"]["batch"] == 2


# Bad input: one message, a hint, exit status 2, no traceback, nothing half-written.


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nothing.py"], "No such file"),
        (["net.py", "--batch", "0"], "--batch 0"),
        (["net.py", "--batch", "-1"], "--batch -1"),
        (["net.py", "--batch", "many"], "--batch many"),
        (["net.py", "--gpu", "a10000"], "No device is called"),
        (["net.py", "--precision", "fp13"], "--precision fp13"),
        (["net.py", "--objective", "speed"], "--objective speed"),
        (["net.py", "--format", "pdf"], "pdf"),
        (["net.py", "--input", "x"], "--input x"),
        (["net.py", "--input", "y=B,64"], "takes no input y"),
        (["net.py", "--input", "x=B,64=2..1"], "ends with 1, below its start"),
        (["net.py", "--input", "x=B,64:uint8=300"], "uint8 cannot hold 300"),
        (["net.py", "--input", "x=B,63"], r"\[4, 63\]|\[1, 63\]"),
        (["net.py", "--pin", "first"], "first"),
        (["net.py:Missing"], "there is no Missing"),
        (["net.py", "--opset", "99"], "--opset 99"),
        (["net.py", "--onnxruntime", "1.23"], r"1\.23.*not known"),
        (["net.py", "--slo", "soon"], "soon"),
        (["net.py", "--threads", "5000"], "--threads 5000.*at once"),
        (["net.py", "--threads", "49", "--cpu", "xeon-platinum-8260"], "runs 48 at once"),
        (["net.py", "--no-such-option"], "No such option"),
        (["render", "missing.json"], "No such file"),
        (["render", "missing.json", "--batch", "3"], "No such option"),
        ([], "Usage|Missing"),
    ],
)
def test_bad_input_is_one_message_with_a_hint(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    import re

    status = run_command_line([*arguments, *(["--no-run"] if arguments and arguments[0] != "render" else [])])
    said = capsys.readouterr()
    assert status == 2
    assert re.search(message, said.err + said.out)
    assert "Traceback" not in said.err
    assert not (tmp_path / "reports").exists()


def test_a_nearest_gpu_is_suggested(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert static(model, "--gpu", "rtx-3080-10g") == 2
    assert "rtx-3080-10gb" in capsys.readouterr().err


def test_an_output_folder_that_cannot_be_made_is_said_before_the_model_is_loaded(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "net.py").write_text("raise RuntimeError('loaded')")
    assert static(model, "--output", "file/page.html", "--format", "html") == 2
    said = capsys.readouterr().err
    assert "cannot be written" in said
    assert "loaded" not in said


def test_a_truncated_onnx_file_is_refused(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "cut.onnx").write_bytes(b"\x08\x0a\x12\x07pytorch\x1a\xff")
    assert static("cut.onnx") == 2
    assert "Traceback" not in capsys.readouterr().err


def test_a_damaged_record_and_one_of_a_newer_schema_are_refused(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    static(model)
    record = (tmp_path / "reports" / "net.json").read_text()
    (tmp_path / "cut.json").write_text(record[: len(record) // 2])
    assert run_command_line(["render", "cut.json"]) == 2
    assert "no valid JSON" in capsys.readouterr().err
    newer = json.loads(record) | {"schema_version": 999}
    (tmp_path / "newer.json").write_text(json.dumps(newer))
    assert run_command_line(["render", "newer.json"]) == 2
    assert "schema 999" in capsys.readouterr().err


def test_memory_that_would_not_be_enough_is_foreseen(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "huge.py").write_text(
        textwrap.dedent("""
        import torch
        from torch import nn
        def build_model(): return nn.Sequential(nn.Linear(300_000, 300_000), nn.Linear(300_000, 1))
        def example_inputs(batch=1): return torch.zeros(batch, 300_000)
        """)
    )
    assert run_command_line(["huge.py", "--quiet"]) == 2
    said = capsys.readouterr().err
    assert "--no-run" in said
    assert not (tmp_path / "reports").exists()


def test_an_interrupt_leaves_no_partial_report(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("analyzer.record.formats.Format.write", interrupted)
    assert static(model) == 130
    assert not list((tmp_path).glob("reports/*"))


def test_a_fault_of_the_program_has_its_own_status_and_traceback(
    model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*_: Any) -> None:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr("analyzer.record.formats.Format.write", broken)
    assert static(model) == 3
    assert "ZeroDivisionError: a bug" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [["net.py", "--slo", "50"], ["check", "net.py", "--slo", "50"], ["render", "net.json", "--slo", "50"],
     ["generate", "config.json", "--ttft", "50"], ["generate", "config.json", "--tpot", "50"]],
)  # fmt: skip
def test_a_limit_without_a_unit_is_refused(
    model: Path, capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    if arguments[0] == "render":
        assert static(model, "--format", "json", "--output", "net.json") == 0
        capsys.readouterr()
    assert run_command_line(arguments) == 2
    out, err = capsys.readouterr()
    assert not out
    assert f"{arguments[-2]} 50: a limit needs a unit" in err
    assert "write 50ms or 50s" in err
