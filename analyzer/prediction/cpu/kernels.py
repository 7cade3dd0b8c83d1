"""Operator times on a CPU and their errors: how long each piece computes and waits for memory.

They cost their time per element; whether the copy of their bytes takes longer is for ``kernels`` to say.

Elementwise operators cost their time per element or the copy of their bytes, whichever is longer; weights that
the caches cannot keep are read from memory at each run.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from analyzer.arrays import Bools, Floats
from analyzer.prediction.attention_pieces import EXPERT_PRODUCT
from analyzer.prediction.cpu.ceilings import PARALLEL_S, CpuCeilings, copy_rate, read_rate, tables
from analyzer.prediction.cpu.products import (
    LARGEST_PROBED_BYTES,
    convolution_seconds,
    plane_factors,
    probed_weights,
    product_seconds,
)
from analyzer.prediction.features import LOOP, LOOP_WIDTH, SCAN
from analyzer.prediction.irregular_pieces import FAMILIES, ROW_UNPACKED, UNPACKED
from analyzer.prediction.loop_variants import DOUBLE, FIRST_AXIS, ONE_SET, ONE_SET_TIMES
from analyzer.prediction.reference_core import gain, least_width, like, loop_rows, loops, rows_like
from analyzer.prediction.work_item import FLOAT_BYTES, IS_PRODUCT, Kind, among
from analyzer.prediction.workload import Workload, whether

_SURELY_PARALLEL_S = 20 * PARALLEL_S
# Seconds an element where not even an Add was measured.
_NO_OP = 1.5e-10
# A slice of a reduction over a middle axis, a small kernel (as measured).
_SLICE_S, _KERNEL_S = 70e-9, 2e-7
# Whose rows those of other operators are taken for, by kind where `rows_like` names none.
_ROWS_OF_KIND = {
    Kind.SOFTMAX: "Softmax",
    Kind.NORM: "LayerNormalization",
    Kind.REDUCE: "ReduceSum",
    Kind.MOVE: "Gather",
}
# A row to which another is added, its elements apart.
_SPAN_S = 2e-8
# One more tensor of a Split or Concat: 0.1 us again and again, two to three times that among other operators.
_TENSOR_S = 2e-7
# One more operand of a Sum, Max, Min or Mean, its elements apart: each pair has a tensor of its own.
_PAIR_S = 2.5e-7


def vector_seconds(work: Workload, chosen: npt.NDArray[np.int64], at: CpuCeilings) -> Floats:
    """Return elements times the time of one, on as many threads as the operator uses."""
    one = np.array([_element_s(op, at, 1) for op in work.ops])[work.op[chosen]]
    many = np.array([_element_s(op, at, at.table) for op in work.ops])[work.op[chosen]]
    # A vectorised loop takes as long as its bytes, one of an element after the other does not.
    vectorised = one < _VECTORISED_S * tables(at.values).pace
    vectorised |= np.array([op.startswith(_BLOCKS) for op in work.ops])[work.op[chosen]]
    wider = np.where(vectorised, work["width"][chosen], 1.0)
    one, many = one * wider, many * wider
    amount = work["elements"][chosen] * np.where(work.kind[chosen] == Kind.POOL, work["taps"][chosen], 1.0)
    kind = work.kind[chosen]
    rows = np.select([kind == which for which in _ROWS_OF_KIND], [work["rows"][chosen]] * len(_ROWS_OF_KIND))
    row_one, row_many = (_row_times(work, chosen, at, threads) for threads in (1, at.table))
    spans = np.where(kind == Kind.VECTOR, work["rows"][chosen] - 1.0, 0.0)
    more = work["batch"][chosen] - 1.0
    each = [(Kind.REDUCE, _SLICE_S), (Kind.MOVE, _TENSOR_S), (Kind.VECTOR, _PAIR_S)]
    slices = np.select([kind == which for which, _ in each], [cost * more for _, cost in each])
    alone = amount * one + rows * row_one + slices + _KERNEL_S + spans * _span_s(at, 1)
    # Tensors come one after the other, however many threads share each.
    serial = np.where(kind == Kind.REDUCE, 0.0, slices)
    shared = rows * row_many + spans * _span_s(at, at.table)
    together = (amount * many + shared) / at.scale + serial
    # What ran on one thread at the size of the probe uses more when it is much larger; but what was long enough
    # for threads, and still ran on one, does so at any size.
    grows = (amount > 4 * _PROBE) & (one * _PROBE < _SURELY_PARALLEL_S)
    grows &= ~np.array([is_serial(op) for op in work.ops])[work.op[chosen]]
    together = np.where(grows, np.minimum(together, 1.15 * alone / at.threads), together)
    seconds: Floats = alone if at.modelled else np.where(alone < PARALLEL_S, alone, np.minimum(alone, together))
    return seconds


# Seconds an element, on the core of the loops that no calibration probes, below which a loop is vectorised.
_VECTORISED_S = 6e-10
# Transposes of matrices move blocks of registers, as many elements as fit.
_BLOCKS = ("TransposeMatrix", "TransposeNHWC")
# Weights in blocks are dequantised in one loop, however many there are (1.31.1, 4 million: no faster on two).
_ON_ONE_THREAD = ("DequantizePacked", "DequantizeBlocks")


def is_serial(op: str) -> bool:
    """Return whether a loop runs on one thread, however many there are."""
    return op in _ON_ONE_THREAD or (op in loops() and not loops()[op].shared)


# Elements of a row of the probe of short rows.
_SHORT_ROW = 32


def _span_s(at: CpuCeilings, threads: int) -> float:
    """Return seconds of one more row in an operator that repeats an operand along it, its elements apart."""
    row, each = at.of("elementwise.AddShortRows.t{T}", threads), at.of("elementwise.AddBias.t{T}", threads)
    return _SPAN_S if row is None else max(0.0, row - _SHORT_ROW * (each or 0.0))


def _row_times(work: Workload, chosen: npt.NDArray[np.int64], at: CpuCeilings, threads: int) -> Floats:
    """Return seconds that each piece takes for a row, or for a run that it copies, its elements apart."""
    kinds, lengths = work.kind[chosen], work["row"][chosen]
    times = np.zeros(len(chosen))
    for kind, name in _ROWS_OF_KIND.items():
        for index in np.unique(work.op[chosen][kinds == kind]).tolist():
            mine = (kinds == kind) & (work.op[chosen] == index)
            same_rows = rows_like().get(work.ops[index], name)
            for same, one in ((lengths != 1, same_rows), (lengths == 1, f"{same_rows}Singles")):
                known = one if one in loop_rows() else same_rows
                times[mine & same] = _row_s(known, work.ops[index], at, threads, lengths[mine & same])
    return times


def _row_s(name: str, op: str, at: CpuCeilings, threads: int, lengths: Floats) -> Floats:
    row, each = at.of(f"row.{name}.t{{T}}", threads), _element_s(op, at, threads)
    if row is None:
        each_row = loop_rows().get(name, loop_rows()["ReduceSum"]) * tables(at.values).pace
        return np.full(len(lengths), each_row / (1 if is_serial(op) else threads))
    if name in _CHAINED:
        return _chained_row_s(row, each, lengths)
    # The probe's row has the probe's elements, whatever the operator's take; fewer take half of it at least.
    each = min(each, _element_s(name.removesuffix("Singles"), at, threads))
    rest = row - _ROW_LENGTHS.get(name, _SHORT_LENGTH) * each
    return np.maximum(rest, 0.5 * row - lengths * each)


# Their long rows wait for each sum, short ones do not: the logarithm between the two probes is within 1.5 of
# what ONNX Runtime 1.31 takes for rows of 4 to 1,024 (ReduceL1, ReduceL2, ArgMax; 1.7 for ReduceSumSquare).
_CHAINED = ("ReduceL2", "ArgMax")
_LONG_LENGTH = 1024
# Of a short row's time, whatever its length.
_ROW_SHARE = 0.6


def _chained_row_s(row: float, each: float, lengths: Floats) -> Floats:
    """Return seconds of a row besides ``each`` for its elements, between short rows and long."""
    known = (math.log(_SHORT_LENGTH), math.log(_LONG_LENGTH))
    element = np.interp(np.log(np.maximum(lengths, 1.0)), known, (row / _SHORT_LENGTH, each))
    shorter = row * (_ROW_SHARE + (1.0 - _ROW_SHARE) * lengths / _SHORT_LENGTH)
    return np.where(lengths < _SHORT_LENGTH, shorter, lengths * element) - lengths * each


# Elements of a row of the probes of short rows, and of a run that they copy.
_SHORT_LENGTH = 8
_ROW_LENGTHS = {"Gather": 1, "Concat": 2, "ConcatSingles": 1}


_PROBE = 256 * 1024
_FAMILIES = ("elementwise.{}.t{{T}}", "move.{}.t{{T}}", "reduce.{}.t{{T}}.inner", "pool.{}.t{{T}}")


def _element_s(op: str, at: CpuCeilings, threads: int) -> float:
    """Return seconds an element of an operator, looked up once for each calibration."""
    known = tables(at.values).elements
    if (op, threads) not in known:
        known[op, threads] = _lookup_element_s(op, at, threads)
    return known[op, threads]


def is_guess(op: str, at: CpuCeilings) -> bool:
    """Return whether no operator with the same loop was ever measured: it is taken for an Add."""
    known = tables(at.values).guesses
    if op not in known:
        probed = any(_probed_s(name, at, 1) is not None for name in (op, like().get(op, op)))
        known[op] = not probed and op not in loops()
    return known[op]


def _probed_s(op: str, at: CpuCeilings, threads: int) -> float | None:
    if op.endswith(ONE_SET):
        result = _probed_s(op.removesuffix(ONE_SET), at, threads)
        return None if result is None else ONE_SET_TIMES * result
    if op.endswith(FIRST_AXIS):
        return at.of(f"reduce.{op.removesuffix(FIRST_AXIS)}.t{{T}}.outer", threads)
    values = (at.of(family.format(op), threads) for family in _FAMILIES)
    return next((value for value in values if value is not None), None)


def _lookup_element_s(op: str, at: CpuCeilings, threads: int) -> float:
    for name in (op, like().get(op, op)):
        value = _probed_s(name, at, threads)
        if value is not None:
            return value
    if op in loops():
        return loops()[op].element_s * tables(at.values).pace / (threads if loops()[op].shared else 1)
    value = at.of("elementwise.Add.t{T}", threads)
    return _NO_OP if value is None else value


# Trees on a CPU: comparisons, one after the other.
# Seconds of a visit to a tree's node; one thread, scattered reads.
_TREE_VISIT_S = 4e-9
# A tree is walked by all rows before the next. Beyond the probe's 127 nodes a step is a little dearer for each
# doubling, and much from where one does not stay in the first cache (nodes of 24 bytes, half of 64 KiB): of 48
# trained ensembles those of 200 to 850 nodes take 1.1 to 1.4 times as long, of 2,800 to 12,000 1.7 to 5 times
# (an EPYC with 1 MiB beside each core, its last cache shared with other guests).
_TREE_NODES, _TREE_GROWTH = (127.0, 1365.0), (0.15, 0.4)


def tree_seconds(work: Workload, chosen: npt.NDArray[np.int64], at: CpuCeilings) -> Floats:
    """Return seconds of the ensembles that ``chosen`` names."""
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
    """Return seconds of all steps of the pieces that ``chosen`` names."""
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
    """Return seconds of each piece, and whether computing (not memory) limits it."""
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
    """Return seconds of arithmetic of each piece, on the threads that take part."""
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
    """Return which pieces fewer threads can share than there are."""
    return np.asarray((work["shared_by"] > 0) & (work["shared_by"] < at.threads))


def _memory(work: Workload, at: CpuCeilings) -> Floats:
    """Return seconds that each piece's bytes take."""
    each = at.precision.element_bytes / FLOAT_BYTES
    held = np.array([_TEMPORARIES.get(op, 0.0) for op in work.ops])[work.op]
    moved = (work["read"] + work["written"]) * each + work["fixed"]
    moved += held * work["elements"] * FLOAT_BYTES * np.where(work["written"] > 0, each, work["width"])
    weights = (work["weights"] * each + work["fixed_weights"]) * IS_PRODUCT[work.kind]
    # The probe of copies finds its two buffers where it left them. In a graph others were used meanwhile.
    resident = work["kept"] * each
    # Of experts those that are chosen are read, and all have weights.
    passing = np.maximum(0.0, moved - weights - resident)
    streaming = passing / copy_rate(at, _OTHERS * passing) * plane_factors(work, at)
    # Caches of keys and values lie where the last run left them, and all of the model passed since.
    others = np.maximum(1.0, work.of_model(weights + resident))
    held_rate = copy_rate(at, others)
    few = _shared_by_few(work, at)
    if few.any():
        # Each thread streams its own part.
        by_few = copy_rate(at, others, threads=1) * np.maximum(work["shared_by"], 1.0)
        held_rate = np.where(few, np.minimum(held_rate, by_few), held_rate)
    one_row = whether(work, (EXPERT_PRODUCT,))[work.op] & (work["m"] <= 1.0)
    streaming += resident / np.where(one_row, held_rate * _EXPERT_READ_SHARE, held_rate)
    return np.asarray(streaming + _cold(work, weights, at))


