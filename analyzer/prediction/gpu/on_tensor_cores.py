"""Pieces of work on tensor cores: products, attention and experts, by their own models."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from analyzer.arrays import Bools, Floats
from analyzer.prediction.gpu.attention import Attentions, attention_times
from analyzer.prediction.gpu.ceilings import GpuCeilings
from analyzer.prediction.gpu.constants import GpuConstants
from analyzer.prediction.gpu.experts import Mixtures, expert_times
from analyzer.prediction.gpu.launch import FLOOR_S, GAP_S
from analyzer.prediction.gpu.rows import Rows
from analyzer.prediction.gpu.tensor_products import Products, TensorCores, product_times, quantising_times


def products(rows: Rows, at: GpuCeilings, constants: GpuConstants) -> tuple[Floats, Bools, Floats]:
    """Products, packed weights among them, and what ONNX Runtime's slower way with these takes."""
    stored = rows.weights * rows.scale + rows.fixed_weights
    passing = np.maximum(0.0, rows.bytes - stored)
    columns = np.stack(
        [rows.batch, rows.m, rows.n, rows.k, stored, passing, rows.unpacked, rows.narrow, rows.all_weights]
    )
    # Layers are alike: a model has few different products.
    found, which = np.unique(columns, axis=1, return_inverse=True)
    which = which.reshape(-1)
    batch, m, n, k, stored, passing, unpacking, narrow, kept = found
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
    """What ONNX Runtime's own way with packed weights takes."""
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
    """Mixtures of experts, packed weights among them."""
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
    """A device's figures for products of 8-bit floats."""
    return replace(at, rate=at.rate * at.narrow * constants.products.narrow, element_bytes=1.0)
