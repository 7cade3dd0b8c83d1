"""The model's facts and the verdict, in sentences."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from typing import Literal

from analyzer.checks.device_answers import OVER_SLO, tensor_bytes
from analyzer.devices.device import Device
from analyzer.precision import peak_type
from analyzer.record.analysis import LEFT_OUT, UNROLLED, Analysis, TensorInfo, VerdictResult
from analyzer.record.batch_ranges import (
    DECIDE_SIZES,
    WHOLE_SEQUENCES,
    about,
    batch_of,
    has_batch,
    interval_words,
    is_least,
    sizes_that_grow,
    who_wins,
    without_trips,
)
from analyzer.report.figure_text import per_second
from analyzer.report.module_tree import time_in_plan
from analyzer.report.plan_cards import best_plan
from analyzer.text import first_few, plural
from analyzer.units import UNKNOWN, byte_count, count, digits, factor, flop_count, seconds


def in_precision(analysis: Analysis) -> str:
    """``tf32, ``; empty where nothing multiplies matrices on a GPU, which alone TF32 is about."""
    precision = analysis.model.precision
    rounded = any(
        operator.macs and operator.gpu is not None and operator.gpu.placed_on == "cuda"
        for operator in analysis.operators
    )
    # Without counts nobody knows.
    counted = any(operator.macs is not None for operator in analysis.operators)
    return "" if precision == "tf32" and counted and not rounded else f"{precision}, "


def uses_gpu(analysis: Analysis) -> bool:
    """Return whether a CUDA session computes anything on the GPU; moving data alone fills no GPU."""
    on_gpu = [
        operator
        for operator in analysis.operators
        if operator.gpu is not None and operator.gpu.placed_on == "cuda"
    ]
    every = sum(operator.flops or 0 for operator in analysis.operators)
    computed = sum(operator.flops or 0 for operator in on_gpu)
    return bool(on_gpu) and (not every or computed >= _COMPUTES * every)


# Of the model's FLOPs, what a GPU computes that is said to be saturated.
_COMPUTES = 0.01


def at_least(analysis: Analysis) -> str:
    """``at least`` where a total leaves out what nobody can count before the run, else nothing."""
    least = analysis.totals.coverage.unknown > 0 or any(is_least(one.note) for one in analysis.operators)
    return "at least " if least else ""


# Of the FLOPs of a run, from where on what is folded is told: a count of the plain model differs by it.
_FOLDED_SHOWN = 0.01


def folded(analysis: Analysis) -> str:
    """Return the FLOPs computed once instead of in every run, for behind a count; empty where few."""
    flops = analysis.totals.folded_flops or 0
    if not flops or flops < _FOLDED_SHOWN * analysis.totals.flops:
        return ""
    return f"{flop_count(flops)} more once, when the session is made"


def fused_bytes(analysis: Analysis) -> str:
    """Bytes moved where fused operators write nothing between them; empty where that changes no figure."""
    totals = analysis.totals
    if totals.fused_bytes_read is None or totals.fused_bytes_written is None:
        return ""
    fused = byte_count(totals.fused_bytes_read + totals.fused_bytes_written)
    return "" if fused == byte_count(totals.bytes_read + totals.bytes_written) else fused


def statements(analysis: Analysis) -> tuple[str, ...]:
    """Return further facts that an answer rests on: inputs, assumptions, state; empty where there is none."""
    return inputs_line(analysis), assumed(analysis), state(analysis)


def guesses(analysis: Analysis) -> tuple[str, ...]:
    """Return the sizes and inputs that were guessed, which may decide the answer; empty where there is none."""
    # Which inputs decide sizes, and how these are known.
    decided = " ".join(note for note in analysis.model.notes if DECIDE_SIZES in note)
    lengths = analysis.answer.guessed if analysis.answer and analysis.generation else ()
    assumed_lengths = ", ".join(f"{one.value} {one.what} ({one.fix.partition(' ')[0]})" for one in lengths)
    usual = f"Not given, and taken as usual: {assumed_lengths}." if lengths else ""
    return open_sizes(analysis), decided, guessed_inputs(analysis), usual


def open_sizes(analysis: Analysis) -> str:
    """Return the unknown sizes and trips, in sentences for the headline; empty where all are known."""
    parts = []
    assumed = analysis.model.assumed_sizes
    if assumed:
        sizes = first_few(f"{name} = {size}" for name, size in assumed.items())
        parts.append(f"Nothing says how large the inputs are: this is for {sizes} (--input sets sizes).")
    # In a sentence of the headline the line that says them is enough: how much may be less stands in the note.
    unknown = [note.partition(":")[0] for note in analysis.model.notes if WHOLE_SEQUENCES in note]
    parts += [f"{words}: this is for whole sequences (--input says how long)." for words in unknown]
    number = sum(any(map(_is_open, operator.outputs)) for operator in analysis.operators)
    if number:
        every = plural(len(analysis.operators), "operator")
        parts.append(f"The data decide the size of what {number:,} of {every} write: their times are guesses.")
    endless = [operator for operator in analysis.operators if without_trips(operator.note)]
    if endless:
        names = first_few(f"{operator.op_type} #{operator.index}" for operator in endless)
        run = "runs its body" if len(endless) == 1 else "run their bodies"
        parts.append(f"The data decide how often {names} {run}: predictions allow for 1 to 10,000 times.")
    return " ".join(parts)


def inputs(analysis: Analysis) -> str:
    """``z 144, pos 144x3, edge_index 2x2,448; y was left out (None)``; empty of a model without inputs."""
    stays = {pair.input for pair in analysis.model.state}
    texts = [f"{tensor.name} {_sizes(tensor)}" for tensor in analysis.model.inputs if tensor.name not in stays]
    if analysis.model.training:
        # The step's graph reads parameters and the optimizer's state as well: names of modules.
        texts = [words for words in texts if "." not in words.partition(" ")[0]]
    # What the loss of a step reads has a name of its own, which may be that of an argument left out.
    names = tuple(f"{tensor.name} was " for tensor in analysis.model.inputs)
    left_out = [
        note.partition(";")[0]
        for note in analysis.model.notes
        if LEFT_OUT in note and not note.startswith(names)
    ]
    more = [f"{len(texts) - _INPUTS_NAMED:,} more"] if len(texts) > _INPUTS_NAMED else []
    return "; ".join(filter(None, (", ".join((*texts[:_INPUTS_NAMED], *more)), *left_out)))


# A line has room for so many.
_INPUTS_NAMED = 6


def _sizes(tensor: TensorInfo) -> str:
    if tensor.shape is None:
        return "of any shape"
    return "x".join("?" if size is None else f"{size:,}" for size in tensor.shape) or "(a number)"


def inputs_line(analysis: Analysis) -> str:
    """Return the inputs as a sentence; empty where one input was guessed, which is told with its shape."""
    few = len(analysis.model.inputs) < 2
    line = "" if few and analysis.model.guessed_inputs else inputs(analysis)
    whose = " of the script's own call" if analysis.model.inputs_origin == "script" else ""
    return f"Inputs{whose}: {line}." if line else ""


def assumed(analysis: Analysis) -> str:
    """Return whose a training step is, and what it takes for granted that no file says: loss and optimizer."""
    if analysis.training is None:
        return ""
    return " ".join((whose_step(analysis), *analysis.training.assumed))


def whose_step(analysis: Analysis) -> str:
    """Return the framework of the training step's times; empty for an inference."""
    if analysis.training is None:
        return ""
    if any(UNROLLED in note for note in analysis.model.notes):
        recurrences = f"its recurrences are {UNROLLED}; PyTorch's own kernels (cuDNN) take less"
        return f"The step is ONNX Runtime's: {recurrences}."
    return "The step is ONNX Runtime's, not PyTorch's eager mode."


