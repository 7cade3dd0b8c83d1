"""The verdict on the model: which device, by how much, why, and what would change it."""

from __future__ import annotations

from collections.abc import Iterator

from analyzer.decision.choice import Choice, Prices, choose, device_used
from analyzer.decision.decision_input import DecisionInput, Sweep
from analyzer.decision.error_components import ErrorComponent, ErrorComponents, ratio
from analyzer.decision.money import cheapest, offers
from analyzer.decision.operator_verdicts import REASONS
from analyzer.decision.phrases import capital, cpu_name, gpu_name
from analyzer.decision.plans import Plan, Plans, plan_all
from analyzer.decision.reasons import because, cause, first_said, sentence
from analyzer.record.analysis import BatchRange, VerdictResult
from analyzer.record.batch_ranges import about, about_batch, without_islands
from analyzer.record.outcome import WORTHWHILE
from analyzer.units import factor, seconds

__all__ = ["REASONS", "verdict"]

_SENTENCES = 3


def verdict(question: DecisionInput, plans: Plans, choice: Choice, swept: Sweep | None) -> VerdictResult:
    """The choice in words.

    Args:
        question: What was asked.
        plans: What could be done.
        choice: What was chosen.
        swept: The same model over batches, None where only this batch was looked at.
    """
    middle, low, high = (None if question.fails else choice.speedup) or (None, None, None)
    why = cause(question, plans, choice)
    if question.fails:
        swept, note = None, ""
    else:
        note = swept.note if swept is not None else _single_batch_note(question)
    return VerdictResult(
        device=choice.device,
        objective=question.objective,
        speedup=middle,
        low=low,
        high=high,
        crossover_batch=swept.crossover_batch if swept else None,
        reason=f"{why} {note}".strip(),
        sentence=sentence(question, plans, choice),
        because=first_said((why, *because(question, plans, choice)), _SENTENCES),
        would_change=tuple(_would_change(question, plans, choice, swept)),
        crossovers=swept.crossovers if swept else (),
        ranges=swept.ranges if swept else (),
        saturation_batch=swept.saturation_batch if swept else None,
        largest_batch=swept.largest_batch if swept else None,
        slo_s=question.limit_s,
    )


def _single_batch_note(question: DecisionInput) -> str:
    if question.gpu is None or not question.has_batch:
        return ""
    batch = f"batch {question.batch}" if question.batch else "one batch"
    return f"The crossover batch is not known: only {batch} was looked at."


def _would_change(question: DecisionInput, plans: Plans, choice: Choice, swept: Sweep | None) -> Iterator[str]:
    """Sentences that name what would turn the verdict."""
    if plans.gpu is None or question.gpu is None or question.fails:
        return
    if choice.misses_slo and question.limit_s is not None:
        nearest = seconds(choice.plan.latency.value)
        names = {"cpu": cpu_name(question), "gpu": gpu_name(question)}
        device = names.get(device_used(choice.plan), f"{names['gpu']} with {names['cpu']}")
        yield f"{capital(device)} can keep a limit of {nearest} or more."
    if choice.ineligible.get("gpu") == "memory" and swept is not None and swept.largest_batch is not None:
        yield f"Up to batch {swept.largest_batch} it fits {gpu_name(question)}."
    if choice.device == "either":
        yield f"Measuring on {gpu_name(question)} would narrow the interval."
    yield from _nearest_batches(question, choice, swept)
    yield from _changes_that_turn_it(question, plans, choice)
    yield from _if_io_stays_on_gpu(question, plans, choice)
    yield from _opset(question, choice)


