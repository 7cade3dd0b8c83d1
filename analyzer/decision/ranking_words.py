"""The ranking in sentences: the answer, what is as good, what has no room, and dollars beside speed."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from analyzer.decision.contenders import Contender
from analyzer.decision.error_components import ratio
from analyzer.decision.phrases import capital, interval, short_name
from analyzer.options import Objective
from analyzer.record.outcome import WORTHWHILE, CostRow, RankedCandidate
from analyzer.text import first_few, listed, plural
from analyzer.units import UNKNOWN, dollars, factor, rate, seconds, with_prefix

# Names in a sentence.
_FEW = 3
_OTHER: Mapping[Literal["cpu", "gpu"], Literal["cpu", "gpu"]] = {"cpu": "gpu", "gpu": "cpu"}
_MOST = {"throughput": "most", "cost": "least", "energy": "least"}


@dataclass(frozen=True, kw_only=True)
class Ranked:
    """What the sentences are made of.

    Attributes:
        contenders: Best first; of each instance that nobody named one batch.
        compared: Of these what runs in time and was compared: of latencies those at one batch.
        all_contenders: Those at every batch.
        best: None where nothing that runs keeps the limit.
        leader: What has the better figure than the best within the error, and costs more; else the best itself.
        nearest: What comes nearest to a limit that nothing keeps.
        as_good: As good as the best within the intervals.
        other_models: The same weights in precisions that were not asked for, the quickest first.
        objective, wished: What decided, and what was to decide.
        limit_s: The limit.
    """

    contenders: tuple[Contender, ...]
    compared: tuple[Contender, ...]
    all_contenders: tuple[Contender, ...]
    best: Contender | None
    leader: Contender | None
    nearest: Contender | None
    as_good: tuple[Contender, ...]
    other_models: tuple[RankedCandidate, ...]
    objective: Objective
    wished: Objective
    limit_s: float | None

    @property
    def batches(self) -> tuple[int, ...]:
        """Those that were asked for."""
        found = {one.candidate.batch for one in self.all_contenders if one.candidate.named}
        return tuple(sorted(batch for batch in found if batch is not None))

    def at(self, one: Contender) -> str:
        """A contender's name, with its batch where there are several."""
        several = len(self.batches) > 1 and one.candidate.batch is not None
        name = f"{one.label} with {one.split_with}" if one.split_with else one.label
        return f"{name} at batch {one.candidate.batch}" if several else name


def sentence(ranked: Ranked) -> str:
    """The answer."""
    if ranked.best is not None:
        return _winner(ranked, ranked.best)
    if ranked.nearest is not None:
        return _nearest(ranked, ranked.nearest)
    first = ranked.contenders[0]
    return f"Nothing that was asked about can run it. {capital(first.label)}: {first.candidate.reason}."


def notes(ranked: Ranked) -> tuple[str, ...]:
    """What is as good or comes next, what decided in place of the wished objective, what has no room."""
    fallen_back = ""
    if ranked.objective != ranked.wished:
        missing = {"cost": "price", "energy": "power"}.get(ranked.wished, ranked.wished)
        fallen_back = f"Latency decided: no {missing} is known."
    after = ""
    if ranked.best is not None:
        after = _others_as_good(ranked, ranked.best) or _next(ranked, ranked.best)
    unpriced, expensive = _without_price(ranked), _expensive_leader(ranked)
    full, in_other = _without_room(ranked), _in_other_precision(ranked)
    return tuple(filter(None, (fallen_back, expensive, after, unpriced, full, in_other)))


def _winner(ranked: Ranked, best: Contender) -> str:
    about = best.candidate
    figure = _figure(best, ranked.objective)
    if ranked.objective == "cost" and about.named:
        figure += f" on {about.provider} {about.instance}"
    took = _took(best) if ranked.objective == "latency" else f"{figure}{_most(ranked, best)} at {_took(best)}"
    if ranked.limit_s is None:
        return f"Run it on {ranked.at(best)}: {took}."
    high = about.latency.high if about.latency else math.inf
    doubt = "" if high <= ranked.limit_s else f", though the end of its interval, {seconds(high)}, does not"
    return f"{capital(ranked.at(best))} keeps {seconds(ranked.limit_s)}: {took}{doubt}."


def _most(ranked: Ranked, best: Contender) -> str:
    """``, the least,`` where no row that would do has less: a CPU instance may, within the error."""
    own = best.value(ranked.objective)
    ahead = [
        one
        for one in ranked.contenders
        if one.candidate.runs
        and one.candidate.meets is not False
        and own is not None
        and (one.value(ranked.objective) or own) < own
    ]
    if not ahead:
        return f", the {_MOST[ranked.objective]},"
    gpus = {one.candidate.device for one in ranked.contenders if one.candidate.kind == "gpu"}
    is_first_gpu = best.candidate.kind == "gpu" and all(one.candidate.kind == "cpu" for one in ahead)
    return f", the {_MOST[ranked.objective]} of the GPUs," if is_first_gpu and len(gpus) > 1 else ""


