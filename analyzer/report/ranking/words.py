"""Reporting: the answer over everything that was requested, in words, and what stands next to it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import replace

from analyzer.record.analysis import Analysis
from analyzer.record.batch_ranges import at_batch
from analyzer.record.outcome import Answer, RankedWay
from analyzer.report import price_words
from analyzer.report.summary import figure_words, plan_cards, verdict_words
from analyzer.report.summary.figure_words import VERDICT_WORDS
from analyzer.report.summary.plan_cards import PlanCard
from analyzer.text import first_few
from analyzer.units import dollars, seconds

# A list of more devices is not repeated in a sentence.
_FEW = 3


def of_run(analysis: Analysis) -> Answer | None:
    """Return the answer of a run of the model; None where nothing runs, and where a service was asked for."""
    return None if analysis.generation or analysis.capacity else analysis.answer


def leads(analysis: Analysis) -> bool:
    """Tell whether the answer is over more than the CPU and one GPU at one batch."""
    answer = of_run(analysis)
    requested = [one for one in analysis.ranking if one.named and one.requested]
    gpus = {one.device for one in requested if one.kind == "gpu"}
    several = len(gpus) > 1 or len({one.batch for one in requested}) > 1
    return answer is not None and (several or not answer.named)


def sentence(analysis: Analysis) -> str:
    """Return the answer, behind what makes it doubtful."""
    answer = of_run(analysis)
    doubts = (verdict_words.measure_again(analysis), verdict_words.rests_on_guesses(analysis))
    return " ".join(filter(None, (*doubts, answer.sentence if answer else analysis.verdict.sentence)))


def side(analysis: Analysis) -> str:
    """Return what the answer runs on, as the verdict's ``device``; ``either`` where there is none."""
    answer = of_run(analysis)
    if answer is not None and answer.meets is False:
        return "either"
    if answer is None or not is_elsewhere(analysis):
        return analysis.verdict.device or "either"
    return answer.plan


def word(analysis: Analysis) -> str:
    """Return the answer in a word or two: ``GPU``, ``CPU``, ``Limit missed``."""
    answer = of_run(analysis)
    if answer is not None and answer.meets is False:
        return "Limit missed"
    return VERDICT_WORDS[answer.plan if answer is not None and leads(analysis) else analysis.verdict.device]


def alternatives(analysis: Analysis) -> Iterator[tuple[str, str]]:
    """Yield what stands next to the answer: what is as good, the fastest, the cheapest, and the CPU."""
    answer = of_run(analysis)
    if answer is None:
        return
    usable = [one for one in analysis.ranking[1:] if one.requested and one.is_usable]
    at_its_batch = [one for one in usable if one.batch == answer.batch]
    as_good = [one for one in usable if one.named and one.why_not and one.why_not.reason == "as_good"]
    if as_good:
        yield "As good within the error", f"{first_few(dict.fromkeys(map(name, as_good)))}."
    first = min(at_its_batch, key=lambda one: one.latency_s or 0.0, default=None)
    if first is not None and (first.latency_s or 0.0) >= (answer.latency_s or 0.0):
        first = None
    priced = [one for one in usable if one.usd_per_million is not None]
    least = min(priced, key=lambda one: one.usd_per_million or 0.0, default=None)
    if least is not None and (least.usd_per_million or 0.0) >= (answer.usd_per_million or math.inf):
        least = None
    cpus = (one for one in analysis.ranking[1:] if one.named and one.requested and one.kind == "cpu")
    cpu = next((one for one in cpus if one.batch == answer.batch and one not in (first, least)), None)
    lines = (("Fastest", first), ("Cheapest", least), ("On the CPU", cpu))
    yield from ((label, _line(way)) for label, way in lines if way is not None)


def _line(way: RankedWay) -> str:
    """Return a way with its latency, its dollars and why it is not the answer."""
    latency = "" if way.latency is None else f"{seconds(way.latency_s)} ({way.latency.between(seconds)})"
    usd = f"{dollars(way.usd_per_million)} per million" if way.usd_per_million is not None else ""
    if usd and way.named:
        usd += f" on {price_words.rented(way, way.gpus)}"
    return f"{name(way)}: {', '.join(filter(None, (latency, usd)))}; {way.remark}."


def name(way: RankedWay) -> str:
    """Return what people call the device; of a CPU that stands on the price list alone its machine too."""
    return way.device_name if way.named else f"{way.machine} ({way.device_name})"


