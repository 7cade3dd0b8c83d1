"""Joules: power while each resource is busy, times how long it is.

P = P_idle + u (P_max - P_idle). A GPU is at full use while kernels run that compute or move data, idle while it
waits for launches, copies or the CPU. Cooling and memory modules are not counted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from analyzer.decision.error_components import Resource
from analyzer.devices.device import Device
from analyzer.text import listed, plural
from analyzer.units import digits

# Share of TDP, idle and at full use: ratios of Teads as used by Cloud Carbon Footprint (T4 8 and 71 W of 70,
# A100 46 and 407 W of 400, V100 35 and 306 W of 300). Its model, P_idle + u (P_max - P_idle), is this one's too
# (cloudcarbonfootprint.org/docs/methodology).
GPU_IDLE, GPU_FULL = 0.11, 1.02
# Watts per hardware thread, idle and full: Cloud Carbon Footprint's coefficients from SPECpower (repository
# cloud-carbon-footprint/cloud-carbon-coefficients). Zen 2 and Graviton2 share a row there.
CPU_WATTS_PER_THREAD: Mapping[str, tuple[float, float]] = {
    "cascade lake": (0.64, 3.97),
    "skylake": (0.65, 4.26),
    "broadwell": (0.71, 3.69),
    "zen 2": (0.47, 1.69),
    "graviton2": (0.47, 1.69),
    "zen 3": (0.45, 2.02),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Power:
    """Watts of a device."""

    idle: float
    full: float


def power(device: Device) -> Power | None:
    """Return idle and full power of a device; None where its TDP is needed and not known.

    A CPU with a known TDP draws it at full use and idles at the ratio of Cascade Lake; another one counts by
    hardware thread, an unknown family as the mean of the known ones.
    """
    if device.kind == "gpu":
        if device.tdp_w is None:
            return None
        return Power(idle=GPU_IDLE * device.tdp_w, full=GPU_FULL * device.tdp_w)
    if device.tdp_w is not None:
        # No source gives a server CPU's idle power beside its TDP: 16 % of full use, where the table has 15 to
        # 28.
        idle, full = CPU_WATTS_PER_THREAD["cascade lake"]
        return Power(idle=device.tdp_w * idle / full, full=device.tdp_w)
    idle, full = _per_thread(f"{device.architecture} {device.name}".lower())
    return Power(idle=idle * device.threads, full=full * device.threads)


def _per_thread(family: str) -> tuple[float, float]:
    for name, watts in CPU_WATTS_PER_THREAD.items():
        if name in family:
            return watts
    known = tuple(CPU_WATTS_PER_THREAD.values())
    return sum(idle for idle, _ in known) / len(known), sum(full for _, full in known) / len(known)


def counted(cpu: Device, gpu: Device | None) -> str:
    """Return whose power a machine's is, idle to full: ``8 threads of AMD EPYC (4 to 16 W)``."""
    threads = "" if cpu.tdp_w is not None else f"{plural(cpu.threads, 'thread')} of "
    named = [f"{threads}{cpu.name}{_range(power(cpu))}"]
    if gpu is not None:
        named.append(f"{gpu.name}{_range(power(gpu))}")
    return listed(named)


def _range(drawn: Power | None) -> str:
    return "" if drawn is None else f" ({digits(drawn.idle, 2)} to {digits(drawn.full, 2)} W)"


def watts(cpu: Device, gpu: Device | None) -> Mapping[Resource, float] | None:
    """Return power of the whole machine while each resource is the busy one; None where it is not known."""
    host = power(cpu)
    card = power(gpu) if gpu is not None else Power(idle=0.0, full=0.0)
    if host is None or card is None:
        return None
    # A thread that waits for the card spins: CUDA's default where there are more processors than contexts
    # (CUDA Runtime API, cudaDeviceScheduleAuto).
    waiting = host.idle + (host.full - host.idle) / max(1, cpu.threads)
    return {
        "cpu": host.full + card.idle,
        "gpu": waiting + card.full,
        "launch": waiting + card.idle,
        "link": waiting + card.idle,
    }
