"""Reporting: the view-model of the page: everything its template shows, ready to be printed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from analyzer.record.analysis import Alternative, Analysis, OperatorResult
from analyzer.report import method, operator_columns, summary, training_tables
from analyzer.report.charts import batches, instance_prices, roofline, time_share, timeline
from analyzer.report.charts.chart import Chart, coded, compact
from analyzer.report.charts.families import SHAPES
from analyzer.report.method import MethodFact
from analyzer.report.module_tree import Module, tree
from analyzer.units import byte_count, count, digits, factor, flop_count, seconds

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
        "batches": summary.batches(analysis),
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
        "messages": analysis.environment.messages,
        "alternatives": tuple(_alternative(item) for item in analysis.alternatives),
        "charts": {item.name: item for item in drawn},
        "findings": _findings(analysis),
        "training": training_tables.sheets(analysis),
        "training_statements": training_tables.statements(analysis),
        "has_operators": bool(analysis.operators),
        "groups_known": bool(analysis.groups),
        "method": method.sections(analysis),
        "data": _data(analysis, modules, home, drawn),
    }


def _charts(analysis: Analysis, modules: tuple[Module, ...]) -> tuple[Chart, ...]:
    best = summary.best_plan(analysis)
    drawn = (
        time_share.by_type(analysis),
        time_share.by_module(modules, best.origin if best else ""),
        roofline.chart(analysis),
        *batches.charts(analysis),
        timeline.chart(analysis),
        instance_prices.chart(analysis),
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
        "operators": operator_columns.columns(analysis, home),
        "groups": operator_columns.groups(analysis),
        "edges": operator_columns.edges(analysis),
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


def _facts(analysis: Analysis) -> tuple[MethodFact, ...]:
    """The line under the model's name."""
    model, totals = analysis.model, analysis.totals
    bound = summary.at_least(analysis)
    moved = totals.bytes_read + totals.bytes_written
    fused = None
    if totals.fused_bytes_read is not None and totals.fused_bytes_written is not None:
        fused = totals.fused_bytes_read + totals.fused_bytes_written
    intensity = [digits(value) for value in (totals.intensity, totals.fused_intensity) if value is not None]
    return (
        MethodFact(name="Operators", value=count(totals.operators)),
        MethodFact(name="Parameters", value=f"{count(model.parameters)} ({byte_count(model.parameter_bytes)})"),
        MethodFact(name="Work", value=f"{bound}{flop_count(totals.flops)}"),
        MethodFact(
            name="Memory traffic",
            value=f"{bound}{byte_count(moved)}" + ("" if fused is None else f", {byte_count(fused)} fused"),
        ),
        MethodFact(
            name="FLOPs per byte", value=" unfused, ".join(intensity) + (" fused" if len(intensity) > 1 else "")
        ),
        MethodFact(
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
