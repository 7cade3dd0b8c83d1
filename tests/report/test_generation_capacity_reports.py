"""What a report says of a capacity plan of a model that generates, in every format."""

from typing import Any

import capacity_records as records
import pytest
import report_factory as factory

from analyzer.record import from_json, to_json
from analyzer.record.capacity import CapacityResult
from analyzer.report import capacity_tables, capacity_words, html
from analyzer.report.compare.build import compare


def figures(told: CapacityResult) -> dict[str, Any]:
    return {figure.name: figure for figure in capacity_words.figures(told)}


def test_the_records_of_these_tests_are_kept_when_written_and_read() -> None:
    analysis = factory.generation_capacity()
    assert from_json(to_json(analysis)).capacity == analysis.capacity
    for option in records.generation().options[:2]:
        # 5 x 1.2 requests/s over 4 and 10, and a spare.
        assert (option.count, option.usd_per_month) in ((3, 3 * 730 * 1.0), (2, 2 * 730 * 2.5))


def test_dollars_are_told_per_million_requests_and_per_million_output_tokens() -> None:
    # $3 an hour for 18,000 requests are $166.67 a million; over 258 tokens each, $0.646.
    note = figures(records.generation())["$/month"].note
    assert note == (
        "$167 per million requests, $0.646 per million output tokens; on demand, price of 2026-07-20"
    )
    sheet = capacity_tables.instances(factory.generation_capacity())
    at = sheet.head.index("$/M requests")
    assert (sheet.rows[0][at], sheet.beside[0][at]) == ("$167", "$0.646 per M tokens out")


@pytest.mark.parametrize(
    ("percentile", "first", "further"),
    [
        (99, "p99 to the first token 380 ms", "p99 of each further token 31.0 ms of 50.0 ms"),
        (50, "p50 to the first token 120 ms", "p50 of each further token 24.0 ms of 50.0 ms"),
        # The record has no p90 of further tokens: a limit of that is none of the p99.
        (90, "p90 to the first token 240 ms", "p99 of each further token 31.0 ms."),
        (None, "mean time to the first token 150 ms", "p99 of each further token 31.0 ms."),
    ],
)
def test_a_time_is_held_against_the_limit_of_its_own_percentile(
    percentile: float | None, first: str, further: str
) -> None:
    said = capacity_words.sentence(records.generation(percentile=percentile))
    assert f"{first} of the 500 ms allowed" in said
    assert further in said


def test_an_instance_that_keeps_the_limits_at_one_width_is_none_that_keeps_none() -> None:
    # Of four rows three instances, of which the CPU's alone keeps none.
    assert capacity_words.refused(records.generation()).startswith("1 of 3 instance types")
    both = records.generation().options[1:3]
    assert capacity_words.refused(records.generation(options=both)) == ""


def test_the_page_has_one_answer_all_charts_and_a_what_if_that_keeps_the_other_limit() -> None:
    analysis = factory.generation_capacity()
    shown = html.render(analysis).replace("\u00a0", " ")
    assert shown.count('id="overview"') == 1
    assert "The limit of each further token stays as planned: 50.0 ms." in shown
    assert "p99 to the first token within, ms" in shown
    carried = html.build(analysis)["data"]["capacity"]
    assert (carried["generates"], carried["tokens"]) == (True, 258.0)
    assert [one["device"] for one in carried["instances"]] == [
        "NVIDIA Imaginary 4",
        "NVIDIA Imaginary 4, tensor parallel 2",
    ]
    assert "stays as planned" not in html.render(factory.generation_capacity(tpot_limit_s=None))
    assert not {"generates", "tokens"} & set(html.build(factory.capacity())["data"]["capacity"])


def test_compare_names_the_first_token_sequences_and_dollars_of_tokens() -> None:
    dearer = records.generating(4.0, 2.0)
    other = factory.generation_capacity(options=(dearer,), instances=())
    compared = compare([("a", factory.generation_capacity()), ("b", other)])
    labels = {figure.key: figure.label for figure in compared.figures}
    assert labels["capacity.p99_s"] == "p99 to the first token under load"
    tokens = next(one for one in compared.figures if one.key == "capacity.usd_per_million_tokens")
    # Twice the price of an hour.
    assert tokens.values[1] == pytest.approx(2 * (tokens.values[0] or 0.0))
    facts = {fact.key: fact.values for fact in compared.facts}
    assert facts["capacity.limit_s"] == ("p99 to the first token within 500 ms",) * 2
    assert facts["capacity.batching"] == ("at most 64 sequences at once",) * 2
