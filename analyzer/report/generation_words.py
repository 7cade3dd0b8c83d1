"""Reporting: the answer for a model that generates, in words and figures, as every format shows it first."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from analyzer.figures import Figure
from analyzer.record.analysis import Analysis
from analyzer.record.generation import GenerationMemory, GenerationResult
from analyzer.report.document import AnswerFigure
from analyzer.report.summary.figure_words import joules
from analyzer.units import UNKNOWN, byte_count, count, digits, dollars, seconds, share

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
    """A device's name without its vendor, as the verdict's sentences have it."""
    return name.removeprefix("NVIDIA ").removeprefix("AMD ")


def on(name: str, gpus: int) -> str:
    """``2 x A100 SXM4 80GB``; a CPU's name alone."""
    return f"{gpus} x {short(name)}" if gpus else name


def device(analysis: Analysis, told: GenerationResult) -> str:
    """What the answer is for, and how many of it."""
    gpu = analysis.devices.gpu
    return on(gpu.name, told.gpus) if gpu is not None and told.gpus else analysis.devices.cpu.name


def answered_on(analysis: Analysis, told: GenerationResult) -> str:
    """Return the device of the answer, and how many of it."""
    answer = analysis.answer
    return device(analysis, told) if answer is None else on(answer.device_name, answer.gpus)


def types(told: GenerationResult) -> str:
    """``fp16 weights, int8 cache``."""
    return f"{told.weights} weights, {told.kv} cache"


def subject(told: GenerationResult) -> str:
    """What was asked: ``1,024 tokens in, 256 out, batch 1``."""
    launch = ", launched as a CUDA graph" if told.launch == "graph" and told.gpus else ""
    return f"{count(told.prompt_tokens)} tokens in, {count(told.output_tokens)} out, batch {told.batch}{launch}"


def step(told: GenerationResult) -> str:
    """What stands before the verdict of such a record, which is about a decode step alone."""
    return "One decode step" + (", the whole model on one device" if told.gpus > 1 else "")


def sentence(analysis: Analysis, told: GenerationResult, *, alone: bool = False) -> str:
    """Return the answer as a sentence; ``alone``: of the record's own device, whatever the answer is."""
    if analysis.answer is not None and not alone:
        return analysis.answer.sentence
    times = f"the first token comes after {seconds(told.ttft_s)}, each further one after {seconds(told.tpot_s)}"
    if told.memory.fits:
        return f"{device(analysis, told)}, {types(told)}: {times}."
    each = " on each" if told.gpus > 1 else ""
    return (
        f"It does not fit {device(analysis, told)}, {types(told)}: it needs "
        f"{byte_count(told.memory.device_bytes)}{each} and {byte_count(told.memory.available_bytes)} are left. "
        f"As if it did: {times}."
    )


def is_elsewhere(analysis: Analysis, told: GenerationResult) -> bool:
    """Tell whether the answer is another device than the figures are of, or another number of them."""
    answer = analysis.answer
    return answer is not None and (answer.device, answer.gpus) != (told.device, told.gpus)


def details(analysis: Analysis, told: GenerationResult) -> str:
    """Return whose figures the record has, and how those of the answer are had; empty where it is the same."""
    answer = analysis.answer
    if answer is None or not is_elsewhere(analysis, told):
        return ""
    options = f"--gpu {answer.device}" + (f" --gpus {answer.gpus}" if answer.gpus > 1 else "")
    how = f"; {options} shows those of the answer" if answer.gpus else ""
    return f"Figures here are of {device(analysis, told)}{how}. {sentence(analysis, told, alone=True)}"


def batches(told: GenerationResult) -> str:
    """Return the batch that the devices are compared at."""
    own = all(row.batch == told.batch for row in told.devices)
    return f"batch {told.batch}" if own else "the largest batch that keeps the limits, of each its own"


def rate(value: float | None) -> str:
    """Tokens a second without a unit: ``99.9``, ``12,300``."""
    if value is None:
        return UNKNOWN
    return f"{value:,.0f}" if value >= _WHOLE else digits(value)


def figures(told: GenerationResult) -> tuple[AnswerFigure, ...]:
    """All figures of the answer, the most wanted first."""
    every = (
        *_times(told),
        _money(told),
        _energy(told),
        _memory(told),
        *_room(told),
        _limits(told),
        _cheapest(told),
    )
    return tuple(figure for figure in every if figure is not None)


def _times(told: GenerationResult) -> tuple[AnswerFigure, ...]:
    rows: tuple[tuple[str, str, Figure, Callable[[float | None], str], float | None], ...] = (
        ("TTFT", "Time to first token", told.ttft, seconds, told.ttft_limit_s),
        ("TPOT", "Each further token", told.tpot, seconds, told.tpot_limit_s),
        ("tokens/s", "Tokens per second", told.rate, rate, None),
        ("request", "Whole request", told.request, seconds, None),
    )
    together = f"{told.batch} sequences together" if told.batch > 1 else ""
    return tuple(
        AnswerFigure(
            *(name, title, shown(figure.value), together if name == "tokens/s" else ""),
            interval=figure.between(shown),
            origin=figure.origin,
            bad=limit is not None and figure.value > limit,
        )
        for name, title, figure, shown, limit in rows
    )


