"""What a report says first of a capacity plan, in every format."""

import csv
import io
import json
import math
from dataclasses import fields, replace
from typing import Any

import capacity_records as records
import pytest
import rendering
import report_factory as factory

from analyzer.record import from_json, to_json
from analyzer.record.analysis import Analysis
from analyzer.record.capacity import CapacityOption
from analyzer.report import capacity_words, html, operator_columns


def figures(**changes: Any) -> dict[str, Any]:
    return {figure.name: figure for figure in capacity_words.figures(records.capacity(**changes))}


def printed(analysis: Analysis, width: int = 80) -> str:
    return rendering.screen(analysis, width)


def flat(said: str) -> str:
    return " ".join(said.replace("│", " ").replace("\\", "").split())


def many(feasible: int, refused: int) -> Analysis:
    kept = tuple(records.option(1220.0, 0.8 + number, instance=f"g.{number}") for number in range(feasible))
    rest = tuple(records.refused(instance=f"c.{number}") for number in range(refused))
    return factory.capacity(options=(*kept, *rest), best=0 if feasible else None, instances=())


def test_without_an_answer_the_option_of_the_least_limit_comes_nearest() -> None:
    told = records.impossible()
    # Of both something is kept: from 20 ms on by the GPU, from 50 ms on by the CPU.
    assert capacity_words.nearest(told) == 1
    assert capacity_words.nearest(told, "cpu") == 0
    assert capacity_words.sentence(told) == "None of 2 instance types keeps a p99 of 5.00 ms."
    assert capacity_words.details(told) == (
        "g.large (Imaginary, NVIDIA Imaginary 4) comes nearest: one request alone takes 12.0 ms.",
        "Within 20.0 ms one takes 300 requests/s.",
    )
    assert capacity_words.word(told) == "no instance keeps the limit"
    # Without limits that are kept the least latency decides: a p99 of 6 ms is 12 % of the 50 of the records.
    slow, quick = (records.instance(at, 100.0, 1.0, limits=()) for at in (0, 1))
    slow = replace(slow, loads=tuple(replace(point, p99_s=point.p99_s * 3) for point in slow.loads))
    assert capacity_words.nearest(records.impossible(instances=(slow, quick))) == 1
    assert capacity_words.nearest(records.impossible(instances=())) == 0


@pytest.mark.parametrize(
    ("batch", "delay", "said"),
    [
        (1, 0.0, "each request alone"),
        (16, 0.0, "batches of at most 16, no delay"),
        (16, 0.002, "batches of at most 16, each waits at most 2.00 ms for others"),
        (None, None, ""),
    ],
)
def test_batching_is_a_clause(batch: int | None, delay: float | None, said: str) -> None:
    assert capacity_words.batching(batch, delay) == said


def test_where_none_keeps_the_limit_the_reasons_of_the_first_ten_are_told() -> None:
    said = flat(printed(many(0, 12), 120))
    # Ten of the list, the nearest of all, and of the side without a GPU.
    assert said.count("one request alone takes 80.0 ms") == 12
    assert "do not keep" not in said


def test_csv_has_the_options_with_the_records_own_keys_and_figures() -> None:
    analysis = factory.capacity()
    rows = list(csv.DictReader(io.StringIO(operator_columns.render(analysis))))
    # The way of paying is one for all of them.
    assert {*rows[0], "pricing"} == {item.name for item in fields(CapacityOption)}
    assert [row["instance"] for row in rows] == ["g.large", "g.2xlarge", "c.4xlarge", "c.small"]
    assert float(rows[0]["usd_per_month"]) == analysis.capacity.options[0].usd_per_month
    assert (rows[3]["count"], rows[3]["feasible"]) == ("", "False")
    # An operator each in every other record.
    assert "op_type" in operator_columns.render(factory.analysis()).splitlines()[0]


def test_names_of_strangers_are_shown_as_text() -> None:
    odd = "<script>alert(1)</script>[bold]"
    rows = (records.option(instance=odd, device_name=odd), records.refused(reason=odd))
    analysis = factory.capacity(options=rows, instances=(records.instance(0, 1220.0, 0.8),))
    assert "<script>alert" not in html.render(analysis)
    assert "<script>alert" not in rendering.markdown(analysis)
    assert "<script>alert" in printed(analysis, 200)


def test_the_page_carries_the_what_if_with_the_question_to_its_last_digit() -> None:
    told = records.capacity(rate_per_s=1 / 3, limit_s=0.07)
    analysis = replace(factory.analysis(), capacity=told)
    carried = json.loads(json.dumps(html.build(analysis)["data"]["capacity"]))
    assert (carried["question"]["rate"], carried["question"]["limit"]) == (1 / 3, 0.07)
    assert html.build(analysis)["capacity"]["form"]["limit"] == "70"
    assert html.build(analysis)["capacity"]["form"]["ways"] == {
        "on-demand": "on demand",
        "spot": "spot",
    }
    assert "capacity" not in html.build(factory.analysis())["data"]
    # Without operators a page carries no scripts that could compute.
    assert html.build(replace(factory.empty(), capacity=told))["capacity"]["form"] is None
    assert "what-if-form" not in html.render(replace(factory.empty(), capacity=told))


def test_the_records_of_these_tests_count_as_the_contract_says() -> None:
    for option in records.capacity().options[:3]:
        needed = records.RATE * (1 + records.HEADROOM) / option.highest_rate_per_s
        assert option.count == math.ceil(needed) + records.SPARE
        assert option.usd_per_month == option.count * option.usd_per_hour * 730
    analysis = factory.generation_capacity()
    assert from_json(to_json(analysis)).capacity == analysis.capacity
    for option in records.generation().options[:2]:
        # 5 x 1.2 requests/s over 4 and 10, and a spare.
        assert (option.count, option.usd_per_month) in ((3, 3 * 730 * 1.0), (2, 2 * 730 * 2.5))


def test_a_device_that_nobody_rents_out_is_called_by_its_own_name() -> None:
    own = records.option(provider="", instance="", region="", device_name="NVIDIA L4")
    assert capacity_words.several(own) == f"{own.count} x {own.device_name}"
    assert capacity_words.where(own) == f"{own.device_name} (in no price list)"


def test_an_instance_that_keeps_the_limits_at_one_width_is_none_that_keeps_none() -> None:
    # Of four rows three instances, of which the CPU's alone keeps none.
    assert capacity_words.refused(records.generation()).startswith("1 of 3 instance types")
    both = records.generation().options[1:3]
    assert capacity_words.refused(records.generation(options=both)) == ""