def examples(analysis: Analysis) -> str:
    """Of what dollars and throughput count one for each row of the batch."""
    return "examples of training" if analysis.model.training else "inferences"


def guessed_inputs(analysis: Analysis) -> str:
    """Return which inputs nobody gave, in a sentence; empty where somebody did."""
    guessed = analysis.model.guessed_inputs
    if not guessed:
        return ""
    return f"Inputs guessed: {', '.join(guessed)} (--input says others)."


def state(analysis: Analysis) -> str:
    """Return which inputs were taken for state, in a sentence; empty where none was."""
    names = [pair.input for pair in analysis.model.state]
    if not names:
        return ""
    named = names[0] if len(names) == 1 else f"{names[0]} to {names[-1]}"
    clause = "is state: it stays" if len(names) == 1 else "are state: they stay"
    whose = "its" if len(names) == 1 else "their"
    return (
        f"{plural(len(names), 'input')} ({named}) {clause} on the device from run to run "
        f"(--no-state counts {whose} copies)."
    )


def _is_open(tensor: TensorInfo) -> bool:
    # A sequence has no shape by its nature.
    return (tensor.shape is None or None in tensor.shape) and "(" not in tensor.dtype


def missing(analysis: Analysis) -> tuple[str, ...]:
    """Return the record's gaps, one sentence each: a report says so instead of showing a gap."""
    gaps = []
    if not analysis.operators:
        gaps.append("The model has no operators.")
    elif all(time_in_plan(operator) is None for operator in analysis.operators):
        gaps.append("No operator has a time: the record is a count of work alone.")
    if analysis.devices.gpu is None:
        gaps.append("No GPU was asked for, so there is nothing to compare the CPU with.")
    uncounted = [operator for operator in analysis.operators if operator.basis == "unknown"]
    if uncounted:
        types = sorted({f"{operator.domain}::{operator.op_type}" for operator in uncounted})
        shown = ", ".join(types[:5]) + (" and others" if len(types) > 5 else "")
        gaps.append(
            f"{len(uncounted)} of {len(analysis.operators)} operators have no known cost ({shown}): "
            "totals are lower bounds."
        )
    if analysis.plans and all(plan.memory_bytes is None for plan in analysis.plans):
        gaps.append(_without_memory(analysis))
    if not analysis.plans:
        gaps.append("There is no plan: no latency is known.")
    return tuple(gaps)