def _cold(work: Workload, weights: Floats, at: CpuCeilings) -> Floats:
    """Return seconds that weights take longer than a probe's, which lie in the nearest cache that holds them.

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
    """Return which pieces are one row times 4-bit weights that become floats."""
    return np.asarray(whether(work, (ROW_UNPACKED,))[work.op] & (work["m"] <= 1.0))


def _by_few(work: Workload, computing: Floats, at: CpuCeilings) -> Floats:
    """Return computing times on a calibrated CPU, with as many threads as can share a piece."""
    useful = np.maximum(work["shared_by"], 1.0)
    seconds = computing * at.threads / useful
    chosen = np.flatnonzero((work["shared_by"] > 0) & IS_PRODUCT[work.kind])
    # Several threads at one product are not what one does, times their number.
    seconds[chosen] = product_seconds(work, chosen, replace(at, threads=1, table=1, scale=1.0)) / useful[chosen]
    return seconds


def _read_share(at: CpuCeilings) -> float:
    """Return the share of a copy's rate that reading alone reaches, by one row times 64 MB of weights."""
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


_WITH_BODIES = frozenset({"Loop", "Scan", "SequenceMap", LOOP, SCAN})
_CLASSICAL = frozenset({"Scaler", "Imputer", "Binarizer", "OneHotEncoder", "ZipMap", "ArrayFeatureExtractor"})
# 42 quantised and 20 classical models on two threads and on one of an EPYC (benchmarks/deployed.md): 11 %
# to 14 % off at the median; 117 of 124 within this width of what was measured.
_LESS_SURE = 1.15
# One row times packed weights on several threads: in a probe a second thread gained up to 2.0, among a step's
# other operators 1.2 to 1.7. Six int4 steps on two cores of an EPYC were told at 0.58 to 1.01 of what they took
# in runs of three days (benchmarks/generation.md).
_ROW_ON_THREADS = 1.25
# A CPU of the catalogue: what does not multiply follows neither peak nor clock as closely; one operator of ours
# is as far off as a whole model of which it is a part is not.
_UNSCALED = 1.25
# 14 of 20 small products of integers on a Xeon with AMX lay up to 3.3 times above, the rest within 2.
_INTEGERS_MODELLED = 1.6


