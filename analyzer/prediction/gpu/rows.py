"""Columns of some pieces as a GPU in one precision sees them."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from analyzer.arrays import Floats
from analyzer.prediction.gpu.ceilings import GpuCeilings
from analyzer.prediction.work_item import FLOAT_BYTES, Kind
from analyzer.prediction.workload import Workload


class Rows:
    """The chosen pieces' columns; bytes already in the precision's width."""

    def __init__(self, work: Workload, chosen: npt.NDArray[np.int64], at: GpuCeilings) -> None:
        self._work, self._chosen = work, chosen
        self.scale = at.precision.element_bytes / FLOAT_BYTES
        self._own_bytes = at.precision.element_bytes

    def __getattr__(self, name: str) -> Floats:
        column: Floats = self._work.columns[name][self._chosen]
        return column

    @property
    def all_weights(self) -> float:
        """Bytes of all weights, of other pieces too: what passes the cache before they are read again."""
        return float(self._work["weights"].sum() * self.scale + self._work["fixed_weights"].sum())

    @property
    def all_caches(self) -> float:
        """Bytes of keys and values of all attentions, of other pieces too."""
        attends = self._work.kind == Kind.ATTENTION
        if not attends.any():
            return 0.0
        keys, heads, size = (self._work[name][attends] for name in ("n", "row", "k"))
        window = self._work["taps"][attends]
        keys = np.where(window > 0, np.minimum(keys, window), keys) + self._work["m"][attends]
        width = np.where(self._work["spatial"][attends] > 0, self._work["spatial"][attends], self._own_bytes)
        return float((2.0 * self._work["batch"][attends] * heads * keys * size * width).sum())

    @property
    def kernels(self) -> Floats:
        """Kernels that the group of each launches."""
        found: Floats = self._work.kernels[self._work.group[self._chosen]]
        return found

    @property
    def bytes(self) -> Floats:
        """Bytes that each moves."""
        moved: Floats = (self.read + self.written) * self.scale + self.fixed
        return moved
