"""Reports lead with one answer, and show what stands next to it and whose details follow."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import rendering
import report_factory as factory

from analyzer.figures import seen_as
from analyzer.record.analysis import Analysis, BatchRange, CostRow
from analyzer.record.outcome import Answer, RankedWay, WhyNot
from analyzer.report import figure_text, findings_text, html, plan_cards, ranking_text, summary
from analyzer.report import ranking_text as ranking_table
from analyzer.report.charts import capacity
from analyzer.units import UNKNOWN

SENTENCE = "Run it on the Imaginary GPU 9000: 5.00 ms (predicted, 4.00 to 6.00 ms)."
CHEAPEST = "cloud c0 (Rented CPU): 90.0 ms"
NO_ROOM = WhyNot(reason="memory", sentence="it does not fit: it needs 9.00 GB and has 8.00 GB")


def candidate(name: str, latency_s: float | None, **changes: Any) -> RankedWay:
    values: dict[str, Any] = {
        "device": name.lower().replace(" ", "-"),
        "device_name": name,
        "kind": "gpu",
        "plan": "gpu",
        "precision": "tf32",
        "batch": 8,
        "latency_s": latency_s,
        "low_s": latency_s,
        "high_s": latency_s,
    }
    return RankedWay(**(values | changes))


def instance(name: str, usd: float, gpu: str | None = None, **changes: Any) -> CostRow:
    cost = CostRow(
        provider="cloud",
        instance=name,
        gpu=gpu,
        usd_per_hour=1.0,
        price_date="2026-01-01",
        throughput_per_s=1.0,
        latency_s=1.0,
        usd_per_million=usd,
        meets_slo=None,
        device="x",
        device_name=f"device of {name}",
        plan="gpu" if gpu else "cpu",
        batch=8,
    )
    return replace(cost, **changes)


def ways() -> tuple[RankedWay, ...]:
    """The ranking: another GPU than the record's own comes first, and is faster than it by 4."""
    rented = [
        candidate(
            "Rented CPU",
            0.09,
            kind="cpu",
            plan="cpu",
            precision="fp32",
            named=False,
            provider="cloud",
            instance=f"c{n}",
            usd_per_million=0.1 + n / 100,
            why_not=WhyNot(reason="slower", sentence="18.0x (12.0x to 27.0x) the time"),
        )
        for n in range(5)
    ]
    slower = WhyNot(reason="slower", sentence="4.0x (3.0x to 5.0x) the time")
    return (
        candidate(
            "Imaginary GPU 9000",
            0.005,
            usd_per_million=0.2,
            usd_origin="predicted",
            provider="cloud",
            instance="g9",
            why_not=slower,
        ),
        candidate("Imaginary GPU 3000", 0.020, why_not=slower),
        candidate("Imaginary CPU 12", 0.080, kind="cpu", plan="cpu", precision="fp32", why_not=slower),
        *rented,
        candidate("Imaginary GPU 100", 0.001, runs=False, fits=False, why_not=NO_ROOM),
        candidate(
            "Imaginary GPU 3000",
            0.010,
            precision="fp16",
            requested=False,
            why_not=WhyNot(reason="precision", sentence="another model"),
        ),
    )


def analysis(
    *first: RankedWay, sentence: str = SENTENCE, meets: bool | None = None, **changes: Any
) -> Analysis:
    """A record whose answer is the first of the ranking, for another GPU than the record's own."""
    ranking = (*first, *ways())
    ranking = (replace(ranking[0], meets=meets, why_not=None), *ranking[1:])
    given: dict[str, Any] = {
        "answer": seen_as(Answer, ranking[0], sentence=sentence),
        "ranking": ranking,
        "instances": (instance("g9", 0.2, "gpu-9000"), instance("c1", 0.4), instance("c2", 0.5)),
    }
    return factory.analysis(**(given | changes))


