"""What a report says first of a model that generates, in every format."""

from dataclasses import replace
from typing import Any

import generation_records as records
import pytest
import rendering
import report_factory as factory

from analyzer.record.analysis import Analysis
from analyzer.report import generation_text, html
from analyzer.report.charts.chart import Chart

GB = records.GB
NO_ROOM: dict[str, Any] = {
    "memory": records.memory(fits=False, device_bytes=30 * GB, total_bytes=60 * GB),
    "gpus": 2, "largest_batch": 0, "longest_context": 0, "usd_per_million_tokens": None, "instance": "",
}  # fmt: skip
BARE: dict[str, Any] = {
    "sweep": (), "devices": (), "types": (), "widths": (), "frontier": {}, "parts": {}, "phases": (),
    "notes": (), "cpu": None, "cheapest": None, "joules_per_token": None, "model_context": None,
}  # fmt: skip


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


def test_a_terminal_shows_a_screen_and_a_half_and_the_first_eight_devices() -> None:
    many = tuple(records.option(f"gpu-{number}", f"Imaginary GPU {number}") for number in range(100, 160))
    said = printed(factory.generation(devices=many))
    assert len(said.splitlines()) < 75
    assert "Devices (8 of 60)" in said
    assert "GPU 107" in said
    assert "GPU 108" not in said
    assert "Imaginary GPU 159" in rendering.markdown(factory.generation(devices=many))


def test_the_bar_of_memory_is_one_devices_and_its_parts_add_up_to_what_is_used() -> None:
    bar = generation_text.bar(records.generation())
    assert bar is not None
    # 16 of 22 GB, of which 12 are weights.
    assert sum(part.share for part in bar.parts) == pytest.approx(16 / 22)
    assert bar.parts[0].share == pytest.approx(12 / 22)
    assert bar.room == 1
    over = generation_text.bar(records.generation(**NO_ROOM))
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
    assert list(drawn(factory.generation(**BARE))) == ["generation-request"]
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
