"""What a report says first of a model that generates, in every format."""

from dataclasses import replace
from typing import Any

import generation_records as records
import pytest
import rendering
import report_factory as factory

from analyzer.record.analysis import Analysis
from analyzer.record.generation import SplitRequest
from analyzer.report import generation_text, html, render
from analyzer.report.charts.chart import Chart
from analyzer.report.compare.build import compare
from analyzer.report.compare.document import render as render_comparison
from analyzer.report.compare.document import render_text

GB = records.GB
EVERY = {
    "plain": {},
    "limits": {"ttft_limit_s": 0.3, "tpot_limit_s": 0.004, "meets_limits": False},
    "no room": {
        "memory": records.memory(fits=False, device_bytes=30 * GB, total_bytes=60 * GB),
        "gpus": 2,
        "largest_batch": 0,
        "longest_context": 0,
        "usd_per_million_tokens": None,
        "instance": "",
    },
    "bare": {
        "sweep": (),
        "devices": (),
        "types": (),
        "widths": (),
        "frontier": {},
        "parts": {},
        "phases": (),
        "notes": (),
        "cpu": None,
        "cheapest": None,
        "joules_per_token": None,
        "model_context": None,
    },
}


def on_the_cpu() -> Analysis:
    """As with ``--gpu none``."""
    told = records.generation(
        gpus=0, device="imaginary-cpu", weights="fp32", kv="fp32", widths=(), phases=(), cheapest=None,
        devices=records.devices()[3:],
    )  # fmt: skip
    return replace(factory.without_gpu(), generation=told)


def figures(**changes: Any) -> dict[str, Any]:
    told = records.generation(**changes)
    return {figure.name: figure for figure in generation_text.figures(told)}


def drawn(analysis: Analysis) -> dict[str, Chart]:
    return {chart.name: chart for chart in html.charts_of(analysis) if chart.name.startswith("generation")}


def dicts(chart: Chart) -> list[dict[str, Any]]:
    names = [column.name for column in chart.columns]
    return [dict(zip(names, row, strict=True)) for row in chart.rows]


def printed(analysis: Analysis, width: int = 80) -> str:
    return rendering.screen(analysis, width)


@pytest.mark.parametrize("name", ["html", "text", "markdown"])
def test_a_cpu_alone_gives_a_report_too(name: str) -> None:
    assert "Imaginary CPU 12" in render(on_the_cpu(), name)


def test_a_terminal_shows_a_screen_and_a_half_and_the_first_eight_devices() -> None:
    many = tuple(records.option(f"gpu-{number}", f"Imaginary GPU {number}") for number in range(100, 160))
    said = printed(factory.generation(devices=many))
    assert len(said.splitlines()) < 75
    assert "Devices (8 of 60)" in said
    assert "GPU 107" in said
    assert "GPU 108" not in said
    assert "Imaginary GPU 159" in rendering.markdown(factory.generation(devices=many))


def test_figures_tell_their_interval_their_origin_and_what_they_are_for() -> None:
    told = figures()
    assert (told["TPOT"].figure, told["TPOT"].interval, told["TPOT"].origin) == (
        "10.0 ms",
        "5.00 to 20.0 ms",
        "predicted",
    )
    # 808 tokens in 2.4 and in 0.6 s.
    assert told["tokens/s"].interval == "337 to 1,347"
    assert told["memory"].interval == "16.0 GB of 22.0 GB, 73 %"
    assert told["memory"].note == "12.0 GB weights, 3.00 GB cache, 1.00 GB activations"
    assert (told["largest batch"].figure, told["longest context"].figure) == ("24", "3,500 tokens")
    assert told["cheapest"].figure == "1 x Imaginary GPU 1000"
    assert "limits" not in told


def test_where_no_batch_keeps_the_limits_there_is_no_price_and_the_report_says_why() -> None:
    none = tuple(replace(row, largest_batch=0, usd_per_million_tokens=None) for row in records.devices())
    told = figures(
        tpot_limit_s=0.001,
        meets_limits=False,
        largest_batch=0,
        usd_per_million_tokens=None,
        cheapest=None,
        devices=none,
    )
    assert (told["$/M tokens"].figure, told["$/M tokens"].note) == ("–", "no batch keeps the limits")
    assert told["$/M tokens"].origin == ""
    assert told["largest batch"].figure == "none"
    assert told["cheapest"].note == "no device that was looked at keeps the limits"


