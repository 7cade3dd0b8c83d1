"""Ways to serve the traffic, ranked: the answer first, each other one with why it is not the answer."""

from __future__ import annotations

from analyzer.decision.error_components import ErrorComponent, ratio
from analyzer.decision.ranking import by_ratio
from analyzer.figures import Figure, seen_as
from analyzer.record.capacity import CapacityOption, CapacityResult
from analyzer.record.outcome import Answer, RankedWay, WhyNot
from analyzer.report.capacity_words import details, loads, nearest, sentence


def rank_services(result: CapacityResult, *, named: bool) -> tuple[Answer | None, tuple[RankedWay, ...]]:
    """Return the answer and all options, the answer's first.

    Where nothing keeps the limit at any count it is what comes nearest, with its least latency; None where
    nothing runs. ``named``: whether the user chose the GPUs.
    """
    best = result.best_option
    at = nearest(result) if best is None else result.best
    ways = [_way(option, at == place, result, named=named) for place, option in enumerate(result.options)]
    if at is None or ways[at].latency_s is None:
        return None, tuple(ways)
    first = ways.pop(at)
    sentences = (sentence(result), *(details(result) if best is None else ()))
    return seen_as(Answer, first, objective="cost", sentence=" ".join(sentences)), (first, *ways)


def _way(option: CapacityOption, first: bool, result: CapacityResult, *, named: bool) -> RankedWay:
    seen = loads(result, result.options.index(option)) if not option.feasible else None
    late = (load.latency_s(result.percentile) for load in seen.loads) if seen is not None else ()
    return seen_as(
        RankedWay,
        option,
        plan=option.kind,
        batch=option.max_batch,
        gpus=option.width if option.kind == "gpu" else 0,
        named=named and option.kind == "gpu",
        runs=option.feasible or seen is not None,
        meets=option.feasible,
        latency_s=min(filter(None, late), default=option.latency_s(result.percentile)),
        throughput_per_s=option.tokens_per_s
        or (result.rate_per_s * result.growth if option.feasible else None),
        usd_per_million=option.usd_per_million_tokens or option.usd_per_million,
        usd_origin=option.origin if option.usd_per_million is not None else "",
        usd_low_per_month=option.low_usd_per_month,
        usd_high_per_month=option.high_usd_per_month,
        why_not=None if first else _why_not(option, result.best_option, runs=seen is not None),
    )


def _why_not(option: CapacityOption, best: CapacityOption | None, *, runs: bool) -> WhyNot:
    if not option.feasible or best is None:
        return WhyNot(reason="limit" if runs else "fails", sentence=option.reason)
    ours, theirs = _dollars(best), _dollars(option)
    more = None if ours is None or theirs is None else ratio((theirs,), (ours,))
    if more is None:
        return WhyNot(reason="unknown", sentence="no price is known")
    return by_ratio(more, "the dollars", "expensive", named=True)


def _dollars(option: CapacityOption) -> ErrorComponent | None:
    """Return the dollars a month; how far the predictions for two machines err together is not known."""
    usd = option.usd_per_month
    if usd is None:
        return None
    low, high = (usd if end is None else end for end in (option.low_usd_per_month, option.high_usd_per_month))
    source = f"{option.provider} {option.instance} {option.width}"
    return ErrorComponent(resource="cpu", source=source, time=Figure.about(usd, low, high))
