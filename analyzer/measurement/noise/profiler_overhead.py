"""How the profiler's own time is taken out of an operator's: its bias, measured on nodes that do nothing.

Two chains of one-element operators, a short and a long one: unprofiled, the difference of their times over the
difference of their lengths is the true cost of dispatching one node, and what is left is the cost of a call.
Profiled, the same nodes show that cost plus the profiler's own.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from analyzer.measurement import profile
from analyzer.measurement.noise.timing_loops import Budget, timed_runs
from analyzer.measurement.session import SessionSettings, create
from analyzer.measurement.statistics import median

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
    """A model of ``length`` operators in a row, each on so many elements."""
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
