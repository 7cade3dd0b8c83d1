"""The fitted constants of the GPU model: ``constants.toml``, and the widths that follow from them."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import msgspec

from analyzer.prediction.gpu.attention import AttentionConstants, ExpertConstants
from analyzer.prediction.gpu.tensor_products import QuantisingConstants, TensorConstants


@dataclass(frozen=True, slots=True, kw_only=True)
class Tiles:
    """Tiles into which a library cuts a product; ``constants.toml`` explains each constant."""

    sizes: tuple[tuple[int, int], ...]
    quality: tuple[float, ...]
    efficiency: float
    depth: float
    bandwidth: float
    split_s: float
    splits: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuConstants:
    """Constants of the GPU model; ``constants.toml`` says what each constant is."""

    vector: Tiles
    tensor: Tiles
    products: TensorConstants
    attention: AttentionConstants
    experts: ExpertConstants
    quantising: QuantisingConstants
    few_rows_bandwidth: float
    tensor_share: float
    fp32_watts: Mapping[str, float]
    single: Mapping[str, float]
    tensor_watts: Mapping[str, float]
    unsteady: Mapping[str, float]
    reach: float
    walk_s: float
    stream_hbm: float
    stream_gddr: float
    stream_hbm3e: float
    stream_gddr_large: float
    stream_pascal: float
    norm_rows: float
    norm_edge: float
    norm_row_s: float
    row_sums_s: float
    half_rows: float
    softmax_rows: float
    softmax_edge: float
    softmax_long: float
    conv_efficiency: float
    conv_depth: float
    conv_power: float
    conv_tiles: tuple[float, ...]
    conv_bandwidth: float
    turned: float
    scattered: float
    pooled: float
    load_clocks: float
    reduced_row_s: float
    winograd_efficiency: float
    winograd_depth: float
    winograd_transform: float
    winograd_channel_s: float
    winograd_s: float
    depthwise_bandwidth: float
    depthwise_rate: float
    step_s: float


_TABLES = tomllib.loads(Path(__file__).with_name("constants.toml").read_text(encoding="utf-8"))
FITTED = msgspec.convert(_TABLES["model"], GpuConstants)

# Half-widths of 90 % intervals as factors, by ``Kind``: the fitting script derives them from errors on devices
# left out. Assumed are REDUCE, MOVE, POOL, DEPTHWISE, RECURRENT and TREE, of which it has no measurements.
# MATMUL is of single products in fp32, times ``unsteady``. TENSOR_CONV was measured on one card (1.44), which
# says nothing of others: not less than CONV.
WIDTHS: Mapping[str, float] = MappingProxyType(
    {
        "VECTOR": 1.07, "REDUCE": 1.6, "NORM": 1.26, "SOFTMAX": 1.35, "MOVE": 1.4, "POOL": 1.6, "MATMUL": 1.24,
        "BATCHED": 1.72, "CONV": 1.59, "TENSOR_CONV": 1.6,
        "DEPTHWISE": 1.8, "BIAS": 1.6, "RECURRENT": 2.0, "TREE": 3.0,
    }
)  # fmt: skip
# Ends of the classes of size that intervals are counted in, seconds.
SIZES_S = (20e-6, 200e-6)
# By class of size: products on tensor cores, of packed weights, of 8-bit floats, mixtures of experts,
# attention. Of decodes with heads that not every engine has kernels for, the second.
TENSOR_WIDTHS = (1.36, 1.23, 1.18)
PACKED_WIDTHS = (1.7, 1.31, 1.25)
NARROW_WIDTHS = (1.5, 1.42, 1.34)
EXPERT_WIDTHS = (1.65, 1.77, 1.65)
PREFILL_WIDTHS = (1.51, 1.84, 1.61)
DECODE_WIDTHS = (1.42, 1.71, 1.28)
RARE_DECODE_WIDTHS = (1.91, 5.7, 5.1)
LAUNCH_WIDTH = TENSOR_WIDTHS[0]
# All operators of a session together: other kernels and builds than those measured (whole models of ONNX
# Runtime on a V100, of timm on an RTX 3090).
SESSION_WIDTH = 1.35
# A type, a figure or an architecture that had to be replaced by the nearest.
SUBSTITUTE_WIDTH = 1.6
# Kernels of which no table and no record has one.
UNMEASURED_KERNELS = frozenset(_TABLES["unmeasured_kernels"])
UNMEASURED_WIDTH = 5.0
