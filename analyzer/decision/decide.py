"""decide(): the whole stage on one screen."""

from __future__ import annotations

from dataclasses import replace

from analyzer.decision.choice import choose
from analyzer.decision.decision_input import Decision, DecisionInput, Sweep
from analyzer.decision.energy import counted, watts
from analyzer.decision.error_components import summed
from analyzer.decision.money import cheapest, offers, rank
from analyzer.decision.operator_verdicts import operator_verdicts
from analyzer.decision.plans import Plan, Plans, plan_all
from analyzer.decision.sweep import throughput
from analyzer.decision.verdict import verdict
from analyzer.figures import Figure
from analyzer.record.analysis import CostRow, PlanResult, Transfers


def decide(question: DecisionInput, swept: Sweep | None = None, plans: Plans | None = None) -> Decision:
    """Plans, verdicts and prices.

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
    prices = {name: cheapest(plan_offers) for name, plan_offers in offers_by_plan.items()}
    choice = choose(question, plans, prices)
    # What the record calls placement is the best split even where a single session is chosen: it shows which
    # operators would be better off elsewhere.
    best = plans.hybrid if plans.hybrid is not None and "hybrid" not in choice.ineligible else plans.cpu
    return Decision(
        plans=tuple(result(question, plan, prices[plan.name]) for plan in plans),
        verdict=verdict(question, plans, choice, swept),
        operators=operator_verdicts(question, plans, best.sides),
        placement=best.sides,
        costs=rank(question, offers_by_plan[choice.plan.name]),
    )


def result(question: DecisionInput, plan: Plan, price: CostRow | None) -> PlanResult:
    """A plan as the record shows it; energy is for one inference."""
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
