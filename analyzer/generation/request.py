"""A request to a generating model and its steps, its setting, and the limits on its times."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from analyzer.devices.device import Device
from analyzer.generation.architecture import Storage
from analyzer.graph import DTYPES, DType
from analyzer.options import Cache, LaunchMode, Weights

# ONNX's names. Of half the width float16 stands for both: bfloat16 has its bytes and rates on every card that
# has it, and ONNX Runtime's CPU provider has no kernels for it.
_STORED = {"fp32": "float32", "fp16": "float16", "bf16": "float16", "fp8": "float8e4m3fn", "int8": "int8"}
# Weights of one scale, as AWQ and GPTQ keep them.
BLOCK = 128


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTypes:
    """The types of a step.

    Attributes:
        weights: Of the layers' products; the embedding and the head keep the width of ``floats``, as they do in
            quantised checkpoints.
        cache: Of keys and values.
        floats: Of everything else.
        multiplies_narrow: Whether 8-bit floats are multiplied as such; else they are unpacked on the way.
        block: Packed weights of one scale, where all are stored alike.
        own: How most matrices of the model are stored, where each is as its configuration says; None where all
            are stored alike.
    """

    weights: Weights = "fp16"
    cache: Cache = "fp16"
    floats: Literal["fp32", "fp16"] = "fp16"
    multiplies_narrow: bool = True
    block: int = BLOCK
    own: Storage | None = None

    @property
    def float_type(self) -> DType:
        """Of activations, embedding and head."""
        return DTYPES[_STORED[self.floats]]

    @property
    def cache_type(self) -> DType:
        """Of keys and values."""
        return DTYPES[_STORED[self.cache]]

    @property
    def is_packed(self) -> bool:
        """Return whether weights are kept in other numbers than they are multiplied in."""
        return self.weights in ("int4", "int8") or (self.weights == "fp8" and not self.multiplies_narrow)

    @property
    def storage(self) -> Storage | None:
        """Return how the layers' matrices are stored where all are stored alike; None for floats."""
        if self.weights == "fp8" and self.multiplies_narrow:
            return Storage(bits=8, is_float=True, block=0, block_rows=0, scale_bits=32)
        if self.is_packed:
            return Storage(bits=4 if self.weights == "int4" else 8, block=self.block)
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class StepSizes:
    """The sizes of a step.

    Attributes:
        batch: Sequences.
        tokens: New ones of each.
        context: Keys that the last of them sees, itself included.
        width: Devices that share each layer (tensor parallel).
        source: Tokens or frames that an encoder has read; 0 without one.
        reads_source: Whether the encoder reads them in this step.
    """

    batch: int
    tokens: int
    context: int
    width: int = 1
    source: int = 0
    reads_source: bool = False

    @property
    def rows(self) -> int:
        """New tokens of all sequences."""
        return self.batch * self.tokens


# The most tokens that sequences of a model without a longest one are looked at with.
NO_LONGEST = 2**20
# Tokens in and out where nobody says how many.
DEFAULT_PROMPT, DEFAULT_OUTPUT = 1024, 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """Sequences that are begun together.

    ``source`` are tokens or frames of each that an encoder reads; 0 without one.
    """

    batch: int
    prompt: int
    output: int
    source: int = 0

    @property
    def context(self) -> int:
        """Tokens of a sequence in the end."""
        return self.prompt + self.output

    def prefill(self, width: int) -> StepSizes:
        """Return the step that reads the prompt and makes the first token."""
        return StepSizes(
            batch=self.batch,
            tokens=self.prompt,
            context=self.prompt,
            width=width,
            source=self.source,
            reads_source=self.source > 0,
        )

    def decode(self, context: int, width: int) -> StepSizes:
        """Return a step that makes one more token of each sequence, which then has so many."""
        return StepSizes(batch=self.batch, tokens=1, context=context, width=width, source=self.source)

    def steps(self, width: int) -> tuple[StepSizes, ...]:
        """Return the prompt's step, then those that the mean of the others is made of."""
        return (self.prefill(width), *(self.decode(context, width) for context, _ in self.contexts()))

    def contexts(self) -> tuple[tuple[int, float], ...]:
        """Return contexts of decode steps, and the weight of each in their mean (Simpson's rule).

        Times grow linearly along the context, but for windows and caches that fill up.
        """
        first, last = self.prompt + 1, max(self.prompt + 1, self.prompt + self.output - 1)
        if last - first < _FEW:
            return (((first + last) // 2, 1.0),)
        return ((first, 1 / 6), ((first + last) // 2, 4 / 6), (last, 1 / 6))

    @property
    def middle(self) -> int:
        """Tokens of a sequence half way through its answer."""
        contexts = self.contexts()
        return contexts[len(contexts) // 2][0]


_FEW = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeLimits:
    """Limits on a request's times; None for no limit."""

    ttft_s: float | None = None
    tpot_s: float | None = None

    @property
    def any(self) -> bool:
        """Return whether there is one."""
        return self.ttft_s is not None or self.tpot_s is not None

    def keep(self, ttft_s: float, tpot_s: float) -> bool:
        """Return whether these times keep them."""
        return (self.ttft_s is None or ttft_s <= self.ttft_s) and (self.tpot_s is None or tpot_s <= self.tpot_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """The setting of a model on a kind of device.

    ``width`` devices share the model.
    """

    weights: Weights
    cache: Cache
    width: int = 1
    launch: LaunchMode = "session"


def float_precision(device: Device, floats: Weights) -> str:
    """Return the precision in which a device computes with these floats; a CPU widens them."""
    if device.kind == "cpu":
        return "fp32"
    if floats == "fp32":
        return "tf32" if "tf32" in device.peak_flops_per_s else "fp32"
    return "bf16" if floats == "bf16" and "bf16" in device.peak_flops_per_s else "fp16"
