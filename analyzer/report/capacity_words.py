"""Reporting: which instances, how many, for how many dollars: in words and figures, as every format has it."""

from __future__ import annotations

from collections.abc import Iterator

from analyzer.figures import QueueLoad
from analyzer.record.capacity import CapacityOption, CapacityResult, InstanceLoads
from analyzer.report import figure_text
from analyzer.report.document import AnswerFigure
from analyzer.report.generation_text import rate
from analyzer.text import plural
from analyzer.units import HOURS_PER_MONTH, UNKNOWN, count, digits, dollars, factor, seconds, share, span

# What stands before the verdict of such a record, which is about one run of the model.
RUN = "One batch"
_POISSON = "Requests arrive independently of each other at one mean rate (Poisson arrivals)."
_TENSOR_PARALLEL = (
    "Tensor parallel (TP) 2: two GPUs share one copy of the model, each with a part of every layer. Each width "
    "that an instance has room for is a row of its own."
)
_TOKEN_DOLLARS = (
    "Dollars per million output tokens are those of the requests over the tokens of their answers: prompts are "
    "paid with them."
)
_SIDES = {"cpu": "without a GPU", "gpu": "with a GPU"}


def limited(plan: CapacityResult) -> str:
    """Return the limited statistic of the latency: ``p99``, ``mean``."""
    return "mean" if plan.percentile is None else f"p{plan.percentile:g}"


def limited_name(plan: CapacityResult) -> str:
    """Return that statistic's name: ``p99``, ``mean``; of generation ``p99 to the first token``."""
    return limited_latency(plan) if generates(plan) else limited(plan)


def generates(plan: CapacityResult) -> bool:
    """Return whether a request is a prompt that is answered, not one inference."""
    return plan.requests == "generation"


def limited_latency(plan: CapacityResult) -> str:
    """Return the same as a noun: ``p99``, ``mean latency``; for generation ``p99 to the first token``."""
    if plan.percentile is None:
        return "mean time to the first token" if generates(plan) else "mean latency"
    return f"{limited(plan)} to the first token" if generates(plan) else limited(plan)


def further(plan: CapacityResult) -> str:
    """Return the percentile of each further token told: the limited one, else the later of those known."""
    return "p50" if plan.percentile == 50 else "p99"


def further_s(plan: CapacityResult, point: CapacityOption | QueueLoad) -> float | None:
    """Return that time; None where no answer has further tokens."""
    return getattr(point, f"tpot_{further(plan)}_s") or None


def further_limit_s(plan: CapacityResult) -> float | None:
    """Return the limit of that time; None without one, or where it is of another percentile."""
    return plan.tpot_limit_s if further(plan) == limited(plan) else None


def limits(plan: CapacityResult) -> str:
    """Return the word for what must be kept: of a model that generates there may be two."""
    return "limits" if plan.tpot_limit_s is not None else "limit"


def requested(value: float) -> str:
    """Return a figure of the question as it was asked: ``2,000``, ``0.5``."""
    return f"{value:,.10g}"


def requests(value: float | None) -> str:
    """Return a rate that was worked out: ``1,220 requests/s``."""
    return f"{rate(value)} requests/s" if value is not None else UNKNOWN


def planned(plan: CapacityResult) -> float:
    """Return the rate that the instances are for, growth in it, headroom not."""
    return plan.rate_per_s * plan.growth


def device(option: CapacityOption) -> str:
    """Return the device that runs the model there."""
    return option.device_name or option.device


def runs_on(option: CapacityOption) -> str:
    """Return the same, with how many share one copy: ``NVIDIA L4, tensor parallel 2``."""
    return f"{device(option)}, tensor parallel {option.width}" if option.width > 1 else device(option)


def name(option: CapacityOption) -> str:
    """Return the counted unit: the instance, or a device that no price list has."""
    return option.instance or device(option)


def where(option: CapacityOption) -> str:
    """``g6.xlarge (AWS, NVIDIA L4)``."""
    if not option.instance:
        return f"{runs_on(option)} (in no price list)"
    whole = figure_text.whole(option, option.width) if option.feasible else ""
    return f"{option.instance} ({', '.join(filter(None, (option.provider, runs_on(option), whole)))})"


def place(option: CapacityOption) -> str:
    """Return where an instance is rented: ``AWS us-east-1``."""
    return f"{option.provider} {option.region}".rstrip()


def several(option: CapacityOption) -> str:
    """``3 x g6.xlarge``."""
    return f"{count(option.count)} x {name(option)}"


