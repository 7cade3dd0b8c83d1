"""The fitted constants of the GPU model; ``tests/benchmarks/fit_prediction.py`` reproduces them.

The measurements: single fp32 operators of PyTorch on Pascal to Hopper (NeuSight's data set, MIT licence),
fp16 layer products on A40 and A100 (Vidur), convolutions of cuDNN on V100 (DeepBench), best products by device
(stas00/ml-engineering, mag-/gpu_benchmark), ONNX Runtime whole models on V100 (its README).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType


@dataclass(frozen=True, slots=True, kw_only=True)
class Tiles:
    """How a library cuts a product into tiles.

    Attributes:
        sizes: Rows and columns of an output tile.
        quality: Each tile's share of the best rate.
        efficiency: Best share of the sustained rate.
        depth: Steps of the inner dimension that starting and ending a tile costs.
        bandwidth: Share of the memory bandwidth that operands reach.
        split_s: Cost of splitting the inner dimension over several tiles.
        splits: In how many parts the inner dimension may be split.
    """

    sizes: tuple[tuple[int, int], ...]
    quality: tuple[float, ...]
    efficiency: float
    depth: float
    bandwidth: float
    split_s: float
    splits: tuple[int, ...] = (1, 2, 4, 8, 16)


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuConstants:
    """Constants of the GPU model.

    Attributes:
        vector: Products on fp32 cores.
        tensor: Products on tensor cores.
        tensor_share: Share of the tensor peak that the best product sustains, where none was measured.
        fp32_watts: Watts per sustained fp32 TFLOP/s in products by architecture or compute capability.
        single: How much further a watt goes in single products (``x W^T``) alone, by the same; 1 elsewhere.
        tensor_watts: The same of tensor products.
        unsteady: By what factor, either way, single products' rates differ between a card's sessions.
        reach: Bytes per multiprocessor that Pascal's address translation covers.
        walk_s: Time that a 32-byte read beyond it adds, over the whole card.
        stream_hbm, stream_gddr, stream_pascal: Share of the memory bandwidth that elementwise operators reach;
            GDDR as on an L4 and T4.
        stream_hbm3e, stream_gddr_large: Where only streams were measured (gpu-benches): H200; A40 and L40.
        norm_rows, softmax_rows: Rows in flight per multiprocessor; what the cache cannot hold is read again.
        softmax_long: Row length from which softmax reads its rows again.
        norm_edge, softmax_edge: How sharply: the share read again is ``x**edge / (1 + x**edge)`` when the rows
            in flight fill ``x`` caches.
        norm_row_s: Time of one row on one multiprocessor.
        conv_efficiency: Share of the sustained rate in implicit GEMM.
        conv_depth: As ``Tiles.depth``, for implicit GEMM.
        conv_power: Exponent of the sustained share: convolutions draw less power than products.
        conv_tiles: Quality of the tiles, as ``Tiles.quality``.
        conv_bandwidth: Share of a convolution's traffic that is not hidden.
        conv_turn: Share of a convolution's traffic that its change to channels last and back adds on tensor
            cores; whole networks on an RTX 3090 take 15 % longer from channels first (timm's tables).
        winograd_efficiency, winograd_depth: The same for the 36 products of F(4x4, 3x3).
        winograd_transform: Passes over the transformed tensors that are not hidden.
        winograd_channel_s: Time per input channel of the transforms' kernels.
        winograd_s: Further kernels of the transforms.
        depthwise_bandwidth: Share of the bandwidth that depthwise convolutions reach.
        kernel_gap_s: From the end of one kernel to the start of the next in a full queue.
        node_host_s: Time the host needs for one node of ONNX Runtime's CUDA provider.
        step_s: Least time of one dependent step of a recurrence.
    """

    vector: Tiles
    tensor: Tiles
    tensor_share: float = 0.85
    fp32_watts: Mapping[str, float] = field(default_factory=dict)
    single: Mapping[str, float] = field(default_factory=dict)
    tensor_watts: Mapping[str, float] = field(default_factory=dict)
    unsteady: Mapping[str, float] = field(default_factory=dict)
    reach: float = 2.15e6
    walk_s: float = 2.52e-10
    stream_hbm: float = 0.904
    stream_gddr: float = 0.782
    stream_hbm3e: float = 0.698
    stream_gddr_large: float = 0.91
    stream_pascal: float = 0.762
    norm_rows: float = 18.1
    norm_edge: float = 5.57
    norm_row_s: float = 6.34e-7
    softmax_rows: float = 5.54
    softmax_edge: float = 1.7
    softmax_long: float = 1024.0
    conv_efficiency: float = 1.0
    conv_depth: float = 3.45
    conv_power: float = 0.786
    conv_tiles: tuple[float, ...] = (1.0, 0.9, 0.315, 0.784, 0.464)
    conv_bandwidth: float = 0.118
    conv_turn: float = 0.35
    winograd_efficiency: float = 0.749
    winograd_depth: float = 25.3
    winograd_transform: float = 0.329
    winograd_channel_s: float = 216e-9
    winograd_s: float = 2e-6
    depthwise_bandwidth: float = 0.5
    kernel_gap_s: float = 3.9e-6
    node_host_s: float = 10e-6
    step_s: float = 8e-6


_VECTOR_TILES = ((128, 128), (128, 64), (64, 128), (64, 64), (64, 32), (32, 64), (32, 32))
_TENSOR_TILES = ((256, 128), (128, 256), (128, 128), (128, 64), (64, 128), (64, 64), (64, 32), (32, 64))

FITTED = GpuConstants(
    vector=Tiles(
        sizes=_VECTOR_TILES,
        quality=(1.0, 0.71, 0.71, 0.824, 0.507, 0.507, 0.228),
        efficiency=0.938,
        depth=6.06,
        bandwidth=0.508,
        split_s=12.8e-6,
    ),
    tensor=Tiles(
        sizes=_TENSOR_TILES,
        quality=(0.616, 0.616, 1.08, 0.699, 0.699, 0.963, 0.668, 0.668),
        efficiency=0.885,
        depth=81.1,
        bandwidth=0.754,
        split_s=1e-6,
    ),
    fp32_watts=MappingProxyType(
        {"6.0": 29.3, "6.1": 19.6, "Volta": 17.9, "Turing": 17.6, "8.0": 14.1, "Ampere": 11.0,
         "Ada Lovelace": 7.5, "Hopper": 12.7, "Blackwell": 12.7, "Blackwell 2.0": 7.5}
    ),
    single=MappingProxyType({"6.0": 0.87, "6.1": 0.74}),
    unsteady=MappingProxyType({"6.0": 1.06, "6.1": 1.7, "Turing": 1.08, "8.0": 1.01}),
    tensor_watts=MappingProxyType(
        {"Volta": 2.9, "Turing": 2.9, "8.0": 1.1, "Ampere": 2.1, "Ada Lovelace": 0.75, "Hopper": 0.7,
         "Blackwell 2.0": 0.75}
    ),
)  # fmt: skip

# Half-widths of 90 % intervals as factors, by ``Kind``: the fitting script derives them from errors on devices
# left out. Assumed are REDUCE, MOVE, POOL, DEPTHWISE, RECURRENT and TREE, of which it has no measurements.
# MATMUL is of single products in fp32, times ``unsteady``. TENSOR_CONV was measured on one card (1.44), which
# says nothing of others: not less than CONV.
WIDTHS: Mapping[str, float] = MappingProxyType(
    {
        "VECTOR": 1.07, "REDUCE": 1.4, "NORM": 1.26, "SOFTMAX": 1.35, "MOVE": 1.4, "POOL": 1.6, "MATMUL": 1.24,
        "BATCHED": 1.72, "TENSOR": 1.18, "CONV": 1.59, "TENSOR_CONV": 1.6,
        "DEPTHWISE": 1.8, "RECURRENT": 2.0, "TREE": 3.0,
    }
)  # fmt: skip
# All operators of a session together: other kernels and builds than those measured (whole models of ONNX
# Runtime on a V100, of timm on an RTX 3090). The host's time per node was measured on other hosts.
SESSION_WIDTH = 1.35
HOST_WIDTH = 1.6
# A type, a figure or an architecture that had to be replaced by the nearest.
SUBSTITUTE_WIDTH = 1.6
