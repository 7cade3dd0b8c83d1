"""Whether this machine is quiet, told by work that has nothing to do with what is measured.

A virtual machine's neighbours do not show in its own load: they take memory bandwidth and the clock, and the
hypervisor moves its cores apart, to where they share no cache (``measurement.noise``).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from analyzer.measurement.noise import CoreDistance, core_distance
from analyzer.measurement.probes import Probe, feeds_of, floats, model_of
from analyzer.measurement.session import SessionSettings, bind
from analyzer.measurement.timing_loops import Budget, median, timed_runs

QUIET = 1.15
_READING_S = 0.06


@dataclass
class Sentinel:
    """Products on all threads, a stream from memory, and how well the threads share work.

    Attributes:
        threads: Of the products and the stream.
        best: Least seconds so far by probe.
        distance: Between the cores.
    """

    threads: int
    best: dict[str, float] = field(default_factory=dict, init=False)
    distance: CoreDistance = field(init=False)

    def __post_init__(self) -> None:
        cube = floats(512, 512)
        self._calls: dict[str, Callable[[], object]] = {
            "products": self._bound("MatMul", cube, cube),
            "memory": self._bound("Neg", floats(16 << 20)),
        }
        self.distance = core_distance(SessionSettings(threads=self.threads))
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
        slower = [value / self.best[name] for name, value in now.items()]
        return max(*slower, self.distance.ratio(self.distance.read()))

    def wait(self, seconds: float) -> None:
        """Until the machine is quiet, but no longer than this."""
        begin = time.monotonic()
        while self.reading() > QUIET and time.monotonic() - begin < seconds:
            time.sleep(0.5)


def _median(call: Callable[[], object]) -> float:
    return median(timed_runs(call, Budget(seconds=_READING_S, least_seconds=_READING_S)))