def batching(max_batch: int | None, max_delay_s: float | None) -> str:
    """Return how requests are batched, as a clause."""
    if max_batch is None:
        return ""
    if max_batch <= 1:
        return "each request alone"
    wait = f"each waits at most {seconds(max_delay_s)} for others" if max_delay_s else "no delay"
    return f"batches of at most {count(max_batch)}, {wait}"


def formed(plan: CapacityResult, option: CapacityOption) -> str:
    """Return how requests share a run, as a clause: batches, or sequences under continuous batching."""
    if not generates(plan):
        return batching(option.max_batch, option.max_delay_s)
    if option.max_batch is None:
        return ""
    if option.max_batch <= 1:
        return "one sequence at a time"
    return f"at most {count(option.max_batch)} sequences at once"


def way(pricing: str) -> str:
    """Return a way of paying: ``on demand``; one that is not ours as it is written."""
    return next((words for ours, words in figure_text.WAYS.items() if ours == pricing), pricing)


def subject(plan: CapacityResult) -> str:
    """Return question: ``2,000 requests/s, p99 within 50.0 ms, 20 % headroom, 1 spare instance, on demand``."""
    parts = [f"{requested(plan.rate_per_s)} requests/s{_of(_lengths(plan))}"]
    parts.append(f"{limited_name(plan)} within {seconds(plan.limit_s)}")
    if plan.tpot_limit_s is not None:
        parts.append(f"of each further token within {seconds(plan.tpot_limit_s)}")
    if plan.growth != 1:
        parts.append(f"growth {requested(plan.growth)}x")
    parts += [f"{share(plan.headroom)} headroom", plural(plan.spare, "spare instance")]
    return ", ".join(filter(None, (*parts, way(plan.pricing))))


def _lengths(plan: CapacityResult) -> str:
    if plan.prompt_tokens is None or plan.output_tokens is None:
        return ""
    return f"{_tokens(plan.prompt_tokens)} tokens in and {_tokens(plan.output_tokens)} out on average"


def _of(lengths: str) -> str:
    return f" of {lengths}" if lengths else ""


def _tokens(value: float) -> str:
    # The mean of a trace has decimals that tell nothing.
    return f"{value:,.0f}" if value >= 100 or value % 1 == 0 else digits(value)


def word(plan: CapacityResult) -> str:
    """Return the answer in a word or two."""
    option = plan.best_option
    return several(option) if option else f"no instance keeps the {limits(plan)}"


def loads(plan: CapacityResult, at: int) -> InstanceLoads | None:
    """Return this option's figures at other loads and limits."""
    return next((one for one in plan.instances if one.option == at), None)


def nearest(plan: CapacityResult, kind: str = "") -> int | None:
    """Return option without an answer that comes nearest to one: that keeps the least limit at some rate."""
    known = {one.option: one for one in plan.instances}
    result = [
        (_least(known.get(at), plan), at)
        for at, option in enumerate(plan.options)
        if not option.feasible and kind in ("", option.kind)
    ]
    return min(result)[1] if result else None


def _least(one: InstanceLoads | None, plan: CapacityResult) -> tuple[float, ...]:
    """Return the sort key of options: their least limit, their rate there, their least latency."""
    never = float("inf")
    if one is None:
        return never, 0, never
    within = [(point.limit_s, -point.rate_per_s) for point in one.limits if point.rate_per_s > 0]
    least = min((point.latency_s(plan.percentile) or never for point in one.loads), default=never)
    return (*min(within, default=(never, 0.0)), least)


def sentence(plan: CapacityResult) -> str:
    """Return the answer as a sentence."""
    option = plan.best_option
    if not plan.options:
        return "No instance was looked at."
    if option is None:
        other = f" and of {seconds(plan.tpot_limit_s)} for each further one" if plan.tpot_limit_s else ""
        number = len(_types(plan))
        none = f"None of {number} instance types" if number > 1 else f"{name(plan.options[0])} never"
        return f"{none} keeps a {limited_latency(plan)} of {seconds(plan.limit_s)}{other}."
    taken = option.latency_s(plan.percentile)
    allowed = ""
    if taken:
        interval = f" ({within})" if (within := _ends_of_latency(plan)) else ""
        allowed = f", {limited_name(plan)} {seconds(taken)}{interval} of the {seconds(plan.limit_s)} allowed"
    allowed += _further(plan, option)
    return f"{count(option.count)} x {where(option)}: {dollars(option.usd_per_month)} a month{allowed}."


def _ends_of_latency(plan: CapacityResult) -> str:
    """Return the interval of the best option's latency: ``7.9 to 13 ms``, ``7.9 ms or more``."""
    if plan.low_latency_s is None:
        return ""
    low, high = seconds(plan.low_latency_s), plan.high_latency_s
    return f"{low} or more" if high is None else span(low, seconds(high))


