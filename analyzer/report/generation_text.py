"""A generating model in sentences and tables."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from analyzer.figures import Figure
from analyzer.options import PRICINGS
from analyzer.record.analysis import Analysis
from analyzer.record.generation import GenerationMemory, GenerationOption, GenerationResult
from analyzer.report import figure_text
from analyzer.report.document import SCREEN, AnswerFigure, Column, Table, amount, table
from analyzer.report.figure_text import PLAN_TITLES, VERDICT_WORDS, joules, marked, sign
from analyzer.units import UNKNOWN, byte_count, count, digits, dollars, factor, seconds, share, span

# From here on a rate is read in whole tokens, with separators.
_WHOLE = 1000.0


class MemoryPart(NamedTuple):
    """A part of the memory's bar; ``share`` is of the bar's whole length, 0 to 1."""

    name: str
    text: str
    share: float


class MemoryBar(NamedTuple):
    """One device's memory: its parts, and where on the bar its room ends (1 where all of it fits)."""

    parts: tuple[MemoryPart, ...]
    room: float
    text: str


def short(name: str) -> str:
    """Return a device's name without its vendor, as the verdict's sentences have it."""
    return name.removeprefix("NVIDIA ").removeprefix("AMD ")


def on(name: str, gpus: int) -> str:
    """``2 x A100 SXM4 80GB``; a CPU's name alone."""
    return f"{gpus} x {short(name)}" if gpus else name


def device(analysis: Analysis, result: GenerationResult) -> str:
    """Return the answer's device, and how many of it."""
    gpu = analysis.devices.gpu
    return on(gpu.name, result.gpus) if gpu is not None and result.gpus else analysis.devices.cpu.name


def answered_on(analysis: Analysis, result: GenerationResult) -> str:
    """Return the device of the answer, and how many of it."""
    answer = analysis.answer
    return device(analysis, result) if answer is None else on(answer.device_name, answer.gpus)


def types(result: GenerationResult) -> str:
    """``fp16 weights, int8 cache``."""
    return f"{result.weights} weights, {result.kv} cache"


def subject(result: GenerationResult) -> str:
    """Return the question: ``1,024 tokens in, 256 out, batch 1``."""
    launch = ", launched as a CUDA graph" if result.launch == "graph" and result.gpus else ""
    tokens = f"{count(result.prompt_tokens)} tokens in, {count(result.output_tokens)} out"
    return f"{tokens}, batch {result.batch}{launch}"


def step(result: GenerationResult) -> str:
    """Return the introduction of such a record's verdict, which is about a decode step alone."""
    return "One decode step" + (", the whole model on one device" if result.gpus > 1 else "")


def sentence(analysis: Analysis, result: GenerationResult, *, alone: bool = False) -> str:
    """Return the answer as a sentence; ``alone``: of the record's own device, whatever the answer is."""
    if analysis.answer is not None and not alone:
        return analysis.answer.sentence
    times = (
        f"the first token comes after {seconds(result.ttft_s)}, each further one after {seconds(result.tpot_s)}"
    )
    if result.memory.fits:
        return f"{device(analysis, result)}, {types(result)}: {times}."
    each = " on each" if result.gpus > 1 else ""
    return (
        f"It does not fit {device(analysis, result)}, {types(result)}: it needs "
        f"{byte_count(result.memory.device_bytes)}{each} and {byte_count(result.memory.available_bytes)} are "
        f"left. As if it did: {times}."
    )


def is_elsewhere(analysis: Analysis, result: GenerationResult) -> bool:
    """Tell whether the answer is another device than the figures are of, or another number of them."""
    answer = analysis.answer
    return answer is not None and (answer.device, answer.gpus) != (result.device, result.gpus)


