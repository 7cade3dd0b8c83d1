"""Choose a plan under the objective, the constraints and the error of predictions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from analyzer.decision.decision_input import DecisionInput
from analyzer.decision.energy import watts
from analyzer.decision.error_components import (
    EVEN,
    RESOURCES,
    ErrorComponent,
    ErrorComponents,
    Resource,
    ratio,
    summed,
)
from analyzer.decision.money import on_its_device
from analyzer.decision.plans import Name, Plan, Plans, busy_weights
from analyzer.record.analysis import CostRow
from analyzer.record.outcome import WORTHWHILE

VerdictDevice = Literal["cpu", "gpu", "hybrid", "either"] | None
Ratio = tuple[float, float, float]
Prices = Mapping[Name, CostRow | None]
# A plan's time by what is uncertain about it, and what a second of each resource counts.
WeightedComponents = tuple[ErrorComponents, Mapping[Resource, float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """The choice, before it is put into words.

    Attributes:
        device: The answer; None where ONNX Runtime runs the model nowhere.
        plan: The plan that stands for it; the better of two that tie.
        rival: The plan it was weighed against, None where it stood alone.
        advantage: Of ``plan`` over ``rival`` under the objective, with its interval.
        speedup: CPU latency over GPU latency with its interval; None without a GPU plan.
        ineligible: Why a plan was not eligible: ``fails``, ``memory``, ``no-machine-code``, ``kernels`` or
            ``pins``.
        misses_slo: Whether no eligible plan meets the SLO, so that the nearest was chosen.
        objective: What decided: ``latency`` where the wished objective is not known for every plan.
        cpu_price: The instance of another CPU whose dollars were compared, where no machine has this one.
    """

    device: VerdictDevice
    plan: Plan
    rival: Plan | None = None
    advantage: Ratio | None = None
    speedup: Ratio | None = None
    ineligible: Mapping[Name, str]
    misses_slo: bool = False
    objective: str = "latency"
    cpu_price: CostRow | None = None


def choose(question: DecisionInput, plans: Plans, prices: Prices) -> Choice:
    """Return the plan of choice.

    CPU and GPU tie where the interval of their ratio holds 1. The mixed plan is chosen where it beats both by
    ``WORTHWHILE`` and the interval agrees, or where it alone is eligible.
    """
    ineligible = dict(_ineligible(question, plans))
    # Where nothing is eligible the CPU plan answers: of the three it needs least.
    eligible = [plan for plan in plans if plan.name not in ineligible] or [plans.cpu]
    in_time = [plan for plan in eligible if plan.latency.keeps(question.limit_s) is not False]
    weighted, objective = _weighted_by_objective(question, plans, prices)
    on_cpu = prices.get("cpu") if objective == "cost" else None
    is_own = on_cpu is not None and bool(on_its_device(question, plans.cpu, (on_cpu,)))
    misses_slo = not in_time
    if misses_slo:  # the plan that comes nearest to the limit is wanted, whatever the objective
        weighted = _by_time(plans)
    device, best, rival, gain = _best(in_time or eligible, weighted)
    if question.fails or (question.cpu_refuses and len(ineligible) == len(tuple(plans))):
        device = None
    elif misses_slo:
        device = device_used(best)
    return Choice(
        device=device,
        plan=best,
        rival=rival,
        advantage=gain,
        speedup=None
        if plans.gpu is None or question.cpu_refuses
        else ratio(plans.cpu.components, plans.gpu.components),
        ineligible=ineligible,
        misses_slo=misses_slo,
        objective=objective,
        cpu_price=None if is_own else on_cpu,
    )


def plan_with_gpu(question: DecisionInput, plans: Plans, choice: Choice) -> Plan:
    """Return the better of the plans that use the GPU; the CUDA session's where none of them is eligible."""
    if "gpu" in choice.plan.sides:
        return choice.plan
    assert plans.gpu is not None
    usable = [plan for plan in plans if "gpu" in plan.sides and plan.name not in choice.ineligible]
    in_time = [plan for plan in usable if plan.latency.keeps(question.limit_s) is not False]
    return next(iter(in_time or usable), plans.gpu)


def device_used(plan: Plan) -> Literal["cpu", "gpu", "hybrid"]:
    """Return the devices that a plan really uses."""
    if "gpu" not in plan.sides:
        return "cpu"
    return "gpu" if plan.name == "gpu" else "hybrid"


