"""What the record says of a model that generates; see ``analysis`` for units."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from analyzer.options import Pricing
from analyzer.quantities import Amount, Count, Positive


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationMemory:
    """What lies on the devices at the end of the longest sequence, summed over all that share the model.

    ``device_bytes`` is the fullest one's share, ``available_bytes`` what that one leaves beside CUDA's own.
    ``activation_bytes`` are those of the larger phase, tables of positions with them.
    """

    weights_bytes: Count
    kv_bytes: Count
    activation_bytes: Count
    total_bytes: Count
    fits: bool
    device_bytes: Count
    available_bytes: Count | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestTimes:
    """A request's times on one device, or on several that share the model; ends of 90 % intervals.

    ``ttft_s`` is the time to the first token of a batch that waits for nobody, ``tpot_s`` the mean over the
    others, ``request_s`` both together. ``tokens_per_s`` are the output tokens of the whole batch.
    """

    ttft_s: Amount
    ttft_low_s: Amount
    ttft_high_s: Amount
    tpot_s: Amount
    tpot_low_s: Amount
    tpot_high_s: Amount
    request_s: Amount
    request_low_s: Amount
    request_high_s: Amount
    tokens_per_s: Amount
    origin: Literal["measured", "predicted", "mixed"] = "predicted"


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuGeneration:
    """The same request on the CPU, in the types that ONNX Runtime computes in there."""

    weights: str
    kv: str
    times: RequestTimes
    memory: GenerationMemory
    ttft_s: Amount
    tpot_s: Amount
    request_s: Amount
    tokens_per_s: Amount
    usd_per_million_tokens: Amount | None = None
    instance: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationPoint:
    """One batch at one context: ``ttft_s`` of a prompt so long, ``tpot_s`` of a token behind so many."""

    batch: Count
    context: Count
    ttft_s: Amount
    ttft_low_s: Amount
    ttft_high_s: Amount
    tpot_s: Amount
    tpot_low_s: Amount
    tpot_high_s: Amount
    tokens_per_s: Amount
    fits: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationOption:
    """The request on another device, in other types or on another number of devices.

    ``largest_batch`` is the largest that fits and, where limits were given, meets them, then to a quarter of
    the way between two powers of two. ``best_tokens_per_s`` and ``usd_per_million_tokens`` are at it with
    limits, at the batch that was asked for without; None where that does not fit, or no batch meets them.
    ``pricing``, ``region`` and ``price_date`` are of the instance's price.
    """

    device: str
    name: str
    kind: Literal["cpu", "gpu"]
    gpus: Count
    weights: str
    kv: str
    times: RequestTimes
    fits: bool
    meets_limits: bool | None
    memory_bytes: Count
    largest_batch: Count
    best_tokens_per_s: Amount | None = None
    usd_per_hour: Amount | None = None
    usd_per_million_tokens: Amount | None = None
    instance: str = ""
    pricing: Pricing = "on-demand"
    region: str = ""
    price_date: str = ""
    prefill_speedup: Positive | None = None
    decode_speedup: Positive | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontierPoint:
    """The largest batch that fits so many devices at a context."""

    gpus: Count
    context: Count
    largest_batch: Count


@dataclass(frozen=True, slots=True, kw_only=True)
class PartTime:
    """What a part of all layers takes in each phase: a class of modules, sums between devices, the launch."""

    part: str
    prefill_s: Amount
    decode_s: Amount


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseVerdict:
    """One phase on both sides. ``device`` is ``either`` where the intervals overlap."""

    phase: Literal["prefill", "decode"]
    device: Literal["cpu", "gpu", "either"]
    cpu_s: Amount
    gpu_s: Amount
    speedup: Positive
    low: Positive
    high: Positive


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitRequest:
    """A request whose prompt the GPU reads and whose other tokens the CPU makes, the cache copied between.

    ``pays`` says whether it is quicker than either alone, the intervals left aside.
    """

    handover_bytes: Count
    handover_s: Amount
    request_s: Amount
    request_low_s: Amount
    request_high_s: Amount
    tokens_per_s: Amount
    pays: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationResult:
    """A model that generates, on one GPU or on several: times, memory, what else could be done.

    Attributes:
        prompt_tokens, output_tokens, batch, gpus: What was asked.
        device: The GPU's slug; the CPU's with ``--gpu none``.
        weights, kv, launch: Types and way of launching that the figures are for.
        ttft_s, tpot_s, request_s, tokens_per_s: As in ``RequestTimes``.
        kv_bytes_per_token: Of the cache, for one more token of one sequence.
        state_bytes: Of one sequence, whatever its length (state spaces, the cache of an encoder's states).
        largest_batch: That fits at this context, and meets the limits where there are any.
        longest_context: That fits at this batch; at most the model's own.
        model_context: Positions that the model was made for; None where nothing limits them.
        usd_per_million_tokens, instance: On the cheapest instance that has these GPUs.
        joules_per_token: Of an output token, prefill included.
        ttft_limit_s, tpot_limit_s: As asked; ``meets_limits`` says whether they are kept.
        cheapest: Index of the cheapest of ``devices`` that meets them; None where none does.
        devices: Every GPU asked for, or all of the catalogue, and the CPU.
        types: Other types of weights and cache on the same device.
        widths: Other numbers of the same GPU.
        phases: Which side each phase belongs on.
        split: Prefill on the GPU and decode on the CPU; None where one side cannot run it.
        notes: What the figures rest on, in sentences.
    """

    prompt_tokens: Count
    output_tokens: Count
    batch: Count
    gpus: Count
    device: str
    weights: str
    kv: str
    launch: Literal["session", "graph"]
    ttft_s: Amount
    ttft_low_s: Amount
    ttft_high_s: Amount
    tpot_s: Amount
    tpot_low_s: Amount
    tpot_high_s: Amount
    request_s: Amount
    request_low_s: Amount
    request_high_s: Amount
    tokens_per_s: Amount
    origin: Literal["measured", "predicted", "mixed"]
    kv_bytes_per_token: Count
    state_bytes: Count
    memory: GenerationMemory
    largest_batch: Count
    longest_context: Count
    model_context: Count | None
    usd_per_million_tokens: Amount | None
    instance: str
    joules_per_token: Amount | None
    cpu: CpuGeneration | None
    sweep: tuple[GenerationPoint, ...] = ()
    ttft_limit_s: Amount | None = None
    tpot_limit_s: Amount | None = None
    meets_limits: bool | None = None
    cheapest: Count | None = None
    devices: tuple[GenerationOption, ...] = ()
    types: tuple[GenerationOption, ...] = ()
    widths: tuple[GenerationOption, ...] = ()
    frontier: tuple[FrontierPoint, ...] = ()
    parts: tuple[PartTime, ...] = ()
    phases: tuple[PhaseVerdict, ...] = ()
    split: SplitRequest | None = None
    notes: tuple[str, ...] = ()