def details(analysis: Analysis, result: GenerationResult) -> str:
    """Return whose figures the record has, and how those of the answer are had; empty where it is the same."""
    answer = analysis.answer
    if answer is None or not is_elsewhere(analysis, result):
        return ""
    options = f"--gpu {answer.device}" + (f" --gpus {answer.gpus}" if answer.gpus > 1 else "")
    how = f"; {options} shows those of the answer" if answer.gpus else ""
    return f"Figures here are of {device(analysis, result)}{how}. {sentence(analysis, result, alone=True)}"


def batches(result: GenerationResult) -> str:
    """Return the batch that the devices are compared at."""
    own = all(row.batch == result.batch for row in result.devices)
    return f"batch {result.batch}" if own else "the largest batch that keeps the limits, of each its own"


def rate(value: float | None) -> str:
    """Return tokens a second without a unit: ``99.9``, ``12,300``."""
    if value is None:
        return UNKNOWN
    return f"{value:,.0f}" if value >= _WHOLE else digits(value)


def figures(result: GenerationResult) -> tuple[AnswerFigure, ...]:
    """Return all figures of the answer, the most wanted first."""
    every = (
        *_times(result),
        _money(result),
        _energy(result),
        _memory(result),
        *_room(result),
        _limits(result),
        _cheapest(result),
    )
    return tuple(figure for figure in every if figure is not None)


def _times(result: GenerationResult) -> tuple[AnswerFigure, ...]:
    rows: tuple[tuple[str, str, Figure, Callable[[float | None], str], float | None], ...] = (
        ("TTFT", "Time to first token", result.ttft, seconds, result.ttft_limit_s),
        ("TPOT", "Each further token", result.tpot, seconds, result.tpot_limit_s),
        ("tokens/s", "Tokens per second", result.rate, rate, None),
        ("request", "Whole request", result.request, seconds, None),
    )
    together = f"{result.batch} sequences together" if result.batch > 1 else ""
    return tuple(
        AnswerFigure(
            *(name, title, shown(figure.value), together if name == "tokens/s" else ""),
            interval=figure.between(shown),
            origin=figure.origin,
            bad=limit is not None and figure.value > limit,
        )
        for name, title, figure, shown, limit in rows
    )


def _money(result: GenerationResult) -> AnswerFigure:
    if result.usd_per_million_tokens is not None:
        note = result.machine
    elif not result.largest_batch:
        note = "no batch keeps the limits" if result.memory.fits else "it does not fit"
    else:
        note = "it does not fit" if not result.memory.fits else "no instance that was looked at has them"
    usd = result.usd_per_million_tokens
    # A figure that is not known comes from nowhere.
    origin = result.origin if usd is not None else ""
    return AnswerFigure("$/M tokens", "Per million tokens", dollars(usd), note, origin=origin)


def _energy(result: GenerationResult) -> AnswerFigure | None:
    if result.joules_per_token is None:
        return None
    # From power on the data sheet, whatever the times come from.
    origin = "predicted" if result.origin == "predicted" else "mixed"
    used = joules(result.joules_per_token)
    return AnswerFigure("energy", "Energy per token", used, "prefill included", origin=origin)


def _memory(result: GenerationResult) -> AnswerFigure:
    memory = result.memory
    parts = ", ".join(f"{text} {name}" for name, text in _parts(memory))
    fits = "" if memory.fits else "; does not fit"
    whole, note = byte_count(memory.total_bytes), f"{parts}{fits}"
    return AnswerFigure("memory", "Memory", whole, note, interval=bar_text(result), bad=not memory.fits)


def _parts(memory: GenerationMemory) -> tuple[tuple[str, str], ...]:
    return (
        ("weights", byte_count(memory.weights_bytes)),
        ("cache", byte_count(memory.kv_bytes)),
        ("activations", byte_count(memory.activation_bytes)),
    )


def bar_text(result: GenerationResult) -> str:
    """Return the bar's text: ``14.3 GB of 79.7 GB``, of one device where several share the model."""
    memory = result.memory
    each = f" on each of {result.gpus}" if result.gpus > 1 else ""
    if memory.available_bytes is None:
        return f"{byte_count(memory.device_bytes)}{each}; what the device has is not known"
    full = share(memory.device_bytes / memory.available_bytes if memory.available_bytes else None)
    return f"{byte_count(memory.device_bytes)} of {byte_count(memory.available_bytes)}{each}, {full}"


