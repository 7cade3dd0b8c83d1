"""The machine during a measurement: cores, load, and the time that other processes took."""

from __future__ import annotations

import os
import sys
import time
from dataclasses import dataclass

from analyzer.devices.calibration import affinity_cores

# Other processes below this many cores are the background noise of any system.
NOTICEABLE_CORES = 0.25


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """The machine's load over a span of time.

    Attributes:
        wall_s: Length of the span.
        others_cores: Cores that other processes (and other guests of the host) used on average.
        stolen_cores: The part of ``others_cores`` that the hypervisor gave to other guests.
        available_cores: Cores that this process may use.
    """

    wall_s: float
    others_cores: float
    stolen_cores: float
    available_cores: int

    def contention(self, threads: int) -> float:
        """Return cores that were wanted and not there, as a share of the threads; 0 on a quiet machine."""
        if self.others_cores < NOTICEABLE_CORES:
            return 0.0
        # Others may be moved aside as long as cores are free: only what does not fit disturbs.
        lacking = threads + self.others_cores - self.available_cores
        return min(1.0, max(0.0, lacking) / threads)

    def is_busy(self) -> bool:
        """Return whether other processes took enough to be worth a word."""
        return self.others_cores >= NOTICEABLE_CORES

    def sentence(self, threads: int) -> str:
        """Return the report's sentence about it."""
        stolen = (
            f", {self.stolen_cores:.1f} of them by other guests of the host" if self.stolen_cores >= 0.1 else ""
        )
        text = (
            f"the machine was busy: other processes used {self.others_cores:.1f} of {self.available_cores} "
            f"cores{stolen} while {threads} thread{'s' if threads != 1 else ''} of the model ran"
        )
        if self.contention(threads):
            return f"{text}; times are too high, their intervals are widened"
        return f"{text}; enough cores were left"


@dataclass(frozen=True, slots=True)
class Snapshot:
    """CPU seconds since boot, and this process's own, at one moment."""

    wall_s: float
    busy_s: float
    stolen_s: float
    own_s: float


def snapshot() -> Snapshot:
    """Return the counters now."""
    import psutil

    times = psutil.cpu_times()
    # ``steal`` (Linux in a virtual machine) is time when a core was ready to run and the host gave it to
    # others.
    stolen = float(getattr(times, "steal", 0.0))
    # Names differ by system; ``idle`` and ``iowait`` are no work, ``guest`` is part of ``user`` on Linux.
    busy = sum(
        float(getattr(times, kind, 0.0))
        for kind in ("user", "nice", "system", "irq", "softirq", "interrupt", "dpc")
    )
    return Snapshot(time.perf_counter(), busy + stolen, stolen, time.process_time())


def load_between(before: Snapshot, after: Snapshot) -> Load:
    """Return the load between two snapshots."""
    wall = max(after.wall_s - before.wall_s, 1e-9)
    own = (after.own_s - before.own_s) / wall
    busy = (after.busy_s - before.busy_s) / wall
    return Load(
        wall_s=wall,
        others_cores=max(0.0, busy - own),
        stolen_cores=max(0.0, after.stolen_s - before.stolen_s) / wall,
        available_cores=available_cores(),
    )


def available_cores() -> int:
    """Logical processors that this process may use: its affinity, and its control group's quota."""
    affinity = affinity_cores()
    # A container's quota is not in the affinity: ONNX Runtime would start a thread for each core of the host.
    quota = _quota()
    return max(1, min(affinity, quota)) if quota else affinity


def _quota() -> int | None:
    try:
        # Control groups, version 2: "max 100000" or "200000 100000", microseconds of a period.
        with open("/sys/fs/cgroup/cpu.max", encoding="ascii") as file:
            limit, period = file.read().split()
    except (OSError, ValueError):
        return None
    return None if limit == "max" else max(1, round(int(limit) / int(period)))


def default_threads() -> int:
    """Return threads that ONNX Runtime takes unless told otherwise: one per physical core that it may use."""
    import psutil

    # Hyper-threads share the arithmetic units that a product fills.
    physical = psutil.cpu_count(logical=False) or available_cores()
    return max(1, min(physical, available_cores()))


def load_average() -> float | None:
    """Return the system's load over the last minute, None where the system does not tell."""
    try:
        return os.getloadavg()[0]
    except (AttributeError, OSError):
        return None


def resident_bytes() -> int:
    """Resident memory of this process now."""
    import psutil

    return int(psutil.Process().memory_info().rss)


def peak_resident_bytes() -> int | None:
    """Largest resident memory of this process so far, None where the system does not tell."""
    try:
        import resource
    except ImportError:
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    # getrusage(2): kilobytes on Linux, bytes on macOS.
    return peak if sys.platform == "darwin" else peak * 1024
