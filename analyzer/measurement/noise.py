"""Disturbances of a measurement: the profiler's time, threads that share a core, drift between runs.

Two chains of one-element operators, a short and a long one: unprofiled, the difference of their times over the
difference of their lengths is the true cost of dispatching one node, and what is left is the cost of a call.
Profiled, the same nodes show that cost plus the profiler's own.

A hypervisor moves the cores of a virtual machine between parts of the processor that each have a last-level
cache of their own. Seen on two virtual cores of an AMD EPYC: a cache line goes to and fro in 80 to 130 ns, or
for 2 to 40 s in 380; meanwhile MobileNetV2 takes 1.6 times as long, ResNet-50 1.05 to 1.08 times, a convolution
that writes 100 MB 0.78 times, while load, steal and large products show nothing of it. A chain of small
elementwise nodes whose threads read each other's results does: 1.00 to 1.09 of its best while the cores are
close, 1.56 to 1.86 while they are apart (10th to 90th percentile of 172 and 144 readings, told apart by the
time of the cache line).

The speed of a shared machine changes within seconds, and runs before such a change cannot be compared with runs
after it. Both kinds therefore take turns: the operators' times describe the same moments as the latency.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from analyzer.measurement import profile
from analyzer.measurement.session import SessionSettings, create
from analyzer.measurement.timing_loops import Budget, TimedCall, is_enough, median, settle, timed_runs

# 128 nodes apart: a dispatch of 0.15 us comes to 19 us, far above the clock.
_SHORT, _LONG = 8, 136
_SKIPPED_RUNS = 3  # a session's first runs are slower


@dataclass(frozen=True, slots=True, kw_only=True)
class Bias:
    """Costs of the machinery, in seconds.

    Attributes:
        profiler_s: What a profiled node shows beyond its true time.
        dispatch_s: What a node costs that does nothing, unprofiled.
        call_s: What a call of the model costs before its first node.
    """

    profiler_s: float
    dispatch_s: float
    call_s: float


def chain(length: int, elements: int = 1) -> bytes:
    """Return a model of ``length`` operators in a row, each on so many elements."""
    from onnx import TensorProto, helper

    # Both providers have a Neg; two in a row stay, since nothing is optimised.
    nodes = [helper.make_node("Neg", [f"t{i}"], [f"t{i + 1}"], name=f"neg{i}") for i in range(length)]
    graph = helper.make_graph(
        nodes,
        "chain",
        [helper.make_tensor_value_info("t0", TensorProto.FLOAT, [elements])],
        [helper.make_tensor_value_info(f"t{length}", TensorProto.FLOAT, [elements])],
    )
    # Old versions, so that any ONNX Runtime reads it.
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return bytes(model.SerializeToString())


def calibrate_bias(settings: SessionSettings, folder: Path, *, seconds: float = 0.25) -> Bias:
    """Measure the bias with the threads and spinning that the model will have; the profile is removed."""
    times = {length: _unprofiled(length, settings, seconds / 3) for length in (_SHORT, _LONG)}
    dispatch = max(1e-9, (times[_LONG] - times[_SHORT]) / (_LONG - _SHORT))
    shown = _profiled(settings, folder, seconds / 3)
    # Differences of noisy times may fall below 0 on a busy machine.
    return Bias(
        profiler_s=max(0.0, shown - dispatch),
        dispatch_s=dispatch,
        call_s=max(0.0, times[_SHORT] - _SHORT * dispatch),
    )


def _plain(settings: SessionSettings, prefix: Path | None = None) -> SessionSettings:
    return SessionSettings(
        threads=settings.threads, spinning=settings.spinning, optimize=False, profile_prefix=prefix
    )


def _unprofiled(length: int, settings: SessionSettings, seconds: float) -> float:
    import numpy as np

    session = create(chain(length), _plain(settings))
    feeds = {"t0": np.ones(1, np.float32)}
    return median(timed_runs(lambda: session.run(None, feeds), Budget(seconds=seconds)))


def _profiled(settings: SessionSettings, folder: Path, seconds: float) -> float:
    import numpy as np

    session = create(chain(_LONG), _plain(settings, folder / "bias"))
    feeds = {"t0": np.ones(1, np.float32)}
    # Before the budget begins: a machine that stalls in them may leave time for a single run.
    for _ in range(_SKIPPED_RUNS):
        session.run(None, feeds)
    timed_runs(lambda: session.run(None, feeds), Budget(seconds=seconds))
    calls = profile.runs(profile.ended(session), skip=range(_SKIPPED_RUNS))
    return median([node.time.value for node in profile.by_node(calls)])


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
        """Return a reading; takes some 20 ms."""
        settle(self._shared, 0.0)
        reading = Reading(_seconds(self._shared), _seconds(self._alone))
        # Each best by itself: the two need not fall into one moment.
        self.best = Reading(min(self.best.shared_s, reading.shared_s), min(self.best.alone_s, reading.alone_s))
        return reading

    def awaited(self, reading: Reading | None = None) -> Reading:
        """Return the first reading, from the latest on, with close cores, or the last before patience ends."""
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
        """Return how many times worse than at best the threads shared work, in the worst of the readings.

        What slows a single thread as well, such as the clock, is no matter of sharing.
        """
        return max(
            (one.shared_s / self.best.shared_s / max(1.0, one.alone_s / self.best.alone_s) for one in readings),
            default=1.0,
        )


class SingleThread(CoreDistance):
    """The reading of a single thread, which has nobody to hand over to: always close, in no time."""

    def __init__(self) -> None:
        super().__init__(_nothing, _nothing, known=Reading(1.0, 1.0))

    def read(self) -> Reading:
        """Return the same each time; takes no time."""
        return self.best


def close_turns(ratios: Sequence[float]) -> frozenset[int]:
    """Return numbers of the ratios that were taken while the cores were close; all where none was."""
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

    from analyzer.measurement.session import bind

    plain = SessionSettings(threads=threads, spinning=settings.spinning, optimize=False)
    return bind(chain(_NODES, _ELEMENTS), {"t0": np.ones(_ELEMENTS, np.float32)}, plain).call


def _nothing() -> None:
    """Do the work that a single thread shares."""


def _seconds(call: TimedCall) -> float:
    return median(timed_runs(call, Budget(seconds=_READING_S, least_seconds=_READING_S)))


# The speed of the machine is not known from fewer turns: the quieter half of four is two.
LEAST_TURNS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """The runs of one turn: profiled ones, then others within a budget."""

    profiled_runs: int
    plain: Budget


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnResult:
    """The results of one turn.

    Attributes:
        samples: Seconds of the unprofiled runs.
        profiled: Numbers of the profiled calls that count, the first call of the session being 0.
        readings: Of the distance between cores, before and after.
    """

    samples: tuple[float, ...]
    profiled: range = range(0)
    readings: tuple[Reading, ...] = ()


def turns_for(
    run_s: float, profiled_runs: int, seconds: float, *, runs: int | None, most: int
) -> tuple[Turn, ...]:
    """Turn that share the work evenly, ``most`` of them; ``profiled_runs`` and ``seconds`` are of all.

    ``runs`` is an exact number of unprofiled runs; None adapts to the seconds.
    """
    # A turn holds a run of each kind at least, or the kinds would not describe the same moments.
    plain = runs if runs is not None else int(seconds / max(run_s, 1e-9))
    number = max(1, min(most, profiled_runs, plain))
    return tuple(
        Turn(
            profiled_runs=_share(profiled_runs, number, turn),
            plain=Budget(
                seconds=seconds / number,
                runs=None if runs is None else _share(runs, number, turn),
                least_seconds=seconds / number,
            ),
        )
        for turn in range(number)
    )


def _share(total: int, turns: int, turn: int) -> int:
    # Differences of a rounded running total: the parts add up exactly.
    return total * (turn + 1) // turns - total * turn // turns


def alternate(
    plain: TimedCall | None,
    profiled: TimedCall,
    turns: tuple[Turn, ...],
    *,
    run_s: float,
    already: int,
    tick: Callable[[float], None],
    distance: CoreDistance,
) -> tuple[TurnResult, ...]:
    """Run both in turns, until the latency is known well or the turns are over.

    Without a ``plain`` call the profiled ones run alone; ``already`` were made before. The cores' distance is
    read before and after each turn.
    """
    taken: list[TurnResult] = []
    count = already
    latest = distance.read()
    for number, turn in enumerate(turns, 1):
        before = distance.awaited(latest)
        count += settle(profiled, run_s) if plain is not None else 0
        for _ in range(turn.profiled_runs):
            profiled()
        counted = range(count, count + turn.profiled_runs)
        count = counted.stop
        samples: list[float] = []
        if plain is not None:
            settle(plain, run_s)
            samples = timed_runs(plain, turn.plain)
        latest = distance.read()
        taken.append(TurnResult(samples=tuple(samples), profiled=counted, readings=(before, latest)))
        tick(number / len(turns))
        # An exact number of runs was asked for: all of them are made.
        if turn.plain.runs is None and _is_known(taken, distance):
            break
    return tuple(taken)


def _is_known(taken: Sequence[TurnResult], distance: CoreDistance) -> bool:
    """Return whether enough turns, taken while the cores were close, agree on the latency."""
    counted = [one for one in taken if distance.ratio(*one.readings) <= APART_RATIO]
    return len(counted) >= LEAST_TURNS and is_enough([sample for one in counted for sample in one.samples])


def quieter_half(turns: Sequence[Sequence[float]], among: Collection[int] | None = None) -> frozenset[int]:
    """Return numbers of the turns whose medians are the lower half (of an odd number the middle one is in it).

    What disturbs a machine makes runs slower, never faster, and lasts longer than a run. Only turns ``among``
    those count, None counts all.
    """
    order = sorted(
        (median(one), number) for number, one in enumerate(turns) if one and (among is None or number in among)
    )
    return frozenset(number for _, number in order[: (len(order) + 1) // 2])
