"""Reporting: the answer over everything that was asked about, where there is one, in words."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from analyzer.record.analysis import Analysis
from analyzer.record.batch_axis import at_batch
from analyzer.record.outcome import RankedCandidate, RankingResult
from analyzer.report.summary import figure_words, plan_cards, verdict_words
from analyzer.report.summary.figure_words import VERDICT_WORDS, joules, per_second
from analyzer.report.summary.plan_cards import PlanCard
from analyzer.units import UNKNOWN, dollars, seconds

# What a machine is that comes first, and by what.
_FIRST = {
    "latency": "is the fastest",
    "throughput": "has the most throughput",
    "cost": "is the cheapest",
    "energy": "needs the least energy",
}
_AS_GOOD = {
    "latency": "is as fast as any",
    "throughput": "has as much throughput as any",
    "cost": "is as cheap as any",
    "energy": "needs as little energy as any",
}

# A list of more devices is not repeated in a sentence.
_FEW = 3


def leads(analysis: Analysis) -> bool:
    """Whether the ranking is the answer: several GPUs or batches were asked about."""
    ranking = analysis.ranking
    # Of a model that generates, and of capacity, one run stands below another answer.
    if ranking is None or not ranking.sentence or analysis.generation or analysis.capacity:
        return False
    asked = [one for one in ranking.candidates if one.named and one.asked]
    gpus = {one.device for one in asked if one.kind == "gpu"}
    return len(gpus) > 1 or len({one.batch for one in asked}) > 1


def sentence(analysis: Analysis) -> str:
    """The answer: the ranking's where several devices or batches were asked about, else the verdict's."""
    if analysis.ranking is not None and leads(analysis):
        answer = analysis.ranking.sentence
    else:
        answer = analysis.verdict.sentence
        if verdict_words.rented_cpu_is_better(analysis):
            # The next sentence names it: this one is no recommendation over all machines.
            answer = f"Between the two, {answer[:1].lower()}{answer[1:]}"
    doubts = (verdict_words.measure_again(analysis), verdict_words.rests_on_guesses(analysis))
    return " ".join(filter(None, (*doubts, answer)))


def word(analysis: Analysis) -> str:
    """The answer in a word or two: ``GPU``, ``CPU``, ``Limit missed``."""
    ranking = analysis.ranking
    if ranking is None or not leads(analysis):
        return VERDICT_WORDS[analysis.verdict.device]
    if ranking.best is None:
        return "Limit missed" if ranking.nearest is not None else "Nothing runs"
    return VERDICT_WORDS[ranking.candidates[ranking.best].plan]


def side(analysis: Analysis) -> str:
    """What the answer runs on, as the verdict's ``device``; ``either`` where there is none."""
    ranking = analysis.ranking
    if ranking is None or not leads(analysis):
        return analysis.verdict.device or "either"
    return "either" if ranking.best is None else ranking.candidates[ranking.best].plan


def beside(analysis: Analysis) -> tuple[str, ...]:
    """What belongs to the answer: dollars beside speed, rented CPUs, and the verdict on the first GPU."""
    ranking = analysis.ranking
    if ranking is None:
        return ()
    if leads(analysis):
        said = [
            " ".join(ranking.notes),
            ranking.dollars,
            f"{_first(analysis)}: {analysis.verdict.sentence}",
        ]
    else:
        said = [_of_all_machines(ranking), ranking.dollars]
    return tuple(text for text in said if text)


def _first(analysis: Analysis) -> str:
    """What the verdict and all details are about, where more was asked."""
    gpu, at = analysis.devices.gpu, at_batch(analysis)
    if not is_elsewhere(analysis):
        return f"{gpu.name if gpu is not None else 'The CPU'}{at} alone"
    whose = f"the {gpu.name}" if gpu is not None else "this CPU"
    options = _asked_first(analysis)
    how = f"; {options} shows those of the answer" if options else ""
    with_it = "it and the CPU" if gpu is not None else "it"
    return (
        f"Plans, reasons and operators here are of {whose}{at}, which was asked about first{how}. "
        f"With {with_it} alone"
    )


def recommended(analysis: Analysis) -> RankedCandidate | None:
    """The winner of the ranking where that is the headline; None where the verdict is, or nothing wins."""
    ranking = analysis.ranking
    if ranking is None or ranking.best is None or not leads(analysis):
        return None
    return ranking.candidates[ranking.best]


