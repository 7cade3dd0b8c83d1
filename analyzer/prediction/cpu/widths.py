"""How sure the times of operators on a CPU are."""

from __future__ import annotations

import numpy as np

from analyzer.arrays import Floats
from analyzer.prediction.cpu.ceilings import CpuCeilings
from analyzer.prediction.cpu.vectors import is_guess
from analyzer.prediction.features import LOOP, LOOP_WIDTH, SCAN
from analyzer.prediction.integer_kernels import FAMILIES
from analyzer.prediction.reference_core import least_width
from analyzer.prediction.work_item import IS_PRODUCT, Kind
from analyzer.prediction.workload import Workload, whether

_WITH_BODIES = frozenset({"Loop", "Scan", "SequenceMap", LOOP, SCAN})
_CLASSICAL = frozenset({"Scaler", "Imputer", "Binarizer", "OneHotEncoder", "ZipMap", "ArrayFeatureExtractor"})
# 42 quantised and 20 classical models on two threads and on one of an EPYC (tests/benchmarks/deployed.md): 11 %
# to 14 % off at the median; 117 of 124 within this width of what was measured.
_LESS_SURE = 1.15
# One row times packed weights on several threads: in a probe a second thread gained up to 2.0, among a step's
# other operators 1.2 to 1.7. Six int4 steps on two cores of an EPYC were told at 0.58 to 1.01 of what they took
# in runs of three days (tests/benchmarks/generation.md).
_ROW_ON_THREADS = 1.25
# A CPU of the catalogue: what does not multiply follows neither peak nor clock as closely; one operator of ours
# is as far off as a whole model of which it is a part is not.
_UNSCALED = 1.25
# 14 of 20 small products of integers on a Xeon with AMX lay up to 3.3 times above, the rest within 2.
_INTEGERS_MODELLED = 1.6


# Operators that had no time of their own took 0.5 to 300 times an Add's for an element, most of them 2 to 25
# times (tests/benchmarks/operators_cpu.py: normalizations, transforms, functions of the C library).
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
