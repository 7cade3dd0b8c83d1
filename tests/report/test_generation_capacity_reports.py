"""What a report says of a capacity plan of a model that generates, in every format."""

import csv
import io
import json
from dataclasses import replace
from typing import Any

import capacity_records as records
import pytest
import rendering
import report_factory as factory

from analyzer.record import from_json, to_json
from analyzer.record.analysis import Analysis
from analyzer.record.capacity import CapacityResult
from analyzer.report import capacity_tables, capacity_words, html, operator_columns, render
from analyzer.report.charts.chart import Chart
from analyzer.report.compare.build import compare

EVERY: dict[str, dict[str, Any]] = {
    "plain": {},
    "growth": {"growth": 2.0, "spare": 0},
    "mean": {"percentile": None},
    "p90": {"percentile": 90},
    "no limit of further tokens": {"tpot_limit_s": None},
    "lengths not known": {"prompt_tokens": None, "output_tokens": None},
    "bare": {"instances": (), "traffic": (), "notes": ()},
}
# Of an answer of one token there is no further one.
ONE_TOKEN = {"tpot_p50_s": None, "tpot_p99_s": None}


def without_answer() -> Analysis:
    return replace(factory.generation(), capacity=records.impossible_generation())


def drawn(analysis: Analysis) -> dict[str, Chart]:
    return {chart.name: chart for chart in html.charts_of(analysis) if chart.name.startswith("capacity")}


def figures(told: CapacityResult) -> dict[str, Any]:
    return {figure.name: figure for figure in capacity_words.figures(told)}


def printed(analysis: Analysis, width: int = 80) -> str:
    return rendering.screen(analysis, width)


def flat(said: str) -> str:
    return " ".join(said.replace("│", " ").replace("\\", "").split())


@pytest.mark.parametrize("name", ["html", "json", "text", "markdown", "csv", "junit", "sarif", "github"])
@pytest.mark.parametrize("case", EVERY)
def test_every_format_reports_such_a_plan_the_same_twice(name: str, case: str) -> None:
    one, other = (render(factory.generation_capacity(**EVERY[case]), name) for _ in range(2))
    assert one == other
    assert one.strip()


def test_the_records_of_these_tests_are_kept_when_written_and_read() -> None:
    analysis = factory.generation_capacity()
    assert from_json(to_json(analysis)).capacity == analysis.capacity
    for option in records.generation().options[:2]:
        # 5 x 1.2 requests/s over 4 and 10, and a spare.
        assert (option.count, option.usd_per_month) in ((3, 3 * 730 * 1.0), (2, 2 * 730 * 2.5))


@pytest.mark.parametrize("said", [rendering.text, printed, rendering.markdown])
def test_the_answer_tells_first_and_further_tokens_beside_their_limits(said: Any) -> None:
    told = flat(said(factory.generation_capacity()))
    for part in (
        "5 requests/s of 1,024 tokens in and 258 out on average, p99 to the first token within 500 ms, "
        "of each further token within 50.0 ms, 20 % headroom, 1 spare instance, on demand",
        "3 x g.large (Imaginary, NVIDIA Imaginary 4): $2,190 a month, p99 to the first token 380 ms of the "
        "500 ms allowed, p99 of each further token 31.0 ms of 50.0 ms.",
        "At most 64 sequences at once on each copy of the model, 12 on average.",
        # 5 x 258.
        "All of them give 1,290 output tokens/s.",
        "1 of 3 instance types does not keep the limits at any number.",
    ):
        assert part in told
    assert told.index("3 x g.large") < told.index("One decode step:")
    for inference in ("delay", "batch on average", "one inference"):
        assert inference not in told


def test_dollars_are_told_per_million_requests_and_per_million_output_tokens() -> None:
    # $3 an hour for 18,000 requests are $166.67 a million; over 258 tokens each, $0.646.
    note = figures(records.generation())["$/month"].note
    assert note == (
        "$167 per million requests, $0.646 per million output tokens; on demand, price of 2026-07-20"
    )
    sheet = capacity_tables.instances(factory.generation_capacity().capacity)
    at = sheet.head.index("$/M requests")
    assert (sheet.rows[0][at], sheet.beside[0][at]) == ("$167", "$0.646 per M tokens out")


