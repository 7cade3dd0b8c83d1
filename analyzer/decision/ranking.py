"""One decision over all that was requested, its sentence, and why each other way is not the answer."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from analyzer.decision.choice import Ratio
from analyzer.decision.contenders import Contender
from analyzer.decision.error_components import BURDENS, busy_s, largest_burden
from analyzer.decision.money import best_first
from analyzer.decision.reasons import capital, interval, short_name
from analyzer.figures import seen_as
from analyzer.options import Objective
from analyzer.precision import PRECISIONS
from analyzer.record.outcome import Answer, CostRow, RankedWay, WhyNot
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
    cause = by_ratio(more, measure, _SLUGS.get(ranked.objective, "slower"), named=way.named, aside=aside)
    return _cause(one, cause) if cause.reason == "slower" and way.kind == "gpu" else cause


def by_ratio(more: Ratio, measure: str, reason: str, *, named: bool, aside: str = "") -> WhyNot:
    """Return why a way that takes so many times as much is not the answer; ``aside`` is said where it ties."""
    times = f"{interval(*more)} {measure}"
    if more[1] <= 1 and (named or more[2] >= 1):
        return WhyNot(reason="as_good", sentence=f"as good within the error: {times}{aside}")
    if more[2] < 1:
        return WhyNot(reason="not_requested", sentence=f"{times}, on a device that was not requested")
    return WhyNot(reason=reason, sentence=times)


def _cause(one: Contender, why: WhyNot) -> WhyNot:
    """Return the largest burden of a plan with a GPU that is slower, where it is large."""
    reason = largest_burden(one.components)
    if not reason:
        return why
    spent, whole = busy_s(one.components, BURDENS[reason]), sum(part.time.value for part in one.components)
    part = f"{seconds(spent)}, {share(spent / whole)} of it"
    return WhyNot(reason=reason, sentence=f"{why.sentence}: {_BURDENS_IN_WORDS[reason]} {part}")


def rank_ways(
    contenders: Sequence[Contender],
    others: Sequence[RankedWay] = (),
    *,
    objective: Objective,
    limit_s: float | None,
    batch: int | None = None,
) -> tuple[Answer | None, tuple[RankedWay, ...]]:
    """Return the answer and all ways to run, the answer's first, each other one with why it is not the answer.

    An instance that nobody named is the answer where dollars decide, or where nothing that was named keeps the
    limit. A gain within the error is not worth dollars: of what is as good the cheapest is the answer, where it
    is sure to be cheaper than the first. Latencies are compared at one batch: a run of more inferences takes
    longer on every device, and says nothing.

    Args:
        contenders: Devices at batches, and instances with a CPU at each of them.
        others: Other models, listed behind them.
        objective: What to make least (or most).
        limit_s: The longest latency that is acceptable, None for no limit.
        batch: At which latencies are compared: the report's. Where nothing runs in time there, at the first of
            the others at which something does.

    Returns:
        The answer, None where nothing runs: where nothing keeps the limit it is what comes nearest. Then those
        that can be the answer, by the objective, those that miss the limit, the nearest first, those that
        cannot run, and other precisions.
    """
    decides = _known_objective(contenders, objective)
    remaining = _each_instance_once(contenders, decides, batch)
    other_models = sorted(
        others, key=lambda one: (not one.runs, one.latency_s or 0.0, one.precision, one.device)
    )
    able = [one for one in remaining if one.way.is_usable]
    if not able:  # what comes nearest to the limit is wanted, whatever the objective
        decides = "latency"
    named = [one for one in able if one.way.named]
    at_batch = _compared(able if decides == "cost" else named or able, decides, batch)
    leader = _best_of(at_batch, decides)
    first = None if leader is None else _worth_its_dollars(leader, at_batch, decides, limit_s)
    late = [one for one in remaining if one.way.runs and not one.way.is_usable]
    nearest = None if able else _best_of([one for one in late if one.way.named] or late, "latency")
    compared = {id(one) for one in _compared(able, decides, batch)}
    order = (
        *sorted(able, key=lambda one: (one is not first, id(one) not in compared, *_key(one, decides))),
        *sorted(late, key=lambda one: (one is not nearest, *_key(one, "latency"))),
        *sorted((one for one in remaining if not one.way.runs), key=_order),
    )
    ranked = Ranked(
        contenders=order,
        best=first,
        nearest=nearest,
        other_models=sorted(other_models, key=lambda one: PRECISIONS.index(one.precision)),
        objective=decides,
        wished=objective,
        limit_s=limit_s,
    )
    ways = (*(replace(one.way, why_not=why_not(ranked, one)) for one in order), *other_models)
    if first is None and nearest is None:
        return None, ways
    return seen_as(Answer, ways[0], objective=decides, sentence=sentence(ranked)), ways


def instances(contenders: Sequence[Contender]) -> Iterator[CostRow]:
    """Yield every instance once, by dollars, at the batch at which it costs least within the limit."""
    rows = [(one, offer) for one in contenders for offer in one.offers if one.way.runs]
    rows.sort(key=lambda row: best_first(row[1]))
    best: dict[tuple[str, str], tuple[Contender, CostRow]] = {}
    for one, offer in rows:
        best.setdefault((offer.provider, offer.instance), (one, offer))
    for one, offer in best.values():
        way = one.way
        yield replace(
            offer, device=way.device, device_name=way.device_name, plan=offer.plan or way.plan, batch=way.batch
        )


def _known_objective(contenders: Sequence[Contender], objective: Objective) -> Objective:
    # What has no known price or power cannot be ranked by it: then latency decides, and the sentence says so.
    able = [one for one in contenders if one.way.is_usable]
    return objective if any(one.value(objective) is not None for one in able) or not able else "latency"


def _compared(able: Sequence[Contender], objective: Objective, batch: int | None) -> list[Contender]:
    """Return what the objective can compare: of latencies those at one batch."""
    if objective != "latency":
        return list(able)
    batches = [one.way.batch for one in able]
    chosen = batch if batch in batches else next(iter(batches), None)
    return [one for one in able if one.way.batch == chosen]


def _order(one: Contender) -> tuple[bool, bool, str, str, int]:
    """Return what breaks ties: the answer must not hang on the order of a list."""
    way = one.way
    return not way.named, way.kind == "cpu", way.device, way.instance or "", way.batch or 0


def _key(one: Contender, objective: Objective) -> tuple[bool, float, bool, bool, str, str, int]:
    value = one.value(objective)
    return value is None, value or 0.0, *_order(one)


def _each_instance_once(
    contenders: Sequence[Contender], objective: Objective, batch: int | None
) -> list[Contender]:
    """Return all that was named, and of each other instance its best batch, or that compared."""
    best: dict[str, Contender] = {}
    able = [one for one in contenders if one.way.is_usable]
    # With nothing that is able all of them are late or do not run, and the nearest is looked for.
    for one in _compared(able, objective, batch) or contenders:
        if one.way.named:
            continue
        place = one.way.machine
        other = best.get(place)
        if other is None or (not one.way.is_usable, _key(one, objective)) < (
            not other.way.is_usable,
            _key(other, objective),
        ):
            best[place] = one
    chosen = {id(one) for one in best.values()}
    return [one for one in contenders if one.way.named or id(one) in chosen]


def _best_of(able: Iterable[Contender], objective: Objective) -> Contender | None:
    known = (one for one in able if one.value(objective) is not None)
    return min(known, key=lambda one: _key(one, objective), default=None)


def _worth_its_dollars(
    leader: Contender, able: Sequence[Contender], objective: Objective, limit_s: float | None
) -> Contender:
    """Return the leader, or the cheapest of what is as good where it is sure to be cheaper and in time."""
    if objective == "cost":
        return leader

    def is_sure(more: Ratio | None) -> bool:
        return more is not None and more[1] > 1

    cheaper = [
        one
        for one in able
        if not is_sure(leader.gain(one, objective))
        and is_sure(one.gain(leader, "cost"))
        and (_keeps(one, limit_s) or not _keeps(leader, limit_s))
    ]
    cheaper.sort(key=lambda one: _key(one, "cost"))
    # Ties are not transitive: what ties with the leader may surely lose to another.
    return next(
        (one for one in cheaper if not any(is_sure(other.gain(one, objective)) for other in able)), leader
    )


def _keeps(one: Contender, limit_s: float | None) -> bool:
    latency = one.way.latency
    return limit_s is None or (latency is not None and latency.high <= limit_s)
