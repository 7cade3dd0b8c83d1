"""A finding that is an error is told beside the answer, wherever the answer is; a note or a warning is not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import rendering
import report_factory as factory

from analyzer.record.analysis import Analysis, Finding
from analyzer.report import html, summary

DIFFERS = Finding(
    code="A702",
    severity="error",
    operator=None,
    message="the outputs differ from PyTorch's: h by 12 % (batch [3], ids <0>)",
    fix="compare the exported model with PyTorch",
)


def on_terminal(told: Analysis) -> str:
    return rendering.screen(told)


def flat(told: str) -> str:
    return " ".join(told.replace("\\", "").replace("│", "").split())


def with_findings(*findings: Finding, base: Callable[..., Analysis] = factory.analysis) -> Analysis:
    return replace(base(), findings=findings)


@pytest.mark.parametrize("base", [factory.analysis, factory.generation, factory.capacity])
def test_an_error_stands_before_the_first_figures_of_each_format(base: Callable[..., Analysis]) -> None:
    told = with_findings(DIFFERS, base=base)
    said = "Error A702: the outputs differ from PyTorch's: h by 12 % (batch [3], ids <0>)."
    assert said in flat(on_terminal(told))
    for shown in (flat(rendering.text(told)), flat(rendering.mail(told))):
        assert said in shown
        assert shown.index(said) < shown.index("What it rests on")
    assert "**Error A702: the outputs differ" in rendering.markdown(told)
    for shown in (html.render(told), rendering.notebook(told)):
        assert "Error A702: the outputs differ from PyTorch&#39;s" in flat(shown)


def test_the_pages_navigation_counts_errors_and_not_all_findings() -> None:
    note = replace(DIFFERS, severity="note")
    assert '<span class="count count-error">2 errors</span>' in html.render(
        with_findings(DIFFERS, note, DIFFERS)
    )
    assert '<span class="count count-error">1 error</span>' in html.render(with_findings(DIFFERS, note))
    page = html.render(with_findings(note, note))
    assert '<span class="count">2</span>' in page
    assert 'class="count count-error"' not in page


def test_warnings_and_notes_are_not_told_beside_the_answer() -> None:
    mild = [replace(DIFFERS, severity=severity) for severity in ("warning", "note")]
    assert summary.errors(factory.analysis(findings=tuple(mild))) == ""
    assert "A702" not in on_terminal(factory.analysis(findings=tuple(mild)))


def test_of_several_errors_the_first_is_told_and_how_many_more_there_are() -> None:
    long = replace(DIFFERS, message="copies: " + "; ".join(f"tensor_{at} to the CPU" for at in range(99)))
    assert summary.errors(with_findings(DIFFERS, long)).endswith("1 more error is among the findings.")
    said = summary.errors(with_findings(long, DIFFERS, DIFFERS))
    assert said.endswith(" …. 2 more errors are among the findings.")
    assert len(said) < 260


def test_an_error_that_costs_next_to_nothing_waits_among_the_findings() -> None:
    told = factory.analysis()
    quickest_s = min(plan.latency_s for plan in told.plans)
    copies = replace(DIFFERS, code="A102", message="1 copy of 16 B", seconds=quickest_s * 0.019)
    assert summary.errors(with_findings(copies)) == ""
    assert "1 error</span>" in html.render(with_findings(copies))
    dearer = replace(copies, seconds=quickest_s * 0.021)
    assert summary.errors(with_findings(copies, dearer)) == "Error A102: 1 copy of 16 B."
