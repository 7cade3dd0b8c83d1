"""Generation in the record; see ``analysis`` for units."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from analyzer.figures import Figure, Origin, Price
from analyzer.quantities import Amount, Count, Positive

Phase = Literal["prefill", "decode"]


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationMemory:
    """Bytes on the devices at the end of the longest sequence, summed over all that share the model.

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


def times_as_keys(**times: Figure) -> dict[str, Any]:
    """Return times by the keys of the types below: ``ttft_s``, ``ttft_low_s``, ``ttft_high_s``."""
    return {
        f"{name}{end}_s": value
        for name, time in times.items()
        for end, value in zip(("_low", "", "_high"), time.ends, strict=True)
    }


@dataclass(frozen=True, kw_only=True)
class TokenTimes:
    """Seconds to the first token of a batch that waits for no other, and of each further token."""

    ttft_s: Amount
    ttft_low_s: Amount
    ttft_high_s: Amount
    tpot_s: Amount
    tpot_low_s: Amount
    tpot_high_s: Amount
    origin: Origin = "predicted"

    @property
    def ttft(self) -> Figure:
        """The time to the first token."""
        return Figure.about(self.ttft_s, self.ttft_low_s, self.ttft_high_s, self.origin)

    @property
    def tpot(self) -> Figure:
        """The time of each further token; of a request the mean over them."""
        return Figure.about(self.tpot_s, self.tpot_low_s, self.tpot_high_s, self.origin)


@dataclass(frozen=True, kw_only=True)
class RequestTimes(TokenTimes):
    """A request's times: ``request_s`` to its last token, the whole batch's output tokens in a second."""

    request_s: Amount
    request_low_s: Amount
    request_high_s: Amount
    tokens_per_s: Amount

    @property
    def request(self) -> Figure:
        """The time of the request."""
        return Figure.about(self.request_s, self.request_low_s, self.request_high_s, self.origin)

    @property
    def rate(self) -> Figure:
        """Tokens in a second: they are the same at both ends of the request's time, which is turned over."""
        tokens, time = self.tokens_per_s * self.request_s, self.request
        return Figure.about(self.tokens_per_s, tokens / time.high, tokens / time.low, time.origin)


@dataclass(frozen=True, kw_only=True)
class GeneratingWay(RequestTimes, Price):
    """A request on a device: in these types, on so many GPUs, on the cheapest instance that has them.

    All figures are of one ``batch``: the requested one or, where limits were given and no batch, the largest
    that fits and meets them, ``largest_batch``. ``usd_per_million_tokens`` is None where the request does not
    fit or no price is known.
    """

    device: str
    gpus: Count
    weights: str
    kv: str
    batch: Count
    largest_batch: Count
    meets_limits: bool | None = None
    usd_per_million_tokens: Amount | None = None


@dataclass(frozen=True, kw_only=True)
class GenerationPoint(TokenTimes):
    """One batch at one context: ``ttft_s`` of a prompt so long, ``tpot_s`` of a token behind so many."""

    batch: Count
    context: Count
    tokens_per_s: Amount
    fits: bool


@dataclass(frozen=True, kw_only=True)
class GenerationOption(GeneratingWay):
    """The request on another device, in other types or on another number of devices.

    Where limits were given, ``largest_batch`` is exact of the requested setting and of the cheapest device,
    of others to a quarter of the way between two powers of two. The speed-ups are over the requested setting,
    at its batch.
    """

    name: str
    kind: Literal["cpu", "gpu"]
    fits: bool
    memory_bytes: Count
    prefill_speedup: Positive | None = None
    decode_speedup: Positive | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseVerdict:
    """One phase on both sides. ``device`` is ``either`` where the intervals overlap."""

    phase: Phase
    device: Literal["cpu", "gpu", "either"]
    cpu_s: Amount
    gpu_s: Amount
    speedup: Positive
    low: Positive
    high: Positive


@dataclass(frozen=True, kw_only=True)
class SplitRequest(RequestTimes):
    """A request whose prompt the GPU reads and whose other tokens the CPU makes, the cache copied between.

    ``pays`` says whether it is quicker than either alone, the intervals left aside.
    """

    handover_bytes: Count
    handover_s: Amount
    pays: bool


@dataclass(frozen=True, kw_only=True)
class GenerationResult(GeneratingWay):
    """A model that generates, on one GPU or on several: times, memory, what else could be done.

    Attributes:
        prompt_tokens, output_tokens: Of the request.
        device: The GPU's slug; the CPU's with ``--gpu none``.
        launch: How kernels are launched in these times.
        kv_bytes_per_token: Of the cache, for one more token of one sequence.
        state_bytes: Of one sequence, whatever its length (state spaces, the cache of an encoder's states).
        largest_batch: That fits at this context, and meets the limits where there are any.
        longest_context: That fits at this batch; at most the model's own.
        model_context: Positions that the model was made for; None where nothing limits them.
        joules_per_token: Of an output token, prefill included.
        cpu: The same request there, in the types that ONNX Runtime computes in, without limits.
        ttft_limit_s, tpot_limit_s: The limits; ``meets_limits`` says whether they are met.
        cheapest: Index of the cheapest of ``devices`` that meets them; None where none does.
        devices: Every GPU that was named, or all of the catalogue, and the CPU.
        types: Other types of weights and cache on the same device.
        widths: Other numbers of the same GPU.
        frontier: The largest batch that fits, by number of GPUs (0 for the CPU) and by context.
        parts: Seconds of a part of all layers in both phases: a class of modules, sums between devices, the
            launch.
        phases: Which side each phase belongs on.
        split: Prefill on the GPU and decode on the CPU; None where one side cannot run it.
        notes: What the figures rest on, in sentences.
    """

    prompt_tokens: Count
    output_tokens: Count
    launch: Literal["session", "graph"]
    kv_bytes_per_token: Count
    state_bytes: Count
    memory: GenerationMemory
    longest_context: Count
    model_context: Count | None
    joules_per_token: Amount | None
    cpu: GenerationOption | None
    sweep: tuple[GenerationPoint, ...] = ()
    ttft_limit_s: Amount | None = None
    tpot_limit_s: Amount | None = None
    cheapest: Count | None = None
    devices: tuple[GenerationOption, ...] = ()
    types: tuple[GenerationOption, ...] = ()
    widths: tuple[GenerationOption, ...] = ()
    frontier: Mapping[Count, Mapping[Count, Count]] = field(default_factory=dict)
    parts: Mapping[str, Mapping[Phase, Amount]] = field(default_factory=dict)
    phases: tuple[PhaseVerdict, ...] = ()
    split: SplitRequest | None = None
    notes: tuple[str, ...] = ()

    @property
    def limited(self) -> bool:
        """Return whether times are limited."""
        return self.ttft_limit_s is not None or self.tpot_limit_s is not None
