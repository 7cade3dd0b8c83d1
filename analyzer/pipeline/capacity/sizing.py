"""Sizes of services on instances: how many, at which rate and price, ranked.

What differs between single inferences and models that generate is a service, a class of either module beside.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from analyzer.decision.error_components import ErrorComponent, over, ratio
from analyzer.decision.ranking import by_ratio
from analyzer.devices import catalogue
from analyzer.devices.device import Device, Instance
from analyzer.errors import UsageError
from analyzer.figures import Figure, LoadedQueue, Origin, Price, seen_as
from analyzer.pipeline.opportunities import Change, offered, surest
from analyzer.progress import Progress
from analyzer.record.analysis import Analysis, Opportunity
from analyzer.record.capacity import CapacityOption, CapacityResult, InstanceLoads, ServicePoint, TrafficPoint
from analyzer.record.outcome import Answer, RankedWay, WhyNot
from analyzer.report.capacity_words import details, loads, nearest, sentence
from analyzer.serving.queue import Need, Server, Sizing, needed
from analyzer.serving.search import latency_ends, sizings
from analyzer.text import first_few
from analyzer.units import HOURS_PER_MONTH, SECONDS_PER_HOUR, dollars, seconds

if TYPE_CHECKING:
    from analyzer.pipeline.capacity.generation import GenerationService
    from analyzer.pipeline.capacity.inference import InferenceService


def rank_services(
    result: CapacityResult, unable: Mapping[int, WhyNot], *, named: bool
) -> tuple[Answer | None, tuple[RankedWay, ...]]:
    """Return the answer and all options, the answer's first.

    Where nothing keeps the limit at any count it is what comes nearest, with its least latency; None where
    nothing runs. ``unable`` has options that cannot run, by index; ``named``: whether the user chose the GPUs.
    """
    best = result.best_option
    at = nearest(result) if best is None else result.best
    ways = [
        _way(option, at == place, result, unable.get(place), named=named)
        for place, option in enumerate(result.options)
    ]
    if at is None or ways[at].latency_s is None:
        return None, tuple(ways)
    first = ways.pop(at)
    sentences = (sentence(result), *(details(result) if best is None else ()))
    return seen_as(Answer, first, objective="cost", sentence=" ".join(sentences)), (first, *ways)


def _way(
    option: CapacityOption, first: bool, result: CapacityResult, unable: WhyNot | None, *, named: bool
) -> RankedWay:
    seen = loads(result, result.options.index(option)) if not option.feasible else None
    late = (load.latency_s(result.percentile) for load in seen.loads) if seen is not None else ()
    # One end alone would read as an interval that ends at the value.
    known = first and result.low_latency_s is not None and result.high_latency_s is not None
    return seen_as(
        RankedWay,
        option,
        plan=option.kind,
        batch=option.max_batch,
        gpus=option.width if option.kind == "gpu" else 0,
        named=named and option.kind == "gpu",
        runs=unable is None,
        meets=option.feasible,
        latency_s=min(filter(None, late), default=option.latency_s(result.percentile)),
        **({"low_s": result.low_latency_s, "high_s": result.high_latency_s} if known else {}),
        throughput_per_s=option.tokens_per_s
        or (result.rate_per_s * result.growth if option.feasible else None),
        usd_per_million=option.usd_per_million_tokens or option.usd_per_million,
        usd_origin=option.origin if option.usd_per_million is not None else "",
        usd_low_per_month=option.low_usd_per_month,
        usd_high_per_month=option.high_usd_per_month,
        why_not=None if first else unable or _why_not(option, result.best_option),
    )


def _why_not(option: CapacityOption, best: CapacityOption | None) -> WhyNot:
    if not option.feasible or best is None:
        return WhyNot(reason="limit", sentence=option.reason)
    ours, theirs = _dollars(best), _dollars(option)
    more = None if ours is None or theirs is None else ratio((theirs,), (ours,))
    if more is None:
        return WhyNot(reason="unknown", sentence="no price is known")
    # Where at the slow end of its times no number keeps the limit, nothing bounds the dollars.
    high = math.inf if option.high_count is None else more[2]
    return by_ratio((more[0], more[1], high), "the dollars", "expensive", named=True)


def _dollars(option: CapacityOption) -> ErrorComponent | None:
    """Return the dollars a month; how far the predictions for two machines err together is not known."""
    usd = option.usd_per_month
    if usd is None:
        return None
    low, high = (usd if end is None else end for end in (option.low_usd_per_month, option.high_usd_per_month))
    source = f"{option.provider} {option.instance} {option.width}"
    return ErrorComponent(resource="cpu", source=source, time=Figure.about(usd, low, high))


Service: TypeAlias = "GenerationService | InferenceService"

# Ways to share an instance that are searched, beside the quickest one.
_WAYS = 1
# Below this part of the limit a time leaves room to wait; below this part of another rate one is lower.
_SURELY = 0.6
# Steps of count over traffic that are shown, up to so many times the rate that is planned for.
_STEPS, _TIMES_THE_RATE = 60, 3
# Significant figures of what other questions are answered from: beyond what was simulated.
_FIGURES = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Copies:
    """Copies of the model side by side on one instance.

    ``points`` are what a copy takes at each batch; of a model that generates, a step with empty caches.
    """

    number: int
    points: tuple[ServicePoint, ...]
    server: Server[Any]
    origin: Origin = "predicted"


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceOffer:
    """An instance for rent, and the model's times on it.

    Attributes:
        instance: None for a GPU that was named and that no provider in the price list rents out.
        device: Slug of what the model runs on; ``kind`` is its side.
        name: Of the device.
        precision: That the times are for.
        width: GPUs that share one copy.
        copies: Ways to run copies of the model side by side; none where it cannot run.
        why_not: Why it cannot.
    """

    instance: Instance | None
    device: str
    name: str
    kind: Literal["cpu", "gpu"]
    precision: str
    width: int = 1
    copies: tuple[Copies, ...] = ()
    why_not: WhyNot | None = None


def with_capacity(
    analysis: Analysis,
    service: Service,
    gpus: Sequence[str] | None,
    cpus: Sequence[str],
    progress: Progress,
) -> Analysis:
    """Size every instance that could serve the model.

    ``gpus`` are slugs or ``all`` of the catalogue, None for every one that is rented out; ``cpus`` are slugs,
    empty for all.

    Raises:
        DeviceError: A name is not known.
        UsageError: No instance is left, the limit is below the quickest answer of all, or more instances may
            fail than are needed.
    """
    progress("predicting every instance", None)
    question, need = service.question, service.question.demand
    offers = tuple(service.offers(gpus, cpus))
    every = [(service.least_s(copies), offer.name) for offer in offers for copies in offer.copies]
    if not every:
        reason = next((f" {offer.why_not.sentence}" for offer in offers if offer.why_not), "")
        raise UsageError(f"Nothing that was asked for can run the model.{reason}", hint=service.no_way)
    time_s, name = min(every)
    if time_s > need.limit_s:
        raise UsageError(
            f"{question.limit_option}: {service.quickest.format(seconds(time_s), name)}",
            hint="No traffic is so light that this limit is kept: give a longer one, or other devices.",
        )
    progress("searching for the highest rates", None)
    offers = tuple(replace(offer, copies=tuple(_promising(offer.copies, need.limit_s))) for offer in offers)
    chosen = list(_sized(offers, need))
    needs = [sizing.count - need.spare for _, _, sizing in chosen if sizing and sizing.count is not None]
    if needs and need.spare > max(needs):
        raise UsageError(
            f"--spare {need.spare}: at most {max(needs)} are needed, and no more than those can fail.",
            hint="Give how many instances may fail at once, like --spare 1.",
        )

    def by_dollars(row: tuple[CapacityOption, Chosen]) -> tuple[bool, float, int, str, str, str]:
        option = row[0]
        usd = math.inf if option.usd_per_month is None else option.usd_per_month
        return (not option.feasible, usd, option.count or 0, option.provider, option.instance, option.device)

    rows = sorted(((_option(service, *one), one) for one in chosen), key=by_dollars)
    options = tuple(option for option, _ in rows)
    best = 0 if options[0].feasible else None
    low_s = high_s = None
    if options[0].feasible:
        _, copies, sizing = rows[0][1]
        assert copies is not None
        assert sizing is not None
        low_s, high_s = latency_ends(copies.server, sizing, need)
    result = seen_as(
        CapacityResult,
        need,
        rate_per_s=question.rate_per_s,
        arrivals=question.arrivals,
        growth=question.growth,
        pricing=service.pricing,
        options=options,
        best=best,
        low_latency_s=low_s,
        high_latency_s=high_s,
        instances=tuple(_instances(rows)),
        traffic=() if best is None else tuple(_traffic_steps(options[best], need)),
        notes=(
            *service.notes(options),
            *_without_price(options),
            "Disks, networks and load balancers are not in the dollars.",
        ),
        **service.keys,
    )
    # In place of those of one run or request.
    unable = {number: one.why_not for number, (_, (one, _, _)) in enumerate(rows) if one.why_not is not None}
    answer, ranking = rank_services(result, unable, named=gpus is not None)
    return replace(analysis, answer=answer, ranking=ranking, capacity=result)


Chosen = tuple[InstanceOffer, Copies | None, Sizing | None]


def _sized(offers: Sequence[InstanceOffer], need: Any) -> Iterator[Chosen]:
    """Yield each offer with the best way to share it."""
    sized = sizings([copies.server for offer in offers for copies in offer.copies], need)
    for offer in offers:
        ways = [(copies, sized[copies.server]) for copies in offer.copies]
        # The highest rate; of two that keep no limit the quicker one, which comes nearer.
        best_way = max(
            ways, key=lambda way: (way[1].highest_rate_per_s, -way[0].points[0].time_s), default=(None, None)
        )
        yield offer, *best_way


def service_opportunities(analysis: Analysis, service: Service) -> tuple[Opportunity, ...]:
    """Return what would take fewer of the answer's machines, sized anew."""
    best = analysis.capacity.best_option if analysis.capacity is not None else None
    return () if best is None else offered(analysis, surest(_changes(service, best)))