def details(analysis: Analysis) -> str:
    """Return whose plans, reasons and operators the record shows, where more was requested."""
    if not leads(analysis):
        return ""
    gpu, at = analysis.devices.gpu, at_batch(analysis)
    verdict = analysis.verdict.sentence
    answer = of_run(analysis)
    if answer is not None and not is_elsewhere(analysis):
        name = gpu.name if gpu is not None else "The CPU"
        return "" if answer.plan == analysis.verdict.device else f"{name}{at} alone: {verdict}"
    whose = f"the {gpu.name}" if gpu is not None else "this CPU"
    options = _requested_first(analysis)
    how = f"; {options} shows those of the answer" if options else ""
    with_it = "it and the CPU" if gpu is not None else "it"
    text = f"Plans, reasons and operators here are of {whose}{at}, which was asked about first{how}."
    # In dollars a CPU without a price of its own has another machine's, which is a way of its own here.
    return (
        text if answer is not None and answer.objective == "cost" else f"{text} With {with_it} alone: {verdict}"
    )


def is_elsewhere(analysis: Analysis) -> bool:
    """Tell whether the answer is for another device or batch than plans, reasons and operators are of."""
    answer, gpu = of_run(analysis), analysis.devices.gpu
    if answer is None:
        return False
    of_details = answer.kind == "cpu" or (gpu is not None and answer.device == gpu.slug)
    return not (of_details and answer.named and answer.batch == analysis.model.batch)


def _requested_first(analysis: Analysis) -> str:
    """Return the options that ask the same question about the device and the batch of the answer first."""
    answer, gpu = of_run(analysis), analysis.devices.gpu
    # Of a rented CPU the number of cores belongs to the question as well.
    if answer is None or not answer.named:
        return ""
    words = []
    if answer.kind == "gpu" and gpu is not None and answer.device != gpu.slug:
        words.append(
            _led_by("gpu", answer.device, (gpu.slug, *(one.device.slug for one in analysis.alternatives)))
        )
    if answer.batch is not None and answer.batch != analysis.model.batch:
        batches = {
            one.batch for one in analysis.ranking if one.named and one.requested and one.batch is not None
        }
        words.append(_led_by("batch", str(answer.batch), map(str, sorted(batches))))
    return " ".join(words)


def _led_by(option: str, first: str, every: Iterable[str]) -> str:
    others = [one for one in every if one != first]
    return f"--{option} {','.join((first, *others) if len(others) <= _FEW else (first,))}"


def about_first(analysis: Analysis) -> str:
    """Return what a heading says behind it where what follows is about the first GPU alone: ``, NVIDIA L4``."""
    gpu = analysis.devices.gpu
    return f", {gpu.name}" if leads(analysis) and gpu is not None else ""


def cards(analysis: Analysis) -> tuple[PlanCard, ...]:
    """Return plans, each with its own figures; chosen is what the headline recommends, if it is among them."""
    every = plan_cards.plan_cards(analysis)
    if not leads(analysis):
        return every
    answer = None if is_elsewhere(analysis) else of_run(analysis)
    return tuple(
        replace(card, chosen=answer is not None and card.plan.name == answer.plan and card.plan.fits)
        for card in every
    )


def table_cards(analysis: Analysis) -> tuple[PlanCard, ...]:
    """Return same for a table: where several devices were asked about, the name of a plan has its device."""
    if not leads(analysis):
        return cards(analysis)
    return tuple(
        card
        if card.plan.name == "hybrid"
        else replace(card, title=f"{card.title}: {card.device.removeprefix('NVIDIA ')}")
        for card in cards(analysis)
    )


def distinct_cards(analysis: Analysis) -> tuple[PlanCard, ...]:
    """Return the same without a best plan that is one of the others: that one says so."""
    every, plan = cards(analysis), analysis.plan("hybrid")
    same = plan_cards.twin(analysis, plan) if plan is not None else ""
    best = next((card for card in every if card.plan.name == "hybrid"), None)
    if best is None or not same:
        return every
    return tuple(_joined(card, best) if card.plan.name == same else card for card in every if card is not best)


def _joined(card: PlanCard, best: PlanCard) -> PlanCard:
    # What does not run is the best of nothing.
    chosen = card.chosen or best.chosen
    text = ""
    if best.title != figure_words.SPLIT:
        # The page has one answer: what is not recommended is not called the best.
        text = "No split of the operators gains anything over it."
        text = f"This is the best plan: {text[0].lower()}{text[1:]}" if chosen else text
    return replace(card, chosen=chosen, why=" ".join(filter(None, (card.why, text))))