def _without_memory(analysis: Analysis) -> str:
    """Return the known parts of the memory where there is no sum, and the unknown ones."""
    tensors = (tensor for operator in analysis.operators for tensor in (*operator.inputs, *operator.outputs))
    of_open_size = dict.fromkeys(tensor.name for tensor in tensors if tensor_bytes(tensor) is None)
    why = f": the size of {first_few(of_open_size)} is open" if of_open_size else ""
    stored = f" beyond {byte_count(analysis.model.parameter_bytes)} of weights"
    return f"The memory that it needs is not known{stored}{why}.{_arena_held(analysis)}"


def _arena_held(analysis: Analysis) -> str:
    """Return the arena of the timed CPU session: of open sizes it is all that is known."""
    measured = analysis.environment.measurement.get("cpu")
    held = measured.get("arena_peak_bytes") if isinstance(measured, Mapping) else None
    if not isinstance(held, int):
        return ""
    return f" When it was timed on the CPU, ONNX Runtime's arena held up to {byte_count(held)}."


def peak(side: Literal["cpu", "gpu"], device: Device, precision: str) -> tuple[str, float] | None:
    """Return the type and the peak that products of this precision run at on a device."""
    dtype = peak_type(side, device.peak_flops_per_s, precision)
    return None if dtype is None else (dtype, device.peak_flops_per_s[dtype])


