"""Ceilings of a GPU in one precision: sustained rates, bandwidths, caches.

Measured figures go before the data sheet's. The sustained rate in fp32 is the peak, but not more than power
allows: ``min(1, power / (watts per FLOP/s x peak))``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from analyzer.devices.device import Device
from analyzer.precision import DevicePrecision, on_device
from analyzer.prediction.gpu.constants import FITTED, SUBSTITUTE_WIDTH, GpuConstants
from analyzer.prediction.gpu.tensor_products import TensorCores

# Major compute capabilities whose tensor cores a copy engine feeds; RTX Blackwell (12) has none of Hopper's.
_STREAMED = frozenset({"9", "10"})
_WITH_TENSOR_MEMORY = "10"
# Blackwell Ultra's special function units are twice as wide as Blackwell's, for attention (NVIDIA, "Inside
# NVIDIA Blackwell Ultra", 2025).
_TWICE_THE_EXPONENTIALS = frozenset({"10.3"})
# Where a device's clock is not known: that of a card for data centres.
_USUAL_CLOCK = 1.7e9
# Bytes a clock and multiprocessor that elementwise operators move through the last-level cache: activations and
# norms of Llama 3.1 8B on an RTX 4090 and an RTX PRO 6000 (casys-kaist/LLMServingSim). Cards with HBM have
# wider ones: 40 % of the A100's 5120 bytes a clock (NVIDIA Ampere Architecture In-Depth), the share of the RTX
# 4090.
_CACHE_GDDR, _CACHE_HBM = 12.0, 19.0
# Where a device's cache is not known: that of a middling card; of one with fast memory, Hopper's.
_USUAL_CACHE, _LARGE_CACHE, _FAST_MEMORY = 6 * 2**20, 50 * 2**20, 3e12
# Where a device's power limit is not known: what large cards sustain of their fp32 peak (0.74 to 0.91).
_USUAL_POWER = 0.8
# Cards without a power connector: GDDR measured on them is slower.
_SMALL_CARD_W = 75.0
# Two partitions, each caching what its units read (NVIDIA Ampere Architecture In-Depth); Hopper is taken alike.
_PARTED_CACHE = frozenset({"8.0", "9.0"})


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuCeilings(TensorCores):
    """Ceilings of a device in one precision.

    Attributes:
        narrow: How much faster than that products of 8-bit floats are by the data sheet; 1 without cores for
            them.
        single: Share of it that single products do.
        plain_rate: The same on ordinary fp32 cores.
        power: Share of the peak that power allows to fp32 products.
        stream: Share of it that elementwise operators reach.
        cache_bandwidth: Bytes per second that operators pass which find all in it.
        near_cache: The part of it in which a unit finds what it has read: half, where the cache is in two
            partitions that both keep what their units read.
        reach: Bytes that the address translation covers; infinite where no lack of it was seen.
        width: Factor by which intervals widen, for figures that had to be replaced.
        unsteady: Factor by which the sustained rate differs between measurements of such a card.
    """

    narrow: float
    single: float
    plain_rate: float
    power: float
    stream: float
    cache_bandwidth: float
    near_cache: float
    reach: float
    precision: DevicePrecision
    width: float
    unsteady: float


def sheet(device: Device, precision: str, constants: GpuConstants = FITTED) -> GpuCeilings:
    """Return the figures of a device in one precision, measured ones first."""
    device_precision = on_device(device, precision)
    power, known = _power(device, constants)
    single = _power(device, constants, _of_chip(device, constants.single) or 1.0)[0] / power
    calibrated = device.calibration.get("cuda.gemm.float32.m4096.n4096.k4096")
    plain = device.peak_flops_per_s["fp32"] * power if calibrated is None else calibrated / single
    rate = plain * device.peak_flops_per_s[device_precision.peak] / device.peak_flops_per_s["fp32"]
    if device_precision.tensor:
        rate, known = _tensor_rate(device, device_precision.peak, constants)
        single = 1.0
    stream, measured = _stream(device, constants)
    usual = _LARGE_CACHE if device.bandwidth_bytes_per_s > _FAST_MEMORY else _USUAL_CACHE
    cache = float(device.cache_bytes or usual)
    replaced = (
        device_precision.substitute
        or not known
        or bool(device.assumed)
        or (not measured and device.vendor != "NVIDIA")
    )
    units, peaks = float(max(1, device.units)), device.peak_flops_per_s
    clock = device.clock_hz or _USUAL_CLOCK
    return GpuCeilings(
        rate=rate,
        narrow=max(1.0, peaks.get("fp8", 0.0) / peaks[device_precision.peak]),
        single=single,
        plain_rate=plain,
        power=power,
        bandwidth=device.bandwidth_bytes_per_s,
        stream=stream,
        cache=cache,
        cache_bandwidth=max(
            device.bandwidth_bytes_per_s * stream,
            (_CACHE_HBM if device.memory_type.startswith("HBM") else _CACHE_GDDR) * units * clock,
        ),
        near_cache=cache / 2 if device.compute_capability in _PARTED_CACHE else cache,
        units=units,
        clock_hz=clock,
        streamed=device.compute_capability.partition(".")[0] in _STREAMED,
        exponentials=2.0 if device.compute_capability in _TWICE_THE_EXPONENTIALS else 1.0,
        tensor_memory=device.compute_capability.partition(".")[0] == _WITH_TENSOR_MEMORY,
        reach=units * constants.reach if device.architecture == "Pascal" else math.inf,
        element_bytes=device_precision.element_bytes,
        precision=device_precision,
        width=SUBSTITUTE_WIDTH if replaced else 1.0,
        unsteady=_of_chip(device, constants.unsteady) or 1.0,
    )


def _of_chip(device: Device, table: Mapping[str, float]) -> float | None:
    """Return the value fitted for a device's compute capability, else for its architecture."""
    return table.get(device.compute_capability) or table.get(device.architecture)


