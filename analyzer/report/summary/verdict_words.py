"""Reporting: the verdict in words, as every format for people shows it first."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping

from analyzer.checks.phrases import OVER_SLO
from analyzer.record.analysis import Analysis, VerdictResult
from analyzer.record.batch_ranges import about, batch_of, has_batch, interval_words, sizes_that_grow, who_wins
from analyzer.report.summary.figure_words import per_second
from analyzer.report.summary.model_facts import in_precision, open_sizes, uses_gpu
from analyzer.text import plural
from analyzer.units import UNKNOWN, factor


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
        return _hedged(who_wins(verdict.ranges, verdict.crossover_batch), analysis)
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
    return f"{UNKNOWN if batch is None else about(batch)}{f' ({doubt})' if doubt else ''}"


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