def is_elsewhere(analysis: Analysis) -> bool:
    """Whether the headline recommends another device or batch than plans, reasons and operators are of."""
    best, gpu = recommended(analysis), analysis.devices.gpu
    if best is None:
        return False
    of_details = best.kind == "cpu" or (gpu is not None and best.device == gpu.slug)
    return not (of_details and best.named and best.batch == analysis.model.batch)


def _asked_first(analysis: Analysis) -> str:
    """The options that ask the same question about the recommended device and batch first."""
    best, gpu, ranking = recommended(analysis), analysis.devices.gpu, analysis.ranking
    # Of a rented CPU the number of cores belongs to the question as well.
    if best is None or ranking is None or not best.named:
        return ""
    words = []
    if best.kind == "gpu" and gpu is not None and best.device != gpu.slug:
        words.append(
            _led_by("gpu", best.device, (gpu.slug, *(one.device.slug for one in analysis.alternatives)))
        )
    if best.batch is not None and best.batch != analysis.model.batch:
        batches = {one.batch for one in ranking.candidates if one.named and one.asked and one.batch is not None}
        words.append(_led_by("batch", str(best.batch), map(str, sorted(batches))))
    return " ".join(words)


def _led_by(option: str, first: str, every: Iterable[str]) -> str:
    others = [one for one in every if one != first]
    return f"--{option} {','.join((first, *others) if len(others) <= _FEW else (first,))}"


def _of_all_machines(ranking: RankingResult) -> str:
    """A further fact beside the verdict: the rented CPU that is better than what the verdict compares."""
    if ranking.best is None or ranking.candidates[ranking.best].named:
        return ""
    best, objective = ranking.candidates[ranking.best], ranking.objective
    interval = best.latency.between(seconds) if best.latency else UNKNOWN
    took = f"{seconds(best.latency_s)} ({best.origin}, {interval})"
    figures = {
        "latency": took,
        "throughput": f"{per_second(best.throughput_per_s)} at {took}",
        "cost": f"{dollars(best.usd_per_million)} per million at {took}",
        "energy": f"{joules(best.energy_j)} each at {took}",
    }
    is_first = ranking.best_by.get(objective) == ranking.best
    stands = _FIRST[objective] if is_first else f"{_AS_GOOD[objective]} within the intervals and costs less"
    who = f"{best.provider} {best.instance}"
    said = f"Of all machines with a price, {who} {stands}: {figures[objective]}."
    return " ".join((said, *ranking.notes))


def about_first(analysis: Analysis) -> str:
    """What a heading says behind it where what follows is about the first GPU alone: ``, NVIDIA L4``."""
    gpu = analysis.devices.gpu
    return f", {gpu.name}" if leads(analysis) and gpu is not None else ""


def cards(analysis: Analysis) -> tuple[PlanCard, ...]:
    """The plans, each with its own figures; chosen is what the headline recommends, if it is among them."""
    every = plan_cards.plan_cards(analysis)
    if not leads(analysis):
        return every
    best = None if is_elsewhere(analysis) else recommended(analysis)
    return tuple(
        replace(card, chosen=best is not None and card.plan.name == best.plan and card.plan.fits)
        for card in every
    )


def table_cards(analysis: Analysis) -> tuple[PlanCard, ...]:
    """The same for a table: where several devices were asked about, the name of a plan has its device."""
    if not leads(analysis):
        return cards(analysis)
    return tuple(
        card
        if card.plan.name == "hybrid"
        else replace(card, title=f"{card.title}: {card.device.removeprefix('NVIDIA ')}")
        for card in cards(analysis)
    )


def distinct_cards(analysis: Analysis) -> tuple[PlanCard, ...]:
    """The same without a best plan that is one of the others: that one says so."""
    every, plan = cards(analysis), analysis.plan("hybrid")
    same = plan_cards.twin(analysis, plan) if plan is not None else ""
    best = next((card for card in every if card.plan.name == "hybrid"), None)
    if best is None or not same:
        return every
    return tuple(_joined(card, best) if card.plan.name == same else card for card in every if card is not best)


def _joined(card: PlanCard, best: PlanCard) -> PlanCard:
    # What does not run is the best of nothing.
    chosen = card.chosen or best.chosen
    said = ""
    if best.title != figure_words.SPLIT:
        # The page has one answer: what is not recommended is not called the best.
        said = "No split of the operators gains anything over it."
        said = f"This is the best plan: {said[0].lower()}{said[1:]}" if chosen else said
    return replace(card, chosen=chosen, why=" ".join(filter(None, (card.why, said))))
