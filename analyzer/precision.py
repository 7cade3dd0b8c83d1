"""Precisions on devices: which peak, how many bytes an element, what stands in where a type is lacking.

Prediction, decision and report all read this table (leaf: imports only errors).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal, Protocol

from analyzer.errors import DeviceError, UsageError

if TYPE_CHECKING:
    from analyzer.graph import Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rule:
    """A row of the table.

    Attributes:
        on_gpu: Peaks that its products run at on a GPU, best first; a device without the first uses the next.
        on_cpu: The same on a CPU.
        element_bytes: Bytes of a float on a GPU.
    """

    on_gpu: tuple[str, ...]
    on_cpu: tuple[str, ...]
    element_bytes: int


# ONNX Runtime's CPU provider has no bf16 kernels, puts Casts to fp32 around fp16 ones
# (onnxruntime/core/optimizer/insert_cast_transformer.cc) and knows no TF32:
# whatever a CPU's own instructions offer, these run at its fp32 peak.
_TABLE: Mapping[str, _Rule] = MappingProxyType(
    {
        "fp64": _Rule(on_gpu=("fp64", "fp32"), on_cpu=("fp64", "fp32"), element_bytes=8),
        "fp32": _Rule(on_gpu=("fp32",), on_cpu=("fp32",), element_bytes=4),
        "tf32": _Rule(on_gpu=("tf32", "fp32"), on_cpu=("fp32",), element_bytes=4),
        "fp16": _Rule(on_gpu=("fp16", "fp32"), on_cpu=("fp32",), element_bytes=2),
        "bf16": _Rule(on_gpu=("bf16", "fp32"), on_cpu=("fp32",), element_bytes=2),
    }
)
PEAK_TYPES = (*_TABLE, "int8", "fp8", "fp4")
"""What a device file may give a peak for."""
FLOAT_PRECISIONS = tuple(name for name in _TABLE if name != "fp64")
"""Widths in which floats are kept and multiplied; a model of float64 weights is decided in fp64 unasked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _IntegerForm:
    """Types of products in a converted graph; its floats stay floats, its integers have their own types.

    Attributes:
        on_gpu, on_cpu: As in ``_Rule``.
        floats_on_gpu: The precision of the floats there, best first; empty for those of the model.
    """

    on_gpu: tuple[str, ...]
    on_cpu: tuple[str, ...]
    floats_on_gpu: tuple[str, ...] = ()


# ONNX Runtime's CUDA provider multiplies in floats between QuantizeLinear and DequantizeLinear, and so does
# MatMulNBits, whose weights alone are packed: GenAI's builder writes its models for CUDA in fp16.
_INTEGER_FORMS: Mapping[str, _IntegerForm] = MappingProxyType(
    {
        "int8": _IntegerForm(on_gpu=("tf32", "fp32"), on_cpu=("int8", "fp32")),
        "int4": _IntegerForm(on_gpu=("fp16", "fp32"), on_cpu=("int8", "fp32"), floats_on_gpu=("fp16",)),
    }
)
INTEGER_FORMS = tuple(_INTEGER_FORMS)
"""Precisions that are another graph: ``analyzer.conversion`` makes it."""
PRECISIONS = (*FLOAT_PRECISIONS, *INTEGER_FORMS)
"""What a user may ask for."""
HALF = ("bf16", "fp16")
"""The types of mixed-precision training, best first."""

_OF_DTYPE = {"float16": "fp16", "bfloat16": "bf16", "float64": "fp64"}
# Volta's tensor cores multiply fp16, Ampere's tf32 and bf16 too (NVIDIA's architecture white papers); Pascal
# has none, and its fast fp16 runs on the ordinary cores.
_TENSOR_CORES = ("tf32", "fp16", "bf16")


