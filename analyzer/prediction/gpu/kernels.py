"""Kernel times on a GPU: tiles and waves, sustained power, rows read again, algorithms of convolution.

Forms (seconds; ``units`` are streaming multiprocessors):

* product: ``max(waves x 2 bm bn depth / (rate / units x quality), bytes / bandwidth)``, the least over tile
  shapes and splits of the inner dimension; ``waves = ceil(tiles / units)``; on fp32 cores rows that span more
  memory than the card's address translation covers cost walks of its page tables;
* elementwise: ``bytes / (bandwidth x share)``; norms and long softmax read again what the cache has lost of the
  rows in flight, and norms step from row to row;
* convolution: the cheaper of implicit GEMM and, for 3x3 with stride 1 in fp32, Winograd F(4x4, 3x3).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from analyzer.arrays import Bools, Floats
from analyzer.prediction.gpu import on_tensor_cores
from analyzer.prediction.gpu.attention import is_ordinary
from analyzer.prediction.gpu.ceilings import GpuCeilings
from analyzer.prediction.gpu.constants import (
    DECODE_WIDTHS,
    EXPERT_WIDTHS,
    FITTED,
    NARROW_WIDTHS,
    PACKED_WIDTHS,
    PREFILL_WIDTHS,
    RARE_DECODE_WIDTHS,
    SESSION_WIDTH,
    SIZES_S,
    TENSOR_WIDTHS,
    UNMEASURED_KERNELS,
    UNMEASURED_WIDTH,
    WIDTHS,
    GpuConstants,
)
from analyzer.prediction.gpu.launch import FLOOR_S, GAP_S
from analyzer.prediction.gpu.on_tensor_cores import Rows
from analyzer.prediction.gpu.tensor_products import UNALIGNED_WIDTH, is_unaligned, overflow, quantising_times
from analyzer.prediction.gpu.tiles import conv_tiles, tiled, untranslated, winograd_tiles
from analyzer.prediction.work_item import FLOAT_BYTES, Kind
from analyzer.prediction.workload import Workload, whether

_WINOGRAD_TILE, _WINOGRAD_PRODUCTS = 4.0, 36.0
# Rows below which a product is a few matrix-vector products, and what these reach of the fp32 rate.
_FEW_ROWS, _FEW_ROWS_SHARE = 8.0, 0.25
# Depth of a tile on tensor cores: 32 halves, 64 bytes (CUTLASS, ``implicit_gemm_k_iterations``).
_TILE_DEPTH_BYTES = 64.0
# Kernels that turn an image, its filters and the result around.
_TURNS = 3.0
# ONNX Runtime's kernels that give each element a thread of its own (core/providers/cuda/math/clip_impl.cu).
_BY_ELEMENT = frozenset({"Clip"})
# Planes that cuDNN pools by a thread each.
_PLANES = frozenset({"GlobalAveragePool", "GlobalMaxPool"})
# Norms whose rows stay in registers (contrib_ops/cuda/bert/skip_layer_norm_impl.cu).
_CACHED_ROWS = frozenset({"SkipLayerNormalization", "SkipSimplifiedLayerNormalization"})
_KIND_WIDTH = np.array([WIDTHS.get(kind.name, 1.0) for kind in Kind])


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class KernelTimes:
    """Of each piece, without any launch.

    Attributes:
        computing: Whether computing (not memory) limits it.
        at_most: What it would take by the slower kernel that ONNX Runtime may choose.
        turning: The part of both in which its tensors are turned to channels last and back.
    """

    seconds: Floats
    computing: Bools
    at_most: Floats
    turning: Floats


def kernel_times(work: Workload, at: GpuCeilings, constants: GpuConstants = FITTED) -> KernelTimes:
    """Time of all pieces."""
    seconds, at_most = np.zeros(len(work.kind)), np.zeros(len(work.kind))
    computing = np.zeros(len(work.kind), dtype=np.bool_)
    for kind, rule in _RULES.items():
        chosen = np.flatnonzero(work.kind == kind)
        if chosen.size:
            seconds[chosen], computing[chosen], *slower = rule(Rows(work, chosen, at), at, constants)
            at_most[chosen] = slower[0] if slower else seconds[chosen]
    turning, repeats = np.zeros(len(work.kind)), work["repeats"]
    chosen = np.flatnonzero(work.kind == Kind.CONV)
    if at.precision.tensor and chosen.size:
        turning[chosen] = _turned(Rows(work, chosen, at), at, constants)
    return KernelTimes(
        seconds=(seconds + turning) * repeats,
        computing=computing,
        at_most=(at_most + turning) * repeats,
        turning=turning * repeats,
    )


def least_times(work: Workload, at: GpuCeilings) -> Floats:
    """Return the time that no kernel undercuts: weights that no cache holds, at the rated bandwidth."""
    stored = work["weights"] * (at.precision.element_bytes / FLOAT_BYTES) + work["fixed_weights"]
    missed = stored * overflow(work.of_model(stored), at.cache)
    return np.where(work.kind == Kind.MATMUL, missed / at.bandwidth, 0.0) * work["repeats"]


def chosen_by_library(work: Workload) -> Bools:
    """Return which products have a kernel that a library chooses at each launch: no packed weights."""
    return np.asarray((work.kind == Kind.MATMUL) & (work["unpacked"] == 0))


def widths(work: Workload, times: Floats, at: GpuCeilings, *, in_session: bool) -> Floats:
    """Half-width of each piece's 90 % interval, as a factor, from its seconds inside a CUDA graph.

    ``in_session`` says whether others run beside it: then that holds, too, what another runtime's kernels and
    scheduling change.
    """
    factors: Floats = _KIND_WIDTH[work.kind]
    product = work.kind == Kind.MATMUL
    if at.precision.tensor:
        factors = np.where(product, by_size(TENSOR_WIDTHS, times), factors)
        odd = product & is_unaligned(work["m"], work["n"], work["k"], at.precision.element_bytes)
        factors = np.where(odd, factors * UNALIGNED_WIDTH, factors)
        factors = np.where(product & (work["unpacked"] > 0), by_size(PACKED_WIDTHS, times), factors)
        factors = np.where(work["narrow"] > 0, by_size(NARROW_WIDTHS, times), factors)
        factors = np.where(work.kind == Kind.CONV, WIDTHS["TENSOR_CONV"], factors)
    else:
        single = WIDTHS[Kind.MATMUL.name] * at.unsteady
        factors = np.where(product, np.where(work["batch"] > 1, WIDTHS["BATCHED"], single), factors)
    experts, attends = work.kind == Kind.EXPERTS, work.kind == Kind.ATTENTION
    factors = np.where(experts, by_size(EXPERT_WIDTHS, times), factors)
    if attends.any():
        usual = is_ordinary(work["k"], work["rows"], work["row"])
        decode = np.where(usual, by_size(DECODE_WIDTHS, times), by_size(RARE_DECODE_WIDTHS, times))
        factors = np.where(attends, np.where(work["m"] > 1, by_size(PREFILL_WIDTHS, times), decode), factors)
    factors = np.where(whether(work, UNMEASURED_KERNELS)[work.op], UNMEASURED_WIDTH, factors)
    if in_session:
        # These were measured as sessions of three engines run them, and as ONNX Runtime does.
        known = ((product | (work.kind == Kind.CONV)) & at.precision.tensor) | experts | attends
        factors = np.where(known, factors, np.exp(np.hypot(np.log(factors), math.log(SESSION_WIDTH))))
    return factors * at.width


def by_size(factors: tuple[float, float, float], times: Floats) -> Floats:
    """Return factors of up to 20 us, up to 200 us and more."""
    return np.asarray(factors)[np.searchsorted(SIZES_S, times)]


_RowTimes = tuple[Floats, Any] | tuple[Floats, Any, Floats]


def _vector(rows: Rows, at: GpuCeilings, constants: GpuConstants) -> _RowTimes:
    seconds = _streamed(rows.bytes, rows, at)
    by_element = rows.named(_BY_ELEMENT)
    if by_element.any():
        issuing = _issued(rows.elements, constants.scattered, at)
        seconds = np.where(by_element, np.maximum(seconds, issuing), seconds)
    running = rows.named(_RUNNING_SUMS)
    if running.any():
        read = _issued(rows.elements * (rows.row + 1.0) / 2.0, _RUNNING_READS, at)
        last = rows.row * constants.load_clocks / at.clock_hz
        seconds = np.where(running, np.maximum(seconds, np.maximum(read, last)), seconds)
    if rows.narrow.any():
        quantising = quantising_times(rows.rows, rows.elements, at, constants.quantising)
        seconds = np.where(rows.narrow > 0, quantising, seconds)
    return seconds, False


# Each thread of a cumulative sum reads all that is before its element, the last one the whole row
# (onnxruntime/core/providers/cuda/math/cumsum_impl.cu). How many a multiprocessor reads each clock was not
# measured: at most the 32 lanes of its loads, assumed a quarter of them.
_RUNNING_SUMS, _RUNNING_READS = frozenset({"CumSum", "CumSumFirstAxis"}), 8.0


def _streamed(moved: Floats, rows: Rows, at: GpuCeilings) -> Floats:
    """Return seconds to pass so many bytes: what was just written comes from the cache if it fits."""
    share = overflow(rows.bytes, at.cache)
    return moved * (share / (at.bandwidth * at.stream) + (1.0 - share) / at.cache_bandwidth)


def _pool(rows: Rows, at: GpuCeilings, constants: GpuConstants) -> _RowTimes:
    """Return a thread loads each element of its window."""
    loading = _issued(rows.elements * np.maximum(rows.taps, 1.0), constants.pooled, at)
    seconds = np.maximum(_streamed(rows.bytes, rows, at), loading)
    slower = np.where(
        rows.named(_NEAREST_VOLUMES), np.maximum(seconds, rows.elements * _GENERAL_RESIZE_S), seconds
    )
    return seconds, False, slower


# Nearest volumes went through a general kernel before pull request 27578 of March 2026: 58 ms for 113 million
# results (onnxruntime issue 14596, whose GPU is not named). The upper end of the interval holds such releases.
_NEAREST_VOLUMES, _GENERAL_RESIZE_S = frozenset({"ResizeNearestAnywhere"}), 5.3e-10


def _reduce(rows: Rows, at: GpuCeilings, constants: GpuConstants) -> _RowTimes:
    """Rows come one after the other on each unit; of a plane that is pooled whole a thread loads all.

    What lies apart is summed up by other kernels, which nobody has measured: at the speed of their traffic.
    """
    streaming = _streamed(rows.bytes, rows, at)
    loading = _issued(rows.elements, constants.scattered, at)
    stepping = rows.rows * constants.reduced_row_s / at.units
    alone = np.where(rows.named(_PLANES), rows.row * constants.load_clocks / at.clock_hz, stepping)
    return np.where(rows.stride > 1, streaming, np.maximum(streaming, np.maximum(loading, alone))), False


def _issued(elements: Floats, each_clock: float, at: GpuCeilings) -> Floats:
    """Return seconds of so many elements, of which a multiprocessor takes a few each clock."""
    return elements / (each_clock * at.units * at.clock_hz)


def _norm(rows: Rows, at: GpuCeilings, constants: GpuConstants) -> _RowTimes:
    moved = rows.bytes + _again(rows, at, constants.norm_rows, constants.norm_edge) * rows.read * rows.scale
    streaming = _streamed(moved, rows, at)
    # Rows one after the other on each unit; both overlap, but not where they take about the same.
    stepping = rows.rows * constants.norm_row_s / at.units
    cached = rows.named(_CACHED_ROWS)
    time = np.where(cached, _streamed(rows.bytes, rows, at), (streaming**3 + stepping**3) ** (1 / 3))
    seconds, computing, slower = _by_rows(time, at, constants)
    return seconds, computing, np.where(cached, seconds, slower)


def _by_rows(seconds: Floats, at: GpuCeilings, constants: GpuConstants) -> tuple[Floats, Any, Floats]:
    """Return kernel that sums up rows: they wait for their sums; ONNX Runtime's own take longer in 16 bits."""
    seconds = seconds + constants.row_sums_s
    return seconds, False, seconds * (constants.half_rows if at.precision.element_bytes < FLOAT_BYTES else 1.0)


