"""One decision over all that was requested: which device, at which batch, for how many dollars."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from analyzer.decision.choice import Ratio
from analyzer.decision.contenders import Contender
from analyzer.decision.money import best_first
from analyzer.decision.ranking_words import Ranked, sentence, why_not
from analyzer.figures import seen_as
from analyzer.options import Objective
from analyzer.precision import PRECISIONS
from analyzer.record.outcome import Answer, CostRow, RankedWay


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
    kept = _each_instance_once(contenders, decides, batch)
    other_models = sorted(
        others, key=lambda one: (not one.runs, one.latency_s or 0.0, one.precision, one.device)
    )
    able = [one for one in kept if one.way.is_usable]
    if not able:  # what comes nearest to the limit is wanted, whatever the objective
        decides = "latency"
    named = [one for one in able if one.way.named]
    at_batch = _compared(able if decides == "cost" else named or able, decides, batch)
    leader = _winner(at_batch, decides)
    first = None if leader is None else _worth_its_dollars(leader, at_batch, decides, limit_s)
    late = [one for one in kept if one.way.runs and not one.way.is_usable]
    nearest = None if able else _winner([one for one in late if one.way.named] or late, "latency")
    compared = {id(one) for one in _compared(able, decides, batch)}
    order = (
        *sorted(able, key=lambda one: (one is not first, id(one) not in compared, *_key(one, decides))),
        *sorted(late, key=lambda one: (one is not nearest, *_key(one, "latency"))),
        *sorted((one for one in kept if not one.way.runs), key=_order),
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


def _winner(able: Iterable[Contender], objective: Objective) -> Contender | None:
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
