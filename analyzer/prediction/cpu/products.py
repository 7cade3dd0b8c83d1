"""Matrix products on a CPU: looked up by shape among those that were measured."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from analyzer.arrays import Floats
from analyzer.prediction.calibration_tables import tables
from analyzer.prediction.cpu.ceilings import CpuCeilings, copy_rate
from analyzer.prediction.integer_kernels import FAMILIES
from analyzer.prediction.reference_core import loop_rows, loops
from analyzer.prediction.work_item import Kind
from analyzer.prediction.workload import Workload, whether

_RECURRENT = ("LSTM", "GRU", "RNN")
# Steps of the probes of recurrences (measurement/ceilings/probes.toml).
_PROBED_STEPS = 16.0
# Bytes of the largest probe's weights.
LARGEST_PROBED_BYTES = 4.0 * 4096**2
# Rows matter most: they decide whether weights are used once or often.
_AXES = np.array([2.0, 0.5, 0.5])


def product_seconds(work: Workload, chosen: npt.NDArray[np.int64], at: CpuCeilings) -> Floats:
    """Seconds of the arithmetic of the pieces that ``chosen`` names, and of packing what is computed."""
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
    recurrent = whether(work, _RECURRENT)[work.op[chosen]]
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
    """Families of integer products that there are, and which of the pieces belong to each."""
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
    """Seconds for an element of a second factor that is no constant: two cubes of the probes compared."""
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