def _softmax(rows: Rows, at: GpuCeilings, constants: GpuConstants) -> _RowTimes:
    again = 2.0 * _again(rows, at, constants.softmax_rows, constants.softmax_edge)
    # Shorter rows are kept in registers.
    again = np.where(rows.row > constants.softmax_long, again, 0.0)
    moved = rows.bytes + again * rows.read * rows.scale
    return _by_rows(_streamed(moved, rows, at), at, constants)


def _again(rows: Rows, at: GpuCeilings, in_flight: float, edge: float) -> Floats:
    """Share of the rows in flight that the cache has lost when they are read a second time."""
    filled = at.units * in_flight * rows.row * FLOAT_BYTES * rows.scale / at.near_cache
    steep = filled**edge
    return steep / (1.0 + steep)


def _matmul(rows: Rows, at: GpuCeilings, constants: GpuConstants) -> _RowTimes:
    if at.precision.tensor:
        return on_tensor_cores.products(rows, at, constants)
    tiles = constants.vector
    out = rows.batch * rows.m * rows.n * FLOAT_BYTES * rows.scale
    # Two columns already go to tiles, as measured; a single one is a matrix-vector product by itself.
    few = (rows.m <= _FEW_ROWS) | (rows.n <= 1.0)
    moved = rows.bytes / (at.bandwidth * np.where(few, constants.few_rows_bandwidth, tiles.bandwidth))
    rate = at.rate * np.where(rows.batch > 1, 1.0, at.single)
    computing = tiled(
        rows.batch, rows.m, rows.n, rows.k, out / (at.bandwidth * tiles.bandwidth), rate, at.units, tiles
    )
    # A few rows go to kernels that stream the matrix once, without tiles.
    streamed = 2.0 * rows.batch * rows.m * rows.n * rows.k / (_FEW_ROWS_SHARE * at.plain_rate)
    if math.isfinite(at.reach):
        far = untranslated(rows.batch, rows.m, rows.n, rows.k, at.reach, at.units)
        computing = computing + far * constants.walk_s
    computing = np.where(few, np.minimum(computing, streamed), computing)
    return np.maximum(computing, moved), computing > moved


