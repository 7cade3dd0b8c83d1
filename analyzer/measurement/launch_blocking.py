"""Operator times from blocking launches: how a launch's own time is taken out of an operator's.

For a GPU that nobody can record: with ``CUDA_LAUNCH_BLOCKING`` every launch waits for its kernel.

ONNX Runtime's profile then shows execution as well, and with it the launch and the wait, some microseconds for
each kernel. That bias is measured on a chain of tiny kernels and taken off; what is left is scaled to the
latency. Coarse: right for kernels well above 20 microseconds, hardly more than an order of size below.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from analyzer.errors import MeasurementError
from analyzer.measurement import profile
from analyzer.measurement.child_messages import OPTIMIZED_FULL, Reporter
from analyzer.measurement.noise import Bias, chain
from analyzer.measurement.on_cpu import feeds_for
from analyzer.measurement.request import Latency, MeasureRequest, NodeTime
from analyzer.measurement.session import NOTHING, SessionSettings, bind, bind_session, create, settings_for
from analyzer.measurement.timing_loops import median

# CUDA reads it once, when the process makes its context.
ENVIRONMENT = {"CUDA_LAUNCH_BLOCKING": "1"}
METHOD = "ONNX Runtime's profile with blocking launches, bias taken off, scaled to the latency"
_CHAIN = 64
# The first three allocate and choose algorithms; nine are left for a median.
_RUNS = 12
_SKIPPED = 3
# A kernel that does nothing still takes this long on the GPU itself.
_EMPTY_KERNEL_S = 2e-6


def measure_blocking(request: MeasureRequest, folder: Path, reporter: Reporter, latency: Latency) -> None:
    """Profile with blocking launches; this process must have been started with ``ENVIRONMENT``."""
    reporter.progress("profiling with blocking launches", 0.7)
    settings = settings_for(request)
    bias = _bias(settings, folder)
    session = create(
        request.model_path,
        replace(settings, profile_prefix=folder / "blocking", optimized_path=folder / OPTIMIZED_FULL),
    )
    feeds = feeds_for(request, session, reporter)
    bound = bind_session(session, feeds, "cuda", request.device_id, in_place=request.in_place or NOTHING)
    for _ in range(_RUNS):
        bound.call()
    raw = profile.by_node(profile.runs(profile.ended(session), skip=range(_SKIPPED)))
    if not raw:
        raise MeasurementError("the profile with blocking launches is empty", hint="use --no-run")
    nodes, factor = scaled(raw, bias, latency)
    reporter.update(factor=factor, residual_s=latency.value * (1 - 1 / factor), bias_s=bias.profiler_s)
    reporter.message("operator times on the GPU are from blocking launches: coarse below 20 microseconds")
    reporter.nodes(nodes)


def _bias(settings: SessionSettings, folder: Path) -> Bias:
    """Return the time that a tiny kernel shows beyond its own."""
    import numpy as np

    chained = replace(settings, optimize=False, profile_prefix=folder / "bias", optimized_path=None)
    bound = bind(chain(_CHAIN), {"t0": np.ones(1, np.float32)}, chained)
    for _ in range(_RUNS):
        bound.call()
    nodes = profile.by_node(profile.runs(profile.ended(bound.session), skip=range(_SKIPPED)))
    shown = median([node.time.value for node in nodes])
    return Bias(profiler_s=max(0.0, shown - _EMPTY_KERNEL_S), dispatch_s=_EMPTY_KERNEL_S, call_s=0.0)


def scaled(raw: Sequence[profile.RawTime], bias: Bias, latency: Latency) -> tuple[tuple[NodeTime, ...], float]:
    """Node times that add up to the latency, and the factor that made them do so.

    A node that shows less than the bias launches nothing (a view): it keeps a tenth of what it shows.
    """
    shown = [(node.time.value, bias.profiler_s * node.calls) for node in raw]
    true = [max(time_s * 0.1, 1e-9) if time_s < bias_s else time_s - bias_s for time_s, bias_s in shown]
    factor = latency.value / sum(true)
    nodes = tuple(
        node.timed(
            time_s * factor,
            # The bias is known for one kernel; a node may launch several.
            max(0.0, time_s * factor - bias.profiler_s),
            max(node.time.high, time_s * factor),
            raw_s=node.time.value,
            method=METHOD,
        )
        for node, time_s in zip(raw, true, strict=True)
    )
    return nodes, factor