def facts(analysis: Analysis) -> tuple[tuple[str, str], ...]:
    """Return the model in figures, each behind its name."""
    model, totals = analysis.model, analysis.totals
    bound = at_least(analysis)
    traffic = totals.bytes_read + totals.bytes_written
    # The CPU's session keeps other tensors: its plan's memory has its own peak.
    where = " on the GPU" if analysis.devices.gpu is not None else ""
    fused, once = fused_bytes(analysis), folded(analysis)
    pair = (totals.intensity, totals.fused_intensity)
    # What is the same with and without is said once.
    intensity = list(dict.fromkeys(digits(figure) for figure in pair if figure is not None))
    return (
        ("Inputs", inputs(analysis) or UNKNOWN),
        ("Operators", _operators(analysis)),
        ("Parameters", f"{count(model.parameters)} ({byte_count(model.parameter_bytes)})"),
        ("Work", f"{bound}{flop_count(totals.flops)}" + (f", {once}" if once else "")),
        ("Memory traffic", f"{bound}{byte_count(traffic)}" + (f", {fused} fused" if fused else "")),
        ("FLOPs per byte", " unfused, ".join(intensity) + (" fused" if len(intensity) > 1 else "")),
        (  # A training step's peak holds weights, gradients and state as well.
            "Peak memory" if model.training else f"Peak activations{where}",
            byte_count(totals.peak_memory_bytes),
        ),
    )


def _operators(analysis: Analysis) -> str:
    """``348, 317 of them run``: of those that are folded or removed before the run no plan has any."""
    plan = best_plan(analysis)
    run = 0 if plan is None else plan.operators_on_cpu + plan.operators_on_gpu
    every = analysis.totals.operators
    return f"{count(every)}, {count(run)} of them run" if 0 < run < every else count(every)


def measure_again(analysis: Analysis) -> str:
    """Return the caveat of an answer that other processes have spoilt; empty where they have not."""
    measured = analysis.environment.measurement.get("cpu")
    busy = isinstance(measured, Mapping) and measured.get("busy") is True
    low, high = analysis.verdict.low, analysis.verdict.high
    if not busy or not low or not high:
        return ""
    # Which device it is may be clear all the same; a time that may be a third of what is said is not.
    if any(
        0 < plan.latency.low * _STILL_A_TIME < plan.latency.high
        for plan in analysis.plans
        if plan.name == "cpu" and plan.origin == "measured"
    ):
        return _MEASURE_AGAIN
    # What is clear in spite of them is.
    if low > 1 or high < 1:
        return "" if high <= _STILL_CLEAR * low else _MEASURE_AGAIN
    return _MEASURE_AGAIN


def rests_on_guesses(analysis: Analysis) -> str:
    """Return the caveat of an answer for guessed sizes; empty where all are known."""
    return "Some sizes are guessed." if open_sizes(analysis) else ""


_STILL_A_TIME = 2.5  # times, from one end of a measured time's interval to the other
_STILL_CLEAR = 10.0  # times, from one end of a speed-up's interval to the other
# Why stands in the message on the measurement.
_MEASURE_AGAIN = "Measure again on a quiet machine, or predict (--no-run): this answer is rough."


def confidence(analysis: Analysis) -> str:
    """Return how much and how sure, in one line; empty without a GPU, or where a plan has no room to run."""
    verdict = analysis.verdict
    # A ratio to a plan that has no room to run would be one to nothing.
    if verdict.speedup is None or not all(plan.fits for plan in analysis.plans) or _nothing_on_gpu(analysis):
        return ""
    ratio = verdict.speedup if verdict.speedup >= 1 else 1 / verdict.speedup
    first, second = ("GPU", "CPU") if verdict.speedup >= 1 else ("CPU", "GPU")
    text = f"The {first} plan is {factor(ratio)} as fast as the {second} plan"
    if not verdict.low or not verdict.high:
        return f"{text}; no interval is known."
    # ``speedup`` is CPU over GPU, always: where the CPU wins, the reciprocal is said, its interval turned over.
    ends = sorted((verdict.low, verdict.high) if verdict.speedup >= 1 else (1 / verdict.high, 1 / verdict.low))
    interval = f"{factor(ends[0])} to {factor(ends[1])}"
    # The sentence above has it in brackets: it is named there and not said again.
    if interval in verdict.sentence:
        return "The range in brackets is a 90 % interval."
    return f"{text} (90 % interval {interval})."


