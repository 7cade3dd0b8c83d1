"""Which plan wins under the objective, the constraints and the error of what was predicted."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from analyzer.decision.decision_input import DecisionInput
from analyzer.decision.energy import watts
from analyzer.decision.error_components import EVEN, RESOURCES, Part, Parts, Resource, ratio
from analyzer.decision.plans import Name, Plan, Plans, busy_weights
from analyzer.prediction.estimate import Estimate
from analyzer.record.analysis import CostRow

VerdictDevice = Literal["cpu", "gpu", "hybrid", "either"]
Ratio = tuple[float, float, float]
Prices = Mapping[Name, CostRow | None]
# A plan's time by what is uncertain about it, and what a second of each resource counts.
Weighed = tuple[Parts, Mapping[Resource, float]]

# A plan on both devices needs copies and a session for each stretch: it must pay by more than this.
WORTHWHILE = 1.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """What was chosen, before it is put into words.

    Attributes:
        device: The answer.
        plan: The plan that stands for it; the better of two that tie.
        over: The plan it was weighed against, None where it stood alone.
        advantage: Of ``plan`` over ``over`` under the objective, with its interval.
        speedup: CPU latency over GPU latency with its interval; None without a GPU plan.
        barred: Why a plan was not eligible: ``memory``, ``wheel``, ``kernels`` or ``pins``.
        late: Whether no eligible plan meets the SLO, so that the nearest was chosen.
        objective: What decided: ``latency`` where the wished objective is not known for every plan.
    """

    device: VerdictDevice
    plan: Plan
    over: Plan | None = None
    advantage: Ratio | None = None
    speedup: Ratio | None = None
    barred: Mapping[Name, str]
    late: bool = False
    objective: str = "latency"


def choose(question: DecisionInput, plans: Plans, prices: Prices) -> Choice:
    """The plan of choice.

    CPU and GPU tie where the interval of their ratio holds 1. The mixed plan is chosen where it beats both by
    ``WORTHWHILE`` and the interval agrees, or where it alone is eligible.
    """
    barred = dict(_barred(question, plans))
    able = [plan for plan in plans if plan.name not in barred] or [plans.cpu]
    prompt = [plan for plan in able if question.slo_s is None or plan.latency.time_s <= question.slo_s]
    weighed, objective = _weighed(question, plans, prices)
    late = not prompt
    if late:  # the nearest is wanted, whatever the objective
        weighed = _by_time(plans)
    device, best, over, gain = _best(prompt or able, weighed)
    return Choice(
        device=used(best) if late else device,
        plan=best,
        over=over,
        advantage=gain,
        speedup=ratio(plans.cpu.parts, plans.gpu.parts) if plans.gpu is not None else None,
        barred=barred,
        late=late,
        objective=objective,
    )


def used(plan: Plan) -> Literal["cpu", "gpu", "hybrid"]:
    """What a plan really uses."""
    if "gpu" not in plan.sides:
        return "cpu"
    return "gpu" if plan.name == "gpu" else "hybrid"


def nothing_on_gpu(question: DecisionInput) -> bool:
    """Whether a CUDA session would run every operator on the CPU."""
    return bool(question.cuda_groups) and all(group.provider == "cpu" for group in question.cuda_groups)


def _barred(question: DecisionInput, plans: Plans) -> Iterator[tuple[Name, str]]:
    for plan in plans:
        if "gpu" in plan.sides and question.gpu is not None and not question.gpu.runs_release_wheel:
            yield plan.name, "wheel"
        elif not plan.fits:
            yield plan.name, "memory"
        elif plan.name == "gpu" and nothing_on_gpu(question):
            yield plan.name, "kernels"
        elif question.pins and plans.hybrid is not None and plan.name != "hybrid":
            yield plan.name, "pins"


def _weighed(question: DecisionInput, plans: Plans, prices: Prices) -> tuple[Mapping[Name, Weighed], str]:
    """What the objective compares of each plan, and the objective that decides."""
    if question.objective == "energy":
        known = all(watts(question.cpu, device) is not None for device in (None, question.gpu))
        found = {
            plan.name: (plan.parts, busy_weights(question, with_gpu="gpu" in plan.sides)) for plan in plans
        }
        return found, "energy" if known else "latency"
    if question.objective == "cost":
        priced = {
            plan.name: _priced(plan, row)
            for plan in plans
            if (row := prices.get(plan.name)) is not None and row.latency_s
        }
        if len(priced) == len(tuple(plans)):
            return priced, "cost"
        return _by_time(plans), "latency"
    return _by_time(plans), question.objective


def _by_time(plans: Plans) -> Mapping[Name, Weighed]:
    return {plan.name: (plan.parts, EVEN) for plan in plans}


def _priced(plan: Plan, row: CostRow) -> Weighed:
    """A plan by its dollars: where it is priced on another machine, by the time there and its error."""
    time = row.latency_s or 0.0
    rate = dict.fromkeys(RESOURCES, row.usd_per_million / time)
    here = plan.latency
    if (time, row.low_s, row.high_s) == (here.time_s, here.low_s, here.high_s):
        return plan.parts, rate
    there = Estimate(
        time_s=time,
        low_s=time if row.low_s is None else row.low_s,
        high_s=time if row.high_s is None else row.high_s,
        origin="predicted",
    )
    return (Part(resource="cpu", source=f"{row.provider} {row.instance}", time=there),), rate


def _best(
    able: Sequence[Plan], weighed: Mapping[Name, Weighed]
) -> tuple[VerdictDevice, Plan, Plan | None, Ratio | None]:
    def gain(better: Plan, worse: Plan) -> Ratio | None:
        (parts, weights), (others, other_weights) = weighed[better.name], weighed[worse.name]
        return ratio(others, parts, other_weights, weights)

    single = [plan for plan in able if plan.name != "hybrid"]
    mixed = next((plan for plan in able if plan.name == "hybrid"), None)
    if not single:
        return used(able[0]), able[0], None, None
    best, over = single[0], None
    device: VerdictDevice = used(best)
    if len(single) == 2:
        first = gain(single[0], single[1])
        if first is not None and first[0] < 1:
            single.reverse()
        best, over = single
        device = used(best)
        if first is None or first[1] <= 1 <= first[2]:
            device = "either"
    advantage = gain(best, over) if over is not None else None
    if mixed is not None and used(mixed) == "hybrid" and mixed.sides != best.sides:
        better = gain(mixed, best)
        if better is not None and better[0] >= WORTHWHILE and better[1] > 1:
            return "hybrid", mixed, best, better
    return device, best, over, advantage
