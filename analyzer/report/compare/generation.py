"""Reporting: what records of models that generate say side by side, and which of them is the fastest."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from analyzer.record.analysis import Analysis
from analyzer.record.generation import GenerationResult
from analyzer.report.compare.comparison import (
    SAME,
    Better,
    ComparedFact,
    ComparedFigure,
    certainty,
    compared,
    facts_of,
    known,
    least,
    times,
)
from analyzer.report.generation_words import rate
from analyzer.report.summary.figure_words import joules
from analyzer.units import count, dollars, seconds

GROUP = "Generation"


def facts(analyses: Sequence[Analysis]) -> tuple[ComparedFact, ...]:
    """What was asked of a model that generates; nothing where no record is of one."""
    named: tuple[tuple[str, str, Callable[[GenerationResult], object]], ...] = (
        ("prompt_tokens", "tokens in", lambda told: count(told.prompt_tokens)),
        ("output_tokens", "tokens out", lambda told: count(told.output_tokens)),
        ("gpus", "GPUs", lambda told: told.gpus),
        ("weights", "weights", lambda told: told.weights),
        ("kv", "cache", lambda told: told.kv),
        ("launch", "launch", lambda told: told.launch),
        ("fits", "fits in memory", lambda told: "yes" if told.memory.fits else "no"),
    )
    if not any(one.generation for one in analyses):
        return ()
    return facts_of("generation", [one.generation for one in analyses], named)


def same_request(analyses: Sequence[Analysis]) -> bool:
    """Whether all records that generate were asked for the same tokens, so that their times can be compared."""
    asked = {
        (told.prompt_tokens, told.output_tokens, told.batch)
        for told in (one.generation for one in analyses)
        if told is not None
    }
    return len(asked) < 2


def figures(analyses: Sequence[Analysis]) -> tuple[ComparedFigure, ...]:
    """Times, tokens a second, dollars, joules, memory and room; nothing where no record is of such a model."""
    told = [one.generation for one in analyses]
    if not any(told):
        return ()
    better_time: Better = "less" if same_request(analyses) else ""
    named: tuple[tuple[str, str, str, Better, str, str], ...] = (
        ("ttft_s", "time to first token", "s", better_time, "ttft_{}_s", ""),
        ("tpot_s", "time of each further token", "s", better_time, "tpot_{}_s", ""),
        ("request_s", "whole request", "s", better_time, "request_{}_s", ""),
        ("tokens_per_s", "tokens per second", "/s", "more", "request_{}_s", "request_s"),
        ("usd_per_million_tokens", "dollars per million tokens", "$", "less", "", ""),
        ("joules_per_token", "energy per token", "J", "less", "", ""),
        ("memory_bytes", "memory of the request", "B", "less", "", ""),
        ("largest_batch", "largest batch", "", "more", "", ""),
        ("longest_context", "longest context", "", "more", "", ""),
    )
    return known(
        compared(
            f"generation.{key}",
            label,
            unit,
            told,
            field="memory.total_bytes" if key == "memory_bytes" else key,
            better=better,
            ends=ends,
            time=time,
            origin="origin" if ends else "",
        )
        for key, label, unit, better, ends, time in named
    )


def headline(labels: Sequence[str], analyses: Sequence[Analysis]) -> tuple[str, str]:
    """Which record generates fastest, and how sure that is; empty where not all are of such a model."""
    pairs = [(label, one.generation) for label, one in zip(labels, analyses, strict=True) if one.generation]
    if len(pairs) < len(analyses):
        return "", ""
    known = [(label, told) for label, told in pairs if told is not None]
    # The first of equals, so that the same comparison gives the same bytes.
    ranked = sorted(known, key=lambda pair: -pair[1].tokens_per_s)
    (top, best), (_, second), (bottom, worst) = ranked[0], ranked[1], ranked[-1]
    ratio = best.tokens_per_s / worst.tokens_per_s if worst.tokens_per_s else 0.0
    if ratio - 1 < SAME:
        return f"All make as many tokens a second: {_words(best)}.", ""
    others = bottom if len(ranked) == 2 else f"{bottom}, the slowest"
    text = (
        f"{top} makes most tokens a second: {_words(best)} against {_words(worst)} of {others}, a factor of "
        f"{times(ratio)}."
    )
    return text, certainty(best.rate.low > second.rate.high)


def cheapest(labels: Sequence[str], analyses: Sequence[Analysis]) -> tuple[str, str]:
    """Say which record costs least and which takes least energy for its tokens; empty where none stands out."""
    told = [one.generation for one in analyses]
    usd, energy = (
        tuple(None if one is None else getattr(one, name) for one in told)
        for name in ("usd_per_million_tokens", "joules_per_token")
    )
    return (
        least(labels, usd, "costs least", lambda value: f"{dollars(value)} per million tokens"),
        least(labels, energy, "takes least energy", lambda value: f"{joules(value)} a token"),
    )


def _words(told: GenerationResult) -> str:
    return f"{rate(told.tokens_per_s)} tokens/s, first token after {seconds(told.ttft_s)} ({told.origin})"


def notes(analyses: Sequence[Analysis]) -> tuple[str, ...]:
    """What a reader must know before comparing such records."""
    if not any(one.generation for one in analyses):
        return ()
    found = ["operators, plans and verdict are those of one decode step"]
    if not same_request(analyses):
        found.append("the requests differ in tokens or batch: compare tokens per second and dollars, not times")
    if not all(one.generation for one in analyses):
        found.append("not every record is of a model that generates")
    return tuple(found)
