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
from analyzer.report import capacity_tables, capacity_words, html, operator_columns, render
from analyzer.report.charts.chart import Chart

EVERY: dict[str, dict[str, Any]] = {
    "plain": {},
    "growth": {"growth": 2.0, "spare": 0},
    "mean": {"percentile": None},
    "bare": {"instances": (), "traffic": (), "notes": ()},
    "nothing looked at": {"options": (), "best": None, "instances": (), "traffic": ()},
}


def drawn(analysis: Analysis) -> dict[str, Chart]:
    return {chart.name: chart for chart in html.charts_of(analysis) if chart.name.startswith("capacity")}


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


@pytest.mark.parametrize("name", ["html", "json", "text", "markdown", "csv", "junit", "sarif", "github"])
@pytest.mark.parametrize("case", EVERY)
def test_every_format_reports_a_capacity_plan_the_same_twice(name: str, case: str) -> None:
    one, other = (render(factory.capacity(**EVERY[case]), name) for _ in range(2))
    assert one == other
    assert one.strip()


@pytest.mark.parametrize("name", ["html", "text", "markdown", "csv"])
def test_a_plan_without_an_answer_gives_a_report_too(name: str) -> None:
    assert "one request alone takes 12.0" in render(factory.without_capacity(), name).replace("\u00a0", " ")


def test_a_plan_is_the_same_after_its_record_was_written_and_read() -> None:
    analysis = factory.capacity()
    assert from_json(to_json(analysis)).capacity == analysis.capacity


@pytest.mark.parametrize("said", [rendering.text, printed, rendering.markdown])
def test_the_answer_comes_first_and_the_verdict_is_said_to_be_of_one_batch(said: Any) -> None:
    told = flat(said(factory.capacity()))
    places = [
        told.index("3 x g.large (Imaginary, NVIDIA Imaginary 4): $1,752 a month, p99 37.0 ms of the 50.0 ms"),
        told.index("One batch"),
    ]
    assert places == sorted(places)
    for part in (
        "2,000 requests/s, p99 within 50.0 ms, 20 % headroom, 1 spare instance, on demand",
        "Over the 90 % interval of its times: 3 to 4 of them, $1,752 to $2,336 a month.",
        "Batches of at most 16, no delay.",
        "One may fail: even then there is room for another 22 % of traffic.",
    ):
        assert part in told


def test_the_cheapest_with_a_gpu_stands_beside_the_cheapest_without_one() -> None:
    told = figures()
    assert told["cheapest GPU"].figure == "3 x g.large"
    # 20 x $0.70 x 730 = $10,220 are 5.83 x $1,752.
    assert told["cheapest CPU"].figure == "20 x c.4xlarge"
    assert told["cheapest CPU"].note == (
        "Imaginary, Imaginary CPU 12, $10,220 a month, 5.8x the price of 3 x g.large"
    )
    alone = figures(options=(records.option(), records.refused()))["cheapest CPU"]
    assert (alone.figure, alone.bad) == ("none", True)
    assert alone.note == (
        "no instance without a GPU keeps the limit; nearest is c.small (Imaginary, Imaginary CPU 2): "
        "one request alone takes 80.0 ms"
    )
    never = figures(options=(records.option(),))["cheapest CPU"]
    assert (never.figure, never.note, never.bad) == ("none", "no instance without a GPU was looked at", False)


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


def test_an_end_of_the_interval_that_keeps_no_limit_is_said_and_no_figure() -> None:
    option = records.option(high_count=None, high_usd_per_month=None, low_rate_per_s=0.0)
    told = records.capacity(options=(option,))
    assert capacity_words.details(told)[0] == (
        "At the slow end of the 90 % interval of its times no number of them keeps the limit."
    )
    shown = {figure.name: figure for figure in capacity_words.figures(told)}
    assert (shown["instances"].interval, shown["$/month"].interval) == ("3 to none", "$1,752 to none")
    sheet = capacity_tables.instances(replace(factory.analysis(), capacity=told).capacity)
    assert sheet.beside[0][sheet.head.index("Count")] == "3 to none"


