"""The what-if of a capacity plan in a real browser: its arithmetic beside the same in Python, and its form."""

import json
import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import capacity_records as records
import pytest
import report_factory as factory

from analyzer import analyze, analyze_generation
from analyzer.record.capacity import CapacityResult, InstanceLoads
from analyzer.report import html
from analyzer.units import count, seconds

pytestmark = pytest.mark.browser
READY = "document.documentElement.dataset.charts === 'drawn'"
ROWS = "#what-if-rows tr"


@pytest.fixture
def ask(visit_text: Any) -> Any:
    """Opens the page of a capacity plan and waits until all of it is drawn.

    The usual plan's is one for all tests: each leaves its form as it was asked.
    """

    def go(told: CapacityResult | None = None) -> Any:
        text = html.render(replace(factory.analysis(), capacity=told or records.capacity()))
        page, seen = visit_text(text, looks=told is None)
        page.wait_for_function(READY)
        return page, seen

    return go


def ask_again_what_was_asked(page: Any) -> None:
    page.locator("#what-if-form button[type=reset]").click()
    page.wait_for_function("document.querySelector('#what-if-answer .sure').textContent.startsWith('This is')")


def fill(page: Any, **values: Any) -> None:
    for name, value in values.items():
        page.locator(f"#what-if-form [name={name}]").fill(str(value))


def highest(one: InstanceLoads, limit: float) -> float:
    """The contract of the what-if: a line in logarithms between two limits, nothing beyond what is known."""
    points = [(point.limit_s, point.rate_per_s) for point in one.limits]
    below = [point for point in points if point[0] <= limit]
    above = [point for point in points if point[0] > limit]
    if not below or below[-1][1] == 0:
        return 0.0
    (end, rate), following = below[-1], above[:1]
    if end == limit or not following or following[0][1] == 0:
        return rate
    slope = math.log(following[0][1] / rate) / math.log(following[0][0] / end)
    return rate * (limit / end) ** slope


def twin(question: Mapping[str, Any], one: InstanceLoads) -> tuple[int, float] | None:
    """Count and dollars a month; None where nothing keeps the limit or no price is known."""
    rate = highest(one, question["limit"])
    if not rate or question["pricing"] not in one.usd_per_hour:
        return None
    needed = question["rate"] * question["growth"] * (1 + question["headroom"]) / rate
    # A rate that is met exactly stays so.
    count = math.ceil(needed - 1e-9) + question["spare"]
    return count, count * one.usd_per_hour[question["pricing"]] * 730


def questions() -> list[dict[str, Any]]:
    asked = {"rate": 2000, "limit": 0.05, "growth": 1, "headroom": 0.2, "spare": 1, "pricing": "on-demand"}
    changes: list[dict[str, Any]] = [
        {},
        {"rate": 1},
        {"rate": 123_456.7, "growth": 2.5},
        {"limit": 0.001},
        {"limit": 0.02},
        {"limit": 0.025},
        {"limit": 0.04},
        {"limit": 0.0707},
        {"limit": 0.2},
        {"limit": 5.0, "headroom": 0},
        {"spare": 0, "growth": 0.5},
        {"pricing": "spot", "headroom": 1.5},
    ]
    return [{**asked, **change} for change in changes]


def test_the_scripts_arithmetic_is_that_of_its_twin_in_python(ask: Any) -> None:
    page, _ = ask()
    told = records.capacity()
    for question in questions():
        found = page.evaluate(
            "(question) => capacity.instances.map((one) => { const row = capacity.plan(question, one);"
            " return row.kept ? [row.count, row.month] : null; })",
            question,
        )
        expected = [twin(question, one) for one in told.instances]
        assert [row is None for row in found] == [row is None for row in expected], question
        for row, own in zip(found, expected, strict=True):
            if own is not None:
                assert row[0] == own[0], question
                assert row[1] == pytest.approx(own[1], rel=1e-12)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        # 70 ms and a third: what a field shows is not what the question has.
        {"rate_per_s": 2000 / 3, "limit_s": 0.07, "headroom": 1 / 7, "growth": 1.1},
    ],
)
def test_the_questions_own_values_give_the_records_own_answers(ask: Any, changes: Any) -> None:
    told = records.capacity(**changes)
    scale = told.rate_per_s * told.growth
    options = tuple(
        option
        if option.highest_rate_per_s is None
        else replace(
            option,
            count=records.count_of(option.highest_rate_per_s, rate=scale, headroom=told.headroom),
        )
        for option in told.options
    )
    # The first points of each instance are at the question's own limit.
    instances = tuple(
        replace(
            one, limits=tuple(replace(p, limit_s=told.limit_s) if p.limit_s == 0.05 else p for p in one.limits)
        )
        for one in told.instances
    )
    told = replace(told, options=options, instances=instances)
    page, seen = ask(told)
    # The arithmetic itself, for the record's own question, not only the record's copy of its answers.
    counts = "capacity.instances.map((one) => capacity.plan(capacity.question, one).count ?? null)"
    assert page.evaluate(counts) == [option.count for option in options]
    shown = page.evaluate(
        f"[...document.querySelectorAll('{ROWS}')].map((row) => row.cells[1].textContent.trim())"
    )
    assert shown == ["3", "3", "20", "–"] if not changes else [str(option.count or "–") for option in options]
    assert "This is what was asked." in page.locator("#what-if-answer").inner_text()
    assert page.locator(ROWS).first.inner_text().startswith("g.large")
    assert seen.errors == []


