"""Reports lead with one answer, and show what stands next to it and whose details follow."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import rendering
import report_factory as factory
from ranking_records import NO_ROOM, SENTENCE, alone, analysis, candidate, instance, ways

from analyzer.figures import seen_as
from analyzer.record.outcome import Answer, RankedWay, WhyNot
from analyzer.report import figure_text, findings_text, html, plan_cards, ranking_text
from analyzer.report import ranking_text as ranking_table
from analyzer.report.charts import capacity
from analyzer.units import UNKNOWN


def test_a_best_plan_that_is_the_gpus_has_no_card_of_its_own_and_keeps_its_row() -> None:
    base = factory.analysis()
    same = replace(base, plans=(*base.plans[:2], replace(base.plans[1], name="hybrid")))
    cards = ranking_text.distinct_cards(same)
    assert [card.plan.name for card in cards] == ["cpu", "gpu"]
    assert cards[1].why == "This is the best plan: no split of the operators is worth it."
    assert html.render(same).count('<article class="plan') == 2
    assert [card.plan.name for card in ranking_text.table_cards(same)] == ["cpu", "gpu", "hybrid"]
    assert "Best plan" in rendering.text(same)
    # A split that is another plan keeps its card.
    assert [card.plan.name for card in ranking_text.distinct_cards(base)] == ["cpu", "gpu", "hybrid"]


@pytest.mark.parametrize(("device", "shown"), [("gpu", "gpu"), ("either", "gpu"), ("cpu", "cpu")])
def test_a_split_that_is_not_recommended_is_shown_as_the_plan_that_is(device: Any, shown: str) -> None:
    """The page has one answer: the GPU's session takes 1 s, a split that is not recommended a little less."""
    base = factory.analysis()
    plans = (
        factory.plan("cpu", 4.0),
        factory.plan("gpu", 1.0, operators_on_gpu=24),
        factory.plan("hybrid", 0.9, operators_on_gpu=20),
    )
    given = replace(base, plans=plans, verdict=replace(base.verdict, device=device))
    answered = ranking_text.as_answered(given)
    assert answered.plans[2] == replace(given.plans[0 if shown == "cpu" else 1], name="hybrid")
    # The session's devices: operators without a CUDA kernel stay on the CPU.
    sides = [
        "gpu" if shown == "gpu" and one.gpu and one.gpu.placed_on == "cuda" else "cpu" for one in base.operators
    ]
    assert [one.placement for one in answered.operators] == sides
    assert html.render(given).count('<article class="plan') == 2
    split = replace(given, verdict=replace(base.verdict, device="hybrid"))
    assert ranking_text.as_answered(split) is split


def test_a_session_that_is_not_the_verdict_is_not_called_the_best() -> None:
    base = factory.analysis()
    same = replace(base, plans=(*base.plans[:2], replace(base.plans[1], name="hybrid")))
    tied = replace(same, verdict=replace(same.verdict, device="either"))
    assert ranking_text.distinct_cards(tied)[1].why == "No split of the operators is worth it."


def test_joules_of_a_measured_time_are_mixed_since_power_is_modelled() -> None:
    here = candidate("Here", 0.001, kind="cpu", plan="cpu", origin="measured", energy_j=0.5)
    told = analysis(ranking=(here,), answer=seen_as(Answer, here, sentence=SENTENCE))
    latency, energy = ranking_table.best_by(told)
    assert (latency.origin, energy.origin) == ("measured", "mixed")
    sheet = ranking_table.sheet(told)
    assert sheet is not None
    assert sheet.rows[0][sheet.head.index("Energy")] == f"{energy.figure} {figure_text.MARKS['mixed'].sign}"


def test_a_terminal_shows_what_was_named_and_a_few_rented_cpus_and_says_how_many_there_are() -> None:
    sheet = ranking_table.sheet(analysis())
    assert sheet is not None
    assert "Ranked by latency (6 of 10)" in rendering.screen(analysis())
    assert [sheet.rows[at][0] for at in sheet.shown] == [
        "Imaginary GPU 9000",
        "Imaginary GPU 3000",
        "Imaginary CPU 12",
        "cloud c0 (Rented CPU)",
        "cloud c1 (Rented CPU)",
        "Imaginary GPU 100",
    ]
    assert sheet.chosen == 0


def test_next_to_the_answer_stand_what_is_as_good_the_fastest_the_cheapest_and_the_cpu() -> None:
    as_good = WhyNot(reason="as_good", sentence="as good within the error: 1.0x (0.8x to 1.3x) the time")
    first = candidate("Imaginary GPU 7", 0.0051, usd_per_million=0.3)
    second = candidate("Imaginary GPU 8", 0.0052, usd_per_million=0.4, why_not=as_good)
    told = analysis(first, second, candidate("Imaginary GPU 9", 0.0053, why_not=as_good))
    assert dict(ranking_text.alternatives(told)) == {
        "As good within the error": "Imaginary GPU 8 and Imaginary GPU 9, none for fewer dollars.",
        "Fastest": "Imaginary GPU 9000: 5.00 ms (5.00 to 5.00 ms), $0.200 per million on cloud g9; "
        "4.0x (3.0x to 5.0x) the time.",
        "Cheapest": "cloud c0 (Rented CPU): 90.0 ms (90.0 to 90.0 ms), $0.100 per million; "
        "18.0x (12.0x to 27.0x) the time.",
        "On the CPU": "Imaginary CPU 12: 80.0 ms (80.0 to 80.0 ms); 4.0x (3.0x to 5.0x) the time.",
    }
    # The fastest and the cheapest are the answer: nothing else is said of them.
    cheap = candidate("Imaginary GPU 7", 0.004, usd_per_million=0.01)
    assert [label for label, _ in ranking_text.alternatives(analysis(cheap))] == ["On the CPU"]


