from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from checks_factory import analysis, operator, plan, stem

from analyzer import analyze
from analyzer.checks import fails, judge, run
from analyzer.checks.baseline import baseline_of
from analyzer.checks.settings import CheckSettings, Ignore
from analyzer.errors import UsageError
from analyzer.record.analysis import Analysis, Environment, Tool, Where
from analyzer.record.baseline import Baseline, baseline_to_json
from analyzer.record.invocation import Invocation


def found(code: str, toy: Analysis, before: Analysis | None = None, **settings: Any) -> list[Any]:
    baseline = None if before is None else baseline_of(before)
    findings = run(toy, CheckSettings(**settings), baseline=baseline)
    return [finding for finding in findings if finding.code == code]


@pytest.mark.parametrize(
    ("limit", "severity"),
    [
        (0.9e-3, "error"),  # Below the whole interval, 1 to 4 ms.
        (1.5e-3, "warning"),  # Inside it, below the expected 2 ms.
        (3e-3, "warning"),  # Inside it, above.
        (4.1e-3, None),  # Above it.
    ],
)
def test_a_latency_budget_fails_only_where_the_whole_interval_is_above_it(
    limit: float, severity: str | None
) -> None:
    toy = analysis(operator("Relu", ["x"], ["y"]), gpu_s=2e-3)
    findings = found("A601", toy, max_latency_s={"": limit})
    assert [finding.severity for finding in findings] == ([severity] if severity else [])


def test_an_uncertain_finding_is_an_error_when_told_to() -> None:
    toy = analysis(operator("Relu", ["x"], ["y"]), gpu_s=2e-3)
    (finding,) = found("A601", toy, max_latency_s={"": 1.5e-3}, fail_on_uncertain=True)
    assert finding.severity == "error"


def test_making_a_code_an_error_does_not_make_an_uncertain_finding_one() -> None:
    toy = analysis(operator("Relu", ["x"], ["y"]), cpu_s=9e-4, gpu_s=1e-3)
    (finding,) = found("A203", toy, raise_to_error=("A203",))
    assert finding.severity == "warning"
    sure = analysis(operator("Relu", ["x"], ["y"]), cpu_s=1e-4, gpu_s=1e-3)
    assert found("A203", sure, raise_to_error=("A2",))[0].severity == "error"


def test_the_target_is_the_gpu_where_there_is_one_and_a_plan_can_be_named() -> None:
    toy = analysis(operator("Relu", ["x"], ["y"]), cpu_s=1e-2, gpu_s=1e-3)
    assert found("A601", toy, max_latency_s={"": 4.5e-3}) == []
    (finding,) = found("A601", toy, max_latency_s={"cpu": 4.5e-3})
    assert "CPU plan" in finding.message
    assert abs(finding.seconds - 5.5e-3) < 1e-12


def test_a_budget_for_a_plan_that_is_not_there_is_an_error_of_the_settings() -> None:
    toy = analysis(operator("Relu", ["x"], ["y"]))
    toy = replace(toy, plans=toy.plans[:1])
    with pytest.raises(UsageError, match="no plan 'gpu'"):
        run(toy, CheckSettings(max_latency_s={"gpu": 1.0}))


def test_budgets_of_cpu_operators_and_copies_count_what_the_stem_has() -> None:
    assert len(found("A602", stem(23), max_cpu_operators=0)) == 1
    assert found("A602", stem(23), max_cpu_operators=1) == []
    (finding,) = found("A603", stem(23), max_copies=1)
    assert finding.bytes == 3_211_264 + 802_816
    assert found("A603", stem(23), max_copies=2) == []


def test_the_same_analysis_as_baseline_shows_no_rise() -> None:
    assert found("A611", stem(23), stem(23)) == found("A612", stem(23), stem(23)) == []


