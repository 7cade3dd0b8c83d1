"""Reporting: what else a model that generates could run on and in, as tables of text for every format."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from analyzer.options import PRICINGS
from analyzer.record.analysis import Analysis
from analyzer.record.generation import GenerationOption, GenerationResult, PhaseVerdict
from analyzer.report import price_words
from analyzer.report.answer import OptionTable, first_rows, narrowed
from analyzer.report.generation_words import limited, on, rate
from analyzer.report.summary.figure_words import PLAN_TITLES, VERDICT_WORDS, marked, sign
from analyzer.units import UNKNOWN, byte_count, count, dollars, factor, seconds, span

# Of the devices, on a terminal; a page and Markdown have all.
MOST_DEVICES = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class _OptionColumn:
    """A column of options: its heading, what it shows and what it is sorted by."""

    head: str
    text: Callable[[GenerationOption], str]
    value: Callable[[GenerationOption], float | str | None]
    narrow: bool = True
    figure: bool = True


def sheets(analysis: Analysis) -> tuple[OptionTable, ...]:
    """The tables of a model that generates; none for another."""
    told = analysis.generation
    if told is None:
        return ()
    tables = (_phases(told), _devices(told), _types(told), _widths(told), _prefill(analysis, told))
    return tuple(sheet for sheet in tables if sheet is not None and sheet.rows)


def terminal_sheets(analysis: Analysis) -> tuple[OptionTable, ...]:
    """The same, short: the narrow columns, the first devices, types as a square."""
    told = analysis.generation
    if told is None:
        return ()
    devices = _devices(told)
    tables = (_phases(told), first_rows(devices, MOST_DEVICES), _square(told), _widths(told))
    return tuple(narrowed(sheet) for sheet in tables if sheet is not None and sheet.rows)


def _phases(told: GenerationResult) -> OptionTable:
    cpu_origin = told.cpu.times.origin if told.cpu else ""
    return OptionTable(
        name="phases",
        title="Both phases, CPU and GPU",
        head=("Phase", "Better on", "CPU", "GPU", "Speed-up", "90 % interval"),
        rows=tuple(_phase(phase, cpu_origin, told.origin) for phase in told.phases),
        figures=(2, 3, 4, 5),
        narrow=tuple(range(6)),
        lead=" ".join(filter(None, (_PHASES, _split(told)))),
    )


_PHASES = "Prefill reads the prompts and gives the first token; decode is a further token, the mean of all."


def _split(told: GenerationResult) -> str:
    """What a prompt on the GPU and tokens on the CPU would take, where that pays; empty elsewhere."""
    split = told.split
    if split is None or not split.pays:
        return ""
    whole = marked(seconds(split.request_s), "predicted")
    return (
        f"The prompt on the GPU and all further tokens on the CPU would take {whole} "
        f"({span(seconds(split.request_low_s), seconds(split.request_high_s))}), "
        f"{seconds(split.handover_s)} of it for {byte_count(split.handover_bytes)} of cache in between."
    )


def _phase(phase: PhaseVerdict, cpu_origin: str, gpu_origin: str) -> tuple[str, ...]:
    return (
        phase.phase,
        VERDICT_WORDS[phase.device],
        marked(seconds(phase.cpu_s), cpu_origin),
        marked(seconds(phase.gpu_s), gpu_origin),
        factor(phase.speedup),
        f"{factor(phase.low)} to {factor(phase.high)}",
    )


def _options(
    told: GenerationResult, first: tuple[_OptionColumn, ...], *, beside: bool
) -> tuple[_OptionColumn, ...]:
    """The columns of a table of options.

    Args:
        told: The answer.
        first: What tells one row from the next.
        beside: Whether the rows know how much faster they are than what was asked.
    """
    found = [
        *first,
        _OptionColumn(head="TTFT", text=_ttft, value=lambda row: row.times.ttft_s),
        _OptionColumn(head="TPOT", text=_tpot, value=lambda row: row.times.tpot_s),
        _OptionColumn(
            head="Tokens/s",
            text=lambda row: rate(row.times.tokens_per_s),
            value=lambda row: row.times.tokens_per_s,
        ),
        _OptionColumn(head="Memory", text=_memory, value=lambda row: row.memory_bytes, narrow=False),
        _OptionColumn(head="Max batch", text=_batch, value=lambda row: row.largest_batch),
        _OptionColumn(
            head="$/M tokens",
            text=lambda row: dollars(row.usd_per_million_tokens),
            value=lambda row: row.usd_per_million_tokens,
        ),
    ]
    if limited(told):
        found.append(
            _OptionColumn(head=f"Batch {told.batch}", text=_kept, value=lambda row: _kept(row), figure=False)
        )
    if beside:
        found += [
            _OptionColumn(
                head="Prefill",
                text=lambda row: factor(row.prefill_speedup),
                value=lambda row: row.prefill_speedup,
                narrow=False,
            ),
            _OptionColumn(
                head="Decode",
                text=lambda row: factor(row.decode_speedup),
                value=lambda row: row.decode_speedup,
                narrow=False,
            ),
        ]
    return tuple(found)


def _ttft(row: GenerationOption) -> str:
    return marked(seconds(row.times.ttft_s), row.times.origin)


def _tpot(row: GenerationOption) -> str:
    return marked(seconds(row.times.tpot_s), row.times.origin)


def _memory(row: GenerationOption) -> str:
    return byte_count(row.memory_bytes) + ("" if row.fits else " (does not fit)")


def _batch(row: GenerationOption) -> str:
    return count(row.largest_batch) if row.largest_batch else "none"


def _kept(row: GenerationOption) -> str:
    return {None: UNKNOWN, True: "kept", False: "missed"}[row.meets_limits]


def _sheet(
    told: GenerationResult,
    rows: tuple[GenerationOption, ...],
    columns: tuple[_OptionColumn, ...],
    words: tuple[str, str, str],
) -> OptionTable:
    name, title, lead = words
    return OptionTable(
        name=name,
        title=title,
        head=tuple(column.head for column in columns),
        rows=tuple(tuple(column.text(row) for column in columns) for row in rows),
        figures=tuple(at for at, column in enumerate(columns) if column.figure),
        narrow=tuple(at for at, column in enumerate(columns) if column.narrow),
        sort=tuple(tuple(column.value(row) for column in columns) for row in rows),
        chosen=next((at for at, row in enumerate(rows) if _is_asked(row, told)), None),
        lead=lead,
    )


def _is_asked(row: GenerationOption, told: GenerationResult) -> bool:
    asked = (told.device, told.gpus, told.weights, told.kv)
    return (row.device, row.gpus, row.weights, row.kv) == asked


def _priced(told: GenerationResult) -> str:
    if limited(told):
        return "The largest batch is the one that fits and keeps the limits; the price is at that batch."
    return f"The largest batch is the one that fits; the price is at batch {told.batch}, as asked."


def _devices(told: GenerationResult) -> OptionTable:
    name = _OptionColumn(
        head="Device",
        text=lambda row: on(row.name, row.gpus),
        value=lambda row: on(row.name, row.gpus),
        figure=False,
    )
    instance = _OptionColumn(
        head="Instance", text=_instance, value=lambda row: row.instance or None, narrow=False, figure=False
    )
    every = any(row.instance for row in told.devices)
    lead = f"As many of each as hold the model, the cheapest first, then those without a price. {_priced(told)}"
    columns = (*_options(told, (name,), beside=False), *((instance,) if every else ()))
    return _sheet(told, told.devices, columns, ("devices", "Devices", lead))


def _instance(row: GenerationOption) -> str:
    if not row.instance:
        return UNKNOWN
    hour = f", {dollars(row.usd_per_hour)} an hour" if row.usd_per_hour is not None else ""
    paid = f", {price_words.WAYS[row.pricing]}" if row.pricing != PRICINGS[0] else ""
    return f"{row.instance}{hour}{paid}"


def _types(told: GenerationResult) -> OptionTable:
    first = (
        _OptionColumn(
            head="Weights", text=lambda row: row.weights, value=lambda row: row.weights, figure=False
        ),
        _OptionColumn(head="Cache", text=lambda row: row.kv, value=lambda row: row.kv, figure=False),
    )
    lead = (
        "On the same devices. Prefill and decode say how many times as fast as what was asked. What a type "
        "does to the model's answers is not told."
    )
    columns = _options(told, first, beside=_compared(told.types))
    return _sheet(told, told.types, columns, ("types", "Types of weights and cache", lead))


def _widths(told: GenerationResult) -> OptionTable:
    first = (
        _OptionColumn(head="GPUs", text=lambda row: str(row.gpus), value=lambda row: row.gpus, figure=False),
    )
    lead = "Each layer is shared by all (tensor parallel). Prefill and decode say how many times as fast."
    columns = _options(told, first, beside=_compared(told.widths))
    return _sheet(told, told.widths, columns, ("widths", "Numbers of the same GPU", lead))


def _compared(rows: tuple[GenerationOption, ...]) -> bool:
    return any(row.decode_speedup is not None for row in rows)


def _square(told: GenerationResult) -> OptionTable | None:
    """Types as a square: weights down, caches across; TPOT and the largest batch in each cell."""
    found = {(row.weights, row.kv): row for row in told.types}
    caches = tuple(dict.fromkeys(row.kv for row in told.types))
    if not found:
        return None

    def cells(weights: str) -> Iterator[str]:
        yield weights
        for cache in caches:
            row = found.get((weights, cache))
            yield UNKNOWN if row is None else f"{seconds(row.times.tpot_s)}, {_batch(row)}"

    return OptionTable(
        name="types",
        title="TPOT and largest batch by type of weights (down) and cache (across)",
        head=("", *caches),
        rows=tuple(tuple(cells(weights)) for weights in dict.fromkeys(row.weights for row in told.types)),
        figures=tuple(range(1, len(caches) + 1)),
        narrow=tuple(range(len(caches) + 1)),
    )


def _prefill(analysis: Analysis, told: GenerationResult) -> OptionTable | None:
    """The prefill's plans, as the record has them for the decode step."""
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
    return OptionTable(
        name="prefill",
        title="The prefill's plans",
        head=("Plan", "Latency", "90 % interval", "On the GPU", "On the CPU", "Fits one device"),
        rows=rows,
        figures=(1, 2, 3, 4),
        narrow=tuple(range(6)),
        lead=f"{phase.verdict.sentence} This is {count(told.prompt_tokens)} tokens of each sequence in one "
        "step; the columns in the middle count operators.",
    )