def lacks_cpu_kernels(question: DecisionInput, plan: Plan) -> bool:
    """Return whether a plan without the GPU has operators that ONNX Runtime's CPU provider does not run."""
    if "gpu" in plan.sides:
        return False
    return bool(question.cpu_refuses) or (plan.name == "cpu" and bool(question.cpu_lacks))


def nothing_on_gpu(question: DecisionInput) -> bool:
    """Return whether a CUDA session would run every operator on the CPU."""
    return bool(question.cuda_groups) and all(group.provider == "cpu" for group in question.cuda_groups)


def _ineligible(question: DecisionInput, plans: Plans) -> Iterator[tuple[Name, str]]:
    for plan in plans:
        if question.fails:
            yield plan.name, "fails"
        elif "gpu" in plan.sides and question.gpu is not None and not question.gpu.runs_release_wheel:
            yield plan.name, "no-machine-code"
        elif not plan.fits:
            yield plan.name, "memory"
        elif (plan.name == "gpu" and nothing_on_gpu(question)) or lacks_cpu_kernels(question, plan):
            yield plan.name, "kernels"
        elif question.pins and plans.hybrid is not None and plan.name != "hybrid":
            # Either session alone disregards the pins: with pins the best plan is the only one asked for.
            yield plan.name, "pins"


def _weighted_by_objective(
    question: DecisionInput, plans: Plans, prices: Prices
) -> tuple[Mapping[Name, WeightedComponents], str]:
    """Return the compared quantity of each plan, and the objective that decides."""
    if question.objective == "energy":
        # Weights fall back to 1 where a power is not known: then seconds were compared, and the answer says so.
        known = all(watts(question.cpu, device) is not None for device in (None, question.gpu))
        by_joules = {
            plan.name: (plan.components, busy_weights(question, with_gpu="gpu" in plan.sides)) for plan in plans
        }
        return by_joules, "energy" if known else "latency"
    if question.objective == "cost":
        priced = {
            plan.name: weighted_by_price(plan.components, row)
            for plan in plans
            if (row := prices.get(plan.name)) is not None and row.latency_s
        }
        # A plan without a price must not lose for that: dollars decide only where every plan has them.
        if len(priced) == len(tuple(plans)):
            return priced, "cost"
        return _by_time(plans), "latency"
    return _by_time(plans), question.objective


def _by_time(plans: Plans) -> Mapping[Name, WeightedComponents]:
    return {plan.name: (plan.components, EVEN) for plan in plans}


def weighted_by_price(components: ErrorComponents, row: CostRow) -> WeightedComponents:
    """Return a run by its dollars: where it is priced on another machine, by the time there and its error."""
    time = row.latency
    assert time is not None
    rate = dict.fromkeys(RESOURCES, row.usd_per_million / time.value)
    if time.ends == summed(components).ends:
        return components, rate  # priced by its own time: shared errors still cancel
    elsewhere = replace(time, origin="predicted")
    return (ErrorComponent(resource="cpu", source=f"{row.provider} {row.instance}", time=elsewhere),), rate


def _best(
    eligible: Sequence[Plan], weighted: Mapping[Name, WeightedComponents]
) -> tuple[VerdictDevice, Plan, Plan | None, Ratio | None]:
    def gain(better: Plan, worse: Plan) -> Ratio | None:
        (components, weights), (others, other_weights) = weighted[better.name], weighted[worse.name]
        return ratio(others, components, other_weights, weights)

    single = [plan for plan in eligible if plan.name != "hybrid"]
    mixed = next((plan for plan in eligible if plan.name == "hybrid"), None)
    if not single:
        return device_used(eligible[0]), eligible[0], None, None
    best, rival = single[0], None
    device: VerdictDevice = device_used(best)
    if len(single) == 2:  # CPU and GPU alone
        gain_of_first = gain(single[0], single[1])
        if gain_of_first is not None and gain_of_first[0] < 1:
            single.reverse()
        best, rival = single
        device = device_used(best)
        if gain_of_first is None or gain_of_first[1] <= 1 <= gain_of_first[2]:
            device = "either"
    advantage = gain(best, rival) if rival is not None else None
    # The best split is often a uniform one: then it is no rival of the session that it equals.
    if mixed is not None and device_used(mixed) == "hybrid" and mixed.sides != best.sides:
        better = gain(mixed, best)
        # Of two that tie either may be the better one: the split must be sure to beat both.
        sure = all((over := gain(mixed, one)) is not None and over[1] > 1 for one in single)
        if better is not None and better[0] >= WORTHWHILE and sure:
            return "hybrid", mixed, best, better
    return device, best, rival, advantage
