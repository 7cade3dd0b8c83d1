"""`analyze capacity` as it is typed: files, statuses, settings, and the command that asks the same again."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import onnx
import pytest
from onnx import TensorProto, helper

from analyzer.cli import run_command_line
from analyzer.record import load_report
from analyzer.record.invocation import command_line

# One instance of each.
FEW = ["--gpu", "h200", "--cpu", "altra-q64-30"]
ASKED = ["--rate", "1000", "--p99", "50ms"]
PRICES = """
[[instances]]
provider = "Ours"
name = "box"
gpu = "h200"
gpu_count = 1
usd_per_hour = 0.01
price_date = "2026-01-01"
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a model, a trace and prices, in which commands are run."""
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["rows", 64])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["rows", 64])
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "net", [x], [y])
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10),
        tmp_path / "net.onnx",
    )
    (tmp_path / "trace.csv").write_text("seconds\n" + "\n".join(f"{number / 100}" for number in range(500)))
    (tmp_path / "our prices.toml").write_text(PRICES)
    monkeypatch.setenv("ANALYZER_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*words: str, into: str = "out/") -> dict[str, Any]:
    """The record of a command that must succeed."""
    assert run_command_line(["capacity", *words, "--quiet", "--format", "json", "--output", into]) == 0
    (path,) = Path(into).glob("*-capacity.json")
    record: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return record


def refused(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """The error of a command that must fail."""
    capsys.readouterr()
    assert run_command_line(["capacity", "net.onnx", "--no-run", *words]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "Traceback" not in captured.err
    assert captured.err.count("error: ") == 1
    assert captured.err.count("hint: ") == 1
    return captured.err


def answer(record: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in record.items() if key not in ("environment", "invocation")}


def again(folder: Path, into: str) -> Sequence[str]:
    """The words of the command by which a record says that it was made."""
    (path,) = (folder / into).glob("*-capacity.json")
    invocation = load_report(path).invocation
    assert invocation is not None
    name, command, *words = shlex.split(command_line(invocation))
    assert (name, command) == ("analyze", "capacity")
    return words


def test_page_and_record_stand_beside_the_models_own(folder: Path) -> None:
    assert run_command_line(["capacity", "net.onnx", "--no-run", "--quiet", *FEW, *ASKED]) == 0
    assert sorted(path.name for path in (folder / "reports").iterdir()) == [
        "net-capacity.html",
        "net-capacity.json",
    ]


def test_the_answer_is_printed_with_instance_number_and_dollars(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["capacity", "net.onnx", "--no-run", *FEW, *ASKED, "--format", "text", "--output", "-"]
    assert run_command_line(words) == 0
    out = capsys.readouterr().out
    option = run("net.onnx", "--no-run", *FEW, *ASKED)["capacity"]["options"][0]
    assert f"{option['count']} x {option['instance']}" in out
    assert f"${option['usd_per_month']:,.0f}" in out


@pytest.mark.parametrize(
    "options",
    [
        ["--rate", "250.5", "--mean", "20ms", "--headroom", "150%", "--growth", "2.5", "--spare", "1",
         "--pricing", "spot", "--region", "europe,asia"],
        ["--rate", "1e5", "--p50", "0.004s", "--max-batch", "8", "--max-delay", "1ms", "--precision", "fp16"],
        ["--arrivals", "trace.csv", "--p95", "5ms", "--prices", "our prices.toml"],
        ["--rate", "1000", "--p90", "5ms", "--arrivals", "poisson", "--batch", "8", "--max-delay", "0"],
    ],
    ids=["room and prices", "batching", "trace", "poisson"],
)  # fmt: skip
def test_the_command_that_a_record_names_gives_that_record(folder: Path, options: list[str]) -> None:
    record = run("net.onnx", "--no-run", *FEW, *options, into="one/")
    words = again(folder, "one")
    repeated = run(*words, into="two/")
    assert answer(repeated) == answer(record)
    assert again(folder, "two") == words


def test_a_record_of_a_model_is_planned_for_and_names_its_command(folder: Path) -> None:
    assert run_command_line(["run", "net.onnx", "--no-run", "--quiet", *FEW, "--output", "reports/"]) == 0
    planned = run("reports/net.json", *FEW, *ASKED, into="one/")
    assert planned["capacity"] == run("net.onnx", "--no-run", *FEW, *ASKED, into="two/")["capacity"]
    assert run(*again(folder, "one"), into="three/")["capacity"] == planned["capacity"]


def test_the_settings_ask_what_is_not_typed(folder: Path) -> None:
    (folder / "pyproject.toml").write_text(
        "[tool.analyzer]\ngpu = 'h200'\ncpu = 'altra-q64-30'\nno-run = true\n"
        "rate = 1000\np99 = '50ms'\nheadroom = 0.25\nspare = 1\nmax-batch = 4\nmax-delay = '0.5ms'\n"
        "growth = 2\narrivals = 'poisson'\n"
    )
    told = run("net.onnx", into="one/")["capacity"]
    names = ("rate_per_s", "percentile", "limit_s", "arrivals", "headroom", "growth", "spare", "max_batch")
    assert [told[name] for name in names] == [1000, 99, 0.05, "poisson", 0.25, 2, 1, 4]
    assert told["max_delay_s"] == pytest.approx(0.0005)
    assert run("net.onnx", "--spare", "0", into="two/")["capacity"]["spare"] == 0
    # Another command leaves them alone.
    assert run_command_line(["run", "net.onnx", "--quiet", "--output", "three/"]) == 0


def test_a_trace_of_the_settings_is_one_of_their_folder(folder: Path) -> None:
    inner = folder / "models"
    inner.mkdir()
    os.replace(folder / "net.onnx", inner / "net.onnx")
    os.replace(folder / "trace.csv", inner / "trace.csv")
    (inner / "pyproject.toml").write_text("[tool.analyzer]\narrivals = 'trace.csv'\n")
    told = run("models/net.onnx", "--no-run", *FEW, "--p99", "50ms")["capacity"]
    # 500 requests, 10 ms apart.
    assert told["rate_per_s"] == pytest.approx(100)
    assert told["arrivals"].endswith("trace.csv")


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["--rate", "0", "--p99", "50ms"], "--rate 0: must be from"),
        (["--rate", "-5", "--p99", "50ms"], "--rate -5"),
        (["--rate", "nan", "--p99", "50ms"], "--rate nan"),
        (["--rate", "many", "--p99", "50ms"], "'many' is not a valid float"),
        (["--p99", "50ms"], "--rate is missing"),
        (["--rate", "500"], "A limit of latency is missing"),
        (["--rate", "500", "--p99", "50ms", "--p50", "5ms"], "Only one limit"),
        (["--rate", "500", "--p99", "50"], "--p99 50: a limit needs a unit"),
        (["--rate", "500", "--p99", "1us", *FEW], "--p99 1us: the quickest batch of all takes"),
        ([*ASKED, "--arrivals", "nowhere.csv"], "--arrivals nowhere.csv: cannot be read"),
        ([*ASKED, "--arrivals", "net.onnx"], "--arrivals net.onnx"),
        ([*ASKED, *FEW, "--spare", "1000"], "--spare 1000"),
        ([*ASKED, "--spare", "-1"], "--spare -1"),
        ([*ASKED, "--max-batch", "0"], "--max-batch 0"),
        ([*ASKED, "--headroom", "-0.1"], "--headroom"),
        ([*ASKED, "--headroom", "20"], "Write 20%; or 2000% where that is meant."),
        ([*ASKED, "--growth", "0"], "--growth 0"),
        ([*ASKED, "--gpu", "l5"], "No device is called 'l5'"),
        ([*ASKED, "--cpu", "l4"], "the NVIDIA L4 is a GPU"),
        ([*ASKED, "--training"], "--training"),
        ([*ASKED, "--slo", "5ms"], "--slo"),
    ],
)
def test_what_cannot_be_asked_is_one_message_with_a_hint_and_status_2(
    folder: Path, capsys: pytest.CaptureFixture[str], words: list[str], problem: str
) -> None:
    assert problem in " ".join(refused(capsys, *words).split())
    assert not (folder / "reports").exists()


def test_a_price_list_in_another_currency_is_refused(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "xyz.toml").write_text('currency = "XYZ"\n' + PRICES)
    assert "'XYZ'" in refused(capsys, *ASKED, "--prices", "xyz.toml")


def test_options_of_a_model_are_refused_beside_a_record(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command_line(["run", "net.onnx", "--no-run", "--quiet", *FEW, "--output", "reports/"]) == 0
    capsys.readouterr()
    assert run_command_line(["capacity", "reports/net.json", *ASKED, "--batch", "8"]) == 2
    assert "--batch changes nothing about a saved report" in capsys.readouterr().err


def test_where_nothing_keeps_the_limit_the_report_says_so_with_status_0(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--rate", "10", "--p99", "3ms", "--max-batch", "8", "--max-delay", "5ms"]
    assert run("net.onnx", "--no-run", *FEW, *words)["capacity"]["best"] is None
    assert (
        run_command_line(
            ["capacity", "net.onnx", "--no-run", *FEW, *words, "--format", "text", "--output", "-"]
        )
        == 0
    )
    assert "wait up to 5.00 ms for their batch to fill" in " ".join(capsys.readouterr().out.split())
