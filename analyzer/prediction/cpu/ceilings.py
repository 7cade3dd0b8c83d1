"""Ceilings of a CPU: measured ones, or a reference core scaled by its figures.

Both give the same thing, a mapping by the keys of ``devices.calibration``, so that there is one model.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from analyzer.arrays import Floats
from analyzer.devices.calibration import taken_meanwhile, wavered
from analyzer.devices.device import Device
from analyzer.precision import DevicePrecision, on_device
from analyzer.prediction.reference_core import pace, reference_ceilings

Points = tuple[Floats, Floats] | None


class Tables:
    """A calibration's keys sorted into arrays, once for each calibration.

    Attributes:
        elements: Seconds an element by operator and threads, as far as they were asked for.
        guesses: Whether those seconds are of nothing that was measured, by operator.
        pace: Factor on the seconds of ``reference_core.loops``.
    """

    def __init__(self, values: Mapping[str, float]) -> None:
        self._values = values
        self._found: dict[tuple[str, int], Points] = {}
        self.elements: dict[tuple[str, int], float] = {}
        self.guesses: dict[str, bool] = {}
        self.pace = pace(values)

    def points(self, family: str, threads: int) -> Points:
        """Return logarithms of (m, n, k) and of FLOP/s."""
        pattern = re.compile(rf"{re.escape(family)}\.t{threads}\.(?:b\d+\.)?m(\d+)\.n(\d+)\.k(\d+)$")
        return self._sorted((family, threads), pattern, None)

    def steps(self, op: str, threads: int) -> Points:
        """Return logarithms of (hidden, batch) and of FLOP/s of a step."""
        gates = {"LSTM": 4, "GRU": 3}.get(op, 1)
        pattern = re.compile(rf"rnn\.{op}\.t{threads}\.h(\d+)\.b(\d+)$")
        return self._sorted((op, threads), pattern, gates)

    def trees(self, threads: int) -> Points:
        """Return logarithms of steps and of seconds of a step."""
        return self._sorted(("tree", threads), re.compile(rf"tree\.t{threads}\.(\d+)$"), None)

    def copies(self, threads: int) -> tuple[Floats, Floats]:
        """Return logarithms of bytes and of bytes per second, of what is read and written."""
        return self._falling("copy", threads) or (np.zeros(1), np.log(np.full(1, 1e10)))

    def reads(self, threads: int) -> tuple[Floats, Floats] | None:
        """Return the same of weights, which are only read; None where that was not measured."""
        return self._falling("read", threads)

    def _falling(self, family: str, threads: int) -> tuple[Floats, Floats] | None:
        key = (f"falling {family}", threads)
        if key not in self._found:
            points = self._sorted((family, threads), re.compile(rf"{family}\.t{threads}\.(\d+)$"), None)
            if points is not None:
                sizes, rates = np.log(np.exp2(points[0][:, 0])), points[1]
                order = np.argsort(sizes)
                # Memory never gets faster when more outgrows a cache: what says so is noise.
                later = np.maximum.accumulate(rates[order][::-1])[::-1]
                points = sizes[order], np.where(np.exp(sizes[order]) > 2**20, later, rates[order])
            self._found[key] = points
        return self._found[key]

    def _sorted(self, key: tuple[str, int], pattern: re.Pattern[str], gates: int | None) -> Points:
        if key not in self._found:
            rows = [
                (*map(float, match.groups()), value)
                for name, value in self._values.items()
                if (match := pattern.match(name))
            ]
            self._found[key] = None
            if rows:
                table = np.array(rows)
                rates = table[:, -1]
                if gates is not None:
                    rates = 4.0 * table[:, 1] * gates * table[:, 0] ** 2 / rates
                self._found[key] = (np.log2(table[:, :-1]), np.log(rates))
        return self._found[key]


_KNOWN: dict[int, tuple[Mapping[str, float], Tables]] = {}


def tables(values: Mapping[str, float]) -> Tables:
    """Return the tables of a calibration, made once for each."""
    known = _KNOWN.get(id(values))
    if known is None or known[0] is not values:
        if len(_KNOWN) > 256:
            _KNOWN.clear()
        known = (values, Tables(values))
        _KNOWN[id(values)] = known
    return known[1]


# A session's call on the reference core (``call`` in reference_core.toml: 1.74 us), where none was measured.
CPU_CALL_S = 1.8e-6
# Work on one thread from which ONNX Runtime's operators use several: 100,000 cycles in Eigen's cost model
# (unsupported/Eigen/CXX11/src/Tensor/TensorCostModel.h), 20 us at 5 GHz.
PARALLEL_S = 20e-6
# 45 runs of 15 samples on two threads of an EPYC: 8 % off at the median, 30 % at most.
_MEASURED_WIDTH = 1.35
# One measured core stands in for every other. BERT on one to six cores of an i7-8700, which nothing but the
# gain of cores was fitted to, is within 1.25 (benchmarks/prediction.md); the rest is assumed. More where
# a figure is.
_CATALOGUE_WIDTH, _ASSUMED_WIDTH = 1.8, 1.15


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuCeilings:
    """One CPU with a number of threads, in one precision.

    Attributes:
        values: By key of ``devices.calibration``.
        table: The number of threads in the keys of operators.
        scale: What fewer threads than ``table`` keep of its rates; 1 where there are as many.
        modelled: Whether what threads gain is modelled, not measured.
        dispatch_s: Cost of one more node.
        width: Half-width of the interval, as a factor.
    """

    values: Mapping[str, float]
    threads: int
    table: int
    scale: float
    modelled: bool
    dispatch_s: float
    precision: DevicePrecision
    width: float

    def of(self, key: str, threads: int | None = None) -> float | None:
        """Return a value by its key with ``{T}`` in it."""
        return self.values.get(key.replace("{T}", str(threads or self.table)))


def cpu_ceilings(device: Device, precision: str, threads: int | None = None) -> CpuCeilings:
    """Return the ceilings of a CPU: its calibration, else the reference core scaled by its figures."""
    device_precision = on_device(device, precision)
    values = device.calibration
    wanted = max(1, threads or int(values.get("threads", device.units)))
    if values:
        table = int(values.get("threads", 1)) if wanted > 1 else 1
        # Other processes made rates lower, by about as much as cores lacked (225 GFLOP/s became 129). A host's
        # other guests slow one minute and not the next: the calibration's, or the model's.
        disturbed = max(1.0 + taken_meanwhile(values), wavered(values, table))
        width = _MEASURED_WIDTH * disturbed
    else:
        wanted = min(wanted, device.threads or wanted)
        values, table = reference_ceilings(device, min(wanted, device.units)), 1
        width = _CATALOGUE_WIDTH
        width *= _ASSUMED_WIDTH if device.assumed else 1.0
    return CpuCeilings(
        values=values,
        threads=min(wanted, device.units) if not device.calibration else wanted,
        table=table,
        scale=min(1.0, wanted / table),
        modelled=not device.calibration,
        dispatch_s=values.get(f"dispatch.t{table}", 1.7e-7),
        precision=device_precision,
        width=width,
    )


def copy_rate(at: CpuCeilings, nbytes: Floats, threads: int | None = None) -> Floats:
    """Return bytes per second of a copy by the bytes it touches; by all threads where none are named."""
    sizes, rates = tables(at.values).copies(threads or (at.threads if at.modelled else at.table))
    logarithms: Floats = np.interp(np.log(np.maximum(nbytes, 1.0)), sizes, rates)
    return np.exp(logarithms) * (at.scale if threads is None else 1.0)


def read_rate(at: CpuCeilings, nbytes: Floats) -> Floats | None:
    """Return bytes per second of weights only read, by the bytes of all; None where it was not measured."""
    measured = None if at.modelled else tables(at.values).reads(at.table)
    if measured is None:
        return None
    sizes, rates = measured
    return np.exp(np.interp(np.log(np.maximum(nbytes, 1.0)), sizes, rates)) * at.scale
