"""What happens if the cores are moved apart during a run: how well threads share work, read turn by turn.

A hypervisor moves the cores of a virtual machine between parts of the processor that each have a last-level
cache of their own. Seen on two virtual cores of an AMD EPYC: a cache line goes to and fro in 80 to 130 ns, or
for 2 to 40 s in 380; meanwhile MobileNetV2 takes 1.6 times as long, ResNet-50 1.05 to 1.08 times, a convolution
that writes 100 MB 0.78 times, while load, steal and large products show nothing of it. A chain of small
elementwise nodes whose threads read each other's results does: 1.00 to 1.09 of its best while the cores are
close, 1.56 to 1.86 while they are apart (10th to 90th percentile of 172 and 144 readings, told apart by the
time of the cache line).
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from analyzer.measurement.noise.timing_loops import Budget, TimedCall, settle, timed_runs
from analyzer.measurement.session import SessionSettings
from analyzer.measurement.statistics import median

# Between the two: above it the cores count as apart.
APART_RATIO = 1.3
_NODES, _ELEMENTS = 20, 128 * 1024
_READING_S, _PAUSE_S = 0.004, 0.1


@dataclass(frozen=True, slots=True)
class Reading:
    """Seconds of a run of the chain: by all threads, and by a single one."""

    shared_s: float
    alone_s: float


class CoreDistance:
    """Readings of how well the threads share a chain of nodes, during a measurement.

    Attributes:
        best: The least of both times so far, or what is known of this machine if that is less.
    """

    def __init__(
        self, shared: TimedCall, alone: TimedCall, *, known: Reading | None = None, patience_s: float = 0.0
    ) -> None:
        """Take readings by timing runs of the chain, ``shared`` by all threads and ``alone``.

        ``known`` is the best of an earlier measurement with as many threads; ``awaited`` may wait for
        ``patience_s``, all calls together.
        """
        self._shared, self._alone, self._patience_s = shared, alone, patience_s
        self.best = known or Reading(float("inf"), float("inf"))

    def read(self) -> Reading:
        """A reading; takes some 20 ms."""
        settle(self._shared, 0.0)
        reading = Reading(_seconds(self._shared), _seconds(self._alone))
        # Each best by itself: the two need not fall into one moment.
        self.best = Reading(min(self.best.shared_s, reading.shared_s), min(self.best.alone_s, reading.alone_s))
        return reading

    def awaited(self, reading: Reading | None = None) -> Reading:
        """The first reading from the latest on with the cores close, or the last one before patience ends."""
        now = self.read() if reading is None else reading
        # Cores come together by themselves within seconds (2 to 40 seen): waiting costs less than a wrong
        # figure.
        while self.ratio(now) > APART_RATIO and self._patience_s > 0:
            begin = time.perf_counter()
            time.sleep(_PAUSE_S)
            now = self.read()
            self._patience_s -= time.perf_counter() - begin
        return now

    def ratio(self, *readings: Reading) -> float:
        """How many times worse than at best the threads shared work, in the worst of the readings.

        What slows a single thread as well, such as the clock, is no matter of sharing.
        """
        return max(
            (one.shared_s / self.best.shared_s / max(1.0, one.alone_s / self.best.alone_s) for one in readings),
            default=1.0,
        )


class SingleThread(CoreDistance):
    """What a single thread reads, which has nobody to hand over to: always close, in no time."""

    def __init__(self) -> None:
        super().__init__(_nothing, _nothing, known=Reading(1.0, 1.0))

    def read(self) -> Reading:
        """The same each time; takes no time."""
        return self.best


def close_turns(ratios: Sequence[float]) -> frozenset[int]:
    """Numbers of the ratios that were taken while the cores were close; all where none was."""
    close = frozenset(number for number, ratio in enumerate(ratios) if ratio <= APART_RATIO)
    return close or frozenset(range(len(ratios)))


def core_distance(
    settings: SessionSettings, *, known: Reading | None = None, patience_s: float = 0.0
) -> CoreDistance:
    """For a session on the CPU with these threads."""
    if settings.threads == 1:
        return SingleThread()
    return CoreDistance(
        _chain(settings, settings.threads), _chain(settings, 1), known=known, patience_s=patience_s
    )


def _chain(settings: SessionSettings, threads: int) -> TimedCall:
    """One run of the chain of nodes, each of which reads half a MiB and writes as much."""
    import numpy as np

    from analyzer.measurement.io_binding import bind
    from analyzer.measurement.noise.profiler_overhead import chain

    plain = SessionSettings(threads=threads, spinning=settings.spinning, optimize=False)
    return bind(chain(_NODES, _ELEMENTS), {"t0": np.ones(_ELEMENTS, np.float32)}, plain).call


def _nothing() -> None:
    """The work that a single thread shares."""


def _seconds(call: TimedCall) -> float:
    return median(timed_runs(call, Budget(seconds=_READING_S, least_seconds=_READING_S)))
