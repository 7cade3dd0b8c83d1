"""Measure this machine's ceilings: one small model by key, the lower quartile of its runs.

All probes are visited twice, and those again whose two best visits do not agree: the best visit counts, as
other processes and a host's other guests slow a machine for seconds, and its best is what comes back. Where the
first two visits differ on the whole, two that agree may both have been slow: short probes then are visited as
often as time allows, and how far visits differ is kept, since what is predicted is as much less sure. With one
thread, what the processor spends on that thread counts, which leaves out what others ran on its core.

A family of probes begins when the cores are close to each other (``measurement.noise``), or
patience ends.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from analyzer.devices.calibration import STEADY
from analyzer.errors import AnalyzerError
from analyzer.measurement import machine_load, probes
from analyzer.measurement.noise import chain, core_distance
from analyzer.measurement.probes import Probe
from analyzer.measurement.session import SessionSettings, bind, undisturbed_seconds
from analyzer.measurement.timing_loops import median, rest
from analyzer.progress import Progress

# In order of use to the prediction: what comes last is what a short time leaves out. What is not computed is
# listed in ``probes.toml``.
_COMPUTED: Mapping[str, Callable[[], Iterator[Probe]]] = {
    "convolutions": probes.convolutions,
    "integer convolutions": probes.integer_convolutions,
    "trees": probes.trees,
    "classical models": probes.classical,
}
_FAMILIES: tuple[tuple[str, Callable[[], Iterator[Probe]]], ...] = tuple(
    (name, _COMPUTED.get(name, partial(probes.listed, name)))
    for name in (
        *("products", "bandwidth", "reading", "elementwise", "convolutions", "reductions", "pooling"),
        *("integer products", "integer convolutions", "integer elementwise", "data movement", "short rows"),
        *("recurrences", "trees", "classical models", "attention"),
    )
)
# As in ``noise.profiler_overhead``: 128 nodes apart lift a dispatch above the clock.
_SHORT, _LONG = 8, 136
_VISITS, _CHAIN_S = 2, 0.035
_LEAST_S = 0.002
# Two visits within the first of each other agree; so many more rounds, in this share of the time, for others.
_AGREED, _MORE_ROUNDS, _MORE_TIME = 1.08, 4, 1.4
# On an unsteady machine all whose visit is shorter go along.
_SHORT_VISIT_S = 0.1
# A call that takes more of a probe's time than the first is timed again beside it: the best of another moment
# may be longer than both. What is left counts as no less than the second, where clocks end.
_CALL_SHARE, _OWN_SHARE = 0.1, 0.1
_CALL_S = 0.003
# Of the time, for cores that were moved apart to come together.
_PATIENCE = 0.1
# What the GPU's ceilings take.
_GPU_S = 8.0


def measure_ceilings(
    *, seconds: float = 25.0, threads: int | None = None, progress: Progress | None = None
) -> dict[str, float]:
    """Return CPU's ceilings by key of ``devices.calibration``, in about so many seconds, preparation included.

    On an unsteady machine it takes twice as long; long calls get few runs, none is left out. ``threads`` is the
    default number of them, None for ONNX Runtime's own choice.
    """
    begin = machine_load.snapshot()
    most = threads or machine_load.default_threads()
    visits = _Visits(sorted({1, most}), _PATIENCE * seconds)
    visits.all_probes(seconds, _part(progress, 0.0, 0.8))
    visits.again(_MORE_TIME * seconds, _part(progress, 0.8, 0.2))
    ceilings = {"threads": float(most), "cores": float(machine_load.available_cores()), **visits.ceilings()}
    load = machine_load.load_between(begin, machine_load.snapshot())
    if load.is_busy():
        ceilings["busy"] = load.others_cores
        # Who shares a core delays all that waits for its thread; one thread is timed without what others take.
        for probe in visits.probes.values():
            alone, together = probe.key.format(T=1), probe.key.format(T=most)
            if alone in ceilings and together in ceilings:
                ceilings[together] = best_of(probe, (ceilings[together], ceilings[alone]))
    return ceilings


def _part(progress: Progress | None, begin: float, width: float) -> Progress:
    """Tell a part of the way."""
    if progress is None:
        return lambda _stage, _done: None
    return lambda stage, done: progress(stage, begin + width * (done or 0.0))


@dataclass(frozen=True, slots=True)
class _Slot:
    """A probe with a number of threads, and the family that it is visited with."""

    family: str
    probe: Probe
    threads: int

    @property
    def key(self) -> str:
        return self.probe.key.format(T=self.threads)


class _Visits:
    """Results of the visits of all probes, by key.

    Attributes:
        probes: By key, the one of them that this build of ONNX Runtime has a kernel for.
    """

    def __init__(self, counts: Sequence[int], patience_s: float) -> None:
        self.probes: dict[str, Probe] = {}
        self._counts = counts
        self._values: dict[str, list[float]] = {}
        self._visit_s: dict[str, float] = {}
        self._overheads = {count: CallCost(count) for count in counts}
        self._distance = core_distance(_settings(counts[-1]), patience_s=patience_s)
        self._slots = [
            _Slot(family, probe, count)
            for family, source in _FAMILIES
            for probe in source()
            for count in _thread_counts(probe, counts)
        ]

    def all_probes(self, seconds: float, progress: Progress) -> None:
        """Every one as often as all are visited."""
        pace = Pace(seconds, _VISITS * len(self._slots))
        for visit in range(_VISITS):
            for number, slot in enumerate(self._round(self._slots)):
                progress(slot.family, (visit + number / len(self._slots)) / _VISITS)
                self._visit(slot, pace.next())

    def again(self, seconds: float, progress: Progress) -> None:
        """Those whose two best visits differ, in a few more rounds; on an unsteady machine all short ones."""
        begin = time.perf_counter()
        unsteady = any(self._wander(count) > STEADY for count in self._counts)
        for number in range(_MORE_ROUNDS):
            chosen = [
                slot
                for slot in self._slots
                if self._is_doubtful(slot)
                or (unsteady and self._visit_s.get(slot.key, math.inf) < _SHORT_VISIT_S)
            ]
            pace = Pace(seconds / _MORE_ROUNDS, len(chosen))
            # To and fro: where time ends within a round, it is not always the same that come short.
            for slot in self._round(chosen if number % 2 else chosen[::-1]):
                spent = time.perf_counter() - begin
                if spent > seconds:
                    return
                progress(slot.family, spent / seconds)
                self._visit(slot, pace.next())

    def ceilings(self) -> dict[str, float]:
        """Everything by key of ``devices.calibration``."""
        result: dict[str, float] = {}
        for count, overhead in self._overheads.items():
            result |= {**overhead.ceilings(), f"wander.t{count}": self._wander(count)}
        if self._counts[-1] > 1:
            best = self._distance.best
            result |= {"sharing.t1": best.alone_s, f"sharing.t{self._counts[-1]}": best.shared_s}
        return result | {key: best_of(self.probes[key], values) for key, values in self._values.items()}

    def _wander(self, threads: int) -> float:
        mine = {slot.key for slot in self._slots if slot.threads == threads}
        return wander(self._values[key] for key in mine & self._values.keys())

    def _round(self, slots: Sequence[_Slot]) -> Iterator[_Slot]:
        """Yield slots, each family after a rest and with its cores together; what a call costs goes before."""
        for overhead in self._overheads.values() if slots else ():
            overhead.visit()
        latest = ""
        for slot in slots:
            if slot.family != latest:
                self._distance.awaited()
                rest()
                latest = slot.family
            yield slot

    def _visit(self, slot: _Slot, seconds: float) -> None:
        # Of two layouts of a convolution, the first that this build has.
        if self.probes.setdefault(slot.key, slot.probe) is not slot.probe:
            return
        begin = time.perf_counter()
        overhead = self._overheads[min(self._counts, key=lambda known: abs(known - slot.threads))]
        value = measure_probe(slot.probe, slot.threads, seconds, overhead)
        if value is None:
            del self.probes[slot.key]
        else:
            self._values.setdefault(slot.key, []).append(value)
            self._visit_s[slot.key] = time.perf_counter() - begin

    def _is_doubtful(self, slot: _Slot) -> bool:
        if self.probes.get(slot.key) is not slot.probe:
            return False
        best, *others = sorted(self._values[slot.key], reverse=slot.probe.per == "rate")
        return not others or max(best, others[0]) > _AGREED * min(best, others[0])


class Pace:
    """Shares a time among measurements that each need some preparation, which the earlier ones tell."""

    def __init__(self, seconds: float, parts: int, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock, self._begin = clock, clock()
        self._seconds, self._left = seconds, parts
        self._given, self._done = 0.0, 0

    def next(self) -> float:
        """Return seconds for the next one."""
        # A session must be made for each part, which may take longer than its runs.
        spent = self._clock() - self._begin
        preparation = max(0.0, spent - self._given) / max(1, self._done)
        each = max(_LEAST_S, (self._seconds - spent) / max(1, self._left) - preparation)
        self._given += each
        self._left, self._done = self._left - 1, self._done + 1
        return each


def best_of(probe: Probe, values: Iterable[float]) -> float:
    """Return the highest rate or the shortest time of some visits."""
    # Disturbance makes a machine slower, never faster.
    return max(values) if probe.per == "rate" else min(values)


def wander(visits: Iterable[Sequence[float]]) -> float:
    """Return the median slowdown of probes in the worse of their first two visits, at least 1.

    Neighbours on the host take memory, caches and the other half of a core for seconds or hours, which no load
    of this machine tells; the same kernel at another moment does. Visits are rates or times.
    """
    ratios = [max(values[:2]) / min(values[:2]) for values in visits if len(values) > 1]
    return median(ratios) if ratios else 1.0


def _thread_counts(probe: Probe, counts: Sequence[int]) -> Sequence[int]:
    """One and the default; a large product also with the powers of two between."""
    m, n, k = probes.LARGE_GEMM
    if probe.key != f"gemm.float32.t{{T}}.m{m}.n{n}.k{k}":
        return counts
    return sorted(
        {*counts, *(1 << power for power in range(1, counts[-1].bit_length()) if 1 << power < counts[-1])}
    )


def measure_probe(probe: Probe, threads: int, seconds: float, overhead: CallCost) -> float | None:
    """One ceiling; None where this build of ONNX Runtime has no such kernel."""
    try:
        call = bind(probes.model_of(probe), probes.feeds_of(probe), _settings(threads)).call
    except AnalyzerError:
        return None  # no such kernel: the blocked layout on another processor, an operator of a newer release
    took = undisturbed_seconds(call, seconds, alone=threads == 1, has_run=True)
    call_s = overhead.call_s
    if call_s > _CALL_SHARE * took:
        call_s = overhead.call_now_s()
    each = max(1e-9, took - call_s, _OWN_SHARE * took) / probe.copies
    return probe.amount / each if probe.per == "rate" else each / probe.amount


class CallCost:
    """Dispatch of a node and cost of a call, from two chains of operators that do nothing."""

    def __init__(self, threads: int) -> None:
        self._threads = threads
        # The best time so far by length; 0: the short one fed with arrays.
        self._best: dict[int, float] = {}
        self._short: Callable[[], object] | None = None

    def visit(self) -> None:
        """Time them once more."""
        import numpy as np

        feeds = {"t0": np.ones(1, np.float32)}
        short, long = (bind(chain(length), feeds, _settings(self._threads)) for length in (_SHORT, _LONG))
        calls = {_SHORT: short.call, _LONG: long.call, 0: lambda: short.session.run(None, feeds)}
        for length, call in calls.items():
            value = undisturbed_seconds(call, _CHAIN_S)
            self._best[length] = min(value, self._best.get(length, value))
        self._short = short.call

    @property
    def dispatch_s(self) -> float:
        """One more node, at best."""
        return max(1e-9, (self._best[_LONG] - self._best[_SHORT]) / (_LONG - _SHORT))

    @property
    def call_s(self) -> float:
        """One call with bound inputs and outputs, before its first node, at best."""
        return max(1e-9, self._best[_SHORT] - _SHORT * self.dispatch_s)

    def call_now_s(self) -> float:
        """Return the same at this moment."""
        assert self._short is not None
        return max(1e-9, undisturbed_seconds(self._short, _CALL_S) - _SHORT * self.dispatch_s)

    def ceilings(self) -> Mapping[str, float]:
        """By key of ``devices.calibration``."""
        return {
            f"dispatch.t{self._threads}": self.dispatch_s,
            f"call.t{self._threads}": self.call_s,
            f"run.t{self._threads}": max(1e-9, self._best[0] - _SHORT * self.dispatch_s),
        }


def _settings(threads: int) -> SessionSettings:
    return SessionSettings(threads=threads, optimize=False)


def measure_all(
    progress: Progress | None = None, *, seconds: float = 25.0, threads: int | None = None, gpu: bool = True
) -> dict[str, float]:
    """Return the ceilings of the CPU, and with ``gpu`` of the GPU where ONNX Runtime can use one.

    Other arguments are those of ``measure_ceilings``.
    """
    from analyzer.measurement.cuda_ceilings import has_cuda, measure_cuda_ceilings

    with_gpu = gpu and has_cuda()
    share = 0.7 if with_gpu else 1.0  # of the progress bar
    for_cpu = max(seconds - _GPU_S, seconds / 2) if with_gpu else seconds
    ceilings = measure_ceilings(seconds=for_cpu, threads=threads, progress=_part(progress, 0.0, share))
    if with_gpu:
        ceilings.update(measure_cuda_ceilings(progress=_part(progress, share, 1 - share)))
    return ceilings
