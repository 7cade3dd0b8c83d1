"""Steps of a recurrence on a CPU, one after the other."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from analyzer.arrays import Floats
from analyzer.prediction.calibration_tables import tables
from analyzer.prediction.cpu.ceilings import CpuCeilings
from analyzer.prediction.workload import Workload


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