def _figure(one: Contender, objective: Objective) -> str:
    about = one.candidate
    return {
        "latency": seconds(about.latency_s),
        "throughput": rate(about.throughput_per_s, ""),
        "cost": f"{dollars(about.usd_per_million)} per million",
        "energy": f"{with_prefix(about.energy_j, 'J')} each",
    }[objective]


def _took(one: Contender) -> str:
    about = one.candidate
    interval = about.latency.between(seconds) if about.latency else UNKNOWN
    return f"{seconds(about.latency_s)} ({about.origin}, {interval})"


def _expensive_leader(ranked: Ranked) -> str:
    """What has the better figure and is not the best: the gain is within the error, its dollars are not."""
    best, leader = ranked.best, ranked.leader
    if best is None or leader is None or leader is best:
        return ""
    ours, theirs = best.candidate.usd_per_million, leader.candidate.usd_per_million
    return (
        f"{capital(ranked.at(leader))} has {_figure(leader, ranked.objective)}, a gain within the intervals, "
        f"and is {_times(leader.gain(best, 'cost'), 'cheaper', 'more expensive')}: {dollars(theirs)} against "
        f"{dollars(ours)} per million."
    )


def _others_as_good(ranked: Ranked, best: Contender) -> str:
    others = [one for one in ranked.as_good if one is not ranked.leader]
    if not others:
        return ""
    named = [ranked.at(one) for one in others if one.candidate.named]
    rented = [one for one in others if not one.candidate.named]
    words = [first_few(named)] if len(named) > _FEW and not rented else named[:_FEW]
    if rented and len(named) > _FEW:
        words.append(f"{len(named) - _FEW} more")
    if rented:
        words.append(ranked.at(rented[0]) if len(rented) == 1 else plural(len(rented), "CPU instance"))
    return f"As good within the intervals: {listed(words)}{_cheaper(ranked, best)}."


def _cheaper(ranked: Ranked, best: Contender) -> str:
    """That one of those as good costs less, which then speaks for it."""
    ours = best.candidate.usd_per_million
    priced = [one for one in ranked.as_good if one.candidate.usd_per_million]
    if ranked.objective == "cost" or ours is None or not priced:
        return ""
    least = min(priced, key=lambda one: (one.candidate.usd_per_million or 0.0, one.label))
    theirs = least.candidate.usd_per_million
    if theirs is None or ours < theirs * WORTHWHILE:
        return ""
    return f"; of these {ranked.at(least)} costs least, {dollars(theirs)} per million against {dollars(ours)}"


def _next(ranked: Ranked, best: Contender) -> str:
    """What comes next, where nothing ties, and what of that was asked about."""
    # In the order of the objective; an instance that nobody named may stand before the best, within the error.
    others = [
        one
        for one in ranked.compared
        # A leader that costs more has its own sentence.
        if one is not best and one is not ranked.leader and one.value(ranked.objective) is not None
    ]
    named = next((one for one in others if one.candidate.named), None)
    if named is None:
        return _nobody_else(ranked, best)
    first = others[0]
    text = f"Next is {ranked.at(first)} with {_figure(first, ranked.objective)}"
    if first is not named:
        text += f"; of what was asked about, {ranked.at(named)} with {_figure(named, ranked.objective)}"
    return f"{text}."


def _nobody_else(ranked: Ranked, best: Contender) -> str:
    if ranked.limit_s is None or all(one is best for one in ranked.contenders):
        return ""
    if any(one is not best and one.candidate.meets and one.candidate.runs for one in ranked.contenders):
        return ""
    return f"Nothing else of {_scope(ranked)} keeps it."


def _nearest(ranked: Ranked, one: Contender) -> str:
    few = sum(1 for _ in ranked.contenders) == 1
    if few:
        return f"{capital(ranked.at(one))} misses {seconds(ranked.limit_s)}: {_took(one)}."
    none = f"None of {_scope(ranked)} keeps {seconds(ranked.limit_s)}"
    return f"{none}; {ranked.at(one)} comes nearest with {_took(one)}."


def _scope(ranked: Ranked) -> str:
    """``3 GPUs, this CPU and 83 CPU instances at 2 batches``."""
    gpus = {one.candidate.device for one in ranked.contenders if one.candidate.kind == "gpu"}
    here = [one.label for one in ranked.contenders if one.candidate.kind == "cpu" and one.candidate.named]
    rented = sum(1 for one in ranked.contenders if not one.candidate.named)
    words = [plural(len(gpus), "GPU")] if len(gpus) > 1 else []
    if len(gpus) == 1:
        words = [next(one.label for one in ranked.contenders if one.candidate.kind == "gpu")]
    words += here[:1]
    if rented:
        words.append(plural(rented, "CPU instance"))
    batches = ranked.batches
    return listed(words) + (f" at {plural(len(batches), 'batch', 'batches')}" if len(batches) > 1 else "")