def _money(told: GenerationResult) -> AnswerFigure:
    if told.usd_per_million_tokens is not None:
        note = told.machine
    elif not told.largest_batch:
        note = "no batch keeps the limits" if told.memory.fits else "it does not fit"
    else:
        note = "it does not fit" if not told.memory.fits else "no instance that was looked at has them"
    usd = told.usd_per_million_tokens
    # A figure that is not known comes from nowhere.
    origin = told.origin if usd is not None else ""
    return AnswerFigure("$/M tokens", "Per million tokens", dollars(usd), note, origin=origin)


def _energy(told: GenerationResult) -> AnswerFigure | None:
    if told.joules_per_token is None:
        return None
    # From power on the data sheet, whatever the times come from.
    origin = "predicted" if told.origin == "predicted" else "mixed"
    used = joules(told.joules_per_token)
    return AnswerFigure("energy", "Energy per token", used, "prefill included", origin=origin)


def _memory(told: GenerationResult) -> AnswerFigure:
    memory = told.memory
    parts = ", ".join(f"{text} {name}" for name, text in _parts(memory))
    fits = "" if memory.fits else "; does not fit"
    whole, note = byte_count(memory.total_bytes), f"{parts}{fits}"
    return AnswerFigure("memory", "Memory", whole, note, interval=bar_text(told), bad=not memory.fits)


def _parts(memory: GenerationMemory) -> tuple[tuple[str, str], ...]:
    return (
        ("weights", byte_count(memory.weights_bytes)),
        ("cache", byte_count(memory.kv_bytes)),
        ("activations", byte_count(memory.activation_bytes)),
    )


def bar_text(told: GenerationResult) -> str:
    """What the bar shows: ``14.3 GB of 79.7 GB``, of one device where several share the model."""
    memory = told.memory
    each = f" on each of {told.gpus}" if told.gpus > 1 else ""
    if memory.available_bytes is None:
        return f"{byte_count(memory.device_bytes)}{each}; what the device has is not known"
    full = share(memory.device_bytes / memory.available_bytes if memory.available_bytes else None)
    return f"{byte_count(memory.device_bytes)} of {byte_count(memory.available_bytes)}{each}, {full}"


def bar(told: GenerationResult) -> MemoryBar | None:
    """The memory as a bar; None where nothing tells how much there is."""
    memory = told.memory
    room, used = memory.available_bytes, memory.device_bytes
    if not room or not memory.total_bytes:
        return None
    length = max(room, used)
    values = (memory.weights_bytes, memory.kv_bytes, memory.activation_bytes)
    # The record sums the parts over all devices: on one of them they are in the same proportion.
    shares = (value / memory.total_bytes * used / length for value in values)
    parts = (MemoryPart(*part, of_it) for part, of_it in zip(_parts(memory), shares, strict=True))
    return MemoryBar(tuple(parts), room / length, bar_text(told))


def _room(told: GenerationResult) -> tuple[AnswerFigure, ...]:
    tokens = count(told.prompt_tokens + told.output_tokens)
    within = " and keeps the limits" if told.limited else ""
    own = told.model_context
    if not told.longest_context:
        context = "nothing fits"
    elif own is not None and told.longest_context >= own:
        context = f"at batch {told.batch}; all that the model was made for"
    else:
        context = f"at batch {told.batch}" + (f"; the model was made for {count(own)}" if own else "")
    batch = count(told.largest_batch) if told.largest_batch else "none"
    longest = f"{count(told.longest_context)} tokens" if told.longest_context else "none"
    fitting = f"that fits {tokens} tokens each{within}"
    return (
        AnswerFigure("largest batch", "Largest batch", batch, fitting, bad=not told.largest_batch),
        AnswerFigure("longest context", "Longest context", longest, context, bad=not told.longest_context),
    )


def _limits(told: GenerationResult) -> AnswerFigure | None:
    if not told.limited:
        return None
    pairs = (("TTFT", told.ttft, told.ttft_limit_s), ("TPOT", told.tpot, told.tpot_limit_s))
    said = (_limit(name, time, limit) for name, time, limit in pairs if limit is not None)
    kept = "kept" if told.meets_limits else "missed"
    return AnswerFigure("limits", "Limits", kept, "; ".join(said), bad=not told.meets_limits)


def _limit(name: str, time: Figure, limit: float) -> str:
    verb = "keeps" if time.value <= limit else "is above"
    # As a gate does: a limit inside of the interval is neither kept nor missed for certain.
    unsure = " (uncertain: inside the 90 % interval)" if time.low <= limit < time.high else ""
    return f"{name} {seconds(time.value)} {verb} {seconds(limit)}{unsure}"


def _cheapest(told: GenerationResult) -> AnswerFigure | None:
    title = "Cheapest device" + (" that keeps the limits" if told.limited else "")
    if told.cheapest is None or told.cheapest >= len(told.devices):
        if len(told.devices) < 2:
            return None
        none = all(row.largest_batch == 0 for row in told.devices)
        note = f"no device that was looked at {'keeps the limits' if told.limited else 'holds it'}"
        note = note if none else "no price is known of what can do it"
        return AnswerFigure("cheapest", title, "none", note, bad=none)
    row = told.devices[told.cheapest]
    batch = f", at batch {count(row.batch)}" if row.batch != told.batch else ""
    note = f"{dollars(row.usd_per_million_tokens)} per million tokens on {row.machine}{batch}"
    return AnswerFigure("cheapest", title, on(row.name, row.gpus), note)
