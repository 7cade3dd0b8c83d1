"""Reporting: what a notebook shows of an analysis, without scripts: notebooks that are not trusted run none."""

from __future__ import annotations

from typing import Any

from analyzer.record.analysis import Analysis
from analyzer.report import brief, summary
from analyzer.report.html import environment
from analyzer.report.ranking import marked_plans
from analyzer.report.ranking import words as ranking_words
from analyzer.report.summary import MARKS, sign


def render(analysis: Analysis) -> str:
    """A fragment of HTML: the answer, its figures or the plans, and the operators that matter."""
    return environment().get_template("notebook.html.j2").render(_told(analysis))


def _told(analysis: Analysis) -> dict[str, Any]:
    subject, answer, figures = brief.answer(analysis)
    return {
        "title": analysis.model.name,
        "subject": subject,
        "answer": answer,
        "figures": figures,
        "errors": summary.errors(analysis),
        "beside": () if figures else ranking_words.beside(analysis),
        "sure": " ".join(filter(None, (summary.confidence(analysis), summary.crossover(analysis)))),
        "because": summary.reasons(analysis),
        "plans": marked_plans.table_cards(analysis),
        "priced_on": "" if figures else summary.priced_on(analysis),
        "operators": () if figures else summary.top_operators(analysis),
        "whose_time": summary.whose_time(analysis),
        "by_type": summary.by_type_words(summary.top_operators(analysis)),
        "sign": sign,
        "marks": MARKS.values(),
        "missing": summary.missing(analysis),
    }
