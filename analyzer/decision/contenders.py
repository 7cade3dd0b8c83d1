"""Ways to answer: each device with its best plan at each batch, and each CPU that can be rented."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from analyzer.decision.choice import Choice, Ratio, WeightedComponents, choose, plan_with_gpu, weighted_by_price
from analyzer.decision.decide import energy
from analyzer.decision.decision_input import DecisionInput
from analyzer.decision.energy import watts
from analyzer.decision.error_components import EVEN, ErrorComponent, ErrorComponents, Resource, ratio
from analyzer.decision.money import cheapest, offers, on_its_device
from analyzer.decision.plans import Name, Plan, Plans
from analyzer.decision.reasons import cpu_name, gpu_name
from analyzer.decision.sweep import throughput
from analyzer.devices.catalogue import instance_cpu
from analyzer.devices.device import Device, Instance
from analyzer.figures import Way, seen_as
from analyzer.memory.fit import context_note
from analyzer.options import Objective
from analyzer.record.outcome import CostRow, PrecisionResult, RankedWay, WhyNot
from analyzer.units import byte_count

_NO_MACHINE_CODE = "ONNX Runtime's release wheel has no machine code for it"
_ANOTHER_MODEL = "another model, whose accuracy must be checked"


@dataclass(frozen=True, kw_only=True)
class Contender:
    """A way to answer with what comparing it needs.

    Attributes:
        way: As the record shows it; ``why_not`` is set of what cannot run.
        label: What sentences call the device.
        split_with: What they call the CPU that takes a part of the model; empty where none does.
        components: What its time is made of; errors of one source cancel.
        power: Watts while each resource is busy; None where not known.
        price: The instance that runs it for the least; None where none is known.
        offers: All instances that run it.
    """

    way: RankedWay
    label: str
    split_with: str = ""
    components: ErrorComponents = ()
    power: Mapping[Resource, float] | None = None
    price: CostRow | None = None
    offers: tuple[CostRow, ...] = ()

    @property
    def there(self) -> ErrorComponents:
        """The parts of its time on the instance that runs it for the least; its own where none is known."""
        return self.components if self.price is None else weighted_by_price(self.components, self.price)[0]

    def value(self, objective: Objective) -> float | None:
        """Return the quantity that the objective minimises; None where it is not known."""
        one = self.way
        if objective == "throughput":
            return 1 / one.throughput_per_s if one.throughput_per_s else None
        return {"latency": one.latency_s, "cost": one.usd_per_million, "energy": one.energy_j}[objective]

    def weighted(self, objective: Objective) -> WeightedComponents | None:
        """Return same by its parts, so that errors that two contenders share cancel; None where not known."""
        one = self.way
        if not one.latency_s or self.value(objective) is None:
            return None
        if objective == "cost" and self.price is not None:
            return weighted_by_price(self.components, self.price)
        if objective == "energy" and self.power is not None and one.energy_j:
            whole = sum(self.power[part.resource] * part.time.value for part in self.components)
            return self.components, {name: watt * one.energy_j / whole for name, watt in self.power.items()}
        if objective == "throughput" and one.throughput_per_s:
            return self.components, dict.fromkeys(EVEN, 1 / (one.throughput_per_s * one.latency_s))
        return self.components, EVEN

    def gain(self, other: Contender, objective: Objective) -> Ratio | None:
        """Return how many times as much of the objective's measure another takes, with its 90 % interval."""
        ours, theirs = self.weighted(objective), other.weighted(objective)
        return None if ours is None or theirs is None else ratio(theirs[0], ours[0], theirs[1], ours[1])


