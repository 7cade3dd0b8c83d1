"""Pieces of work on tensor cores: products, attention and experts, by their own models."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from analyzer.arrays import Bools, Floats
from analyzer.prediction.features import CHANNELS_LAST
from analyzer.prediction.gpu.attention import Attentions, Mixtures, attention_times, expert_times
from analyzer.prediction.gpu.ceilings import GpuCeilings
from analyzer.prediction.gpu.constants import GpuConstants
from analyzer.prediction.gpu.launch import FLOOR_S, GAP_S
from analyzer.prediction.gpu.tensor_products import Products, TensorCores, product_times, quantising_times
from analyzer.prediction.work_item import FLOAT_BYTES, Kind
from analyzer.prediction.workload import Workload, whether


class Rows:
    """The chosen pieces' columns; bytes already in the precision's width."""

    def __init__(self, work: Workload, chosen: npt.NDArray[np.int64], at: GpuCeilings) -> None:
        self._work, self._chosen = work, chosen
        self.scale = at.precision.element_bytes / FLOAT_BYTES
        self._own_bytes = at.precision.element_bytes

    def __getattr__(self, name: str) -> Floats:
        return self._work.columns[name][self._chosen]

    @property
    def all_weights(self) -> Floats:
        """Bytes of all weights of a piece's model: what passes the cache before they are read again."""
        stored = self._work["weights"] * self.scale + self._work["fixed_weights"]
        return self._work.of_model(stored)[self._chosen]

    @property
    def all_caches(self) -> Floats:
        """Bytes of keys and values of all attentions of a piece's model."""
        attends = self._work.kind == Kind.ATTENTION
        if not attends.any():
            return np.zeros(len(self._chosen))
        keys, heads, size = (self._work[name][attends] for name in ("n", "row", "k"))
        window = self._work["taps"][attends]
        keys = np.where(window > 0, np.minimum(keys, window), keys) + self._work["m"][attends]
        width = np.where(self._work["spatial"][attends] > 0, self._work["spatial"][attends], self._own_bytes)
        held = np.zeros(len(self._work.kind))
        held[attends] = 2.0 * self._work["batch"][attends] * heads * keys * size * width
        return self._work.of_model(held)[self._chosen]

    @property
    def kernels(self) -> Floats:
        """Kernels that the group of each launches."""
        return self._work.kernels[self._work.group[self._chosen]]

    @property
    def channels_last(self) -> Bools:
        """Return which convolutions take images channels last as they are."""
        return self.named({CHANNELS_LAST})

    def named(self, operators: Collection[str]) -> Bools:
        """Return which are one of these operators."""
        return np.asarray(whether(self._work, operators)[self._work.op[self._chosen]])

    @property
    def bytes(self) -> Floats:
        """Bytes that each moves."""
        return (self.read + self.written) * self.scale + self.fixed


def products(rows: Rows, at: GpuCeilings, constants: GpuConstants) -> tuple[Floats, Bools, Floats]:
    """Return products, packed weights among them, and what ONNX Runtime's slower way with these takes."""
    stored = rows.weights * rows.scale + rows.fixed_weights
    passing = np.maximum(0.0, rows.bytes - stored)
    columns = np.stack(
        [rows.batch, rows.m, rows.n, rows.k, stored, passing, rows.unpacked, rows.narrow, rows.all_weights]
    )
    # Layers are alike: a model has few different products.
    result, which = np.unique(columns, axis=1, return_inverse=True)
    which = which.reshape(-1)
    batch, m, n, k, stored, passing, unpacking, narrow, kept = result
    packed = unpacking > 0
    made = Products(batch=batch, m=m, n=n, k=k, stored=stored, passing=passing, packed=packed, kept=kept)
    times, computing = product_times(made, at, constants.products)
    if narrow.any():
        fast, fast_computing = product_times(made, _narrow_cores(at, constants), constants.products)
        times = np.where(narrow > 0, fast, times)
        computing = np.where(narrow > 0, fast_computing, computing)
    at_most = times
    if made.packed.any():
        at_most = np.where(made.packed, np.maximum(times, _unpacked(made, at, constants)), times)
    return times[which], computing[which], at_most[which]


# MatMulNBits of ONNX Runtime 1.31, unless the session's entry ``ep.cuda.fpa_intb_gemm`` asks for fused kernels:
# up to this many rows each row unpacks the weights on ordinary cores, with more they are unpacked to memory
# first (contrib_ops/cuda/quantization/matmul_nbits.cc).
_UNPACKED_ROWS = 32.0
# Of the fp32 rate: what 4 to 16 rows reach on an H100 (0.19 to 0.25, ``tests/data/gpu``).
_UNPACKING = 0.2


