"""What one step of generation is: how many tokens at which place, in which types, on how many devices."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from analyzer.generation.architecture import Storage
from analyzer.graph import DTYPES, DType
from analyzer.options import Cache, Weights

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
        """Whether weights are kept in other numbers than they are multiplied in."""
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
