"""Kernel times on a GPU: tiles and waves, sustained power, rows read again, algorithms of convolution.

Forms (seconds; ``units`` are streaming multiprocessors):

* product: ``max(waves x 2 bm bn depth / (rate / units x quality), bytes / bandwidth)``, the least over tile
  shapes and splits of the inner dimension; ``waves = ceil(tiles / units)``; on fp32 cores rows that span more
  memory than the card's address translation covers cost walks of its page tables;
* sustained rate: the peak, but not more than power allows: ``min(1, power / (watts per FLOP/s x peak))``;
* elementwise: ``bytes / (bandwidth x share)``; norms and long softmax read again what the cache has lost of the
  rows in flight, and norms step from row to row;
* convolution: the cheaper of implicit GEMM and, for 3x3 with stride 1 in fp32, Winograd F(4x4, 3x3).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from analyzer.arrays import Bools, Floats
from analyzer.devices.device import Device
from analyzer.precision import DevicePrecision, on_device
from analyzer.prediction.gpu_constants import FITTED, SUBSTITUTE_WIDTH, WIDTHS, GpuConstants
from analyzer.prediction.tiles import conv_tiles, tiled, untranslated, winograd_tiles
from analyzer.prediction.work_item import FLOAT_BYTES, Kind
from analyzer.prediction.workload import Workload

_WINOGRAD_TILE, _WINOGRAD_PRODUCTS = 4.0, 36.0
# Rows below which a product is a few matrix-vector products, and what these reach of the fp32 rate.
_FEW_ROWS, _STREAMED = 8.0, 0.25
# Where a device's cache is not known: that of a middling card; of one with fast memory, Hopper's.
_USUAL_CACHE, _LARGE_CACHE, _FAST_MEMORY = 6 * 2**20, 50 * 2**20, 3e12
# Where a device's power limit is not known: what large cards sustain of their fp32 peak (0.74 to 0.91).
_USUAL_POWER = 0.8
# Depth of a tile on tensor cores: 32 halves, 64 bytes (CUTLASS, ``implicit_gemm_k_iterations``).
_TILE_DEPTH_BYTES = 64.0
# Cards without a power connector: GDDR measured on them is slower.
_SMALL_CARD_W = 75.0
# Two partitions, each caching what its units read (NVIDIA Ampere Architecture In-Depth); Hopper is taken alike.
_PARTED_CACHE = frozenset({"8.0", "9.0"})
_KIND_WIDTH = np.array([WIDTHS.get(kind.name, 1.0) for kind in Kind])


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuCeilings:
    """What the model needs to know of a device in one precision.

    Attributes:
        rate: Operations per second that products sustain.
        single: Share of it that single products do.
        plain_rate: The same on ordinary fp32 cores.
        power: Share of the peak that power allows to fp32 products.
        bandwidth: Memory's peak, bytes per second.
        stream: Share of it that elementwise operators reach.
        cache: Bytes of the last-level cache.
        near_cache: The part of it in which a unit finds what it has read: half, where the cache is in two
            partitions that both keep what their units read.
        units: Multiprocessors.
        reach: Bytes that the address translation covers; infinite where no lack of it was seen.
        precision: What is computed in.
        width: Factor by which intervals widen, for figures that had to be replaced.
        unsteady: Factor by which the sustained rate differs between measurements of such a card.
    """

    rate: float
    single: float
    plain_rate: float
    power: float
    bandwidth: float
    stream: float
    cache: float
    near_cache: float
    units: float
    reach: float
    precision: DevicePrecision
    width: float
    unsteady: float


def sheet(device: Device, precision: str, constants: GpuConstants = FITTED) -> GpuCeilings:
    """The figures of a device in one precision, measured ones first."""
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
    units = float(max(1, device.units))
    return GpuCeilings(
        rate=rate,
        single=single,
        plain_rate=plain,
        power=power,
        bandwidth=device.bandwidth_bytes_per_s,
        stream=stream,
        cache=cache,
        near_cache=cache / 2 if device.compute_capability in _PARTED_CACHE else cache,
        units=units,
        reach=units * constants.reach if device.architecture == "Pascal" else math.inf,
        precision=device_precision,
        width=SUBSTITUTE_WIDTH if replaced else 1.0,
        unsteady=_of_chip(device, constants.unsteady) or 1.0,
    )


def kernel_times(work: Workload, at: GpuCeilings, constants: GpuConstants = FITTED) -> tuple[Floats, Bools]:
    """Seconds of each piece without any launch, and whether computing (not memory) limits it."""
    times = np.zeros(len(work.kind))
    compute = np.zeros(len(work.kind), dtype=np.bool_)
    for kind, rule in _RULES.items():
        chosen = np.flatnonzero(work.kind == kind)
        if chosen.size:
            times[chosen], compute[chosen] = rule(_Rows(work, chosen, at), at, constants)
    return times * work["repeats"], compute


def widths(work: Workload, at: GpuCeilings) -> Floats:
    """Half-width of each piece's 90 % interval, as a factor."""
    factors: Floats = _KIND_WIDTH[work.kind]
    product = work.kind == Kind.MATMUL
    if at.precision.tensor:
        factors = np.where(product, WIDTHS["TENSOR"], factors)
        factors = np.where(work.kind == Kind.CONV, WIDTHS["TENSOR_CONV"], factors)
    else:
        single = WIDTHS[Kind.MATMUL.name] * at.unsteady
        factors = np.where(product, np.where(work["batch"] > 1, WIDTHS["BATCHED"], single), factors)
    return factors * at.width