def _without_price(ranked: Ranked) -> str:
    """Where dollars decide: GPUs that were named, would do, and that nobody in the price list rents out."""
    if ranked.objective != "cost":
        return ""
    labels = dict.fromkeys(
        one.label
        for one in ranked.contenders
        if one.candidate.kind == "gpu"
        and one.candidate.runs
        and one.candidate.meets is not False
        and one.value("cost") is None
    )
    return (
        f"No price of {first_few(labels)} is known: dollars cannot rank {'it' if len(labels) == 1 else 'them'}."
        if labels
        else ""
    )


def _without_room(ranked: Ranked) -> str:
    """GPUs that were named and have no room at any batch."""
    by_device: dict[str, list[Contender]] = {}
    for one in ranked.contenders:
        if one.candidate.kind == "gpu":
            by_device.setdefault(one.candidate.device, []).append(one)
    full = [
        at_batches[0].label for at_batches in by_device.values() if all(one.lacks_room for one in at_batches)
    ]
    alone = " alone" if any(one.candidate.runs and one.lacks_room for one in ranked.contenders) else ""
    return f"The model does not fit {first_few(full)}{alone}." if full else ""


def _in_other_precision(ranked: Ranked) -> str:
    """Where nothing keeps the limit: what would in another precision."""
    if ranked.best is not None:
        return ""
    kept = (one for one in ranked.other_models if one.runs and one.meets is not False)
    one = next(kept, None)
    if one is None:
        return ""
    what = "run" if ranked.limit_s is None else f"keep {seconds(ranked.limit_s)}"
    return (
        f"In {one.precision}, another model whose accuracy must be checked, the {short_name(one.name)} would "
        f"{what}: {seconds(one.latency_s)}."
    )


def beside_other_side(ranked: Ranked) -> str:
    """Speed and dollars of the best beside the cheapest instance of the other side; may be empty.

    Of a CPU that nobody rents out the cheapest instance with another CPU stands for its side: which side costs
    less is wanted to be known most where speed does not decide. A rented CPU that beats the GPU in both is told
    as that, whatever the answer is.
    """
    first = ranked.best or ranked.nearest
    if first is None or not first.candidate.latency_s:
        return ""
    other, row = _cheapest_of_side(ranked, first, _OTHER[first.candidate.kind])
    unpriced, first = first, _with_a_price(ranked, first)
    if other is None or row is None or not other.candidate.latency_s:
        return ""
    card = "" if other.candidate.kind == "cpu" else f" ({other.label.removeprefix('the ')})"
    kind = other.candidate.kind.upper()
    theirs = f"the cheapest {kind} instance{_among(ranked, row)}, {_place(row)}{card}"
    if row.meets_slo is False and first.candidate.meets:
        theirs += ", which misses the limit"
    if first.price is None:
        faster = ratio(other.there, first.components)
        compared = f"{_times(faster, 'faster', 'slower')} than {theirs}"
        if _is_open(faster):
            compared = f"{_about(faster, 'fast')} as {theirs}"
        return f"{capital(first.label)} is {compared}; no price of {first.label} is known."
    beats = _better_in_both(ranked, first, other) if unpriced is first else None
    if beats is not None:
        better, worse = beats
        assert better.price is not None
        assert worse.price is not None
        return (
            f"A CPU that can be rented beats {worse.label} in time and in dollars: "
            f"{_beside(better, worse, _place(better.price), f'it on {_place(worse.price)}')}"
        )
    subject = (
        f"{capital(first.label)} on {_place(first.price)}" if first.candidate.named else _place(first.price)
    )
    if unpriced is not first:
        mine = f"the cheapest CPU instance{_among(ranked, first.price)}, {_place(first.price)},"
        subject = f"No price of {unpriced.label} is known; {mine}"
    return _beside(first, other, subject, theirs)


def _beside(one: Contender, other: Contender, subject: str, theirs: str) -> str:
    """How fast and how expensive the one is on its instance beside the other on its own."""
    assert one.price is not None
    assert other.price is not None
    faster, cheaper = ratio(other.there, one.there), one.gain(other, "cost")
    speed, money = _times(faster, "faster", "slower"), _times(cheaper, "cheaper", "more expensive")
    # Where an interval holds 1, that is all that is known: no ratio in its middle is told as if it decided.
    if _is_open(faster):
        dear = _about(_turned(cheaper), "expensive") if _is_open(cheaper) else money
        compared = f"{_about(faster, 'fast')} as {theirs}, and {dear}"
    elif _is_open(cheaper):
        compared = f"{speed} than {theirs}, and {_about(_turned(cheaper), 'expensive')}"
    else:
        compared = f"{speed} and {money} than {theirs}"
    return (
        f"{subject} is {compared}: {dollars(one.price.usd_per_million)} against "
        f"{dollars(other.price.usd_per_million)} per million."
    )