def test_the_bar_of_memory_is_one_devices_and_its_parts_add_up_to_what_is_used() -> None:
    bar = generation_text.bar(records.generation())
    assert bar is not None
    # 16 of 22 GB, of which 12 are weights.
    assert sum(part.share for part in bar.parts) == pytest.approx(16 / 22)
    assert bar.parts[0].share == pytest.approx(12 / 22)
    assert bar.room == 1
    over = generation_text.bar(records.generation(**EVERY["no room"]))
    assert over is not None
    assert sum(part.share for part in over.parts) <= 1
    assert over.room == pytest.approx(22 / 30)
    assert generation_text.bar(records.generation(memory=records.memory(available_bytes=None))) is None


def test_the_timeline_is_the_request_and_both_phases_shares_are_whole() -> None:
    charts = drawn(factory.generation())
    rows = dicts(charts["generation-request"])
    assert [(row["device"], row["phase"], row["start"], row["end"]) for row in rows[:2]] == [
        ("GPU", "Prefill", 0.0, 0.2),
        ("GPU", "Decode", 0.2, 1.2),
    ]
    assert "beyond the right edge" in charts["generation-request"].lead
    shares = dicts(charts["generation-parts"])
    for phase in ("Prefill", "Decode"):
        assert sum(row["share"] for row in shares if row["phase"] == phase) == pytest.approx(1)


def test_charts_without_anything_to_show_are_not_there() -> None:
    assert list(drawn(factory.generation(**EVERY["bare"]))) == ["generation-request"]
    nothing = {1: dict.fromkeys((512, 1024), 0)}
    assert "generation-frontier" not in drawn(factory.generation(frontier=nothing))
    unpriced = tuple(replace(row, usd_per_million_tokens=None) for row in records.devices())
    assert "generation-devices" not in drawn(factory.generation(devices=unpriced))
    assert drawn(factory.analysis()) == {}


def test_a_devices_name_of_a_stranger_is_shown_as_text() -> None:
    odd = "<script>alert(1)</script>[bold]"
    analysis = factory.generation(devices=(records.option(name=odd), *records.devices()))
    assert "<script>alert" not in html.render(analysis)
    assert "<script>alert" not in rendering.markdown(analysis)
    assert "<script>alert" in printed(analysis, 200)


def test_a_comparison_has_the_figures_of_generation_before_those_of_the_decode_step() -> None:
    faster = factory.generation(
        **records.times_of(0.25),
        usd_per_million_tokens=1.0,
    )
    comparison = compare([("old", factory.generation()), ("new", faster)])
    keys = [figure.key for figure in comparison.figures]
    assert keys[:5] == [
        "generation.ttft_s",
        "generation.tpot_s",
        "generation.request_s",
        "generation.tokens_per_s",
        "generation.usd_per_million_tokens",
    ]
    assert comparison.figure("generation.tpot_s").best == 1
    said = render_text(comparison)
    assert said.splitlines()[1].startswith("new makes most tokens a second: 2,693 tokens/s")
    assert (
        "new costs least: $1.00 per million tokens against $4.00 per million tokens of old, a factor of 4.0."
        in said
    )
    assert "One decode step: " in said
    assert "Operators, plans and verdict are those of one decode step" in said
    assert "Generation" in render_comparison(comparison)


def test_requests_of_other_lengths_are_not_compared_by_their_times() -> None:
    comparison = compare([("short", factory.generation()), ("long", factory.generation(prompt_tokens=4000))])
    assert comparison.figure("generation.ttft_s").better == ""
    assert any("the requests differ" in note for note in comparison.notes)


def test_a_split_over_both_devices_is_told_where_it_pays() -> None:
    split = SplitRequest(
        **records.times_of(1.0) | {"request_s": 0.5, "request_low_s": 0.4, "request_high_s": 0.7},
        handover_bytes=2 * GB,
        handover_s=0.08,
        pays=True,
    )
    told = records.generation(split=split)
    (phases,) = [
        sheet
        for sheet in generation_text.tables(replace(factory.without_gpu(), generation=told))
        if sheet.name == "phases"
    ]
    assert "would take 500 ms ○ (400 to 700 ms), 80.0 ms of it for 2.00 GB of cache" in phases.lead
    told = records.generation(split=replace(split, pays=False))
    (phases,) = [
        sheet
        for sheet in generation_text.tables(replace(factory.without_gpu(), generation=told))
        if sheet.name == "phases"
    ]
    assert "cache" not in phases.lead
