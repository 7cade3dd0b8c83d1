"""Reporting: what the records of a comparison say side by side: facts, figures, environment, notes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Literal

from analyzer.checks.placement import copies_inside
from analyzer.record.analysis import Analysis, PlanResult, TransferItem
from analyzer.record.batch_axis import has_batch
from analyzer.report.compare import capacity, generation
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
        fact("model.batch", "batch", _batch),
        fact("model.precision", "precision", lambda one: one.model.precision),
        fact("model.training", "runs", _runs),
        *capacity.facts(analyses),
        *generation.facts(analyses),
        fact("devices.cpu", "CPU", lambda one: one.devices.cpu.name),
        fact("devices.gpu", "GPU", lambda one: one.devices.gpu.name if one.devices.gpu else "none"),
        fact("verdict.objective", "decided for", lambda one: one.verdict.objective),
        fact("verdict.device", "verdict", lambda one: one.verdict.device or "none"),
    )


def _batch(analysis: Analysis) -> object:
    if not has_batch(analysis):
        return "none"
    return UNKNOWN if analysis.model.batch is None else analysis.model.batch


def _runs(analysis: Analysis) -> str:
    if analysis.generation is not None:
        return "generation"
    return "training step" if analysis.model.training else "inference"


def environment(analyses: Sequence[Analysis]) -> tuple[ComparedFact, ...]:
    """Versions, machines and how was measured; what no record knows is left out."""
    named: list[tuple[str, str, Callable[[Analysis], object]]] = [
        ("tool.version", "analyze", lambda one: one.tool.version),
        ("environment.platform", "system", lambda one: one.environment.platform),
        ("environment.cpu", "processor", lambda one: one.environment.cpu),
        ("environment.threads", "threads", lambda one: one.environment.threads),
        ("environment.warmup_runs", "warm-up runs", lambda one: one.environment.warmup_runs),
        ("environment.runs", "runs", lambda one: one.environment.runs),
        ("onnxruntime", "placed by ONNX Runtime", lambda one: one.onnxruntime),
        ("model.exporter", "exporter", lambda one: one.model.exporter),
        ("devices.cpu.origin", "CPU's figures", lambda one: one.devices.cpu.origin),
        ("environment.date", "date", lambda one: one.environment.date),
    ]
    facts = [
        ComparedFact(key=key, label=label, values=tuple(_known(read(one)) for one in analyses))
        for key, label, read in named
    ]
    # The program's own version has a row already.
    for name in sorted({name for one in analyses for name in one.environment.versions} - {"analyzer"}):
        values = tuple(one.environment.versions.get(name, UNKNOWN) for one in analyses)
        facts.append(ComparedFact(key=f"environment.versions.{name}", label=name, values=values))
    return tuple(fact for fact in facts if set(fact.values) != {UNKNOWN})


def _known(value: object) -> str:
    return UNKNOWN if value is None or value == "" else str(value)


def figures(analyses: Sequence[Analysis]) -> tuple[ComparedFigure, ...]:
    """Plans, verdict and work; a figure that no record knows is left out."""
    compared = [*capacity.figures(analyses), *generation.figures(analyses)]
    compared += [figure for name in PLANS for figure in _plan(name, analyses)]

    def figure(
        key: str,
        label: str,
        unit: str,
        read: Callable[[Analysis], float | None],
        better: Literal["less", "more", ""] = "",
    ) -> None:
        values = tuple(read(one) for one in analyses)
        compared.append(ComparedFigure(key=key, label=label, unit=unit, values=values, better=better))

    compared.append(_speedup(analyses))
    # Neither more nor less is better: it says where the question tips, not how fast anything is.
    figure("verdict.crossover_batch", "GPU wins from batch", "", lambda one: one.verdict.crossover_batch)
    figure("copies", "copies inside the graph", "", lambda one: _inside(one, len), "less")
    figure("copy_bytes", "bytes of these copies", "B", lambda one: _inside(one, _bytes_of), "less")
    # Less work is no gain by itself: another model, precision or batch may be what was wanted.
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
    return tuple(each for each in compared if any(value is not None for value in each.values))


def worth_a_row(figure: ComparedFigure) -> bool:
    """Whether a table for people needs it: the bytes of no copies at all are none."""
    return figure.key != "copy_bytes" or any(figure.values)


def _inside(analysis: Analysis, read: Callable[[tuple[TransferItem, ...]], float]) -> float | None:
    # Without a CUDA session there is no graph to copy inside of: not known, and not 0.
    return None if analysis.plan("gpu") is None else read(copies_inside(analysis))


def _bytes_of(copies: tuple[TransferItem, ...]) -> int:
    return sum(copy.bytes or 0 for copy in copies)


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

    def with_interval(figure: ComparedFigure, end: str, origin: str) -> ComparedFigure:
        """With its own interval and origin, where any record tells them."""
        if not any(plan is not None and getattr(plan, origin) for plan in plans):
            return figure
        return replace(
            figure,
            origins=tuple("" if plan is None else getattr(plan, origin) for plan in plans),
            low=tuple(None if plan is None else getattr(plan, end.format("low")) for plan in plans),
            high=tuple(None if plan is None else getattr(plan, end.format("high")) for plan in plans),
        )

    return (
        _latency(name, plans, same_batch=len({one.model.batch for one in analyses}) == 1),
        _throughput(name, plans),
        figure("memory_bytes", "memory", "B", "less"),
        with_interval(
            figure("usd_per_million", "dollars per million", "$", "less"), "usd_{}_per_million", "usd_origin"
        ),
        with_interval(figure("energy_j", "energy for each", "J", "less"), "energy_{}_j", "energy_origin"),
    )


def _latency(name: str, plans: Sequence[PlanResult | None], *, same_batch: bool) -> ComparedFigure:
    """Of different batches no latency is better than another: there is more work in the one."""
    # Two closed intervals overlap where each begins before the other ends.
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
    def at_latency(plan: PlanResult | None, end: str) -> float | None:
        latency_s = None if plan is None else getattr(plan, end)
        if plan is None or not latency_s:
            return None
        # Throughput times latency is the batch, which the record may not know by itself.
        end_per_s = plan.throughput_per_s * plan.latency_s / latency_s
        return end_per_s if math.isfinite(end_per_s) else None  # of a foreign record, whose interval has no end

    low = tuple(at_latency(plan, "high_s") for plan in plans)
    high = tuple(at_latency(plan, "low_s") for plan in plans)
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
    sentences = []
    if any(one.model.name != base.model.name for one in analyses):
        sentences.append(
            "the records are of different models; operators are matched where module path and type agree"
        )
    if any(one.model.batch != base.model.batch for one in analyses):
        sentences.append(
            "the batches differ: a latency is that of a whole batch, so compare throughput, dollars and "
            "energy; operators' times are those of one inference"
        )
    if any(one.model.precision != base.model.precision for one in analyses):
        sentences.append("the precisions differ: the records may not compute the same numbers")
    # Of the CPU's plan alone, which is measured or predicted as a whole; the table tells each figure's origin.
    origins = {plan.origin for one in analyses for plan in one.plans if plan.name == "cpu"}
    if len(origins) > 1:
        sentences.append(f"CPU times are {' in one record and '.join(sorted(origins))} in another")
    return (*sentences, *generation.notes(analyses), *capacity.notes(analyses))