class _Rows:
    """The chosen pieces' columns; bytes already in the precision's width."""

    def __init__(self, work: Workload, chosen: npt.NDArray[np.int64], at: GpuCeilings) -> None:
        self._work, self._chosen = work, chosen
        self.scale = at.precision.element_bytes / FLOAT_BYTES

    def __getattr__(self, name: str) -> Floats:
        column: Floats = self._work.columns[name][self._chosen]
        return column

    @property
    def bytes(self) -> Floats:
        moved: Floats = (self.read + self.written) * self.scale + self.fixed
        return moved


_RowTimes = tuple[Floats, Any]


def _vector(rows: _Rows, at: GpuCeilings, _constants: GpuConstants) -> _RowTimes:
    return rows.bytes / (at.bandwidth * at.stream), False


def _norm(rows: _Rows, at: GpuCeilings, constants: GpuConstants) -> _RowTimes:
    moved = rows.bytes + _again(rows, at, constants.norm_rows, constants.norm_edge) * rows.read * rows.scale
    streaming = moved / (at.bandwidth * at.stream)
    # Rows one after the other on each unit; both overlap, but not where they take about the same.
    stepping = rows.rows * constants.norm_row_s / at.units
    return (streaming**3 + stepping**3) ** (1 / 3), False


def _softmax(rows: _Rows, at: GpuCeilings, constants: GpuConstants) -> _RowTimes:
    again = 2.0 * _again(rows, at, constants.softmax_rows, constants.softmax_edge)
    # Shorter rows are kept in registers.
    again = np.where(rows.row > constants.softmax_long, again, 0.0)
    moved = rows.bytes + again * rows.read * rows.scale
    return moved / (at.bandwidth * at.stream), False


def _again(rows: _Rows, at: GpuCeilings, in_flight: float, edge: float) -> Floats:
    """Share of the rows in flight that the cache has lost when they are read a second time."""
    filled = at.units * in_flight * rows.row * FLOAT_BYTES * rows.scale / at.near_cache
    steep = filled**edge
    lost: Floats = steep / (1.0 + steep)
    return lost


def _matmul(rows: _Rows, at: GpuCeilings, constants: GpuConstants) -> _RowTimes:
    tiles = constants.tensor if at.precision.tensor else constants.vector
    out = rows.batch * rows.m * rows.n * FLOAT_BYTES * rows.scale
    # Two columns already go to tiles, as measured; a single one is a matrix-vector product by itself.
    few = (rows.m <= _FEW_ROWS) | (rows.n <= 1.0)
    moved = rows.bytes / (at.bandwidth * np.where(few, constants.tensor.bandwidth, tiles.bandwidth))
    rate = at.rate * np.where(rows.batch > 1, 1.0, at.single)
    computing = tiled(
        rows.batch, rows.m, rows.n, rows.k, out / (at.bandwidth * tiles.bandwidth), rate, at.units, tiles
    )
    # A few rows go to kernels that stream the matrix once, without tiles.
    streamed = 2.0 * rows.batch * rows.m * rows.n * rows.k / (_STREAMED * at.plain_rate)
    if math.isfinite(at.reach) and not at.precision.tensor:
        far = untranslated(rows.batch, rows.m, rows.n, rows.k, at.reach, at.units)
        computing = computing + far * constants.walk_s
    computing = np.where(few, np.minimum(computing, streamed), computing)
    return np.maximum(computing, moved), computing > moved