def _conv(rows: Rows, at: GpuCeilings, constants: GpuConstants) -> _RowTimes:
    rate = at.rate * at.power ** (constants.conv_power - 1.0) if not at.precision.tensor else at.rate
    direct, moved = _implicit(rows, at, constants, rate)
    if at.precision.tensor:
        return direct, direct > 2 * moved
    fits = (rows.taps == 9.0) & (rows.stride <= 1.0) & (rows.batch == 1.0) & (rows.spatial > 0)
    best = np.where(fits, np.minimum(direct, _winograd(rows, at, constants, rate)), direct)
    return best, best > 2 * moved


def _turned(rows: Rows, at: GpuCeilings, constants: GpuConstants) -> Floats:
    """Return the time that tensor cores add to images with channels first: they need channels last.

    From Hopper on images, filters and results are turned around by a kernel each; older kernels read filters
    and write results as they come. Convolutions of one position are products as they are.
    """
    stored, written = rows.weights * rows.scale, rows.written * rows.scale
    images = rows.read * rows.scale - stored
    filters = np.zeros_like(images)
    if at.streamed:
        images, filters = images + written, stored
    issued = at.units * at.clock_hz * at.precision.element_bytes
    turning = np.maximum(2.0 * images / (at.bandwidth * at.stream), images / (constants.turned * issued))
    seconds = turning + filters / (constants.scattered * issued)
    seconds = seconds + (_TURNS if at.streamed else 1.0) * (FLOOR_S + GAP_S)
    as_they_are = ((rows.taps <= 1.0) & (rows.stride <= 1.0)) | rows.channels_last
    return np.where(as_they_are, 0.0, seconds)


