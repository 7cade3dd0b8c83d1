"""The answer in a sentence, and why each other way to run is not the answer."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from analyzer.decision.choice import Ratio
from analyzer.decision.contenders import Contender
from analyzer.decision.error_components import BURDENS, busy_s, largest_burden
from analyzer.decision.phrases import capital, interval, short_name
from analyzer.options import Objective
from analyzer.record.outcome import RankedWay, WhyNot
from analyzer.text import listed, plural
from analyzer.units import UNKNOWN, dollars, factor, rate, seconds, share, with_prefix

# Of each objective: what it makes least, and what is missing where it is not known.
_MEASURES: Mapping[Objective, str] = {
    "latency": "the time",
    "throughput": "the time per inference",
    "cost": "the dollars",
    "energy": "the energy",
}
_MISSING: Mapping[Objective, str] = {"cost": "price", "energy": "power"}
_SLUGS: Mapping[Objective, str] = {"cost": "expensive", "energy": "energy"}
_BURDENS_IN_WORDS = {
    "copies": "copies take",
    "launches": "kernel launches take",
    "fallback": "operators on the CPU take",
}


@dataclass(frozen=True, kw_only=True)
class Ranked:
    """Contenders in their order, as the sentences need them.

    Attributes:
        contenders: Best first; of each instance that nobody named one batch.
        best: None where nothing that runs keeps the limit.
        nearest: What comes nearest to a limit that nothing keeps.
        other_models: The same weights in precisions that were not requested, the widest first.
        objective, wished: What decided, and what was to decide.
        limit_s: The limit.
    """

    contenders: tuple[Contender, ...]
    best: Contender | None
    nearest: Contender | None
    other_models: Sequence[RankedWay]
    objective: Objective
    wished: Objective
    limit_s: float | None

    @property
    def batches(self) -> frozenset[int]:
        """Return those that were requested."""
        return frozenset(
            one.way.batch for one in self.contenders if one.way.named and one.way.batch is not None
        )

    def at(self, one: Contender) -> str:
        """Return a contender's name, with its batch where there are several."""
        several = len(self.batches) > 1 and one.way.batch is not None
        name = f"{one.label} with {one.split_with}" if one.split_with else one.label
        return f"{name} at batch {one.way.batch}" if several else name


def sentence(ranked: Ranked) -> str:
    """Return the answer: what to run it on, or what comes nearest to a limit that nothing keeps."""
    text = _winner(ranked, ranked.best) if ranked.best is not None else _nearest(ranked)
    if ranked.objective == ranked.wished or ranked.best is None:
        return text
    return f"{text} Latency decides: no {_MISSING.get(ranked.wished, ranked.wished)} is known."


def _winner(ranked: Ranked, best: Contender) -> str:
    way, took = best.way, _took(best)
    if ranked.objective != "latency":
        rented = f" on {way.machine}" if ranked.objective == "cost" and way.named else ""
        figure = {
            "throughput": rate(way.throughput_per_s, ""),
            "cost": f"{dollars(way.usd_per_million)} per million",
            "energy": f"{with_prefix(way.energy_j, 'J')} each",
        }[ranked.objective]
        took = f"{figure}{rented} at {took}"
    if ranked.limit_s is None:
        return f"Run it on {ranked.at(best)}: {took}."
    high = way.latency.high if way.latency else math.inf
    doubt = "" if high <= ranked.limit_s else f", though the end of its interval, {seconds(high)}, does not"
    return f"{capital(ranked.at(best))} keeps {seconds(ranked.limit_s)}: {took}{doubt}."


def _took(one: Contender) -> str:
    latency = one.way.latency
    return (
        f"{seconds(one.way.latency_s)} ({one.way.origin}, {latency.between(seconds) if latency else UNKNOWN})"
    )


