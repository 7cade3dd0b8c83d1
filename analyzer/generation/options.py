"""One model on one device in one setting: times, room, the largest batch within limits, dollars."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace

from analyzer.decision.energy import power, watts
from analyzer.decision.money import usd_per_million
from analyzer.devices import catalogue
from analyzer.devices.device import Device, Instance
from analyzer.figures import Price, seen_as
from analyzer.generation.memory import Footprint
from analyzer.generation.request import Request, Setting, StepTypes, TimeLimits
from analyzer.generation.times import GeneratingModel, RequestPhases, Runner, timed
from analyzer.memory.fit import largest_between
from analyzer.options import CACHES, WEIGHTS
from analyzer.record.generation import GenerationOption
from analyzer.units import comparable


def joules_per_token(device: Device, cpu: Device, width: int, tokens_per_s: float) -> float | None:
    """Energy of an output token: devices at full use, GPUs with a thread of their host that waits for them."""
    gpu = device if device.kind == "gpu" else None
    drawn, each = watts(cpu if gpu else device, gpu), power(device)
    if drawn is None or each is None or tokens_per_s <= 0:
        return None
    if gpu is None:
        return drawn["cpu"] / tokens_per_s
    return (drawn["gpu"] + (width - 1) * each.full) / tokens_per_s


@dataclass(frozen=True, kw_only=True, eq=False)
class Candidate:
    """A device with a setting that runs there."""

    model: GeneratingModel
    device: Device
    setting: Setting
    types: StepTypes
    request: Request
    phases: RequestPhases
    footprint: Footprint

    @property
    def precision(self) -> str:
        """Of its floats there."""
        return self.model.precision_on(self.device, self.setting)

    @property
    def stored_in(self) -> tuple[str, str]:
        """Types of weights and cache: a GPU's are those asked for, a CPU's those that it computes in."""
        if self.device.kind == "cpu":
            return self.types.weights, self.types.cache
        return self.setting.weights, self.setting.cache

    @property
    def fits(self) -> bool:
        """Return whether the request fits."""
        return self.footprint.fits(self.request, self.device)

    @property
    def whole_bytes(self) -> int:
        """Bytes on all devices together."""
        return self.footprint.device_bytes(self.request) * self.setting.width


@dataclass(frozen=True, kw_only=True, eq=False)
class Market:
    """The runner of the model, the machines for rent, and the limits.

    With ``searches`` each way takes the largest batch that keeps the limits. ``measured`` is a request as a
    device of this machine ran it, by its slug.
    """

    runner: Runner
    instances: tuple[Instance, ...]
    limits: TimeLimits
    searches: bool = False
    measured: Mapping[str, RequestPhases] = field(default_factory=dict)
    # The answer's device is chosen before the table of all is made: what was worked out is reused.
    known: dict[object, tuple[GenerationOption, Candidate] | None] = field(default_factory=dict)

    def keeps(self, phases: RequestPhases) -> bool:
        """Tell whether a request keeps the limits."""
        return self.limits.keep(phases.first.value, phases.other.value)


def candidate(
    model: GeneratingModel, device: Device, setting: Setting, request: Request, market: Market
) -> Candidate | None:
    """Return a model on a device; None where it cannot be run in these types."""
    types = model.types_on(device, setting)
    if types is None:
        return None
    seen = market.measured.get(device.slug)
    # What was run is one device in the setting that was requested; in others the same device is predicted.
    ran = seen is not None and setting.width == 1 and seen.request == request
    return Candidate(
        model=model,
        device=device,
        setting=setting,
        types=types,
        request=request,
        phases=seen if seen and ran else timed(model, device, setting, [request], market.runner)[0],
        footprint=model.footprint(request, types, setting.width, device.kind),
    )


def other_settings(own: Setting, kind: str) -> Iterator[tuple[str, str, str, Setting]]:
    """Yield settings that a device of a kind may run sooner: the option, its value, what to do, the setting."""

    def is_narrower(name: str, than: str) -> bool:
        return int(name.lstrip("bfpint")) < int(than.lstrip("bfpint"))

    checked = "another model, whose accuracy must be checked"
    if kind == "gpu" and own.launch == "session":
        yield "launch", "graph", "Replay each step as one CUDA graph", replace(own, launch="graph")
    for weights in (name for name in WEIGHTS if is_narrower(name, own.weights)):
        yield "weights", weights, f"Store the weights in {weights}: {checked}", replace(own, weights=weights)
    for cache in (name for name in CACHES if is_narrower(name, own.cache)):
        yield "kv", cache, f"Store the cache in {cache}: {checked}", replace(own, cache=cache)


# Batches that are timed together while the largest one is looked for.
_TOGETHER, _PARTS = 5, 4


def largest_batch(one: Candidate, market: Market, *, exact: bool = True) -> tuple[int, RequestPhases | None]:
    """Return the largest batch that fits and keeps the limits, with its times; 0 where none does.

    With ``exact`` to one sequence; else to a quarter of the way between two powers of two, which all devices
    share, so that a step is prepared for all of them.
    """
    most = one.footprint.largest_batch(one.request, one.device)
    if not most or not market.limits.any:
        return most, None
    known: dict[int, RequestPhases] = {}

    def keeps(batch: int) -> bool:
        return market.keeps(known[batch] if batch in known else time([batch]))

    def time(batches: Sequence[int]) -> RequestPhases:
        requests = [replace(one.request, batch=batch) for batch in batches]
        result = timed(one.model, one.device, one.setting, requests, market.runner)
        known.update(zip(batches, result, strict=True))
        return result[0]

    ladder = [*(2**exponent for exponent in range(most.bit_length()) if 2**exponent < most), most]
    below, above = 0, most + 1
    for start in range(0, len(ladder), _TOGETHER):
        rungs = ladder[start : start + _TOGETHER]
        time(rungs)
        within = [batch for batch in rungs if keeps(batch)]
        below = max([below, *within])
        late = [batch for batch in rungs if batch > below]
        if late:
            above = min(late)
            break
    if not below:
        return 0, None
    if exact and below < most:
        below = largest_between(keeps, below, above)
    elif above - below > 1 and below < most:
        between = sorted({below + (above - below) * part // _PARTS for part in range(1, _PARTS)} - {below})
        time(between)
        below = max([below, *(batch for batch in between if keeps(batch))])
    return below, known[below]


def option(
    one: Candidate, market: Market, reference: RequestPhases | None = None, *, exact: bool = False
) -> GenerationOption:
    """Return a candidate as the record has it.

    ``reference`` is what it is compared with, ``exact`` as for ``largest_batch``.
    """
    most, best = largest_batch(one, market, exact=exact)
    speed_ups = one.phases
    if market.searches and best is not None:
        one = replace(one, request=replace(one.request, batch=most), phases=best)
    phases = one.phases
    # A CPU to rent has memory of its own, whatever this machine's is.
    priced = _price(one, market) if one.fits or one.device.kind == "cpu" else None
    price, rate = priced or (Price(), 0.0)
    per_hour = price.usd_per_hour
    weights, cache = one.stored_in
    return seen_as(
        GenerationOption,
        phases.recorded(),
        **asdict(price),
        device=one.device.slug,
        name=one.device.name,
        kind=one.device.kind,
        gpus=one.setting.width if one.device.kind == "gpu" else 0,
        weights=weights,
        kv=cache,
        fits=one.fits,
        meets_limits=market.keeps(phases) if market.limits.any else None,
        memory_bytes=one.whole_bytes,
        batch=one.request.batch,
        largest_batch=most,
        usd_per_million_tokens=None if per_hour is None or rate <= 0 else usd_per_million(per_hour, rate),
        prefill_speedup=reference.first.value / speed_ups.first.value if reference else None,
        decode_speedup=reference.other.value / speed_ups.other.value if reference else None,
    )


def _price(one: Candidate, market: Market) -> tuple[Price, float] | None:
    """Return the price of the cheapest machine, and the tokens in a second there; None where none is known."""
    width, offers = one.setting.width, []
    known: dict[object, float | None] = {}
    for instance in market.instances:
        rate = one.phases.tokens_per_s
        if one.device.kind == "gpu":
            number = int(instance.gpu_count)
            if instance.gpu != one.device.slug or number < width:
                continue
            rate *= number // width  # a machine with more of them runs as many models as fit side by side
        else:
            # A CPU that can be rented is another one than that which was looked at.
            if instance.gpu or instance.accelerator or (instance.memory_bytes or 0) < one.whole_bytes:
                continue
            key = (instance.cpu, instance.vcpus, instance.threads_per_core)
            if key not in known:
                cpu = catalogue.instance_cpu(instance)
                there = () if cpu is None else timed(one.model, cpu, one.setting, [one.request], Runner())
                known[key] = there[0].tokens_per_s if there else None
            rate = known[key] or 0.0
        if rate:
            price = seen_as(Price, instance, instance=instance.name)
            per_token = comparable(instance.usd_per_hour / rate)  # of equals the smaller machine
            offers.append((per_token, instance.usd_per_hour, price.machine, price, rate))
    best = min(offers, key=lambda offer: offer[:3], default=None)
    return None if best is None else best[3:]