def test_an_operator_that_moves_to_the_cpu_is_one_error_that_says_what_rose() -> None:
    # A kernel of 20 us on the GPU became 800 us on the CPU and 400 us of copies.
    before, after = stem(21, gpu_s=2e-3), stem(23, gpu_s=3.18e-3)
    errors = [one for one in run(after, baseline=baseline_of(before)) if one.severity == "error"]
    (error,) = errors
    assert (error.code, error.operator) == ("A101", 2)
    assert "2 copies between CPU and GPU, 4.01 MB in 400 µs" in error.message
    assert "since the baseline the latency of the CUDA session rose from 2.00 ms to 3.18 ms" in error.message
    assert "the copies inside the graph rose from 0 to 2" in error.message


def test_where_the_operator_is_set_aside_the_rise_stays_an_error_of_its_own() -> None:
    ignore = (Ignore(code="A101", reason="small"),)
    (finding,) = found("A611", stem(23), stem(21), ignore=ignore)
    assert (finding.severity, finding.operator) == ("error", 2)
    assert finding.message == "the copies inside the graph rose from 0 to 2; most by MaxPool of maxpool"


def test_an_operator_that_was_on_the_cpu_before_is_no_cause_of_a_rise() -> None:
    slower = replace(stem(23), plans=(plan("cpu", 1e-2), plan("gpu", 5e-3, stem(23).plans[1].transfers.items)))
    findings = run(slower, baseline=baseline_of(stem(23)))
    assert [one.code for one in findings if one.severity == "error"] == ["A101", "A611"]
    assert "since the baseline" not in findings[0].message


def linear(first: int, second: int, **changes: Any) -> Analysis:
    """Two layers whose FLOPs are given; each moves a byte a FLOP."""
    layers = [("fc1", "x", "m", first, 11), ("fc2", "m", "y", second, 12)]
    return analysis(
        *(
            operator(
                "MatMul",
                [into, "w"],
                [out],
                module=module,
                flops=flops,
                bytes_read=flops,
                bytes_written=0,
                source=Where(file="net.py", line=line, code=f"self.{module}(x)"),
            )
            for module, into, out, flops, line in layers
        ),
        **changes,
    )


def test_flops_bytes_and_latency_that_rise_together_are_one_finding_at_what_rose_most() -> None:
    (finding,) = found("A611", linear(1100, 1500, gpu_s=3e-3), linear(1000, 1000, gpu_s=2e-3))
    assert (finding.operator, finding.severity) == (1, "error")
    assert finding.message == (
        "the latency of the CUDA session rose from 2.00 ms to 3.00 ms, the bytes moved rose from 2.00 kB to "
        "2.60 kB and the FLOPs rose from 2.00 kFLOP to 2.60 kFLOP; most by MatMul of fc2 and MatMul of fc1"
    )
    assert (round(finding.seconds, 9), finding.bytes) == (1e-3, 600)


def test_a_rise_within_the_tolerance_is_no_finding() -> None:
    before, after = linear(1000, 1000), linear(1100, 1500)
    assert found("A611", after, before, tolerance=0.3) == []
    assert len(found("A611", after, before, tolerance=0.29)) == 1


def test_a_model_that_shrank_fails_only_where_that_is_requested() -> None:
    before, after = linear(1000, 1000, gpu_s=2e-3), linear(1000, 400, gpu_s=1e-3)
    assert found("A613", after, before) == []
    (finding,) = found("A613", after, before, fail_on_better=True)
    assert (finding.severity, finding.operator) == ("error", None)
    assert finding.message == (
        "the latency of the CUDA session fell from 2.00 ms to 1.00 ms, the bytes moved fell from 2.00 kB to "
        "1.40 kB and the FLOPs fell from 2.00 kFLOP to 1.40 kFLOP"
    )
    assert "--update-baseline" in finding.fix
    assert found("A613", before, after, fail_on_better=True) == []  # a rise is A611's
    assert found("A613", before, before, fail_on_better=True) == []


def of_weights(size: int) -> Analysis:
    """A model that reads two rows of a table, however many it has."""
    toy = linear(1000, 1000)
    return replace(toy, model=replace(toy.model, parameter_bytes=size))


