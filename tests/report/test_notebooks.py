"""What a notebook shows of an analysis, and the operators as a table."""

from __future__ import annotations

import csv
import io
import re
import sys
from collections.abc import Callable
from dataclasses import replace

import pytest
import report_factory as factory

from analyzer.record.analysis import Analysis
from analyzer.report import render


def test_a_notebook_shows_the_answer_the_plans_and_the_operators_without_scripts() -> None:
    shown = factory.analysis()._repr_html_()
    for part in (
        "Run it on the Imaginary GPU",
        "Best plan",
        "MaxPool #19",
        "80.0\u00a0ms ●",
        "72.0 to 88.0\u00a0ms",
    ):
        assert part in shown
    assert "<script" not in shown
    assert not re.search(r"(src|href)=", shown)


@pytest.mark.parametrize(
    "build", [factory.without_gpu, factory.without_times, factory.empty, factory.with_alternative]
)
def test_records_with_gaps_are_shown(build: Callable[..., Analysis]) -> None:
    assert "analyze-notebook" in build()._repr_html_()


def test_names_of_a_stranger_are_text() -> None:
    shown = factory.hostile()._repr_html_()
    assert factory.HOSTILE not in shown
    assert "<script" not in shown


def test_the_columns_of_operators_are_those_of_the_table_for_spreadsheets(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    analysis = factory.analysis(4)
    head, *rows = csv.reader(io.StringIO(render(analysis, "csv")))
    frame = analysis.operators_frame()
    assert list(frame.columns) == head
    assert len(frame) == len(rows) == 4
    assert frame["cpu_time_s"].tolist() == [operator.cpu.time_s for operator in analysis.operators]
    monkeypatch.setitem(sys.modules, "pandas", None)  # as where it is not installed
    columns = analysis.operators_frame()
    assert list(columns) == head
    assert columns["op_type"] == [operator.op_type for operator in analysis.operators]
    assert replace(analysis, operators=()).operators_frame()["index"] == []
