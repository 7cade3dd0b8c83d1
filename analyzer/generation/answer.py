"""A question about generation -> its answer: times, memory, what else could be done, in the record's terms."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, TypeVar

from analyzer.devices.device import Device
from analyzer.errors import UsageError
from analyzer.figures import Figure
from analyzer.generation import notes
from analyzer.generation.model import GeneratingModel
from analyzer.generation.options import Candidate, Market, candidate, option, smallest_width
from analyzer.generation.prices import joules_per_token
from analyzer.generation.request import DEFAULT_OUTPUT, Request, Setting, TimeLimits
from analyzer.generation.steps.step_sizes import StepTypes
from analyzer.generation.steps.step_times import step_times
from analyzer.generation.times import Correction, RequestPhases, timed
from analyzer.memory.fit import room
from analyzer.options import CACHES, WEIGHTS, Cache, GenerationOptions
from analyzer.prediction import total, transfer
from analyzer.record.generation import (
    CpuGeneration,
    FrontierPoint,
    GenerationMemory,
    GenerationOption,
    GenerationPoint,
    GenerationResult,
    PartTime,
    PhaseVerdict,
    RequestTimes,
    SplitRequest,
)

# Sequences at once that a step is looked at with.
BATCHES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
_CONTEXTS = (1024, 4096, 16384, 65536, 131072)
# Operators of a step beyond which fewer sizes are looked at: each is read, counted and timed by itself.
_ALL_SIZES_UP_TO = 3000
_FEW_BATCHES, _FEW_CONTEXTS = (1, 16, 256), (1024, 16384)


@dataclass(frozen=True, kw_only=True, eq=False)
class ComparedDevices:
    """Where it may run.

    Attributes:
        first: What the answer is about: a GPU, else the CPU.
        cpu: The CPU beside it.
        compared: All that stand in the table of devices.
        measured: The request as a device of this machine ran it, by its slug.
    """

    first: Device
    cpu: Device
    compared: tuple[Device, ...]
    measured: Mapping[str, RequestPhases] = field(default_factory=dict)


def setting_of(model: GeneratingModel, question: GenerationOptions, device: Device) -> Setting:
    """The types asked for, else the model's own; as many devices as asked, else as hold it."""
    weights, cache = model.kept_in(question.weights, question.cache)
    setting = Setting(weights=weights, cache=cache, launch=question.launch)
    if question.gpus is not None and device.kind == "gpu":
        model.check(question.gpus)
        return replace(setting, width=question.gpus)
    if model.types_on(device, setting) is None:
        return setting
    return replace(setting, width=smallest_width(model, device, setting, request_of(model, question)))