def _further(plan: CapacityResult, option: CapacityOption) -> str:
    taken, limit = further_s(plan, option), further_limit_s(plan)
    if taken is None:
        return ""
    of = f" of {seconds(limit)}" if limit is not None else ""
    return f", {further(plan)} of each further token {seconds(taken)}{of}"


def _types(plan: CapacityResult) -> dict[tuple[str, ...], bool]:
    """Return the number of instances, and whether any way to share the model among its GPUs answers."""
    result: dict[tuple[str, ...], bool] = {}
    for option in plan.options:
        kind = (option.provider, option.region, option.instance, option.device)
        result[kind] = result.get(kind, False) or option.feasible
    return result


def details(plan: CapacityResult) -> tuple[str, ...]:
    """Return the answer's details: interval, batches, spare and room; else the nearest option."""
    option = plan.best_option
    parts = (
        _why_none(plan)
        if option is None
        else (_interval(plan, option), _batches(plan, option), _given(plan, option), _room(plan, option))
    )
    return tuple(filter(None, parts))


def _interval(plan: CapacityResult, option: CapacityOption) -> str:
    if option.count is None:
        return ""
    ends = (
        (option.low_count, option.low_usd_per_month, "quick"),
        (option.high_count, option.high_usd_per_month, "slow"),
    )
    for number, _, end in ends:
        if number is None:
            at = f"At the {end} end of the 90 % interval of its times"
            return f"{at} no number of them keeps the {limits(plan)}."
    if option.low_count == option.high_count:
        return "The number is the same over the 90 % interval of its times."
    return (
        f"Over the 90 % interval of its times: {count(option.low_count)} to {count(option.high_count)} of "
        f"them, {dollars(option.low_usd_per_month)} to {dollars(option.high_usd_per_month)} a month."
    )


def _batches(plan: CapacityResult, option: CapacityOption) -> str:
    text = formed(plan, option)
    if text and generates(plan):
        text += " on each copy of the model"
        if option.mean_batch is not None:
            text += f", {digits(option.mean_batch, 2)} on average"
    return f"{text[0].upper()}{text[1:]}." if text else ""


def _given(plan: CapacityResult, option: CapacityOption) -> str:
    if not generates(plan) or option.tokens_per_s is None:
        return ""
    return f"All of them give {rate(option.tokens_per_s)} output tokens/s."


def _room(plan: CapacityResult, option: CapacityOption) -> str:
    if plan.spare:
        down = "One may fail" if plan.spare == 1 else f"{count(plan.spare)} may fail"
    else:
        left = "nothing serves" if option.count == 1 else f"{count((option.count or 0) - 1)} are left"
        down = f"None is a spare: when one fails, {left}"
    if option.room is None:
        return f"{down}."
    rooms = _rooms(plan, option)
    rise = f"room for another {share(option.room)} of traffic{f' ({rooms})' if rooms else ''}"
    return f"{down}: even then there is {rise}." if plan.spare else f"{rise[0].upper()}{rise[1:]}. {down}."


def _why_none(plan: CapacityResult) -> tuple[str, ...]:
    at = nearest(plan)
    if at is None:
        return ()
    option, one = plan.options[at], loads(plan, at)
    parts = [
        f"{where(option)} comes nearest: {option.reason.removesuffix('.')}."
        if option.reason
        else f"{where(option)} comes nearest."
    ]
    if one is not None:
        reached = next((point for point in one.limits if point.rate_per_s > 0), None)
        if reached is not None:
            first = " to the first token" if generates(plan) else ""
            parts.append(f"Within {seconds(reached.limit_s)}{first} one takes {requests(reached.rate_per_s)}.")
    return tuple(parts)


def figures(plan: CapacityResult) -> tuple[AnswerFigure, ...]:
    """Return all figures of the answer, the most wanted first; only who comes nearest where there is none."""
    option = plan.best_option
    # The cheapest of the answer's own side is the answer.
    sides = [kind for kind in ("gpu", "cpu") if option is None or option.kind != kind]
    return (*(_figures(plan, option) if option else ()), *(_side(plan, kind) for kind in sides))


