"""Reporting: a comparison's answer in a few sentences, as the page shows it first."""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter

from analyzer.record.analysis import PlanResult
from analyzer.record.generation import GenerationResult
from analyzer.report import capacity_words, figure_text
from analyzer.report.compare.comparison import ComparedFigure, Comparison
from analyzer.report.compare.figures import of_plans, same_service
from analyzer.report.figure_text import PLAN_TITLES, VERDICT_WORDS
from analyzer.report.generation_text import rate
from analyzer.report.plan_cards import best_plan
from analyzer.units import dollars, factor, seconds, share

# Two figures that differ by less read the same in the three digits that are printed.
_SAME = 0.005


def headline(comparison: Comparison) -> tuple[str, str]:
    """Return which record is first and by how much; and how sure that is, empty where all are alike.

    Of models that generate it is about the request, of capacity plans about what is rented; the decode step or
    the batch, which all else is about, is a statement.
    """
    if all(one.capacity for one in comparison.analyses):
        return _service(comparison)
    if all(one.generation for one in comparison.analyses):
        return _ranked(
            comparison,
            comparison.figure("generation.tokens_per_s"),
            ("makes most tokens a second", "the slowest", "All make as many tokens a second"),
            lambda at: _request(comparison.analyses[at].generation),
        )
    return _plans(comparison)


def _ranked(
    comparison: Comparison,
    figure: ComparedFigure | None,
    phrases: tuple[str, str, str],
    words: Callable[[int], str],
) -> tuple[str, str]:
    """Return which record is first by a figure, which last, and how sure that is; empty where none can be said.

    ``phrases`` say what the first record does, what the last of more than two is, and what all do where none is
    ahead; ``words`` write a record's figure.
    """
    labels = comparison.labels
    if figure is None or len(order := figure.order) < 2:
        return "", ""
    (top, second, *more), last = order, order[-1]
    verb, worst, same = phrases
    low, high = sorted((figure.values[top] or 0.0, figure.values[last] or 0.0))
    # Nothing is so many times as much as nothing.
    ratio = high / low if low else 1.0
    if ratio - 1 < _SAME:
        return same and f"{same}: {words(top)}.", ""
    # Without the x that a factor is written with elsewhere; a factor of 1.0 would say nothing.
    by = (
        f"a factor of {factor(ratio).removesuffix('x')}"
        if ratio >= 1.1
        else f"a difference of {share(ratio - 1)}"
    )
    text = (
        f"{labels[top]} {verb}: {words(top)} against {words(last)} of {labels[last]}"
        f"{f', {worst}' if more and worst else ''}, {by}."
    )
    if (apart := figure.apart(top, second)) is None:
        return text, ""
    more_of, less_of = (top, second) if figure.better == "more" else (second, top)
    if (ends := figure.ratio(more_of, less_of)) is not None:
        interval = " to ".join(map(factor, ends))
        shared = f"both are predictions for the same devices and share errors, and their ratio is {interval}"
        return text, f"That is {'' if apart else 'not '}certain: {shared}."
    both = f"its 90 % interval and that of {labels[second]}{', the next,' if more else ''}"
    return text, f"That is {'' if apart else 'not '}certain: {both} {'do not ' if apart else ''}overlap."


def _service(comparison: Comparison) -> tuple[str, str]:
    """Return which plan costs least: a month, or a request where they are for other traffic."""
    options = [one.capacity and one.capacity.best_option for one in comparison.analyses]
    month = same_service(comparison.analyses)

    def words(at: int) -> str:
        option = options[at]
        if not option:
            return ""
        usd, unit = (
            (option.usd_per_month, "a month") if month else (option.usd_per_million, "per million requests")
        )
        return f"{capacity_words.several(option)} for {dollars(usd)} {unit}"

    without = [label for label, option in zip(comparison.labels, options, strict=True) if not option]
    if len(without) == len(options):
        return "In no record any instance keeps the limit.", ""
    figure = comparison.figure("capacity.usd_per_month" if month else "capacity.usd_per_million")
    text, sure = _ranked(comparison, figure, ("costs least", "the most expensive", "All cost the same"), words)
    alone = (f"{label}: {words(at)}." for at, label in enumerate(comparison.labels) if options[at])
    none = f" No instance keeps the limit in {' and '.join(without)}." if without else ""
    return f"{text or ' '.join(alone)}{none}", sure


