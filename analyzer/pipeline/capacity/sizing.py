"""An analysis, its basis and a question of traffic -> the same analysis with its capacity."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from analyzer.devices import catalogue
from analyzer.devices.device import Device
from analyzer.devices.instances import Instance
from analyzer.errors import UsageError
from analyzer.pipeline.basis import AnalysisBasis
from analyzer.pipeline.capacity.counted import Need, check_spare, counted, uncounted, without_price
from analyzer.pipeline.capacity.servers import Copies, InstanceOffer, cpu_offers, gpu_offers
from analyzer.pipeline.capacity.traffic import CapacityQuestion
from analyzer.progress import Progress
from analyzer.record.analysis import Analysis
from analyzer.record.capacity import (
    CapacityOption,
    CapacityResult,
    InstanceLoads,
    LimitPoint,
    LoadPoint,
    TrafficPoint,
)
from analyzer.serving.load import QueueLoad
from analyzer.serving.search import Server, Sizing, needed, sizings
from analyzer.units import HOURS_PER_MONTH, seconds, share

# Ways to share an instance that are searched, beside the quickest one.
_WAYS = 1
# Steps of count over traffic that are shown, up to so many times the rate that is planned for.
_STEPS, _TIMES_THE_RATE = 60, 3
# Significant figures of what other questions are answered from: beyond what was simulated.
_FIGURES = 6


def with_capacity(
    analysis: Analysis,
    basis: AnalysisBasis,
    question: CapacityQuestion,
    gpus: Sequence[str] | None,
    cpus: Sequence[str],
    progress: Progress,
) -> Analysis:
    """Sizes every instance that could serve the model.

    Args:
        analysis: Of the model.
        basis: What it rests on.
        question: Traffic and limit.
        gpus: Slugs, or ``all`` of the catalogue; None for every one that is rented out.
        cpus: Slugs of the CPUs whose instances are looked at; empty for all.
        progress: Told what is happening.

    Raises:
        DeviceError: Nobody knows a name.
        UsageError: No instance is left, the limit is below the quickest batch of all, or more instances may
            fail than are needed.
    """
    progress("predicting every instance", None)
    offers = tuple(_offers(basis, gpus, cpus))
    _check_limit(offers, question)
    progress("searching for the highest rates", None)
    offers = tuple(replace(offer, copies=tuple(_promising(offer.copies, question.limit_s))) for offer in offers)
    servers = [copies.server for offer in offers for copies in offer.copies]
    sized = sizings(servers, question.demand)
    chosen = [(offer, *_best_copies(offer, sized)) for offer in offers]
    check_spare((sizing.count for _, _, sizing in chosen if sizing is not None), question.demand.spare)
    rows = sorted(
        ((_option(question, *one), one) for one in chosen),
        key=lambda row: by_dollars(row[0]),
    )
    options = tuple(option for option, _ in rows)
    best = 0 if options[0].feasible else None
    asked = question.demand
    return replace(
        analysis,
        capacity=CapacityResult(
            rate_per_s=question.rate_per_s,
            percentile=question.percentile,
            limit_s=question.limit_s,
            arrivals=question.arrivals,
            headroom=asked.headroom,
            growth=question.growth,
            spare=asked.spare,
            pricing=basis.predictor.options.pricing,
            options=options,
            best=best,
            max_batch=asked.max_batch,
            max_delay_s=asked.max_delay_s,
            instances=tuple(_instances(rows)),
            traffic=()
            if best is None
            else tuple(traffic_steps(options[best], asked.rate_per_s, asked.headroom, asked.spare)),
            notes=tuple(_notes(basis, options)),
        ),
    )


Chosen = tuple[InstanceOffer, Copies | None, Sizing | None]


def _offers(basis: AnalysisBasis, gpus: Sequence[str] | None, cpus: Sequence[str]) -> Iterator[InstanceOffer]:
    for gpu in gpus_asked(basis.predictor.instances, basis.gpu, gpus):
        yield from gpu_offers(basis, gpu, named=gpus is not None)
    yield from cpu_offers(basis, cpus)


def gpus_asked(
    instances: Sequence[Instance], known: Device | None, named: Sequence[str] | None
) -> tuple[Device, ...]:
    """The GPUs to look at: those named, ``all`` of the catalogue, or with None every one that is rented out.

    Args:
        instances: What can be rented.
        known: A GPU with figures of its own, which stand in the place of the catalogue's.
        named: Slugs.
    """
    own = {known.slug: known} if known is not None else {}
    if named is None:
        slugs = [one.gpu for one in instances if one.gpu is not None and one.gpu_count >= 1]
    elif any(name.lower() == "all" for name in named):
        slugs = [gpu.slug for gpu in catalogue.gpus()]
    else:
        slugs = [name if name in own else catalogue.device_of_kind(name, "gpu").slug for name in named]
    # The record's own GPU by its own figures, which may be calibrated.
    return tuple(own.get(slug) or catalogue.device(slug) for slug in dict.fromkeys(slugs))


def _check_limit(offers: Sequence[InstanceOffer], question: CapacityQuestion) -> None:
    quickest = min(
        ((point.time_s, offer.name) for offer in offers for copies in offer.copies for point in copies.points),
        default=None,
    )
    if quickest is None:
        reason = next((f" {offer.problem}" for offer in offers if offer.problem), "")
        raise UsageError(
            f"Nothing that was asked for can run the model.{reason}",
            hint="`analyze check` says what stops it; `analyze devices` lists GPUs and CPUs.",
        )
    time_s, name = quickest
    if time_s > question.limit_s:
        raise UsageError(
            f"{question.limit_option}: the quickest batch of all takes {seconds(time_s)}, on {name}.",
            hint="No traffic is so light that this limit is kept: give a longer one, or other devices.",
        )


def _promising(ways: Sequence[Copies], limit_s: float) -> Iterator[Copies]:
    """Of many ways to share an instance those worth a search: the quickest, and those that take the most."""

    def most(copies: Copies) -> float:
        # What a batch leaves of the limit is for waiting, which is short before many copies.
        able = [
            point.batch / point.time_s * (1 - point.time_s / limit_s) ** (1 / copies.number)
            for point in copies.points
            if point.time_s <= limit_s
        ]
        return copies.number * max(able, default=0.0)

    quickest = min(ways, key=lambda copies: copies.points[0].time_s, default=None)
    largest = sorted(ways, key=most, reverse=True)[:_WAYS]
    return (copies for copies in ways if copies is quickest or (copies in largest and most(copies) > 0))


def _best_copies(offer: InstanceOffer, sized: Mapping[Server, Sizing]) -> tuple[Copies | None, Sizing | None]:
    """Of the ways to run copies on an instance the one with the highest rate."""
    ways = [(copies, sized[copies.server]) for copies in offer.copies]
    # Of two that keep no limit the quicker one: it comes nearer.
    return max(
        ways,
        key=lambda way: (way[1].highest_rate_per_s, -way[0].points[0].time_s),
        default=(None, None),
    )


def _option(
    question: CapacityQuestion, offer: InstanceOffer, copies: Copies | None, sizing: Sizing | None
) -> CapacityOption:
    option = uncounted(
        offer.instance,
        device=offer.device,
        name=offer.name,
        kind=offer.kind,
        precision=offer.precision,
        reason=offer.problem,
    )
    if copies is None or sizing is None:
        return option
    option = replace(option, origin=copies.origin)
    if sizing.count is None or sizing.load is None:
        return replace(option, reason=_why_not(question, offer, copies, sizing))
    demand, load = question.demand, sizing.load
    option = counted(
        option,
        offer.instance,
        Need(rate_per_s=demand.rate_per_s, headroom=demand.headroom, spare=demand.spare),
        sizing.count,
        highest_rate_per_s=sizing.highest_rate_per_s,
        low_rate_per_s=sizing.low_rate_per_s,
        high_rate_per_s=sizing.high_rate_per_s,
    )
    return replace(
        option,
        reason=_why(question, load, sizing.count),
        replicas=copies.number,
        max_batch=sizing.max_batch,
        max_delay_s=sizing.max_delay_s,
        utilisation=load.utilisation,
        mean_batch=load.mean_batch,
        mean_s=load.mean_s,
        p50_s=load.p50_s,
        p90_s=load.p90_s,
        p95_s=load.p95_s,
        p99_s=load.p99_s,
    )


def _limited(question: CapacityQuestion) -> str:
    return "mean" if question.percentile is None else f"p{question.percentile:g}"


# Below this utilisation the limit, not the work, decides how many instances there are. A judgement.
_MOSTLY_IDLE = 0.1


def _why(question: CapacityQuestion, load: QueueLoad, count: int) -> str:
    latency = seconds(load.latency_s(question.percentile))
    text = f"The {_limited(question)} is {latency} of {seconds(question.limit_s)}"
    if load.utilisation < _MOSTLY_IDLE and count > 1 + question.demand.spare:
        text += (
            ": hardly a request may wait for another within that, so each of the "
            f"{count:,} is idle {share(1 - load.utilisation)} of the time"
        )
    return f"{text}."


def _why_not(question: CapacityQuestion, offer: InstanceOffer, copies: Copies, sizing: Sizing) -> str:
    quickest = min(point.time_s for point in copies.points)
    limit = f"the limit of {seconds(question.limit_s)}"
    if quickest > question.limit_s:
        return f"The quickest batch takes {seconds(quickest)} on {offer.name}, over {limit}."
    if sizing.load is not None and question.demand.max_delay_s:
        latency, delay = seconds(sizing.load.latency_s(question.percentile)), seconds(sizing.max_delay_s)
        return (
            f"The {_limited(question)} is {latency} of {seconds(question.limit_s)}: at so low a rate requests "
            f"wait up to {delay} for their batch to fill."
        )
    if sizing.load is not None:
        latency, busy = seconds(sizing.load.latency_s(question.percentile)), share(sizing.load.utilisation)
        return (
            f"The {_limited(question)} is {latency} of {seconds(question.limit_s)} though each is busy only "
            f"{busy} of the time: a batch alone takes {seconds(quickest)}."
        )
    return f"No rate keeps {limit}: a batch takes {seconds(quickest)} or more, and requests wait for it."


def by_dollars(option: CapacityOption) -> tuple[bool, float, int, str, str, str]:
    """What keeps the limit first, the cheaper first."""
    usd = math.inf if option.usd_per_month is None else option.usd_per_month
    names = (option.provider, option.instance, option.device)
    return (not option.feasible, usd, option.count or 0, *names)


def _instances(rows: Sequence[tuple[CapacityOption, Chosen]]) -> Iterator[InstanceLoads]:
    for number, (_, (offer, copies, sizing)) in enumerate(rows):
        if copies is None or sizing is None:
            continue
        yield InstanceLoads(
            option=number,
            service=tuple(
                replace(point, time_s=short(point.time_s), low_s=short(point.low_s), high_s=short(point.high_s))
                for point in copies.points
            ),
            loads=tuple(_load_point(load) for load in sizing.loads if load.mean_s is not None),
            limits=tuple(
                LimitPoint(
                    limit_s=row.limit_s,
                    rate_per_s=row.rate_per_s,
                    max_batch=row.max_batch,
                    max_delay_s=short(row.max_delay_s),
                )
                for row in sizing.within
            ),
            usd_per_hour=dollars_by_pricing(offer.instance),
        )


def dollars_by_pricing(instance: Instance | None) -> dict[str, float]:
    """An hour of an instance, in its own region, by way of paying."""
    if instance is None:
        return {}
    # The instance's own price comes first, and stays.
    return {
        price.pricing: price.usd_per_hour
        for price in reversed(catalogue.prices_of(instance))
        if price.region == instance.region
    }


def _load_point(load: QueueLoad) -> LoadPoint:
    # A load that was looked at has all its figures.
    figures = (load.mean_batch, load.mean_s, load.p50_s, load.p90_s, load.p95_s, load.p99_s)
    mean_batch, mean_s, p50_s, p90_s, p95_s, p99_s = (short(figure or 0.0) for figure in figures)
    return LoadPoint(
        rate_per_s=short(load.rate_per_s),
        utilisation=short(load.utilisation),
        mean_batch=mean_batch,
        mean_s=mean_s,
        p50_s=p50_s,
        p90_s=p90_s,
        p95_s=p95_s,
        p99_s=p99_s,
    )


def short(value: float) -> float:
    """With as many figures as were simulated, and some."""
    return float(f"{value:.{_FIGURES}g}")


def traffic_steps(
    option: CapacityOption, rate_per_s: float, headroom: float, spare: int
) -> Iterator[TrafficPoint]:
    """Count and dollars of an option over traffic, up to some times the rate."""
    highest, per_hour = option.highest_rate_per_s, option.usd_per_hour
    if highest is None or per_hour is None:
        return
    each = highest / (1 + headroom)
    most = max(3, math.ceil(_TIMES_THE_RATE * rate_per_s / each))
    # The step of the rate itself is shown as it is, and of others so many that a chart can.
    own = needed(rate_per_s, highest, headroom) - 1
    numbers = sorted({*range(0, most + 2, math.ceil(most / _STEPS)), own, own + 1})
    for number, following in itertools.pairwise(numbers):
        count = following + spare
        yield TrafficPoint(
            rate_per_s=number * each, count=count, usd_per_month=count * per_hour * HOURS_PER_MONTH
        )


def _notes(basis: AnalysisBasis, options: Sequence[CapacityOption]) -> Iterator[str]:
    if any(option.kind == "gpu" for option in options):
        yield (
            "What a GPU instance's own processor adds is that of "
            f"{basis.predictor.cpu.name if basis.predictor.host is not None else 'a usual host'}; requests "
            "reach it one after the other, without copies and runs overlapping."
        )
    if any((option.replicas or 1) > 1 and option.kind == "cpu" for option in options):
        yield (
            "Copies on one CPU have even parts of its cores, caches and bandwidth, and weights of their own."
        )
    yield from without_price(options)
    yield "Disks, networks and load balancers are not in the dollars."
