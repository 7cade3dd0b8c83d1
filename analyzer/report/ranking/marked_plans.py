"""Reporting: the plans side by side, marked by what the headline recommends."""

from __future__ import annotations

from dataclasses import replace

from analyzer.record.analysis import Analysis
from analyzer.report.ranking.words import is_elsewhere, leads, recommended
from analyzer.report.summary import figure_words, plan_cards
from analyzer.report.summary.plan_cards import PlanCard


def cards(analysis: Analysis) -> tuple[PlanCard, ...]:
    """The plans, each with its own figures; chosen is what the headline recommends, if it is among them."""
    every = plan_cards.plan_cards(analysis)
    if not leads(analysis):
        return every
    best = None if is_elsewhere(analysis) else recommended(analysis)
    return tuple(
        replace(card, chosen=best is not None and card.name == best.plan and card.fits) for card in every
    )


def table_cards(analysis: Analysis) -> tuple[PlanCard, ...]:
    """The same for a table: where several devices were asked about, the name of a plan has its device."""
    if not leads(analysis):
        return cards(analysis)
    return tuple(replace(card, title=_with_device(card)) for card in cards(analysis))


def _with_device(card: PlanCard) -> str:
    return card.title if card.name == "hybrid" else f"{card.title}: {card.device.removeprefix('NVIDIA ')}"


def distinct_cards(analysis: Analysis) -> tuple[PlanCard, ...]:
    """The same without a best plan that is one of the others: that one says so."""
    every, plan = cards(analysis), analysis.plan("hybrid")
    same = plan_cards.twin(analysis, plan) if plan is not None else ""
    best = next((card for card in every if card.name == "hybrid"), None)
    if best is None or not same:
        return every
    return tuple(_joined(card, best) if card.name == same else card for card in every if card is not best)


def _joined(card: PlanCard, best: PlanCard) -> PlanCard:
    # What does not run is the best of nothing.
    chosen = card.chosen or best.chosen
    said = ""
    if best.title != figure_words.SPLIT:
        # The page has one answer: what is not recommended is not called the best.
        said = "No split of the operators gains anything over it."
        said = f"This is the best plan: {said[0].lower()}{said[1:]}" if chosen else said
    return replace(card, chosen=chosen, why=" ".join(filter(None, (card.why, said))))