def _lengths(model: GeneratingModel, question: GenerationOptions) -> tuple[int, int]:
    """Tokens in and out: what was asked, else the usual, as far as the model was made for so many."""
    output = question.output or min(DEFAULT_OUTPUT, max(1, model.longest // 2))
    return question.prompt or max(1, min(model.usual_prompt, model.longest - output)), output


def _request(model: GeneratingModel, batch: int, prompt: int, output: int) -> Request:
    """So many sequences; what of the prompt an encoder reads, the decoder does not."""
    return Request(
        batch=batch, prompt=model.decoder_prompt(prompt), output=output, source=model.source_of(prompt)
    )


def request_of(model: GeneratingModel, question: GenerationOptions) -> Request:
    """The request; of a text that an encoder reads, the decoder begins with one token.

    Raises:
        UsageError: A sequence would be longer than the model was made for.
    """
    prompt, output = _lengths(model, question)
    request = _request(model, question.batches[0], prompt, output)
    if request.context > model.longest:
        raise UsageError(
            f"--prompt {prompt} and --output-tokens {output} make {request.context:,} "
            f"tokens: {model.name} was made for {model.longest:,}.",
            hint=f"Take fewer, {model.longest:,} together.",
        )
    return request


def answer(
    model: GeneratingModel, question: GenerationOptions, devices: ComparedDevices, market: Market
) -> GenerationResult:
    """The record's ``generation``; of a request that was run here, ``market`` is ``corrected``."""
    request = request_of(model, question)
    device = devices.first
    chosen = _on(model, device, setting_of(model, question, device), request, market, devices)
    on_cpu = _on(model, devices.cpu, setting_of(model, question, devices.cpu), request, market, devices)
    one = chosen or on_cpu
    if one is None:
        raise UsageError(
            f"{device.name} has no way with weights of {setting_of(model, question, device).weights}: "
            "ONNX Runtime's CPU provider multiplies no floats of 8 bits.",
            hint="Take --weights int8, int4 or fp16, or name a --gpu.",
        )
    times, priced = one.phases.recorded(), option(one, market, exact=True)
    table = _devices(model, question, devices, request, market)
    rate = one.phases.tokens_per_s
    weights, cache = one.kept_in
    return GenerationResult(
        prompt_tokens=_lengths(model, question)[0],
        output_tokens=request.output,
        batch=request.batch,
        gpus=one.setting.width if one.device.kind == "gpu" else 0,
        device=one.device.slug,
        weights=weights,
        kv=cache,
        launch=one.setting.launch,
        **_fields(times),
        kv_bytes_per_token=_grown(one),
        state_bytes=one.footprint.cache(0),
        memory=_memory(one),
        largest_batch=priced.largest_batch,
        longest_context=one.footprint.longest_context(request, one.device, model.longest),
        model_context=model.positions,
        usd_per_million_tokens=priced.usd_per_million_tokens,
        instance=priced.instance,
        joules_per_token=joules_per_token(one.device, devices.cpu, one.setting.width, rate),
        cpu=_cpu(on_cpu, market) if on_cpu is not None else None,
        sweep=_sweep(one, question, market),
        ttft_limit_s=question.ttft_s,
        tpot_limit_s=question.tpot_s,
        meets_limits=priced.meets_limits,
        cheapest=_cheapest(table),
        devices=table,
        types=_types(one, market),
        widths=_widths(one, market),
        frontier=_frontier(one),
        parts=_parts(one, market),
        phases=_verdicts(one, on_cpu),
        split=_split(one, on_cpu),
        notes=notes.of(one),
    )


def corrected(
    model: GeneratingModel,
    question: GenerationOptions,
    devices: ComparedDevices,
    request: Request,
    market: Market,
) -> Market:
    """The market whose predictions for the devices of this machine start from what those were measured at."""
    found = {}
    for device in (devices.first, devices.cpu):
        seen = devices.measured.get(device.slug)
        if seen is not None:
            setting = setting_of(model, question, device)
            (predicted,) = timed(model, device, setting, [request], market.runner)
            found[device.slug] = Correction(
                first=_seen_over_predicted(seen.first, predicted.first),
                other=_seen_over_predicted(seen.other, predicted.other),
                types=model.types_on(device, setting),
            )
    return replace(market, runner=replace(market.runner, corrections=found)) if found else market


def _seen_over_predicted(seen: Figure, predicted: Figure) -> float:
    """1 where it was not run after all, as a prompt of which ONNX Runtime has no operator."""
    return seen.value / predicted.value if seen.origin == "measured" else 1.0


def _fields(times: RequestTimes) -> dict[str, Any]:
    return {entry.name: getattr(times, entry.name) for entry in fields(times)}


def _on(
    model: GeneratingModel,
    device: Device,
    setting: Setting,
    request: Request,
    market: Market,
    devices: ComparedDevices,
) -> Candidate | None:
    found = candidate(model, device, setting, request, market.runner)
    seen = devices.measured.get(device.slug)
    # What was run is one device in the setting that was asked for; in others the same device is predicted.
    if found is not None and seen is not None and setting.width == 1:
        return replace(found, phases=seen)
    return found


def _grown(one: Candidate) -> int:
    """Bytes of one more token, before any window is full; what several devices hold alike counts once."""
    cache = one.model.footprint(one.request, one.types, 1, one.device.kind).cache
    return cache(1) - cache(0)


def _memory(one: Candidate) -> GenerationMemory:
    print_, request, width = one.footprint, one.request, one.setting.width
    kept = request.batch * print_.cache(request.context)
    activations = print_.activations(request) * width
    return GenerationMemory(
        weights_bytes=print_.weights * width,
        kv_bytes=kept,
        activation_bytes=activations,
        total_bytes=print_.weights * width + kept + activations,
        fits=one.fits,
        device_bytes=print_.device_bytes(request),
        available_bytes=room(one.device),
    )


def _cpu(one: Candidate, market: Market) -> CpuGeneration:
    times, priced = one.phases.recorded(), option(one, replace(market, limits=TimeLimits()))
    weights, cache = one.kept_in
    return CpuGeneration(
        weights=weights,
        kv=cache,
        times=times,
        memory=_memory(one),
        ttft_s=times.ttft_s,
        tpot_s=times.tpot_s,
        request_s=times.request_s,
        tokens_per_s=times.tokens_per_s,
        usd_per_million_tokens=priced.usd_per_million_tokens,
        instance=priced.instance,
    )


def _sweep(one: Candidate, question: GenerationOptions, market: Market) -> tuple[GenerationPoint, ...]:
    model, device = one.model, one.device
    prompt, output = _lengths(model, question)
    step = model.step(one.request.decode(one.request.middle, one.setting.width), one.types, device.kind)
    few = len(step.graph.graph.nodes) > _ALL_SIZES_UP_TO
    batches = sorted({*(_FEW_BATCHES if few else BATCHES), *question.batches})
    usual = _FEW_CONTEXTS if few else _CONTEXTS
    contexts = sorted({context for context in (*usual, prompt + output) if context <= model.longest})
    asked = [(batch, context) for batch in batches for context in contexts]
    requests = [_request(model, batch, context, 1) for batch, context in asked]
    found = timed(model, device, one.setting, requests, market.runner)
    return tuple(
        GenerationPoint(
            batch=batch,
            context=context,
            ttft_s=phases.first.value,
            ttft_low_s=phases.first.low,
            ttft_high_s=phases.first.high,
            tpot_s=phases.other.value,
            tpot_low_s=phases.other.low,
            tpot_high_s=phases.other.high,
            tokens_per_s=batch / phases.other.value,
            fits=model.footprint(phases.request, one.types, one.setting.width, device.kind).fits(
                phases.request, device
            ),
        )
        for (batch, context), phases in zip(asked, found, strict=True)
    )


def _devices(
    model: GeneratingModel,
    question: GenerationOptions,
    devices: ComparedDevices,
    request: Request,
    market: Market,
) -> tuple[GenerationOption, ...]:
    """Best first: those that keep the limits by dollars, then those without a price by time."""
    rows = []
    for device in devices.compared:
        asked = question if device.slug == devices.first.slug else question.replace(gpus=None)
        settings = _settings(model, asked, device)
        found = [_on(model, device, setting, request, market, devices) for setting in settings]
        of_device = [option(one, market) for one in found if one is not None]
        if of_device:
            rows.append(min(of_device, key=_rank))
    return tuple(sorted(rows, key=_rank))


def _settings(model: GeneratingModel, question: GenerationOptions, device: Device) -> tuple[Setting, ...]:
    """The setting on a device; where there are limits, on more devices too, which may be what keeps them."""
    setting = setting_of(model, question, device)
    limited = question.ttft_s is not None or question.tpot_s is not None
    if device.kind == "cpu" or question.gpus is not None or not limited:
        return (setting,)
    return tuple(replace(setting, width=width) for width in model.widths if width >= setting.width)


def _rank(row: GenerationOption) -> tuple[bool, bool, float, float, str]:
    dollars = row.usd_per_million_tokens
    return (row.largest_batch == 0, dollars is None, dollars or 0.0, row.times.request_s, row.device)


def _cheapest(table: Sequence[GenerationOption]) -> int | None:
    """The first of the table that can do what is asked and has a price."""
    known = bool(table) and table[0].largest_batch > 0 and table[0].usd_per_million_tokens is not None
    return 0 if known else None


def _types(one: Candidate, market: Market) -> tuple[GenerationOption, ...]:
    """Other weights and caches on the same devices, beside what was asked; what runs alike stands once."""
    caches: tuple[Cache, ...] = (
        (one.setting.cache,) if one.model.has_state_alone else _others(CACHES, one.setting.cache)
    )
    settings = (
        replace(one.setting, weights=weights, cache=cache)
        for weights in _others(WEIGHTS, one.setting.weights)
        for cache in caches
    )
    apart: dict[StepTypes | None, Setting] = {}
    for setting in settings:
        # A CPU has one type of cache, whatever is asked for.
        apart.setdefault(one.model.types_on(one.device, setting), setting)
    return _beside(one, market, apart.values())


def _beside(one: Candidate, market: Market, settings: Iterable[Setting]) -> tuple[GenerationOption, ...]:
    """The same request on the same kind of device in other settings, compared with what was asked."""
    others = (candidate(one.model, one.device, setting, one.request, market.runner) for setting in settings)
    return tuple(option(other, market, one.phases) for other in others if other is not None)


_Spelling = TypeVar("_Spelling", bound=str)


def _others(known: tuple[_Spelling, ...], own: _Spelling) -> tuple[_Spelling, ...]:
    """What was asked and the others; of the two of 16 bits, one."""
    left_out = {own, "fp16", *(("bf16",) if own == "fp16" else ())}
    return (own, *(name for name in known if name not in left_out))


def _widths(one: Candidate, market: Market) -> tuple[GenerationOption, ...]:
    widths = one.model.widths if one.device.kind == "gpu" else ()
    return _beside(one, market, (replace(one.setting, width=width) for width in widths))


def _frontier(one: Candidate) -> tuple[FrontierPoint, ...]:
    """The largest batch by context, on one device and on more."""
    widths = one.model.widths if one.device.kind == "gpu" else (1,)
    contexts = [2**exponent for exponent in range(9, 21) if 2**exponent <= one.model.longest]
    points = []
    for width in widths:
        print_ = one.model.footprint(one.request, one.types, width, one.device.kind)
        for context in contexts:
            # Half of it prompt, or the part that the request has of its own.
            share = one.request.prompt / one.request.context
            prompt = max(1, round(context * share))
            request = replace(one.request, prompt=prompt, output=context - prompt)
            points.append(
                FrontierPoint(
                    gpus=width if one.device.kind == "gpu" else 0,
                    context=context,
                    largest_batch=print_.largest_batch(request, one.device),
                )
            )
    return tuple(points)


def _parts(one: Candidate, market: Market) -> tuple[PartTime, ...]:
    request, width = one.request, one.setting.width
    steps = [
        one.model.step(sizes, one.types, one.device.kind)
        for sizes in (request.prefill(width), request.decode(request.middle, width))
    ]
    times = step_times(
        steps, one.model.exchange, one.device, precision=one.precision, launch=one.setting.launch,
        host=market.runner.host, threads=market.runner.threads,
    )  # fmt: skip
    prefill, decode = times.parts(0), times.parts(1)
    seen = market.runner.correction(one.device)
    return tuple(
        PartTime(
            part=part,
            prefill_s=seen.first * prefill.get(part, 0.0),
            decode_s=seen.other * decode.get(part, 0.0),
        )
        for part in dict.fromkeys([*prefill, *decode])
        if prefill.get(part, 0.0) + decode.get(part, 0.0) > 0
    )


def _split(one: Candidate, cpu: Candidate | None) -> SplitRequest | None:
    """The prompt on the GPU, all further tokens on the CPU, where its cache has gone over the link."""
    link = one.device.link
    if cpu is None or one.device.kind == "cpu" or link is None:
        return None
    request = one.request
    # Each of several GPUs has its share of it, and a link of its own.
    nbytes = request.batch * one.footprint.cache(request.prompt)
    handover = transfer(link, nbytes / one.setting.width)
    tokens = max(0, request.output - 1)
    whole = total((one.phases.first, handover, cpu.phases.other.scaled(tokens)))
    return SplitRequest(
        handover_bytes=nbytes,
        handover_s=handover.value,
        request_s=whole.value,
        request_low_s=whole.low,
        request_high_s=whole.high,
        tokens_per_s=request.batch * request.output / whole.value,
        pays=whole.value < min(one.phases.whole.value, cpu.phases.whole.value),
    )


def _verdicts(one: Candidate, cpu: Candidate | None) -> tuple[PhaseVerdict, ...]:
    """Which side each phase belongs on; none where one side cannot run it."""
    if cpu is None or one.device.kind == "cpu":
        return ()
    pairs = (
        ("prefill", cpu.phases.first, one.phases.first),
        ("decode", cpu.phases.other, one.phases.other),
    )
    return tuple(
        PhaseVerdict(
            phase="prefill" if name == "prefill" else "decode",
            device="gpu" if gpu.high < slow.low else "cpu" if slow.high < gpu.low else "either",
            cpu_s=slow.value,
            gpu_s=gpu.value,
            speedup=slow.value / gpu.value,
            low=slow.low / gpu.high,
            high=slow.high / gpu.low,
        )
        for name, slow, gpu in pairs
    )
