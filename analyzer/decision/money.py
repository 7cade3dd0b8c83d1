"""Dollars: what can be rented for a plan, and what a million inferences cost there."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from analyzer.decision.decision_input import DecisionInput, HostedRun
from analyzer.decision.plans import Plan
from analyzer.devices.catalogue import model_of
from analyzer.devices.device import Instance
from analyzer.errors import UsageError
from analyzer.memory.fit import fits
from analyzer.record.analysis import CostRow
from analyzer.units import SECONDS_PER_HOUR, comparable

_MILLION = 1e6


def usd_per_million(usd_per_hour: float, throughput_per_s: float, utilisation: float = 1.0) -> float:
    """Return dollars for a million inferences on a machine that runs them in this share of the rented time."""
    if not 0 < utilisation <= 1:
        raise UsageError(
            f"A utilisation of {utilisation:g} is impossible.", hint="It is a share over 0 and up to 1."
        )
    # All rented hours are paid, idle ones too: at half the utilisation an inference costs twice as much.
    return usd_per_hour / SECONDS_PER_HOUR / (throughput_per_s * utilisation) * _MILLION


def rank(question: DecisionInput, rows: Iterable[CostRow]) -> tuple[CostRow, ...]:
    """Return instances, best first.

    Those that meet the SLO lead, by the price of an inference; where none meets it, the fastest leads.
    """
    rows = tuple(rows)
    # A missed limit is not made good by a low price.
    if question.limit_s is not None and rows and not any(row.meets_slo for row in rows):
        return tuple(sorted(rows, key=lambda row: (row.latency_s or 0.0, *best_first(row))))
    return tuple(sorted(rows, key=best_first))


def cheapest(rows: Iterable[CostRow]) -> CostRow | None:
    """Return the instance on which a million inferences cost least; None where nothing is known.

    Of those that meet the SLO, where any does: a price at which the limit is missed buys nothing.
    """
    return min(rows, key=best_first, default=None)


def best_first(row: CostRow) -> tuple[bool, float, float, str, str]:
    """Order rows by the limit and the price; names break ties, whatever the order of the price list."""
    million = comparable(row.usd_per_million)  # of equals the smaller machine
    return row.meets_slo is False, million, row.usd_per_hour, row.provider, row.instance


def on_its_device(question: DecisionInput, plan: Plan, rows: Iterable[CostRow]) -> tuple[CostRow, ...]:
    """Return instances that run the plan as the question's devices do: of a CPU's, those that have this CPU."""
    if "gpu" in plan.sides:
        return tuple(rows)
    model = model_of(question.cpu)
    return tuple(
        row
        for row in rows
        if row.device == model and row.latency is not None and row.latency.ends == plan.latency.ends
    )


# How an instance runs the model, and so many replicas of that side by side.
_Replicas = tuple[HostedRun, int]


def offers(question: DecisionInput, plan: Plan, *, better: bool = False) -> Iterator[CostRow]:
    """Yield all instances that have the plan's device.

    ``better`` asks, of a plan that uses the GPU, for the better one of those on each instance's own processor:
    which that is differs from machine to machine.

    An instance with several GPUs runs as many replicas, one with more hardware threads than the CPU plan uses
    runs as many as fit; replicas raise the throughput and leave the latency.
    """
    for instance in question.instances:
        if "gpu" not in plan.sides:
            result = _on_cpu(question, plan, instance)
        else:
            result = _on_gpu(question, plan, instance, better=better or plan.name == "hybrid")
        if result is not None and result[0].latency.value > 0:
            yield _row(question, plan, instance, *result)


def _row(question: DecisionInput, plan: Plan, instance: Instance, run: HostedRun, replicas: int) -> CostRow:
    latency = run.latency
    throughput = replicas * question.inferences / latency.value
    usd = usd_per_million(instance.usd_per_hour, throughput, question.utilisation)
    return CostRow(
        provider=instance.provider,
        instance=instance.name,
        gpu=instance.gpu,
        gpu_count=instance.gpu_count,
        usd_per_hour=instance.usd_per_hour,
        price_date=instance.price_date,
        throughput_per_s=throughput,
        usd_per_million=usd,
        meets_slo=latency.keeps(question.limit_s),
        **latency.keys("latency_s"),
        # What is paid are hours: dollars go with the time.
        usd_low_per_million=usd * latency.low / latency.value,
        usd_high_per_million=usd * latency.high / latency.value,
        usd_origin=latency.origin,
        device=question.gpu.slug if instance.gpu and question.gpu is not None else instance.cpu,
        batch=question.batch,
        memory_bytes=plan.memory_bytes,
        pricing=instance.pricing,
        region=instance.region,
        plan=run.plan,
        host=run.host,
        host_basis=run.basis,
    )


def _on_gpu(question: DecisionInput, plan: Plan, instance: Instance, *, better: bool) -> _Replicas | None:
    """With the instance's own processor beside the GPU; slices of a GPU do not have the device."""
    if question.gpu is None or not plan.fits or instance.gpu != question.gpu.slug or instance.gpu_count < 1:
        return None
    if question.gpu_on is not None:
        there = question.gpu_on(instance, "hybrid" if better else "gpu")
        return None if there is None else (there, instance.replicas)
    # What a split keeps on the host has to have room there.
    on_gpu, on_host = question.gpu.memory_bytes, instance.memory_bytes
    if plan.on_cpu and on_gpu and on_host and not fits(plan.memory_bytes, on_gpu + on_host):
        return None
    return HostedRun(plan=plan.name, latency=plan.latency), instance.replicas


def _on_cpu(question: DecisionInput, plan: Plan, instance: Instance) -> _Replicas | None:
    """Return an instance of the question's own CPU, else what can be predicted for its CPU."""
    # An accelerator that is not used would be paid for.
    if instance.gpu is not None or instance.accelerator or not instance.vcpus:
        return None
    # One replica's need: that as many fit as there are cores for is taken for granted.
    if not fits(plan.memory_bytes, instance.memory_bytes or None):
        return None
    replicas = _replicas_on(question, plan, instance)
    if replicas:
        return HostedRun(plan="cpu", latency=plan.latency), replicas
    latency = question.cpu_on(instance) if question.cpu_on is not None else None
    return None if latency is None else (HostedRun(plan="cpu", latency=latency), 1)


def _replicas_on(question: DecisionInput, plan: Plan, instance: Instance) -> int:
    """Return how many copies of the plan run on an instance as on the question's CPU; 0 where none does.

    What was measured holds for that very machine: on a larger one of the same processor other copies share its
    caches and its memory, and what they take there was not measured.
    """
    threads = max(1, question.cpu.threads)
    vcpus = instance.vcpus or 0
    if instance.cpu_nearest or vcpus < threads or instance.cpu != model_of(question.cpu):
        return 0
    if plan.latency.origin != "predicted":
        return int(vcpus == threads)
    return vcpus // threads
