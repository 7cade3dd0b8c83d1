"""Reporting: what capacity plans say side by side, and which of them costs least."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from analyzer.record.analysis import Analysis
from analyzer.record.capacity import CapacityOption, CapacityResult
from analyzer.report import capacity_words as words
from analyzer.report.compare.comparison import (
    SAME,
    Better,
    ComparedFact,
    ComparedFigure,
    certainty,
    compared,
    facts_of,
    known,
    times,
)
from analyzer.units import UNKNOWN, dollars, seconds, share

GROUP = "Capacity"
_REQUESTS = {"inference": "one inference", "generation": "a prompt that is answered"}


def facts(analyses: Sequence[Analysis]) -> tuple[ComparedFact, ...]:
    """What was asked of a service, and what it is rented on; nothing where no record plans one."""
    named: tuple[tuple[str, str, Callable[[CapacityResult], object]], ...] = (
        ("rate_per_s", "requests/s", lambda told: words.asked(told.rate_per_s)),
        ("requests", "a request is", lambda told: _REQUESTS[told.requests]),
        ("tokens", "tokens in and out", _tokens),
        ("tpot_limit_s", "limit of each further token", lambda told: seconds(told.tpot_limit_s)),
        ("limit_s", "limit", lambda told: f"{words.limited_name(told)} within {seconds(told.limit_s)}"),
        ("arrivals", "arrivals", lambda told: told.arrivals),
        ("growth", "growth", lambda told: f"{words.asked(told.growth)}x"),
        ("headroom", "headroom", lambda told: share(told.headroom)),
        ("spare", "instances that may fail", lambda told: told.spare),
        ("pricing", "paid", lambda told: words.way(told.pricing)),
        ("best", "cheapest instance", lambda told: _named(told, words.where)),
        ("batching", "batching", lambda told: _named(told, lambda option: words.formed(told, option))),
    )
    if not any(one.capacity for one in analyses):
        return ()
    compared = facts_of("capacity", [one.capacity for one in analyses], named)
    return tuple(fact for fact in compared if set(fact.values) != {UNKNOWN})


def _tokens(told: CapacityResult) -> str:
    if told.prompt_tokens is None or told.output_tokens is None:
        return UNKNOWN
    return f"{words.asked(told.prompt_tokens)} and {words.asked(told.output_tokens)}"


def _named(told: CapacityResult, say: Callable[[CapacityOption], str]) -> str:
    return say(told.best_option) if told.best_option is not None else "none keeps the limit"


def same_question(analyses: Sequence[Analysis]) -> bool:
    """Whether all plans are for the same traffic within the same limit: their dollars can be compared."""
    asked = {
        (
            words.planned(told),
            told.percentile,
            told.limit_s,
            (told.requests, told.tpot_limit_s, told.prompt_tokens, told.output_tokens),
            told.arrivals,
            told.headroom,
            told.spare,
        )
        for told in (one.capacity for one in analyses)
        if told is not None
    }
    return len(asked) < 2


def figures(analyses: Sequence[Analysis]) -> tuple[ComparedFigure, ...]:
    """Number, dollars, latencies and rate of each record's cheapest instances that keep its limit."""
    best = _best(analyses)
    less: Better = "less" if same_question(analyses) else ""
    rented = {(one.provider, one.instance, one.device, one.width) for one in best if one is not None}
    # Of models that generate alone: else it is not the same latency on both sides.
    generate = all(one.capacity is not None and words.generates(one.capacity) for one in analyses)
    first = " to the first token" if generate else ""
    limits = {(one.capacity.percentile, one.capacity.limit_s) for one in analyses if one.capacity is not None}
    # Of two kinds of instances neither more nor fewer are better, nor is what one of them takes.
    alike = len(rented) < 2
    rate_better: Better = "more" if alike and len(limits) < 2 else ""
    named: tuple[tuple[str, str, str, Better, str], ...] = (
        ("usd_per_month", "dollars a month", "$", less, "{}_usd_per_month"),
        ("usd_per_million", "dollars per million requests", "$", less, ""),
        ("usd_per_million_tokens", "dollars per million output tokens", "$", less, ""),
        ("count", "instances", "", less if alike else "", "{}_count"),
        ("highest_rate_per_s", "highest rate of one instance", "/s", rate_better, "{}_rate_per_s"),
        ("p50_s", f"p50{first or ' latency'} under load", "s", less, ""),
        ("p99_s", f"p99{first or ' latency'} under load", "s", less, ""),
        ("tpot_p99_s", "p99 of each further token", "s", less, ""),
        ("tokens_per_s", "tokens per second of all", "/s", "", ""),
    )
    return known(
        compared(f"capacity.{field}", label, unit, best, better=better, ends=ends, origin="origin")
        for field, label, unit, better, ends in named
    )


