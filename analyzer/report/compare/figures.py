"""Reporting: what the records of a comparison say side by side: facts, figures, environment, notes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

from analyzer.checks.placement import copies_inside
from analyzer.record.analysis import Analysis, TransferItem
from analyzer.record.batch_axis import has_batch
from analyzer.report.compare import capacity, generation
from analyzer.report.compare.comparison import (
    Better,
    ComparedFact,
    ComparedFigure,
    compared,
    facts_of,
    known,
)
from analyzer.units import UNKNOWN

PLANS = {"cpu": "on the CPU", "gpu": "on the GPU", "hybrid": "of the best plan"}


def facts(analyses: Sequence[Analysis]) -> tuple[ComparedFact, ...]:
    """What was asked and answered."""
    model: Sequence[tuple[str, str, Callable[[Analysis], object]]] = (
        ("model.name", "model", lambda one: one.model.name),
        ("model.opset", "opset", lambda one: one.model.opset),
        ("model.batch", "batch", _batch),
        ("model.precision", "precision", lambda one: one.model.precision),
        ("model.training", "runs", _runs),
    )
    devices: Sequence[tuple[str, str, Callable[[Analysis], object]]] = (
        ("devices.cpu", "CPU", lambda one: one.devices.cpu.name),
        ("devices.gpu", "GPU", lambda one: one.devices.gpu.name if one.devices.gpu else "none"),
        ("verdict.objective", "decided for", lambda one: one.verdict.objective),
        ("verdict.device", "verdict", lambda one: one.verdict.device or "none"),
    )
    services = (*capacity.facts(analyses), *generation.facts(analyses))
    return (*facts_of("", analyses, model), *services, *facts_of("", analyses, devices))


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
    facts = [*facts_of("", analyses, [(key, label, _known(read)) for key, label, read in named])]
    # The program's own version has a row already.
    for name in sorted({name for one in analyses for name in one.environment.versions} - {"analyzer"}):
        values = tuple(one.environment.versions.get(name, UNKNOWN) for one in analyses)
        facts.append(ComparedFact(key=f"environment.versions.{name}", label=name, values=values))
    return tuple(fact for fact in facts if set(fact.values) != {UNKNOWN})


def _known(read: Callable[[Analysis], object]) -> Callable[[Analysis], object]:
    return lambda one: UNKNOWN if (value := read(one)) is None or value == "" else value


def figures(analyses: Sequence[Analysis]) -> tuple[ComparedFigure, ...]:
    """Plans, verdict and work; a figure that no record knows is left out."""
    compared_figures = [*capacity.figures(analyses), *generation.figures(analyses)]
    compared_figures += [figure for name in PLANS for figure in _plan(name, analyses)]

    def figure(
        key: str,
        label: str,
        unit: str,
        read: Callable[[Analysis], float | None],
        better: Literal["less", "more", ""] = "",
    ) -> None:
        values = tuple(read(one) for one in analyses)
        compared_figures.append(ComparedFigure(key=key, label=label, unit=unit, values=values, better=better))

    verdicts = [one.verdict for one in analyses]
    compared_figures.append(
        compared("verdict.speedup", "speed-up of the GPU", "x", verdicts, ends="{}", overlaps=False)
    )
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
    return known(compared_figures)


def worth_a_row(figure: ComparedFigure) -> bool:
    """Whether a table for people needs it: the bytes of no copies at all are none."""
    return figure.key != "copy_bytes" or any(figure.values)


def _inside(analysis: Analysis, read: Callable[[tuple[TransferItem, ...]], float]) -> float | None:
    # Without a CUDA session there is no graph to copy inside of: not known, and not 0.
    return None if analysis.plan("gpu") is None else read(copies_inside(analysis))


def _bytes_of(copies: tuple[TransferItem, ...]) -> int:
    return sum(copy.bytes or 0 for copy in copies)


def _plan(name: str, analyses: Sequence[Analysis]) -> tuple[ComparedFigure, ...]:
    """One plan's latency, throughput, memory, dollars and joules.

    Dollars and joules have intervals of their own: they may be of another machine, or of parts of different
    power. Of different batches no latency is better than another: there is more work in the one.
    """
    plans = [analysis.plan(name) for analysis in analyses]
    latency: Better = "less" if len({one.model.batch for one in analyses}) == 1 else ""
    named: tuple[tuple[str, str, str, Better, str, str, str], ...] = (
        ("latency_s", "latency", "s", latency, "{}_s", "", "origin"),
        ("throughput_per_s", "throughput", "/s", "more", "{}_s", "latency_s", "origin"),
        ("memory_bytes", "memory", "B", "less", "", "", ""),
        ("usd_per_million", "dollars per million", "$", "less", "usd_{}_per_million", "", "usd_origin"),
        ("energy_j", "energy for each", "J", "less", "energy_{}_j", "", "energy_origin"),
    )
    # Without a price or a power there is neither interval nor origin.
    known_origins = {
        row[-1] for row in named if row[-1] and any(plan and getattr(plan, row[-1]) for plan in plans)
    }
    return tuple(
        compared(
            f"plans.{name}.{field}",
            f"{label} {PLANS[name]}",
            unit,
            plans,
            better=better,
            ends=ends if origin in known_origins else "",
            time=time,
            origin=origin if origin in known_origins else "",
            overlaps=field == "latency_s",
        )
        for field, label, unit, better, ends, time, origin in named
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
