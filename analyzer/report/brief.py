"""Reporting: the first screen of the page as plain text, to be pasted into a mail or a ticket."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from analyzer.record.analysis import Analysis
from analyzer.report import capacity_words, generation_words, method, price_words
from analyzer.report.answer import AnswerFigure
from analyzer.report.ranking import words as ranking_words
from analyzer.report.summary import model_facts, verdict_words
from analyzer.report.summary.figure_words import MARKS, marked, signed
from analyzer.report.summary.plan_cards import PlanCard
from analyzer.text import loggable, printable
from analyzer.units import UNKNOWN


def render(analysis: Analysis) -> str:
    """The answer, each plan's figures with their intervals, why, and what is not known; a line for each."""
    subject, sentence, figures = answer(analysis)
    blocks = (
        [f"{analysis.model.name}: {subject}"],
        [*filter(None, (sentence, verdict_words.errors(analysis))), *(() if figures else _beside(analysis))],
        [_figure(figure) for figure in figures],
        [_plan(card) for card in ranking_words.distinct_cards(analysis)] if not figures else [],
        *(() if figures else _reasons(analysis)),
        _bullets("Assumed or not known", open_points(analysis)),
        _end(analysis),
    )
    # A line for each: whatever a name of the model holds.
    return loggable("\n\n".join("\n".join(map(printable, block)) for block in blocks if block)) + "\n"


def answer(analysis: Analysis) -> tuple[str, str, tuple[AnswerFigure, ...]]:
    """What was asked, the answer and, of a service or a model that generates, its figures."""
    if analysis.capacity is not None:
        told = analysis.capacity
        return capacity_words.subject(told), capacity_words.sentence(told), tuple(capacity_words.figures(told))
    if analysis.generation is not None:
        generation = analysis.generation
        return (
            generation_words.subject(generation),
            generation_words.sentence(analysis, generation),
            tuple(generation_words.figures(generation)),
        )
    return verdict_words.subject(analysis), ranking_words.sentence(analysis), ()


def open_points(analysis: Analysis) -> tuple[str, ...]:
    """What an answer rests on that nobody gave, and what the record does not hold, a sentence or two each."""
    told = (
        *model_facts.statements(analysis),
        price_words.statement(analysis),
        *model_facts.missing(analysis),
        *analysis.environment.messages,
        *(capacity_words.notes(analysis.capacity) if analysis.capacity is not None else ()),
        *(analysis.generation.notes if analysis.generation is not None else ()),
    )
    return tuple(text for text in told if text)


def _beside(analysis: Analysis) -> Iterator[str]:
    yield from ranking_words.beside(analysis)
    yield from filter(None, (verdict_words.confidence(analysis), verdict_words.crossover(analysis)))


def _reasons(analysis: Analysis) -> Iterator[list[str]]:
    yield _bullets(f"Why{ranking_words.about_first(analysis)}", verdict_words.reasons(analysis))
    yield _bullets("What would change it", analysis.verdict.would_change)


def _figure(figure: AnswerFigure) -> str:
    interval = f" ({figure.interval})" if figure.interval else ""
    note = f", {figure.note}" if figure.note else ""
    return f"{figure.title}: {marked(figure.figure, figure.origin)}{interval}{note}"


def _plan(card: PlanCard) -> str:
    """A line like ``CPU (Xeon): 33.9 ms (16.4 to 70.2 ms, ○ predicted), 29.5 /s, $1.36 ○ per million``."""
    figures = [f"{card.latency} ({card.interval}, {signed(card.origin)})", f"{card.throughput}"]
    if card.dollars != UNKNOWN:
        interval = f" ({card.dollars_interval})" if card.dollars_interval else ""
        rented = f" on a rented {card.rented}" if card.rented else ""
        figures.append(f"{marked(card.dollars, card.dollars_origin)} per million{rented}{interval}")
    figures.append(card.memory if card.fits else f"{card.memory}, which does not fit")
    return " ".join(filter(None, (f"{card.title} ({card.device}): {', '.join(figures)}.", card.why)))


def _bullets(title: str, texts: Iterable[str]) -> list[str]:
    lines = [f"- {text}" for text in texts]
    return [f"{title}:", *lines] if lines else []


def _end(analysis: Analysis) -> list[str]:
    run = method.apply_command(analysis)
    marks = ", ".join(f"{mark.sign} {mark.name}" for mark in MARKS.values())
    made = f"Made by {analysis.tool.name} {analysis.tool.version}. {marks}."
    return [f"{method.apply_words(analysis)}: {run}", made] if run else [made]
