"""Measuring this machine's ceilings: one small model by key, the lower quartile of its runs.

All probes are visited several times, and the best visit counts: another process that takes a core for half a
second would otherwise halve whatever was being measured just then. With one thread, what the processor spends
on that thread counts, which leaves out what others ran on its core.

A family of probes begins when the cores are close to each other (``measurement.noise.core_migration``), or
patience ends.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from analyzer.errors import AnalyzerError
from analyzer.measurement.ceilings import (
    classical_probes,
    integer_probes,
    movement_probes,
    probes,
    short_row_probes,
)
from analyzer.measurement.ceilings.probes import Probe
from analyzer.measurement.io_binding import bind, undisturbed_seconds
from analyzer.measurement.noise import machine_load
from analyzer.measurement.noise.core_migration import core_distance
from analyzer.measurement.noise.profiler_overhead import chain
from analyzer.measurement.noise.timing_loops import rest
from analyzer.measurement.session import SessionSettings
from analyzer.progress import Progress

# In order of use to the prediction: what comes last is what a short time leaves out.
_FAMILIES: tuple[tuple[str, Callable[[], Iterator[Probe]]], ...] = (
    ("products", probes.gemms),
    ("bandwidth", probes.copies),
    ("elementwise", probes.elementwise),
    ("convolutions", probes.convolutions),
    ("reductions", probes.reductions),
    ("pooling", probes.pools),
    ("integer products", integer_probes.products),
    ("integer convolutions", integer_probes.convolutions),
    ("integer elementwise", integer_probes.elementwise),
    ("data movement", movement_probes.movements),
    ("short rows", short_row_probes.short_rows),
    ("recurrences", movement_probes.recurrences),
    ("trees", movement_probes.trees),
    ("classical models", classical_probes.classical),
    ("attention", movement_probes.attentions),
)
# Visited once less than the others: many, and each has near kin.
_LESS_VISITED = frozenset(
    {"integer products", "integer convolutions", "integer elementwise", "classical models"}
)
# As in ``noise.profiler_overhead``: 128 nodes apart lift a dispatch above the clock.
_SHORT, _LONG = 8, 136
_VISITS, _CHAIN_S = 3, 0.1
_LEAST_S = 0.002
# Of the time, for cores that were moved apart to come together.
_PATIENCE = 0.1
# What the GPU's ceilings take.
_GPU_S = 8.0


def measure_ceilings(
    *, seconds: float = 25.0, threads: int | None = None, progress: Progress | None = None
) -> dict[str, float]:
    """The CPU's ceilings by key of ``devices.calibration``.

    Args:
        seconds: About how long it may take, preparation included; long calls get few runs, none is left out.
        threads: The default number of threads; None is ONNX Runtime's own choice.
        progress: Told the family being measured and how much is done.
    """
    begin = machine_load.snapshot()
    most = threads or machine_load.default_threads()
    counts = sorted({1, most})
    ceilings: dict[str, float] = {"threads": float(most), "cores": float(machine_load.available_cores())}
    plan = [(family, probe) for family, source in _FAMILIES for probe in source()]
    parts = sum(_visits(family) * len(_thread_counts(probe, counts)) for family, probe in plan)
    pace = Pace(seconds, parts)
    chains: dict[tuple[int, int], float] = {}
    distance = core_distance(_settings(most), patience_s=_PATIENCE * seconds)
    measured_by: dict[str, Probe] = {}
    for visit in range(_VISITS):
        for count in counts:
            ceilings.update(_overheads(count, chains))
        latest = ""
        for number, (family, probe) in enumerate(plan):
            if visit >= _visits(family):
                continue
            if family != latest:
                distance.awaited()
                rest()
                latest = family
            if progress is not None:
                progress(family, (visit + number / len(plan)) / _VISITS)
            for count in _thread_counts(probe, counts):
                each = pace.next()
                key = probe.key.format(T=count)
                # Of two layouts of a convolution, the first that this build has.
                if measured_by.setdefault(key, probe) is not probe:
                    continue
                value = measure_probe(probe, count, each, ceilings[f"call.t{_nearest(count, counts)}"])
                if value is None:
                    del measured_by[key]
                else:
                    ceilings[key] = better(probe, value, ceilings.get(key))
    if most > 1:
        ceilings["sharing.t1"] = distance.best.alone_s
        ceilings[f"sharing.t{most}"] = distance.best.shared_s
    load = machine_load.load_between(begin, machine_load.snapshot())
    if load.is_busy():
        ceilings["busy"] = load.others_cores
        _no_worse_than_alone(ceilings, measured_by.values(), most)
    return ceilings


def _no_worse_than_alone(ceilings: dict[str, float], measured: Iterable[Probe], threads: int) -> None:
    """Gives several threads what one reached, where they came out slower.

    Who shares a core delays all that waits for its thread; one thread is timed without what others take.
    """
    for probe in measured:
        alone, together = probe.key.format(T=1), probe.key.format(T=threads)
        if alone in ceilings and together in ceilings:
            ceilings[together] = better(probe, ceilings[together], ceilings[alone])


def _visits(family: str) -> int:
    return _VISITS - (family in _LESS_VISITED)


class Pace:
    """Shares a time among measurements that each need some preparation, which the earlier ones tell."""

    def __init__(self, seconds: float, parts: int, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock, self._begin = clock, clock()
        self._seconds, self._left = seconds, parts
        self._given, self._done = 0.0, 0

    def next(self) -> float:
        """Seconds for the next one."""
        # A session must be made for each part, which may take longer than its runs.
        spent = self._clock() - self._begin
        preparation = max(0.0, spent - self._given) / max(1, self._done)
        each = max(_LEAST_S, (self._seconds - spent) / max(1, self._left) - preparation)
        self._given += each
        self._left, self._done = self._left - 1, self._done + 1
        return each


def better(probe: Probe, value: float, known: float | None) -> float:
    """The higher rate or the shorter time of two visits."""
    if known is None:
        return value
    # Disturbance makes a machine slower, never faster.
    return max(value, known) if probe.per == "rate" else min(value, known)


def _thread_counts(probe: Probe, counts: list[int]) -> list[int]:
    """One and the default; a large product also with the powers of two between."""
    m, n, k = probes.LARGE_GEMM
    if probe.key != f"gemm.float32.t{{T}}.m{m}.n{n}.k{k}":
        return counts
    return sorted(
        {*counts, *(1 << power for power in range(1, counts[-1].bit_length()) if 1 << power < counts[-1])}
    )


def _nearest(count: int, counts: list[int]) -> int:
    return min(counts, key=lambda known: abs(known - count))


def measure_probe(probe: Probe, threads: int, seconds: float, call_s: float) -> float | None:
    """One ceiling; None where this build of ONNX Runtime has no such kernel."""
    try:
        call = _bound_call(probes.model_of(probe), probes.feeds_of(probe), threads)
    except AnalyzerError:
        return None  # no such kernel: the blocked layout on another processor, an operator of a newer release
    took = undisturbed_seconds(call, seconds, alone=threads == 1)
    each = max(1e-9, (took - call_s) / probe.copies)
    return probe.amount / each if probe.per == "rate" else each / probe.amount


def _overheads(threads: int, chains: dict[tuple[int, int], float]) -> Mapping[str, float]:
    """Dispatch of a node and cost of a call, from two chains of operators that do nothing.

    ``chains`` holds the best time so far by threads and length (0: the short one fed with arrays), and is
    brought up to date.
    """
    import numpy as np

    feeds = {"t0": np.ones(1, np.float32)}
    short, long = (bind(chain(length), feeds, _settings(threads)) for length in (_SHORT, _LONG))
    calls = {_SHORT: short.call, _LONG: long.call, 0: lambda: short.session.run(None, feeds)}
    for length, call in calls.items():
        value = undisturbed_seconds(call, _CHAIN_S / _VISITS)
        chains[threads, length] = min(value, chains.get((threads, length), value))
    best = {length: chains[threads, length] for length in calls}
    dispatch = max(1e-9, (best[_LONG] - best[_SHORT]) / (_LONG - _SHORT))
    return {
        f"dispatch.t{threads}": dispatch,
        f"call.t{threads}": max(1e-9, best[_SHORT] - _SHORT * dispatch),
        f"run.t{threads}": max(1e-9, best[0] - _SHORT * dispatch),
    }


def _bound_call(model: bytes, feeds: Mapping[str, Any], threads: int) -> Callable[[], object]:
    return bind(model, feeds, _settings(threads)).call


def _settings(threads: int) -> SessionSettings:
    return SessionSettings(threads=threads, optimize=False)


def measure_all(
    progress: Progress | None = None, *, seconds: float = 25.0, threads: int | None = None, gpu: bool = True
) -> dict[str, float]:
    """The ceilings of the CPU, and of the GPU where ONNX Runtime can use one.

    Args:
        progress: Told the family being measured and how much is done.
        seconds: About how long it may take.
        threads: The default number of threads; None is ONNX Runtime's own choice.
        gpu: Whether to look for a GPU at all.
    """
    from analyzer.measurement.ceilings.on_cuda import has_cuda, measure_cuda_ceilings

    with_gpu = gpu and has_cuda()
    share = 0.7 if with_gpu else 1.0  # of the progress bar

    def part(begin: float, width: float) -> Progress | None:
        return None if progress is None else lambda stage, done: progress(stage, begin + width * (done or 0.0))

    for_cpu = max(seconds - _GPU_S, seconds / 2) if with_gpu else seconds
    ceilings = measure_ceilings(seconds=for_cpu, threads=threads, progress=part(0.0, share))
    if with_gpu:
        ceilings.update(measure_cuda_ceilings(progress=part(share, 1 - share)))
    return ceilings
