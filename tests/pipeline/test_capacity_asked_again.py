"""A record of capacity: every command reads it, and what is asked again keeps what was not asked anew."""

import json
import math
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from onnx import TensorProto, helper, save

from analyzer import analyze, load_report, plan_capacity
from analyzer.api import analyze_record
from analyzer.cli import run_command_line
from analyzer.errors import RecordError, UsageError
from analyzer.record.analysis import Analysis
from analyzer.record.invocation import command_line

RATE = 20_000.0


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of one product, 64 by 64, at any batch."""
    folder = tmp_path_factory.mktemp("capacity")
    weights = helper.make_tensor("w", TensorProto.FLOAT, [64, 64], [0.5] * 4096)
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        "product",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 64])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 64])],
        [weights],
    )
    save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10), folder / "m.onnx"
    )
    return folder


@pytest.fixture(scope="module")
def planned(folder: Path) -> Analysis:
    """One GPU and one CPU, of each of which there is one instance."""
    asked: Any = {"headroom": "20%", "spare": 1, "growth": 1.5, "max_delay": "0s"}
    return plan_capacity(
        folder / "m.onnx", rate=RATE, p99="5ms", gpu="h200", cpu="altra-q64-30", run=False, **asked
    )


@pytest.fixture
def record(planned: Analysis, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "c.json"
    path.write_text(planned.render("json"), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return path


def looked_at(analysis: Analysis) -> set[tuple[str, str, str]]:
    assert analysis.capacity is not None
    return {(one.provider, one.instance, one.device) for one in analysis.capacity.options}


def test_another_rate_keeps_the_rest_of_the_question_and_the_instances(planned: Analysis) -> None:
    again = plan_capacity(planned, rate=50 * RATE)
    before, after = planned.capacity, again.capacity
    assert before is not None
    assert after is not None
    assert after.rate_per_s == 50 * RATE
    kept = ("percentile", "limit_s", "arrivals", "headroom", "growth", "spare", "max_batch", "max_delay_s")
    assert [getattr(after, name) for name in kept] == [getattr(before, name) for name in kept]
    assert looked_at(again) == looked_at(planned)
    assert {one.device for one in after.options if one.kind == "gpu"} == {"h200"}
    # What one instance takes hangs on no rate; their number is the rate's, with growth and headroom, over it.
    takes = {(one.provider, one.instance): one.highest_rate_per_s for one in before.options}
    for one in after.options:
        highest = takes[one.provider, one.instance]
        assert one.highest_rate_per_s == highest
        assert highest is not None
        assert one.count == math.ceil(50 * RATE * 1.5 * 1.2 / highest) + 1


@pytest.mark.parametrize("headroom", [0.2, 1.5])
def test_the_same_question_asked_of_its_own_record_has_the_same_answer(
    planned: Analysis, headroom: float
) -> None:
    first = plan_capacity(planned, headroom=f"{headroom:.0%}")
    assert first.capacity is not None
    assert first.capacity.headroom == headroom
    assert plan_capacity(first).capacity == first.capacity


def test_another_limit_takes_the_place_of_the_earlier_one(planned: Analysis) -> None:
    again = plan_capacity(planned, mean="2ms").capacity
    assert again is not None
    assert (again.percentile, again.limit_s, again.rate_per_s) == (None, 0.002, RATE)


def test_other_devices_and_all_of_them_can_be_asked_about(planned: Analysis) -> None:
    other = plan_capacity(planned, gpu="rtx-a6000")
    assert {device for _, _, device in looked_at(other)} == {"rtx-a6000", "altra-q64-30"}
    none = plan_capacity(planned, gpu="none")
    assert {device for _, _, device in looked_at(none)} == {"altra-q64-30"}
    # And the next question is about those.
    assert looked_at(plan_capacity(none, rate=1)) == looked_at(none)


def test_a_record_of_another_command_needs_the_whole_question(planned: Analysis) -> None:
    with pytest.raises(UsageError, match="limit of latency is missing"):
        plan_capacity(replace(planned, capacity=None), rate=500)


def test_the_line_that_repeats_it_has_the_whole_question(record: Path) -> None:
    arguments = ["--rate", "900", "--format", "json", "--output", "d.json", "--quiet"]
    assert run_command_line(["capacity", "c.json", *arguments]) == 0
    first = load_report("d.json")
    assert first.invocation is not None
    line = command_line(first.invocation)
    assert "--p99 0.005s" in line
    assert "--gpu h200 --cpu altra-q64-30" in line
    words = shlex.split(line)[1:]
    assert run_command_line([*words, "--format", "json", "--output", "e.json", "--quiet"]) == 0
    assert load_report("e.json").capacity == first.capacity


def test_settings_for_models_of_the_folder_do_not_change_a_record(record: Path) -> None:
    Path("pyproject.toml").write_text('[tool.analyzer]\nbatch = 8\ngpu = "rtx-a6000"\nrate = 1\n')
    assert run_command_line(["capacity", "c.json", "--format", "json", "--output", "d.json", "--quiet"]) == 0
    assert load_report("d.json").capacity == load_report("c.json").capacity


def test_a_trace_that_a_record_names_is_read_only_where_it_is_given(planned: Analysis, tmp_path: Path) -> None:
    trace = tmp_path / "trace.csv"
    trace.write_text("".join(f"{number / 100}\n" for number in range(2000)))
    of_trace = plan_capacity(planned, arrivals=str(trace))
    told = of_trace.capacity
    assert told is not None
    # 2,000 arrivals a hundredth of a second apart: its own 100 a second, not the record's rate.
    assert told.rate_per_s == pytest.approx(100, rel=0.01)
    with pytest.raises(UsageError, match="traffic is that of") as caught:
        plan_capacity(of_trace, rate=900)
    assert "--arrivals trace.csv, or --arrivals poisson" in str(caught.value.hint)
    again = plan_capacity(of_trace, rate=900, arrivals="poisson").capacity
    assert again is not None
    assert (again.rate_per_s, again.arrivals) == (900, "poisson")


def test_a_gpu_that_only_a_record_names_is_no_file_to_read(planned: Analysis) -> None:
    assert planned.capacity is not None
    options = tuple(
        replace(one, device="/etc/passwd.toml") if one.kind == "gpu" else one
        for one in planned.capacity.options
    )
    with pytest.raises(UsageError, match="The catalogue has no GPU"):
        plan_capacity(replace(planned, capacity=replace(planned.capacity, options=options)), rate=900)


def test_a_plan_is_not_decided_anew_beside_its_instances(
    planned: Analysis, record: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(RecordError, match="A record of capacity cannot be decided anew"):
        analyze_record(planned, gpu="a100")
    assert run_command_line(["render", "c.json", "--gpu", "a100", "--format", "json", "--output", "-"]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert "analyze capacity REPORT.json" in said.err
    assert "Traceback" not in said.err


@pytest.mark.parametrize("name", ["html", "json", "text", "markdown", "csv", "junit", "sarif", "github"])
def test_every_format_is_rendered_from_the_record_alone(record: Path, planned: Analysis, name: str) -> None:
    assert run_command_line(["render", "c.json", "--format", name, "--output", "rendered", "--quiet"]) == 0
    assert Path("rendered").read_bytes().decode() == planned.render(name)


def test_check_holds_the_plan_against_its_budgets(record: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told = json.loads(record.read_text())["capacity"]
    option = told["options"][told["best"]]
    dollars = option["high_usd_per_month"]
    # What all but the spare one take, a fifth of it left free.
    least = (option["count"] - 1) * option["low_rate_per_s"] / 1.2
    generous = ["--max-usd-per-month", str(dollars), "--min-rate", str(least)]
    assert run_command_line(["check", "c.json", *generous]) == 0
    tight = ["--max-usd-per-month", "0.01", "--min-rate", "1e12"]
    capsys.readouterr()
    assert run_command_line(["check", "c.json", *tight]) == 1
    out = " ".join(capsys.readouterr().out.split())
    assert "error A608 the dollars a month are above max-usd-per-month $0.01" in out
    assert "error A609 the rate within 5.00 ms is below min-rate 1,000,000,000,000" in out


def test_a_model_and_its_own_record_have_no_budget_of_a_service(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    plain = analyze(folder / "m.onnx", run=False, cpu="altra-q64-30", gpu="h200")
    Path("m.json").write_text(plain.render("json"), encoding="utf-8")
    for checked in (str(folder / "m.onnx"), "m.json"):
        assert run_command_line(["check", checked, "--min-rate", "500"]) == 2
        said = capsys.readouterr().err
        assert "min-rate: this analysis plans no capacity" in said
        assert "analyze capacity" in said


def test_a_baseline_of_a_plan_holds_no_prices(record: Path) -> None:
    assert run_command_line(["check", "c.json", "--update-baseline", "--baseline", "base.json", "--quiet"]) == 0
    assert "usd" not in Path("base.json").read_text()
    assert run_command_line(["check", "c.json", "--baseline", "base.json"]) == 0


def test_compare_reads_two_plans(record: Path, planned: Analysis, capsys: pytest.CaptureFixture[str]) -> None:
    Path("d.json").write_text(plan_capacity(planned, rate=50 * RATE).render("json"), encoding="utf-8")
    assert run_command_line(["compare", "c.json", "d.json"]) == 0
    out = capsys.readouterr().out
    assert "dollars per million requests" in out
    assert "The plans differ in traffic or limit" in out
