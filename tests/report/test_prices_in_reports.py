"""Every report with dollars says which prices they are, where those are not the usual ones."""

from dataclasses import replace
from typing import Any

import pytest
import report_factory as factory

from analyzer.figures import Price
from analyzer.options import Pricing
from analyzer.record.analysis import Analysis
from analyzer.record.invocation import Invocation
from analyzer.report import figure_text
from analyzer.report.compare.build import compare
from analyzer.report.compare.document import render_text

TAKEN_AWAY = "may take a spot machine away"


def paid(pricing: Pricing, **changes: Any) -> Analysis:
    """The factory's record with every price of this way of paying."""
    told = {"pricing": pricing, "region": "us-central1", "price_date": "2026-08-03", **changes}
    analysis = factory.analysis()
    return replace(
        analysis,
        costs=tuple(replace(row, **told) for row in analysis.costs),
        plans=tuple(replace(plan, **told) for plan in analysis.plans),
    )


def flat(text: str) -> str:
    return " ".join(text.split())


def test_the_usual_prices_need_no_word() -> None:
    assert figure_text.statement(factory.analysis()) == ""


def test_a_report_with_reserved_prices_says_that_they_are_paid_unused() -> None:
    assert "paid, used or not" in flat(paid("reserved-3y").render("text"))


def test_dates_go_from_the_oldest_to_the_newest_and_tell_of_those_without() -> None:
    rows = paid("spot").costs
    first, second = rows[0], rows[1]
    assert figure_text.dates([first]) == "2026-08-03"
    assert figure_text.dates([first, replace(second, price_date="2023-11")]) == "2023-11 to 2026-08-03"
    undated = "2026-08-03 and a day that is not recorded"
    assert figure_text.dates([first, replace(second, price_date="")]) == undated


def test_without_any_price_the_report_says_what_was_asked_for() -> None:
    nothing = replace(
        factory.analysis(),
        costs=(),
        plans=tuple(replace(plan, usd_per_million=None, instance="") for plan in factory.analysis().plans),
        invocation=Invocation(
            command="run", model="m.py", options={"pricing": ("reserved-1y",), "region": ("asia",)}
        ),
    )
    told = figure_text.statement(nothing)
    assert told == "No price reserved for one year in asia is known of an instance that can run it."


def test_a_comparison_says_whose_dollars_are_of_which_prices() -> None:
    comparison = compare([("usual", factory.analysis()), ("spare", paid("spot"))])
    text = flat(render_text(comparison))
    assert "In spare: Dollars follow from prices of spot machines in us-central1, of 2026-08-03." in text
    assert "In usual:" not in text


def test_an_answer_of_generation_says_it_too() -> None:
    told = factory.generation()
    answer = told.generation
    assert answer is not None
    rows = tuple(
        replace(row, instance="imaginary i", usd_per_hour=2.0, pricing="spot", region="asia-southeast1")
        for row in answer.devices
    )
    spot = replace(told, costs=(), plans=(), generation=replace(answer, devices=rows, types=(), widths=()))
    for name in ("text", "markdown", "html"):
        assert TAKEN_AWAY in flat(spot.render(name))
    assert "an hour, spot" in flat(spot.render("markdown"))


@pytest.mark.parametrize(
    ("gpus", "width", "words"),
    [
        (0.5, 1, ""),
        (1, 1, ""),
        (8, 1, "8 GPUs, 8 used by 8 copies"),
        (8, 3, "8 GPUs, 6 used by 2 copies"),
        (4, 4, "4 GPUs, 4 used by 1 copy"),
    ],
)
def test_a_machine_of_several_gpus_says_how_many_copies_use(gpus: float, width: int, words: str) -> None:
    assert figure_text.whole(Price(gpu_count=gpus), width) == words


@pytest.mark.parametrize("name", ["text", "markdown", "html"])
def test_wherever_a_plan_has_dollars_a_whole_machine_is_named(name: str) -> None:
    analysis = factory.analysis()
    plans = (replace(plan, gpu_count=8.0 if plan.name == "gpu" else 0.0) for plan in analysis.plans)
    assert "8 GPUs, 8 used by 8 copies" in flat(replace(analysis, plans=tuple(plans)).render(name))