def alone(**changes: Any) -> Analysis:
    """One GPU and the CPU, at one batch: the answer is the verdict's."""
    base = factory.analysis()
    gpu = candidate(factory.GPU.name, 0.02, device=factory.GPU.slug, usd_per_million=0.2)
    others = tuple(one for one in ways() if one.kind == "cpu")
    answer = seen_as(Answer, gpu, sentence=base.verdict.sentence)
    return factory.analysis(**({"answer": answer, "ranking": (gpu, *others)} | changes))


def on_terminal(told: Analysis) -> str:
    return rendering.screen(told)


def flat(told: str) -> str:
    return " ".join(told.split())


def won_by_the_first() -> Analysis:
    """The answer is the GPU that the record's details are of."""
    return analysis(candidate(factory.GPU.name, 0.001, device=factory.GPU.slug))


DETAILS = (
    f"Plans, reasons and operators here are of the {factory.GPU.name} at batch 8, which was asked about first"
)


def test_text_and_markdown_lead_with_the_ranking_and_keep_the_verdict_to_its_gpu() -> None:
    for told in (flat(rendering.text(analysis())), flat(rendering.markdown(analysis()).replace("\\", ""))):
        verdict = told.index("With it and the CPU alone: Run it on the Imaginary GPU 3000")
        assert told.index(SENTENCE) < told.index(CHEAPEST) < told.index(DETAILS) < verdict
    assert DETAILS not in flat(rendering.text(won_by_the_first()))


def test_where_another_device_wins_reports_say_whose_details_they_show_and_how_the_winners_are_had() -> None:
    first = f"--gpu imaginary-gpu-9000,{factory.GPU.slug} shows those of the answer"
    for told in (rendering.text(analysis()), rendering.mail(analysis()), html.render(analysis())):
        assert f"{DETAILS}; {first}" in flat(told)
    assert f"{DETAILS}; {first}" in flat(on_terminal(analysis()).replace("│", ""))


def test_where_another_batch_wins_the_options_that_show_it_are_of_batches() -> None:
    faster = candidate(factory.GPU.name, 0.001, device=factory.GPU.slug, batch=64)
    told = flat(rendering.text(analysis(faster)))
    assert f"{DETAILS}; --batch 64,8 shows those of the answer" in told


def test_a_plan_is_marked_only_where_the_headline_recommends_it() -> None:
    assert factory.analysis().verdict.device == "gpu"
    assert [card.plan.name for card in ranking_text.cards(analysis()) if card.chosen] == []
    assert [card.plan.name for card in ranking_text.cards(won_by_the_first()) if card.chosen] == ["gpu"]
    assert [card.plan.name for card in ranking_text.cards(alone()) if card.chosen] == ["gpu"]
    nothing = analysis(meets=False, sentence="None of 3 GPUs keeps 1.00 ms.")
    assert [card.plan.name for card in ranking_text.cards(nothing) if card.chosen] == []
    assert 'class="chosen-mark"' not in html.render(analysis())
    assert 'class="chosen-mark">The answer<' in html.render(won_by_the_first())


def test_rows_of_plans_name_their_device_where_several_were_asked_about() -> None:
    name = factory.GPU.name.removeprefix("NVIDIA ")
    for told in (rendering.text(analysis()), rendering.markdown(analysis()), on_terminal(analysis())):
        assert f"GPU: {name}" in told
        assert f"CPU: {factory.CPU.name}" in told
    assert f"GPU: {name}" not in rendering.text(alone())


def test_the_command_that_applies_a_plan_is_of_the_device_that_the_headline_recommends() -> None:
    (told,) = (line for line in rendering.text(analysis()).splitlines() if "analyze apply" in line)
    assert told.startswith("To run it on the Imaginary GPU 9000 at batch 8: analyze apply ")
    assert "--gpu imaginary-gpu-9000 " in told
    (told,) = (line for line in rendering.text(won_by_the_first()).splitlines() if "analyze apply" in line)
    assert told.startswith("To run this plan: analyze apply ")
    assert f"--gpu {factory.GPU.slug} " in told


