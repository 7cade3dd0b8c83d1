"""Reporting: the view-model of the page: everything its template shows, ready to be printed."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

from analyzer.analysis import Alternative, Analysis, DeviceInfo, OperatorResult
from analyzer.report import operators, summary, training
from analyzer.report.charts import batches, money, roofline, timeline, where
from analyzer.report.charts.chart import Chart, coded, compact
from analyzer.report.charts.families import SHAPES
from analyzer.report.modules import Module, tree
from analyzer.units import byte_count, count, digits, factor, flop_count, rate, seconds, share

_SEVERITIES = ("error", "warning", "note")


@dataclass(frozen=True, slots=True, kw_only=True)
class FindingView:
    """A finding with the operator it is about in words."""

    code: str
    severity: str
    message: str
    fix: str
    index: int | None
    subject: str
    where: str
    code_line: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """A named figure or statement of the method."""

    name: str
    value: str


def build(analysis: Analysis) -> dict[str, Any]:
    """What the template is given; strings are plain text, to be escaped there."""
    modules, home = tree(analysis)
    drawn = _charts(analysis, modules)
    return {
        "title": analysis.model.name,
        "tool": analysis.tool,
        "model": analysis.model,
        "facts": _facts(analysis),
        "sentence": summary.sentence(analysis),
        "confidence": summary.confidence(analysis),
        "subject": summary.subject(analysis),
        "crossover": summary.crossover(analysis),
        "verdict": analysis.verdict,
        "no_room": bool(analysis.plans) and not any(plan.fits for plan in analysis.plans),
        "verdict_word": summary.VERDICT_WORDS[analysis.verdict.device]
        if analysis.operators
        else "Nothing to decide",
        "because": summary.reasons(analysis),
        "would_change": analysis.verdict.would_change,
        "plans": summary.plan_cards(analysis),
        "top": summary.top_operators(analysis),
        "marks": tuple(summary.MARKS.values()),
        "missing": summary.missing(analysis),
        "alternatives": tuple(_alternative(item) for item in analysis.alternatives),
        "charts": {item.name: item for item in drawn},
        "findings": _findings(analysis),
        "training": training.sheets(analysis),
        "training_statements": training.statements(analysis),
        "has_operators": bool(analysis.operators),
        "groups_known": bool(analysis.groups),
        "method": _method(analysis),
        "data": _data(analysis, modules, home, drawn),
    }


def _charts(analysis: Analysis, modules: tuple[Module, ...]) -> tuple[Chart, ...]:
    best = analysis.plan("hybrid") or analysis.plan("gpu") or analysis.plan("cpu")
    drawn = (
        where.by_type(analysis),
        where.by_module(modules, best.origin if best else ""),
        roofline.chart(analysis),
        *batches.charts(analysis),
        timeline.chart(analysis),
        money.chart(analysis),
    )
    return tuple(item for item in drawn if item is not None)


def _data(
    analysis: Analysis, modules: tuple[Module, ...], home: tuple[int, ...], drawn: tuple[Chart, ...]
) -> dict[str, Any]:
    """What the page's script reads."""
    return {
        "name": analysis.model.name,
        "shapes": SHAPES,
        "charts": {item.name: item.payload() for item in drawn},
        "operators": operators.columns(analysis, home),
        "groups": operators.groups(analysis),
        "edges": operators.edges(analysis),
        "modules": {
            "name": coded(item.name for item in modules),
            "path": [item.path for item in modules],
            "class": coded(item.class_name for item in modules),
            "parent": [item.parent for item in modules],
            "operators": [item.operators for item in modules],
            "on_gpu": [item.on_gpu for item in modules],
            "unknown": [item.unknown for item in modules],
            **{
                name: [compact(item.total[name]) for item in modules]
                for name in ("best", "cpu", "gpu", "flops", "bytes")
            },
        },
        "has_gpu": analysis.devices.gpu is not None,
        "marks": {mark.name: mark.sign for mark in summary.MARKS.values()},
    }