def _implicit(rows: Rows, at: GpuCeilings, constants: GpuConstants, rate: float) -> tuple[Floats, Floats]:
    tiles = constants.tensor if at.precision.tensor else conv_tiles(constants)
    moved = rows.bytes / (at.bandwidth * at.stream)
    out = rows.written * rows.scale / (at.bandwidth * at.stream)
    depth = rows.k
    if at.precision.tensor:
        # Each filter position takes whole steps of the tile's depth: fewer channels are filled up.
        step = _TILE_DEPTH_BYTES / at.precision.element_bytes
        depth = rows.taps * np.ceil(rows.k / rows.taps / step) * step
    computing = tiled(rows.batch, rows.m, rows.n, depth, out, rate, at.units, tiles)
    # However well traffic hides behind arithmetic, it is there.
    return np.maximum(computing + constants.conv_bandwidth * moved, _streamed(rows.bytes, rows, at)), moved


def _winograd(rows: Rows, at: GpuCeilings, constants: GpuConstants, rate: float) -> Floats:
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


def _depthwise(rows: Rows, at: GpuCeilings, constants: GpuConstants) -> _RowTimes:
    moved = rows.bytes / (at.bandwidth * constants.depthwise_bandwidth)
    # Each multiplication loads what it multiplies: halves come two at a time.
    rate = at.plain_rate * constants.depthwise_rate * FLOAT_BYTES / at.precision.element_bytes
    computing = rows.flops / rate
    return np.maximum(moved, computing), computing > moved


