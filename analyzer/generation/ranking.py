"""Ways to run a request, ranked: the answer first, each other one with why it is not the answer."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from analyzer.decision.error_components import RESOURCES, ErrorComponent, ratio
from analyzer.decision.ranking import by_ratio
from analyzer.decision.reasons import short_name
from analyzer.figures import Way, seen_as
from analyzer.record.generation import GenerationOption, GenerationResult
from analyzer.record.outcome import Answer, RankedWay, WhyNot
from analyzer.text import listed
from analyzer.units import byte_count, factor, seconds


def rank_requests(
    result: GenerationResult, device_name: str, named: Collection[str]
) -> tuple[Answer | None, tuple[RankedWay, ...]]:
    """Return the answer and all ways to run the request, the answer's first; None where the model fits nowhere.

    The least dollars of an output token come first. Another device is the answer where none that was named fits
    and keeps the limits; where nothing keeps them, it is what comes nearest.

    Args:
        result: Of the device that the record is about; ``devices`` has the others.
        device_name: Of that device.
        named: Slugs of the devices that the answer is wanted of: the GPUs, else the CPU.
    """
    own = seen_as(
        GenerationOption,
        result,
        name=device_name,
        kind="gpu" if result.gpus else "cpu",
        fits=result.memory.fits,
        memory_bytes=result.memory.total_bytes,
    )
    others = [one for one in result.devices if _setting(one) != _setting(own)]
    ways = [(_way(one, named=one.device in named), one) for one in (own, *others)]

    def order(pair: tuple[RankedWay, GenerationOption]) -> tuple[bool, bool, bool, bool, float, float, str]:
        way, _ = pair
        dollars = way.usd_per_million
        excess = max(_excess(result, way).values(), default=1.0)
        late = way.fits and not way.is_usable
        known = excess if late else dollars or 0.0
        return (
            not way.is_usable,
            not way.fits,
            way.device not in named,
            dollars is None and not late,
            known,
            way.latency_s or 0.0,
            way.device,
        )

    ways.sort(key=order)
    first, option = ways[0]
    if not first.fits:
        return None, tuple(replace(way, why_not=_why_not(way, None, result)) for way, _ in ways)
    objective = "latency" if first.usd_per_million is None else "cost"
    answer = seen_as(
        Answer, first, objective=objective, sentence=_sentence(first, option, alone=len(named) < 2)
    )
    return answer, (first, *(replace(way, why_not=_why_not(way, first, result)) for way, _ in ways[1:]))


def _setting(one: GenerationOption) -> tuple[str, int, str, str]:
    return one.device, one.gpus, one.weights, one.kv


def _way(one: GenerationOption, *, named: bool) -> RankedWay:
    dollars, request = one.usd_per_million_tokens, one.request
    way = seen_as(
        RankedWay,
        one,
        device_name=one.name,
        plan=one.kind,
        precision=one.weights,
        named=named or one.kind == "cpu",
        meets=one.meets_limits,
        **request.keys("latency_s"),
        throughput_per_s=one.tokens_per_s,
        usd_per_million=dollars,
        # Tokens a second follow from the request's time, dollars from them.
        usd_low_per_million=None if dollars is None else dollars * (request.low / request.value),
        usd_high_per_million=None if dollars is None else dollars * (request.high / request.value),
        usd_origin="" if dollars is None else "predicted",
    )
    # A CPU that is rented is another machine, with times of its own.
    return way if one.kind == "gpu" else way.priced_as(Way())


def _excess(result: GenerationResult, way: RankedWay) -> dict[str, float]:
    """Return how many times its limit each time takes, by the time's name; of those that have a limit."""
    pairs = {"TTFT": (way.ttft_s, result.ttft_limit_s), "TPOT": (way.tpot_s, result.tpot_limit_s)}
    return {name: time / limit for name, (time, limit) in pairs.items() if time is not None and limit}


def _sentence(way: RankedWay, option: GenerationOption, *, alone: bool) -> str:
    device = f"{way.gpus} x {short_name(way.device_name)}" if way.gpus else way.device_name
    who = f"{device}, {option.weights} weights, {option.kv} cache"
    times = f"the first token comes after {seconds(way.ttft_s)}, each further one after {seconds(way.tpot_s)}"
    if way.meets is None:
        return f"{who}: {times}."
    if way.meets:
        at = f" at batch {way.batch}" if (way.batch or 1) > 1 else ""
        return f"{who}, keeps the limits{at}: {times}."
    of = "" if alone else "of what was requested, "
    return f"Nothing keeps the limits; {of}{who} comes nearest: {times}."


def _why_not(way: RankedWay, answer: RankedWay | None, result: GenerationResult) -> WhyNot:
    if not way.fits or answer is None:
        each = f"{byte_count((way.memory_bytes or 0) / max(1, way.gpus))}{' each' if way.gpus > 1 else ''}"
        return WhyNot(reason="memory", sentence=f"it does not fit: it needs {each}")
    if way.meets is False:
        late = ((name, times) for name, times in _excess(result, way).items() if times > 1)
        sentence = listed(f"{name} is {factor(times)} its limit" for name, times in late)
        return WhyNot(reason="limit", sentence=sentence)
    if way.usd_per_million is None and answer.usd_per_million is not None:
        return WhyNot(reason="unknown", sentence="no price is known")
    priced = way.usd_per_million is not None and answer.usd_per_million is not None
    more = _ratio(way, answer, priced=priced)
    if more is None:
        return WhyNot(reason="unknown", sentence="its time is not known")
    measure, reason = ("the dollars", "expensive") if priced else ("the time", "slower")
    return by_ratio(more, measure, reason, named=way.named)


def _ratio(way: RankedWay, answer: RankedWay, *, priced: bool) -> tuple[float, float, float] | None:
    """Return the dollars of a token on a way over the answer's, with the interval; the times without prices.

    How far predictions of two devices err together is not known.
    """
    sides = []
    for one in (way, answer):
        if not one.latency:
            return None
        part = ErrorComponent(resource="gpu", source=f"{one.gpus} x {one.device}", time=one.latency)
        weight = (one.usd_per_million or 0.0) / one.latency.value if priced else 1.0
        sides.append(((part,), dict.fromkeys(RESOURCES, weight)))
    (over, over_weights), (under, under_weights) = sides
    return ratio(over, under, over_weights, under_weights)