def _nearest_batches(question: DecisionInput, choice: Choice, swept: Sweep | None) -> Iterator[str]:
    """The nearest batches on either side at which the answer is another."""
    judged_by_time = choice.objective in ("latency", "throughput") and choice.rival is not None
    if swept is None or question.batch is None or choice.device == "hybrid" or not judged_by_time:
        return
    batch = question.batch
    here = next((one for one in swept.ranges if one.first <= batch <= one.last), None)
    if here is None or here.device != choice.device:
        return
    names = {"cpu": cpu_name(question), "gpu": gpu_name(question)}

    def words(one: BatchRange) -> str:
        return "either may be faster" if one.device == "either" else f"{names[one.device]} is faster"

    ranges, _ = without_islands(swept.ranges)
    above = [one for one in ranges if one.first > batch][:2]
    if above:
        more = [f"from {about(one.first)} {words(one)}" for one in above[1:] if one.device != here.device]
        yield f"From {about_batch(above[0].first)} {', '.join([words(above[0]), *more])}."
    below = [one for one in reversed(ranges) if one.last < batch][:2]
    if below:
        more = [f"up to {about(one.last)} {words(one)}" for one in below[1:] if one.device != here.device]
        where = "At" if below[0].last == 1 else "Up to"
        yield f"{where} {about_batch(below[0].last)} {', '.join([words(below[0]), *more])}."


def _changes_that_turn_it(question: DecisionInput, plans: Plans, choice: Choice) -> Iterator[str]:
    for what_if in question.what_if:
        others = plan_all(what_if.question, (question, plans))
        prices: Prices = {}  # offers are dear to ask for and compared under this objective alone
        if question.objective == "cost":
            prices = {plan.name: cheapest(offers(what_if.question, plan)) for plan in others}
        other = choose(what_if.question, others, prices)
        if other.device is None or other.device == choice.device or _take_as_long(plans, others):
            continue
        words = {
            "cpu": f"{cpu_name(question)} would be the choice",
            "gpu": f"{gpu_name(question)} would be the choice",
            "hybrid": "a split over both would be the choice",
            "either": "the two would tie",
        }
        gain = f" ({gpu_name(question)} at {factor(other.speedup[0])})" if other.speedup else ""
        yield f"{capital(what_if.change)} {words[other.device]}{gain}."


def _take_as_long(plans: Plans, others: Plans) -> bool:
    """Whether every plan takes as long as before: what then turns the verdict is the error, not the change."""
    before = {plan.name: plan.latency.value for plan in plans}
    return all(
        plan.name in before
        and before[plan.name] < WORTHWHILE * plan.latency.value
        and plan.latency.value < WORTHWHILE * before[plan.name]
        for plan in others
    )


def _if_io_stays_on_gpu(question: DecisionInput, plans: Plans, choice: Choice) -> Iterator[str]:
    """Inputs and outputs that stay on the GPU, where a stage before or after runs there too."""
    if plans.gpu is None or choice.device not in ("cpu", "either") or choice.ineligible.get("gpu"):
        return
    components = _without_io_copies(plans.gpu)
    change = ratio(plans.cpu.components, components)
    if choice.speedup is not None and choice.speedup[1] > 1:
        return  # the GPU is faster with its copies already
    if change is not None and change[1] > 1:
        yield (
            f"Where inputs and outputs stay on the GPU, {gpu_name(question)} is {factor(change[0])} as fast as "
            f"{cpu_name(question)}."
        )


def _without_io_copies(plan: Plan) -> ErrorComponents:
    """The plan's parts less the copies of the model's inputs and outputs."""
    link = sum(transfer.time.value for transfer in plan.transfers)
    inside = sum(transfer.time.value for transfer in plan.transfers if transfer.item.where == "inside")
    inside_share = inside / link if link else 0.0
    # Copies are one component of one source, so that the share inside the graph scales its interval as well.
    return tuple(
        component
        if component.resource != "link"
        else ErrorComponent(
            resource=component.resource, source=component.source, time=component.time.scaled(inside_share)
        )
        for component in plan.components
    )


def _opset(question: DecisionInput, choice: Choice) -> Iterator[str]:
    """Operators that have a CUDA kernel at another opset."""
    if choice.device == "gpu" or question.placement is None:
        return
    nodes = zip(question.graph.nodes, question.placement.nodes, strict=True)
    # One sentence a type: a missing kernel is a matter of type and opset, not of the single node.
    missing = {node.op_type: place.detail for node, place in nodes if place.why == "no-kernel-for-opset"}
    for op_type, detail in missing.items():
        why = f": {detail.rstrip('. ')}" if detail else ""
        yield f"At another opset {op_type} runs on the GPU{why}."
