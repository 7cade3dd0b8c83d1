"""Operator times on a CPU: how long each piece computes, and how long it waits for memory.

Elementwise operators cost their time per element or the copy of their bytes, whichever is longer; weights that
the caches cannot keep are read from memory at each run.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from analyzer.arrays import Bools, Floats
from analyzer.prediction.calibration_tables import tables
from analyzer.prediction.cpu.ceilings import PARALLEL_S, CpuCeilings, copy_rate, read_rate
from analyzer.prediction.cpu.convolutions import convolution_seconds, plane_factors
from analyzer.prediction.cpu.products import LARGEST_PROBED_BYTES, probed_weights, product_seconds
from analyzer.prediction.cpu.vectors import is_serial, vector_seconds
from analyzer.prediction.expert_pieces import EXPERT_PRODUCT
from analyzer.prediction.integer_kernels import ROW_UNPACKED, UNPACKED
from analyzer.prediction.loop_variants import DOUBLE
from analyzer.prediction.reference_core import gain
from analyzer.prediction.work_item import FLOAT_BYTES, IS_PRODUCT, Kind, among
from analyzer.prediction.workload import Workload, whether

# Trees on a CPU: comparisons, one after the other.
# Seconds of a visit to a tree's node; one thread, scattered reads.
_TREE_VISIT_S = 4e-9
# A tree is walked by all rows before the next. Beyond the probe's 127 nodes a step is a little dearer for each
# doubling, and much from where one does not stay in the first cache (nodes of 24 bytes, half of 64 KiB): of 48
# trained ensembles those of 200 to 850 nodes take 1.1 to 1.4 times as long, of 2,800 to 12,000 1.7 to 5 times
# (an EPYC with 1 MiB beside each core, its last cache shared with other guests).
_TREE_NODES, _TREE_GROWTH = (127.0, 1365.0), (0.15, 0.4)


def tree_seconds(work: Workload, chosen: npt.NDArray[np.int64], at: CpuCeilings) -> Floats:
    """Seconds of the ensembles that ``chosen`` names."""
    nodes, (probed, cached) = work["n"][chosen], _TREE_NODES
    doublings = np.log2(np.clip(nodes, probed, cached) / probed), np.log2(np.maximum(nodes / cached, 1.0))
    far = 1.0 + sum(growth * each for growth, each in zip(_TREE_GROWTH, doublings, strict=True))
    steps = work["flops"][chosen]
    one, many = _step_of_tree(at, 1, steps), _step_of_tree(at, at.table, steps)
    alone: Floats = steps * far * (_TREE_VISIT_S if one is None else one)
    if at.modelled:
        return alone
    if many is not None:
        return steps * far * many / at.scale
    useful = np.minimum(at.threads, np.maximum(work["m"][chosen], 1.0))
    return np.where(alone < PARALLEL_S, alone, alone / useful)


def _step_of_tree(at: CpuCeilings, threads: int, steps: Floats) -> Floats | None:
    """Seconds of a comparison by how many there are: the processor learns the branches of a few by heart."""
    points = tables(at.values).trees(threads)
    if points is None:
        return None
    order = np.argsort(points[0][:, 0])
    measured, times = points[0][order, 0], points[1][order]
    return np.exp(np.interp(np.log2(np.maximum(steps, 1.0)), measured, times))


# Steps of a recurrence on a CPU, one after the other.
def recurrence_seconds(work: Workload, chosen: npt.NDArray[np.int64], at: CpuCeilings) -> Floats:
    """Seconds of all steps of the pieces that ``chosen`` names."""
    steps, rows, gates, hidden = (work[name][chosen] for name in ("steps", "m", "n", "k"))
    seconds = np.zeros(len(chosen))
    for index, op in enumerate(work.ops):
        mine = work.op[chosen] == index
        if mine.any():
            each = _step_s(at, op, hidden[mine], rows[mine], gates[mine])
            seconds[mine] = steps[mine] * each
    return seconds


def _step_s(at: CpuCeilings, op: str, hidden: Floats, rows: Floats, gates: Floats) -> Floats:
    points = tables(at.values).steps(op, at.table)
    # A step of a recurrence: input and state, each 2 operations a weight, as the probe counts them.
    flops = 4.0 * rows * gates * hidden
    if points is None:
        return flops / (at.of("gemm.float32.t{T}.m1.n1024.k1024") or 1e10)
    measured, rates = points
    sizes = np.log2(np.maximum(np.stack([hidden, rows], axis=1), 1.0))
    shapes = np.clip(sizes, measured.min(axis=0), measured.max(axis=0))
    distance = ((shapes[:, None, :] - measured[None, :, :]) ** 2).sum(axis=2)
    weight = 1.0 / (distance + 0.02) ** 2
    seconds: Floats = flops / np.exp((weight * rates).sum(axis=1) / weight.sum(axis=1))
    return seconds


# Reading alone reaches this share of a copy's rate (both ways counted): MatMul of one row, weights of 64 MB.
# Twice that rate at most, since half of a copy is writing.
_READ_SHARE, _MOST_READ = 0.65, 2.0
# One row times an expert's weights, which lie by rows and are packed by nobody, reads them at this share of it:
# mixtures of 50 to 300 MB took 1.2 to 1.5 times as long as at the whole rate, on one thread and on two.
_EXPERT_READ_SHARE = 0.75
# One row times 4-bit weights that become floats takes columns of blocks side by side, whose bytes lie apart:
# beyond a cache they cost this many times what weights in order cost (1024 x 1024 each, 16 to 63 MB of them on
# an EPYC: 2.4 to 2.7 times on one thread, 2.0 to 2.8 on two).
_STRIDED_READ = 2.5
# What passes the caches before a buffer is used again, in multiples of what an operator moves.
_OTHERS = 2.0
# Kernels that write what they then read again, in multiples of their result: Where selects from either side
# into a tensor of its own and merges the two (onnxruntime/core/providers/cpu/tensor/where_op.cc).
_TEMPORARIES = {"Where": 4.0}


def piece_times(work: Workload, at: CpuCeilings) -> tuple[Floats, Bools]:
    """Seconds of each piece, and whether computing (not memory) limits it."""
    product = IS_PRODUCT[work.kind]
    computing, memory = _computing(work, at), _memory(work, at)
    # A product's traffic adds to its arithmetic: blocks are packed, computed and written in turn. Half of a 1x1
    # convolution's hides behind it (from memory, 16 to 96 channels: 5.0 ms and 11.1 ms, together 13.6 ms).
    pointwise = (work.kind == Kind.CONV) & (work["taps"] == 1)
    hidden = np.where(pointwise, 0.5 * np.minimum(computing, memory), 0.0)
    # Weights that are unpacked to floats are read ahead meanwhile, but not by the kernel of one row.
    unpacking = whether(work, UNPACKED)[work.op] & product & ~_unpacked_by_row(work)
    hidden = np.where(unpacking, np.minimum(computing, memory), hidden)
    times = np.where(product, computing + memory - hidden, np.maximum(computing, memory))
    return times * work["repeats"], computing > memory


def _computing(work: Workload, at: CpuCeilings) -> Floats:
    """Seconds of arithmetic of each piece, on the threads that take part."""
    computing = np.zeros(len(work.kind))
    for kinds, rule in _RULES:
        chosen = np.flatnonzero(kinds[work.kind])
        if chosen.size:
            computing[chosen] = rule(work, chosen, at)
    if at.precision.asked == "fp64":
        # Half as many elements fit a vector; there are no probes in fp64, but loops of its own.
        own = np.array([op.endswith(DOUBLE) for op in work.ops], dtype=np.bool_)
        computing = np.where(own[work.op], computing, computing * 2.0)
    if at.modelled:
        # Steps of a recurrence come one after the other: rows and directions alone are shared out. On two cores
        # an LSTM of one row gains 0.8 to 1.3 times one way and 1.3 to 2.0 both ways; of eight rows 1.9 to 2.0.
        shared = np.where(work.kind == Kind.RECURRENT, work["batch"] * work["m"], np.inf)
        serial = np.array([is_serial(op) for op in work.ops], dtype=np.bool_)
        shared = np.where(serial[work.op] & ~IS_PRODUCT[work.kind], 1.0, shared)
        shared = np.where(work["shared_by"] > 0, work["shared_by"], shared)
        return np.asarray(computing / np.minimum(gain(computing, at.threads), np.maximum(shared, 1.0)))
    few = _shared_by_few(work, at)
    return np.where(few, _by_few(work, computing, at), computing) if few.any() else computing


def _shared_by_few(work: Workload, at: CpuCeilings) -> Bools:
    """Which pieces fewer threads can share than there are."""
    return np.asarray((work["shared_by"] > 0) & (work["shared_by"] < at.threads))


def _memory(work: Workload, at: CpuCeilings) -> Floats:
    """Seconds that each piece's bytes take."""
    each = at.precision.element_bytes / FLOAT_BYTES
    held = np.array([_TEMPORARIES.get(op, 0.0) for op in work.ops])[work.op]
    moved = (work["read"] + work["written"]) * each + work["fixed"]
    moved += held * work["elements"] * FLOAT_BYTES * np.where(work["written"] > 0, each, work["width"])
    weights = (work["weights"] * each + work["fixed_weights"]) * IS_PRODUCT[work.kind]
    # The probe of copies finds its two buffers where it left them. In a graph others were used meanwhile.
    kept = work["kept"] * each
    # Of experts those that are chosen are read, and all have weights.
    passing = np.maximum(0.0, moved - weights - kept)
    streaming = passing / copy_rate(at, _OTHERS * passing) * plane_factors(work, at)
    # Caches of keys and values lie where the last run left them, and all of the model passed since.
    others = np.maximum(1.0, work.of_model(weights + kept))
    held_rate = copy_rate(at, others)
    few = _shared_by_few(work, at)
    if few.any():
        # Each thread streams its own part.
        by_few = copy_rate(at, others, threads=1) * np.maximum(work["shared_by"], 1.0)
        held_rate = np.where(few, np.minimum(held_rate, by_few), held_rate)
    one_row = whether(work, (EXPERT_PRODUCT,))[work.op] & (work["m"] <= 1.0)
    streaming += kept / np.where(one_row, held_rate * _EXPERT_READ_SHARE, held_rate)
    return np.asarray(streaming + _cold(work, weights, at))


