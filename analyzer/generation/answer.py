"""A question about generation -> its answer: times, memory, what else could be done, in the record's terms."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from analyzer.devices.device import Device, exchange_notes, peer_link
from analyzer.errors import UsageError
from analyzer.figures import Figure, seen_as
from analyzer.generation.options import Candidate, Market, candidate, joules_per_token, option
from analyzer.generation.request import BLOCK, DEFAULT_OUTPUT, Request, Setting, StepTypes, TimeLimits
from analyzer.generation.steps.step_times import step_times
from analyzer.generation.times import Correction, GeneratingModel, timed
from analyzer.memory.fit import room
from analyzer.options import CACHES, WEIGHTS, Cache, GenerationOptions
from analyzer.prediction import total, transfer
from analyzer.record.generation import (
    GenerationMemory,
    GenerationOption,
    GenerationPoint,
    GenerationResult,
    Phase,
    PhaseVerdict,
    SplitRequest,
    times_as_keys,
)

# Sequences at once that a step is looked at with.
BATCHES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
_CONTEXTS = (1024, 4096, 16384, 65536, 131072)
# Operators of a step beyond which fewer sizes are looked at: each is read, counted and timed by itself.
_ALL_SIZES_UP_TO = 3000
_FEW_BATCHES, _FEW_CONTEXTS = (1, 16, 256), (1024, 16384)


@dataclass(frozen=True, kw_only=True, eq=False)
class ComparedDevices:
    """The devices that may run it.

    The answer is about ``first``, a GPU or else the CPU; ``gpus`` is how many of each other one are wanted,
    None for as many as it takes.
    """

    first: Device
    cpu: Device
    compared: tuple[Device, ...]
    gpus: int | None = None


def setting_of(model: GeneratingModel, question: GenerationOptions, device: Device) -> Setting:
    """Return the types asked for, else the model's own; as many devices as asked, else as hold it."""
    weights, cache = model.stored_in(question.weights, question.cache)
    setting = Setting(weights=weights, cache=cache, launch=question.launch)
    if question.gpus is not None and device.kind == "gpu":
        model.check(question.gpus)
        return replace(setting, width=question.gpus)
    types = model.types_on(device, setting)
    if types is None or device.kind == "cpu":
        return setting
    # The fewest devices that hold the request; the most that can share it where none do.
    request = request_of(model, question)
    fitting = (
        width
        for width in model.widths
        if model.footprint(request, types, width, device.kind).fits(request, device)
    )
    return replace(setting, width=next(fitting, model.widths[-1]))