def gpu_contender(
    question: DecisionInput, plans: Plans, precision: str, cpus: Sequence[Contender]
) -> Contender:
    """Return the question's GPU with the better of the plans that use it.

    ``precision`` is the record's; the prices of ``cpus``, at the same batch, count where dollars decide.
    """
    assert question.gpu is not None
    label = gpu_name(question)
    about = RankedWay(
        device=question.gpu.slug,
        device_name=question.gpu.name,
        kind="gpu",
        plan="gpu",
        precision=precision,
        batch=question.batch,
        gpus=1,
    )
    if question.run_fails or (question.fails and plans.gpu is not None):
        why = "the run failed" if question.run_fails else question.fails
        return Contender(way=_not_run(about, "fails", why), label=label)
    if plans.gpu is None:
        fails = question.placement.fails.rstrip(".") if question.placement else ""
        why = f"ONNX Runtime makes no such session: {fails}" if fails else "its time is not known"
        return Contender(way=_not_run(about, "fails", why), label=label)
    prices: dict[Name, CostRow | None] = {}
    if question.objective == "cost":  # offers are dear to ask for and compared under this objective alone
        rented = cheapest(one.price for one in cpus if one.price is not None)
        prices["cpu"] = cpus[0].price or rented
        prices |= {plan.name: cheapest(offers(question, plan)) for plan in plans if plan.name != "cpu"}
    choice = choose(question, plans, prices)
    plan = plan_with_gpu(question, plans, choice)
    runs = plan.name not in choice.ineligible
    rows = tuple(offers(question, plan, better=True)) if runs else ()
    # Where the device alone has no room for the model, it runs a part of it.
    split = runs and choice.ineligible.get("gpu") == "memory"
    note = f"alone it has no room: {_room(question, plans.gpu)}" if split else ""
    way = _figures(replace(about, plan=plan.name, note=note), question, plan, rows)
    return Contender(
        way=way if runs else _not_run(way, *_why_not(question, plan, choice)),
        label=label,
        split_with=cpu_name(question) if runs and plan.name == "hybrid" else "",
        # With sources of this device: how far two GPUs' predictions err together is not known.
        components=tuple(
            part if part.source == "cpu" else replace(part, source=f"{question.gpu.slug} {part.source}")
            for part in plan.components
        ),
        power=watts(question.cpu, question.gpu),
        price=cheapest(rows),
        offers=rows,
    )


def cpu_contenders(question: DecisionInput, plans: Plans, precision: str) -> tuple[Contender, ...]:
    """Return the question's CPU, then the instances of the price list that have another one."""
    plan, cpu = plans.cpu, question.cpu
    # No price: which plans are eligible does not hang on it.
    choice = choose(question, plans, {})
    # With pins the best split is the only plan that was asked for: the CPU's where it leaves all on the CPU.
    split = plans.hybrid
    as_split = split is not None and "hybrid" not in choice.ineligible and "gpu" not in split.sides
    pinned = choice.ineligible.get("cpu") == "pins" and not as_split
    fails = question.fails or question.cpu_refuses
    runs = plan.fits and not pinned and not fails
    rows = () if pinned or fails else tuple(offers(question, plan))
    known = {(instance.provider, instance.name): instance for instance in question.instances}
    own = on_its_device(question, plan, rows)
    about = RankedWay(
        device=cpu.slug,
        device_name=cpu.name,
        kind="cpu",
        plan="cpu",
        precision=precision,
        batch=question.batch,
    )
    way = about if fails else _figures(about, question, plan, own if runs else ())
    here = Contender(
        way=way if runs else _not_run(way, *_why_not(question, plan, choice)),
        label=cpu_name(question),
        components=plan.components,
        power=watts(cpu, None),
        price=cheapest(own) if runs else None,
    )
    rented = (
        _rented(question, plan, row, known[row.provider, row.instance], precision, own=row in own)
        for row in rows
    )
    return (here, *rented)


