"""Every report with dollars says which prices they are, where those are not the usual ones."""

from dataclasses import replace
from typing import Any

import pytest
import report_factory as factory

from analyzer.figures import Price
from analyzer.options import Pricing
from analyzer.record.analysis import Analysis
from analyzer.report import figure_text

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


def test_dates_go_from_the_oldest_to_the_newest_and_tell_of_those_without() -> None:
    rows = paid("spot").costs
    first, second = rows[0], rows[1]
    assert figure_text.dates([first]) == "2026-08-03"
    assert figure_text.dates([first, replace(second, price_date="2023-11")]) == "2023-11 to 2026-08-03"
    undated = "2026-08-03 and an unknown date"
    assert figure_text.dates([first, replace(second, price_date="")]) == undated


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
