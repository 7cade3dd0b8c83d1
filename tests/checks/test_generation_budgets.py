from dataclasses import replace
from typing import Any

import pytest
from checks_factory import analysis, operator
from generation_records import GB, generation, memory

from analyzer.checks import run
from analyzer.checks.settings import CheckSettings
from analyzer.errors import UsageError
from analyzer.record.analysis import Analysis


def record(**changes: Any) -> Analysis:
    """0.2 s to the first token, 10 ms for each further one, 673 tokens a second; from half to double."""
    return replace(analysis(operator("Relu", ["x"], ["y"])), generation=generation(**changes))


def found(code: str, toy: Analysis, **settings: Any) -> list[Any]:
    return [finding for finding in run(toy, CheckSettings(**settings)) if finding.code == code]


@pytest.mark.parametrize(
    ("code", "budget", "limits"),
    [
        # Below the whole interval, inside it below the expected figure, inside it above, above all of it.
        ("A604", "max_ttft_s", (0.09, 0.15, 0.3, 0.4)),
        ("A605", "max_tpot_s", (0.004, 0.008, 0.015, 0.02)),
        # 808 tokens in 1.2 s are 673 a second; in 0.6 s 1347, in 2.4 s 337.
        ("A606", "min_tokens_per_s", (1350, 700, 400, 336)),
    ],
)
def test_a_budget_of_generation_fails_only_where_the_whole_interval_misses_it(
    code: str, budget: str, limits: tuple[float, ...]
) -> None:
    severities = [
        [finding.severity for finding in found(code, record(), **{budget: limit})] for limit in limits
    ]
    assert severities == [["error"], ["warning"], ["warning"], []]


def test_a_missed_budget_tells_the_figure_its_interval_and_the_limit() -> None:
    (late,) = found("A605", record(), max_tpot_s=0.004)
    assert late.message == (
        "the time of each further token is above max-tpot 4.00 ms: "
        "10.0 ms (5.00 ms to 20.0 ms, predicted) at batch 8"
    )
    # What a finding costs is said per inference, which a request is not.
    assert late.seconds is None
    (maybe,) = found("A604", record(), max_ttft_s=0.3)
    assert "may be above max-ttft 300 ms: 200 ms" in maybe.message
    (few,) = found("A606", record(), min_tokens_per_s=700)
    assert (
        "the tokens per second are probably below min-tokens-per-s 700: 673 (337 to 1347, predicted)"
        in few.message
    )


@pytest.mark.parametrize("budget", ["max_ttft_s", "max_tpot_s", "min_tokens_per_s"])
def test_a_budget_of_generation_for_another_model_is_an_error_with_a_hint(budget: str) -> None:
    toy = analysis(operator("Relu", ["x"], ["y"]))
    limits: dict[str, Any] = {budget: 1.0}
    with pytest.raises(UsageError, match="this analysis is of no model that generates") as caught:
        run(toy, CheckSettings(**limits))
    assert "analyze generate" in str(caught.value.hint)


def test_what_several_gpus_share_fits_though_one_could_not_hold_it() -> None:
    base = record(gpus=2)
    plans = tuple(replace(plan, fits=plan.name == "cpu") for plan in base.plans)
    assert found("A401", replace(base, plans=plans)) == []


def test_a_request_without_room_is_told_with_its_bytes_and_with_what_the_device_leaves() -> None:
    crowded = memory(fits=False, device_bytes=30 * GB, total_bytes=60 * GB)
    (finding,) = found("A401", record(gpus=2, memory=crowded))
    assert "need 30.0 GB on each of 2, and Imaginary GPU leaves 22.0 GB" in finding.message
    assert finding.bytes == 60 * GB