def _better_in_both(ranked: Ranked, first: Contender, other: Contender) -> tuple[Contender, Contender] | None:
    """A rented CPU and the GPU that it surely beats in time and in dollars, each on its instance."""
    gpu = first if first.candidate.kind == "gpu" else other
    # Where the answer is the CPU that was asked about, that is what is compared.
    if gpu.price is None or (first.candidate.kind == "cpu" and first.candidate.named):
        return None
    rented = [
        one
        for one in ranked.all_contenders
        if not one.candidate.named
        and one.candidate.batch == gpu.candidate.batch
        and one.candidate.runs
        and one.price is not None
        and not (one.price.meets_slo is False and gpu.price.meets_slo)
        and all(gain and gain[1] > 1 for gain in (ratio(gpu.there, one.there), one.gain(gpu, "cost")))
    ]

    def order(one: Contender) -> tuple[bool, float, str]:
        """The answer itself where it is one of them, else the cheapest."""
        return one is not first, one.price.usd_per_million if one.price is not None else 0.0, one.label

    least = min(rented, key=order, default=None)
    return None if least is None else (least, gpu)


def _place(row: CostRow) -> str:
    return f"{row.provider} {row.instance}"


def _among(ranked: Ranked, row: CostRow) -> str:
    """Of which instances one is the cheapest, where others are listed that cost less for another reason."""
    batch = next((one.candidate.batch for one in ranked.all_contenders if row in one.offers), None)
    at = f" at batch {batch}" if len(ranked.batches) > 1 and batch is not None else ""
    cheaper_and_late = any(
        offer.meets_slo is False
        and offer.usd_per_million < row.usd_per_million
        and (offer.gpu is None) == (row.gpu is None)
        for one in ranked.all_contenders
        for offer in one.offers
    )
    return at + (" that keeps the limit" if row.meets_slo and cheaper_and_late else "")


def _with_a_price(ranked: Ranked, first: Contender) -> Contender:
    """Itself; of a CPU without a price the cheapest instance with another one, if that does as well."""
    if first.price is not None or first.candidate.kind != "cpu":
        return first
    own, row = _cheapest_of_side(ranked, first, "cpu")
    late = row is not None and row.meets_slo is False and first.candidate.meets
    return first if own is None or late or not own.candidate.latency_s else own


def _cheapest_of_side(
    ranked: Ranked, first: Contender, side: Literal["cpu", "gpu"]
) -> tuple[Contender | None, CostRow | None]:
    """At the batch of the first, those that keep the limit before others: what is compared is the same work."""
    pairs = [
        (one, one.price)
        for one in ranked.all_contenders
        if one.price is not None
        and one.candidate.kind == side
        and one.candidate.batch == first.candidate.batch
        and one.candidate.runs
    ]
    return min(
        pairs,
        key=lambda pair: (
            pair[1].meets_slo is False,
            pair[1].usd_per_million,
            pair[1].provider,
            pair[1].instance,
        ),
        default=(None, None),
    )


def _is_open(found: tuple[float, float, float] | None) -> bool:
    """Whether the interval of a ratio holds 1, or its middle reads as 1.0x: which is more is not decided."""
    if found is None:
        return False
    return found[1] <= 1 <= found[2] or factor(max(found[0], 1 / found[0])) == factor(1.0)


def _turned(found: tuple[float, float, float] | None) -> tuple[float, float, float] | None:
    """How many times as dear, of how many times cheaper."""
    return None if found is None else (1 / found[0], 1 / found[2], 1 / found[1])


def _about(found: tuple[float, float, float] | None, measure: str) -> str:
    """``about as dear (0.97x to 5.5x)``."""
    if found is None or factor(found[1]) == factor(found[2]):
        return f"about as {measure}"
    return f"about as {measure} ({factor(found[1])} to {factor(found[2])})"


def _times(found: tuple[float, float, float] | None, more: str, less: str) -> str:
    """``5.9x (2.5x to 14x) cheaper``; a ratio below 1 is turned over, and its word with it."""
    if found is None:
        return f"not comparably {more}"
    middle, low, high = found
    if middle < 1:
        return f"{interval(1 / middle, 1 / high, 1 / low)} {less}"
    return f"{interval(middle, low, high)} {more}"