def _changes(service: Service, best: CapacityOption) -> Iterator[Change]:
    before = _dollars_of(best)
    names = ((best.device,), ()) if best.kind == "gpu" else ((), (best.device,))
    for code, title, options, other in service.changes(best):
        own = (best.provider, best.instance, best.width)
        rows = ((one, one.instance) for one in other.offers(*names))
        # GPUs come first: CPUs behind the one that is looked for are not predicted.
        same = (one for one, there in rows if there and (there.provider, there.name, one.width) == own)
        for row in _sized(tuple(itertools.islice(same, 1)), other.question.demand):
            option = _option(other, *row)
            after = _dollars_of(option)
            if before is None or after is None:
                continue
            gain = over(before, after)
            if code == "batching":  # of the same kernels, which are as quick or as slow in both
                ends = [one / two for one, two in zip(before.ends, after.ends, strict=True)]
                gain = ends[1], min(ends), max(ends)
            costs = (f"{each.count:,}, {dollars(each.usd_per_month)} a month" for each in (option, best))
            title = f"{title}: {' instead of '.join(costs)}"
            yield Change(code=code, title=title, gain=gain, options=options, of_dollars=True)


def _dollars_of(option: CapacityOption) -> Figure | None:
    """Return the dollars a month; None where an end of the times' interval keeps no limit."""
    usd, low, high = option.usd_per_month, option.low_usd_per_month, option.high_usd_per_month
    return None if usd is None or low is None or high is None else Figure.about(usd, low, high)


