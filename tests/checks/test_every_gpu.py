"""Budgets and ``--slo`` are held against every GPU that was named; what is the same for all is said once."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import handmade
import pytest
from checks_factory import analysis, operator, plan

from analyzer.checks import run
from analyzer.checks.device_answers import device_answers
from analyzer.checks.settings import CheckSettings
from analyzer.record.analysis import Alternative, Analysis
from analyzer.report import findings_text
from analyzer.report.ci import junit, sarif

RELU = operator("Relu", ["x"], ["y"])


def further(
    slug: str,
    gpu_s: float,
    device: str = "gpu",
    cpu_s: float = 1e-2,
    slo_s: float | None = None,
    **changes: Any,
) -> Alternative:
    """A further GPU whose CUDA session takes ``gpu_s``, half of it to double."""
    return Alternative(
        device=handmade.gpu(slug=slug, name=f"Imaginary {slug.upper()}"),
        plans=(plan("cpu", cpu_s), plan("gpu", gpu_s, **changes), plan("hybrid", min(cpu_s, gpu_s))),
        verdict=handmade.verdict(device, slo_s=slo_s),
    )


def with_slo(toy: Analysis, slo_s: float) -> Analysis:
    return replace(toy, verdict=replace(toy.verdict, slo_s=slo_s))


def found(code: str, toy: Analysis, **settings: Any) -> list[Any]:
    return [finding for finding in run(toy, CheckSettings(**settings)) if finding.code == code]


@pytest.mark.parametrize(
    ("slo_s", "severity"),
    [
        (0.9e-3, "error"),  # Below the whole interval, 1 to 4 ms.
        (1.5e-3, "warning"),  # Inside it, below the expected 2 ms.
        (3e-3, "warning"),  # Inside it, above.
        (4.1e-3, None),  # Above it.
    ],
)
def test_a_missed_slo_is_a_finding_and_fails_where_the_whole_interval_is_above_it(
    slo_s: float, severity: str | None
) -> None:
    findings = found("A607", with_slo(analysis(RELU, gpu_s=2e-3), slo_s))
    assert [finding.severity for finding in findings] == ([severity] if severity else [])


@pytest.mark.parametrize(
    ("limit_s", "verb"),
    # The CUDA session takes 2 ms, 1 to 4: below all of it, below the middle, below the end.
    [(0.9e-3, "is above"), (1.5e-3, "is probably above"), (3e-3, "may be above")],
)
def test_the_words_are_as_sure_as_the_interval(limit_s: float, verb: str) -> None:
    toy = analysis(RELU, gpu_s=2e-3)
    (budget,) = found("A601", toy, max_latency_s={"": limit_s})
    (slo,) = found("A607", with_slo(toy, limit_s))
    assert f" {verb} max-latency" in budget.message
    assert f" {verb} --slo" in slo.message


def test_without_an_slo_nothing_is_missed() -> None:
    assert found("A607", analysis(RELU, gpu_s=1e3)) == []


def test_the_slo_is_held_against_the_plan_of_the_verdict() -> None:
    # The CPU takes 1 ms, 2 at most, and the CUDA session 8: the verdict is the CPU, which keeps 3 ms.
    toy = with_slo(analysis(RELU, cpu_s=1e-3, gpu_s=8e-3), 3e-3)
    assert found("A607", toy) == []
    (finding,) = found("A607", with_slo(toy, 0.4e-3))
    assert "the CPU plan" in finding.message
    # Of two that tie the faster one counts.
    tie = replace(toy, verdict=replace(toy.verdict, device="either"))
    assert found("A607", tie) == []


def test_a_plan_without_room_meets_no_limit_however_fast_it_would_be() -> None:
    toy = analysis(RELU, gpu_s=2e-3)
    toy = replace(toy, plans=(*(replace(one, fits=False) for one in toy.plans),))
    (finding,) = found("A607", with_slo(toy, 1.0))
    assert (finding.severity, finding.seconds) == ("error", None)
    assert "has no room for it" in finding.message
    (finding,) = found("A601", toy, max_latency_s={"": 1.0})
    assert finding.severity == "error"
    assert handmade.gpu().name in finding.message


def test_a_latency_budget_and_the_slo_hold_on_every_gpu_and_name_it() -> None:
    # The own GPU takes 1 to 4 ms, the second 10 to 40, the third 0.5 to 2.
    toy = analysis(RELU, gpu_s=2e-3, alternatives=(further("slow", 2e-2), further("fast", 1e-3)))
    (finding,) = found("A601", toy, max_latency_s={"": 5e-3})
    assert (finding.severity, finding.device, finding.operator) == ("error", "slow", None)
    assert finding.message == (
        "the latency of the CUDA session on Imaginary SLOW is above max-latency 5.00 ms: "
        "20.0 ms (10.0 ms to 40.0 ms, predicted)"
    )
    assert finding.seconds == pytest.approx(1.5e-2)
    (finding,) = found("A607", with_slo(toy, 5e-3))
    assert finding.device == "slow"
    every = found("A601", toy, max_latency_s={"": 1.5e-3})
    severities = {finding.device: finding.severity for finding in every}
    assert severities == {"": "warning", "slow": "error", "fast": "warning"}


def test_the_cpus_plan_is_judged_once_however_many_gpus_stand_beside_it() -> None:
    toy = analysis(RELU, alternatives=(further("slow", 2e-2), further("fast", 1e-3)))
    assert len(found("A601", toy, max_latency_s={"cpu": 1e-3})) == 1


def test_room_is_looked_for_on_every_gpu() -> None:
    small = further("small", 1e-3, fits=False, memory_bytes=30_000_000_000)
    tight = further("tight", 1e-3, memory_bytes=int(0.95 * handmade.gpu().memory_bytes))
    toy = analysis(RELU, alternatives=(small, tight))
    (finding,) = found("A401", toy)
    assert (finding.device, "Imaginary SMALL" in finding.message) == ("small", True)
    (finding,) = found("A402", toy)
    assert (finding.device, "Imaginary TIGHT" in finding.message) == ("tight", True)


def test_what_is_about_placement_is_said_once() -> None:
    forced = operator("MaxPool", ["x"], ["y"], placed_on="cpu", why="no-kernel-for-opset")
    alone = [finding.code for finding in run(analysis(forced))]
    beside = [finding.code for finding in run(analysis(forced, alternatives=(further("fast", 1e-3),)))]
    assert "A101" in alone
    assert beside == alone


def test_of_very_many_gpus_one_finding_names_all_that_miss() -> None:
    others = tuple(further(f"gpu-{number}", 2e-2) for number in range(9))
    (finding,) = found("A601", analysis(RELU, gpu_s=1e-4, alternatives=others), max_latency_s={"": 5e-3})
    assert finding.device.split(",") == [f"gpu-{number}" for number in range(9)]
    assert "Imaginary GPU-0" in finding.message
    assert finding.message.endswith("; likewise with gpu-1, gpu-2, gpu-3, gpu-4, gpu-5, gpu-6, gpu-7 and gpu-8")
    # Eight have one each.
    toy = analysis(RELU, gpu_s=1e-4, alternatives=others[:8])
    assert len(found("A601", toy, max_latency_s={"": 5e-3})) == 8


def test_a_gpu_of_another_build_is_judged_by_what_was_predicted_and_its_slo_by_the_verdict() -> None:
    foreign = further("foreign", 1e-3, device="cpu")
    foreign = replace(foreign, device=replace(foreign.device, runs_release_wheel=False))
    toy = analysis(RELU, gpu_s=2e-3, alternatives=(foreign,))
    assert found("A601", toy, max_latency_s={"": 5e-3}) == []
    # The CPU beside it takes 5 to 20 ms.
    (finding,) = found("A607", with_slo(toy, 4.5e-3))
    assert finding.device == "foreign"
    assert "the CPU plan beside Imaginary FOREIGN" in finding.message
    _, answer = device_answers(toy)
    assert [answer.can_run(one) for one in answer.plans] == [True, False, True]


def test_findings_of_two_gpus_stay_two_for_servers_that_compare_them() -> None:
    toy = analysis(RELU, gpu_s=2e-2, alternatives=(further("slow", 2e-2),))
    toy = replace(toy, findings=run(toy, CheckSettings(max_latency_s={"": 5e-3})))
    prints = re.findall(r'"operator/v1": "(\w+)"', sarif.render(toy))
    assert len(prints) == len(set(prints)) == len(toy.findings)
    assert 'name="A601 over-latency-budget [slow]"' in junit.render(toy)


def test_the_gates_text_names_every_device_with_its_latency_and_verdict() -> None:
    toy = with_slo(analysis(RELU, gpu_s=2e-3, alternatives=(further("slow", 2e-2, device="cpu"),)), 5e-3)
    assert [(row[0], row[2], row[-2], row[-1]) for row in findings_text.table(toy).rows] == [
        (handmade.cpu().name, "10.0 ms ○", "likely missed", ""),
        (handmade.gpu().name, "2.00 ms ○", "kept", "GPU"),
        ("Imaginary SLOW", "20.0 ms ○", "missed", "CPU"),
    ]
    text = findings_text.render_text(toy)
    assert all(part in text for part in ("Imaginary SLOW", "10.0 to 40.0 ms", "likely missed", "Limit 5.00 ms"))
    markdown = findings_text.render_markdown(toy)
    assert "| Imaginary SLOW | yes |" in markdown
