"""The offline page of a record."""

from __future__ import annotations

import base64
import gzip
import hashlib
import re
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from analyzer.checks.device_answers import source_location
from analyzer.figures import Figure, total
from analyzer.record.analysis import Analysis, Finding
from analyzer.record.generation import GenerationResult
from analyzer.record.invocation import amended, command_line
from analyzer.report import (
    capacity_tables,
    capacity_words,
    figure_text,
    generation_text,
    graph_boxes,
    method,
    module_tree,
    operator_columns,
    plan_cards,
    record_document,
    summary,
    terminal,
)
from analyzer.report import ranking_text as ranking_table
from analyzer.report import ranking_text as ranking_words
from analyzer.report.charts import batches, capacity, caption, generation, roofline, time_share, timeline
from analyzer.report.charts.chart import Chart, coded, compact, steps, vega_config
from analyzer.report.document import SCREEN, WHOLE, Block, Section, Table
from analyzer.report.figure_text import MARKS, joules, per_second
from analyzer.report.findings_text import operator_of, shown_findings
from analyzer.report.module_tree import Module, tree
from analyzer.text import json_escaped, loggable
from analyzer.units import byte_count, dollars, seconds

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup


def build(analysis: Analysis) -> dict[str, Any]:
    """Return the template's values; strings are plain text, to be escaped there."""
    analysis = ranking_words.as_answered(analysis)
    modules, module_of_operator = tree(analysis)
    charts = _charts(analysis, modules)
    document = record_document.document(analysis)
    sections = {section.name: section for section in document.sections}
    top = module_tree.top_operators(analysis)
    return {
        "title": analysis.model.name,
        "tool": analysis.tool,
        "model": analysis.model,
        "sections": sections,
        "subject": summary.subject(analysis),
        "run": record_document.run_name(analysis),
        # The run that a service's answer rests on is no second answer.
        "side": ranking_words.side(analysis) if analysis.capacity is None else "either",
        "chip": _chip(analysis) if analysis.capacity is None else "",
        "word": _word(analysis),
        "error_count": sum(finding.severity == "error" for finding in analysis.findings),
        "best_by": ranking_table.best_by(analysis),
        "batches": summary.batches(analysis),
        "plans": ranking_words.distinct_cards(analysis),
        "top": top,
        "top_title": module_tree.top_title(top, analysis) + ranking_words.about_first(analysis),
        "marks": tuple(figure_text.MARKS.values()),
        "charts": {chart.name: chart for chart in charts},
        "findings": tuple(_finding(finding, analysis) for finding in shown_findings(analysis)),
        "generation": _generation(analysis, sections.get("generation")),
        "capacity": capacity_tables.view(analysis),
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
        return generation_text.answered_on(analysis, analysis.generation)
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
        "bar": generation_text.bar(result),
        "tables": {block.name: block for block in section.blocks if isinstance(block, Table)},
    }


def charts_of(analysis: Analysis) -> tuple[Chart, ...]:
    """Return the page's charts, in their order."""
    shown = ranking_words.as_answered(analysis)
    return _charts(shown, tree(shown)[0])


def _charts(analysis: Analysis, modules: tuple[Module, ...]) -> tuple[Chart, ...]:
    best = plan_cards.best_plan(analysis)
    request, service = analysis.generation, analysis.capacity
    charts: list[Chart | None] = [
        time_share.by_type(analysis),
        time_share.by_module(modules, best.origin if best else "", plan_cards.copies_apart(analysis)),
        roofline.chart(analysis),
        *batches.charts(analysis),
        timeline.chart(analysis),
        capacity.chart(analysis),
    ]
    if request is not None:
        charts += (timeline.request(analysis, request), time_share.by_phase(request))
        charts += (*generation.charts(request), generation.frontier(request), capacity.devices(request))
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
        "marks": {mark.name: mark.sign for mark in figure_text.MARKS.values()},
        **capacity_tables.data(analysis),
        **_other_batches(analysis),
    }