@pytest.mark.parametrize(
    ("spare", "said"),
    [
        (0, "Room for another 22 % of traffic. No instance may fail."),
        (1, "One may fail: even then there is room for another 22 % of traffic."),
        (2, "2 may fail: even then there is room for another 22 % of traffic."),
    ],
)
def test_spare_instances_and_room_are_told_together(spare: int, said: str) -> None:
    assert capacity_words.details(records.capacity(spare=spare))[-1] == said


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


def test_the_question_is_told_as_it_was_asked() -> None:
    subject = capacity_words.subject(records.capacity(rate_per_s=0.5, percentile=99.9, growth=2.0, spare=0))
    assert subject == (
        "0.5 requests/s, p99.9 within 50.0 ms, growth 2x, 20 % headroom, 0 spare instances, on demand"
    )
    assert "mean within 50.0 ms" in capacity_words.subject(records.capacity(percentile=None))


def test_a_limited_mean_is_shown_in_the_place_of_a_percentile() -> None:
    analysis = factory.capacity(percentile=None)
    assert "mean 15.0 ms of the 50.0 ms allowed" in rendering.text(analysis)
    sheet = capacity_tables.instances(analysis.capacity)
    assert sheet.rows[0][sheet.head.index("Mean")] == "15.0 ms"
    assert {row[1] for row in drawn(analysis)["capacity-latency"].rows} == {"p50", "p90", "p95", "p99", "mean"}


def test_the_lines_of_text_and_of_a_terminal_keep_to_their_width() -> None:
    for analysis in (*(factory.capacity(**case) for case in EVERY.values()), factory.without_capacity()):
        assert max(map(len, rendering.text(analysis).splitlines())) <= 100
        assert max(len(line.rstrip()) for line in printed(analysis).splitlines()) <= 80


def test_a_terminal_shows_the_first_ten_that_keep_the_limit_and_counts_the_rest() -> None:
    said = printed(many(40, 60), 100)
    assert "By dollars a month (10 of 100)" in said
    assert "g.9" in said
    assert "g.10" not in said
    assert "60 of 100 instance types do not keep the limit at any number." in said
    assert "g.39" in rendering.markdown(many(40, 60))
    assert "1 of 4 instance types does not keep the limit" in printed(factory.capacity())


def test_where_none_keeps_the_limit_the_reasons_of_the_first_ten_are_told() -> None:
    said = flat(printed(many(0, 12), 120))
    # Ten of the list, the nearest of all, and of the side without a GPU.
    assert said.count("one request alone takes 80.0 ms") == 12
    assert "do not keep" not in said


def test_the_table_has_every_option_with_its_interval_and_greys_what_is_none() -> None:
    sheet = capacity_tables.instances(factory.capacity().capacity)
    at = {name: sheet.head.index(name) for name in sheet.head}
    assert [row[at["Count"]] for row in sheet.rows] == ["3", "3", "20", "–"]
    # 2,400 requests/s over 1.4, 1 and 0.75 times 130 are 13.2, 18.5 and 24.6.
    assert [row[at["Count"]] for row in sheet.beside] == ["3 to 4", "", "15 to 26", ""]
    assert [row[at["$/month"]] for row in sheet.sort] == pytest.approx([1752.0, 2847.0, 10220.0, None])
    assert sheet.rows[0][at["Highest rate"]] == "1,220/s"
    assert sheet.beside[0][at["Highest rate"]] == "915 to 1,708"
    assert sheet.beside[2][at["Device"]] == "CPU, fp32, 2 copies, ○\u00a0predicted"
    assert sheet.beside[3][at["Device"]] == "CPU, fp32"
    assert [row[at["Max batch"]] for row in sheet.beside] == ["no delay", "no delay", "2.00 ms delay", ""]
    assert [row[at["Why not"]] for row in sheet.rows] == ["", "", "", "one request alone takes 80.0 ms"]
    assert (sheet.chosen, sheet.pale) == (0, (3,))
    assert all(len(row) == len(sheet.head) for row in (*sheet.rows, *sheet.sort, *sheet.beside))


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


