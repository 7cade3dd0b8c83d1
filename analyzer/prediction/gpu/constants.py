"""The fitted constants of the GPU model; ``tests/benchmarks/fit_prediction.py`` reproduces them.

At each constant: the file of measurements that it was fitted to, and the median error on a card left out of the
fit (``tests/benchmarks/prediction.md`` has the whole table). What no measurement determined says so.

The measurements: single fp32 operators of PyTorch on Pascal to Hopper (NeuSight's data set, MIT licence),
fp16 layer products on A40 and A100 (Vidur), convolutions of cuDNN on V100 (DeepBench), best products by device
(stas00/ml-engineering, mag-/gpu_benchmark), ONNX Runtime whole models on V100 (its README).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from analyzer.prediction.gpu.attention import AttentionConstants
from analyzer.prediction.gpu.experts import ExpertConstants
from analyzer.prediction.gpu.tensor_products import QuantisingConstants, TensorConstants


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
        products, attention, experts, quantising: Products on tensor cores, fused attention, mixtures of
            experts, activations made 8-bit floats.
        tensor: Convolutions there, as implicit products.
        few_rows_bandwidth: Share of the memory bandwidth that matrix-vector kernels reach.
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
        row_sums_s: What summing up rows adds to a norm or softmax.
        half_rows: How much longer these take in 16 bits at most.
        softmax_long: Row length from which softmax reads its rows again.
        norm_edge, softmax_edge: How sharply: the share read again is ``x**edge / (1 + x**edge)`` when the rows
            in flight fill ``x`` caches.
        norm_row_s: Time of one row on one multiprocessor.
        conv_efficiency: Share of the sustained rate in implicit GEMM.
        conv_depth: As ``Tiles.depth``, for implicit GEMM.
        conv_power: Exponent of the sustained share: convolutions draw less power than products.
        conv_tiles: Quality of the tiles, as ``Tiles.quality``.
        conv_bandwidth: Share of a convolution's traffic that is not hidden.
        turned: Elements a clock and multiprocessor that are turned to channels last or back.
        scattered: The same of kernels with a thread for each element: biases, filters, Clip, sums of rows.
        pooled: Elements of windows a clock and multiprocessor that pools load.
        load_clocks: Clocks an element where one thread pools a whole plane.
        reduced_row_s: Time of one row that is summed up, on one multiprocessor.
        winograd_efficiency, winograd_depth: The same for the 36 products of F(4x4, 3x3).
        winograd_transform: Passes over the transformed tensors that are not hidden.
        winograd_channel_s: Time per input channel of the transforms' kernels.
        winograd_s: Further kernels of the transforms.
        depthwise_bandwidth: Share of the bandwidth that depthwise convolutions reach.
        depthwise_rate: Share of the fp32 rate, of floats of four bytes.
        step_s: Least time of one dependent step of a recurrence.
    """

    vector: Tiles
    tensor: Tiles
    products: TensorConstants = field(default_factory=TensorConstants)
    attention: AttentionConstants = field(default_factory=AttentionConstants)
    experts: ExpertConstants = field(default_factory=ExpertConstants)
    quantising: QuantisingConstants = field(default_factory=QuantisingConstants)
    few_rows_bandwidth: float = 0.754
    # Best products of A100, H100, L4 and others reach 0.66 to 0.87 (stas00/ml-engineering, mag-/gpu_benchmark).
    tensor_share: float = 0.85
    fp32_watts: Mapping[str, float] = field(default_factory=dict)
    single: Mapping[str, float] = field(default_factory=dict)
    tensor_watts: Mapping[str, float] = field(default_factory=dict)
    unsteady: Mapping[str, float] = field(default_factory=dict)
    # Linear products of P100 and P4 (neusight_perop_matmul.csv): 99 % of the P100's within a factor of two with
    # what the P4 alone teaches, 82 % without. The P4's random shapes, which ran other kernels, are left out.
    reach: float = 2.15e6
    walk_s: float = 2.52e-10
    # Unary and binary operators over 100 us of seven cards (neusight_perop_vector.csv): 3 % and 2 % off. HBM is
    # V100 and A100, GDDR is T4 and L4, Pascal is P100 and P4, whatever their memory.
    stream_hbm: float = 0.904
    stream_gddr: float = 0.782
    # Streams alone, no operators: H200 0.86 of the peak (copies of 4.13 TB/s, catalogue); A40 0.94, L40 0.89
    # (te42kyfo/gpu-benches).
    stream_hbm3e: float = 0.86
    stream_gddr_large: float = 0.91
    stream_pascal: float = 0.762
    # LayerNorm over 100 us, the same file and cards: 7 % off.
    norm_rows: float = 18.1
    norm_edge: float = 5.57
    norm_row_s: float = 6.34e-7
    # The least that norms of vLLM take on an RTX 4090 and an RTX PRO 6000 (1.9 to 2.5 us), less a floor of 1.2
    # us.
    row_sums_s: float = 1e-6
    # LayerNormalization and Softmax of ONNX Runtime in fp16 on an H100 and an H200 (``tests/data/gpu``): 2 to
    # 2.5 times as long. The intervals' upper ends hold it.
    half_rows: float = 2.5
    # Softmax over 100 us, the same: 8 % off.
    softmax_rows: float = 5.54
    softmax_edge: float = 1.7
    # Not fitted: up to this length PyTorch keeps a row in registers
    # (aten/src/ATen/native/cuda/SoftMax.cu), and PyTorch is what was measured.
    softmax_long: float = 1024.0
    # Down to ``winograd_s``: convolutions in fp32 over 100 us of P100, P4, V100, T4 and A100
    # (neusight_perop_conv2d.csv) and of a V100's cuDNN (deepbench_conv.csv): 17 % off. The 0.3 ms a call that
    # PyTorch adds were fitted with them; they belong to the measurements, not to the model.
    conv_efficiency: float = 1.0
    conv_depth: float = 3.45
    conv_power: float = 0.786
    conv_tiles: tuple[float, ...] = (1.0, 0.9, 0.315, 0.784, 0.464)
    conv_bandwidth: float = 0.118
    # Not fitted, no public table has them: whole numbers near what cuDNN's and ONNX Runtime's kernels
    # (``nchwToNhwcKernel``, ``op_generic_tensor_kernel``, ``BroadcastBiasKernel``) take on an H100
    # (``tests/data/gpu``). The last two give each element a thread of its own.
    turned: float = 2.0
    scattered: float = 1.0
    # Not fitted, the same: pools and planes of an H100 (``h100-families-pool.json.gz``).
    pooled: float = 2.0
    load_clocks: float = 5.0
    reduced_row_s: float = 6e-8
    winograd_efficiency: float = 0.749
    winograd_depth: float = 25.3
    winograd_transform: float = 0.329
    winograd_channel_s: float = 216e-9
    winograd_s: float = 2e-6
    # Assumed: no public measurement of depthwise convolutions. Their interval is 1.8. A multiplication has two
    # loads of its own, of which a multiprocessor makes a quarter as many as multiplications: an eighth at best,
    # half of which is reached on an H100 (``tests/data/gpu``).
    depthwise_bandwidth: float = 0.5
    depthwise_rate: float = 0.06
    # Assumed, about two gaps. No public measurement of recurrences; their interval is 2.
    step_s: float = 8e-6


