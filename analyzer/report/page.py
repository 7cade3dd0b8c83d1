"""Reporting: the view-model of the page: everything its template shows, ready to be printed."""

from __future__ import annotations

from typing import Any

from analyzer.checks.phrases import source_location
from analyzer.record.analysis import Analysis, Finding
from analyzer.record.invocation import amended, command_line
from analyzer.report import (
    capacity_page,
    capacity_words,
    generation_words,
    graph_boxes,
    method,
    operator_columns,
    record_document,
    terminal,
)
from analyzer.report.charts import (
    batches,
    capacity,
    caption,
    generation,
    instances,
    roofline,
    time_share,
    timeline,
)
from analyzer.report.charts.chart import Chart, coded, compact, steps, vega_config
from analyzer.report.document import Section, Table
from analyzer.report.findings_text import operator_of, shown_findings
from analyzer.report.module_tree import Module, tree
from analyzer.report.ranking import table as ranking_table
from analyzer.report.ranking import words as ranking_words
from analyzer.report.summary import figure_words, leading_operators, plan_cards, verdict_words


def build(analysis: Analysis) -> dict[str, Any]:
    """Return the template's values; strings are plain text, to be escaped there."""
    modules, module_of_operator = tree(analysis)
    charts = _charts(analysis, modules)
    document = record_document.document(analysis)
    sections = {section.name: section for section in document.sections}
    top = leading_operators.top_operators(analysis)
    return {
        "title": analysis.model.name,
        "tool": analysis.tool,
        "model": analysis.model,
        "sections": sections,
        "subject": verdict_words.subject(analysis),
        "run": record_document.run_name(analysis),
        "side": ranking_words.side(analysis),
        "chip": _chip(analysis),
        "word": _word(analysis),
        "error_count": sum(finding.severity == "error" for finding in analysis.findings),
        "best_by": ranking_table.best_by(analysis),
        "batches": verdict_words.batches(analysis),
        "plans": ranking_words.distinct_cards(analysis),
        "top": top,
        "top_title": leading_operators.top_title(top, analysis) + ranking_words.about_first(analysis),
        "marks": tuple(figure_words.MARKS.values()),
        "charts": {chart.name: chart for chart in charts},
        "findings": tuple(_finding(finding, analysis) for finding in shown_findings(analysis)),
        "generation": _generation(analysis, sections.get("generation")),
        "capacity": capacity_page.view(analysis),
        "has_operators": bool(analysis.operators),
        "groups_known": bool(analysis.groups),
        "method": method.sections(analysis),
        "data": {"brief": terminal.mail(document), **_data(analysis, modules, module_of_operator, charts)},
    }


def _word(analysis: Analysis) -> str:
    """Return the answer in a few words, for the title of the page's window."""
    if analysis.capacity is not None:
        return capacity_words.word(analysis.capacity)
    if analysis.generation is not None:
        return generation_words.answered_on(analysis, analysis.generation)
    return ranking_words.word(analysis) if analysis.operators else "Nothing to decide"


def _chip(analysis: Analysis) -> str:
    """Return the answer in a word for the coloured mark above its sentence; empty where nothing is decided."""
    no_room = bool(analysis.plans) and not any(plan.fits for plan in analysis.plans)
    if no_room and not ranking_words.leads(analysis) and analysis.verdict.device is not None:
        return "Neither fits"
    return ranking_words.word(analysis) if analysis.operators else ""


def _generation(analysis: Analysis, section: Section | None) -> dict[str, Any] | None:
    """Return the answer for a model that generates as the template prints it; None for another."""
    result = analysis.generation
    if result is None or section is None:
        return None
    # Of capacity, the page has a request of its own device alone.
    answer = analysis.answer if analysis.capacity is None else None
    side = answer.kind if answer is not None else "gpu" if result.gpus else "cpu"
    meets, fits = (result.meets_limits, result.memory.fits) if answer is None else (answer.meets, answer.fits)
    chips = {None: side.upper(), True: "Limits kept", False: "Limits missed"}
    return {
        "side": side if fits else "either",
        "chip": chips[meets] if fits else "Does not fit",
        "bar": generation_words.bar(result),
        "tables": {block.name: block for block in section.blocks if isinstance(block, Table)},
    }


def charts_of(analysis: Analysis) -> tuple[Chart, ...]:
    """Return the page's charts, in their order."""
    return _charts(analysis, tree(analysis)[0])


def _charts(analysis: Analysis, modules: tuple[Module, ...]) -> tuple[Chart, ...]:
    best = plan_cards.best_plan(analysis)
    request, service = analysis.generation, analysis.capacity
    charts: list[Chart | None] = [
        time_share.by_type(analysis),
        time_share.by_module(modules, best.origin if best else "", plan_cards.copies_apart(analysis)),
        roofline.chart(analysis),
        *batches.charts(analysis),
        timeline.chart(analysis),
        instances.chart(analysis),
    ]
    if request is not None:
        charts += (timeline.request(analysis, request), time_share.by_phase(request))
        charts += (*generation.charts(request), generation.frontier(request), instances.devices(request))
    if service is not None:
        charts += (capacity.traffic(service), *capacity.charts(service))
    # One that has nothing to show is not there, and neither are its section and its link.
    return tuple(chart for chart in charts if chart is not None)


def _data(
    analysis: Analysis,
    modules: tuple[Module, ...],
    module_of_operator: tuple[int, ...],
    charts: tuple[Chart, ...],
) -> dict[str, Any]:
    """Return the data of the page's script."""
    boxes, of_operator = graph_boxes.boxes(analysis.operators, modules, module_of_operator)
    return {
        "name": analysis.model.name,
        "style": vega_config(),
        "captions": {
            # What is written on a saved picture, alongside title and words that the page has.
            chart.name: {"subject": words.subject, "footer": words.footer}
            for chart in charts
            for words in (caption.caption(analysis, chart),)
        },
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
        "boxes": {
            "of": steps(of_operator),
            "rows": {
                # The first has none around it.
                "parent": steps([box.parent or 0 for box in boxes]),
                "module": steps([box.module for box in boxes]),
                "part": coded(box.name for box in boxes),
                "call": coded(box.call for box in boxes),
            },
        },
        "has_gpu": analysis.devices.gpu is not None,
        "apart": plan_cards.copies_apart(analysis),
        "marks": {mark.name: mark.sign for mark in figure_words.MARKS.values()},
        **capacity_page.data(analysis),
        **_other_batches(analysis),
    }


def _other_batches(analysis: Analysis) -> dict[str, Any]:
    """Return what the page answers other batches and limits from; nothing of a record of one batch."""
    if len(analysis.sweep) < 2 or analysis.generation is not None or analysis.capacity is not None:
        return {"sweep": None}
    invocation = analysis.invocation and amended(analysis.invocation, {"batch": ("BATCH",)}, without=("slo",))
    return {
        "sweep": {
            "batch": analysis.model.batch,
            "limit": analysis.verdict.slo_s,
            "command": "" if invocation is None else command_line(invocation),
            "rows": [
                [
                    row.batch,
                    {
                        figure_words.PLAN_TITLES[name]: [
                            *(plan.latency_s, plan.throughput_per_s, plan.origin),
                            *(plan.low_s, plan.high_s),
                        ]
                        for name, plan in row.plans.items()
                        if plan.fits
                    },
                ]
                for row in analysis.sweep
            ],
        }
    }


def _finding(finding: Finding, analysis: Analysis) -> dict[str, Any]:
    """Return a finding with the operator that it is about in words."""
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
