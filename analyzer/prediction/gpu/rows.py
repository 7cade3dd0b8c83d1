"""Columns of some pieces as a GPU in one precision sees them."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
import numpy.typing as npt

from analyzer.arrays import Bools, Floats
from analyzer.prediction.features import CHANNELS_LAST
from analyzer.prediction.gpu.ceilings import GpuCeilings
from analyzer.prediction.work_item import FLOAT_BYTES, Kind
from analyzer.prediction.workload import Workload, whether


class Rows:
    """The chosen pieces' columns; bytes already in the precision's width."""

    def __init__(self, work: Workload, chosen: npt.NDArray[np.int64], at: GpuCeilings) -> None:
        self._work, self._chosen = work, chosen
        self.scale = at.precision.element_bytes / FLOAT_BYTES
        self._own_bytes = at.precision.element_bytes

    def __getattr__(self, name: str) -> Floats:
        return self._work.columns[name][self._chosen]

    @property
    def all_weights(self) -> Floats:
        """Bytes of all weights of a piece's model: what passes the cache before they are read again."""
        stored = self._work["weights"] * self.scale + self._work["fixed_weights"]
        return self._work.of_model(stored)[self._chosen]

    @property
    def all_caches(self) -> Floats:
        """Bytes of keys and values of all attentions of a piece's model."""
        attends = self._work.kind == Kind.ATTENTION
        if not attends.any():
            return np.zeros(len(self._chosen))
        keys, heads, size = (self._work[name][attends] for name in ("n", "row", "k"))
        window = self._work["taps"][attends]
        keys = np.where(window > 0, np.minimum(keys, window), keys) + self._work["m"][attends]
        width = np.where(self._work["spatial"][attends] > 0, self._work["spatial"][attends], self._own_bytes)
        held = np.zeros(len(self._work.kind))
        held[attends] = 2.0 * self._work["batch"][attends] * heads * keys * size * width
        return self._work.of_model(held)[self._chosen]

    @property
    def kernels(self) -> Floats:
        """Kernels that the group of each launches."""
        return self._work.kernels[self._work.group[self._chosen]]

    @property
    def channels_last(self) -> Bools:
        """Which convolutions take images channels last as they are."""
        return self.named({CHANNELS_LAST})

    def named(self, operators: Collection[str]) -> Bools:
        """Which are one of these operators."""
        return np.asarray(whether(self._work, operators)[self._work.op[self._chosen]])

    @property
    def bytes(self) -> Floats:
        """Bytes that each moves."""
        return (self.read + self.written) * self.scale + self.fixed