def test_a_best_plan_that_is_the_gpus_has_no_card_of_its_own_and_keeps_its_row() -> None:
    base = factory.analysis()
    same = replace(base, plans=(*base.plans[:2], replace(base.plans[1], name="hybrid")))
    cards = ranking_text.distinct_cards(same)
    assert [card.plan.name for card in cards] == ["cpu", "gpu"]
    assert cards[1].why == "This is the best plan: no split of the operators gains anything over it."
    assert html.render(same).count('<article class="plan') == 2
    assert [card.plan.name for card in ranking_text.table_cards(same)] == ["cpu", "gpu", "hybrid"]
    assert "Best plan" in rendering.text(same)
    # A split that is another plan keeps its card.
    assert [card.plan.name for card in ranking_text.distinct_cards(base)] == ["cpu", "gpu", "hybrid"]


def test_a_split_that_is_not_the_verdict_says_why_on_its_card() -> None:
    """The page has one answer: the GPU's session takes 1 s, a split that is not recommended a little less."""
    base = factory.analysis()
    cpu, gpu = factory.plan("cpu", 4.0), factory.plan("gpu", 1.0, operators_on_gpu=24)

    def why(split_s: float, **verdict: Any) -> str:
        plans = (cpu, gpu, factory.plan("hybrid", split_s, operators_on_gpu=20))
        told = replace(base, plans=plans, verdict=replace(base.verdict, **verdict))
        return ranking_text.distinct_cards(told)[-1].why

    assert why(0.97, device="gpu") == "Not worth splitting: it gains less than 5 % over the GPU alone."
    assert why(0.8, device="either") == (
        "Not recommended: within the error it may gain nothing over the GPU alone."
    )
    assert why(0.8, device="cpu", objective="cost") == "Not recommended: the verdict is decided for cost."
    assert why(0.8, device="hybrid") == ""


def test_a_session_that_is_not_the_verdict_is_not_called_the_best() -> None:
    base = factory.analysis()
    same = replace(base, plans=(*base.plans[:2], replace(base.plans[1], name="hybrid")))
    tied = replace(same, verdict=replace(same.verdict, device="either"))
    assert ranking_text.distinct_cards(tied)[1].why == "No split of the operators gains anything over it."


def marked(text: str) -> list[str]:
    """The names of the rows that a text marks."""
    return re.findall(r"(?m)^> +(\S+(?: \S+)*)", text)


def test_joules_of_a_measured_time_are_mixed_since_power_is_modelled() -> None:
    here = candidate("Here", 0.001, kind="cpu", plan="cpu", origin="measured", energy_j=0.5)
    told = analysis(ranking=(here,), answer=seen_as(Answer, here, sentence=SENTENCE))
    latency, energy = ranking_table.best_by(told)
    assert (latency.origin, energy.origin) == ("measured", "mixed")
    sheet = ranking_table.sheet(told)
    assert sheet is not None
    assert sheet.rows[0][sheet.head.index("Energy")] == f"{energy.figure} {figure_text.MARKS['mixed'].sign}"


def test_a_record_without_a_ranking_is_led_by_its_verdict() -> None:
    assert ranking_text.sentence(factory.analysis()) == factory.analysis().verdict.sentence
    assert ranking_table.sheet(factory.analysis()) is None
    assert 'id="ranking"' not in html.render(factory.analysis())


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


def test_each_way_that_is_not_the_answer_says_why_in_the_second_column() -> None:
    sheet = ranking_table.sheet(analysis())
    assert sheet is not None
    assert sheet.head[1] == "Why not"
    assert [row[1] == "" for row in sheet.rows] == [True, *(False for _ in sheet.rows[1:])]
    assert sheet.rows[8][1] == NO_ROOM.sentence


