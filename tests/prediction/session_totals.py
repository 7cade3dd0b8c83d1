"""A session's time by its definition: what the times of its groups must add up to."""

from __future__ import annotations

import numpy as np

from analyzer.devices.device import Device
from analyzer.figures import total
from analyzer.prediction import Workload
from analyzer.prediction.cpu.ceilings import CPU_CALL_S
from analyzer.prediction.estimate import Estimate, limited
from analyzer.prediction.gpu.launch import CALL_S, HOST_WIDTH, launch_of
from analyzer.prediction.predict import BOUNDS, host_times, predict_arrays


def predict_total(
    work: Workload,
    device: Device,
    *,
    precision: str = "fp32",
    threads: int | None = None,
    host: Device | None = None,
) -> Estimate:
    """One run of all groups on one device, copies of inputs and outputs apart.

    On a GPU ``max(nodes x host time, sum of kernels and gaps)`` and one call; on a CPU the sum and one call.
    """
    times = predict_arrays(work, device, precision=precision, threads=threads, host=host)
    bound = np.bincount(times.bound, weights=times.value, minlength=3).argmax()
    whole = limited(times.total(), BOUNDS[int(bound)])
    return session_time(whole, session_overhead(work, device, host), device)


def session_overhead(work: Workload, device: Device, host: Device | None = None) -> Estimate:
    """What a session costs besides its operators: on a GPU the host's time for all nodes, on a CPU one call.

    On a GPU the host's work and the kernels run side by side: the session takes the longer of both.
    """
    if device.kind == "cpu":
        known, threads = device.calibration, int(device.calibration.get("threads", 1))
        time, width = known.get(f"run.t{threads}", known.get(f"call.t{threads}", CPU_CALL_S)), HOST_WIDTH
    else:
        time, width = float(host_times(work, device, host).sum()), launch_of(device, host).width
    return Estimate(value=time, low=time / width, high=time * width, origin="predicted", bound="overhead")


def session_time(parts: Estimate, overhead: Estimate, device: Device) -> Estimate:
    """A session's time from the sum of its groups' and its overhead; the longer of both on a GPU."""
    if device.kind == "cpu":
        return limited(total((parts, overhead)), parts.bound)
    host = overhead.value > parts.value
    call = CALL_S if parts.value > 0 else 0.0
    width = overhead.high / overhead.value if overhead.value > 0 else HOST_WIDTH
    return Estimate(
        value=max(parts.value, overhead.value) + call,
        low=max(parts.low, overhead.low) + call / width,
        high=max(parts.high, overhead.high) + call * width,
        origin=parts.origin,
        bound="overhead" if host else parts.bound,
    )
