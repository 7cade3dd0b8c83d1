"""Capacity plans side by side."""

from dataclasses import replace
from typing import Any

import capacity_records as records
import report_factory as factory

from analyzer.record.analysis import Analysis
from analyzer.report.compare import document, sentences
from analyzer.report.compare.build import compare, to_json
from analyzer.report.compare.comparison import Comparison
from analyzer.report.document import Table


def plan(highest: float = 1220.0, usd: float = 0.8, **changes: Any) -> Analysis:
    """2,000 requests/s with a fifth of headroom, one spare, on instances of this rate and price an hour."""
    return factory.capacity(
        **{"options": (records.option(highest, usd),), "instances": (), "traffic": (), **changes}
    )


def slower() -> Comparison:
    """2400 / 1220 = 1.97 need 2 and one: 3 x $584 = $1,752; 2400 / 700 = 3.43 need 4 and one: $2,920."""
    return compare([("old", plan()), ("new", plan(700.0))])


def test_the_figures_of_the_cheapest_instances_come_before_those_of_one_batch() -> None:
    comparison = slower()
    keys = [figure.key for figure in comparison.figures]
    assert keys[:6] == [
        "capacity.usd_per_month",
        "capacity.usd_per_million",
        "capacity.count",
        "capacity.highest_rate_per_s",
        "capacity.p50_s",
        "capacity.p99_s",
    ]
    values = {figure.key: figure.values for figure in comparison.figures}
    assert [round(value or 0, 6) for value in values["capacity.usd_per_month"]] == [1752, 2920]
    assert values["capacity.count"] == (3, 5)
    assert values["capacity.highest_rate_per_s"] == (1220, 700)
    month = comparison.figure("capacity.usd_per_month")
    assert month is not None
    assert (month.better, month.best, month.origins) == ("less", 0, ("predicted", "predicted"))
    # The quick end of the new one needs 2400 / 980 = 2.45, so 3 and one: $2,336, as the old one's slow end.
    assert month.overlap == (True, True)


def test_the_answer_is_what_costs_least_and_whether_the_intervals_tell() -> None:
    text, sure = sentences.headline(slower())
    # 2920 / 1752 = 1.67.
    assert text == (
        "old costs least: 3 x g.large for $1,752 a month against 5 x g.large for $2,920 a month of new, "
        "a factor of 1.7."
    )
    assert sure == "That is not certain: its 90 % interval and that of new overlap."
    # 3 at $0.30 are $657, at most 4 at $876; the other is $1,752 at least.
    text, sure = sentences.headline(compare([("old", plan()), ("new", plan(usd=0.3)), ("dear", plan(usd=2.0))]))
    assert text.startswith(
        "new costs least: 3 x g.large for $657 a month against 3 x g.large for $4,380 a month of dear"
    )
    assert sure == "That is certain: its 90 % interval and that of old, the next, do not overlap."
    same = sentences.headline(compare([("old", plan()), ("new", plan())]))
    assert same == ("All cost the same: 3 x g.large for $1,752 a month.", "")


def test_the_verdict_of_the_operators_is_said_to_be_of_one_batch() -> None:
    told = sentences.statements(slower())
    assert any(text.startswith("One batch: ") for text in told)
    assert not any("costs least" in text for text in told)
    assert "operators, plans and verdict are those of one batch" in slower().notes


def test_plans_for_other_traffic_are_compared_by_the_request() -> None:
    # At half the rate 1200 / 1220 = 0.98 need one and one: 2 x $584 = $1,168. A month of 1,000 requests/s has
    # 1,000 x 730 x 3600 = 2628 million.
    half = records.option(count=2, usd_per_month=1168.0, usd_per_million=1168 / 2628)
    comparison = compare([("whole", plan()), ("half", plan(options=(half,), rate_per_s=1000.0))])
    month = comparison.figure("capacity.usd_per_month")
    assert month is not None
    assert month.better == ""
    text, _ = sentences.headline(comparison)
    # $1,752 for 5256 million are $0.333, $1,168 for 2628 million $0.444: 1.33 times.
    assert text == (
        "whole costs least: 3 x g.large for $0.333 per million requests against 2 x g.large for "
        "$0.444 per million requests of half, a factor of 1.3."
    )
    assert any(note.startswith("the plans differ in traffic or limit") for note in comparison.notes)


def test_a_plan_without_an_answer_is_said_to_have_none() -> None:
    comparison = compare([("old", plan()), ("strict", factory.without_capacity(limit_s=records.LIMIT))])
    text, sure = sentences.headline(comparison)
    assert text == "old: 3 x g.large for $1,752 a month. No instance keeps the limit in strict."
    assert sure == ""
    fact = next(fact for fact in comparison.facts if fact.key == "capacity.best")
    assert fact.values == ("g.large (Imaginary, NVIDIA Imaginary 4)", "none keeps the limit")
    neither = compare([("a", factory.without_capacity()), ("b", factory.without_capacity())])
    assert sentences.headline(neither)[0] == "In no record any instance keeps the limit."