def test_what_has_no_price_stands_behind_what_has_one_as_in_the_plan(ask: Any) -> None:
    told = records.capacity()
    first = replace(told.options[0], usd_per_hour=None, usd_per_month=None, usd_per_million=None)
    page, seen = ask(replace(told, options=(first, *told.options[1:]), best=1))
    assert page.locator("#what-if-answer .sentence").inner_text().startswith("3 x ")
    kept = [text.split()[0] for text in page.locator(ROWS).all_inner_texts()][:3]
    assert kept[-1] == first.instance
    assert seen.errors == []


def test_the_form_answers_as_it_is_typed_and_goes_back(ask: Any) -> None:
    page, seen = ask()
    answer, table = page.locator("#what-if-answer"), page.locator(ROWS)
    before = [text.split() for text in table.all_inner_texts()]
    fill(page, rate=20_000)
    # 24,000 over 1,220 are 19.7, over 1,600 are 15: 21 x $0.80 and 16 x $1.30 an hour.
    assert "21 x g.large (Imaginary, NVIDIA Imaginary 4): $12,264 a month." in answer.inner_text()
    assert "$10,512 a month more than for the question (3 x g.large)." in answer.inner_text()
    page.locator("#what-if-form [name=pricing]").select_option("spot")
    # 40 % of it; the other has no such price.
    assert "21 x g.large (Imaginary, NVIDIA Imaginary 4): $4,906 a month." in answer.inner_text()
    assert "no price (spot) is known" in table.filter(has_text="g.2xlarge").inner_text()
    ask_again_what_was_asked(page)
    assert [text.split() for text in table.all_inner_texts()] == before
    assert seen.errors == []


def test_a_limit_that_none_keeps_is_said_with_who_comes_nearest(ask: Any) -> None:
    page, _ = ask()
    fill(page, limit=10)
    said = page.locator("#what-if-answer").inner_text()
    assert "No instance keeps a p99 of 10.0 ms." in said
    # Both with a GPU keep 30 ms from some rate on, the larger one at the higher rate.
    assert "g.2xlarge (Invented, NVIDIA Imaginary 4) comes nearest: keeps no p99 of 10.0 ms" in said
    assert "the least that it keeps is 30.0 ms" in said
    assert page.locator(f"{ROWS}.pale").count() == 4
    # Between a limit that is not kept and the first one that is nothing was worked out.
    fill(page, limit=28)
    said = page.locator("#what-if-answer").inner_text()
    assert "Whether an instance keeps a p99 of 28.0 ms is not known here" in said
    assert "comes nearest: not known for 28.0 ms" in said
    fill(page, limit=150)
    # What keeps no 50 ms takes 10 requests/s within 100 ms, and some more here.
    assert page.locator(f"{ROWS}.pale").count() == 0
    ask_again_what_was_asked(page)


def test_what_keeps_no_longer_limit_keeps_no_shorter_one(ask: Any) -> None:
    page, _ = ask()
    limits = json.dumps([[0.02, 0, 1, 0], [0.04, 0, 1, 0], [0.08, 50, 1, 0]])
    asked = [0.01, 0.04, 0.06, 0.08]
    found = [
        page.evaluate(
            f"String(capacity.highest({limits}, {limit})?.rate ?? capacity.highest({limits}, {limit}))"
        )
        for limit in asked
    ]
    # 0.06 lies between a limit that is not kept and one that is.
    assert found == ["null", "null", "undefined", "50"]
    assert page.evaluate("capacity.highest([], 1)") is None


