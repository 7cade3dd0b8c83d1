"""Cards of the plans: figures, dollars, reasons."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from analyzer.record.analysis import Analysis, PlanResult
from analyzer.report import figure_text
from analyzer.report.figure_text import PLAN_TITLES, SPLIT, joules
from analyzer.text import listed, plural
from analyzer.units import byte_count, dollars, seconds, span

_NO_MACHINE_CODE = "It cannot run: ONNX Runtime's release wheel has no machine code for this GPU."


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanCard:
    """A plan and what is said of it in words."""

    plan: PlanResult
    title: str
    device: str
    chosen: bool
    dollars_interval: str
    dollars_origin: str
    rented: str
    energy_interval: str
    energy_origin: str
    copies: str
    operators: str
    why: str
    twin: bool


def best_plan(analysis: Analysis) -> PlanResult | None:
    """Return a record's best plan, the CPU's for ``gpu="none"``; None where it cannot run."""
    plan = analysis.plan("hybrid") or analysis.plan("gpu") or analysis.plan("cpu")
    return plan if plan is not None and plan.fits and analysis.verdict.device is not None else None


def whose_time(analysis: Analysis) -> str:
    """Return ``the best plan's time``; a model that has room nowhere has no best plan."""
    return "the time" if analysis.plans and best_plan(analysis) is None else "the best plan's time"


def copies_apart(analysis: Analysis) -> str:
    """Return what of the best plan is in no operator: ``without 3.50 ms of copies``; empty for nothing."""
    best = best_plan(analysis)
    return f"without {seconds(best.transfers.time_s)} of copies" if best and best.transfers.time_s else ""


def energy_of(analysis: Analysis) -> str:
    """Return the devices whose power the joules count; empty where unknown."""
    by_machine: dict[str, list[str]] = {}
    for plan in analysis.plans:
        if plan.energy_of:
            by_machine.setdefault(plan.energy_of, []).append(_title(analysis, plan))
    parts = [f"{listed(titles)}: {machine}" for machine, titles in by_machine.items()]
    return f"Energy counts, idle to full, {'; '.join(parts)}." if parts else ""


def priced_on(analysis: Analysis) -> str:
    """Return whose dollars those of the plans are; empty where none are known."""
    by_instance: dict[str, list[str]] = {}
    for plan in analysis.plans:
        if plan.usd_per_million is not None and plan.instance:
            by_instance.setdefault(figure_text.rented(plan, hourly=True), []).append(_title(analysis, plan))
    parts = [f"{listed(titles)}: {instance}" for instance, titles in by_instance.items()]
    texts = [f"Dollars are of rented machines at full use: {'; '.join(parts)}."] if parts else []
    cpu = analysis.plan("cpu")
    others = any(one.kind == "cpu" and not one.named and one.runs for one in analysis.ranking)
    if parts and others and cpu is not None and cpu.fits and cpu.usd_per_million is None:
        texts.append(
            f"No rented machine has {analysis.devices.cpu.name} with its cores: the ranking has others."
        )
    return " ".join((*texts, *_doubtful_hosts(analysis)))


def _doubtful_hosts(analysis: Analysis) -> Iterator[str]:
    """Yield machines with a GPU of which the processor is not known: it launches the GPU's kernels."""
    result = dict.fromkeys(
        (plan.instance, plan.host)
        for plan in analysis.plans
        if plan.usd_per_million is not None and plan.host_basis == "assumed"
    )
    for instance, host in result:
        yield f"The CPU of {instance} is not known: taken as {host}, with wider intervals."


def plan_cards(analysis: Analysis) -> tuple[PlanCard, ...]:
    """Return the plans side by side, in the record's order."""
    return tuple(_card(analysis, plan) for plan in analysis.plans)


def _card(analysis: Analysis, plan: PlanResult) -> PlanCard:
    transfers, same = plan.transfers, twin(analysis, plan)
    dollars_range = _interval(plan.usd_low_per_million, plan.usd_high_per_million, plan.usd_origin, dollars)
    joules_range = _interval(plan.energy_low_j, plan.energy_high_j, plan.energy_origin, joules)
    sides = (("GPU", plan.operators_on_gpu), ("CPU", plan.operators_on_cpu))
    copies = "no copies"
    if transfers.count:
        amount = plural(transfers.count, "copy")
        copies = f"{amount}, {byte_count(transfers.bytes)}, {seconds(transfers.time_s)}"
    return PlanCard(
        plan=plan,
        title=_title(analysis, plan),
        device=_runs_on(analysis, plan),
        # With no plan that fits, the verdict still names the better one: no card is marked then.
        chosen=analysis.verdict.device == plan.name and plan.fits,
        dollars_interval=dollars_range[0],
        dollars_origin=dollars_range[1],
        rented=figure_text.rented(plan, hourly=True),
        energy_interval=joules_range[0],
        energy_origin=joules_range[1],
        copies=copies,
        operators=", ".join(f"{number} {side}" for side, number in sides if number),
        why=_NO_MACHINE_CODE
        if _lacks_machine_code(analysis, plan)
        else plan.why or (f"The same as the {PLAN_TITLES[same]} plan." if same else ""),
        twin=bool(same),
    )


def _title(analysis: Analysis, plan: PlanResult) -> str:
    if plan.name != "hybrid":
        return PLAN_TITLES[plan.name]
    # What cannot run is the best of nothing.
    runs = plan.fits and not _lacks_machine_code(analysis, plan)
    return PLAN_TITLES["hybrid"] if runs else SPLIT


def _lacks_machine_code(analysis: Analysis, plan: PlanResult) -> bool:
    gpu = analysis.devices.gpu
    return gpu is not None and not gpu.runs_release_wheel and plan.operators_on_gpu > 0


def _interval(
    low: float | None, high: float | None, origin: str, written: Callable[[float], str]
) -> tuple[str, str]:
    """Return an interval as text and the figure's origin; both empty where the figure is not known."""
    return ("", "") if low is None or high is None else (span(written(low), written(high)), origin)


def _runs_on(analysis: Analysis, plan: PlanResult) -> str:
    gpu, same = analysis.devices.gpu, twin(analysis, plan)
    if plan.name == "cpu" or gpu is None or same == "cpu":
        return analysis.devices.cpu.name
    if plan.name == "gpu" or same == "gpu":
        return gpu.name
    return f"{analysis.devices.cpu.name} + {gpu.name}"


def twin(analysis: Analysis, plan: PlanResult) -> str:
    """Return which single-device plan the best plan turns out to be: ``cpu``, ``gpu`` or empty."""
    if plan.name != "hybrid":
        return ""
    for name in ("cpu", "gpu"):
        other = analysis.plan(name)
        # Exactly equal: a best plan that gains nothing takes over the figures of the single device.
        if other and (plan.latency_s, plan.operators_on_gpu) == (other.latency_s, other.operators_on_gpu):
            return name
    return ""