def bar(result: GenerationResult) -> MemoryBar | None:
    """Return the memory as a bar; None where nothing tells how much there is."""
    memory = result.memory
    room, used = memory.available_bytes, memory.device_bytes
    if not room or not memory.total_bytes:
        return None
    length = max(room, used)
    values = (memory.weights_bytes, memory.kv_bytes, memory.activation_bytes)
    # The record sums the parts over all devices: on one of them they are in the same proportion.
    shares = (value / memory.total_bytes * used / length for value in values)
    parts = (MemoryPart(*part, of_it) for part, of_it in zip(_parts(memory), shares, strict=True))
    return MemoryBar(tuple(parts), room / length, bar_text(result))


def _room(result: GenerationResult) -> tuple[AnswerFigure, ...]:
    tokens = count(result.prompt_tokens + result.output_tokens)
    within = " and keeps the limits" if result.limited else ""
    own = result.model_context
    if not result.longest_context:
        context = "nothing fits"
    elif own is not None and result.longest_context >= own:
        context = f"at batch {result.batch}; all that the model was made for"
    else:
        context = f"at batch {result.batch}" + (f"; the model was made for {count(own)}" if own else "")
    batch = count(result.largest_batch) if result.largest_batch else "none"
    longest = f"{count(result.longest_context)} tokens" if result.longest_context else "none"
    fitting = f"that fits {tokens} tokens each{within}"
    return (
        AnswerFigure("largest batch", "Largest batch", batch, fitting, bad=not result.largest_batch),
        AnswerFigure("longest context", "Longest context", longest, context, bad=not result.longest_context),
    )


def _limits(result: GenerationResult) -> AnswerFigure | None:
    if not result.limited:
        return None
    pairs = (("TTFT", result.ttft, result.ttft_limit_s), ("TPOT", result.tpot, result.tpot_limit_s))
    parts = (_limit(name, time, limit) for name, time, limit in pairs if limit is not None)
    word = "kept" if result.meets_limits else "missed"
    return AnswerFigure("limits", "Limits", word, "; ".join(parts), bad=not result.meets_limits)


def _limit(name: str, time: Figure, limit: float) -> str:
    verb = "keeps" if time.value <= limit else "is above"
    # As a gate does: a limit inside of the interval is neither kept nor missed for certain.
    unsure = " (uncertain: inside the 90 % interval)" if time.low <= limit < time.high else ""
    return f"{name} {seconds(time.value)} {verb} {seconds(limit)}{unsure}"


def _cheapest(result: GenerationResult) -> AnswerFigure | None:
    title = "Cheapest device" + (" that keeps the limits" if result.limited else "")
    if result.cheapest is None or result.cheapest >= len(result.devices):
        if len(result.devices) < 2:
            return None
        none = all(row.largest_batch == 0 for row in result.devices)
        note = f"no device that was looked at {'keeps the limits' if result.limited else 'holds it'}"
        note = note if none else "no price is known of what can do it"
        return AnswerFigure("cheapest", title, "none", note, bad=none)
    row = result.devices[result.cheapest]
    batch = f", at batch {count(row.batch)}" if row.batch != result.batch else ""
    note = f"{dollars(row.usd_per_million_tokens)} per million tokens on {row.machine}{batch}"
    return AnswerFigure("cheapest", title, on(row.name, row.gpus), note)


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
        title=f"Both phases at batch {result.batch}, CPU and GPU",
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
            "Max batch" + (", at least" if result.limited else ""),
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
    paid = f", {figure_text.WAYS[row.pricing]}" if row.pricing != PRICINGS[0] else ""
    return f"{figure_text.rented(row, row.gpus)}{hour}{paid}"


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