def _facts(analysis: Analysis) -> tuple[Fact, ...]:
    """The line under the model's name."""
    model, totals = analysis.model, analysis.totals
    bound = summary.at_least(analysis)
    moved = totals.bytes_read + totals.bytes_written
    fused = None
    if totals.fused_bytes_read is not None and totals.fused_bytes_written is not None:
        fused = totals.fused_bytes_read + totals.fused_bytes_written
    intensity = [digits(value) for value in (totals.intensity, totals.fused_intensity) if value is not None]
    return (
        Fact(name="Operators", value=count(totals.operators)),
        Fact(name="Parameters", value=f"{count(model.parameters)} ({byte_count(model.parameter_bytes)})"),
        Fact(name="Work", value=f"{bound}{flop_count(totals.flops)}"),
        Fact(
            name="Memory traffic",
            value=f"{bound}{byte_count(moved)}" + ("" if fused is None else f", {byte_count(fused)} fused"),
        ),
        Fact(
            name="FLOPs per byte", value=" unfused, ".join(intensity) + (" fused" if len(intensity) > 1 else "")
        ),
        Fact(
            name="Peak memory" if model.training else "Peak activations",
            value=byte_count(totals.peak_memory_bytes),
        ),
    )


def _findings(analysis: Analysis) -> tuple[FindingView, ...]:
    ranked = sorted(
        enumerate(analysis.findings), key=lambda pair: (_SEVERITIES.index(pair[1].severity), pair[0])
    )
    views = []
    for _, item in ranked:
        about = _operator(analysis, item.operator)
        source = about.source if about else None
        views.append(
            FindingView(
                code=item.code,
                severity=item.severity,
                message=item.message,
                fix=item.fix,
                index=about.index if about else None,
                subject=f"{about.op_type} #{about.index} {about.module}".strip() if about else "",
                where=f"{source.file}:{source.line}" if source else "",
                code_line=source.code if source else "",
            )
        )
    return tuple(views)


def _operator(analysis: Analysis, index: int | None) -> OperatorResult | None:
    return None if index is None or index >= len(analysis.operators) else analysis.operators[index]


def _alternative(item: Alternative) -> dict[str, str]:
    gpu = next((plan for plan in item.plans if plan.name == "gpu"), None)
    best = next((plan for plan in item.plans if plan.name == "hybrid"), gpu)
    return {
        "device": item.device.name,
        "verdict": summary.VERDICT_WORDS[item.verdict.device],
        "speedup": factor(item.verdict.speedup),
        "interval": f"{factor(item.verdict.low)} to {factor(item.verdict.high)}",
        "gpu": seconds(gpu.latency_s) if gpu else "–",
        "best": seconds(best.latency_s) if best else "–",
        "origin": gpu.origin if gpu else "",
        "crossover": count(item.verdict.crossover_batch),
    }


def _method(analysis: Analysis) -> tuple[tuple[str, tuple[Fact, ...]], ...]:
    """Everything a reviewer needs to repeat the analysis, in sections of facts."""
    sections = (
        ("Model", _model_facts(analysis)),
        ("Conventions", tuple(_flatten(analysis.conventions))),
        ("Devices", _device_facts(analysis)),
        ("Coverage", _coverage_facts(analysis)),
        ("Measurement", _measurement_facts(analysis)),
        (
            "Versions",
            tuple(Fact(name=name, value=text) for name, text in sorted(analysis.environment.versions.items())),
        ),
        ("Messages", tuple(Fact(name="", value=text) for text in analysis.environment.messages)),
    )
    return tuple((title, facts) for title, facts in sections if facts)