class _Processor(Protocol):
    """The facts of a device that precisions depend on."""

    @property
    def name(self) -> str:
        """For messages."""

    @property
    def kind(self) -> Literal["cpu", "gpu"]:
        """Return which column of the table holds."""

    @property
    def architecture(self) -> str:
        """Tells whether its narrow types run on tensor cores."""

    @property
    def peak_flops_per_s(self) -> Mapping[str, float]:
        """Dense peaks by type."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DevicePrecision:
    """A precision on a device.

    Attributes:
        asked: The precision that was asked for.
        peak: The type whose peak the products run at.
        tensor: Whether that peak is one of tensor cores.
        element_bytes: Bytes of an element in memory.
        substitute: Whether ``peak`` is only the nearest to what was asked for.
    """

    asked: str
    peak: str
    tensor: bool
    element_bytes: float
    substitute: bool


def peak_type(kind: Literal["cpu", "gpu"], peaks: Mapping[str, float], precision: str) -> str | None:
    """Return the type whose peak the products of this precision run at; None where nothing can stand in.

    Args:
        kind: Whether ONNX Runtime's CPU or its CUDA provider runs them.
        peaks: The device's, by type.
        precision: One of ``PRECISIONS``, or ``fp64``; a record may name one that nobody knows.
    """
    rule = _TABLE.get(precision) or _INTEGER_FORMS.get(precision)
    if rule is None:
        return None
    return next((name for name in (rule.on_cpu if kind == "cpu" else rule.on_gpu) if name in peaks), None)


def on_device(device: _Processor, precision: str) -> DevicePrecision:
    """Return the meaning of a precision on a device.

    Raises:
        UsageError: There is no such precision.
        DeviceError: The device has no peak at all that could serve.
    """
    rule, cpu = _rule(precision), device.kind == "cpu"
    peak = peak_type(device.kind, device.peak_flops_per_s, precision)
    if peak is None:
        raise DeviceError(
            f"{device.name} has no {precision} peak in the catalogue, nor one that could stand in.",
            hint="Give a device file of your own with peak_flops_per_s.",
        )
    # A GPU keeps fp16 in memory even where it must compute in fp32; a CPU's session casts it to fp32.
    least = _TABLE["fp32"].element_bytes if cpu else 0
    return DevicePrecision(
        asked=precision,
        peak=peak,
        tensor=not cpu and peak in _TENSOR_CORES and device.architecture != "Pascal",
        element_bytes=float(max(rule.element_bytes, least)),
        substitute=peak != precision and not cpu,
    )


def floats_on_gpu(precision: str, peaks: Mapping[str, float]) -> str | None:
    """Return the precision of an integer form's floats on a GPU with these peaks; None for the model's own."""
    return next((name for name in _INTEGER_FORMS[precision].floats_on_gpu if name in peaks), None)


def is_full(precision: str) -> bool:
    """Return whether tensors are kept as 32-bit floats."""
    return precision in ("fp32", "tf32")


def full_on_cuda(peaks: Mapping[str, float]) -> str:
    """Return the type of fp32 products in ONNX Runtime's CUDA provider by default (``use_tf32=1``)."""
    return "tf32" if "tf32" in peaks else "fp32"


def own_precision(tensors: Iterable[Tensor]) -> str:
    """Return the float type in which most bytes of these tensors are kept; ``fp32`` where none tells.

    Integers are kept and computed as what they are, whatever floats are computed in.
    """
    sizes: dict[str, int] = {}
    for tensor in tensors:
        if tensor.dtype.bits and not tensor.dtype.is_packed:
            sizes[tensor.dtype.name] = sizes.get(tensor.dtype.name, 0) + (tensor.nbytes or 0)
    return _OF_DTYPE.get(max(sizes, key=lambda name: sizes[name]), "fp32") if sizes else "fp32"


def bytes_at(tensor: Tensor, precision: str) -> int | None:
    """Size of a tensor when its 32-bit floats are kept in this precision; None where it is not known."""
    nbytes = tensor.nbytes
    if nbytes is None or tensor.dtype.name != "float32":
        return nbytes
    return narrowed(nbytes, precision)


def narrowed(fp32_bytes: int, precision: str) -> int:
    """Return bytes of 32-bit floats, of one tensor or of many, when they are kept in this precision."""
    return fp32_bytes * _rule(precision).element_bytes // 4  # 4 bytes an element


def _rule(precision: str) -> _Rule:
    if precision not in _TABLE:
        raise UsageError(
            f"{precision!r} is no precision of floats.", hint="Choose from " + ", ".join(FLOAT_PRECISIONS) + "."
        )
    return _TABLE[precision]