def _bias(rows: Rows, at: GpuCeilings, constants: GpuConstants) -> _RowTimes:
    issuing = _issued(rows.elements, constants.scattered, at)
    return np.maximum(_streamed(rows.bytes, rows, at), issuing), False


def _recurrent(rows: Rows, at: GpuCeilings, constants: GpuConstants) -> _RowTimes:
    steps = np.maximum(rows.steps, 1.0)
    weights = rows.weights * rows.scale
    # Weights that fit the cache stay there from step to step.
    reading = np.where(weights < at.cache, weights / (3.0 * at.bandwidth), weights / at.bandwidth)
    computing = rows.flops / steps / (at.rate * 0.5)
    return steps * np.maximum(constants.step_s, np.maximum(reading, computing)), computing > reading


def _tree(rows: Rows, at: GpuCeilings, _constants: GpuConstants) -> _RowTimes:
    # No CUDA kernel exists; a visit to a node is one scattered read of a 32-byte sector.
    return rows.flops * 32.0 / (at.bandwidth * at.stream) + rows.bytes / at.bandwidth, False


_RULES = {
    Kind.VECTOR: _vector,
    Kind.REDUCE: _reduce,
    Kind.MOVE: _vector,
    Kind.POOL: _pool,
    Kind.NORM: _norm,
    Kind.SOFTMAX: _softmax,
    Kind.MATMUL: _matmul,
    # Without tensor cores the same kernels run at the rate of the ordinary ones.
    Kind.EXPERTS: on_tensor_cores.experts,
    Kind.ATTENTION: on_tensor_cores.attention,
    Kind.CONV: _conv,
    Kind.DEPTHWISE: _depthwise,
    Kind.BIAS: _bias,
    Kind.RECURRENT: _recurrent,
    Kind.TREE: _tree,
}