def _cold(work: Workload, weights: Floats, at: CpuCeilings) -> Floats:
    """Seconds that weights take longer than a probe's, which lie in the nearest cache that holds them.

    A model's push each other out.
    """
    together, probed = np.maximum(1.0, work.of_model(weights)), probed_weights(work, weights, at)
    among, alone = read_rate(at, together), read_rate(at, probed)
    if among is None or alone is None:
        share = _read_share(at)
        among, alone = share * copy_rate(at, together), share * copy_rate(at, probed)
    times = np.where(_unpacked_by_row(work), _STRIDED_READ, 1.0)
    return np.asarray(np.maximum(0.0, weights / among - weights / alone) * times)


def _unpacked_by_row(work: Workload) -> Bools:
    """Which pieces are one row times 4-bit weights that become floats."""
    return np.asarray(whether(work, (ROW_UNPACKED,))[work.op] & (work["m"] <= 1.0))


def _by_few(work: Workload, computing: Floats, at: CpuCeilings) -> Floats:
    """Computing of all pieces where as many threads as can share a piece out take part, of a calibrated CPU."""
    useful = np.maximum(work["shared_by"], 1.0)
    seconds = computing * at.threads / useful
    chosen = np.flatnonzero((work["shared_by"] > 0) & IS_PRODUCT[work.kind])
    # Several threads at one product are not what one does, times their number.
    seconds[chosen] = product_seconds(work, chosen, replace(at, threads=1, table=1, scale=1.0)) / useful[chosen]
    return seconds


def _read_share(at: CpuCeilings) -> float:
    """What reading alone reaches of a copy's rate, by one row times 64 MB of weights where measured."""
    rate = at.of("gemm.float32.t{T}.m1.n4096.k4096")
    if rate is None or at.modelled:
        return _READ_SHARE
    # Two operations for four bytes of weights.
    share = 2.0 * rate * at.scale / float(copy_rate(at, np.full(1, LARGEST_PROBED_BYTES))[0])
    return float(np.clip(share, _READ_SHARE, _MOST_READ))


_RULES = (
    (among((Kind.VECTOR, Kind.REDUCE, Kind.NORM, Kind.SOFTMAX, Kind.MOVE, Kind.POOL)), vector_seconds),
    (among((Kind.MATMUL,)), product_seconds),
    (among((Kind.CONV, Kind.DEPTHWISE)), convolution_seconds),
    (among((Kind.RECURRENT,)), recurrence_seconds),
    (among((Kind.TREE,)), tree_seconds),
)