def _other_batches(analysis: Analysis) -> dict[str, Any]:
    """Return what the page answers other batches and limits from; nothing of a record of one batch."""
    request = analysis.generation
    if request is None:
        limits = {"slo": analysis.verdict.slo_s}
        rows = {
            row.batch: {
                figure_text.PLAN_TITLES[name]: _timed(plan.throughput_per_s, plan.latency)
                for name, plan in row.plans.items()
                if plan.fits
            }
            for row in analysis.sweep
        }
    else:
        limits = {"ttft": request.ttft_limit_s, "tpot": request.tpot_limit_s}
        rows = _requests(request, generation_text.device(analysis, request))
    if len(rows) < 2 or analysis.capacity is not None:
        return {"sweep": None}
    invocation = analysis.invocation and amended(analysis.invocation, {"batch": ("BATCH",)}, without=limits)
    return {
        "sweep": {
            "batch": analysis.model.batch if request is None else request.batch,
            "limits": limits,
            "command": "" if invocation is None else command_line(invocation),
            "rows": sorted(rows.items()),
        }
    }


def _timed(rate: float, *times: Figure) -> tuple[Any, ...]:
    """Return the rate, the origin, and the ends of each time with the time between them."""
    return (rate, times[0].origin, *(time.ends for time in times))


def _requests(result: GenerationResult, device: str) -> dict[int, dict[str, tuple[Any, ...]]]:
    """Return the request at each batch of the sweep; no way to run it where it does not fit."""
    points = {(one.batch, one.context): one for one in result.sweep}
    rows = {}
    for (batch, context), first in points.items():
        last = points.get((batch, context + result.output_tokens))
        if context != result.prompt_tokens or last is None:
            continue
        # A token's time grows evenly with the tokens before it.
        tpot = total((first.tpot, last.tpot)).scaled(0.5)
        whole_s = first.ttft_s + (result.output_tokens - 1) * tpot.value
        of_batch = batch * result.output_tokens / whole_s, first.ttft, tpot
        if batch == result.batch:  # the request's own figures
            of_batch = result.tokens_per_s, result.ttft, result.tpot
        rows[batch] = {device: _timed(*of_batch)} if last.fits else {}
    return rows


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


# The last line of a library's build; templates/js/unpack.js takes it off what is carried packed.
_SOURCE_MAP = re.compile(r"/[/*][#@] sourceMappingURL=[^\s*]*(\s*\*/)?\s*\Z")
# ``/*! ... */`` is what minifiers keep for the sake of its licence; builds that keep all begin with a blank.
_NOTICE = re.compile(r"/\*[!\s](.*?)\*/", re.DOTALL)
# The blank between a figure and its unit, by the units that analyzer.units writes.
_FIGURE = re.compile(r"(?<=\d)( )(?=[kMGTPmµn]?(?:s|B|FLOP|J|/s|B/s|FLOP/s)\b|%)")


def templates_dir() -> Path:
    """Return where the templates lie: inside the package in a wheel, beside it in the repository.

    Raises:
        FileNotFoundError: The installation is incomplete.
    """
    # pyproject.toml puts templates/ into the wheel as a folder of the package.
    package = Path(__file__).resolve().parent.parent
    for folder in (package / "templates", package.parent / "templates"):
        if (folder / "report.html.j2").is_file():
            return folder
    raise FileNotFoundError(f"report.html.j2 is neither in {package / 'templates'} nor beside the package")


def render(analysis: Analysis) -> str:
    """Return the analysis as one HTML page; the same analysis gives the same bytes."""
    return environment().get_template("report.html.j2").render(build(analysis))


def notebook(analysis: Analysis) -> str:
    """Return what a notebook shows of an analysis: no scripts, since untrusted notebooks run none."""
    shown = record_document.document(analysis).at(SCREEN)
    blocks = [block for _, blocks in shown for block in blocks]
    return environment().get_template("notebook.html.j2").render(blocks=blocks, marks=tuple(MARKS.values()))