def reasons(analysis: Analysis) -> tuple[str, ...]:
    """Return why, in up to three sentences; the short reason where there are none."""
    verdict = analysis.verdict
    return verdict.because or ((verdict.reason,) if verdict.reason else ())


def errors(analysis: Analysis) -> str:
    """Return the findings that are errors, in a sentence or two beside the answer; empty where there is none.

    A note can wait until a reader comes to the findings. That a model computes something else in ONNX Runtime,
    or half of it beside the GPU, cannot; what costs less than a fiftieth of every plan can.
    """
    quickest_s = min((plan.latency_s for plan in analysis.plans), default=0.0)
    result = [
        finding
        for finding in analysis.findings
        if finding.severity == "error"
        and (finding.seconds is None or finding.seconds >= _OF_NOTE * quickest_s)
        # The answer's own sentence says whether it keeps the limit, whatever other devices do.
        and not (finding.code == OVER_SLO and analysis.answer is not None)
    ]
    if not result:
        return ""
    # A list of copies names every tensor: all of it stands in the finding.
    message = textwrap.shorten(result[0].message.rstrip("."), _LONGEST_ERROR, placeholder=" …")
    rest = len(result) - 1
    more = f" {plural(rest, 'more error')} {'is' if rest == 1 else 'are'} among the findings." if rest else ""
    return f"Error {result[0].code}: {message}.{more}"


_LONGEST_ERROR = 200
_OF_NOTE = 0.02


def subject(analysis: Analysis) -> str:
    """Return the verdict's subject: ``batch 64, tf32, for latency``."""
    batch = f"batch {batch_of(analysis)}, " if batch_of(analysis) is not None else ""
    if not has_batch(analysis):
        batch = "per call, "
    step = "training step, " if analysis.model.training else ""
    return f"{batch}{step}{in_precision(analysis)}decided for {analysis.verdict.objective}"


def crossover(analysis: Analysis) -> str:
    """From which batch the GPU wins, as far as known."""
    verdict = analysis.verdict
    if verdict.device is None or analysis.devices.gpu is None or _nothing_on_gpu(analysis):
        return ""
    if len(analysis.sweep) > 1 and verdict.ranges:
        wins = _hedged(who_wins(verdict.ranges, verdict.crossover_batch), analysis)
        return " ".join(filter(None, (wins, _largest_within(analysis))))
    if not has_batch(analysis):
        names = sizes_that_grow(analysis)
        grows = f" What there is to compute grows with the size of {names} (--input)." if names else ""
        return f"Its inputs have no batch, so no crossover batch is told.{grows}"
    if len({row.batch for row in analysis.sweep}) < 2:
        unknown = "The batch from which the GPU wins is not known: only one batch was analysed"
        return f"{unknown}{_to_analyse_several(analysis)}."
    # None has two more meanings in the record: no room at any batch, or slower at all of them.
    largest = max(row.batch for row in analysis.sweep)
    on_gpu = [row.plans["gpu"] for row in analysis.sweep if "gpu" in row.plans]
    if not on_gpu:  # no session of a GPU can be made: the verdict's sentence says why
        return ""
    if not any(plan.fits for plan in on_gpu):
        return f"At no batch up to {largest} does the model fit into the GPU's memory."
    return f"The GPU wins at no batch up to {largest}."


def _largest_within(analysis: Analysis) -> str:
    """Return the largest batch that keeps the limit; empty without one, or where none or every batch does."""
    verdict = analysis.verdict
    plans = [
        (row.batch, plan)
        for row in analysis.sweep
        for name, plan in row.plans.items()
        if name == verdict.device
    ]
    within = [batch for batch, plan in plans if plan.fits and plan.latency.keeps(verdict.slo_s)]
    if not within or max(within) == max(batch for batch, _ in plans):
        return ""
    return f"Batch {max(within)} is the largest of those predicted that keeps {seconds(verdict.slo_s)}."