def test_a_limit_that_one_gpu_misses_is_the_tag_too() -> None:
    base = alone()
    assert base.answer is not None
    late = replace(base.answer, meets=False)
    told = replace(base, answer=late, ranking=(seen_as(RankedWay, late), *base.ranking[1:]))
    assert (html.build(told)["word"], html.build(told)["side"]) == ("Limit missed", "either")


def test_the_cpu_stands_below_the_answer_where_nothing_was_rented() -> None:
    """No CPU instance is on the price list: the one machine is all there is to compare with."""
    base = alone()
    told = replace(base, ranking=tuple(one for one in base.ranking if one.named))
    assert dict(ranking_text.alternatives(told)) == {
        "On the CPU": "Imaginary CPU 12: 80.0 ms (80.0 to 80.0 ms); 4.0x (3.0x to 5.0x) the time."
    }


def test_where_nothing_runs_the_table_says_why_of_each_device() -> None:
    barred = tuple(replace(one, runs=False, why_not=NO_ROOM) for one in ways() if one.requested)
    sheet = ranking_table.sheet(factory.analysis(answer=None, ranking=barred))
    assert sheet is not None
    assert sheet.chosen is None
    assert {row[1] for row in sheet.rows} == {NO_ROOM.sentence}


def test_a_ranking_of_several_batches_says_whose_latencies_are_compared() -> None:
    """The answer at batch 8 stands above the same GPU at batch 1, which takes less."""
    smaller = candidate("Imaginary GPU 9000", 0.004, batch=1)
    several = ranking_table.sheet(analysis(ranking=(*analysis().ranking, smaller)))
    one = ranking_table.sheet(analysis())
    assert several is not None
    assert one is not None
    assert several.title == "Ranked by latency, batch 8 first"
    assert one.title == "Ranked by latency"


def test_what_cannot_run_has_no_value_to_be_sorted_by() -> None:
    sheet = ranking_table.sheet(analysis())
    assert sheet is not None
    latency = sheet.head.index("Latency")
    by_name = {(row[0], row[2]): keys[latency] for row, keys in zip(sheet.rows, sheet.sort, strict=True)}
    assert by_name["Imaginary GPU 100", "tf32"] is None
    assert by_name["Imaginary GPU 9000", "tf32"] == 0.005


def test_instances_with_a_cpu_stand_beside_those_with_a_gpu_in_one_chart() -> None:
    cards = (instance(f"g{n:02}", 0.1 + n / 1000, "gpu") for n in range(40))
    rented = (*cards, instance("c1", 0.4), instance("c2", 0.5))
    chart = capacity.chart(analysis(instances=rented))
    assert chart is not None
    assert len(chart.rows) == 42
    # Of equal latencies the cheapest alone is beaten by no other.
    assert [label["label"] for label in chart.extra["named"]] == ["cloud g00"]
    assert "The cheapest CPU instance is cloud c1: $0.400 per million." in chart.alternative


def test_a_plan_that_cannot_run_is_not_called_the_best() -> None:
    base = factory.analysis()
    on_gpu = tuple(replace(plan, operators_on_gpu=0 if plan.name == "cpu" else 5) for plan in base.plans)
    card = replace(factory.GPU, runs_release_wheel=False)
    old = factory.analysis(plans=on_gpu, devices=replace(base.devices, gpu=card))
    plans = (*base.plans[:2], replace(base.plans[2], fits=False))
    for told in (old, factory.analysis(plans=plans)):
        assert [card.title for card in plan_cards.plan_cards(told)] == ["CPU", "GPU", "Split"]
    assert "no machine code" in plan_cards.plan_cards(old)[1].why
    assert [card.title for card in plan_cards.plan_cards(factory.analysis())] == ["CPU", "GPU", "Best plan"]


def test_a_checks_row_of_the_cpu_has_no_dollars_of_another_machine() -> None:
    told = analysis()
    cheap = replace(told.plans[0], usd_per_million=0.25, usd_origin="predicted", instance="quick box")
    told = replace(told, plans=(cheap, *told.plans[1:]))
    row = findings_text.table(told).rows[0]
    # The CPU's own row of the ranking has no price: the cheapest instance of the plan has another CPU.
    assert row[5:7] == (UNKNOWN, UNKNOWN)
    assert "quick box" not in findings_text.render_text(told)
    assert findings_text.table(replace(told, answer=None, ranking=())).rows[0] == row

    own: dict[str, Any] = {"usd_per_million": 0.5, "usd_origin": "predicted", "instance": "same box"}
    priced = tuple(replace(one, **own) if one.kind == "cpu" and one.named else one for one in told.ranking)
    told = replace(told, ranking=priced)
    priced_row = findings_text.table(told).rows[0]
    assert priced_row[5:7] == ("$0.500 ○", "same box")
    assert priced_row[2:5] == row[2:5]
