"""Reporting: the view-model of the page: everything its template shows, ready to be printed."""

from __future__ import annotations

from typing import Any

from analyzer.checks.phrases import source_location
from analyzer.record.analysis import Alternative, Analysis, Finding
from analyzer.report import (
    brief,
    capacity_page,
    generation_page,
    graph_boxes,
    method,
    operator_columns,
    precision_rows,
    price_words,
    training_tables,
)
from analyzer.report.charts import batches, caption, instances, roofline, time_share, timeline
from analyzer.report.charts.chart import Chart, coded, compact, steps, vega_config
from analyzer.report.findings_text import by_severity, operator_of
from analyzer.report.method import Fact
from analyzer.report.module_tree import Module, tree
from analyzer.report.ranking import table as ranking_table
from analyzer.report.ranking import words as ranking_words
from analyzer.report.summary import figure_words, leading_operators, model_facts, plan_cards, verdict_words
from analyzer.units import UNKNOWN, byte_count, count, digits, factor, flop_count, seconds


def build(analysis: Analysis) -> dict[str, Any]:
    """What the template is given; strings are plain text, to be escaped there."""
    modules, module_of_operator = tree(analysis)
    charts = _charts(analysis, modules)
    return {
        "title": analysis.model.name,
        "tool": analysis.tool,
        "model": analysis.model,
        "facts": _facts(analysis),
        "sentence": ranking_words.sentence(analysis),
        "beside": ranking_words.beside(analysis),
        "side": ranking_words.side(analysis),
        "ranked_word": ranking_words.word(analysis) if ranking_words.leads(analysis) else "",
        "why_of": ranking_words.about_first(analysis),
        "ranking": ranking_table.sheet(analysis),
        "best_by": ranking_table.best_by(analysis),
        "errors": verdict_words.errors(analysis),
        "error_count": sum(finding.severity == "error" for finding in analysis.findings),
        "confidence": verdict_words.confidence(analysis),
        "open_sizes": model_facts.open_sizes(analysis),
        "decided_sizes": model_facts.decided_sizes(analysis),
        "guessed_inputs": model_facts.guessed_inputs(analysis),
        "assumed": model_facts.assumed(analysis),
        "state": model_facts.state(analysis),
        "prices": price_words.statement(analysis),
        "subject": verdict_words.subject(analysis),
        "crossover": verdict_words.crossover(analysis),
        "batches": verdict_words.batches(analysis),
        "verdict": analysis.verdict,
        "no_room": bool(analysis.plans) and not any(plan.fits for plan in analysis.plans),
        "verdict_word": ranking_words.word(analysis) if analysis.operators else "Nothing to decide",
        "because": verdict_words.reasons(analysis),
        "would_change": analysis.verdict.would_change,
        "plans": ranking_words.distinct_cards(analysis),
        "top": leading_operators.top_operators(analysis),
        "top_title": leading_operators.top_title(leading_operators.top_operators(analysis), analysis),
        "marks": tuple(figure_words.MARKS.values()),
        "missing": model_facts.missing(analysis),
        "messages": analysis.environment.messages,
        "alternatives": tuple(_alternative(alternative) for alternative in analysis.alternatives),
        "charts": {chart.name: chart for chart in charts},
        "findings": tuple(_finding(finding, analysis) for finding in by_severity(analysis.findings)),
        "precisions": precision_rows.rows(analysis),
        "precision_title": precision_rows.TITLE,
        "precision_lead": precision_rows.LEAD,
        "precision_head": precision_rows.HEAD,
        "training": training_tables.sheets(analysis),
        "training_statements": training_tables.statements(analysis),
        "generation": generation_page.view(analysis),
        "capacity": capacity_page.view(analysis),
        "has_operators": bool(analysis.operators),
        "groups_known": bool(analysis.groups),
        "method": method.sections(analysis),
        "data": _data(analysis, modules, module_of_operator, charts),
    }


def charts_of(analysis: Analysis) -> tuple[Chart, ...]:
    """The page's charts, in their order."""
    return _charts(analysis, tree(analysis)[0])


def _charts(analysis: Analysis, modules: tuple[Module, ...]) -> tuple[Chart, ...]:
    best = plan_cards.best_plan(analysis)
    charts = (
        time_share.by_type(analysis),
        time_share.by_module(modules, best.origin if best else ""),
        roofline.chart(analysis),
        *batches.charts(analysis),
        timeline.chart(analysis),
        instances.chart(analysis),
        *generation_page.charts(analysis),
        *capacity_page.charts(analysis),
    )
    # One that has nothing to show is not there, and neither are its section and its link.
    return tuple(chart for chart in charts if chart is not None)