def _figures(plan: CapacityResult, option: CapacityOption) -> tuple[AnswerFigure, ...]:
    def of(name: str, title: str, figure: str, note: str, interval: str = "") -> AnswerFigure:
        return AnswerFigure(name, title, figure, note, interval, option.origin)

    dated = f"{way(plan.pricing)}, price of {option.price_date or figure_text.UNDATED}"
    spares = f"{plural(plan.spare, 'spare')} among them" if plan.spare else "none of them a spare"
    down = f", with {count(plan.spare)} down" if plan.spare else ""
    above = f"above {requested(planned(plan))} requests/s{down}"
    counts = ends(count(option.low_count), count(option.high_count))
    months = ends(dollars(option.low_usd_per_month), dollars(option.high_usd_per_month))
    rates = ends(rate(option.low_rate_per_s), rate(option.high_rate_per_s))
    tokens = option.usd_per_million_tokens
    per_token = f", {dollars(tokens)} per million output tokens" if tokens is not None else ""
    a_million = f"{dollars(option.usd_per_million)} per million requests{per_token}; {dated}"
    within = f"within {seconds(plan.limit_s)}"
    if generates(plan):
        within += " to the first token"
        within += (
            f", {seconds(plan.tpot_limit_s)} for each further one" if plan.tpot_limit_s is not None else ""
        )
    return (
        of("instances", "Instances", count(option.count), spares, counts),
        of("$/month", "Dollars a month", dollars(option.usd_per_month), a_million, months),
        _first(plan, option),
        *_tokens_figures(plan, option),
        of("highest rate", "Highest rate of an instance", requests(option.highest_rate_per_s), within, rates),
        of("utilisation", "Utilisation", share(option.utilisation), _formed(plan, option)),
        of("room", "Room for more traffic", share(option.room), above, _rooms(plan, option)),
    )


def _rooms(plan: CapacityResult, option: CapacityOption) -> str:
    """Return the shares of further traffic that as many take at the ends of the highest rate of one."""

    def at(rate_per_s: float | None) -> str:
        if rate_per_s is None or option.count is None:
            return UNKNOWN
        more = (option.count - plan.spare) * rate_per_s / planned(plan) - 1
        return share(more) if more >= 0 else UNKNOWN

    return ends(at(option.low_rate_per_s), at(option.high_rate_per_s))


def _first(plan: CapacityResult, option: CapacityOption) -> AnswerFigure:
    """Return the latency that is limited: of a model that generates that of the first token."""
    taken = option.latency_s(plan.percentile)
    what, short = ("time to the first token", " TTFT") if generates(plan) else ("latency", "")
    title = f"{limited(plan)} {what}" if plan.percentile is not None else f"Mean {what}"
    return AnswerFigure(
        *(f"{limited(plan)}{short}", title, seconds(taken)),
        ", ".join(
            filter(None, (_ends_of_latency(plan), f"of {seconds(plan.limit_s)} allowed", "all instances up"))
        ),
        origin=option.origin if taken else "",
        bad=taken is not None and taken > plan.limit_s,
    )


def _tokens_figures(plan: CapacityResult, option: CapacityOption) -> Iterator[AnswerFigure]:
    """Yield what only a model that generates has: each further token, and all of them together."""
    taken, limit = further_s(plan, option), further_limit_s(plan)
    if taken is not None:
        allowed = f"of {seconds(limit)} allowed, " if limit is not None else ""
        yield AnswerFigure(
            *(f"{further(plan)} TPOT", f"{further(plan)} time of each further token", seconds(taken)),
            f"{allowed}all instances up",
            origin=option.origin,
            bad=limit is not None and taken > limit,
        )
    if option.tokens_per_s is not None:
        tokens = rate(option.tokens_per_s)
        note = f"of all instances at {requested(planned(plan))} requests/s"
        yield AnswerFigure("output tokens/s", "Output tokens a second", tokens, note, origin=option.origin)


def _formed(plan: CapacityResult, option: CapacityOption) -> str:
    if option.mean_batch is None or option.max_batch is None:
        return ""
    if generates(plan):
        return (
            f"of what could be finished; {digits(option.mean_batch, 2)} sequences run on average on each copy, "
            f"{count(option.max_batch)} at most"
        )
    if option.max_batch <= 1:
        return batching(option.max_batch, option.max_delay_s)
    formed = f"{digits(option.mean_batch, 2)} requests in a batch on average, {count(option.max_batch)} at most"
    # Busy all the time, and yet not full.
    return f"{formed}: fuller batches take more traffic" if option.mean_batch < option.max_batch / 2 else formed


def ends(low: str, high: str) -> str:
    """Return an interval of which one end may be no figure: none of them keeps the limit there."""
    if UNKNOWN not in (low, high):
        return span(low, high)
    return "" if low == high else " to ".join("none" if end == UNKNOWN else end for end in (low, high))