def test_traffic_is_drawn_in_its_steps_with_what_was_asked() -> None:
    chart = drawn(factory.capacity())["capacity-traffic"]
    # One instance more for each 1,220 / 1.2 = 1,016.7 requests/s, one of all a spare.
    assert chart.rows[2] == pytest.approx((2033.33, 4, 4 * 0.8 * 730), rel=1e-5)
    assert [mark["label"] for mark in chart.extra["asked"]] == ["2,000/s asked"]
    assert "2,000 requests/s need 3, $1,752 a month" in chart.alternative
    grown = drawn(factory.capacity(growth=1.5))["capacity-traffic"]
    assert [(mark["at"], mark["label"]) for mark in grown.extra["asked"]] == [
        (2000.0, "2,000/s asked"),
        (3000.0, "3,000/s with growth"),
    ]


def test_loads_are_drawn_up_to_and_beyond_the_highest_rate_with_the_limit() -> None:
    charts = drawn(factory.capacity())
    latency = charts["capacity-latency"]
    at_knee = [row for row in latency.rows if row[0] == 1220.0]
    assert {row[1]: row[2] for row in at_knee}["p99"] == pytest.approx(0.05)
    assert {row[1] for row in latency.rows if row[-1] == "yes"} == {"p99"}
    assert latency.extra["limits"][0]["label"] == "limit 50.0 ms"
    # 2,000 requests/s over three.
    assert [mark["label"] for mark in latency.extra["marks"]] == ["each of 3: 667/s", "highest: 1,220/s"]
    assert "kept up to 1,220 requests/s" in latency.alternative
    batches = [row[4] for row in latency.rows if row[1] == "p99"]
    assert batches == [point.mean_batch for point in records.loads(1220.0)]


def test_without_an_answer_the_loads_are_those_of_the_nearest() -> None:
    charts = drawn(factory.without_capacity())
    assert list(charts) == ["capacity-latency"]
    assert "Of one g.large" in charts["capacity-latency"].lead
    assert "at no rate does it keep the limit" in charts["capacity-latency"].lead
    assert charts["capacity-latency"].extra["marks"] == ()
    assert drawn(factory.analysis()) == {}


def test_the_notes_say_what_a_request_a_batch_a_month_and_an_interval_are() -> None:
    said = " ".join(capacity_words.notes(records.capacity()))
    assert said.startswith("The GPUs' times are predicted. A request is one inference.")
    for part in (
        "Poisson arrivals",
        "Waiting requests form the next batch, at most max_batch, when a server is free and either the batch "
        "is full or the oldest has waited max_delay.",
        "queue of its own",
        "730 hours",
        "90 % interval",
    ):
        assert part in said
    assert "on-demand list prices" in said
    spot = " ".join(capacity_words.notes(records.capacity(pricing="spot")))
    assert "may take a spot machine away" in spot
    assert "as trace.csv has them" in " ".join(capacity_words.notes(records.capacity(arrivals="trace.csv")))


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


def test_a_plan_of_a_model_that_generates_keeps_the_answer_of_generation() -> None:
    both = replace(factory.generation(), capacity=records.capacity())
    told = flat(rendering.text(both))
    assert (
        told.index("3 x g.large") < told.index("the first token comes after") < told.index("One decode step:")
    )
    shown = html.render(both)
    assert shown.count('id="overview"') == 1
    assert shown.count("<h1>") == 1


def test_a_device_that_nobody_rents_out_is_called_by_its_own_name() -> None:
    own = records.option(provider="", instance="", region="", device_name="NVIDIA L4")
    assert capacity_words.several(own) == f"{own.count} x {own.device_name}"
    assert capacity_words.where(own) == f"{own.device_name} (in no price list)"
