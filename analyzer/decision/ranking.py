"""One decision over all that was asked: which device, at which batch, for how many dollars."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from analyzer.decision.choice import Ratio
from analyzer.decision.contenders import Contender
from analyzer.decision.decision_input import OBJECTIVES, Objective
from analyzer.decision.error_components import ratio
from analyzer.decision.ranking_words import Ranked, beside_other_side, notes, sentence
from analyzer.record.ranking import RankedCandidate, RankedInstance, RankingResult


def ranking(
    contenders: Sequence[Contender],
    others: Sequence[RankedCandidate] = (),
    *,
    objective: Objective,
    slo_s: float | None,
) -> RankingResult:
    """Ranks everything that was asked about.

    An instance that nobody named must beat what was named by more than the error: it is another deployment.
    In dollars, where instances are what is compared, it need not.

    Args:
        contenders: Devices at batches, and instances with a CPU at each of them.
        others: What is another model, listed behind them.
        objective: What to make least (or most).
        slo_s: The longest latency that is acceptable, None for no limit.
    """
    decides = _known_objective(contenders, objective)
    kept = _each_instance_once(contenders, decides)
    other_models = sorted(
        others, key=lambda one: (not one.runs, one.latency_s or 0.0, one.precision, one.device)
    )
    able = [one for one in kept if _is_able(one)]
    first = _winner(able, decides)
    late = [one for one in kept if _is_late(one)]
    nearest = None if able else _winner(late, "latency")
    order = (
        *sorted(able, key=lambda one: (one is not first, *_key(one, decides))),
        *sorted(late, key=lambda one: (one is not nearest, *_key(one, "latency"))),
        *sorted((one for one in kept if not one.candidate.runs), key=_order),
    )
    as_good = () if first is None else tuple(_as_good(first, able, decides))
    ranked = Ranked(
        contenders=order,
        all_contenders=tuple(contenders),
        best=first,
        nearest=nearest,
        as_good=as_good,
        other_models=tuple(other_models),
        objective=decides,
        wished=objective,
        slo_s=slo_s,
    )
    places = {id(one): at for at, one in enumerate(order)}
    winners = {name: _winner(able, name) for name in OBJECTIVES}
    return RankingResult(
        objective=decides,
        slo_s=slo_s,
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


def _known_objective(contenders: Sequence[Contender], objective: Objective) -> Objective:
    # What nobody has a price or a power of cannot be ranked by it: then latency decides, and is what is told.
    able = [one for one in contenders if _is_able(one)]
    return objective if any(one.value(objective) is not None for one in able) or not able else "latency"


def _is_able(one: Contender) -> bool:
    return one.candidate.runs and one.candidate.meets_slo is not False


def _is_late(one: Contender) -> bool:
    return one.candidate.runs and one.candidate.meets_slo is False


def _order(one: Contender) -> tuple[bool, bool, str, str, int]:
    """What breaks ties: the answer must not hang on the order of a list."""
    about = one.candidate
    return not about.named, about.kind == "cpu", about.device, about.instance, about.batch or 0


def _key(one: Contender, objective: Objective) -> tuple[bool, float, bool, bool, str, str, int]:
    value = one.value(objective)
    return value is None, value or 0.0, *_order(one)


def _each_instance_once(contenders: Sequence[Contender], objective: Objective) -> list[Contender]:
    """All that was named, and of each instance that nobody named its best batch."""
    best: dict[tuple[str, str], Contender] = {}
    for one in contenders:
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


def gain(better: Contender, worse: Contender, objective: Objective) -> Ratio | None:
    """How much less of the objective's measure the better one takes, with its 90 % interval."""
    ours, theirs = better.weighted(objective), worse.weighted(objective)
    return None if ours is None or theirs is None else ratio(theirs[0], ours[0], theirs[1], ours[1])


def _within_error(one: Contender, best: Contender, objective: Objective) -> bool:
    more = gain(best, one, objective)
    return more is not None and more[1] <= 1


def _as_good(first: Contender, able: Sequence[Contender], objective: Objective) -> Iterator[Contender]:
    for one in sorted(able, key=lambda one: _key(one, objective)):
        if one is not first and _within_error(one, first, objective):
            yield one


def _instances(contenders: Sequence[Contender]) -> Iterator[RankedInstance]:
    """Every instance once, at the batch at which it costs least of those that keep the limit."""
    rows = [(one, offer) for one in contenders for offer in one.offers if one.candidate.runs]
    rows.sort(
        key=lambda row: (
            row[1].meets_slo is False,
            row[1].usd_per_million,
            row[1].usd_per_hour,
            row[1].provider,
            row[1].instance,
        )
    )
    seen = set()
    for one, offer in rows:
        place = (offer.provider, offer.instance)
        if place in seen:
            continue
        seen.add(place)
        about = one.candidate
        yield RankedInstance(
            device=about.device, name=about.name, plan=about.plan, batch=about.batch, cost=offer
        )
