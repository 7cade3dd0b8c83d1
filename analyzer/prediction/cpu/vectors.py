"""Operators on a CPU that do not multiply matrices: elements, rows, runs that are copied.

They cost their time per element; whether the copy of their bytes takes longer is for ``kernels`` to say.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from analyzer.arrays import Floats
from analyzer.prediction.calibration_tables import tables
from analyzer.prediction.cpu.ceilings import PARALLEL_S, CpuCeilings
from analyzer.prediction.loop_variants import FIRST_AXIS, ONE_SET, ONE_SET_TIMES
from analyzer.prediction.reference_core import like, loop_rows, loops, rows_like
from analyzer.prediction.work_item import Kind
from analyzer.prediction.workload import Workload

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
    """Elements times the time of one, on as many threads as the operator uses."""
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
    """Whether a loop runs on one thread, however many there are."""
    return op in _ON_ONE_THREAD or (op in loops() and not loops()[op].shared)


# Elements of a row of the probe of short rows.
_SHORT_ROW = 32


def _span_s(at: CpuCeilings, threads: int) -> float:
    """Seconds of one more row in an operator that repeats an operand along it, its elements apart."""
    row, each = at.of("elementwise.AddShortRows.t{T}", threads), at.of("elementwise.AddBias.t{T}", threads)
    return _SPAN_S if row is None else max(0.0, row - _SHORT_ROW * (each or 0.0))


def _row_times(work: Workload, chosen: npt.NDArray[np.int64], at: CpuCeilings, threads: int) -> Floats:
    """Seconds that each piece takes for a row, or for a run that it copies, its elements apart."""
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
    beside = row - _ROW_LENGTHS.get(name, _SHORT_LENGTH) * each
    return np.maximum(beside, 0.5 * row - lengths * each)


# Their long rows wait for each sum, short ones do not: the logarithm between the two probes is within 1.5 of
# what ONNX Runtime 1.31 takes for rows of 4 to 1,024 (ReduceL1, ReduceL2, ArgMax; 1.7 for ReduceSumSquare).
_CHAINED = ("ReduceL2", "ArgMax")
_LONG_LENGTH = 1024
# Of a short row's time, whatever its length.
_ROW_SHARE = 0.6


def _chained_row_s(row: float, each: float, lengths: Floats) -> Floats:
    """What a row takes besides ``each`` for its elements: the time of one goes over from short rows to long."""
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
    """Seconds an element of an operator, looked up once for each calibration."""
    known = tables(at.values).elements
    if (op, threads) not in known:
        known[op, threads] = _found_element_s(op, at, threads)
    return known[op, threads]


def is_guess(op: str, at: CpuCeilings) -> bool:
    """Whether neither the operator nor one with the same loop was ever measured: it is taken for an Add."""
    known = tables(at.values).guesses
    if op not in known:
        probed = any(_probed_s(name, at, 1) is not None for name in (op, like().get(op, op)))
        known[op] = not probed and op not in loops()
    return known[op]


def _probed_s(op: str, at: CpuCeilings, threads: int) -> float | None:
    if op.endswith(ONE_SET):
        found = _probed_s(op.removesuffix(ONE_SET), at, threads)
        return None if found is None else ONE_SET_TIMES * found
    if op.endswith(FIRST_AXIS):
        return at.of(f"reduce.{op.removesuffix(FIRST_AXIS)}.t{{T}}.outer", threads)
    values = (at.of(family.format(op), threads) for family in _FAMILIES)
    return next((value for value in values if value is not None), None)


def _found_element_s(op: str, at: CpuCeilings, threads: int) -> float:
    for name in (op, like().get(op, op)):
        value = _probed_s(name, at, threads)
        if value is not None:
            return value
    if op in loops():
        return loops()[op].element_s * tables(at.values).pace / (threads if loops()[op].shared else 1)
    value = at.of("elementwise.Add.t{T}", threads)
    return _NO_OP if value is None else value