def test_weights_that_grew_are_a_rise_though_no_operator_moves_more() -> None:
    before, after = of_weights(4000), of_weights(8000)  # twice the rows
    (finding,) = found("A611", after, before)
    assert (finding.severity, finding.operator, finding.bytes) == ("error", None, None)
    assert finding.message == "the weights rose from 4.00 kB to 8.00 kB"
    assert found("A611", after, before, tolerance=1.0) == found("A611", before, after) == []
    (finding,) = found("A613", before, after, fail_on_better=True)
    assert (finding.severity, finding.message) == ("error", "the weights fell from 8.00 kB to 4.00 kB")


def test_a_baseline_of_before_its_weights_were_written_compares_the_rest() -> None:
    old = baseline_of(of_weights(4000))
    old = replace(old, figures={key: value for key, value in old.figures.items() if key != "parameter_bytes"})
    assert [one.code for one in run(of_weights(8000), baseline=old) if one.code.startswith("A61")] == []


def test_a_fall_within_the_tolerance_is_no_finding() -> None:
    before, after = linear(1000, 1000), linear(1000, 400)  # 30 % fewer FLOPs and bytes
    assert found("A613", after, before, fail_on_better=True, tolerance=0.3) == []
    assert len(found("A613", after, before, fail_on_better=True, tolerance=0.29)) == 1


def test_a_measured_latency_that_fell_is_certain_only_outside_the_intervals() -> None:
    before, after = (analysis(operator("Relu", ["x"], ["y"]), gpu_s=time) for time in (2.2e-3, 2e-3))
    (finding,) = found("A613", after, before, fail_on_better=True)
    assert (finding.severity, finding.certain) == ("error", True)
    measured = replace(after, plans=(after.plans[0], plan("gpu", 2e-3, origin="measured"), after.plans[2]))
    (finding,) = found("A613", measured, before, fail_on_better=True)
    assert (finding.severity, finding.certain) == ("warning", False)


def test_a_rise_is_placed_on_the_line_that_changed() -> None:
    def placed(*hunks: list[int]) -> tuple[Any, Any]:
        changed = tuple(tuple(Where(file="net.py", line=at, code="n = 2") for at in hunk) for hunk in hunks)
        baseline = baseline_of(linear(1000, 1000))
        findings = judge(linear(1100, 1500), baseline=baseline, changed=changed).findings
        (finding,) = (one for one in findings if one.code == "A611")
        return finding.operator, finding.source and finding.source.line

    assert placed() == (1, None)  # Git knows nothing: what rose most.
    assert placed([3], [11]) == (0, None)  # An operator of those that rose is on a changed line.
    assert placed([3, 4]) == (1, 3)  # The only change is elsewhere.
    assert placed([3], [5]) == (1, None)  # Which of two it was is not known.


def test_a_rise_between_two_predictions_is_certain_and_a_measured_one_only_outside_the_intervals() -> None:
    before, after = (analysis(operator("Relu", ["x"], ["y"]), gpu_s=time) for time in (2e-3, 2.2e-3))
    (finding,) = found("A611", after, before)
    assert (finding.severity, finding.certain) == ("error", True)
    measured = replace(after, plans=(after.plans[0], plan("gpu", 2.2e-3, origin="measured"), after.plans[2]))
    (finding,) = found("A611", measured, before)
    assert (finding.severity, finding.certain) == ("warning", False)
    assert found("A611", before, after) == []


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"tool": Tool(name="analyze", version="0.0.1")}, "which is of analyze 0.0.1 (now 0)"),
        ({"onnxruntime": "1.30.0"}, "which is of ONNX Runtime 1.30.0"),
    ],
)
def test_figures_that_moved_since_another_version_are_one_note(change: dict[str, Any], words: str) -> None:
    baseline = replace(baseline_of(linear(1000, 2000)), **change)
    findings = run(linear(1100, 1500), baseline=baseline)
    (note,) = (one for one in findings if one.code.startswith("A61"))
    assert (note.code, note.severity) == ("A612", "note")
    assert "the FLOPs fell from 3.00 kFLOP to 2.60 kFLOP since the baseline" in note.message
    assert words in note.message
    assert "--update-baseline" in note.fix
    same = replace(baseline_of(linear(1100, 1500)), **change)
    assert found("A612", linear(1100, 1500)) == []
    assert [one.code for one in run(linear(1100, 1500), baseline=same) if one.code == "A612"] == []