def _model_facts(analysis: Analysis) -> tuple[Fact, ...]:
    model = analysis.model
    facts = [
        Fact(name="Source", value=model.source),
        Fact(name="Digest", value=model.digest),
        Fact(name="Opset", value=str(model.opset)),
        Fact(name="Exporter", value=model.exporter),
        Fact(name="Export from cache", value="yes" if analysis.environment.export_cached else "no"),
        Fact(name="Precision decided for", value=model.precision),
        Fact(name="Inputs come from", value=model.inputs_origin),
    ]
    facts += [Fact(name=f"Input {item.name}", value=operators.shape(item)) for item in model.inputs]
    facts += [Fact(name=f"Output {item.name}", value=operators.shape(item)) for item in model.outputs]
    facts += [Fact(name="Note", value=note) for note in model.notes]
    return tuple(fact for fact in facts if fact.value)


def _device_facts(analysis: Analysis) -> tuple[Fact, ...]:
    devices = [analysis.devices.cpu, *([analysis.devices.gpu] if analysis.devices.gpu else [])]
    devices += [item.device for item in analysis.alternatives]
    return tuple(fact for device in devices for fact in _device(device))


def _device(device: DeviceInfo) -> list[Fact]:
    peaks = ", ".join(f"{dtype} {rate(value, 'FLOP')}" for dtype, value in device.peak_flops_per_s.items())
    link = f"; {device.link}, {rate(device.link_bytes_per_s, 'B')}" if device.link else ""
    memory = f"; {byte_count(device.memory_bytes)}" if device.memory_bytes else ""
    facts = [
        Fact(name=device.name, value=f"{peaks}; {rate(device.bandwidth_bytes_per_s, 'B')}{memory}{link}"),
        Fact(name="", value=f"{device.origin}: {device.source}"),
    ]
    return facts + ([Fact(name="", value=device.notes)] if device.notes else [])


def _coverage_facts(analysis: Analysis) -> tuple[Fact, ...]:
    facts = []
    for name, coverage in (
        ("Of the operators", analysis.totals.coverage),
        ("Of the time", analysis.totals.coverage_time),
    ):
        if coverage is not None:
            parts = [f"{share(getattr(coverage, basis))} {basis}" for basis in ("exact", "modelled", "unknown")]
            facts.append(Fact(name=name, value=", ".join(parts)))
    for side in ("cpu", "gpu"):
        times = [item.cpu if side == "cpu" else item.gpu for item in analysis.operators]
        tally = Counter(time.origin for time in times if time is not None and time.time_s is not None)
        if tally:
            said = ", ".join(f"{number} {origin}" for origin, number in sorted(tally.items()))
            facts.append(Fact(name=f"Operator times on the {side.upper()}", value=said))
    return tuple(facts)


def _measurement_facts(analysis: Analysis) -> tuple[Fact, ...]:
    env = analysis.environment
    named = (
        ("Date", env.date),
        ("Machine", env.platform),
        ("Processor", env.cpu),
        ("Threads", _plain(env.threads)),
        ("Warm-up runs", _plain(env.warmup_runs)),
        ("Runs", _plain(env.runs)),
        (
            "Load before and after",
            " and ".join(filter(None, (_plain(env.load_before), _plain(env.load_after)))),
        ),
        *((f"Time for {name}", seconds(value)) for name, value in env.timings_s.items()),
    )
    facts = [Fact(name=name, value=text) for name, text in named if text]
    return (*facts, *_flatten(env.measurement))


def _plain(value: float | None) -> str:
    if value is None:
        return ""
    return str(value) if isinstance(value, int) else digits(value)


def _flatten(values: Any, prefix: str = "") -> list[Fact]:
    """Nested mappings as dotted names."""
    facts: list[Fact] = []
    for name, value in values.items():
        title = f"{prefix}{str(name).replace('_', ' ')}"
        if hasattr(value, "items"):
            facts += _flatten(value, f"{title}: ")
        elif isinstance(value, list | tuple):
            facts.append(Fact(name=title, value=", ".join(str(part) for part in value)))
        elif value is not None:
            facts.append(Fact(name=title, value=digits(value) if isinstance(value, float) else str(value)))
    return facts