def test_what_is_no_question_is_said_and_changes_no_row(ask: Any) -> None:
    page, seen = ask()
    before = page.locator(ROWS).all_inner_texts()
    answer = page.locator("#what-if-answer")
    for name, value, said in (
        ("rate", "", "Requests per second: give a number."),
        ("rate", "0", "Requests per second: it must be above 0."),
        ("headroom", "-1", "Headroom, %: it cannot be below 0."),
        ("spare", "1.5", "Spare instances: give a whole number."),
    ):
        fill(page, **{name: value})
        assert said in answer.inner_text()
        assert page.locator(f"#what-if-form [name={name}]").get_attribute("aria-invalid") == "true"
        assert page.locator(ROWS).all_inner_texts() == before
        ask_again_what_was_asked(page)
    assert seen.errors == []


def test_names_of_strangers_stay_text_in_what_the_script_writes(ask: Any) -> None:
    odd = "<img src=x onerror=alert(1)>"
    told = records.capacity()
    options = tuple(
        replace(option, instance=odd, device_name=odd, provider=odd, reason=odd) for option in told.options
    )
    page, seen = ask(replace(told, options=options))
    fill(page, rate=3000)
    assert odd in page.locator(ROWS).first.inner_text()
    assert page.locator("#what-if img").count() == 0
    assert seen.errors == []


def test_a_rate_that_is_met_exactly_needs_no_further_instance(ask: Any) -> None:
    page, _ = ask()
    # 100 x 1.1 is 110.00000000000001 in floating point.
    one = {"limits": [[0.05, 110, 1, 0]], "loads": [], "usd": {"spot": 1}}
    question = {"rate": 100, "limit": 0.05, "growth": 1, "headroom": 0.1, "spare": 0, "pricing": "spot"}
    assert page.evaluate("([question, one]) => capacity.plan(question, one).count", [question, one]) == 1
    # No traffic to speak of needs one.
    question["rate"] = 1e-13
    assert page.evaluate("([question, one]) => capacity.plan(question, one).count", [question, one]) == 1


def test_utilisation_between_two_loads_lies_on_a_line_and_ends_with_them(ask: Any) -> None:
    page, _ = ask()
    loads = json.dumps([[10, 0.2], [20, 0.6], [40, 0.9]])
    asked = [5, 10, 15, 40, 100]
    found = [page.evaluate(f"capacity.busy({loads}, {rate})") for rate in asked]
    assert found == pytest.approx([0.1, 0.2, 0.4, 0.9, 0.9])
    assert page.evaluate("capacity.busy([], 5)") is None


def test_of_a_model_that_generates_the_same_arithmetic_answers_other_first_tokens(visit_text: Any) -> None:
    told = records.generation()
    page, seen = visit_text(html.render(factory.generation_capacity()))
    page.wait_for_function(READY)
    answer, table = page.locator("#what-if-answer"), page.locator(ROWS)
    assert "This is what was asked." in answer.inner_text()
    assert "at most 64 sequences at once on a copy of the model" in answer.inner_text()
    # $3 an hour over 5 x 3,600 requests of 258 tokens each.
    assert "$0.646 per M tokens out" in table.first.inner_text()
    for question in (
        {"rate": 50, "limit": 0.5, "growth": 1, "headroom": 0.2, "spare": 1, "pricing": "on-demand"},
        {"rate": 50, "limit": 0.3, "growth": 1, "headroom": 0.2, "spare": 1, "pricing": "on-demand"},
    ):
        fill(page, rate=question["rate"], limit=question["limit"] * 1e3)
        expected = min(row[1] for one in told.instances if (row := twin(question, one)))
        assert f"${expected:,.0f} a month" in answer.inner_text()
        assert "delay" not in page.locator("#what-if").inner_text()
    assert "tensor parallel 2" in page.locator("#what-if-rows").inner_text()
    fill(page, limit=100)
    assert "No instance keeps a p99 to the first token of 100 ms." in answer.inner_text()
    assert seen.errors == []


def test_a_reason_that_is_a_sentence_ends_once(ask: Any) -> None:
    options = tuple(replace(one, reason=f"{one.reason}.") for one in records.impossible().options)
    page, _ = ask(records.impossible(options=options))
    assert "one request alone takes 12.0 ms." in page.locator("#what-if-answer").inner_text()
    assert ".." not in page.locator("#what-if-answer").inner_text()
    assert not any(".." in text for text in page.locator("#overview .sure").all_inner_texts())


