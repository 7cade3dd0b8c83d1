"""Reporting: what the records of a comparison say side by side: facts, figures, environment, notes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Literal

from analyzer.checks.placement import copies_inside
from analyzer.record.analysis import Analysis, PlanResult
from analyzer.report.compare.comparison import ComparedFact, ComparedFigure
from analyzer.units import UNKNOWN

PLANS = {"cpu": "on the CPU", "gpu": "on the GPU", "hybrid": "of the best plan"}


def facts(analyses: Sequence[Analysis]) -> tuple[ComparedFact, ...]:
    """What was asked and answered."""

    def fact(key: str, label: str, read: Callable[[Analysis], object]) -> ComparedFact:
        return ComparedFact(key=key, label=label, values=tuple(str(read(one)) for one in analyses))

    return (
        fact("model.name", "model", lambda one: one.model.name),
        fact("model.opset", "opset", lambda one: one.model.opset),
        fact("model.batch", "batch", lambda one: UNKNOWN if one.model.batch is None else one.model.batch),
        fact("model.precision", "precision", lambda one: one.model.precision),
        fact("model.training", "runs", lambda one: "training step" if one.model.training else "inference"),
        fact("devices.cpu", "CPU", lambda one: one.devices.cpu.name),
        fact("devices.gpu", "GPU", lambda one: one.devices.gpu.name if one.devices.gpu else "none"),
        fact("verdict.objective", "decided for", lambda one: one.verdict.objective),
        fact("verdict.device", "verdict", lambda one: one.verdict.device),
    )


def environment(analyses: Sequence[Analysis]) -> tuple[ComparedFact, ...]:
    """Versions, machines and how was measured; what no record knows is left out."""
    named: list[tuple[str, str, Callable[[Analysis], object]]] = [
        ("tool.version", "analyze", lambda one: one.tool.version),
        ("environment.platform", "system", lambda one: one.environment.platform),
        ("environment.cpu", "processor", lambda one: one.environment.cpu),
        ("environment.threads", "threads", lambda one: one.environment.threads),
        ("environment.warmup_runs", "warm-up runs", lambda one: one.environment.warmup_runs),
        ("environment.runs", "runs", lambda one: one.environment.runs),
        ("model.exporter", "exporter", lambda one: one.model.exporter),
        ("devices.cpu.origin", "CPU's figures", lambda one: one.devices.cpu.origin),
        ("environment.date", "date", lambda one: one.environment.date),
    ]
    found = [
        ComparedFact(key=key, label=label, values=tuple(_word(read(one)) for one in analyses))
        for key, label, read in named
    ]
    # The program's own version has a row already.
    for name in sorted({name for one in analyses for name in one.environment.versions} - {"analyzer"}):
        values = tuple(one.environment.versions.get(name, UNKNOWN) for one in analyses)
        found.append(ComparedFact(key=f"environment.versions.{name}", label=name, values=values))
    return tuple(fact for fact in found if set(fact.values) != {UNKNOWN})


def _word(value: object) -> str:
    return UNKNOWN if value is None or value == "" else str(value)


def figures(analyses: Sequence[Analysis]) -> tuple[ComparedFigure, ...]:
    """Plans, verdict and work; a figure that no record knows is left out."""
    found = [figure for name in PLANS for figure in _plan(name, analyses)]

    def figure(
        key: str,
        label: str,
        unit: str,
        read: Callable[[Analysis], float | None],
        better: Literal["less", "more", ""] = "",
    ) -> None:
        values = tuple(read(one) for one in analyses)
        found.append(ComparedFigure(key=key, label=label, unit=unit, values=values, better=better))

    found.append(_speedup(analyses))
    figure("verdict.crossover_batch", "GPU wins from batch", "", lambda one: one.verdict.crossover_batch)
    figure("copies", "copies inside the graph", "", lambda one: _inside(one, len), "less")
    figure("copy_bytes", "bytes of these copies", "B", lambda one: _inside(one, _bytes_of), "less")
    figure("totals.flops", "FLOPs", "FLOP", lambda one: one.totals.flops)
    figure("totals.bytes", "bytes moved", "B", lambda one: one.totals.bytes_read + one.totals.bytes_written)
    figure(
        "totals.peak_memory_bytes",
        "peak of activations",
        "B",
        lambda one: one.totals.peak_memory_bytes,
        "less",
    )
    figure("model.parameter_bytes", "weights", "B", lambda one: one.model.parameter_bytes)
    figure("totals.operators", "operators", "", lambda one: one.totals.operators)
    figure("findings", "findings", "", lambda one: len(one.findings), "less")
    return tuple(item for item in found if any(value is not None for value in item.values))


def worth_a_row(figure: ComparedFigure) -> bool:
    """Whether a table for people needs it: the bytes of no copies at all are none."""
    return figure.key != "copy_bytes" or any(figure.values)


def _inside(analysis: Analysis, read: Callable[[tuple[object, ...]], float]) -> float | None:
    return None if analysis.plan("gpu") is None else read(copies_inside(analysis))


def _bytes_of(items: tuple[object, ...]) -> int:
    return sum(getattr(item, "bytes", 0) for item in items)


def _speedup(analyses: Sequence[Analysis]) -> ComparedFigure:
    return ComparedFigure(
        key="verdict.speedup",
        label="speed-up of the GPU",
        unit="x",
        values=tuple(one.verdict.speedup for one in analyses),
        low=tuple(one.verdict.low for one in analyses),
        high=tuple(one.verdict.high for one in analyses),
    )


def _plan(name: str, analyses: Sequence[Analysis]) -> tuple[ComparedFigure, ...]:
    """One plan's latency, throughput, memory, dollars and joules.

    A throughput is inferences over the latency, so its interval is the latency's turned over. Dollars and
    joules have their own: they may stand for another machine, or for parts of different power.
    """
    plans = [analysis.plan(name) for analysis in analyses]
    key, where = f"plans.{name}", PLANS[name]

    def figure(field: str, label: str, unit: str, better: Literal["less", "more"]) -> ComparedFigure:
        values = tuple(None if plan is None else getattr(plan, field) for plan in plans)
        return ComparedFigure(
            key=f"{key}.{field}", label=f"{label} {where}", unit=unit, values=values, better=better
        )

    def own(item: ComparedFigure, end: str, origin: str) -> ComparedFigure:
        """With its own interval and origin, where any record tells them."""
        if not any(plan is not None and getattr(plan, origin) for plan in plans):
            return item
        return replace(
            item,
            origins=tuple("" if plan is None else getattr(plan, origin) for plan in plans),
            low=tuple(None if plan is None else getattr(plan, end.format("low")) for plan in plans),
            high=tuple(None if plan is None else getattr(plan, end.format("high")) for plan in plans),
        )

    return (
        _latency(name, plans, same_batch=len({one.model.batch for one in analyses}) == 1),
        _throughput(name, plans),
        figure("memory_bytes", "memory", "B", "less"),
        own(figure("usd_per_million", "dollars per million", "$", "less"), "usd_{}_per_million", "usd_origin"),
        own(figure("energy_j", "energy for each", "J", "less"), "energy_{}_j", "energy_origin"),
    )


def _latency(name: str, plans: Sequence[PlanResult | None], *, same_batch: bool) -> ComparedFigure:
    """Of different batches no latency is better than another: there is more work in the one."""
    base = plans[0]
    overlap = tuple(
        None if plan is None or base is None else plan.low_s <= base.high_s and base.low_s <= plan.high_s
        for plan in plans
    )
    return ComparedFigure(
        key=f"plans.{name}.latency_s",
        label=f"latency {PLANS[name]}",
        unit="s",
        values=tuple(None if plan is None else plan.latency_s for plan in plans),
        origins=tuple("" if plan is None else plan.origin for plan in plans),
        overlap=overlap,
        low=tuple(None if plan is None else plan.low_s for plan in plans),
        high=tuple(None if plan is None else plan.high_s for plan in plans),
        better="less" if same_batch else "",
    )


def _throughput(name: str, plans: Sequence[PlanResult | None]) -> ComparedFigure:
    def turned(plan: PlanResult | None, end: str) -> float | None:
        bound = None if plan is None else getattr(plan, end)
        return None if plan is None or not bound else plan.throughput_per_s * plan.latency_s / bound

    low = tuple(turned(plan, "high_s") for plan in plans)
    high = tuple(turned(plan, "low_s") for plan in plans)
    return ComparedFigure(
        key=f"plans.{name}.throughput_per_s",
        label=f"throughput {PLANS[name]}",
        unit="/s",
        values=tuple(None if plan is None else plan.throughput_per_s for plan in plans),
        origins=tuple("" if plan is None else plan.origin for plan in plans),
        low=low,
        high=high,
        better="more",
    )


def notes(analyses: Sequence[Analysis]) -> tuple[str, ...]:
    """What a reader must know before comparing."""
    base = analyses[0]
    found = []
    if any(one.model.name != base.model.name for one in analyses):
        found.append(
            "the records are of different models; operators are matched where module path and type agree"
        )
    if any(one.model.batch != base.model.batch for one in analyses):
        found.append(
            "the batches differ: a latency is that of a whole batch, so compare throughput, dollars and "
            "energy; operators' times are those of one inference"
        )
    if any(one.model.precision != base.model.precision for one in analyses):
        found.append("the precisions differ: the records may not compute the same numbers")
    origins = {plan.origin for one in analyses for plan in one.plans if plan.name == "cpu"}
    if len(origins) > 1:
        found.append(f"CPU times are {' in one record and '.join(sorted(origins))} in another")
    return tuple(found)
