"""Precisions: which peak, how many bytes an element, and what stands in where a device lacks the type."""

from __future__ import annotations

from dataclasses import dataclass

from analyzer.devices.device import Device
from analyzer.errors import DeviceError, UsageError

# What runs the products, best first: where a device lacks a type, the next one that it has is used.
_CHAIN = {
    "fp64": ("fp64", "fp32"),
    "fp32": ("fp32",),
    "tf32": ("tf32", "fp32"),
    "fp16": ("fp16", "fp32"),
    "bf16": ("bf16", "fp32"),
    "int8": ("int8", "fp16", "fp32"),
}
PRECISIONS = tuple(name for name in _CHAIN if name != "fp64")
_BYTES = {"fp64": 8.0, "fp32": 4.0, "tf32": 4.0, "fp16": 2.0, "bf16": 2.0, "int8": 1.0}
_TENSOR = ("tf32", "fp16", "bf16", "int8")


@dataclass(frozen=True, slots=True, kw_only=True)
class Numbers:
    """A precision on a device.

    Attributes:
        asked: The precision that was asked for.
        peak: The type whose peak the products run at.
        tensor: Whether that peak is one of tensor cores.
        product_bytes: Bytes of a product's element.
        other_bytes: Bytes of an element of all other operators.
        substitute: Whether ``peak`` is only the nearest to what was asked for.
    """

    asked: str
    peak: str
    tensor: bool
    product_bytes: float
    other_bytes: float
    substitute: bool


def numbers(device: Device, precision: str) -> Numbers:
    """What a precision means on a device.

    On a CPU ONNX Runtime computes fp16, bf16 and tf32 in fp32; int8 products are int8, all else fp32. On a GPU
    int8 products stand among fp16 operators.

    Raises:
        UsageError: There is no such precision.
        DeviceError: The device has no peak at all that could serve.
    """
    if precision not in _CHAIN:
        raise UsageError(f"{precision!r} is no precision.", hint="Choose from " + ", ".join(PRECISIONS) + ".")
    chain = _CHAIN[precision]
    if device.kind == "cpu":
        chain = {"int8": ("int8", "fp32"), "fp64": ("fp64", "fp32")}.get(precision, ("fp32",))
    peak = next((name for name in chain if name in device.peak_flops_per_s), None)
    if peak is None:
        raise DeviceError(
            f"{device.name} has no {chain[0]} peak in the catalogue, nor one that could stand in.",
            hint="Give a device file of your own with peak_flops_per_s.",
        )
    own = peak == precision
    product = _BYTES[precision] if own or (device.kind == "gpu" and precision != "int8") else _BYTES[peak]
    other = (
        8.0
        if precision == "fp64"
        else 4.0
        if device.kind == "cpu"
        else 2.0
        if precision == "int8"
        else _BYTES[precision]
    )
    return Numbers(
        asked=precision,
        peak=peak,
        tensor=device.kind == "gpu" and peak in _TENSOR and not _plain(device),
        product_bytes=product,
        other_bytes=other,
        substitute=not own and device.kind != "cpu",
    )


def _plain(device: Device) -> bool:
    """Whether all peaks are those of ordinary cores (Pascal's fp16 and int8)."""
    return device.architecture == "Pascal"
