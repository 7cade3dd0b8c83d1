"""The ranking of ways to run: its sentences and its table."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from analyzer.figures import Figure
from analyzer.options import Objective
from analyzer.record.analysis import Analysis
from analyzer.record.batch_ranges import at_batch, has_batch
from analyzer.record.outcome import Answer, RankedWay, better_session
from analyzer.report import figure_text, plan_cards, summary
from analyzer.report.document import SCREEN, WHOLE, AnswerFigure, Column, Table, table
from analyzer.report.figure_text import PLAN_TITLES, VERDICT_WORDS, joules, marked, per_second
from analyzer.report.plan_cards import PlanCard
from analyzer.text import first_few, listed, plural
from analyzer.units import UNKNOWN, byte_count, count, dollars, seconds

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
    doubts = (summary.measure_again(analysis), summary.rests_on_guesses(analysis))
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
        others = [one.usd_per_million for one in as_good if one.usd_per_million is not None]
        least_usd = others and answer.usd_per_million is not None and answer.usd_per_million <= min(others)
        why = ", none for fewer dollars" if least_usd else ""
        cheapest = sorted(as_good, key=lambda one: (one.usd_per_million is None, one.usd_per_million))
        yield "As good within the error", f"{first_few(dict.fromkeys(map(name, cheapest)))}{why}."
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


def price(analysis: Analysis) -> str:
    """Return what the answer costs, and on which machine; empty where no price is known."""
    answer = of_run(analysis)
    if answer is None or answer.usd_per_million is None:
        return ""
    what, rented = summary.examples(analysis), figure_text.rented(answer, answer.gpus)
    return f"A million {what} cost {dollars(answer.usd_per_million)} on {rented}."


def _line(way: RankedWay) -> str:
    """Return a way with its latency, its dollars and why it is not the answer."""
    latency = "" if way.latency is None else f"{seconds(way.latency_s)} ({way.latency.between(seconds)})"
    usd = f"{dollars(way.usd_per_million)} per million" if way.usd_per_million is not None else ""
    if usd and way.named:
        usd += f" on {figure_text.rented(way, way.gpus)}"
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
    """Return the end of a heading of what is about the first GPU alone: `` (NVIDIA L4)``."""
    gpu = analysis.devices.gpu
    return f" ({gpu.name})" if leads(analysis) and gpu is not None else ""


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


def as_answered(analysis: Analysis) -> Analysis:
    """Return the analysis with the answer's plan in place of a split that is not recommended.

    Tables and charts are of the best plan, and a reader has one answer: the record keeps the split.
    """
    split, answer, device = analysis.plan("hybrid"), of_run(analysis), analysis.verdict.device
    name = device if answer is None or is_elsewhere(analysis) else answer.plan
    alone = analysis.plan(name) if name in ("cpu", "gpu") else better_session(analysis.plans)
    if split is None or alone is None or name == "hybrid" or device is None:
        return analysis
    if not split.fits or not alone.fits or plan_cards.twin(analysis, split):
        return analysis
    on_gpu = alone.name == "gpu"
    operators = (
        replace(one, placement="gpu" if on_gpu and one.gpu and one.gpu.placed_on == "cuda" else "cpu")
        for one in analysis.operators
    )
    plans = (replace(alone, name="hybrid") if plan is split else plan for plan in analysis.plans)
    return replace(analysis, operators=tuple(operators), plans=tuple(plans))


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
    if best.title != figure_text.SPLIT:
        # The page has one answer: what is not recommended is not called the best.
        text = "No split of the operators is worth it."
        text = f"This is the best plan: {text[0].lower()}{text[1:]}" if chosen else text
    return replace(card, chosen=chosen, why=" ".join(filter(None, (card.why, text))))


# On a terminal: what was named, and beside it the best of what was not.
_MOST_NAMED, _MOST_RENTED = 8, 2
_BY: Mapping[Objective, str] = {
    "latency": "latency",
    "throughput": "throughput",
    "cost": "dollars",
    "energy": "energy",
}
# The key of each objective, 1 where less is better, and its figure as text.
_BEST_BY: Mapping[Objective, tuple[str, int, Callable[[float], str]]] = {
    "latency": ("latency_s", 1, seconds),
    "throughput": ("throughput_per_s", -1, per_second),
    "cost": ("usd_per_million", 1, dollars),
    "energy": ("energy_j", 1, joules),
}


def title(analysis: Analysis, answer: Answer | None) -> str:
    """Return the table's heading."""
    objective = analysis.verdict.objective if answer is None else answer.objective
    limit_s = analysis.verdict.slo_s
    limit = "" if limit_s is None else f" under a limit of {seconds(limit_s)}"
    several = len({one.batch for one in analysis.ranking if one.named and one.requested}) > 1
    # A larger batch takes longer everywhere: only latencies of one batch can be compared.
    first = f", batch {answer.batch} first" if several and answer and objective == "latency" else ""
    return f"Ranked by {_BY[objective]}{limit}{first}"


