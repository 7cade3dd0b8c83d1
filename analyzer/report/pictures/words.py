"""Reporting: what a picture says of its model, its devices and the origin of its figures."""

from __future__ import annotations

from analyzer.record.analysis import Analysis
from analyzer.report import capacity_words, generation_words, summary
from analyzer.report.charts.chart import Chart, origin_words
from analyzer.text import middle_cut

# Of a name, in letters: both ends stay.
_LONGEST = 60


def subject(analysis: Analysis) -> str:
    """``resnet18 · batch 64, tf32, decided for latency · AMD EPYC 9654 and NVIDIA L4``."""
    name = middle_cut(analysis.model.name, _LONGEST)
    if analysis.capacity is not None:
        # Its devices are those of the price list.
        return f"{name} · {capacity_words.subject(analysis.capacity)}"
    devices = [device.name for device in (analysis.devices.cpu, analysis.devices.gpu) if device is not None]
    asked = generation_words.subject(analysis.generation) if analysis.generation else summary.subject(analysis)
    return f"{name} · {asked} · {' and '.join(devices)}"


def origin_sentence(analysis: Analysis, chart: Chart) -> str:
    """Whence the chart's figures are, and how that is seen."""
    found = _origins(analysis, chart)
    if not found:
        return "No times are known."
    if found == {"mixed"}:
        return "Figures are sums of measured and predicted times."
    marked = "; what is predicted is hollow or paler" if len(found) > 1 and "predicted" in found else ""
    return f"Figures are {origin_words(found)}{marked}."


def _origins(analysis: Analysis, chart: Chart) -> set[str]:
    """Whence a chart's times are: of its rows where each has its origin, else of what it is drawn from."""
    at = next((at for at, column in enumerate(chart.columns) if column.name == "origin"), None)
    if at is not None:
        return {row[at] for row in chart.rows}
    if chart.name.startswith("capacity-") and analysis.capacity is not None:
        best = capacity_words.best(analysis.capacity)
        return {best.origin if best else "predicted"}
    if chart.name.startswith("generation-") and analysis.generation is not None:
        return {analysis.generation.origin}
    plan = summary.best_plan(analysis)
    return {plan.origin} if plan else set()