def _data(
    analysis: Analysis,
    modules: tuple[Module, ...],
    module_of_operator: tuple[int, ...],
    charts: tuple[Chart, ...],
) -> dict[str, Any]:
    """What the page's script reads."""
    return {
        "name": analysis.model.name,
        "brief": brief.render(analysis),
        "style": vega_config(),
        "captions": {chart.name: _picture_words(analysis, chart) for chart in charts},
        "charts": {chart.name: chart.payload() for chart in charts},
        "operators": operator_columns.columns(analysis, module_of_operator),
        "groups": operator_columns.groups(analysis),
        "edges": operator_columns.edges(analysis),
        "modules": {
            "name": coded(module.name for module in modules),
            "path": [module.path for module in modules],
            "class": coded(module.class_name for module in modules),
            "parent": [module.parent for module in modules],
            "operators": [module.operators for module in modules],
            "on_gpu": [module.on_gpu for module in modules],
            "unknown": [module.unknown for module in modules],
            **{
                name: [compact(module.total[name]) for module in modules]
                for name in ("best", "cpu", "gpu", "flops", "bytes")
            },
        },
        "boxes": _boxes(analysis, modules, module_of_operator),
        "has_gpu": analysis.devices.gpu is not None,
        "marks": {mark.name: mark.sign for mark in figure_words.MARKS.values()},
        **capacity_page.data(analysis),
    }


def _boxes(
    analysis: Analysis, modules: tuple[Module, ...], module_of_operator: tuple[int, ...]
) -> dict[str, Any] | None:
    """Return the graph's boxes by column, ``of`` being those of the operators; None if they are the modules."""
    boxes, of_operator = graph_boxes.boxes(analysis.operators, modules, module_of_operator)
    if [(box.parent, box.module, box.name) for box in boxes] == [
        (module.parent, module.number, "") for module in modules
    ]:
        return None
    return {
        "of": steps(of_operator),
        "rows": {
            # The first has none around it.
            "parent": steps([box.parent or 0 for box in boxes]),
            "module": steps([box.module for box in boxes]),
            "part": coded(box.name for box in boxes),
            "call": coded(box.call for box in boxes),
        },
    }


def _picture_words(analysis: Analysis, chart: Chart) -> dict[str, str]:
    """What is written on a saved picture, beside title and words that the page has."""
    words = caption.caption(analysis, chart)
    return {"subject": words.subject, "footer": words.footer}


def _facts(analysis: Analysis) -> tuple[Fact, ...]:
    """The line under the model's name."""
    model, totals = analysis.model, analysis.totals
    bound = model_facts.at_least(analysis)
    traffic = totals.bytes_read + totals.bytes_written
    fused, folded = model_facts.fused_bytes(analysis), model_facts.folded(analysis)
    pair = (totals.intensity, totals.fused_intensity)
    # What is the same with and without is said once.
    intensity = list(dict.fromkeys(digits(figure) for figure in pair if figure is not None))
    return (
        ("Inputs", model_facts.inputs(analysis)),
        ("Operators", _operators(analysis)),
        ("Parameters", f"{count(model.parameters)} ({byte_count(model.parameter_bytes)})"),
        ("Work", f"{bound}{flop_count(totals.flops)}" + (f", {folded}" if folded else "")),
        ("Memory traffic", f"{bound}{byte_count(traffic)}" + (f", {fused} fused" if fused else "")),
        ("FLOPs per byte", " unfused, ".join(intensity) + (" fused" if len(intensity) > 1 else "")),
        (  # A training step's peak holds weights, gradients and state as well.
            "Peak memory" if model.training else _peak_name(analysis),
            byte_count(totals.peak_memory_bytes),
        ),
    )


def _operators(analysis: Analysis) -> str:
    """``348, 317 of them run``: of those that are folded or removed before the run no plan has any."""
    plan = plan_cards.best_plan(analysis)
    run = 0 if plan is None else plan.operators_on_cpu + plan.operators_on_gpu
    every = analysis.totals.operators
    return f"{count(every)}, {count(run)} of them run" if 0 < run < every else count(every)


def _peak_name(analysis: Analysis) -> str:
    # The CPU's session keeps other tensors: its plan's memory has its own peak.
    return "Peak activations" + (" on the GPU" if analysis.devices.gpu is not None else "")


def _finding(finding: Finding, analysis: Analysis) -> dict[str, Any]:
    """A finding with the operator that it is about in words."""
    operator = operator_of(finding, analysis)
    return {
        "code": finding.code,
        "severity": finding.severity,
        "message": finding.message,
        "fix": finding.fix,
        "index": operator.index if operator else None,
        "subject": f"{operator.op_type} #{operator.index} {operator.module}".strip() if operator else "",
        "where": source_location(operator),
        "code_line": operator.source.code if operator and operator.source else "",
    }


def _alternative(alternative: Alternative) -> dict[str, str]:
    gpu = next((plan for plan in alternative.plans if plan.name == "gpu"), None)
    # The CPU's plan is the record's own: an alternative holds what another GPU changes.
    best = next((plan for plan in alternative.plans if plan.name == "hybrid"), gpu)
    verdict = alternative.verdict
    return {
        "device": alternative.device.name,
        "verdict": figure_words.VERDICT_WORDS[verdict.device],
        "speedup": factor(verdict.speedup),
        "interval": f"{factor(verdict.low)} to {factor(verdict.high)}",
        "gpu": seconds(gpu.latency_s) if gpu else UNKNOWN,
        "best": seconds(best.latency_s) if best else UNKNOWN,
        "origin": gpu.origin if gpu else "",
        "crossover": verdict_words.crossover_batch(verdict),
    }
