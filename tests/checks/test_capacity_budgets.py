from dataclasses import replace
from typing import Any

import capacity_records as records
import pytest
from checks_factory import analysis, operator

from analyzer.checks import run
from analyzer.checks.settings import CheckSettings
from analyzer.errors import UsageError
from analyzer.record.analysis import Analysis


def record(**changes: Any) -> Analysis:
    """Three of g.large, of which one may fail: $1,752 a month, up to $2,336; a fifth of headroom."""
    return replace(analysis(operator("Relu", ["x"], ["y"])), capacity=records.capacity(**changes))


def with_best(**changes: Any) -> Analysis:
    return record(options=(records.option(**changes), records.refused()))


def found(code: str, toy: Analysis, **settings: Any) -> list[Any]:
    return [finding for finding in run(toy, CheckSettings(**settings)) if finding.code == code]


def severities(code: str, toy: Analysis, budget: str, limits: tuple[float, ...]) -> list[list[str]]:
    return [[finding.severity for finding in found(code, toy, **{budget: limit})] for limit in limits]


def test_a_budget_of_dollars_fails_only_where_the_whole_interval_is_above_it() -> None:
    # 730 hours at $0.80 are $584 for one. At 1,220 requests/s each, 2,000 with a fifth of headroom need 2400 /
    # 1220 = 1.97, so 2 and a spare one: $1,752. At 1.4 times that rate they need 1.41, again 2: $1,752. At 0.75
    # times 2.62, so 3 and one: $2,336.
    limits: tuple[float, ...] = (1751.99, 1752.0, 2335.99, 2336.0)
    assert severities("A608", record(), "max_usd_per_month", limits) == [
        ["error"],
        ["warning"],
        ["warning"],
        [],
    ]
    # At 700 requests/s each 2400 / 700 = 3.4 need 4 and one, $2,920; 2400 / 980 = 2.4 need 3 and one, $2,336;
    # 2400 / 525 = 4.6 need 5 and one, $3,504.
    limits = (2335.99, 2336.0, 2919.99, 2920.0, 3503.99, 3504.0)
    assert severities("A608", with_best(highest=700.0), "max_usd_per_month", limits) == [
        ["error"],
        ["warning"],
        ["warning"],
        ["warning"],
        ["warning"],
        [],
    ]


def test_a_budget_of_requests_fails_only_where_the_whole_interval_is_below_it() -> None:
    # Two of the three are up. Of 1,220 requests/s each a fifth on top stays free: 2 x 1220 / 1.2 = 2033.33; at
    # 0.75 times the rate 1525; at 1.4 times 2846.67.
    limits = (1525.0, 1525.1, 2033.3, 2033.4, 2846.6, 2846.7)
    assert severities("A609", record(), "min_rate", limits) == [
        [],
        ["warning"],
        ["warning"],
        ["warning"],
        ["warning"],
        ["error"],
    ]


def test_a_rate_that_is_met_exactly_is_met() -> None:
    # 3 x 0.1 is a hair above 0.3 in floats, 1.1 x 3 / 1.1 a hair off 3: no rounding of ours makes a finding.
    exact = record(options=(records.option(highest=0.1, low_rate_per_s=0.1, count=4),), headroom=0.0)
    assert found("A609", exact, min_rate=0.3) == []
    fifth = record(options=(records.option(highest=1.2, low_rate_per_s=1.2, count=4),))
    assert found("A609", fifth, min_rate=3.0) == []


def test_a_missed_budget_tells_the_figure_its_interval_and_the_limit() -> None:
    (dear,) = found("A608", with_best(highest=700.0), max_usd_per_month=2000)
    assert dear.message == (
        "the dollars a month are above max-usd-per-month $2,000: $2,920 ($2,336 to $3,504, predicted) "
        "for 5 x g.large"
    )
    assert (dear.seconds, dear.operator) == (None, None)
    (maybe,) = found("A608", record(), max_usd_per_month=2000)
    assert "may be above max-usd-per-month $2,000: $1,752 ($1,752 to $2,336, predicted)" in maybe.message
    assert not maybe.certain
    (few,) = found("A609", record(), min_rate=3000)
    assert few.message == (
        "the rate within 50.0 ms is below min-rate 3,000: 2,033 requests/s (1,525 to 2,847, predicted) "
        "of 3 x g.large, 1 down, with 20 % headroom"
    )
    assert "`analyze capacity` with --rate 3000" in few.fix


@pytest.mark.parametrize(("code", "budget"), [("A608", "max_usd_per_month"), ("A609", "min_rate")])
def test_where_no_instance_keeps_the_limit_no_budget_is_kept(code: str, budget: str) -> None:
    limits: dict[str, Any] = {budget: 1e-6 if budget == "min_rate" else 1e9}
    (finding,) = found(
        code, record(options=(records.refused(),), best=None, instances=(), traffic=()), **limits
    )
    assert (finding.severity, finding.certain) == ("error", True)
    assert "of 1 instance type none keeps 50.0 ms at any number" in finding.message


def test_a_slow_end_that_keeps_no_limit_leaves_both_budgets_uncertain() -> None:
    torn = with_best(low_rate_per_s=0.0, high_count=None, high_usd_per_month=None)
    (dear,) = found("A608", torn, max_usd_per_month=1e6)
    assert dear.severity == "warning"
    assert "may be above max-usd-per-month $1,000,000: $1,752 ($1,752 to no price, predicted)" in dear.message
    (few,) = found("A609", torn, min_rate=1)
    assert few.severity == "warning"
    assert "may be below min-rate 1: 2,033 requests/s (0 to 2,847, predicted)" in few.message


def test_dollars_that_nobody_knows_keep_no_budget_and_break_none() -> None:
    unpriced = with_best(
        usd_per_hour=None, usd_per_month=None, low_usd_per_month=None, high_usd_per_month=None, instance=""
    )
    with pytest.raises(UsageError, match="the price of imaginary-gpu is not known") as caught:
        run(unpriced, CheckSettings(max_usd_per_month=1000))
    assert "--prices" in str(caught.value.hint)


@pytest.mark.parametrize("budget", ["max_usd_per_month", "min_rate"])
def test_a_budget_of_a_service_for_anything_else_is_an_error_with_a_hint(budget: str) -> None:
    toy = analysis(operator("Relu", ["x"], ["y"]))
    limits: dict[str, Any] = {budget: 1.0}
    with pytest.raises(UsageError, match="this analysis plans no capacity") as caught:
        run(toy, CheckSettings(**limits))
    assert "analyze capacity" in str(caught.value.hint)


def test_without_a_budget_nothing_is_said_of_a_service() -> None:
    assert [finding.code for finding in run(record()) if finding.code in ("A608", "A609")] == []
