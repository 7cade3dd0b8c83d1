"""One decision over all that was asked: which device, at which batch, for how many dollars."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from analyzer.decision.contenders import Contender
from analyzer.decision.money import best_first
from analyzer.decision.ranking_words import Ranked, beside_other_side, notes, sentence
from analyzer.options import OBJECTIVES, Objective
from analyzer.record.outcome import CostRow, RankedCandidate, RankingResult


def ranking(
    contenders: Sequence[Contender],
    others: Sequence[RankedCandidate] = (),
    *,
    objective: Objective,
    limit_s: float | None,
    batch: int | None = None,
) -> RankingResult:
    """Ranks everything that was asked about.

    An instance that nobody named must beat what was named by more than the error: it is another deployment.
    In dollars, where instances are what is compared, it need not. A gain within the error is not worth dollars:
    of what is as good the cheapest is the best, where it is sure to be cheaper than the first. Latencies are
    compared at one batch: a run of more inferences takes longer on every device, and says nothing.

    Args:
        contenders: Devices at batches, and instances with a CPU at each of them.
        others: What is another model, listed behind them.
        objective: What to make least (or most).
        limit_s: The longest latency that is acceptable, None for no limit.
        batch: At which latencies are compared: the report's. Where nothing runs in time there, at the first of
            the others at which something does.
    """
    # What nobody has a price or a power of cannot be ranked by it: then latency decides, and is what is told.
    running = [one for one in contenders if _is_able(one)]
    known = any(one.value(objective) is not None for one in running) or not running
    decides: Objective = objective if known else "latency"
    kept = _each_instance_once(contenders, decides, batch)
    other_models = sorted(
        others, key=lambda one: (not one.runs, one.latency_s or 0.0, one.precision, one.device)
    )
    able = [one for one in kept if _is_able(one)]
    at_batch = _compared(able, decides, batch)
    leader = _winner(at_batch, decides)
    first = None if leader is None else _worth_its_dollars(leader, at_batch, decides, limit_s)
    late = [one for one in kept if one.candidate.runs and not _is_able(one)]
    nearest = None if able else _winner(late, "latency")
    compared = {id(one) for one in at_batch}
    order = (
        *sorted(able, key=lambda one: (one is not first, id(one) not in compared, *_key(one, decides))),
        *sorted(late, key=lambda one: (one is not nearest, *_key(one, "latency"))),
        *sorted((one for one in kept if not one.candidate.runs), key=_order),
    )
    as_good = tuple(_as_good(leader, first, at_batch, decides)) if leader and first else ()
    ranked = Ranked(
        contenders=order,
        compared=tuple(one for one in order if id(one) in compared),
        all_contenders=tuple(contenders),
        best=first,
        leader=leader,
        nearest=nearest,
        as_good=as_good,
        other_models=tuple(other_models),
        objective=decides,
        wished=objective,
        limit_s=limit_s,
    )
    places = {id(one): at for at, one in enumerate(order)}
    winners = {name: _winner(_compared(able, name, batch), name) for name in OBJECTIVES}
    return RankingResult(
        objective=decides,
        slo_s=limit_s,
        candidates=(*(one.candidate for one in order), *other_models),
        best=None if first is None else places[id(first)],
        nearest=None if nearest is None else places[id(nearest)],
        as_good=tuple(places[id(one)] for one in as_good),
        best_by={name: places[id(one)] for name, one in winners.items() if one is not None},
        sentence=sentence(ranked),
        notes=notes(ranked),
        dollars=beside_other_side(ranked),
        instances=tuple(_instances(contenders)),
    )


def _compared(able: Sequence[Contender], objective: Objective, batch: int | None) -> list[Contender]:
    """What the objective can compare: of latencies those at one batch."""
    if objective != "latency":
        return list(able)
    batches = [one.candidate.batch for one in able]
    chosen = batch if batch in batches else next(iter(batches), None)
    return [one for one in able if one.candidate.batch == chosen]


def _is_able(one: Contender) -> bool:
    return one.candidate.runs and one.candidate.meets is not False


def _order(one: Contender) -> tuple[bool, bool, str, str, int]:
    """What breaks ties: the answer must not hang on the order of a list."""
    about = one.candidate
    return not about.named, about.kind == "cpu", about.device, about.instance, about.batch or 0


def _key(one: Contender, objective: Objective) -> tuple[bool, float, bool, bool, str, str, int]:
    value = one.value(objective)
    return value is None, value or 0.0, *_order(one)


def _each_instance_once(
    contenders: Sequence[Contender], objective: Objective, batch: int | None
) -> list[Contender]:
    """All that was named, and of each instance that nobody named its best batch, or that compared."""
    best: dict[tuple[str, str], Contender] = {}
    able = [one for one in contenders if _is_able(one)]
    # With nothing that is able all of them are late or do not run, and the nearest is looked for.
    for one in _compared(able, objective, batch) or contenders:
        about = one.candidate
        if about.named:
            continue
        place = (about.provider, about.instance)
        other = best.get(place)
        if other is None or (not _is_able(one), _key(one, objective)) < (
            not _is_able(other),
            _key(other, objective),
        ):
            best[place] = one
    chosen = {id(one) for one in best.values()}
    return [one for one in contenders if one.candidate.named or id(one) in chosen]


def _winner(able: Iterable[Contender], objective: Objective) -> Contender | None:
    known = sorted(
        (one for one in able if one.value(objective) is not None), key=lambda one: _key(one, objective)
    )
    if not known:
        return None
    first = known[0]
    if first.candidate.named or objective == "cost":
        return first
    named = next((one for one in known if one.candidate.named), None)
    return named if named is not None and _within_error(named, first, objective) else first


def _within_error(one: Contender, best: Contender, objective: Objective) -> bool:
    more = best.gain(one, objective)
    return more is not None and more[1] <= 1


def _as_good(
    leader: Contender, first: Contender, able: Sequence[Contender], objective: Objective
) -> Iterator[Contender]:
    for one in sorted(able, key=lambda one: _key(one, objective)):
        if one is not first and (one is leader or _within_error(one, leader, objective)):
            yield one


def _worth_its_dollars(
    leader: Contender, able: Sequence[Contender], objective: Objective, limit_s: float | None
) -> Contender:
    """The leader, or the cheapest of what is as good where it is sure to be cheaper and to keep the limit."""
    if objective == "cost":
        return leader
    cheaper = [
        one
        for one in _as_good(leader, leader, able, objective)
        if (saved := one.gain(leader, "cost")) is not None
        and saved[1] > 1
        and (_keeps(one, limit_s) or not _keeps(leader, limit_s))
    ]
    return min(cheaper, key=lambda one: _key(one, "cost"), default=leader)


def _keeps(one: Contender, limit_s: float | None) -> bool:
    latency = one.candidate.latency
    return limit_s is None or (latency is not None and latency.high <= limit_s)


def _instances(contenders: Sequence[Contender]) -> Iterator[CostRow]:
    """Every instance once, at the batch at which it costs least of those that keep the limit."""
    rows = [(one.candidate, offer) for one in contenders for offer in one.offers if one.candidate.runs]
    rows.sort(key=lambda row: best_first(row[1]))
    best: dict[tuple[str, str], tuple[RankedCandidate, CostRow]] = {}
    for about, offer in rows:
        best.setdefault((offer.provider, offer.instance), (about, offer))
    for about, offer in best.values():
        yield replace(
            offer,
            device=about.device,
            device_name=about.name,
            plan=offer.plan or about.plan,
            batch=about.batch,
        )
