"""Capacity plans side by side."""

from dataclasses import replace

import capacity_records as records
import report_factory as factory
from comparison_records import plan, slower

from analyzer.report.compare import document, sentences
from analyzer.report.compare.build import compare, to_json
from analyzer.report.compare.comparison import Comparison
from analyzer.report.document import Table


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
