"""A CPU's calibration as arrays to interpolate in; see ``devices.calibration`` for the keys."""

from __future__ import annotations

import re
from collections.abc import Mapping

import numpy as np

from analyzer.arrays import Floats
from analyzer.prediction.reference_core import pace

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
        """Logarithms of (m, n, k) and of FLOP/s."""
        pattern = re.compile(rf"{re.escape(family)}\.t{threads}\.(?:b\d+\.)?m(\d+)\.n(\d+)\.k(\d+)$")
        return self._sorted((family, threads), pattern, None)

    def steps(self, op: str, threads: int) -> Points:
        """Logarithms of (hidden, batch) and of FLOP/s of a step."""
        gates = {"LSTM": 4, "GRU": 3}.get(op, 1)
        pattern = re.compile(rf"rnn\.{op}\.t{threads}\.h(\d+)\.b(\d+)$")
        return self._sorted((op, threads), pattern, gates)

    def trees(self, threads: int) -> Points:
        """Logarithms of steps and of seconds of a step."""
        return self._sorted(("tree", threads), re.compile(rf"tree\.t{threads}\.(\d+)$"), None)

    def copies(self, threads: int) -> tuple[Floats, Floats]:
        """Logarithms of bytes and of bytes per second, of what is read and written."""
        return self._falling("copy", threads) or (np.zeros(1), np.log(np.full(1, 1e10)))

    def reads(self, threads: int) -> tuple[Floats, Floats] | None:
        """The same of weights, which are only read; None where that was not measured."""
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
    """The tables of a calibration, made once for each."""
    known = _KNOWN.get(id(values))
    if known is None or known[0] is not values:
        if len(_KNOWN) > 256:
            _KNOWN.clear()
        known = (values, Tables(values))
        _KNOWN[id(values)] = known
    return known[1]
