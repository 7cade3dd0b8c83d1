"""Many models predicted at once: the steps of a service, whose layers repeat, in one workload."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from analyzer.arrays import Floats
from analyzer.devices.device import Device
from analyzer.prediction.cpu.ceilings import CPU_CALL_S
from analyzer.prediction.estimate import Times
from analyzer.prediction.gpu.launch import CALL_S, HOST_WIDTH, REPLAY_S, launch_of
from analyzer.prediction.predict import host_times, predict_arrays
from analyzer.prediction.workload import Workload, joined


def stacked(models: Sequence[tuple[Workload, Sequence[int]]]) -> Workload:
    """One workload of several models, each with how many groups of the model each of its groups stands for."""
    works = [work for work, _ in models]
    return replace(
        joined(works),
        copies=np.concatenate([np.asarray(copies, dtype=np.float64) for _, copies in models]),
        model=np.repeat(np.arange(len(works)), [work.groups for work in works]),
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ModelTimes(Times):
    """One run of each model, by model, in seconds; copies to and from the device apart.

    Attributes:
        groups_s: Each group's time by itself, its copies included.
    """

    groups_s: Floats


def model_times(
    work: Workload,
    device: Device,
    *,
    precision: str,
    threads: int | None = None,
    host: Device | None = None,
    replayed: bool = False,
) -> ModelTimes:
    """One run of each model of a stacked workload.

    On a GPU the longer of the host's launches and the kernels with their gaps, and one call; where one CUDA
    graph is replayed, kernels and gaps and one replay; on a CPU the sum of its operators and one call.

    Arguments are those of ``predict_arrays``.
    """
    assert work.copies is not None
    assert work.model is not None
    times = predict_arrays(work, device, precision=precision, threads=threads, host=host, replayed=replayed)
    copies, model = work.copies, work.model

    def summed(each: Floats) -> Floats:
        return np.asarray(np.bincount(model, weights=each * copies), dtype=np.float64)

    time, low, high = summed(times.value), summed(times.low), summed(times.high)
    if device.kind == "cpu" or replayed:
        once, width = CPU_CALL_S if device.kind == "cpu" else REPLAY_S, HOST_WIDTH
        launched = np.zeros(len(time))
    else:
        once, width = CALL_S, launch_of(device, host).width
        launched = summed(host_times(work, device, host))
    return ModelTimes(
        value=np.maximum(time, launched) + once,
        low=np.maximum(low, launched / width) + once / width,
        high=np.maximum(high, launched * width) + once * width,
        groups_s=times.value * copies,
    )
