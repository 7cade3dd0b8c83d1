"""A604 to A606: budgets of a model that generates: its first token, each further one, tokens a second."""

from __future__ import annotations

from collections.abc import Iterator

from analyzer.checks.phrases import beyond
from analyzer.checks.registry import Diagnostic, Subject, rule
from analyzer.errors import UsageError
from analyzer.figures import Figure
from analyzer.record.generation import GenerationResult
from analyzer.units import digits, seconds

_FIX = "use a faster device (--gpu), more of them (--gpus), narrower types (--weights, --kv) or --launch graph"


@rule("A604", "over-ttft-budget", "error")
def over_ttft(subject: Subject) -> Iterator[Diagnostic]:
    """The time to the first token is above `max-ttft`.

    What:
        The time to the first token (TTFT) of a record of `analyze generate` is above the budget. Where only its
        90 % interval reaches above the budget, the finding is a warning: the prediction cannot tell. With a
        record of anything else the budget is an error of usage.

    Why:
        You set this limit. Whoever waits sees nothing until the first token.

    Fix:
        A shorter prompt, a smaller batch, a device with more arithmetic, more of them, or another budget.

    Example:
        [tool.analyzer.check]
        max-ttft = "500ms"
    """
    limit = subject.settings.max_ttft_s
    if limit is None:
        return
    told = _generation(subject, "max-ttft")
    yield from _late("the time to the first token", told.ttft, ("max-ttft", limit), told)


@rule("A605", "over-tpot-budget", "error")
def over_tpot(subject: Subject) -> Iterator[Diagnostic]:
    """The time of each further token is above `max-tpot`.

    What:
        The mean time of each token after the first (TPOT) of a record of `analyze generate` is above the
        budget. Where only its 90 % interval reaches above the budget, the finding is a warning: the prediction
        cannot tell. With a record of anything else the budget is an error of usage.

    Why:
        You set this limit. It is the pace at which text appears.

    Fix:
        A smaller batch, narrower weights, a device with more bandwidth, more of them, or another budget.

    Example:
        [tool.analyzer.check]
        max-tpot = "30ms"
    """
    limit = subject.settings.max_tpot_s
    if limit is None:
        return
    told = _generation(subject, "max-tpot")
    yield from _late("the time of each further token", told.tpot, ("max-tpot", limit), told)


@rule("A606", "below-token-rate", "error")
def below_rate(subject: Subject) -> Iterator[Diagnostic]:
    """The whole batch makes fewer tokens a second than `min-tokens-per-s`.

    What:
        The output tokens of the whole batch over the time of its request, prefill included, of a record of
        `analyze generate` are below the budget. Where only the 90 % interval reaches below the budget, the
        finding is a warning: the prediction cannot tell. With a record of anything else the budget is an error
        of usage.

    Why:
        You set this limit. Dollars a token follow from it.

    Fix:
        A larger batch where memory and the other limits allow it, or a faster device.

    Example:
        [tool.analyzer.check]
        min-tokens-per-s = 500
    """
    limit = subject.settings.min_tokens_per_s
    if limit is None:
        return
    told = _generation(subject, "min-tokens-per-s")
    low, high = told.rate.low, told.rate.high
    if low >= limit:
        return
    certain = high < limit
    verb = beyond("below", certain=certain, expected=told.tokens_per_s < limit, plural=True)
    yield Diagnostic(
        message=f"the tokens per second {verb} min-tokens-per-s {digits(limit)}: {digits(told.tokens_per_s)} "
        f"({digits(low)} to {digits(high)}, {told.origin}) at batch {told.batch}",
        fix=f"use a larger batch; or {_FIX}; or a lower min-tokens-per-s",
        certain=certain,
    )


def _generation(subject: Subject, name: str) -> GenerationResult:
    told = subject.analysis.generation
    if told is None:
        # As for a plan that is not there: a budget for what no record holds would pass for ever.
        raise UsageError(
            f"{name}: this analysis is of no model that generates",
            hint="give a record of `analyze generate`, or use max-latency",
        )
    return told


def _late(what: str, time: Figure, budget: tuple[str, float], told: GenerationResult) -> Iterator[Diagnostic]:
    name, limit = budget
    if time.high <= limit:
        return
    # By the whole interval, as a latency: the middle alone would fail a build that a measurement passes.
    certain = time.low > limit
    verb = beyond("above", certain=certain, expected=time.value > limit)
    interval = f"{seconds(time.low)} to {seconds(time.high)}, {told.origin}"
    yield Diagnostic(
        message=f"{what} {verb} {name} {seconds(limit)}: {seconds(time.value)} ({interval}) "
        f"at batch {told.batch}",
        fix=f"use a smaller batch; or {_FIX}; or a higher {name}",
        certain=certain,
    )
