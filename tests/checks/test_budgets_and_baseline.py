from dataclasses import replace
from typing import Any

import pytest
from checks_factory import analysis, operator, plan, stem

from analyzer.checks import fails, judge, run
from analyzer.checks.settings import CheckSettings
from analyzer.errors import UsageError
from analyzer.record.analysis import Analysis, Environment


def found(code: str, toy: Analysis, baseline: Analysis | None = None, **settings: Any) -> list[Any]:
    return [
        finding for finding in run(toy, CheckSettings(**settings), baseline=baseline) if finding.code == code
    ]


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
    assert [
        finding.code for finding in run(stem(23), baseline=stem(23)) if finding.code.startswith("A61")
    ] == []


def test_a_newer_opset_shows_as_more_copies_than_the_baseline() -> None:
    (finding,) = found("A614", stem(23), baseline=stem(21))
    assert finding.severity == "error"
    assert "from 0 (0 B) to 2 (4.01 MB)" in finding.message
    assert finding.bytes == 4_014_080


def test_rises_of_flops_and_bytes_name_the_operator_that_rose_most() -> None:
    before = analysis(
        operator("MatMul", ["x", "w"], ["m"], module="fc1", flops=1000),
        operator("MatMul", ["m", "w2"], ["y"], module="fc2", flops=1000),
    )
    after = analysis(
        operator("MatMul", ["x", "w"], ["m"], module="fc1", flops=1100, bytes_read=2000),
        operator("MatMul", ["m", "w2"], ["y"], module="fc2", flops=1500),
    )
    (flops,) = found("A613", after, baseline=before)
    assert flops.operator == 1
    assert "2.00 kFLOP to 2.60 kFLOP" in flops.message
    (moved,) = found("A612", after, baseline=before)
    assert (moved.operator, moved.bytes) == (0, 1000)
    assert found("A613", after, baseline=before, tolerance=0.3) == []
    assert len(found("A613", after, baseline=before, tolerance=0.29)) == 1


def test_a_rise_between_two_predictions_is_certain_and_a_measured_one_only_outside_the_intervals() -> None:
    before, after = (analysis(operator("Relu", ["x"], ["y"]), gpu_s=time) for time in (2e-3, 2.2e-3))
    (finding,) = found("A611", after, baseline=before)
    assert (finding.severity, finding.certain) == ("error", True)
    measured = replace(after, plans=(after.plans[0], plan("gpu", 2.2e-3, origin="measured"), after.plans[2]))
    (finding,) = found("A611", measured, baseline=before)
    assert (finding.severity, finding.certain) == ("warning", False)
    assert found("A611", before, baseline=after) == []


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
        run(other, baseline=toy)


def test_a_baseline_for_another_gpu_or_schema_is_refused() -> None:
    toy = stem(21)
    other = replace(toy, devices=replace(toy.devices, gpu=replace(toy.devices.gpu, slug="bigger")))
    with pytest.raises(UsageError, match="another GPU: imaginary-gpu, and this check is of bigger"):
        run(other, baseline=toy)
    with pytest.raises(UsageError, match="schema version 0"):
        run(toy, baseline=replace(toy, schema_version=0))


def test_the_environment_changes_no_finding() -> None:
    toy = stem(23)
    assert judge(replace(toy, environment=Environment(date="2030-01-01"))) == judge(toy)


def test_never_fails_on_nothing_and_warning_fails_on_warnings_too() -> None:
    findings = run(stem(23))
    assert len(fails(findings, CheckSettings())) == 2
    assert fails(findings, CheckSettings(fail_on="never")) == ()
    slow = run(analysis(operator("Relu", ["x"], ["y"]), cpu_s=1e-4, gpu_s=1e-3))
    assert fails(slow, CheckSettings()) == ()
    assert len(fails(slow, CheckSettings(fail_on="warning"))) == 1