# Operators that had no time of their own took 0.5 to 300 times an Add's for an element, most of them 2 to 25
# times (benchmarks/operators_cpu.py: normalizations, transforms, functions of the C library).
_GUESSED = 5.0
# What has a time for each element, or for each row of them.
_BY_ELEMENT = (Kind.VECTOR, Kind.REDUCE, Kind.NORM, Kind.SOFTMAX, Kind.MOVE, Kind.POOL)


def cpu_widths(work: Workload, at: CpuCeilings) -> Floats:
    """Half-width of each piece's 90 % interval, as a factor."""
    if not work.ops:
        return work["spread"]
    less_sure = np.array([op in FAMILIES or _is_classical(op) for op in work.ops])[work.op]
    less_sure |= work.kind == Kind.TREE
    known = np.where(less_sure, at.width * _LESS_SURE, at.width)
    if at.threads > 1:
        packed = np.array([op.startswith("nbits") for op in work.ops])[work.op]
        one_row = packed & (work.kind == Kind.MATMUL) & (work["m"] <= 1.0)
        known = np.where(one_row, known * _ROW_ON_THREADS, known)
    least = np.array([least_width(op) for op in work.ops])[work.op]
    known = np.maximum(known, least)
    guessed = np.array([is_guess(op, at) for op in work.ops])[work.op]
    known = np.where(guessed & np.isin(work.kind, _BY_ELEMENT), np.maximum(known, _GUESSED), known)
    if at.modelled:
        # What AMX gains depends on how full its tiles are: a sheet's peak says little of a small product.
        integers = np.array([op in FAMILIES for op in work.ops], dtype=np.bool_)[work.op]
        known = np.where(integers & IS_PRODUCT[work.kind], known * _INTEGERS_MODELLED, known)
        known = np.where(IS_PRODUCT[work.kind], known, known * _UNSCALED)
    # Loops' bodies are counted, but not how often their small kernels are called.
    return np.maximum(np.where(whether(work, _WITH_BODIES)[work.op], LOOP_WIDTH, known), work["spread"])


def _is_classical(op: str) -> bool:
    return op.startswith(("SVM", "Normalizer", "LabelEncoder", "Linear")) or op in _CLASSICAL
