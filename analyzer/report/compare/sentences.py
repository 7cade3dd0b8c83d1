"""Reporting: a comparison's answer in a few sentences, as the page shows it first."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from analyzer.record.analysis import Analysis, PlanResult
from analyzer.report import price_words
from analyzer.report.compare import capacity, generation
from analyzer.report.compare.comparison import SAME, Comparison, certainty, least, times
from analyzer.report.summary.figure_words import PLAN_TITLES, VERDICT_WORDS, joules, per_second
from analyzer.report.summary.plan_cards import best_plan
from analyzer.units import dollars, factor, seconds


# A prediction's interval is mostly the error of its device's constants, which cancels between two of them.
@dataclass(frozen=True, slots=True, kw_only=True)
class _Contender:
    """A record and its best plan."""

    label: str
    analysis: Analysis
    plan: PlanResult

    def predicted_like(self, other: _Contender) -> bool:
        """Whether both are predictions for the same devices."""
        devices = [
            (one.analysis.devices.cpu.name, one.analysis.devices.gpu and one.analysis.devices.gpu.name)
            for one in (self, other)
        ]
        return devices[0] == devices[1] and {self.plan.origin, other.plan.origin} == {"predicted"}


def headline(comparison: Comparison) -> tuple[str, str]:
    """Which record is the fastest and by how much; and how sure that is, empty where all are alike.

    Of models that generate it is about the request, of capacity plans about what is rented; the decode step or
    the batch, which all else is about, is a statement.
    """
    return _of_all(comparison) or _by_plans(comparison)


def _of_all(comparison: Comparison) -> tuple[str, str] | None:
    """Where all records are of one kind that has an answer of its own: that."""
    for kind in (capacity, generation):
        text, sure = kind.headline(comparison.labels, comparison.analyses)
        if text:
            return text, sure
    return None


def _by_plans(comparison: Comparison) -> tuple[str, str]:
    contenders = [
        _Contender(label=label, analysis=analysis, plan=plan)
        for label, analysis in zip(comparison.labels, comparison.analyses, strict=True)
        # Nobody is faster than a plan that takes no time at all, as one of a model without operators.
        if (plan := best_plan(analysis)) is not None and plan.latency_s > 0 and plan.throughput_per_s > 0
    ]
    if len(contenders) < 2:
        return "There is nothing to compare in time: fewer than two of the records hold a plan.", ""
    ranked = sorted(contenders, key=lambda contender: _time(comparison, contender.plan))
    top, bottom = ranked[0], ranked[-1]
    ratio = _time(comparison, bottom.plan) / _time(comparison, top.plan)
    if ratio - 1 < SAME:
        return f"All take the same: {_speed_words(comparison, top.plan)}.", ""
    others = bottom.label if len(ranked) == 2 else f"{bottom.label}, the slowest"
    leads = "is fastest" if comparison.one_batch else "has the highest throughput"
    best, worst = _speed_words(comparison, top.plan), _speed_words(comparison, bottom.plan)
    return (
        f"{top.label} {leads}: {best} against {worst} of {others}, a factor of {times(ratio)}.",
        _certainty(comparison, top, ranked[1], "" if len(ranked) == 2 else ", the next,"),
    )


def _time(comparison: Comparison, plan: PlanResult) -> float:
    """Less is better: the latency, or the time of one inference where the batches differ."""
    return plan.latency_s if comparison.one_batch else 1 / plan.throughput_per_s


def _speed_words(comparison: Comparison, plan: PlanResult) -> str:
    figure = seconds(plan.latency_s) if comparison.one_batch else per_second(plan.throughput_per_s)
    return f"{figure} ({plan.origin})"


def _certainty(comparison: Comparison, top: _Contender, second: _Contender, aside: str) -> str:
    """Whether the best plan's 90 % interval is apart from the next one's."""
    if top.predicted_like(second):
        return _of_shared_errors(comparison, top, second)
    # The interval is the latency's; of different batches it is turned into that of one inference.
    ends = [
        end * _time(comparison, plan) / plan.latency_s
        for plan, end in ((top.plan, top.plan.high_s), (second.plan, second.plan.low_s))
    ]
    return certainty(ends[0] < ends[1], f"{second.label}{aside}")


def _of_shared_errors(comparison: Comparison, top: _Contender, second: _Contender) -> str:
    """Return whether one prediction is below another for the same devices, where errors of one kind are shared.

    An error is that of an operator's type on a device and of what bounds it there: it moves both records'
    times by the same factor, so that only the difference of its shares counts. Errors of two kinds are
    independent, as in the decision between plans.
    """
    parts, others = _parts(top), _parts(second)
    whole, other_whole = (sum(time for time, _ in each.values()) for each in (parts, others))
    variance = 0.0
    for kind in parts.keys() | others.keys():
        (time, error), (other_time, other_error) = parts.get(kind, _NONE), others.get(kind, _NONE)
        variance += ((time / whole - other_time / other_whole) * max(error, other_error)) ** 2
    middle = _time(comparison, second.plan) / _time(comparison, top.plan)
    width = math.exp(math.sqrt(variance))
    interval = f"{factor(middle / width)} to {factor(middle * width)}"
    shared = f"both are predictions for the same devices and share errors, and their ratio is {interval}"
    return f"That is certain: {shared}." if middle / width > 1 else f"That is not certain: {shared}."


_NONE = (0.0, 0.0)


def _parts(contender: _Contender) -> dict[tuple[str, ...], tuple[float, float]]:
    """Return seconds and the half-width of the 90 % interval, as a logarithm, by kind of error."""
    plan, parts = contender.plan, dict[tuple[str, ...], tuple[float, float]]()

    def add(kind: tuple[str, ...], time_s: float, low_s: float | None, high_s: float | None) -> None:
        before, error = parts.get(kind, _NONE)
        own = math.log(high_s / low_s) / 2 if low_s and high_s else math.log(10)
        parts[kind] = (before + time_s, max(error, own))

    for operator in contender.analysis.operators:
        side = operator.placement if plan.name == "hybrid" else plan.name
        time = operator.cpu if side == "cpu" else operator.gpu
        if time is not None and time.time_s:
            add((side, operator.op_type, time.bound or ""), time.time_s, time.low_s, time.high_s)
    rest = plan.latency_s - sum(time for time, _ in parts.values())
    if rest > 0:
        add(("rest",), rest, plan.low_s, plan.high_s)
    return parts


def statements(comparison: Comparison) -> tuple[str, ...]:
    """The verdicts, what is cheapest and what takes least energy; those that the records can tell."""
    step = _step(comparison)
    # Of such records a token's or a request's dollars are asked for, not those of a decode step or a batch.
    cheapest: tuple[str, ...] = ()
    if not step:
        cheapest = (
            _least(comparison, "usd_per_million", "usd_origin", "costs least", "{} per million", dollars),
            _least(comparison, "energy_j", "energy_origin", "takes least energy", "{} for each", joules),
        )
    elif all(one.generation for one in comparison.analyses):
        cheapest = generation.cheapest(comparison.labels, comparison.analyses)
    verdicts = _verdicts(comparison)
    texts = (*cheapest, f"{step} {verdicts}") if step else (verdicts, *cheapest)
    return tuple(text for text in (*texts, *_prices(comparison)) if text)


def _prices(comparison: Comparison) -> tuple[str, ...]:
    """Which prices a record's dollars are, where they are not the usual ones."""
    told = (
        (label, price_words.statement(analysis))
        for label, analysis in zip(comparison.labels, comparison.analyses, strict=True)
    )
    return tuple(f"In {label}: {text}" for label, text in told if text)