def best_by(analysis: Analysis) -> tuple[AnswerFigure, ...]:
    """Return the best under each objective; none where nothing runs in time."""
    answer, batched = of_run(analysis), has_batch(analysis)
    usable = [one for one in analysis.ranking if one.requested and one.is_usable]
    if answer is None or not usable:
        return ()
    figures = []
    for objective, (key, sign, text) in _BEST_BY.items():
        # Latencies are compared at one batch.
        rows = [one for one in usable if objective != "latency" or one.batch == answer.batch]
        known = [one for one in rows if getattr(one, key) is not None]
        if known:
            one = min(known, key=lambda one: sign * getattr(one, key))
            rented = figure_text.rented(one, one.gpus) if objective == "cost" and one.named else ""
            at = f"batch {one.batch}" if one.batch is not None and batched else ""
            origins = {"cost": one.usd_origin, "energy": _energy_origin(one)}
            figures.append(
                AnswerFigure(
                    title=f"Best for {_BY[objective]}",
                    name=name(one),
                    figure=text(getattr(one, key)),
                    origin=origins.get(objective, one.origin),
                    note=", ".join(filter(None, (at, rented))),
                )
            )
    return tuple(figures)


def sheet(analysis: Analysis) -> Table | None:
    """Return all ways to run; None where the record ranks nothing.

    A terminal shows what was named in the requested precision, and the best of the rented CPUs.
    """
    answer, ranking = of_run(analysis), analysis.ranking
    if not ranking or analysis.generation is not None or analysis.capacity is not None:
        return None
    requested = [at for at, one in enumerate(ranking) if one.requested]
    named = [at for at in requested if ranking[at].named][:_MOST_NAMED]
    rented = [at for at in requested if not ranking[at].named][:_MOST_RENTED]
    return table(
        ranking,
        _columns(ranking),
        name="ranking",
        title=title(analysis, answer),
        chosen=None if answer is None else 0,
        mark="nearest" if answer is not None and answer.meets is False else "best",
        pale=tuple(at for at, one in enumerate(ranking) if not one.runs),
        lead=_lead(ranking),
        shown=tuple(sorted({*named, *rented})),
        most=0,
        detail=SCREEN if leads(analysis) else WHOLE,
    )


def _lead(ranking: Sequence[RankedWay]) -> str:
    requested = [one for one in ranking if one.requested]
    gpus = len({one.device for one in requested if one.kind == "gpu"})
    rented = sum(1 for one in requested if not one.named)
    batches = len({one.batch for one in requested if one.named})
    parts = [plural(gpus, "GPU")] if gpus else []
    parts += ["the CPU"] + ([plural(rented, "CPU instance")] if rented else [])
    at = f" at {batches} batches" if batches > 1 else ""
    text = f"{listed(parts)}{at}, each with its best plan and the instance that runs it for the least."
    if gpus > 1:
        text += " Of those as good within the error, the answer is the one for the fewest dollars."
    if rented and batches > 1:
        text += " Of a CPU instance one batch is shown, its best."
    if len(requested) < len(ranking):
        text += " Other precisions stand last: each is another model, whose accuracy must be checked."
    return text


def _columns(ranking: Sequence[RankedWay]) -> tuple[Column, ...]:
    # A value that is the same in every row says nothing.
    batches = len({one.batch for one in ranking}) > 1
    return (
        _text("Device", name),
        _text("Why not", lambda one: one.remark, drop=2),
        _text("Precision", lambda one: one.precision, drop=5),
        *([_figure("Batch", "batch", lambda one: count(one.batch))] if batches else []),
        _figure("Latency", "latency_s", lambda one: marked(seconds(one.latency_s), one.origin)),
        _figure("90 % interval", "low_s", lambda one: _between(one.latency, seconds), drop=1),
        _figure("Per second", "throughput_per_s", lambda one: per_second(one.throughput_per_s), drop=4),
        _figure(
            "$/million", "usd_per_million", lambda one: marked(dollars(one.usd_per_million), one.usd_origin)
        ),
        _figure("$ interval", "usd_low_per_million", lambda one: _between(one.dollars, dollars), drop=7),
        # Of a rented CPU it is the device.
        _text("On", lambda one: figure_text.rented(one, one.gpus) if one.named else "", drop=3),
        _figure("Memory", "memory_bytes", lambda one: byte_count(one.memory_bytes), drop=8),
        _figure("Energy", "energy_j", lambda one: marked(joules(one.energy_j), _energy_origin(one)), drop=6),
        _text("Plan", lambda one: "Split" if one.plan == "hybrid" else PLAN_TITLES[one.plan], drop=4),
    )


def _text(head: str, text: Callable[[RankedWay], str], *, drop: int = 0) -> Column:
    return Column(head, text, lambda one: text(one) or None, drop=drop, figure=False)


def _figure(head: str, key: str, text: Callable[[RankedWay], str], *, drop: int = 0) -> Column:
    def value(one: RankedWay) -> float | None:
        # What cannot run is sorted behind what can: its figures are as if it did.
        result: float | None = getattr(one, key)
        return result if one.runs else None

    return Column(head, text, value, drop=drop)


def _energy_origin(one: RankedWay) -> str:
    """As a plan's: joules are a time, which may be measured, at a power that is modelled."""
    return "mixed" if one.origin == "measured" else one.origin


def _between(figure: Figure | None, written: Callable[[float | None], str]) -> str:
    return UNKNOWN if figure is None else figure.between(written)