def _side(plan: CapacityResult, kind: str) -> AnswerFigure:
    """Return the cheapest on one side, beside the best."""
    name, title = f"cheapest {kind.upper()}", f"Cheapest {_SIDES[kind]}"
    option = next((one for one in plan.options if one.feasible and one.kind == kind), None)
    if option is not None:
        return AnswerFigure(name, title, several(option), _price(plan, option))
    at = nearest(plan, kind)
    if at is None:
        return AnswerFigure(name, title, "none", f"no instance {_SIDES[kind]} was looked at")
    near = plan.options[at]
    reason = f": {near.reason.removesuffix('.')}" if near.reason else ""
    note = f"no instance {_SIDES[kind]} keeps the {limits(plan)}; nearest is {where(near)}{reason}"
    return AnswerFigure(name, title, "none", note, bad=True)


def _price(plan: CapacityResult, option: CapacityOption) -> str:
    if not option.instance:
        return "in no price list"
    note = f"{option.provider}, {runs_on(option)}, {dollars(option.usd_per_month)} a month"
    months = ends(dollars(option.low_usd_per_month), dollars(option.high_usd_per_month))
    if option.high_count is None:
        months = f"at the slow end of its interval no number keeps the {limits(plan)}"
    note += f" ({months})" if months else ""
    first = plan.best_option
    if first is None or option is first or not first.usd_per_month or option.usd_per_month is None:
        return note
    return f"{note}, {factor(option.usd_per_month / first.usd_per_month)} the price of {several(first)}"


def refused(plan: CapacityResult) -> str:
    """Return how many instance types are no answer; empty where all are."""
    types = _types(plan)
    number = sum(not keeps for keeps in types.values())
    if not number or number == len(types):
        return ""
    do = "does" if number == 1 else "do"
    return (
        f"{number:,} of {plural(len(types), 'instance type')} {do} not keep the {limits(plan)} at any number."
    )


def notes(plan: CapacityResult) -> tuple[str, ...]:
    """Return the basis of the figures: the record's own notes, then the meaning of its words."""
    return tuple(dict.fromkeys((*plan.notes, *_meanings(plan))))


def _meanings(plan: CapacityResult) -> tuple[str, ...]:
    sized = (
        "The number of instances is the rate times growth times (1 + headroom), over the highest rate of one "
        "instance, rounded up, plus the spare ones. Latencies and utilisation are those of the rate with "
        "growth and all instances up; utilisation is the share of"
    )
    served = _sequences(plan, sized) if generates(plan) else _inferences(plan, sized)
    return (
        *served,
        f"A month has {HOURS_PER_MONTH:.0f} hours; all instances are paid for in all of them, the spare ones "
        "too. Prices are those of the instances alone: storage, network and licences are not in them.",
        *(
            f"Dollars follow from {kind}, of the day that stands beside each.{figure_text.REMARKS[ours]}"
            for ours, kind in figure_text.KINDS.items()
            if ours == plan.pricing
        ),
        "The ends of an interval are what the answer would be if every service time were at that end of its "
        "own 90 % interval; rate, prices and arrivals are taken as given.",
    )


def _inferences(plan: CapacityResult, sized: str) -> tuple[str, ...]:
    given = f"Requests arrive as {plan.arrivals} has them."
    return (
        "A request is one inference. Its latency runs from its arrival to its answer, waiting included.",
        _POISSON if plan.arrivals == "poisson" else given,
        "Waiting requests form the next batch, at most max_batch, when a server is free and either the batch "
        "is full or the oldest has waited max_delay. A server is one copy of the model.",
        "Each instance has a queue of its own and an equal share of the requests; the copies of the model on "
        "one instance share its queue. What happens on one instance does not affect another.",
        f"{sized} time in which a copy of the model is busy.",
    )


def _sequences(plan: CapacityResult, sized: str) -> tuple[str, ...]:
    """Return the same of a model that generates: what of a trace is followed the record's own notes say."""
    wide = any(option.width > 1 for option in plan.options)
    return (
        f"A request is a prompt and its answer{_of(_lengths(plan))}. The time to the first token (TTFT) runs "
        "from a request's arrival, waiting included; that of each further token (TPOT) is a request's mean "
        "over its tokens after the first.",
        _POISSON,
        "Continuous batching: a step makes the next token of every running sequence. Where a request waits, a "
        "slot is free and the cache has room for its prompt and all of its output, its prompt is read first, "
        "whole, while others wait. There are as many slots as sequences at most.",
        "Each copy of the model has a queue and a cache of its own and an equal share of the requests.",
        *((_TENSOR_PARALLEL,) if wide else ()),
        f"{sized} the highest rate that could be finished without any limit of time.",
        *((_TOKEN_DOLLARS,) if plan.output_tokens is not None else ()),
    )
