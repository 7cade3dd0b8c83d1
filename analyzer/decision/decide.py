"""decide(): the whole stage on one screen, and the verdict on the model."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from analyzer.decision.choice import Choice, choose, device_used
from analyzer.decision.decision_input import Decision, DecisionInput, Sweep
from analyzer.decision.energy import counted, watts
from analyzer.decision.error_components import ratio, summed
from analyzer.decision.money import cheapest, offers, on_its_device, rank
from analyzer.decision.operator_verdicts import REASONS, operator_verdicts
from analyzer.decision.plans import Plan, Plans, plan_all
from analyzer.decision.reasons import because, capital, cause, cpu_name, gpu_name, sentence
from analyzer.decision.sweep import throughput
from analyzer.figures import Figure
from analyzer.record.analysis import BatchRange, CostRow, PlanResult, Transfers, VerdictResult
from analyzer.record.batch_ranges import about, about_batch, without_islands
from analyzer.units import factor, seconds

__all__ = ["REASONS", "verdict"]

_SENTENCES = 3


def verdict(question: DecisionInput, plans: Plans, choice: Choice, swept: Sweep | None) -> VerdictResult:
    """Return the choice in words; ``swept`` is None where only this batch was looked at."""
    middle, low, high = (None if question.fails else choice.speedup) or (None, None, None)
    why, note = cause(question, plans, choice), swept.note if swept is not None else ""
    if question.fails:
        swept, note = None, ""
    elif swept is None and question.gpu is not None and question.has_batch:
        batch = f"batch {question.batch}" if question.batch else "one batch"
        note = f"The crossover batch is not known: only {batch} was looked at."
    known = swept or Sweep()
    return VerdictResult(
        device=choice.device,
        objective=question.objective,
        speedup=middle,
        low=low,
        high=high,
        crossover_batch=known.crossover_batch,
        reason=f"{why} {note}".strip(),
        sentence=sentence(question, plans, choice),
        because=tuple(filter(None, (why, *because(question, plans, choice))))[:_SENTENCES],
        would_change=tuple(_would_change(question, plans, choice, swept)),
        crossovers=known.crossovers,
        ranges=known.ranges,
        saturation_batch=known.saturation_batch,
        largest_batch=known.largest_batch,
        slo_s=question.limit_s,
    )


def _would_change(question: DecisionInput, plans: Plans, choice: Choice, swept: Sweep | None) -> Iterator[str]:
    """Yield sentences that name what would turn the verdict."""
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
    yield from _if_io_stays_on_gpu(question, plans, choice)


def _nearest_batches(question: DecisionInput, choice: Choice, swept: Sweep | None) -> Iterator[str]:
    """Yield the nearest batches on either side at which the answer is another."""
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

    def in_time(one: BatchRange) -> bool:
        rows = (row for row in swept.rows if one.first <= row.batch <= one.last)
        known = (plan for row in rows for plan in row.plans.values() if plan.fits)
        limit_s = question.limit_s
        return limit_s is None or any(plan.latency.keeps(limit_s) is not False for plan in known)

    ranges, _ = without_islands(swept.ranges)
    # No batch is of interest at which nothing keeps the limit.
    above = [one for one in ranges if one.first > batch and in_time(one)][:2]
    if above:
        more = [f"from {about(one.first)} {words(one)}" for one in above[1:] if one.device != here.device]
        yield f"From {about_batch(above[0].first)} {', '.join([words(above[0]), *more])}."
    below = [one for one in reversed(ranges) if one.last < batch][:2]
    if below:
        more = [f"up to {about(one.last)} {words(one)}" for one in below[1:] if one.device != here.device]
        where = "At" if below[0].last == 1 else "Up to"
        yield f"{where} {about_batch(below[0].last)} {', '.join([words(below[0]), *more])}."


def _if_io_stays_on_gpu(question: DecisionInput, plans: Plans, choice: Choice) -> Iterator[str]:
    """Yield inputs and outputs that stay on the GPU, where a stage before or after runs there too."""
    if plans.gpu is None or choice.device not in ("cpu", "either") or choice.ineligible.get("gpu"):
        return
    if choice.speedup is not None and choice.speedup[1] > 1:
        return  # the GPU is faster with its copies already
    link, inside = (
        sum(one.time.value for one in plans.gpu.transfers if one.item.where in where)
        for where in (("input", "output", "inside"), ("inside",))
    )
    # Copies are one component of one source, so that the share inside the graph scales its interval as well.
    saved = inside / link if link else 0.0
    components = tuple(
        replace(part, time=part.time.scaled(saved)) if part.resource == "link" else part
        for part in plans.gpu.components
    )
    change = ratio(plans.cpu.components, components)
    if change is not None and change[1] > 1:
        yield (
            f"Where inputs and outputs stay on the GPU, {gpu_name(question)} is {factor(change[0])} as fast as "
            f"{cpu_name(question)}."
        )


def decide(question: DecisionInput, swept: Sweep | None = None, plans: Plans | None = None) -> Decision:
    """Return plans, verdicts and prices.

    ``swept`` is the same model over batches, for the crossover; ``plans`` are the question's, where known.

    Raises:
        UsageError: A pin or the utilisation cannot be.
        DeviceError: The GPU has no link.
    """
    plans = plans or plan_all(question)
    # What no session runs has no price.
    offers_by_plan = {
        plan.name: ()
        if question.fails or (question.cpu_refuses and "gpu" not in plan.sides)
        else tuple(offers(question, plan))
        for plan in plans
    }
    if plans.gpu is not None and plans.hybrid is not None and plans.hybrid.sides == plans.gpu.sides:
        # The best plan is the CUDA session: so it is where it is priced.
        offers_by_plan["hybrid"] = offers_by_plan["gpu"]
    prices = {plan.name: cheapest(on_its_device(question, plan, offers_by_plan[plan.name])) for plan in plans}
    # Under dollars a CPU that is not for rent is compared as the cheapest one that is.
    rented = {name: prices[name] or cheapest(plan_offers) for name, plan_offers in offers_by_plan.items()}
    choice = choose(question, plans, rented)
    # What the record calls placement is the best split even where a single session is chosen: it shows which
    # operators would be better off elsewhere.
    best = plans.hybrid if plans.hybrid is not None and "hybrid" not in choice.ineligible else plans.cpu
    return Decision(
        plans=tuple(result(question, plan, prices[plan.name]) for plan in plans),
        verdict=verdict(question, plans, choice, swept),
        operators=operator_verdicts(question, plans, best.sides) if question.cpu_shares else (),
        placement=best.sides,
        costs=rank(question, offers_by_plan[choice.plan.name]),
    )


def result(question: DecisionInput, plan: Plan, price: CostRow | None) -> PlanResult:
    """Return a plan as the record shows it; energy is for one inference."""
    latency, joules = plan.latency, energy(question, plan)
    items = tuple(transfer.item for transfer in plan.transfers)
    shown = PlanResult(
        name=plan.name,
        **latency.keys("latency_s"),
        throughput_per_s=throughput(question, plan),
        transfers=Transfers(
            count=len(items),
            bytes=sum(item.bytes for item in items),
            time_s=sum(item.time_s for item in items),
            items=items,
        ),
        memory_bytes=plan.memory_bytes,
        fits=plan.fits,
        energy_j=joules.value if joules else None,
        operators_on_gpu=plan.on_gpu,
        operators_on_cpu=plan.on_cpu,
        why=plan.why,
        energy_low_j=joules.low if joules else None,
        energy_high_j=joules.high if joules else None,
        energy_origin=joules.origin if joules else "",
        energy_of=counted(question.cpu, question.gpu if "gpu" in plan.sides else None) if joules else "",
    )
    if price is None:
        return shown
    return replace(
        shown.priced_as(price),
        instance_latency_s=price.latency_s,
        host=price.host,
        host_basis=price.host_basis,
    )


def energy(question: DecisionInput, plan: Plan) -> Figure | None:
    """Joules for one inference; None where a device's power is not known, or where the plan does not fit.

    Nobody measured the power: of a measured time the joules are ``mixed``. The interval is the time's.
    """
    weights = watts(question.cpu, question.gpu if "gpu" in plan.sides else None)
    if weights is None or not plan.fits:
        return None
    # The weights are watts, and sums and intervals follow the same arithmetic.
    joules = summed(plan.components, weights).scaled(1 / question.inferences)
    return joules if joules.origin == "predicted" else replace(joules, origin="mixed")
