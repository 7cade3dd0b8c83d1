"""Reporting: what else a model that generates could run on and in, as tables of text for every format."""

from __future__ import annotations

from collections.abc import Callable

from analyzer.options import PRICINGS
from analyzer.record.analysis import Analysis
from analyzer.record.generation import GenerationOption, GenerationResult
from analyzer.report import price_words
from analyzer.report.document import SCREEN, Column, Table, amount, table
from analyzer.report.generation_words import batches, on, rate
from analyzer.report.summary.figure_words import PLAN_TITLES, VERDICT_WORDS, marked, sign
from analyzer.units import UNKNOWN, byte_count, count, dollars, factor, seconds, span

# Rows of a terminal, and rows above which Markdown folds a table up.
MOST_DEVICES = 8


def tables(analysis: Analysis) -> tuple[Table, ...]:
    """Return the tables of a model that generates; none for another."""
    result = analysis.generation
    if result is None:
        return ()
    every = (_phases(result), _devices(result), _types(result), _widths(result), _prefill(analysis, result))
    return tuple(sheet for sheet in every if sheet is not None and sheet.rows)


def _phases(result: GenerationResult) -> Table:
    cpu_origin = result.cpu.origin if result.cpu else ""
    return Table(
        name="phases",
        title="Both phases, CPU and GPU",
        head=("Phase", "Better on", "CPU", "GPU", "Speed-up", "90 % interval"),
        rows=tuple(
            (
                phase.phase,
                VERDICT_WORDS[phase.device],
                marked(seconds(phase.cpu_s), cpu_origin),
                marked(seconds(phase.gpu_s), result.origin),
                factor(phase.speedup),
                f"{factor(phase.low)} to {factor(phase.high)}",
            )
            for phase in result.phases
        ),
        figures=(2, 3, 4, 5),
        lead=" ".join(filter(None, (_PHASES, _split(result)))),
        detail=SCREEN,
    )


_PHASES = "Prefill reads the prompts and gives the first token; decode is a further token, the mean of all."


def _split(result: GenerationResult) -> str:
    """Say how long a prompt on the GPU and tokens on the CPU would take, where that pays; empty elsewhere."""
    split = result.split
    if split is None or not split.pays:
        return ""
    return (
        "The prompt on the GPU and all further tokens on the CPU would take "
        f"{marked(seconds(split.request_s), 'predicted')} ({split.request.between(seconds)}), "
        f"{seconds(split.handover_s)} of it for {byte_count(split.handover_bytes)} of cache in between."
    )


def _options(result: GenerationResult, first: tuple[Column, ...], *, compared: bool) -> _Columns:
    """Return the columns of a table of options; with ``compared`` the rows know their speed-ups."""
    return (
        *first,
        Column("TTFT", lambda row: marked(seconds(row.ttft_s), row.origin), lambda row: row.ttft_s),
        Column("TPOT", lambda row: marked(seconds(row.tpot_s), row.origin), lambda row: row.tpot_s),
        amount("Tokens/s", "tokens_per_s", rate),
        Column(
            "Memory",
            lambda row: byte_count(row.memory_bytes) + ("" if row.fits else " (does not fit)"),
            lambda row: row.memory_bytes,
            drop=3,
        ),
        Column(
            "Max batch",
            lambda row: count(row.largest_batch) if row.largest_batch else "none",
            lambda row: row.largest_batch,
        ),
        amount("$/M tokens", "usd_per_million_tokens", dollars),
        *([_text("Limits", lambda row: _LIMIT_WORDS[row.meets_limits])] if result.limited else []),
        *(_SPEED_UPS if compared else ()),
    )


_Columns = tuple[Column, ...]
_LIMIT_WORDS = {None: UNKNOWN, True: "kept", False: "missed"}
_SPEED_UPS = (
    amount("Prefill", "prefill_speedup", factor, drop=2),
    amount("Decode", "decode_speedup", factor, drop=2),
)


def _sheet(
    result: GenerationResult,
    rows: tuple[GenerationOption, ...],
    columns: _Columns,
    name: str,
    title: str,
    lead: str,
) -> Table:
    own = (result.device, result.gpus, result.weights, result.kv)
    ways = [(row.device, row.gpus, row.weights, row.kv) for row in rows]
    chosen = ways.index(own) if own in ways else None
    return table(
        rows,
        columns,
        name=name,
        title=title,
        lead=lead,
        chosen=chosen,
        shown=tuple(range(min(len(rows), MOST_DEVICES))),
        most=MOST_DEVICES,
        detail=SCREEN,
    )


def _devices(result: GenerationResult) -> Table:
    columns = _options(result, (_text("Device", lambda row: on(row.name, row.gpus)),), compared=False)
    if any(row.instance for row in result.devices):
        columns += (Column("Instance", _instance, lambda row: row.machine or None, drop=4, figure=False),)
    lead = (
        "As many of each as hold the model, the cheapest first, then those without a price. Times and dollars "
        f"are at {batches(result)}."
    )
    return _sheet(result, result.devices, columns, "devices", "Devices", lead)


def _text(head: str, text: Callable[[GenerationOption], str]) -> Column:
    return Column(head, text, figure=False)


def _instance(row: GenerationOption) -> str:
    if not row.instance:
        return UNKNOWN
    hour = f", {dollars(row.usd_per_hour)} an hour" if row.usd_per_hour is not None else ""
    paid = f", {price_words.WAYS[row.pricing]}" if row.pricing != PRICINGS[0] else ""
    return f"{price_words.rented(row, row.gpus)}{hour}{paid}"


def _types(result: GenerationResult) -> Table:
    first = (_text("Weights", lambda row: row.weights), _text("Cache", lambda row: row.kv))
    lead = (
        "On the same devices. Prefill and decode say how many times as fast as what was asked. What a type "
        "does to the model's answers is not told."
    )
    columns = _options(result, first, compared=_compared(result.types))
    return _sheet(result, result.types, columns, "types", "Types of weights and cache", lead)


def _widths(result: GenerationResult) -> Table:
    first = (Column("GPUs", lambda row: str(row.gpus), lambda row: row.gpus, figure=False),)
    lead = "Each layer is shared by all (tensor parallel). Prefill and decode say how many times as fast."
    columns = _options(result, first, compared=_compared(result.widths))
    return _sheet(result, result.widths, columns, "widths", "Numbers of the same GPU", lead)


def _compared(rows: tuple[GenerationOption, ...]) -> bool:
    return any(row.decode_speedup is not None for row in rows)


def _prefill(analysis: Analysis, result: GenerationResult) -> Table | None:
    """Return the prefill's plans, as the record has them for the decode step."""
    if analysis.phases is None:
        return None
    phase = analysis.phases.prefill
    rows = tuple(
        (
            PLAN_TITLES[plan.name],
            f"{seconds(plan.latency_s)} {sign(plan.origin)}".rstrip(),
            span(seconds(plan.low_s), seconds(plan.high_s)),
            count(plan.operators_on_gpu),
            count(plan.operators_on_cpu),
            "yes" if plan.fits else "no",
        )
        for plan in phase.plans
    )
    return Table(
        name="prefill",
        title="The prefill's plans",
        head=("Plan", "Latency", "90 % interval", "On the GPU", "On the CPU", "Fits one device"),
        rows=rows,
        figures=(1, 2, 3, 4),
        lead=f"{phase.verdict.sentence} This is {count(result.prompt_tokens)} tokens of each sequence in one "
        "step; the columns in the middle count operators.",
    )