def _power(device: Device, constants: GpuConstants, more: float = 1.0) -> tuple[float, bool]:
    """Share of the fp32 peak that the power limit allows; whether the architecture's constant was measured.

    ``more`` is how much further each watt goes.
    """
    watts = _of_chip(device, constants.fp32_watts)
    if watts is None:
        return 1.0, False
    if device.tdp_w is None:
        return _USUAL_POWER, False
    share = more * device.tdp_w / (watts * device.peak_flops_per_s["fp32"] * 1e-12)
    return min(1.0, share), device.architecture in _MEASURED_ARCHITECTURES or device.compute_capability == "8.0"


_MEASURED_ARCHITECTURES = frozenset({"Pascal", "Volta", "Turing", "Ada Lovelace", "Hopper"})


def _tensor_rate(device: Device, peak: str, constants: GpuConstants) -> tuple[float, bool]:
    sheet_peak = device.peak_flops_per_s[peak]
    calibrated = device.calibration.get(_CALIBRATED.get(peak, ""))
    if calibrated is not None:
        return calibrated, True
    half = device.peak_flops_per_s.get("fp16")
    best = device.sustained.get("fp16")
    if half and best:
        return sheet_peak * min(1.15, best / half), True
    watts = _of_chip(device, constants.tensor_watts)
    if watts is None or device.tdp_w is None or not half:
        return sheet_peak * constants.tensor_share, False
    return sheet_peak * min(constants.tensor_share, device.tdp_w / (watts * half * 1e-12)), True


_CALIBRATED = {
    "tf32": "cuda.gemm.tf32.m4096.n4096.k4096",
    "fp16": "cuda.gemm.float16.m4096.n4096.k4096",
    "bf16": "cuda.gemm.bfloat16.m4096.n4096.k4096",
}


def _stream(device: Device, constants: GpuConstants) -> tuple[float, bool]:
    calibrated = device.calibration.get("cuda.copy.1073741824") or device.sustained.get("bandwidth")
    if calibrated is not None:
        return calibrated / device.bandwidth_bytes_per_s, True
    if device.architecture == "Pascal":
        return constants.stream_pascal, True
    if device.memory_type == "HBM3e":
        return constants.stream_hbm3e, True
    if device.memory_type.startswith("HBM"):
        return constants.stream_hbm, True
    small = device.tdp_w is not None and device.tdp_w <= _SMALL_CARD_W
    return constants.stream_gddr if small else constants.stream_gddr_large, bool(device.memory_type)