def _unpacked(packed: Products, at: GpuCeilings, constants: GpuConstants) -> Floats:
    """Return seconds of ONNX Runtime's own path for packed weights."""
    by_row = 2.0 * packed.batch * packed.m * packed.n * packed.k / (_UNPACKING * at.plain_rate)
    whole = packed.n * packed.k * at.element_bytes
    plain = replace(packed, stored=whole, packed=np.zeros(packed.m.size, dtype=np.bool_))
    at_once = product_times(plain, at, constants.products)[0]
    at_once = at_once + (packed.stored + whole) / (at.bandwidth * constants.products.memory)
    return np.where(packed.m < _UNPACKED_ROWS, by_row, at_once)


def attention(rows: Rows, at: GpuCeilings, constants: GpuConstants) -> tuple[Floats, Bools, Floats]:
    """Fused attention without its launches, and what ONNX Runtime's slower kernels take."""
    own = np.full_like(rows.m, at.element_bytes)
    calls = Attentions(
        batch=rows.batch,
        queries=rows.m,
        before=rows.n,
        heads=rows.rows,
        key_heads=rows.row,
        size=rows.k,
        window=rows.taps,
        causal=rows.stride > 0,
        cache_bytes=np.where(rows.spatial > 0, rows.spatial, own),
        kept=np.zeros_like(rows.m),
    )
    # All caches and weights of the model pass before this one is read again.
    calls = replace(calls, kept=rows.all_weights + rows.all_caches - calls.cached)
    seconds, computing, floor = attention_times(calls, at, constants.attention)
    # ONNX Runtime's kernels for windows and for cards without cuDNN's are FlashAttention 2's everywhere.
    staged = replace(constants.attention, streamed=constants.attention.staged)
    slower = attention_times(calls, at, staged)[0]
    counted = np.minimum(rows.kernels * (FLOOR_S + GAP_S), _COUNTED * floor)
    return seconds - counted, computing, np.maximum(seconds, slower) - counted


# A call's floor holds those of its kernels, which are counted as launches too.
_COUNTED = 0.9


def experts(rows: Rows, at: GpuCeilings, constants: GpuConstants) -> tuple[Floats, Bools]:
    """Return mixtures of experts, packed weights among them."""
    stored = rows.weights * rows.scale + rows.fixed_weights
    weights = rows.batch * rows.taps * rows.k * rows.n
    mixtures = Mixtures(
        tokens=rows.m,
        hidden=rows.k,
        inner=rows.n,
        chosen=rows.steps,
        experts=rows.batch,
        matrices=rows.taps,
        weight_bytes=np.where(stored > 0, stored / np.maximum(weights, 1.0), at.element_bytes),
        packed=(rows.fixed_weights > 0) & (rows.narrow == 0),
        # Which experts tokens choose is not known before a run.
        skewed=np.ones_like(rows.m),
        kept=rows.all_weights,
        by_blocks=rows.spatial,
    )
    counted = np.minimum(rows.kernels * (FLOOR_S + GAP_S), _COUNTED * constants.experts.route_s)
    times = expert_times(mixtures, at, constants.experts, constants.products)
    if rows.narrow.any():
        times = np.where(rows.narrow > 0, narrow_expert_times(mixtures, at, constants), times)
    operations = 2.0 * rows.m * rows.steps * rows.taps * rows.k * rows.n
    return times - counted, operations / at.rate > 0.5 * times


def narrow_expert_times(mixtures: Mixtures, at: GpuCeilings, constants: GpuConstants) -> Floats:
    """Seconds of mixtures of 8-bit floats, what comes into each of their products quantised before it."""
    cores = _narrow_cores(at, constants)
    times = expert_times(mixtures, cores, constants.experts, constants.products)
    chosen = mixtures.tokens * mixtures.chosen
    for rows, width in ((mixtures.tokens, mixtures.hidden), (chosen, mixtures.inner)):
        times = times + quantising_times(rows, rows * width, cores, constants.quantising)
    return times * np.where(mixtures.by_blocks > 0, constants.experts.blocks, 1.0)


def _narrow_cores(at: GpuCeilings, constants: GpuConstants) -> TensorCores:
    """Return a device's figures for products of 8-bit floats."""
    return replace(at, rate=at.rate * at.narrow * constants.products.narrow, element_bytes=1.0)