def _conv(rows: _Rows, at: GpuCeilings, constants: GpuConstants) -> _RowTimes:
    rate = at.rate * at.power ** (constants.conv_power - 1.0) if not at.precision.tensor else at.rate
    direct, moved = _implicit(rows, at, constants, rate)
    if at.precision.tensor:
        # Tensor cores want channels last: what comes channels first is turned around before and after.
        turned = np.maximum(0.0, rows.bytes - rows.weights * rows.scale)
        return direct + constants.conv_turn * turned / (at.bandwidth * at.stream), direct > 2 * moved
    best = np.where(_winograd_fits(rows), np.minimum(direct, _winograd(rows, at, constants, rate)), direct)
    return best, best > 2 * moved


def _implicit(rows: _Rows, at: GpuCeilings, constants: GpuConstants, rate: float) -> tuple[Floats, Floats]:
    tiles = constants.tensor if at.precision.tensor else conv_tiles(constants)
    moved = rows.bytes / (at.bandwidth * at.stream)
    out = rows.written * rows.scale / (at.bandwidth * at.stream)
    depth = rows.k
    if at.precision.tensor:
        # Each filter position takes whole steps of the tile's depth: fewer channels are filled up.
        step = _TILE_DEPTH_BYTES / at.precision.element_bytes
        depth = rows.taps * np.ceil(rows.k / rows.taps / step) * step
    computing = tiled(rows.batch, rows.m, rows.n, depth, out, rate, at.units, tiles)
    return computing + constants.conv_bandwidth * moved, moved


def _winograd_fits(rows: _Rows) -> Bools:
    fits: Bools = (rows.taps == 9.0) & (rows.stride <= 1.0) & (rows.batch == 1.0) & (rows.spatial > 0)
    return fits


def _winograd(rows: _Rows, at: GpuCeilings, constants: GpuConstants, rate: float) -> Floats:
    side = np.sqrt(np.maximum(rows.spatial, 1.0))
    images = rows.m / np.maximum(rows.spatial, 1.0)
    tiles = images * np.ceil(side / _WINOGRAD_TILE) ** 2
    channels = rows.k / rows.taps
    products = np.full_like(tiles, _WINOGRAD_PRODUCTS)
    computing = tiled(products, tiles, rows.n, channels, tiles * 0.0, rate, at.units, winograd_tiles(constants))
    transformed = FLOAT_BYTES * _WINOGRAD_PRODUCTS * tiles * (channels + rows.n)
    moved = (constants.winograd_transform * transformed + constants.conv_bandwidth * rows.bytes) / (
        at.bandwidth * at.stream
    )
    seconds: Floats = computing + moved + constants.winograd_channel_s * channels + constants.winograd_s
    return seconds


def _depthwise(rows: _Rows, at: GpuCeilings, constants: GpuConstants) -> _RowTimes:
    moved = rows.bytes / (at.bandwidth * constants.depthwise_bandwidth)
    computing = rows.flops / (at.plain_rate * constants.depthwise_bandwidth)
    return np.maximum(moved, computing), computing > moved


def _recurrent(rows: _Rows, at: GpuCeilings, constants: GpuConstants) -> _RowTimes:
    steps = np.maximum(rows.steps, 1.0)
    weights = rows.weights * rows.scale
    # Weights that fit the cache stay there from step to step.
    reading = np.where(weights < at.cache, weights / (3.0 * at.bandwidth), weights / at.bandwidth)
    computing = rows.flops / steps / (at.rate * 0.5)
    return steps * np.maximum(constants.step_s, np.maximum(reading, computing)), computing > reading


def _tree(rows: _Rows, at: GpuCeilings, _constants: GpuConstants) -> _RowTimes:
    # No CUDA kernel exists; a visit to a node is one scattered read of a 32-byte sector.
    return rows.flops * 32.0 / (at.bandwidth * at.stream) + rows.bytes / at.bandwidth, False


_RULES = {
    Kind.VECTOR: _vector,
    Kind.REDUCE: _vector,
    Kind.MOVE: _vector,
    Kind.POOL: _vector,
    Kind.NORM: _norm,
    Kind.SOFTMAX: _softmax,
    Kind.MATMUL: _matmul,
    Kind.CONV: _conv,
    Kind.DEPTHWISE: _depthwise,
    Kind.RECURRENT: _recurrent,
    Kind.TREE: _tree,
}


def _of_chip(device: Device, table: Mapping[str, float]) -> float | None:
    """What was fitted for a device's compute capability, else for its architecture."""
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
