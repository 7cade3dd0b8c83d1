"""Reporting: a comparison of two or more analyses as one HTML page, differences first."""

from __future__ import annotations

from typing import Any

from analyzer.report.charts import batches, caption, roofline, time_share
from analyzer.report.charts.chart import Chart, vega_config
from analyzer.report.compare import document, tree_page
from analyzer.report.compare.comparison import Comparison
from analyzer.report.html import environment
from analyzer.report.summary import figure_words


def render(comparison: Comparison) -> str:
    """Return the comparison as one page; the same comparison gives the same bytes."""
    return environment().get_template("compare.html.j2").render(build(comparison))


def build(comparison: Comparison) -> dict[str, Any]:
    """Return everything that the template shows."""
    charts = charts_of(comparison)
    shown = document.document(comparison)
    joined = [tree_page.payload(comparison, at) for at in range(1, len(comparison.labels))]
    return {
        "title": shown.title,
        "labels": comparison.labels,
        "sections": {section.name: section for section in shown.sections},
        "trees": tuple(
            # Why there is no tree, in a sentence; empty where there is one.
            (tree_page.missing(comparison, at), tree_page.lead(comparison, at))
            for at in range(1, len(comparison.labels))
        ),
        "marks": figure_words.origin_note("under Environment"),
        "charts": {chart.name: chart for chart in charts},
        "data": {
            "name": "comparison",
            "charts": {chart.name: chart.payload() for chart in charts},
            "style": vega_config(),
            "captions": {
                chart.name: {
                    "subject": shown.title,
                    "footer": caption.origin_sentences(chart),
                }
                for chart in charts
            },
            # The scripts are the report's own and look for these; no chart here refers to them.
            "operators": {},
            "modules": {},
            "groups": [],
            "joined": joined,
            "marks": {mark.name: mark.sign for mark in figure_words.MARKS.values()},
        },
        "joined": any(joined),
        "kinds": tree_page.KINDS,
    }


def charts_of(comparison: Comparison) -> tuple[Chart, ...]:
    """Return the page's charts, in their order."""
    records, labels = comparison.analyses, comparison.labels
    charts = (
        batches.plans(*records, labels=labels),
        *batches.charts(*records, labels=labels),
        time_share.by_type(*records, labels=labels),
        roofline.chart(*records, labels=labels),
    )
    return tuple(chart for chart in charts if chart is not None)
