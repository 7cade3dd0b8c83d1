"""Many models predicted at once: the steps of a service, whose layers repeat, in one workload."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from analyzer.arrays import Floats
from analyzer.devices.device import Device
from analyzer.prediction.cpu.ceilings import CPU_CALL_S
from analyzer.prediction.estimate import Estimate
from analyzer.prediction.gpu.launch import CALL_S, HOST_WIDTH, REPLAY_S, launch_of
from analyzer.prediction.predict import host_times, predict_arrays
from analyzer.prediction.workload import Workload, joined


def stacked(models: Sequence[tuple[Workload, Sequence[int]]]) -> Workload:
    """One workload of several models.

    Args:
        models: Each with how many groups of the model each of its groups stands for.
    """
    works = [work for work, _ in models]
    return replace(
        joined(works),
        copies=np.concatenate([np.asarray(copies, dtype=np.float64) for _, copies in models]),
        model=np.repeat(np.arange(len(works)), [work.groups for work in works]),
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ModelTimes:
    """One run of each model, by model, in seconds; copies to and from the device apart.

    Attributes:
        time_s, low_s, high_s: A run, with its 90 % interval.
        groups_s: Each group's time by itself, its copies included.
    """

    time_s: Floats
    low_s: Floats
    high_s: Floats
    groups_s: Floats

    def of(self, model: int) -> Estimate:
        """The run of one model."""
        return Estimate(
            value=float(self.time_s[model]),
            low=float(self.low_s[model]),
            high=float(self.high_s[model]),
            origin="predicted",
        )


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

    Args:
        work: From ``stacked``.
        device: A CPU or a GPU.
        precision: ``fp32``, ``tf32``, ``fp16`` or ``bf16``.
        threads: Intra-op threads of a CPU; None is one per core.
        host: The CPU that launches on a GPU; None for one of the usual speed.
        replayed: Whether CUDA graphs are replayed, not node by node launched.
    """
    assert work.copies is not None
    assert work.model is not None
    times = predict_arrays(work, device, precision=precision, threads=threads, host=host, replayed=replayed)
    copies, model = work.copies, work.model

    def summed(each: Floats) -> Floats:
        return np.asarray(np.bincount(model, weights=each * copies), dtype=np.float64)

    time, low, high = summed(times.time_s), summed(times.low_s), summed(times.high_s)
    if device.kind == "cpu":
        once, width = CPU_CALL_S, HOST_WIDTH
        launched = np.zeros(len(time))
    elif replayed:
        once, width = REPLAY_S, HOST_WIDTH
        launched = np.zeros(len(time))
    else:
        once, width = CALL_S, launch_of(device, host).width
        launched = summed(host_times(work, device, host))
    return ModelTimes(
        time_s=np.maximum(time, launched) + once,
        low_s=np.maximum(low, launched / width) + once / width,
        high_s=np.maximum(high, launched * width) + once * width,
        groups_s=times.time_s * copies,
    )