def _step(comparison: Comparison) -> str:
    if _of_all(comparison) is None:
        return ""
    what = "decode step" if all(one.generation for one in comparison.analyses) else "batch"
    return f"One {what}: {_by_plans(comparison)[0]}"


def _verdicts(comparison: Comparison) -> str:
    words = [VERDICT_WORDS[one.verdict.device] for one in comparison.analyses]
    if len(set(words)) == 1:
        return f"The verdict is the same in all: {words[0]}."
    pairs = (f"{word} in {label}" for label, word in zip(comparison.labels, words, strict=True))
    return f"The verdict differs: {', '.join(pairs)}."


def _least(
    comparison: Comparison, field: str, origin: str, verb: str, words: str, figure: Callable[[float], str]
) -> str:
    """Say which record has the plan with the least of something, and which is the most."""
    candidates = [
        (value, at, plan)
        for at, analysis in enumerate(comparison.analyses)
        for plan in analysis.plans
        # A plan that does not fit runs nowhere, whatever it would cost.
        if (value := getattr(plan, field)) is not None and plan.fits and analysis.verdict.device is not None
    ]
    values: list[float | None] = [None] * len(comparison.labels)
    asides = [""] * len(comparison.labels)
    # Each record is run by the plan that is best of it, the first of equals.
    for value, at, plan in sorted(candidates, key=lambda each: each[0]):
        if values[at] is None:
            where = ", ".join(filter(None, (PLAN_TITLES[plan.name], getattr(plan, origin))))
            values[at], asides[at] = value, f" ({where})"
    return least(comparison.labels, values, verb, lambda value: words.format(figure(value)), asides)
