"""Whether this machine is quiet, told by work that has nothing to do with what is measured.

A virtual machine's neighbours do not show in its own load: they take memory bandwidth, the clock, and above
all the cache that all share. (A recommender whose 3.4 MB of rows come from it takes 1.3 or 4 ms.)
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np

from analyzer.runtime.bound import bind
from analyzer.runtime.probes import Probe, feeds_of, floats, model_of
from analyzer.runtime.session import SessionSettings
from analyzer.runtime.statistics import median
from analyzer.runtime.timing import Budget, timed_runs

QUIET = 1.1
Found = TypeVar("Found")
_READING_S = 0.06
_SHARED_BYTES, _LINE_BYTES = 16 << 20, 64


@dataclass
class Sentinel:
    """Products on all threads, a stream from memory, and random reads in the shared cache.

    Attributes:
        threads: Of the products and the stream.
        best: Least seconds so far by probe.
    """

    threads: int
    best: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        cube = floats(512, 512)
        self._calls: dict[str, Callable[[], object]] = {
            "products": self._bound("MatMul", cube, cube),
            "memory": self._bound("Neg", floats(16 << 20)),
            "shared cache": _random_reads(),
        }
        for _ in range(20):
            self.reading()

    def _bound(self, op_type: str, *inputs: np.ndarray) -> Callable[[], object]:
        probe = Probe(key="", amount=1.0, per="time", op_type=op_type, inputs=inputs)
        return bind(model_of(probe), feeds_of(probe), SessionSettings(threads=self.threads)).call

    def reading(self) -> float:
        """How much slower than at its best the machine is now, by the probe that suffers most; 1 is quiet."""
        now = {name: _median(call) for name, call in self._calls.items()}
        for name, value in now.items():
            self.best[name] = min(value, self.best.get(name, value))
        return max(value / self.best[name] for name, value in now.items())

    def wait(self, seconds: float) -> None:
        """Until the machine is quiet, but no longer than this."""
        begin = time.monotonic()
        while self.reading() > QUIET and time.monotonic() - begin < seconds:
            time.sleep(0.5)

    def beside(self, work: Callable[[], Found], tries: int, patience_s: float) -> tuple[Found, float]:
        """Do it until the machine was quiet before and after, or so many times.

        Returns:
            What the quietest try gave, and how disturbed that was.
        """
        found: list[tuple[float, Found]] = []
        for _ in range(tries):
            self.wait(patience_s)
            before = self.reading()
            made = work()
            found.append((max(before, self.reading()), made))
            if found[-1][0] <= QUIET:
                break
        disturbed, made = min(found, key=lambda item: item[0])
        return made, disturbed


def _random_reads() -> Callable[[], object]:
    table = np.ones(_SHARED_BYTES // 8)
    lines = np.random.default_rng(0).permutation(_SHARED_BYTES // _LINE_BYTES) * (_LINE_BYTES // 8)
    return lambda: table[lines]


def _median(call: Callable[[], object]) -> float:
    return median(timed_runs(call, Budget(seconds=_READING_S, least_seconds=_READING_S)))