def test_instances_without_a_price_are_named_without_one() -> None:
    unpriced = records.option(
        usd_per_hour=None,
        usd_per_month=None,
        low_usd_per_month=None,
        high_usd_per_month=None,
        usd_per_million=None,
    )
    comparison = compare([("old", plan()), ("own", plan(options=(unpriced,)))])
    text, _ = sentences.headline(comparison)
    assert text == "old: 3 x g.large for $1,752 a month. own: 3 x g.large for – a month."


def test_other_instances_are_neither_better_nor_worse_by_their_number() -> None:
    comparison = compare([("gpu", plan()), ("cpu", plan(options=(records.on_cpu(),)))])
    for key in ("capacity.count", "capacity.highest_rate_per_s"):
        figure = comparison.figure(key)
        assert figure is not None
        assert figure.better == ""


def test_a_record_without_a_plan_stands_beside_one_with_it() -> None:
    comparison = compare([("plain", factory.analysis()), ("planned", plan())])
    figure = comparison.figure("capacity.count")
    assert figure is not None
    assert figure.values == (None, 3)
    assert "not every record plans a capacity" in comparison.notes
    assert "costs least" not in sentences.headline(comparison)[0]
    assert not any(fact.key.startswith("capacity") for fact in compare([("a", factory.analysis())] * 2).facts)


def group(comparison: Comparison, title: str) -> Table:
    """The figures of a group, side by side."""
    blocks = (block for one in document.document(comparison).sections for block in one.blocks)
    return next(block for block in blocks if isinstance(block, Table) and block.title == title)


def test_every_format_of_a_comparison_has_the_plans_and_the_page_a_group_of_its_own() -> None:
    comparison = slower()
    for said in (document.render_text(comparison), document.render_markdown(comparison)):
        assert "dollars a month" in said
        assert "old costs least: 3 x g.large" in said.replace("\u00a0", " ")
    assert '"capacity.usd_per_month"' in to_json(comparison)
    shown = group(comparison, "Capacity")
    assert shown.rows[0][0] == "dollars a month"
    assert shown.cell_marks[0][2] == ""
    assert document.render(comparison) == document.render(comparison)


def test_a_service_that_got_dearer_beyond_its_interval_is_worse() -> None:
    comparison = compare([("old", plan(usd=0.3)), ("new", plan())])
    shown = group(comparison, "Capacity")
    # $657 to $876 before, $1,752 to $2,336 now: 2.67 times.
    assert shown.cell_marks[0][2] == "worse"
    assert shown.beside[0][2].endswith("worse, beyond the intervals")


def test_what_is_torn_at_one_end_has_no_certainty() -> None:
    torn = replace(records.option(usd=0.3), high_count=None, high_usd_per_month=None)
    _, sure = sentences.headline(compare([("old", plan()), ("torn", plan(options=(torn,)))]))
    assert sure == ""


def test_plans_of_a_model_that_generates_are_held_by_its_tokens_too() -> None:
    asked: dict[str, Any] = {
        "requests": "generation",
        "prompt_tokens": 1000.0,
        "output_tokens": 200.0,
        "tpot_limit_s": 0.03,
    }
    told = records.option(tpot_p99_s=0.025, tokens_per_s=4e5)
    short, long = (plan(options=(told,), **{**asked, "output_tokens": tokens}) for tokens in (200.0, 400.0))
    comparison = compare([("short", short), ("long", long)])
    assert "the plans differ in traffic or limit" in " ".join(comparison.notes)
    facts = {fact.key: fact.values for fact in comparison.facts}
    assert facts["capacity.tokens"] == ("1,000 and 200", "1,000 and 400")
    assert facts["capacity.tpot_limit_s"] == ("30.0 ms", "30.0 ms")
    figures = {figure.key: figure.values for figure in comparison.figures}
    assert figures["capacity.tpot_p99_s"] == (0.025, 0.025)
    assert figures["capacity.tokens_per_s"] == (4e5, 4e5)
    assert "capacity.tokens" not in {fact.key for fact in slower().facts}


def test_of_models_that_generate_what_is_rented_comes_before_one_request_and_one_step() -> None:
    served = replace(factory.generation(), capacity=records.capacity())
    comparison = compare([("old", served), ("new", served)])
    keys = [figure.key.partition(".")[0] for figure in comparison.figures]
    assert list(dict.fromkeys(keys))[:3] == ["capacity", "generation", "plans"]
    page = document.render(comparison)
    assert (
        page.index("<h3>Capacity</h3>") < page.index("<h3>Generation</h3>") < page.index("<h3>Best plan</h3>")
    )
    assert "operators, plans and verdict are those of one decode step" in comparison.notes
    assert not any("one batch" in note for note in comparison.notes)
    assert any(text.startswith("One decode step: ") for text in sentences.statements(comparison))