def _rented(
    question: DecisionInput, plan: Plan, row: CostRow, instance: Instance, precision: str, *, own: bool
) -> Contender:
    device = question.cpu if own else instance_cpu(instance) or question.cpu
    time = row.latency
    assert time is not None
    power = watts(device, None)
    way = seen_as(
        RankedWay,
        row,
        device=instance.cpu,
        device_name=device.name,
        kind="cpu",
        plan="cpu",
        precision=precision,
        batch=question.batch,
        named=False,
        meets=row.meets_slo,
        memory_bytes=plan.memory_bytes,
        energy_j=power["cpu"] * time.value / question.inferences if power is not None else None,
    )
    source = f"{row.provider} {row.instance}"
    return Contender(
        way=way,
        label=source,
        # Of the question's own CPU the errors are its own: compared with it, they cancel.
        components=plan.components if own else (ErrorComponent(resource="cpu", source=source, time=time),),
        power=power,
        price=row,
        offers=(row,),
    )


def other_precisions(
    rows: Sequence[PrecisionResult], question: DecisionInput, gpu: Device | None
) -> Iterator[RankedWay]:
    """Yield ways that were not requested: the same weights in other types, on this CPU and on a GPU."""
    for row in rows:
        device = question.cpu if row.device == "cpu" else gpu
        if row.decided or device is None:
            continue
        lacks_code = row.device == "gpu" and not device.runs_release_wheel
        runs = row.latency_s is not None and row.fits and not lacks_code
        other = seen_as(
            RankedWay,
            row,
            device=device.slug,
            device_name=device.name,
            kind=row.device,
            plan=row.device,
            batch=question.batch,
            gpus=int(row.device == "gpu"),
            requested=False,
            runs=runs,
            meets=row.keeps(question.limit_s),
            why_not=WhyNot(reason="precision", sentence=f"{_ANOTHER_MODEL}: {row.reason}")
            if runs
            else WhyNot(reason="no-machine-code", sentence=_NO_MACHINE_CODE)
            if lacks_code
            else WhyNot(reason="fails", sentence=row.reason)
            if row.fits
            else WhyNot(reason="memory", sentence="it does not fit"),
        )
        # What has no room, or no machine code, is rented nowhere.
        yield other if row.fits and not lacks_code else other.priced_as(Way())


def _not_run(way: RankedWay, reason: str, sentence: str) -> RankedWay:
    """Return a way that cannot run, with why."""
    return replace(way, runs=False, why_not=WhyNot(reason=reason, sentence=sentence))


def _figures(way: RankedWay, question: DecisionInput, plan: Plan, rows: tuple[CostRow, ...]) -> RankedWay:
    """Return the way with its plan's figures and the cheapest of the instances."""
    latency, joules = plan.latency, energy(question, plan)
    timed = replace(
        way,
        fits=plan.fits,
        meets=latency.keeps(question.limit_s),
        **latency.keys("latency_s"),
        throughput_per_s=throughput(question, plan),
        memory_bytes=plan.memory_bytes,
        energy_j=joules.value if joules is not None else None,
    )
    price = cheapest(rows)
    return timed if price is None else replace(timed.priced_as(price), instance_latency_s=price.latency_s)


def _why_not(question: DecisionInput, plan: Plan, choice: Choice) -> tuple[str, str]:
    """Return why a plan is not eligible: the slug of ``choice.ineligible`` and a sentence."""
    why = choice.ineligible.get(plan.name, "memory")
    if why == "memory":
        return why, f"it does not fit: {_room(question, plan)}"
    return why, {
        "fails": "the run failed" if question.run_fails else question.fails,
        "no-machine-code": _NO_MACHINE_CODE,
        "kernels": "no CUDA kernels: ONNX Runtime would run every operator on the CPU"
        if "gpu" in plan.sides or plan.name == "gpu"
        else question.cpu_refuses,
        "pins": "the pins need another device",
    }[why]


def _room(question: DecisionInput, plan: Plan) -> str:
    device = question.gpu if plan.name == "gpu" else question.cpu
    has = device.memory_bytes if device is not None else None
    note = context_note(plan.memory_bytes, has) if plan.name == "gpu" else ""
    return f"it needs {byte_count(plan.memory_bytes)} and has {byte_count(has)}{note}"