_VECTOR_TILES = ((128, 128), (128, 64), (64, 128), (64, 64), (64, 32), (32, 64), (32, 32))
_TENSOR_TILES = ((256, 128), (128, 256), (128, 128), (128, 64), (64, 128), (64, 64), (64, 32), (32, 64))

FITTED = GpuConstants(
    # Linear and batched products in fp32 of V100, T4, A100, L4 and H100 (neusight_perop_matmul.csv), without
    # Pascal: linear over 200 us 10 % off, batched over 100 us 12 %.
    vector=Tiles(
        sizes=_VECTOR_TILES,
        quality=(1.0, 0.71, 0.71, 0.824, 0.507, 0.507, 0.228),
        efficiency=0.938,
        depth=6.06,
        bandwidth=0.508,
        split_s=12.8e-6,
    ),
    # Convolutions as implicit products. Fitted to projections of language models in fp16 on A40 and A100
    # (vidur_llm_layer_ops.csv), which products themselves are no longer.
    tensor=Tiles(
        sizes=_TENSOR_TILES,
        quality=(0.616, 0.616, 1.08, 0.699, 0.699, 0.963, 0.668, 0.668),
        efficiency=0.885,
        depth=81.1,
        bandwidth=0.754,
        split_s=1e-6,
    ),
    # Power limit over what products over 1 ms sustain (neusight_perop_matmul.csv): P100 is 6.0, P4 is 6.1, then
    # V100, T4, A100 (8.0), L4, H100. Other Ampere was not measured; Blackwell is taken as Hopper, with
    # GDDR as Ada. A card of an architecture that was not measured has a wider interval (``_power`` in
    # ``ceilings``).
    fp32_watts=MappingProxyType(
        {"6.0": 29.3, "6.1": 19.6, "Volta": 17.9, "Turing": 17.6, "8.0": 14.1, "Ampere": 11.0,
         "Ada Lovelace": 7.5, "Hopper": 12.7, "Blackwell": 12.7, "Blackwell 2.0": 7.5}
    ),
    single=MappingProxyType({"6.0": 0.87, "6.1": 0.74}),
    # Half the distance, as a factor, of NeuSight's two sessions of a card; the V100's is 1.00.
    unsteady=MappingProxyType({"6.0": 1.06, "6.1": 1.7, "Turing": 1.08, "8.0": 1.01}),
    # Set by hand from best products by device (stas00/ml-engineering, mag-/gpu_benchmark), not by the script.
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
# What sorts, searches, sums one by one, or goes to memory out of order: kernels of which no table and no record
# has one. They are told as streams of their bytes (cumulative sums by what their threads read), which they are
# not: 4 bytes out of order pass a sector of 32 and a sort passes its data many times. The width is assumed.
UNMEASURED_KERNELS = frozenset(
    {
        *("TopK", "CumSum", "CumSumFirstAxis", "NonZero", "Unique", "Compress", "CompressFlat", "RoiAlign"),
        *("NonMaxSuppression", "GridSample", "GridSampleLinear", "GridSampleNearest"),
        *(
            "GridSampleCubic",
            "GridSampleLinearReflected",
            "GridSampleNearestReflected",
            "GridSampleCubicReflected",
        ),
        *("GridSampleLinearVolume", "GridSampleNearestVolume", "ResizeNearestAnywhere", "ResizeLinearAnywhere"),
        *("ResizeCubic", "EinsumTranspose"),
        *("ScatterElements", "ScatterElementsOuter", "ScatterND", "GatherND", "GatherElements"),
        *("GatherElementsOuter", "ReverseSequence", "LRN", "MaxUnpool"),
        *("RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Bernoulli"),
    }
)
UNMEASURED_WIDTH = 5.0