def test_next_to_the_answer_stand_what_is_as_good_the_fastest_the_cheapest_and_the_cpu() -> None:
    as_good = WhyNot(reason="as_good", sentence="as good within the error: 1.0x (0.8x to 1.3x) the time")
    first = candidate("Imaginary GPU 7", 0.0051, usd_per_million=0.3)
    second = candidate("Imaginary GPU 8", 0.0052, usd_per_million=0.4, why_not=as_good)
    told = analysis(first, second, candidate("Imaginary GPU 9", 0.0053, why_not=as_good))
    assert dict(ranking_text.alternatives(told)) == {
        "As good within the error": "Imaginary GPU 8 and Imaginary GPU 9.",
        "Fastest": "Imaginary GPU 9000: 5.00 ms (5.00 to 5.00 ms), $0.200 per million on cloud g9; "
        "4.0x (3.0x to 5.0x) the time.",
        "Cheapest": "cloud c0 (Rented CPU): 90.0 ms (90.0 to 90.0 ms), $0.100 per million; "
        "18.0x (12.0x to 27.0x) the time.",
        "On the CPU": "Imaginary CPU 12: 80.0 ms (80.0 to 80.0 ms); 4.0x (3.0x to 5.0x) the time.",
    }
    # The fastest and the cheapest are the answer: nothing else is said of them.
    cheap = candidate("Imaginary GPU 7", 0.004, usd_per_million=0.01)
    assert [label for label, _ in ranking_text.alternatives(analysis(cheap))] == ["On the CPU"]


def test_one_gpu_at_one_batch_is_led_by_the_verdicts_sentence() -> None:
    assert not ranking_text.leads(alone())
    told = flat(rendering.text(alone()))
    assert told.index("Run it on the Imaginary GPU 3000: 4x faster") < told.index(CHEAPEST)
    assert "alone:" not in told
    assert marked(rendering.text(alone())) == [factory.GPU.name, "GPU"]
    # Where the answer is another device's, the plans of the first GPU have no mark.
    assert marked(rendering.text(analysis())) == ["Imaginary GPU 9000"]


def test_the_tag_of_the_page_is_the_answers_and_not_the_first_gpus() -> None:
    assert html.build(analysis())["word"] == "GPU"
    missed = analysis(meets=False, sentence="None of 3 GPUs keeps 1.00 ms.")
    assert html.build(missed)["word"] == "Limit missed"
    assert html.build(missed)["side"] == "either"


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


def test_the_page_has_every_candidate_and_marks_the_best() -> None:
    told = html.render(analysis())
    section = told[told.index('<section id="ranking"') :]
    section = section[: section.index("</section>")]
    assert section.count('<th scope="row"') == 10
    best = section.index('<tr class="decided"')
    assert "Imaginary GPU 9000" in section[best : section.index("</tr>", best)]
    assert NO_ROOM.sentence in section
    assert 'data-chart="cost"' in section
    assert 'id="money"' not in told


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


def won_at_every_batch() -> Analysis:
    base = factory.analysis()
    ranges = (BatchRange(first=1, last=64, device="gpu"),)
    return replace(base, verdict=replace(base.verdict, sentence=VERDICT, ranges=ranges))


VERDICT = "Run it on the Imaginary GPU 3000: 4.0x (3.0x to 5.0x) faster than this CPU."


def test_an_answer_whose_sizes_are_guessed_says_so_in_every_sentence_that_decides() -> None:
    base = won_at_every_batch()
    first = base.operators[0]
    of_data = replace(first, outputs=(replace(first.outputs[0], shape=(None, 64)),))
    told = replace(base, operators=(of_data, *base.operators[1:]))
    assert ranking_text.sentence(told) == f"Some sizes are guessed. {VERDICT}"
    assert summary.crossover(told) == "With guessed sizes, the GPU wins at every batch from 1 to 64."


def test_a_crossover_of_a_rough_measurement_is_said_to_be_rough() -> None:
    base = won_at_every_batch()
    busy = replace(
        base,
        environment=replace(base.environment, measurement={"cpu": {"busy": True}}),
        verdict=replace(base.verdict, low=1.5, high=30.0),
    )
    assert summary.measure_again(busy)
    assert summary.crossover(busy) == "By this rough measurement, the GPU wins at every batch from 1 to 64."
