"""Reporting: the words of a picture of a chart, which the page has around it."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

from analyzer.record.analysis import Analysis
from analyzer.report import capacity_words, generation_text, summary
from analyzer.report.charts.chart import Chart, origin_words
from analyzer.text import middle_cut

# The far end of a band or of a line across a bar.
_INTERVAL = re.compile(r'"[xy]2": \{"field": "\w*high"')
# Of a name, in letters: both ends stay.
_LONGEST = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Caption:
    """The words of a picture, so that one that is forwarded alone is not taken for more than it is.

    ``description`` is the chart in words, for who cannot see it; ``footer`` says whence its figures are.
    """

    title: str
    description: str
    subject: str
    footer: str


def caption(analysis: Analysis, chart: Chart) -> Caption:
    """Return the words of one chart's picture."""
    return caption_of(chart, subject(analysis), f"{analysis.tool.name} {analysis.tool.version}")


def caption_of(chart: Chart, subject: str, maker: str) -> Caption:
    """Return the words of a chart's picture about this subject."""
    footer = f"{origin_sentences(chart)} Made by {maker}."
    return Caption(title=chart.title, description=chart.alternative, subject=subject, footer=footer)


def subject(analysis: Analysis) -> str:
    """Return ``resnet18 · batch 64, tf32, decided for latency · AMD EPYC 9654 and NVIDIA L4``."""
    name = middle_cut(analysis.model.name, _LONGEST)
    if analysis.capacity is not None:
        # Its devices are those of the price list.
        return f"{name} · {capacity_words.subject(analysis.capacity)}"
    devices = [device.name for device in (analysis.devices.cpu, analysis.devices.gpu) if device is not None]
    question = (
        generation_text.subject(analysis.generation) if analysis.generation else summary.subject(analysis)
    )
    return f"{name} · {question} · {' and '.join(devices)}"


def origin_sentences(chart: Chart) -> str:
    """Return whence the chart's figures are and how that is seen, and what is an interval."""
    at = next((at for at, column in enumerate(chart.columns) if column.name == "origin"), None)
    result = {chart.origin} - {""} if at is None else {row[at] for row in chart.rows}
    if not result:
        return "No times are known."
    text = f"Figures are {origin_words(result)}."
    if result == {"mixed"}:
        text = "Figures are sums of measured and predicted times."
    elif len(result) > 1 and "predicted" in result:
        text = f"Figures are {origin_words(result)}; what is predicted is hollow or paler."
    # A chart may tell intervals in its table alone.
    drawn = _INTERVAL.search(json.dumps(chart.spec)) is not None
    return f"{text} Bands and thin lines are 90 % intervals." if drawn else text
