"""A608 and A609: budgets of a service: dollars a month, and the requests a second that it takes in time."""

from __future__ import annotations

import math
from collections.abc import Iterator

from analyzer.checks.phrases import beyond
from analyzer.checks.registry import Diagnostic, Subject, rule
from analyzer.errors import UsageError
from analyzer.record.capacity import CapacityOption, CapacityResult
from analyzer.text import plural
from analyzer.units import count, digits, dollars, seconds, share

_FIX = "plan with a longer limit, other devices (--gpu, --cpu), narrower types (--precision) or larger batches"

# What is met exactly stays so, however its product was rounded (as in ``serving.search.needed``).
_ROUNDED = 1e-12


@rule("A608", "over-monthly-budget", "error")
def over_dollars(subject: Subject) -> Iterator[Diagnostic]:
    """The service costs more a month than `max-usd-per-month`.

    What:
        The dollars a month of the cheapest instances that keep the limit, all of them and the spare ones with
        them, of a record of `analyze capacity` are above the budget; so they are where no instance keeps the
        limit. Where only the 90 % interval reaches above the budget, the finding is a warning: the prediction
        cannot tell. With a model, or a record of anything else, the budget is an error of usage.

    Why:
        You set this limit. A model that grows a little at a time is paid for every month.

    Fix:
        A quicker model, a longer limit of latency, less headroom, another way of paying, or another budget.

    Example:
        [tool.analyzer.check]
        max-usd-per-month = 2000
    """
    limit = subject.settings.max_usd_per_month
    if limit is None:
        return
    told = _capacity(subject, "max-usd-per-month")
    budget = f"max-usd-per-month {_asked_dollars(limit)}"
    option = told.best_option
    if option is None:
        yield _none(told, budget)
        return
    usd = option.usd_per_month
    if usd is None:
        raise UsageError(
            f"max-usd-per-month: nobody knows the price of {option.instance or option.device}",
            hint="plan with --prices, a list of your own instances, or drop the budget",
        )
    # A slow end that keeps the limit at no count has no price: no budget is kept there.
    low = usd if option.low_usd_per_month is None else option.low_usd_per_month
    high = math.inf if option.high_usd_per_month is None else option.high_usd_per_month
    kept = limit * (1 + _ROUNDED)
    if max(usd, high) <= kept:
        return
    # By the whole interval, as a latency: the middle alone would fail a build that a measurement passes.
    certain = low > kept
    verb = beyond("above", certain=certain, expected=usd > kept, plural=True)
    ends = f"{dollars(low)} to {'no price' if high == math.inf else dollars(high)}"
    yield Diagnostic(
        message=f"the dollars a month {verb} {budget}: {dollars(usd)} ({ends}, {option.origin}) "
        f"for {_instances(option)}",
        fix=f"{_FIX}; or less --headroom, another --pricing or a higher max-usd-per-month",
        certain=certain,
    )


@rule("A609", "below-request-rate", "error")
def below_rate(subject: Subject) -> Iterator[Diagnostic]:
    """The planned instances take fewer requests a second within the limit than `min-rate`.

    What:
        The highest rate of one instance within the limit of a record of `analyze capacity`, times the planned
        number without the spare ones, over 1 + headroom, is below the budget; so it is where no instance keeps
        the limit. Where only the 90 % interval reaches below the budget, the finding is a warning: the
        prediction cannot tell. With a model, or a record of anything else, the budget is an error of usage.

    Why:
        You set this limit: what is rented must take the traffic that is promised, at the latency that is.

    Fix:
        More instances (`analyze capacity` with --rate N), a quicker model, or a longer limit of latency.

    Example:
        [tool.analyzer.check]
        min-rate = 3000
    """
    limit = subject.settings.min_rate
    if limit is None:
        return
    told = _capacity(subject, "min-rate")
    budget = f"min-rate {_asked(limit)}"
    option = told.best_option
    if option is None:
        yield _none(told, budget)
        return
    # A low end that is missing is that of a foreign record: what is not known is no rate that anything takes.
    up = ((option.count or 0) - told.spare) / (1 + told.headroom)
    rate, low, high = (
        up * (per_s or 0.0)
        for per_s in (option.highest_rate_per_s, option.low_rate_per_s, option.high_rate_per_s)
    )
    kept = limit * (1 - _ROUNDED)
    if min(low, rate) >= kept:
        return
    # An end that a foreign record lacks says nothing for certain.
    certain = max(high, rate) < kept
    verb = beyond("below", certain=certain, expected=rate < kept)
    spare = f", {count(told.spare)} down" if told.spare else ""
    yield Diagnostic(
        message=f"the rate within {_limits(told)} {verb} {budget}: {_rate(rate)} requests/s "
        f"({_rate(low)} to {_rate(high)}, {option.origin}) "
        f"of {_instances(option)}{spare}, with {share(told.headroom)} headroom",
        fix=f"more instances (`analyze capacity` with --rate {_asked(limit, separator='')}); or {_FIX}; "
        "or a lower min-rate",
        certain=certain,
    )


def _limits(told: CapacityResult) -> str:
    """What the rate is held to: of a model that generates, for the first token and for each further one."""
    limit = seconds(told.limit_s)
    if told.requests == "inference":
        return limit
    further = "" if told.tpot_limit_s is None else f" and {seconds(told.tpot_limit_s)} to each further one"
    return f"{limit} to the first token{further}"


def _capacity(subject: Subject, name: str) -> CapacityResult:
    told = subject.analysis.capacity
    if told is None:
        # As for a plan that is not there: a budget for what no record holds would pass for ever.
        raise UsageError(
            f"{name}: this analysis plans no capacity",
            hint="give a record of `analyze capacity`, or drop the budget",
        )
    return told


def _none(told: CapacityResult, budget: str) -> Diagnostic:
    looked = plural(len(told.options), "instance type")
    return Diagnostic(
        message=f"nothing keeps {budget}: of {looked} none keeps {seconds(told.limit_s)} at any number",
        fix=_FIX,
    )


def _instances(option: CapacityOption) -> str:
    return f"{count(option.count)} x {option.instance or option.device}"


def _asked(limit: float, *, separator: str = ",") -> str:
    """A budget as it was written."""
    return f"{limit:{separator}.15g}"


def _asked_dollars(limit: float) -> str:
    return f"${_asked(limit)}"


def _rate(value: float) -> str:
    # Whole above a thousand, as dollars are: three digits would hide what is a few requests short.
    return f"{value:,.0f}" if value >= 1000 else digits(value)