def test_figures_name_both_times_and_what_runs_together() -> None:
    shown = figures(records.generation())
    assert (shown["p99 TTFT"].figure, shown["p99 TTFT"].note) == (
        "380 ms",
        "of 500 ms allowed, all instances up",
    )
    assert (shown["p99 TPOT"].figure, shown["p99 TPOT"].note) == (
        "31.0 ms",
        "of 50.0 ms allowed, all instances up",
    )
    assert (shown["p99 TTFT"].title, shown["p99 TPOT"].title) == (
        "p99 time to the first token",
        "p99 time of each further token",
    )
    assert shown["output tokens/s"].figure == "1,290"
    assert shown["highest rate"].note == "within 500 ms to the first token, 50.0 ms for each further one"
    assert shown["utilisation"].note == (
        "of what could be finished; 12 sequences run on average on each copy, 64 at most"
    )
    late = figures(records.generation(options=(records.generating(tpot_p99_s=0.06),)))
    assert (late["p99 TPOT"].bad, late["p99 TTFT"].bad) == (True, False)


def test_a_further_token_without_a_limit_is_told_without_one() -> None:
    told = records.generation(tpot_limit_s=None)
    assert capacity_words.sentence(told).endswith("p99 of each further token 31.0 ms.")
    assert "each further token" not in capacity_words.subject(told)
    assert figures(told)["p99 TPOT"].note == "all instances up"
    assert figures(told)["highest rate"].note == "within 500 ms to the first token"
    assert capacity_words.refused(told) == "1 of 3 instance types does not keep the limit at any number."


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


def test_answers_of_one_token_have_no_further_ones() -> None:
    loads = tuple(replace(point, **ONE_TOKEN) for point in records.generating_loads(4.0))
    told = records.generation(
        options=(records.generating(**ONE_TOKEN),),
        instances=(records.generating_instance(0, 4.0, 1.0, loads=loads),),
        tpot_limit_s=None,
        output_tokens=1.0,
    )
    analysis = replace(factory.generation(), capacity=told)
    assert "further" not in capacity_words.sentence(told)
    assert "p99 TPOT" not in figures(told)
    assert "p99 TPOT" not in capacity_tables.instances(told).head
    assert list(drawn(analysis)) == ["capacity-traffic", "capacity-latency"]
    assert "1,024 tokens in and 1 out on average" in capacity_words.subject(told)


def test_the_table_has_sequences_both_times_and_how_many_gpus_share_a_copy() -> None:
    sheet = capacity_tables.instances(factory.generation_capacity().capacity)
    at = {name: sheet.head.index(name) for name in sheet.head}
    assert "Max batch" not in at
    assert [row[at["Sequences"]] for row in sheet.rows] == ["64", "64", "–", "–"]
    assert [row[at["Sequences"]] for row in sheet.beside] == ["12 on average", "12 on average", "", ""]
    assert [row[0] for row in sheet.beside[:3]] == [
        "Imaginary nowhere-1",
        "Imaginary nowhere-1",
        "Imaginary nowhere-1",
    ]
    assert [row[at["p99 TTFT"]] for row in sheet.rows] == ["380 ms", "380 ms", "–", "–"]
    assert [row[at["p99 TPOT"]] for row in sheet.sort] == [0.031, 0.022, None, None]
    assert [row[at["Device"]] for row in sheet.beside] == [
        "GPU, fp16, ○\u00a0predicted",
        "GPU, fp16, 4 GPUs, 4 used by 2 copies, ○\u00a0predicted",
        "GPU, fp16",
        "CPU, fp32",
    ]
    one = records.generating(width=4, replicas=1, gpu_count=4.0)
    sheet = capacity_tables.instances(factory.generation_capacity(options=(one,)).capacity)
    assert sheet.beside[0][at["Device"]] == "GPU, fp16, 4 GPUs, 4 used by 1 copy, ○\u00a0predicted"


def test_the_width_stands_wherever_an_instance_is_named() -> None:
    wide = records.generation().options[1]
    on = "NVIDIA Imaginary 4, tensor parallel 2, 4 GPUs, 4 used by 2 copies"
    assert capacity_words.where(wide) == f"g.2xlarge (Imaginary, {on})"
    assert "g.2xlarge TP 2" in rendering.text(factory.generation_capacity())
    notes = " ".join(capacity_words.notes(records.generation()))
    assert "Tensor parallel (TP) 2: two GPUs share one copy of the model" in notes
    alone = " ".join(capacity_words.notes(records.generation(options=(records.generating(),))))
    assert "ensor parallel" not in alone


def test_an_instance_that_keeps_the_limits_at_one_width_is_none_that_keeps_none() -> None:
    # Of four rows three instances, of which the CPU's alone keeps none.
    assert capacity_words.refused(records.generation()).startswith("1 of 3 instance types")
    both = records.generation().options[1:3]
    assert capacity_words.refused(records.generation(options=both)) == ""