def _nearest(ranked: Ranked) -> str:
    one = ranked.nearest
    assert one is not None
    if len(ranked.contenders) == 1:
        text = f"{capital(ranked.at(one))} misses {seconds(ranked.limit_s)}: {_took(one)}."
    else:
        none = f"None of {_scope(ranked)} keeps {seconds(ranked.limit_s)}"
        of = "" if all(one.way.named for one in ranked.contenders) else "of what was requested, "
        text = f"{none}; {of}{ranked.at(one)} comes nearest with {_took(one)}."
    other = next((one for one in ranked.other_models if one.is_usable), None)
    if other is None:
        return text
    return (
        f"{text} In {other.precision}, another model whose accuracy must be checked, the "
        f"{short_name(other.device_name)} would keep {seconds(ranked.limit_s)}: {seconds(other.latency_s)}."
    )


def _scope(ranked: Ranked) -> str:
    """Return what was looked at: ``3 GPUs, this CPU and 83 CPU instances at 2 batches``."""
    gpus = {one.way.device: one.label for one in ranked.contenders if one.way.kind == "gpu"}
    here = next((one.label for one in ranked.contenders if one.way.kind == "cpu" and one.way.named), "")
    rented = sum(1 for one in ranked.contenders if not one.way.named)
    words = (
        plural(len(gpus), "GPU") if len(gpus) > 1 else "".join(gpus.values()),
        here,
        plural(rented, "CPU instance") if rented else "",
    )
    batches = len(ranked.batches)
    return listed(filter(None, words)) + (f" at {batches} batches" if batches > 1 else "")


def why_not(ranked: Ranked, one: Contender) -> WhyNot | None:
    """Return the one cause for which a way is not the answer, with its figure; None of the answer."""
    way, first = one.way, ranked.best or ranked.nearest
    if way.why_not is not None or first is None or one is first:
        return way.why_not
    if way.meets is False and ranked.best is not None and way.latency_s and ranked.limit_s:
        times = factor(way.latency_s / ranked.limit_s)
        return WhyNot(reason="limit", sentence=f"{times} the limit of {seconds(ranked.limit_s)}")
    if ranked.objective == "latency" and way.batch != first.way.batch:
        return WhyNot(reason="batch", sentence=f"latencies are compared at batch {first.way.batch}")
    more = first.gain(one, ranked.objective)
    if more is None:
        missing = _MISSING.get(ranked.objective, "time")
        of_cpu = missing == "price" and way.kind == "cpu"
        sentence = "no instance with this CPU is on the price list" if of_cpu else f"no {missing} is known"
        return WhyNot(reason="unknown", sentence=sentence)
    measure = _MEASURES[ranked.objective]
    if way.note:
        return WhyNot(reason="memory", sentence=f"as a split {interval(*more)} {measure}")
    cost = first.gain(one, "cost") if ranked.objective != "cost" else None
    aside = "" if cost is None else f", at {interval(*cost)} the dollars"
    found = by_ratio(more, measure, _SLUGS.get(ranked.objective, "slower"), named=way.named, aside=aside)
    return _cause(one, found) if found.reason == "slower" and way.kind == "gpu" else found


def by_ratio(more: Ratio, measure: str, reason: str, *, named: bool, aside: str = "") -> WhyNot:
    """Return why a way that takes so many times as much is not the answer; ``aside`` is said where it ties."""
    times = f"{interval(*more)} {measure}"
    if more[1] <= 1 and (named or more[2] >= 1):
        return WhyNot(reason="as_good", sentence=f"as good within the error: {times}{aside}")
    if more[2] < 1:
        return WhyNot(reason="not_requested", sentence=f"{times}, on a device that was not requested")
    return WhyNot(reason=reason, sentence=times)


def _cause(one: Contender, found: WhyNot) -> WhyNot:
    """Return the largest burden of a plan with a GPU that is slower, where it is large."""
    reason = largest_burden(one.components)
    if not reason:
        return found
    spent, whole = busy_s(one.components, BURDENS[reason]), sum(part.time.value for part in one.components)
    part = f"{seconds(spent)}, {share(spent / whole)} of it"
    return WhyNot(reason=reason, sentence=f"{found.sentence}: {_BURDENS_IN_WORDS[reason]} {part}")
