"""One answer for a service: the cheapest instances that keep the limit, each other one with its cause."""

from __future__ import annotations

from dataclasses import replace

import capacity_records as records
import pytest

from analyzer.pipeline.capacity.sizing import rank_services
from analyzer.record.outcome import WhyNot
from analyzer.report import capacity_words
from analyzer.report.capacity_words import sentence


def test_the_cheapest_option_that_keeps_the_limit_is_the_answer() -> None:
    result = records.capacity()
    answer, ways = rank_services(result, {}, named=True)
    best = result.options[0]
    assert answer is not None
    assert (answer.instance, answer.count, answer.usd_per_month) == (
        best.instance,
        best.count,
        best.usd_per_month,
    )
    assert (answer.usd_low_per_month, answer.usd_high_per_month) == (
        best.low_usd_per_month,
        best.high_usd_per_month,
    )
    assert (answer.latency_s, answer.throughput_per_s) == (best.p99_s, records.RATE)
    assert (answer.meets, answer.named, answer.batch) == (True, True, 16)
    assert answer.sentence == capacity_words.sentence(result)
    assert [way.instance for way in ways] == [option.instance for option in result.options]
    assert [way.why_not is None for way in ways] == [True, *(False for _ in ways[1:])]


def test_what_costs_more_says_how_much_and_what_keeps_no_limit_says_why() -> None:
    """Three at $0.80 an hour are $1,752 a month, twenty at $0.70 $10,220."""
    options = (records.option(), records.on_cpu(), records.refused())
    _, (_, cpu, small) = rank_services(records.capacity(options=options), {}, named=False)
    assert options[0].usd_per_month == 3 * 0.8 * 730
    assert options[1].usd_per_month == 20 * 0.7 * 730
    assert cpu.why_not is not None
    assert cpu.why_not.reason == "expensive"
    assert cpu.why_not.sentence.startswith("5.8x (")
    assert cpu.why_not.sentence.endswith(") the dollars")
    assert small.why_not is not None
    assert (small.why_not.reason, small.why_not.sentence) == ("limit", "one request alone takes 80.0 ms")
    assert (small.meets, small.usd_per_month) == (False, None)


@pytest.mark.parametrize("dollars", [0.8, 0.81])
def test_dollars_within_the_error_are_as_good(dollars: float) -> None:
    options = (records.option(), records.option(usd=dollars, instance="h.large"))
    _, (_, other) = rank_services(records.capacity(options=options), {}, named=False)
    assert other.why_not is not None
    assert other.why_not.reason == "as_good"


def test_where_nothing_keeps_the_limit_the_answer_is_what_comes_nearest() -> None:
    result = records.impossible()
    answer, (first, other) = rank_services(result, {}, named=False)
    assert answer is not None
    assert (answer.instance, answer.meets, answer.count, answer.usd_per_month) == ("g.large", False, None, None)
    assert answer.latency_s == min(load.p99_s or 1.0 for load in result.instances[1].loads)
    assert answer.sentence.startswith(sentence(result))
    assert "g.large (Imaginary, NVIDIA Imaginary 4) comes nearest" in answer.sentence
    assert (first.why_not, other.why_not and other.why_not.reason) == (None, "limit")


def test_what_cannot_run_misses_no_limit() -> None:
    result = records.impossible()
    no_room = WhyNot(reason="memory", sentence="No room for the model at batch 1.")
    answer, (_, other) = rank_services(
        replace(result, instances=result.instances[:1]), {1: no_room}, named=False
    )
    assert answer is not None
    assert answer.device == result.options[0].device
    assert (other.runs, other.why_not) == (False, no_room)
    assert rank_services(replace(result, instances=()), {}, named=False)[0] is None
