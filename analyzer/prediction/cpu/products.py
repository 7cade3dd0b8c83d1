"""Matrix products and convolutions on a CPU, interpolated among measured shapes."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from analyzer.arrays import Floats
from analyzer.operators import RECURRENT
from analyzer.prediction.cpu.ceilings import CpuCeilings, copy_rate, tables
from analyzer.prediction.features import TRANSPOSED_VOLUME
from analyzer.prediction.irregular_pieces import FAMILIES, IntegerShapes
from analyzer.prediction.reference_core import loop_rows, loops
from analyzer.prediction.work_item import Kind
from analyzer.prediction.workload import Workload, whether

# Steps of the probes of recurrences (measurement/probes.toml).
_PROBED_STEPS = 16.0
# Bytes of the largest probe's weights.
LARGEST_PROBED_BYTES = 4.0 * 4096**2
# Rows matter most: they decide whether weights are used once or often.
_AXES = np.array([2.0, 0.5, 0.5])


def product_seconds(work: Workload, chosen: npt.NDArray[np.int64], at: CpuCeilings) -> Floats:
    """Return seconds of the arithmetic of the pieces that ``chosen`` names, and of packing what is computed."""
    flops = work["flops"][chosen]
    n, k, batch = (work[name][chosen] for name in ("n", "k", "batch"))
    shapes, which = work.shapes
    single = _rates(at, "gemm.float32", shapes)[which[chosen]]
    integers = np.zeros(len(chosen), dtype=np.bool_)
    for name, mine in integer_families(work, chosen):
        single = np.where(mine, _rates(at, f"gemm.{name}", shapes)[which[chosen]], single)
        integers |= mine
    many = _rates(at, "bmm.float32", shapes)[which[chosen]]
    probed = (batch > 1) & (n * k <= _PROBED_BATCHED) & ~integers
    rate = np.where(probed, many, single)
    recurrent = whether(work, RECURRENT)[work.op[chosen]]
    # The input's product is part of what a step of a recurrence was measured to take, at the rate of its
    # rows; here is only what fewer rows take longer.
    if recurrent.any():
        at_probe = _rates(at, "gemm.float32", np.maximum(shapes, (_PROBED_STEPS, 1.0, 1.0)))[which[chosen]]
        with np.errstate(divide="ignore"):
            rate = np.where(recurrent, 1.0 / np.maximum(0.0, 1.0 / single - 1.0 / at_probe), rate)
    for index, op in enumerate(work.ops):
        if op in loops():
            each = 2.0 / (loops()[op].element_s * tables(at.values).pace)
            mine = work.op[chosen] == index
            rate = np.where(mine, each * (at.threads if loops()[op].shared else 1.0), rate)
            integers |= mine
    # Weights were packed when the session was made; what is computed is packed in each run.
    stored = (work["weights"][chosen] > 0) | (work["fixed_weights"][chosen] > 0)
    # One row reads the second factor as it lies.
    unpacked = stored | recurrent | (work["m"][chosen] <= 1)
    packed = np.where(unpacked, 0.0, np.maximum(batch, 1.0) * n * k)
    # One row has a kernel of its own, as wide as the result; more rows are multiplied by panels of columns.
    paneled = (work["m"][chosen] > 1) & ~integers & ~recurrent
    flops = flops * np.where(paneled, _panels(n), 1.0)
    seconds: Floats = (flops / rate + np.where(probed, 0.0, packed * _pack_s(at))) / at.scale
    # Small products of a batch are one call of MLAS each; those of an Einsum have a piece of their own.
    called = (batch > 1) & ~integers & ~recurrent & ~whether(work, ("Einsum",))[work.op[chosen]]
    calls = np.where(called, batch * loop_rows()["Product"] * tables(at.values).pace, 0.0)
    return np.maximum(seconds, calls / at.threads)


def _panels(columns: Floats) -> Floats:
    """Columns rounded up to whole panels, over the columns: 1 to 16 take the same time, 17 twice that."""
    return np.ceil(np.maximum(columns, 1.0) / _PANEL) * _PANEL / np.maximum(columns, 1.0)


# Columns of the second factor that MLAS packs beside each other (onnxruntime/core/mlas/lib/sgemm.cpp,
# MlasSgemmCopyPackB).
_PANEL = 16.0


def integer_families(
    work: Workload, chosen: npt.NDArray[np.int64]
) -> Iterator[tuple[str, npt.NDArray[np.bool_]]]:
    """Yield families of integer products that there are, and which of the pieces belong to each."""
    for index, op in enumerate(work.ops):
        if op in FAMILIES:
            mine = work.op[chosen] == index
            if mine.any():
                yield op, mine


# Elements of the second factor up to which batched products were measured as such.
_PROBED_BATCHED = 512 * 64


# An element is read and written; the larger half of a second factor lies in no near cache.
_PACKED_BYTES, _LARGE_BYTES = 8.0, 1.6e7


def _pack_s(at: CpuCeilings) -> float:
    """Return seconds for an element of a second factor no constant: two cubes of the probes compared."""
    whole, packing = (
        at.of(f"{family}.float32.t{{T}}.m1024.n1024.k1024") for family in ("gemm", "gemm_dynamic")
    )
    if not whole or not packing:
        return 0.0
    # A few percent between the two probes, as disturbance makes, are as much as the packing itself.
    copied = 2.0 * _PACKED_BYTES / float(copy_rate(at, np.full(1, _LARGE_BYTES))[0])
    return float(min(max(0.0, 2.0 * 1024 * (1 / packing - 1 / whole)), copied))


def _rates(at: CpuCeilings, family: str, shapes: Floats) -> Floats:
    """FLOP/s of products by (m, n, k): measured neighbours in their logarithms, the near ones most."""
    near = _neighbours(at, family, shapes)
    if near is None:
        return np.full(len(shapes), 1e10)
    weight, _, rates = near
    return np.exp(weight @ rates)


def _neighbours(at: CpuCeilings, family: str, shapes: Floats) -> tuple[Floats, Floats, Floats] | None:
    """Of each shape the weights of the probes, which sum to 1; their logarithms (base 2) and those of rates."""
    points = tables(at.values).points(family, at.table)
    if points is None:
        points = tables(at.values).points("gemm.float32", at.table)
    if points is None:
        return None
    where, rates = points
    shapes = np.log2(np.maximum(shapes, 1.0))
    # Beyond the probes the nearest edge holds: rates level off there, a slope carried on would not.
    shapes = np.clip(shapes, where.min(axis=0), where.max(axis=0))
    distance = ((shapes[:, None, :] - where[None, :, :]) ** 2 * _AXES).sum(axis=2)
    # At a probe its own rate has almost all the weight; 0.02 keeps the division defined.
    weight = 1.0 / (distance + 0.02) ** 2
    return weight / weight.sum(axis=1, keepdims=True), where, rates


def probed_weights(work: Workload, weights: Floats, at: CpuCeilings) -> Floats:
    """Bytes of the weights that a product's rate was measured with: a long one's neighbours may have fewer."""
    probed = np.minimum(weights, LARGEST_PROBED_BYTES)
    chosen = np.flatnonzero((work.kind == Kind.MATMUL) & (weights > 0))
    if not chosen.size:
        return probed
    shapes, which = work.shapes
    families = [("float32", np.ones(len(chosen), dtype=np.bool_)), *integer_families(work, chosen)]
    elements = np.maximum(work["n"][chosen] * work["k"][chosen], 1.0)
    for name, mine in families:
        near = _neighbours(at, f"gemm.{name}", shapes)
        if near is not None:
            weight, where, _ = near
            sizes = np.exp2(weight @ where[:, 1:].sum(axis=1))[which[chosen]]
            share = np.minimum(1.0, sizes / elements)
            probed[chosen[mine]] = np.minimum(weights[chosen] * share, LARGEST_PROBED_BYTES)[mine]
    return probed


# Channels of a group that are too few for a product of their own; those of the probe of groups.
_FEW, _GROUPED = 4, 8.0


def convolution_seconds(work: Workload, chosen: npt.NDArray[np.int64], at: CpuCeilings) -> Floats:
    """Return seconds of the arithmetic of the pieces that ``chosen`` names."""
    taps, stride, batch = (work[name][chosen] for name in ("taps", "stride", "batch"))
    channels = work["k"][chosen] / np.maximum(taps, 1.0)
    thin = work.kind[chosen] == Kind.DEPTHWISE
    positions = work["spatial"][chosen]
    sequence, volume, flat, deep = (
        whether(work, (op,))[work.op[chosen]] for op in ("Conv1d", "Conv3d", "ConvTranspose", TRANSPOSED_VOLUME)
    )
    transposed = flat | deep
    classes = (
        (sequence & thin, "depthwise1d"),
        (volume & thin, "depthwise3d"),
        (volume & (taps > 1), "conv3d"),
        (sequence & (taps > 1) & (batch <= 1) & (channels > _FEW), "conv1d"),
        (transposed, "1x1"),
        (thin & (taps > 16), "depthwise5x5"),
        (thin & (stride > 1), "depthwise3x3s2"),
        (thin, "depthwise3x3"),
        (batch > 1, "group32"),
        ((channels <= _FEW) & (taps > 16), "stem7x7s2"),
        (channels <= _FEW, "stem3x3s2"),
        (taps == 1, "1x1"),
        (taps > 16, "5x5"),
        (stride > 1, "3x3s2"),
    )
    names = np.select([mask for mask, _ in classes], [name for _, name in classes], default="3x3")
    small = np.isin(names, ("3x3", "1x1", "3x3s2")) & (positions <= 150)
    names = np.where(small, np.where(names == "1x1", "1x1small", "3x3small"), names)
    # A class that an older calibration did not measure takes the rate of plain 3x3.
    known = {name: at.of(f"conv.float32.t{{T}}.{name}") for name in np.unique(names).tolist()}
    general = at.of("conv.float32.t{T}.3x3") or 1e10
    rate = np.array([known[name] or general for name in names.tolist()]) * at.scale
    # Groups of whole blocks of channels are computed in blocks, others the better the more channels they have.
    full = np.where(sequence, at.of("conv.float32.t{T}.conv1d") or general, general) * at.scale
    blocked = ~(sequence | volume | transposed) & (channels % _BLOCK == 0) & (work["n"][chosen] % _BLOCK == 0)
    nearer = np.where(
        blocked | volume, 1.0, np.clip(np.log2(np.maximum(channels, 1.0) / _GROUPED) / 3.0, 0.0, 1.0)
    )
    rate = np.where(names == "group32", rate ** (1.0 - nearer) * full**nearer, rate)
    integers = np.zeros(len(chosen), dtype=np.bool_)
    for family, mine in integer_families(work, chosen):
        integers |= mine
        rate = np.where(mine, _integer_rates(at, family, names, rate), rate)
    if integers.any():
        shapes = IntegerShapes(lambda name: at.of(f"conv.u8s8.t{{T}}.{name}"))
        slower = shapes.factors(names, work["n"][chosen], work["k"][chosen], taps)
        rate = np.where(integers, rate / slower, rate)
    # Channels are computed in blocks; the rims of small images cost depthwise convolutions more.
    filled = _blocks(work["n"][chosen]) * np.where(channels > _BLOCK / 2, _blocks(channels), 1.0)
    # Images alone are: sequences, volumes and transposed convolutions become products.
    image = ~(sequence | volume | transposed)
    padded = np.where((batch == 1) & ~thin & ~integers & image, filled, 1.0)
    rim = np.where(thin & ~integers & image, _rim(np.sqrt(np.maximum(positions, 1.0))), 1.0)
    seconds: Floats = work["flops"][chosen] * padded * rim / rate

    def each(name: str) -> float:
        return loops()[name].element_s * tables(at.values).pace / (at.threads if loops()[name].shared else 1)

    # The product of a transposed convolution has a column for each tap, which are then added up. Columns of
    # volumes are gathered one after the other, which a group has few filters for.
    rows = batch * work["m"][chosen]
    added = np.where(deep, each("Col2ImSumsOfVolumes"), each("Col2ImSums")) * rows * work["n"][chosen]
    seconds += np.where(transposed, added + np.where(batch > 1, batch * each("GroupOfColumns"), 0.0), 0.0)
    gathered = volume & (batch > 1) & ~thin
    gathered |= sequence & (taps > 1) & ~thin & (channels <= _FEW)
    seconds += np.where(gathered, rows * work["k"][chosen] * each("Im2ColOfVolumes"), 0.0)
    # Images are gathered likewise where nothing is blocked: filters that are fed, several of one channel.
    fed = (work["weights"][chosen] <= 0) & ~thin & (taps > 1)
    gathered = image & ~integers & (fed | (thin & (work["n"][chosen] > 1)))
    seconds += np.where(gathered, rows * work["k"][chosen] * each("Im2ColOfImages"), 0.0)
    return seconds


def _integer_rates(at: CpuCeilings, family: str, names: npt.NDArray[np.str_], floats: Floats) -> Floats:
    """Rates of convolutions on integers by class, from those of floats where they were not measured."""
    gain = _ratio(at, "conv.u8s8.t{T}.3x3", "conv.float32.t{T}.3x3")
    # Weights without a sign have kernels of their own, measured for a few classes.
    slower = _ratio(at, "conv.u8u8.t{T}.3x3", "conv.u8s8.t{T}.3x3")
    rates: dict[str, float] = {}
    for name in np.unique(names).tolist():
        signed = (at.of(f"conv.u8s8.t{{T}}.{name}") or 0.0) * at.scale
        own = (at.of(f"conv.u8u8.t{{T}}.{name}") or 0.0) * at.scale
        rates[name] = (own or signed * slower) if family == "u8u8" else signed
    known = np.array([rates[name] for name in names.tolist()])
    return np.asarray(np.where(known > 0, known, floats * gain), dtype=np.float64)


def _ratio(at: CpuCeilings, one: str, other: str) -> float:
    first, second = at.of(one), at.of(other)
    return first / second if first and second else 1.0


# Channels of a block in ONNX Runtime's NCHWc layout with AVX-512; the side of the depthwise probe's image.
_BLOCK, _PROBE_SIDE, _RIM = 16.0, 56.0, 6.0


def _blocks(channels: Floats) -> Floats:
    """Return channels rounded up to whole blocks, over the channels."""
    return np.ceil(np.maximum(channels, 1.0) / _BLOCK) * _BLOCK / np.maximum(channels, 1.0)


_FAR_PLANES = (14.0, 56.0)


def plane_factors(work: Workload, at: CpuCeilings) -> Floats:
    """Return how much longer than copies depthwise convolutions take for their bytes, by the side of a plane.

    A plane is walked on its own, and small ones end before what is read ahead pays off. Two probes tell, whose
    data the caches do not keep; between them the logarithm of the side counts.
    """
    thin = work.kind == Kind.DEPTHWISE
    rates = [at.of(f"conv.float32.t{{T}}.depthwise3x3far{side:.0f}") for side in _FAR_PLANES]
    near = at.of("conv.float32.t{T}.depthwise3x3")
    if near is None or None in rates or not thin.any():
        return np.ones(len(work.kind))
    # A probe's seconds by its bytes: 18 operations and two passes of 4 bytes an element.
    beyond = [
        (18.0 / rate - 18.0 / near * float(_rim(np.float64(side)))) * copy_rate(at, np.full(1, 1.5e8))[0] / 8.0
        for rate, side in zip(rates, _FAR_PLANES, strict=True)
        if rate is not None
    ]
    sides = np.log(np.sqrt(np.maximum(work["spatial"], 1.0)))
    factors = np.interp(sides, np.log(_FAR_PLANES), np.maximum(1.0, beyond))
    return np.where(thin & (work["stride"] <= 1), factors, 1.0)


def _rim(side: Floats | np.float64) -> Floats | np.float64:
    """Return how much longer a depthwise convolution takes for a plane's rims than at the probe's size."""
    return (1 + _RIM / side) / (1 + _RIM / _PROBE_SIDE)