def _lengths(model: GeneratingModel, question: GenerationOptions) -> tuple[int, int]:
    """Return tokens in and out: what was asked, else the usual, as far as the model was made for so many."""
    output = question.output or min(DEFAULT_OUTPUT, max(1, model.longest // 2))
    return question.prompt or max(1, min(model.usual_prompt, model.longest - output)), output


def _request(model: GeneratingModel, batch: int, prompt: int, output: int) -> Request:
    """So many sequences; what of the prompt an encoder reads, the decoder does not."""
    return Request(
        batch=batch, prompt=model.decoder_prompt(prompt), output=output, source=model.source_of(prompt)
    )


def request_of(model: GeneratingModel, question: GenerationOptions) -> Request:
    """Return the request at the first batch, 1 where none is given.

    Of a text that an encoder reads, the decoder begins with one token.

    Raises:
        UsageError: A sequence would be longer than the model was made for.
    """
    prompt, output = _lengths(model, question)
    request = _request(model, (*question.batches, 1)[0], prompt, output)
    if request.context > model.longest:
        raise UsageError(
            f"--prompt {prompt} and --output-tokens {output} make {request.context:,} "
            f"tokens: {model.name} was made for {model.longest:,}.",
            hint=f"Take fewer, {model.longest:,} together.",
        )
    return request


def answer(
    model: GeneratingModel,
    question: GenerationOptions,
    devices: ComparedDevices,
    market: Market,
    request: Request,
) -> GenerationResult:
    """Return the record's ``generation``, about the first device at the request's batch."""
    device = devices.first
    on_cpu, on_device = (
        candidate(model, one, setting_of(model, question, one), request, market)
        for one in (devices.cpu, device)
    )
    one = on_device or on_cpu
    if one is None:
        raise UsageError(
            f"{device.name} has no way with weights of {setting_of(model, question, device).weights}: "
            "ONNX Runtime's CPU provider multiplies no floats of 8 bits.",
            hint="Take --weights int8, int4 or fp16, or name a --gpu.",
        )
    own = option(one, market, exact=True)
    table = _devices(model, question, devices, market, own)
    rate = one.phases.tokens_per_s
    single = model.footprint(one.request, one.types, 1, one.device.kind)
    widths = model.widths if one.device.kind == "gpu" else ()
    return seen_as(
        GenerationResult,
        own,
        prompt_tokens=_lengths(model, question)[0],
        output_tokens=request.output,
        launch=one.setting.launch,
        # Before any window is full; what several devices hold alike counts once.
        kv_bytes_per_token=single.cache(1) - single.cache(0),
        state_bytes=one.footprint.cache(0),
        memory=_memory(one),
        longest_context=one.footprint.longest_context(request, one.device, model.longest),
        model_context=model.positions,
        joules_per_token=joules_per_token(one.device, devices.cpu, one.setting.width, rate),
        cpu=None if on_cpu is None else option(on_cpu, replace(market, limits=TimeLimits(), searches=False)),
        sweep=_sweep(one, question, market),
        ttft_limit_s=question.ttft_s,
        tpot_limit_s=question.tpot_s,
        # The first of the table that can do what is asked and has a price.
        cheapest=0
        if table and table[0].meets_limits is not False and table[0].usd_per_million_tokens is not None
        else None,
        devices=table,
        types=_types(one, market, own),
        widths=_alternatives(one, market, (replace(one.setting, width=width) for width in widths), own),
        frontier=_frontier(one),
        parts=_parts(one, market),
        phases=_verdicts(one, on_cpu),
        split=_split(one, on_cpu),
        notes=_notes(one),
    )


def corrected(
    model: GeneratingModel, question: GenerationOptions, devices: Iterable[Device], market: Market
) -> Market:
    """Return the market whose predictions for the devices of this machine start from their measurements."""
    result = {}
    for device in devices:
        seen = market.measured.get(device.slug)
        if seen is not None:
            setting = setting_of(model, question, device)
            (predicted,) = timed(model, device, setting, [seen.request], market.runner)
            # 1 where it was not run after all, as a prompt of which ONNX Runtime has no operator.
            first, other = (
                ran.value / expected.value if ran.origin == "measured" else 1.0
                for ran, expected in ((seen.first, predicted.first), (seen.other, predicted.other))
            )
            types = model.types_on(device, setting)
            result[device.slug] = Correction(first=first, other=other, types=types)
    return replace(market, runner=replace(market.runner, corrections=result)) if result else market


def _memory(one: Candidate) -> GenerationMemory:
    print_, request, width = one.footprint, one.request, one.setting.width
    cached = request.batch * print_.cache(request.context)
    activations = print_.activations(request) * width
    return GenerationMemory(
        weights_bytes=print_.weights * width,
        kv_bytes=cached,
        activation_bytes=activations,
        total_bytes=print_.weights * width + cached + activations,
        fits=one.fits,
        device_bytes=print_.device_bytes(request),
        available_bytes=room(one.device),
    )


def _sweep(one: Candidate, question: GenerationOptions, market: Market) -> tuple[GenerationPoint, ...]:
    model, device = one.model, one.device
    prompt, output = _lengths(model, question)
    step = model.step(one.request.decode(one.request.middle, one.setting.width), one.types, device.kind)
    few = len(step.graph.graph.nodes) > _ALL_SIZES_UP_TO
    batches = sorted({*(_FEW_BATCHES if few else BATCHES), one.request.batch, *question.batches})
    usual = _FEW_CONTEXTS if few else _CONTEXTS
    contexts = sorted({context for context in (*usual, prompt + output) if context <= model.longest})
    points = [(batch, context) for batch in batches for context in contexts]
    requests = [_request(model, batch, context, 1) for batch, context in points]
    result = timed(model, device, one.setting, requests, market.runner)
    return tuple(
        seen_as(
            GenerationPoint,
            phases.recorded(),
            batch=batch,
            context=context,
            tokens_per_s=batch / phases.other.value,
            fits=model.footprint(phases.request, one.types, one.setting.width, device.kind).fits(
                phases.request, device
            ),
        )
        for (batch, context), phases in zip(points, result, strict=True)
    )


def _devices(
    model: GeneratingModel,
    question: GenerationOptions,
    devices: ComparedDevices,
    market: Market,
    own: GenerationOption,
) -> tuple[GenerationOption, ...]:
    """Return the best way on each device: those that keep the limits by dollars, then those without a price."""
    rows: list[tuple[GenerationOption, Candidate]] = []
    for device in devices.compared:
        requested = question if device.slug == devices.first.slug else question.replace(gpus=devices.gpus)
        of_device = [(_as_own(row, own), one) for row, one in _rows(model, requested, device, market)]
        if of_device:
            rows.append(min(of_device, key=lambda row: _rank(row[0])))
    rows.sort(key=lambda row: _rank(row[0]))
    if rows and rows[0][0].largest_batch:
        # The cheapest is an answer too: its batch is looked for to one sequence.
        rows[0] = (_as_own(option(rows[0][1], market, exact=True), own), rows[0][1])
    return tuple(row for row, _ in rows)


def _rows(
    model: GeneratingModel, question: GenerationOptions, device: Device, market: Market
) -> Iterator[tuple[GenerationOption, Candidate]]:
    """Yield the ways to run the request on a device that can run it."""
    request = request_of(model, question)
    for setting in _settings(model, question, device, market):
        key = device.slug, setting, request
        if key not in market.known:
            one = candidate(model, device, setting, request, market)
            market.known[key] = None if one is None else (option(one, market), one)
        row = market.known[key]
        if row is not None:
            yield row


def _settings(
    model: GeneratingModel, question: GenerationOptions, device: Device, market: Market
) -> list[Setting]:
    """Return the setting of a device; with limits, which more devices may keep, those of more of them too."""
    least = setting_of(model, question, device)
    if device.kind == "cpu" or question.gpus is not None or not market.limits.any:
        return [least]
    return [replace(least, width=width) for width in model.widths if width >= least.width]


def best_gpu(
    model: GeneratingModel, question: GenerationOptions, gpus: Sequence[Device], market: Market
) -> tuple[Device, int | None, int]:
    """Return the GPU of several that the record is about, how many of it, and the batch that they run."""
    rows = [row for gpu in gpus for row in _rows(model, question, gpu, market)]
    if not rows:
        return gpus[0], question.gpus, request_of(model, question).batch
    _, best = min(rows, key=lambda row: _rank(row[0]))
    return best.device, best.setting.width, option(best, market, exact=True).batch


def _as_own(row: GenerationOption, own: GenerationOption) -> GenerationOption:
    """Return the row, with the figures of the answer where it is the same way to run: one way has one price."""

    def way(one: GenerationOption) -> tuple[str, int, str, str]:
        return one.device, one.gpus, one.weights, one.kv

    if way(row) != way(own):
        return row
    return replace(own, prefill_speedup=row.prefill_speedup, decode_speedup=row.decode_speedup)


def _rank(row: GenerationOption) -> tuple[bool, bool, float, float, str]:
    dollars = row.usd_per_million_tokens
    late = row.meets_limits is False
    return (row.largest_batch == 0 or late, dollars is None, dollars or 0.0, row.request_s, row.device)


def _types(one: Candidate, market: Market, own: GenerationOption) -> tuple[GenerationOption, ...]:
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
    return _alternatives(one, market, apart.values(), own)


def _alternatives(
    one: Candidate, market: Market, settings: Iterable[Setting], own: GenerationOption
) -> tuple[GenerationOption, ...]:
    """Return the same request on the same kind of device in other settings, compared with what was asked."""
    others = (candidate(one.model, one.device, setting, one.request, market) for setting in settings)
    return tuple(_as_own(option(other, market, one.phases), own) for other in others if other is not None)


_Spelling = TypeVar("_Spelling", bound=str)


def _others(known: tuple[_Spelling, ...], own: _Spelling) -> tuple[_Spelling, ...]:
    """Return the requested type and the others; of the two with 16 bits, one."""
    left_out = {own, "fp16", *(("bf16",) if own == "fp16" else ())}
    return (own, *(name for name in known if name not in left_out))


def _frontier(one: Candidate) -> dict[int, dict[int, int]]:
    """Return the largest batch by context, on one device and on more."""
    on_gpu = one.device.kind == "gpu"
    # Half of it prompt, or the part that the request has of its own.
    share = one.request.prompt / one.request.context
    requests = {}
    for context in (2**exponent for exponent in range(9, 21) if 2**exponent <= one.model.longest):
        prompt = max(1, round(context * share))
        requests[context] = replace(one.request, prompt=prompt, output=context - prompt)
    prints = {
        width: one.model.footprint(one.request, one.types, width or 1, one.device.kind)
        for width in (one.model.widths if on_gpu else (0,))
    }
    return {
        width: {context: print_.largest_batch(request, one.device) for context, request in requests.items()}
        for width, print_ in prints.items()
    }


def _parts(one: Candidate, market: Market) -> dict[str, dict[Phase, float]]:
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
    return {
        part: {
            "prefill": seen.first * prefill.get(part, 0.0),
            "decode": seen.other * decode.get(part, 0.0),
        }
        for part in dict.fromkeys([*prefill, *decode])
        if prefill.get(part, 0.0) + decode.get(part, 0.0) > 0
    }


def _split(one: Candidate, cpu: Candidate | None) -> SplitRequest | None:
    """Return the prompt on the GPU, all further tokens on the CPU, where its cache has gone over the link."""
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
        **times_as_keys(ttft=one.phases.first, tpot=cpu.phases.other, request=whole),
        tokens_per_s=request.batch * request.output / whole.value,
        origin=whole.origin,
        pays=whole.value < min(one.phases.whole.value, cpu.phases.whole.value),
    )


def _verdicts(one: Candidate, cpu: Candidate | None) -> tuple[PhaseVerdict, ...]:
    """Return which side each phase belongs on; none where one side cannot run it."""
    if cpu is None or one.device.kind == "cpu":
        return ()
    sides: tuple[tuple[Phase, Figure, Figure], ...] = (
        ("prefill", cpu.phases.first, one.phases.first),
        ("decode", cpu.phases.other, one.phases.other),
    )
    return tuple(
        PhaseVerdict(
            phase=phase,
            device="gpu" if gpu.high < slow.low else "cpu" if slow.high < gpu.low else "either",
            cpu_s=slow.value,
            gpu_s=gpu.value,
            speedup=slow.value / gpu.value,
            low=slow.low / gpu.high,
            high=slow.high / gpu.low,
        )
        for phase, slow, gpu in sides
    )


def _notes(one: Candidate) -> tuple[str, ...]:
    """Return the sentences that hold for an answer."""
    setting = one.setting
    result = [
        "No request waits: a server's queue and its scheduler are not modelled. "
        "The batch is begun together, and all its prompts are read in one step. `analyze capacity` sizes and "
        "prices a service under traffic, and says the ratio of the dollars.",
        "Activations are those of that step; servers that read prompts in parts hold less.",
    ]
    written, on_cpu = one.model.exporter == "config", one.device.kind == "cpu"
    if on_cpu and written:
        result.append("ONNX Runtime's CPU provider computes in 32 bits: floats of 16 are stored as wide.")
    elif setting.weights == "bf16" and written:
        result.append("Operators of bfloat16 are shown as float16: bytes and rates are the same.")
    if setting.weights in ("int4", "int8", "fp8") and written:
        floats = 32 if on_cpu else 16
        own = one.types.own
        if own is not None:
            word = own.weights if own.is_usual else f"{own.bits:.3g} bits"
            result.append(
                f"Weights are stored as `quantization_config` says: most in {word} with a scale for "
                f"{own.shared_by}, those that it leaves out in {floats} bits."
            )
        else:
            scales = f", with a scale for {BLOCK} of them" if setting.weights != "fp8" else ""
            result.append(
                f"Weights of the layers are {setting.weights}{scales}; "
                f"embedding and head are {floats} bits wide."
            )
    sizes = one.request.decode(one.request.middle, setting.width)
    step = one.model.step(sizes, one.types, one.device.kind)
    packed = any(node.op_type == "MatMulNBits" for node in step.graph.graph.nodes)
    if one.device.kind == "gpu" and packed:
        # Llama 3.2 1B (tests/data/gpu), an H100 and an H200: 16 sequences in int4 took 3.1 and 3.0 ms, told at
        # 1.4 and 1.3; prompts of 512 tokens in int4 and int8 1.1 to 1.4 times what was told.
        result.append(
            "Multiplications by packed weights are predicted as fused kernels. ONNX Runtime 1.31 by itself has "
            "them for one row only: on an H100 and an H200 16 sequences took 2.2 to 2.4 times as long, prompts "
            "1.1 to 1.4 times. The intervals hold both."
        )
        result.append(
            "With one scale for 32 weights, the session's entry `ep.cuda.fpa_intb_gemm` = `1` has them for "
            "more rows: on an H200 16 sequences took 1.9 ms, 3.0 without it, but a token in int4 and prompts "
            "1.2 to 1.3 times as long as without it."
        )
    if one.device.kind == "gpu" and setting.launch == "session":
        result.append("The host launches each kernel; `--launch graph` is one replay of a CUDA graph.")
    if setting.width > 1:
        result.append(
            f"{setting.width} GPUs share each layer and sum its results; operators and plans of this record "
            "are the whole model's on one device."
        )
        peer = peer_link(one.device)
        result += exchange_notes(peer, (setting.width,)) if peer is not None else ()
    if not one.fits:
        result.append("The model does not fit: times are given as if it did.")
    return tuple(result)