@lru_cache(maxsize=1)
def environment() -> Environment:
    """Jinja2 with every string escaped, and data as compact JSON that no markup can leave."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    env = Environment(
        loader=FileSystemLoader(templates_dir()),
        autoescape=True,
        # A misspelt name in a template is an error, not a blank on a page.
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        # The templates of an installed package do not change: no look at the disk for each.
        auto_reload=False,
        finalize=_shown,
    )
    # Jinja2's ``tojson`` also writes <, >, & and ' as escapes, so that no name ends the script it stands in.
    env.policies["json.dumps_kwargs"] = {"separators": (",", ":"), "allow_nan": False, "ensure_ascii": False}
    env.globals |= {"asset": asset, "packed": packed, "digest": digest, "notices": notices, "seconds": seconds}
    env.filters |= {
        "unbroken": unbroken,
        "pack": lambda data: pack(json_escaped(data)),
        "kind": lambda block: type(block).__name__,
        "of_kind": _of_kind,
        **{written.__name__: written for written in (seconds, byte_count, dollars, per_second, joules)},
    }
    return env


def _of_kind(blocks: Iterable[Block], kind: str, detail: int = WHOLE) -> list[Block]:
    """Return the blocks of a kind that are shown at a detail."""
    return [block for block in blocks if type(block).__name__ == kind and block.detail <= detail]


def _shown(value: Any) -> Any:
    """Return a value as the page shows it: a stranger's text on one line, which steers nothing."""
    # Markup is of our own making, with line breaks that are meant.
    if not isinstance(value, str) or hasattr(value, "__html__"):
        return value
    return loggable(" ".join(value.splitlines()))


def unbroken(text: str) -> str:
    """Return the text with its figures and their units kept on one line."""
    return _FIGURE.sub("\u00a0", text)


@lru_cache(maxsize=32)
def asset(name: str) -> Any:
    """Return a file of the templates' folder, to be inlined as it is (our own or a library's, no user text).

    Raises:
        ValueError: It would end the element that it is put into.
    """
    from markupsafe import Markup

    path = templates_dir() / name
    # Libraries are kept packed.
    gzipped = path.with_name(f"{path.name}.gz")
    content = gzip.decompress(gzipped.read_bytes()) if gzipped.exists() else path.read_bytes()
    text = _SOURCE_MAP.sub("", content.decode("utf-8"))
    # In a script no quoting helps: HTML ends the element at the first such tag, even inside of a string.
    if re.search(r"</(script|style)", text, re.IGNORECASE):
        raise ValueError(f"{name} holds an end tag and cannot be inlined")
    return Markup(text)


def _bundle(names: tuple[str, ...]) -> str:
    return "".join(asset(name) for name in names)


def _base64(content: bytes) -> Markup:
    from markupsafe import Markup

    return Markup(base64.b64encode(content).decode("ascii"))  # nothing in it is read as HTML


def pack(text: str) -> Markup:
    """Return the text's gzip as base64, which no markup can leave."""
    # Without the time of the packing, which gzip's header would hold: the same analysis gives the same bytes.
    return _base64(gzip.compress(text.encode(), 6, mtime=0))


@lru_cache(maxsize=32)
def packed(*names: str) -> Markup:
    """Files in a row for the page's own script to unpack; a library alone comes as it is kept."""
    # A library lies packed already: nothing is unpacked to be packed again.
    gzipped = templates_dir() / f"{names[0]}.gz"
    return _base64(gzipped.read_bytes()) if len(names) == 1 and gzipped.exists() else pack(_bundle(names))


@lru_cache(maxsize=32)
def digest(*names: str) -> Markup:
    """Return the sum by which the page's policy lets these files run as one script."""
    # Of the text that the browser runs: unpacked, and without its source map's line.
    return _base64(hashlib.sha256(_bundle(names).encode()).digest())


@lru_cache(maxsize=32)
def notices(name: str) -> tuple[Markup, ...]:
    """Return the authors and licence in a library's own comments."""
    from markupsafe import escape

    comments = (re.sub(r"\n[ *]+", "\n", text).strip() for text in _NOTICE.findall(asset(name)))
    # Markup, so that they keep their lines.
    return tuple(escape(text) for text in comments if re.search(r"\(c\)|licen[cs]e", text, re.IGNORECASE))