def _to_analyse_several(analysis: Analysis) -> str:
    """Return the option for more batches; empty where it was given, or the file has one alone."""
    batches_given = analysis.invocation.options.get("batch", ()) if analysis.invocation is not None else ()
    batch = analysis.model.batch
    if (
        batch is None
        or analysis.model.exporter in _FIXED_IN_FILES
        or any("," in text for text in batches_given)
    ):
        return ""
    # The first is the report's.
    return f" (--batch {batch},{1 if batch > 1 else 32} analyses several)"


# Exporters of files, whose one batch cannot be another.
_FIXED_IN_FILES = ("onnx", "pt2")


def _hedged(text: str, analysis: Analysis) -> str:
    """Return who wins at which batch, and on what basis: no surer than the answer next to it."""
    if {part.device for part in analysis.verdict.ranges} == {"either"}:
        return text
    hedges = (
        ("with guessed sizes", rests_on_guesses(analysis)),
        ("by this rough measurement", measure_again(analysis)),
    )
    hedge = ", ".join(words for words, holds in hedges if holds)
    return f"{hedge[:1].upper()}{hedge[1:]}, {text[:1].lower()}{text[1:]}" if hedge else text


def crossover_batch(verdict: VerdictResult) -> str:
    """``12 (3 to 64)``: the batch from which the GPU is expected to win, and between which ones that lies."""
    doubt = interval_words(verdict)
    batch = verdict.crossover_batch
    if batch is None:
        return f"not known (it may win {doubt})" if doubt else UNKNOWN
    return f"{about(batch)}{f' ({doubt})' if doubt else ''}"


def _nothing_on_gpu(analysis: Analysis) -> bool:
    """Return whether a CUDA session would run every operator on the CPU, at any batch."""
    groups = [group for group in analysis.groups if group.session == "cuda"]
    return bool(groups) and all(group.provider == "cpu" for group in groups)


def batches(analysis: Analysis) -> str:
    """Return the batch facts: the crossover, where the GPU saturates, what fits into its memory."""
    verdict = analysis.verdict
    largest = max((row.batch for row in analysis.sweep), default=0)
    sentences = [crossover(analysis)]
    if verdict.saturation_batch and uses_gpu(analysis):
        sentences.append(f"The GPU is saturated from batch {verdict.saturation_batch} on.")
        sentences.append(_falling_throughput(analysis))
    if verdict.largest_batch and verdict.largest_batch < largest:
        # Between the last that fits and the first that does not the largest is looked for, where it can be.
        seen = any(row.batch == verdict.largest_batch for row in analysis.sweep)
        of = f"Of the batches looked at {verdict.largest_batch}" if seen else f"Batch {verdict.largest_batch}"
        sentences.append(f"{of} is the largest that fits its memory.")
    return " ".join(filter(None, sentences))


def _falling_throughput(analysis: Analysis) -> str:
    """Return where a GPU does less at larger batches than at its best one; empty where it keeps that rate."""
    fitting = [(row.batch, row.plans["gpu"]) for row in analysis.sweep if "gpu" in row.plans]
    rates = [(batch, plan.throughput_per_s) for batch, plan in fitting if plan.fits]
    best_at, best = max(rates, key=lambda pair: pair[1], default=(0, 0.0))
    fallen = next(((batch, one) for batch, one in rates if batch > best_at and one < _LIMIT_WORDS * best), None)
    if fallen is None:
        return ""
    return (
        f"Its throughput peaks at batch {best_at}, {per_second(best)}, and is {per_second(fallen[1])} at batch "
        f"{fallen[0]}: what outgrows a GPU's cache is read from its memory."
    )


# Of the best throughput, below what a larger batch is said to do less. A judgement.
_LIMIT_WORDS = 0.8