def _request(one: GenerationResult | None) -> str:
    if one is None:
        return ""
    return f"{rate(one.tokens_per_s)} tokens/s, first token after {seconds(one.ttft_s)} ({one.origin})"


def _plans(comparison: Comparison) -> tuple[str, str]:
    """Return which record's best plan is the fastest."""
    # Nobody is faster than a plan that takes no time at all, as one of a model without operators.
    plans = [
        plan if (plan := best_plan(one)) and plan.latency_s > 0 and plan.throughput_per_s > 0 else None
        for one in comparison.analyses
    ]
    batch = comparison.one_batch
    figure = of_plans(comparison.analyses, plans, "latency_s" if batch else "throughput_per_s")
    verb = "is fastest" if batch else "has the highest throughput"
    text, sure = _ranked(
        comparison,
        figure,
        (verb, "the slowest", "All take the same"),
        lambda at: f"{figure.text(figure.values[at])} ({figure.origin(at)})",
    )
    if not text:
        return "There is nothing to compare in time: fewer than two of the records hold a plan.", ""
    return text, sure


def statements(comparison: Comparison) -> tuple[str, ...]:
    """Return the verdicts, what is cheapest and what takes least energy; those that the records can tell."""
    texts, analyses = [_verdicts(comparison)], comparison.analyses
    if all(one.generation for one in analyses):
        texts = [
            _least(comparison, "generation.usd_per_million_tokens", "costs least", "per million tokens"),
            _least(comparison, "generation.joules_per_token", "takes least energy", "a token"),
            f"One decode step: {_plans(comparison)[0]} {texts[0]}",
        ]
    elif all(one.capacity for one in analyses):
        # Of such records a request's dollars are asked for, which the answer has, not those of a batch.
        texts = [f"One batch: {_plans(comparison)[0]} {texts[0]}"]
    else:
        texts += [
            _least(comparison, "usd_per_million", "costs least", "per million"),
            _least(comparison, "energy_j", "takes least energy", "for each"),
        ]
    # Which prices a record's dollars are, where they are not the usual ones.
    for label, one in zip(comparison.labels, analyses, strict=True):
        prices = figure_text.statement(one)
        texts.append(prices and f"In {label}: {prices}")
    return tuple(filter(None, texts))


def _verdicts(comparison: Comparison) -> str:
    words = [VERDICT_WORDS[one.verdict.device] for one in comparison.analyses]
    if len(set(words)) == 1:
        return f"The verdict is the same in all: {words[0]}."
    pairs = (f"{word} in {label}" for label, word in zip(comparison.labels, words, strict=True))
    return f"The verdict differs: {', '.join(pairs)}."


def _least(comparison: Comparison, key: str, verb: str, unit: str) -> str:
    """Return which record takes the least by a figure, or has the plan that takes the least; else nothing."""
    figure, plans = comparison.figure(key), list[PlanResult | None]([None] * len(comparison.labels))
    if "." not in key:
        # Each record is run by the plan that is best of it; one that does not fit runs nowhere.
        fitting = (one.plans if one.verdict.device else () for one in comparison.analyses)
        priced = ([plan for plan in of if plan.fits and getattr(plan, key) is not None] for of in fitting)
        plans = [min(of, key=attrgetter(key), default=None) for of in priced]
        figure = of_plans(comparison.analyses, plans, key)

    def words(at: int) -> str:
        if figure is None:
            return ""
        plan = plans[at]
        where = ", ".join(filter(None, (PLAN_TITLES[plan.name], figure.origin(at)))) if plan else ""
        return f"{figure.text(figure.values[at])} {unit}{where and f' ({where})'}"

    return _ranked(comparison, figure, (verb, "", ""), words)[0]
