"""A60x: one table of budgets, of ``[tool.analyzer.check]`` and ``--slo``."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from analyzer.checks.device_answers import (
    PLANS,
    DeviceAnswer,
    bytes_moved,
    device_answers,
    forced_operators,
    operator_label,
    target_plan,
    time_in_plan,
    total,
)
from analyzer.checks.placement import COPIES, copies_inside
from analyzer.checks.registry import Diagnostic, Subject, rule
from analyzer.errors import UsageError
from analyzer.figures import Figure
from analyzer.options import GateOptions
from analyzer.record.analysis import Analysis, PlanResult
from analyzer.record.capacity import CapacityOption, CapacityResult
from analyzer.record.generation import GenerationResult
from analyzer.text import first_few, plural
from analyzer.units import count, digits, dollars, seconds, share

Words = Callable[[float], str]

# The part of a record that a budget is about: what an analysis without it is, and what to do.
_PARTS = {
    "generation": ("is of no model that generates", "give a record of `analyze generate`, or use max-latency"),
    "capacity": ("plans no capacity", "give a record of `analyze capacity`, or drop the budget"),
}
_FASTER = (
    "use a faster device (--gpu), more of them (--gpus), narrower types (--weights, --kv) or --launch graph"
)
_LOOSER = (
    "plan with a longer limit, other devices (--gpu, --cpu), narrower types (--precision) or larger batches"
)
# What is met exactly stays so, however its product was rounded (as in ``serving.search.needed``).
_ROUNDED = 1e-12


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading(Diagnostic):
    """A figure of a record that a budget limits; ``_judged`` writes the message of its finding.

    Attributes:
        what: The figure's name and verb (``the latency is``); without a figure all in front of the budget.
        figure: The value with its interval; None where there is none, so that the budget is not met.
        things: Names of what is counted, in place of a figure.
        unit: Of the value, where its words have none.
        detail: What the message says behind the figure.
        limit: In place of the budget's own; ``fix`` may name either as ``{limit}``.
    """

    message: str = ""
    what: str
    figure: Figure | None = None
    things: tuple[str, ...] | None = None
    unit: str = ""
    detail: str = ""
    limit: float | None = None


def budget(
    code: str, name: str, option: str, words: Words = seconds, *, limit_words: Words | None = None, of: str = ""
) -> Callable[[Callable[[Any], Iterator[Reading]]], Callable[[Subject], Iterator[Diagnostic]]]:
    """Register a row of the table, a function that reads what an option limits.

    The option is one of ``GateOptions`` or ``--slo``; below the limit of one that begins with ``min-`` a figure
    must not be, above that of others not. ``words`` write a value, and the limit unless ``limit_words`` do.
    ``of`` is the part of the record that the function takes; the subject by default.
    """
    attribute = next((key for key, one in GateOptions.declared.items() if one.name == option), "")

    def register(read: Callable[[Any], Iterator[Reading]]) -> Callable[[Subject], Iterator[Diagnostic]]:
        @functools.wraps(read)
        def check(subject: Subject) -> Iterator[Diagnostic]:
            limit = getattr(subject.settings, attribute) if attribute else subject.analysis.verdict.slo_s
            if limit is None:
                return
            part = getattr(subject.analysis, of) if of else subject
            if part is None:
                # A budget for what no record holds would pass for ever.
                what, hint = _PARTS[of]
                raise UsageError(f"{option}: this analysis {what}", hint=hint)
            for reading in read(part):
                own = limit if reading.limit is None else reading.limit
                yield from _judged(reading, option, own, words, limit_words or words)

        return rule(code, name, "error")(check)

    return register


def _judged(
    reading: Reading, option: str, limit: float, words: Words, limit_words: Words
) -> Iterator[Diagnostic]:
    """Yield the finding of a figure that misses its limit, or may; nothing of one that keeps it."""
    budget, figure, things = f"{option} {limit_words(limit)}", reading.figure, reading.things
    if things is not None:
        if len(things) > limit:
            message = f"{reading.what} where {option} allows {limit}: {first_few(things)}"
            yield replace(reading, message=message)
        return
    if figure is None:
        yield replace(reading, message=f"{reading.what} {budget}{reading.detail}")
        return
    # By the whole interval: the middle alone would fail a build that a measurement passes.
    where, bound, (low, value, high) = "above", limit * (1 + _ROUNDED), figure.ends
    if option.startswith("min-"):  # turned over, so that missing it is being above there too
        where, bound, (low, value, high) = "below", limit * (_ROUNDED - 1), (-high, -value, -low)
    if high <= bound:
        return
    certain = low > bound
    what, _, verb = reading.what.rpartition(" ")
    if not certain:
        verb = f"{verb} probably" if value > bound else "may be"
    yield replace(
        reading,
        message=f"{what} {verb} {where} {budget}: {words(figure.value)}{reading.unit} "
        f"({words(figure.low)} to {words(figure.high)}, {figure.origin}){reading.detail}",
        fix=reading.fix.format(limit=limit),
        certain=certain,
    )


@budget("A601", "over-latency-budget", "max-latency")
def over_latency(subject: Subject) -> Iterator[Reading]:
    """The latency is above `max-latency`.

    What:
        The plan's latency, host to host, is above the budget, on any of the GPUs that were named. Where only
        its 90 % interval reaches above the budget, the finding is a warning: the prediction cannot tell. A
        plan that a device has no room for keeps no budget.

    Why:
        You set this limit. One that only people watch is passed a small change at a time.

    Fix:
        The other findings name what costs time. Otherwise a smaller batch, a faster device, or another
        budget.

    Example:
        [tool.analyzer.check]
        max-latency = "20ms"                 # the plan of the target device
        max-latency = { gpu = "20ms", cpu = "200ms" }
    """
    answers = device_answers(subject.analysis)
    for name, limit in subject.settings.max_latency_s.items():
        wanted = name or target_plan(subject.analysis)
        # The CPU's plan is the same for every GPU.
        for answer in answers[:1] if wanted == "cpu" else answers:
            plan = answer.plan(wanted)
            if plan is not None:
                yield _latency(subject.analysis, answer, plan, limit, "max-latency")
            elif answer.first:
                raise UsageError(
                    f"max-latency.{name}: this analysis has no plan {name!r}",
                    hint=f"it has {', '.join(other.name for other in answer.plans)}; choose a GPU with --gpu",
                )


@budget("A607", "over-slo", "--slo")
def over_slo(subject: Subject) -> Iterator[Reading]:
    """The latency is above `--slo`.

    What:
        The plan that the verdict is for, host to host, takes longer than the latency that `--slo` says must
        be met; so for each GPU that was named. Where only its 90 % interval reaches above the limit, the
        finding is a warning: the prediction cannot tell. A plan that a device has no room for meets no
        limit.

    Why:
        You set this limit: a request that takes longer is late however cheap the machine is.

    Fix:
        The other findings name what costs time. Otherwise a smaller batch, a faster device, a narrower type
        (`--precision fp16`), or another limit.

    Example:
        `analyze check model.py --gpu l4,t4 --slo 20ms`, where the T4 takes 31 ms.
    """
    limit = subject.analysis.verdict.slo_s or 0.0
    for answer in device_answers(subject.analysis):
        if answer.decided is not None:
            yield _latency(subject.analysis, answer, answer.decided, limit, "--slo")


def _latency(analysis: Analysis, answer: DeviceAnswer, plan: PlanResult, limit: float, option: str) -> Reading:
    # Without a GPU the plan is the CPU's alone.
    place = f" {'beside' if plan.name == 'cpu' else 'on'} {answer.gpu.name}" if answer.gpu is not None else ""
    slowest = max(analysis.operators, key=lambda op: time_in_plan(op, plan.name) or 0.0, default=None)
    slowest = slowest if answer.first else None
    what, late = f"the {PLANS[plan.name]}{place}", plan.fits and plan.latency_s > limit
    longest = f"; {operator_label(slowest)} takes longest" if slowest is not None else ""
    return Reading(
        what=f"the latency of {what} is" if plan.fits else f"{what} does not keep",
        figure=plan.latency if plan.fits else None,
        detail=longest if plan.fits else f": {answer.holder(plan)} has no room for it",
        limit=limit,
        operator=slowest,
        fix=f"see the other findings; or use a smaller batch, a faster device (--gpu) or a higher {option}",
        seconds=plan.latency_s - limit if late else None,
        device=answer.slug,
    )


@budget("A602", "over-cpu-operator-budget", "max-cpu-operators")
def over_cpu_operators(subject: Subject) -> Iterator[Reading]:
    """More operators are forced to the CPU than `max-cpu-operators`.

    What:
        Counts the operators that ONNX Runtime's CUDA session has to run on the CPU (A101). Shape
        arithmetic, which it keeps there on purpose, does not count; operators that `ignore` sets aside do.

    Why:
        You set this limit. With `ignore = ["A101"]` it is the way to allow what is there and no more.

    Fix:
        See A101 for each operator, or raise the budget.

    Example:
        [tool.analyzer.check]
        max-cpu-operators = 2
    """
    forced = forced_operators(subject.analysis)
    yield Reading(
        operator=next(iter(forced), None),
        what=plural(len(forced), "CPU operator"),
        things=tuple(map(operator_label, forced)),
        fix="bring them to the GPU (see A101), or raise max-cpu-operators",
        seconds=total(op.cpu.time_s for op in forced),
        bytes=bytes_moved(forced),
    )


@budget("A603", "over-copy-budget", "max-copies")
def over_copies(subject: Subject) -> Iterator[Reading]:
    """There are more copies inside the graph than `max-copies`.

    What:
        Counts every copy between CPU and GPU that ONNX Runtime inserts inside the graph, also those of
        shape values (A103). Copies of the model's inputs and outputs do not count.

    Why:
        You set this limit. One that only people watch is passed a small change at a time.

    Fix:
        See A102, or raise the budget.

    Example:
        [tool.analyzer.check]
        max-copies = 0
    """
    items = copies_inside(subject.analysis)
    yield Reading(
        what=f"{plural(len(items), 'copy')} inside the graph",
        things=tuple(f"{transfer.tensor} {COPIES[transfer.direction]}" for transfer in items),
        fix="bring the CPU's operators to the GPU (see A102), or raise max-copies",
        seconds=sum(transfer.time_s for transfer in items),
        bytes=sum(transfer.bytes for transfer in items),
    )


@budget("A604", "over-ttft-budget", "max-ttft", of="generation")
def over_ttft(result: GenerationResult) -> Iterator[Reading]:
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
    yield Reading(
        what="the time to the first token is",
        figure=result.ttft,
        detail=f" at batch {result.batch}",
        fix=f"use a smaller batch; or {_FASTER}; or a higher max-ttft",
    )


@budget("A605", "over-tpot-budget", "max-tpot", of="generation")
def over_tpot(result: GenerationResult) -> Iterator[Reading]:
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
    yield Reading(
        what="the time of each further token is",
        figure=result.tpot,
        detail=f" at batch {result.batch}",
        fix=f"use a smaller batch; or {_FASTER}; or a higher max-tpot",
    )


@budget("A606", "below-token-rate", "min-tokens-per-s", digits, of="generation")
def below_token_rate(result: GenerationResult) -> Iterator[Reading]:
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
    yield Reading(
        what="the tokens per second are",
        figure=result.rate,
        detail=f" at batch {result.batch}",
        fix=f"use a larger batch; or {_FASTER}; or a lower min-tokens-per-s",
    )


def _as_written(limit: float) -> str:
    return f"{limit:,.15g}"


def _dollars(usd: float) -> str:
    # A slow end that keeps the limit at no count has no price.
    return "no price" if usd == math.inf else dollars(usd)


def _requests(rate: float) -> str:
    # Whole above a thousand, as dollars are: three digits would hide what is a few requests short.
    return f"{rate:,.0f}" if rate >= 1000 else digits(rate)


@budget(
    "A608",
    "over-monthly-budget",
    "max-usd-per-month",
    _dollars,
    limit_words=lambda limit: f"${_as_written(limit)}",
    of="capacity",
)
def over_dollars(result: CapacityResult) -> Iterator[Reading]:
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
    option = result.best_option
    if option is None:
        yield _not_served(result)
        return
    usd, low, high = option.usd_per_month, option.low_usd_per_month, option.high_usd_per_month
    if usd is None:
        raise UsageError(
            f"max-usd-per-month: the price of {option.instance or option.device} is not known",
            hint="plan with --prices, a list of your own instances, or drop the budget",
        )
    yield Reading(
        what="the dollars a month are",
        figure=Figure.about(
            usd, usd if low is None else low, math.inf if high is None else high, option.origin
        ),
        detail=f" for {_instances(option)}",
        fix=f"{_LOOSER}; or less --headroom, another --pricing or a higher max-usd-per-month",
    )


@budget("A609", "below-request-rate", "min-rate", _requests, limit_words=_as_written, of="capacity")
def below_request_rate(result: CapacityResult) -> Iterator[Reading]:
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
    option = result.best_option
    if option is None:
        yield _not_served(result)
        return
    # An end that a foreign record lacks says nothing for certain: it is no rate that anything takes.
    rate, low, high = (
        option.highest_rate_per_s or 0.0,
        option.low_rate_per_s or 0.0,
        option.high_rate_per_s or 0.0,
    )
    up = ((option.count or 0) - result.spare) / (1 + result.headroom)
    limit = seconds(result.limit_s)
    if result.requests != "inference":
        limit += " to the first token"
        limit += f" and {seconds(result.tpot_limit_s)} to each further one" if result.tpot_limit_s else ""
    spare = f", {count(result.spare)} down" if result.spare else ""
    yield Reading(
        what=f"the rate within {limit} is",
        figure=Figure.about(up * rate, up * low, up * high, option.origin),
        unit=" requests/s",
        detail=f" of {_instances(option)}{spare}, with {share(result.headroom)} headroom",
        fix="more instances (`analyze capacity` with --rate {limit:.15g}); "
        f"or {_LOOSER}; or a lower min-rate",
    )


def _not_served(result: CapacityResult) -> Reading:
    looked, limit = plural(len(result.options), "instance type"), seconds(result.limit_s)
    return Reading(what="nothing keeps", detail=f": of {looked} none keeps {limit} at any number", fix=_LOOSER)


def _instances(option: CapacityOption) -> str:
    return f"{count(option.count)} x {option.instance or option.device}"