def test_without_an_answer_both_limits_and_who_comes_nearest_are_told() -> None:
    told = records.impossible_generation()
    assert capacity_words.sentence(told) == (
        "None of 2 instance types keeps a p99 to the first token of 500 ms and of 50.0 ms for each further one."
    )
    assert capacity_words.details(told) == (
        "g.2xlarge (Imaginary, NVIDIA Imaginary 4) comes nearest: A single sequence takes 61.0 ms a token, "
        "over the limit of 50.0 ms.",
        "Within 1.00 s to the first token one takes 0.500 requests/s.",
    )
    assert capacity_words.word(told) == "no instance keeps the limits"
    for name in ("html", "text", "markdown", "csv"):
        assert "takes 61.0" in render(without_answer(), name).replace("\u00a0", " ")


def test_first_and_further_tokens_are_drawn_with_their_limits() -> None:
    charts = drawn(factory.generation_capacity())
    assert list(charts) == ["capacity-traffic", "capacity-latency", "capacity-tpot"]
    first, further = charts["capacity-latency"], charts["capacity-tpot"]
    at_knee = {row[1]: row[2] for row in first.rows if row[0] == 4.0}
    assert at_knee["p99"] == pytest.approx(0.5)
    assert first.extra["limits"][0]["label"] == "limit 500 ms"
    assert "have their first token within p50" in first.lead
    assert first.alternative.endswith("The limit is 500 ms; both limits are kept up to 4.00 requests/s.")
    # 50 ms x (0.4 + 0.3) and 50 ms.
    assert {row[1]: row[2] for row in further.rows if row[0] == 4.0} == pytest.approx(
        {"p50": 0.035, "p99": 0.05}
    )
    assert {row[1] for row in further.rows if row[-1] == "yes"} == {"p99"}
    assert [(line["at"], line["label"]) for line in further.extra["limits"]] == [(0.05, "limit 50.0 ms")]
    # 5 requests/s over three.
    assert [mark["label"] for mark in further.extra["marks"]] == ["each of 3: 1.67/s", "highest: 4.00/s"]
    assert "Sequences" in {column.title for column in further.columns}


def test_without_a_limit_of_further_tokens_their_chart_has_no_line_of_it() -> None:
    chart = drawn(factory.generation_capacity(tpot_limit_s=None))["capacity-tpot"]
    assert chart.extra["limits"] == ()
    assert "limit" not in f"{chart.lead} {chart.alternative}"
    assert '"limits"' not in json.dumps(chart.spec)
    assert {row[-1] for row in chart.rows} == {"no"}


def test_notes_say_what_continuous_batching_is_here_and_nothing_of_batches_of_inferences() -> None:
    said = " ".join(capacity_words.notes(records.generation()))
    for part in (
        "A request is a prompt and its answer of 1,024 tokens in and 258 out on average.",
        "a step makes the next token of every running sequence. Where a request waits, a slot is free and the "
        "cache has room for its prompt and all of its output, its prompt is read first, whole, while others "
        "wait.",
        "Each copy of the model has a queue and a cache of its own",
        "Poisson arrivals",
        "utilisation is the share of the highest rate that could be finished without any limit of time",
        "730 hours",
    ):
        assert part in said
    for inference in ("max_delay", "one inference", "share its queue", "is busy"):
        assert inference not in said
    # A trace gives lengths alone; the record's own notes say so.
    assert "arrive as" not in " ".join(capacity_words.notes(records.generation(arrivals="trace.csv")))


def test_lines_keep_to_their_width() -> None:
    for analysis in (*(factory.generation_capacity(**case) for case in EVERY.values()), without_answer()):
        assert max(map(len, rendering.text(analysis).splitlines())) <= 100
        assert max(len(line.rstrip()) for line in printed(analysis).splitlines()) <= 80


def test_csv_has_the_times_of_further_tokens_and_the_dollars_of_tokens() -> None:
    rows = list(csv.DictReader(io.StringIO(operator_columns.render(factory.generation_capacity()))))
    assert [row["width"] for row in rows] == ["1", "2", "1", "1"]
    assert [row["tpot_p99_s"] for row in rows] == ["0.031", "0.022", "", ""]
    assert float(rows[0]["usd_per_million_tokens"]) == pytest.approx(3 / (3600 * 5 * 258) * 1e6)


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