def no_machine_code(gpu: Device) -> WhyNot | None:
    """Return why ONNX Runtime's release wheel runs nothing on a GPU; None where it does."""
    if gpu.runs_release_wheel:
        return None
    sentence = f"ONNX Runtime's release wheel has no machine code for {gpu.name}."
    return WhyNot(reason="no-machine-code", sentence=sentence)


def requested_gpus(
    instances: Sequence[Instance], known: Device | None, named: Sequence[str] | None
) -> tuple[Device, ...]:
    """Return the GPUs to look at: those named, ``all`` of the catalogue, or with None every one rented out.

    ``known`` has figures of its own, which stand in the place of the catalogue's.
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


def rented(instances: Iterable[Instance], gpu: Device, *, named: bool) -> Sequence[Instance | None]:
    """Return the instances with a GPU; None, the GPU alone, where it was named and no instance has it."""
    result = [one for one in instances if one.gpu == gpu.slug and one.gpu_count >= 1]
    return result or ([None] if named else [])


def rented_cpus(instances: Iterable[Instance], cpus: Sequence[str]) -> Iterator[tuple[Instance, Device]]:
    """Yield the instances without an accelerator whose CPU the catalogue has, with that CPU."""
    for instance in instances:
        # An accelerator that is not used would be paid for.
        if instance.gpu is not None or instance.accelerator or not instance.vcpus or not instance.cpu:
            continue
        if cpus and instance.cpu not in cpus:
            continue
        cpu = catalogue.instance_cpu(instance)
        if cpu is not None:
            yield instance, cpu


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

    largest = [copies for copies in sorted(ways, key=most, reverse=True)[:_WAYS] if most(copies) > 0]
    quickest = sorted(ways, key=lambda copies: copies.points[0].time_s)[:1]
    # Where another surely keeps the limit, and takes more, the quickest needs no search.
    surely = (copies for copies in largest if copies.points[0].time_s < _SURELY * limit_s)
    if quickest and any(most(quickest[0]) < _SURELY * most(copies) for copies in surely):
        quickest = []
    return (copies for copies in ways if copies in quickest or copies in largest)


_OF_SIZING = ("max_batch", "max_delay_s", "highest_rate_per_s", "low_rate_per_s", "high_rate_per_s")


def _option(
    service: Service, offer: InstanceOffer, copies: Copies | None, sizing: Sizing | None
) -> CapacityOption:
    instance, need = offer.instance, service.question.demand
    option = seen_as(
        CapacityOption,
        Price() if instance is None else instance,
        instance="" if instance is None else instance.name,
        # Of what keeps no limit every figure is unknown.
        usd_per_hour=None,
        replicas=None,
        device=offer.device,
        device_name=offer.name,
        kind=offer.kind,
        precision=offer.precision,
        width=offer.width,
        feasible=False,
        reason=offer.why_not.sentence if offer.why_not is not None else "",
    )
    if copies is None or sizing is None:
        return option
    option = replace(option, origin=copies.origin)
    count, load = sizing.count, sizing.load
    if count is None or load is None or load.saturated:
        return replace(option, reason=service.why_not(offer, copies, sizing))
    per_hour = None if instance is None else instance.usd_per_hour

    def a_month(number: int | None) -> float | None:
        return None if per_hour is None or number is None else number * per_hour * HOURS_PER_MONTH

    def a_million(rate_per_s: float) -> float | None:
        return None if per_hour is None else count * per_hour / SECONDS_PER_HOUR / rate_per_s * 1e6

    # Quick service times are a high rate and few instances.
    low_count, high_count = need.count(sizing.high_rate_per_s), need.count(sizing.low_rate_per_s)
    tokens = service.keys.get("output_tokens")
    tokens_per_s = None if tokens is None else need.rate_per_s * tokens
    return replace(
        option,
        feasible=True,
        reason=service.why(load, count),
        replicas=copies.number,
        count=count,
        low_count=low_count,
        high_count=high_count,
        **{name: getattr(sizing, name) for name in _OF_SIZING},
        **{item.name: getattr(load, item.name) for item in fields(LoadedQueue)},
        tokens_per_s=tokens_per_s,
        room=max(0.0, (count - need.spare) * sizing.highest_rate_per_s / need.rate_per_s - 1),
        usd_per_hour=per_hour,
        usd_per_month=a_month(count),
        low_usd_per_month=a_month(low_count),
        high_usd_per_month=a_month(high_count),
        usd_per_million=a_million(need.rate_per_s),
        usd_per_million_tokens=None if tokens_per_s is None else a_million(tokens_per_s),
    )


def _instances(rows: Sequence[tuple[CapacityOption, Chosen]]) -> Iterator[InstanceLoads]:
    for number, (_, (offer, copies, sizing)) in enumerate(rows):
        if copies is None or sizing is None:
            continue
        instance = offer.instance
        yield InstanceLoads(
            option=number,
            service=tuple(
                replace(point, **{name: _short(getattr(point, name)) for name in ("time_s", "low_s", "high_s")})
                for point in copies.points
            ),
            loads=tuple(
                replace(
                    load,
                    rate_per_s=_short(load.rate_per_s),
                    **{item.name: _short(getattr(load, item.name)) for item in fields(LoadedQueue)},
                )
                for load in sizing.loads
                if load.mean_s is not None
            ),
            limits=tuple(replace(row, max_delay_s=_short(row.max_delay_s)) for row in sizing.within),
            # In the instance's own region, by way of paying: its own price comes first, and stays.
            usd_per_hour={
                price.pricing: price.usd_per_hour
                for price in reversed(() if instance is None else catalogue.prices_of(instance))
                if instance is not None and price.region == instance.region
            },
        )


def _short(value: float | None) -> Any:
    """Return the number with as many figures as were simulated, and some."""
    return None if value is None else float(f"{value:.{_FIGURES}g}")


def _traffic_steps(option: CapacityOption, need: Need) -> Iterator[TrafficPoint]:
    """Count and dollars of an option over traffic, up to some times the rate."""
    highest, per_hour = option.highest_rate_per_s, option.usd_per_hour
    if highest is None or per_hour is None:
        return
    each = highest / (1 + need.headroom)
    most = max(3, math.ceil(_TIMES_THE_RATE * need.rate_per_s / each))
    # The step of the rate itself is shown as it is, and of others so many that a chart can.
    own = needed(need.rate_per_s, highest, need.headroom) - 1
    numbers = sorted({*range(0, most + 2, math.ceil(most / _STEPS)), own, own + 1})
    for number, following in itertools.pairwise(numbers):
        count = following + need.spare
        yield TrafficPoint(
            rate_per_s=number * each, count=count, usd_per_month=count * per_hour * HOURS_PER_MONTH
        )


def _without_price(options: Iterable[CapacityOption]) -> Iterator[str]:
    """Yield a note on what would keep the limit and has no dollars to be sorted by."""
    able = [one for one in options if one.feasible]
    names = dict.fromkeys(one.device_name for one in able if one.usd_per_month is None)
    if not names:
        return
    stands = "it stands" if len(names) == 1 else "they stand"
    priced = any(one.usd_per_month is not None for one in able)
    behind = f"{stands} behind all that has one" if priced else "--prices adds prices of your own"
    yield f"No price of {first_few(names)} is known: {behind}."