def _best(analyses: Sequence[Analysis]) -> tuple[CapacityOption | None, ...]:
    return tuple(None if one.capacity is None else one.capacity.best_option for one in analyses)


def headline(labels: Sequence[str], analyses: Sequence[Analysis]) -> tuple[str, str]:
    """Which plan costs least, and how sure that is; empty where not all records are of one."""
    if not all(one.capacity for one in analyses):
        return "", ""
    same, best = same_question(analyses), _best(analyses)
    priced = [
        (usd, at)
        for at, option in enumerate(best)
        if option is not None and (usd := option.usd_per_month if same else option.usd_per_million) is not None
    ]
    without = [label for label, option in zip(labels, best, strict=True) if option is None]
    if len(without) == len(labels):
        return "In no record any instance keeps the limit.", ""
    none = f" No instance keeps the limit in {' and '.join(without)}." if without else ""
    if len(priced) < 2:
        kept = (
            f"{label}: {words.several(option)}, {dollars(option.usd_per_month)} a month."
            for label, option in zip(labels, best, strict=True)
            if option is not None
        )
        return f"{' '.join(kept)}{none}", ""
    ranked = sorted(priced)
    (usd, top), (_, second), (most, last) = ranked[0], ranked[1], ranked[-1]

    def say(usd: float) -> str:
        return f"{dollars(usd)} {'a month' if same else 'per million requests'}"

    if not usd or most / usd - 1 < SAME:
        return f"All cost the same: {_rented(best[top])}, {say(usd)}.{none}", ""
    other = labels[last] if len(ranked) == 2 else f"{labels[last]}, the most expensive"
    text = (
        f"{labels[top]} costs least: {_rented(best[top])}, {say(usd)}, against {_rented(best[last])}, "
        f"{say(most)}, of {other}, a factor of {times(most / usd)}.{none}"
    )
    return text, _certainty(analyses, top, second, same=same)


def _certainty(analyses: Sequence[Analysis], top: int, second: int, *, same: bool) -> str:
    ends = [_ends(analyses[at], same=same) for at in (top, second)]
    if None in (ends[0][1], ends[1][0]):
        return ""
    # Both are asked for above: what is left is known.
    return certainty((ends[0][1] or 0.0) < (ends[1][0] or 0.0))


def _ends(analysis: Analysis, *, same: bool) -> tuple[float | None, float | None]:
    """The ends of the dollars that are compared; those of a million requests are in the ratio of a month's."""
    option = analysis.capacity.best_option if analysis.capacity is not None else None
    if option is None or option.usd_per_month is None:
        return None, None
    scale: float | None = 1.0
    if not same:
        scale = option.usd_per_million / option.usd_per_month if option.usd_per_million is not None else None
    low, high = (
        None if end is None or scale is None else end * scale
        for end in (option.low_usd_per_month, option.high_usd_per_month)
    )
    return low, high


def _rented(option: CapacityOption | None) -> str:
    return UNKNOWN if option is None else words.several(option)


def notes(analyses: Sequence[Analysis]) -> tuple[str, ...]:
    """What a reader must know before comparing such records."""
    if not any(one.capacity for one in analyses):
        return ()
    found = []
    # Of a model that generates they are a decode step's, which is said already.
    if any(one.capacity and not one.generation for one in analyses):
        found.append("operators, plans and verdict are those of one batch")
    if not same_question(analyses):
        found.append(
            "the plans differ in traffic or limit: compare dollars per million requests, not dollars a month"
        )
    if not all(one.capacity for one in analyses):
        found.append("not every record plans a capacity")
    return tuple(found)
