"""Reporting: what a notebook shows of an analysis, without scripts: notebooks that are not trusted run none."""

from __future__ import annotations

from typing import Any

from analyzer.record.analysis import Analysis
from analyzer.report import brief
from analyzer.report.html import environment
from analyzer.report.ranking import words as ranking_words
from analyzer.report.summary import leading_operators, model_facts, plan_cards, verdict_words
from analyzer.report.summary.figure_words import MARKS, sign


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
        "errors": verdict_words.errors(analysis),
        "beside": () if figures else ranking_words.beside(analysis),
        "sure": " ".join(filter(None, (verdict_words.confidence(analysis), verdict_words.crossover(analysis)))),
        "because": verdict_words.reasons(analysis),
        "plans": ranking_words.table_cards(analysis),
        "priced_on": "" if figures else plan_cards.priced_on(analysis),
        "operators": () if figures else leading_operators.top_operators(analysis),
        "whose_time": plan_cards.whose_time(analysis),
        "by_type": leading_operators.by_type_words(leading_operators.top_operators(analysis)),
        "sign": sign,
        "marks": MARKS.values(),
        "missing": model_facts.missing(analysis),
    }