def test_without_a_baseline_yet_there_is_a_note_and_no_error() -> None:
    (note,) = found("A612", linear(1, 1), baseline=Path("baselines/net.json"))
    assert (note.severity, note.message) == (
        "note",
        "there is no baseline baselines/net.json yet, so nothing is compared",
    )


def test_a_baseline_of_many_modules_joins_them_and_stays_below_20_kb() -> None:
    parts = ("gate", "up", "down", "act")
    names = [f"model.layers.{layer}.mlp.{part}" for layer in range(80) for part in parts]
    toy = analysis(*(operator("Relu", [f"a{at}"], [f"b{at}"], module=name) for at, name in enumerate(names)))
    baseline = baseline_of(toy)
    text = baseline_to_json(baseline)
    assert len(text.encode()) < 20_000
    assert (baseline.depth, len(baseline.modules)) == (4, 80)  # model.layers.N.mlp
    assert sum(f'"module": "model.layers.{layer}.mlp"' in text for layer in range(80)) == 80
    assert msgspec.json.decode(text, type=Baseline) == baseline


@pytest.mark.parametrize("sample", ["boosted_trees.onnx", "resnet50.py"])
def test_the_baseline_of_a_sample_is_below_20_kb_and_the_same_each_time(sample: str) -> None:
    path = Path(__file__).parents[2] / "samples" / sample
    first, second = (
        baseline_to_json(baseline_of(analyze(path, gpu="l4", check=True, run=False))) for _ in "12"
    )
    assert first == second
    assert len(first.encode()) < 20_000


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"name": "Other"}, "another model: Toy, and this check is of Other"),
        ({"batch": 2}, "another batch: 1, and this check is of 2"),
        ({"training": True}, "another mode"),
    ],
)
def test_a_baseline_of_something_else_is_refused(change: dict[str, Any], words: str) -> None:
    toy = stem(21)
    other = replace(toy, model=replace(toy.model, **change))
    with pytest.raises(UsageError, match=words):
        run(other, baseline=baseline_of(toy))


def test_a_baseline_for_another_gpu_or_precision_is_refused() -> None:
    toy = stem(21)
    other = replace(toy, devices=replace(toy.devices, gpu=replace(toy.devices.gpu, slug="bigger")))
    with pytest.raises(UsageError, match="another GPU: imaginary-gpu, and this check is of bigger"):
        run(other, baseline=baseline_of(toy))
    asked = Invocation(command="check", model="net.py", options={"precision": ("fp16",)})
    with pytest.raises(UsageError, match="another set of options: none, and this check is of --precision fp16"):
        run(replace(toy, invocation=asked), baseline=baseline_of(toy))


def test_the_environment_changes_no_finding() -> None:
    toy = stem(23)
    assert judge(replace(toy, environment=Environment(date="2030-01-01"))) == judge(toy)


def test_never_fails_on_nothing_and_warning_fails_on_warnings_too() -> None:
    findings = run(stem(23))
    assert len(fails(findings, CheckSettings())) == 1
    assert fails(findings, CheckSettings(fail_on="never")) == ()
    slow = run(analysis(operator("Relu", ["x"], ["y"]), cpu_s=1e-4, gpu_s=1e-3))
    assert fails(slow, CheckSettings()) == ()
    assert len(fails(slow, CheckSettings(fail_on="warning"))) == 1
