"""Reporting: what the page shows first of a model that generates, and its charts."""

from __future__ import annotations

from typing import Any

from analyzer.record.analysis import Analysis
from analyzer.report import generation_tables, generation_words
from analyzer.report.charts import generation, instances, time_share, timeline
from analyzer.report.charts.chart import Chart

# These stand beside the answer's sentence; the others are tiles.
_BESIDE = ("limits", "cheapest")
# Sections of the page by what they hold: charts and tables, by name.
_SECTIONS = (
    ("request", "Request", ("generation-request", "generation-parts"), ("phases",)),
    ("context", "Context", ("generation-tpot", "generation-frontier"), ()),
    ("devices", "Devices", ("generation-devices",), ("devices",)),
    ("types", "Types", (), ("types", "widths")),
)


def charts(analysis: Analysis) -> tuple[Chart | None, ...]:
    """The charts of a model that generates; none for another."""
    told = analysis.generation
    if told is None:
        return ()
    return (
        timeline.request(analysis, told),
        time_share.by_phase(told),
        *generation.charts(told),
        generation.frontier(told),
        instances.devices(told),
    )


def view(analysis: Analysis) -> dict[str, Any] | None:
    """The answer as the template prints it; None for a model that does not generate."""
    told = analysis.generation
    if told is None:
        return None
    figures = generation_words.figures(told)
    sheets = {sheet.name: sheet for sheet in generation_tables.tables(analysis)}
    known = {chart.name for chart in charts(analysis) if chart is not None} | set(sheets)
    chips = {None: "GPU" if told.gpus else "CPU", True: "Limits kept", False: "Limits missed"}
    return {
        "side": ("gpu" if told.gpus else "cpu") if told.memory.fits else "either",
        "chip": chips[told.meets_limits] if told.memory.fits else "Does not fit",
        "tiles": tuple(figure for figure in figures if figure.name not in _BESIDE),
        "beside": tuple(figure for figure in figures if figure.name in _BESIDE),
        "bar": generation_words.bar(told),
        "tables": sheets,
        "links": tuple(
            (name, link) for name, link, drawn, tables in _SECTIONS if known.intersection((*drawn, *tables))
        ),
    }