def test_another_batch_and_another_limit_of_a_run_are_answered_from_its_sweep(visit_text: Any) -> None:
    analysis = analyze("samples/mlp.py", run=False, gpu="l4", cpu="epyc-9654")
    page, seen = visit_text(html.render(analysis), looks=False)
    page.wait_for_function(READY)
    page.locator("#batch-what-if > summary").click()
    row = analysis.sweep[-1]
    times = {name: plan.latency_s for name, plan in row.plans.items() if plan.fits}
    page.locator("#batch-form [name=batch]").fill(str(row.batch))
    page.locator("#batch-form [name=slo]").fill(f"{min(times.values()) * 1e3 * 1.01:.10g}")
    sentence, sure = page.locator("#batch-answer p").all_text_contents()
    assert all(seconds(time) in sentence for time in times.values())
    fitting = [plan for plan in row.plans.values() if plan.fits]
    assert all(f"({seconds(plan.low_s)} to {seconds(plan.high_s)})" in sentence for plan in fitting)
    assert f"{count(row.batch)} (" in sure
    # Below the least of them nothing is said to be impossible but at what was worked out.
    page.locator("#batch-form [name=slo]").fill("0.000001")
    assert "No batch that was worked out keeps" in page.locator("#batch-answer").text_content()
    unknown = row.batch * 3 - 1
    page.locator("#batch-form [name=batch]").fill(str(unknown))
    assert f"Batch {count(unknown)} was not worked out" in page.locator("#batch-answer").text_content()
    page.locator("#batch-form [name=slider]").fill("0")
    assert page.locator("#batch-form [name=batch]").input_value() == str(analysis.sweep[0].batch)
    assert seen.errors == []


def test_another_batch_and_other_limits_of_a_request_are_answered_from_its_sweep(visit_text: Any) -> None:
    """A token's time is the mean over the request: of a line that of its ends."""
    analysis = analyze_generation(
        "tests/golden/inputs/llama", gpu="h100", cpu="epyc-9654", gpus=2, ttft="500ms", tpot="30ms", run=False
    )
    request = analysis.generation
    assert request is not None
    page, seen = visit_text(html.render(analysis), looks=False)
    page.wait_for_function(READY)
    page.locator("#batch-what-if > summary").click()
    answer = page.locator("#batch-answer p")
    own, _ = answer.all_text_contents()
    assert f"first token {seconds(request.ttft_s)} " in own
    assert f"({seconds(request.tpot_low_s)} to {seconds(request.tpot_high_s)})" in own
    assert f"each further one {seconds(request.tpot_s)} " in own
    ends = [one for one in request.sweep if one.batch == 8 and one.context in (1024, 1024 + 256)]
    page.locator("#batch-form [name=batch]").fill("8")
    page.locator("#batch-form [name=tpot]").fill("")
    page.locator("#batch-form [name=ttft]").fill(f"{ends[0].ttft_s * 1e3 * 1.01:.10g}")
    sentence, sure = answer.all_text_contents()
    assert f"first token {seconds(ends[0].ttft_s)} " in sentence
    assert f"each further one {seconds((ends[0].tpot_s + ends[1].tpot_s) / 2)} " in sentence
    assert " 8 (" in sure
    page.locator("#batch-form [name=tpot]").fill("0.001")
    assert "No batch that was worked out keeps" in answer.all_text_contents()[1]
    page.locator("#batch-form [name=batch]").fill("7")
    assert "--batch 7" in answer.all_text_contents()[0]
    assert "--tpot 0.001ms" in answer.all_text_contents()[0]
    assert seen.errors == []


def test_a_batch_of_a_request_that_has_no_room_is_said_not_to_fit(visit_text: Any) -> None:
    """8 billion parameters of 2 bytes leave an L4 some 7 GB: 64 caches of 1,280 x 131,072 bytes are 10.7 GB."""
    analysis = analyze_generation("tests/golden/inputs/llama", gpu="l4", cpu="epyc-9654", gpus=1, run=False)
    page, seen = visit_text(html.render(analysis), looks=False)
    page.wait_for_function(READY)
    page.locator("#batch-what-if > summary").click()
    for batch, text in ((64, "Batch 64 does not fit."), (63, "64 (does not fit)")):
        page.locator("#batch-form [name=batch]").fill(str(batch))
        assert text in page.locator("#batch-answer").text_content()
    assert seen.errors == []
