"""Trees on a CPU: comparisons, one after the other."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from analyzer.arrays import Floats
from analyzer.prediction.calibration_tables import tables
from analyzer.prediction.cpu.ceilings import PARALLEL_S, CpuCeilings
from analyzer.prediction.workload import Workload

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
        shared: Floats = steps * far * many / at.scale
        return shared
    useful = np.minimum(at.threads, np.maximum(work["m"][chosen], 1.0))
    seconds: Floats = np.where(alone < PARALLEL_S, alone, alone / useful)
    return seconds


def _step_of_tree(at: CpuCeilings, threads: int, steps: Floats) -> Floats | None:
    """Seconds of a comparison by how many there are: the processor learns the branches of a few by heart."""
    points = tables(at.values).trees(threads)
    if points is None:
        return None
    order = np.argsort(points[0][:, 0])
    measured, times = points[0][order, 0], points[1][order]
    seconds: Floats = np.exp(np.interp(np.log2(np.maximum(steps, 1.0)), measured, times))
    return seconds
