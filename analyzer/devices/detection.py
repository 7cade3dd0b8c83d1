"""The processors of this machine: the CPU with its calibration, the first CUDA GPU."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from analyzer.devices.calibration import load_calibration
from analyzer.devices.catalogue import DEFAULT_CPU, device, gpus, match_cpu
from analyzer.devices.device import Device
from analyzer.devices.nvml import driver, handle

# FLOPs per cycle and core in fp32 by what the CPU says it can do, widest first: two FMA units of that width.
_FLOP_PER_CYCLE = (("avx512f", 64.0), ("avx2", 32.0), ("fma", 32.0), ("asimd", 16.0), ("avx", 16.0))
_PLAIN_FLOP_PER_CYCLE = 8.0
_MEMORY_COPY_BYTES = 256 << 20
# What one core streams at least: half of what the reference core of prediction/reference_core.toml does.
_CORE_BYTES_PER_S = 20e9
_SOURCE_MEASURED = "measured on this machine by `analyze calibrate`"


def this_cpu(calibration: Mapping[str, float] | None = None) -> Device:
    """The CPU of this machine.

    Peaks and bandwidth are the calibrated ones where there is a calibration, else the catalogue's share of the
    same model, else what its instruction set and clock suggest, with an assumed bandwidth.

    Args:
        calibration: Ceilings by key of ``devices.calibration``; None loads those kept for this machine.
    """
    told = _told()
    measured = load_calibration() if calibration is None else calibration
    found = _from_words(told)
    return found if not measured else _calibrated(found, measured)


def local_gpu() -> Device | None:
    """The first GPU that CUDA sees here, by its entry in the catalogue; None where there is none.

    A GPU that the catalogue does not hold is described by what the driver tells, its peaks by the nearest
    entry of its architecture.
    """
    try:
        with driver() as nvml:
            first = handle(nvml)
            name = _text(nvml.nvmlDeviceGetName(first))
            memory = int(nvml.nvmlDeviceGetMemoryInfo(first).total)
            capability = ".".join(str(part) for part in nvml.nvmlDeviceGetCudaComputeCapability(first))
    except (
        Exception
    ):  # no driver, no library, none visible: each of its own kind, all mean that there is no GPU
        return None
    return gpu_by_name(name, memory, capability, load_calibration() or {})


def gpu_by_name(
    name: str, memory_bytes: int, capability: str, calibration: Mapping[str, float]
) -> Device | None:
    """The catalogue's GPU that a driver calls by this name, with what was measured here.

    Args:
        name: ``NVIDIA A100-SXM4-80GB``.
        memory_bytes: Its memory, which tells variants apart.
        capability: ``8.0``.
        calibration: Ceilings of this machine.
    """
    words = _words(name)
    cards = gpus()
    same = [card for card in cards if card.compute_capability == capability]
    major = f"{capability.partition('.')[0]}."
    same = same or [card for card in cards if card.compute_capability.startswith(major)]
    ranked = sorted(same, key=lambda card: (-_likeness(words, card), _memory_distance(card, memory_bytes)))
    if not ranked:
        return None
    best = ranked[0]
    measured = {key: value for key, value in calibration.items() if key.startswith("cuda.")}
    exact = _likeness(words, best) >= 1
    return replace(
        best,
        name=name,
        memory_bytes=memory_bytes,
        origin="calibrated" if measured else "catalogue",
        calibration=measured,
        notes=best.notes if exact else f"Not in the catalogue; figures of the {best.name}.",
        assumed=best.assumed if exact else (*best.assumed, "model"),
    )


def _told() -> Mapping[str, Any]:
    """What the CPU says of itself, in py-cpuinfo's words; Linux tells at once, py-cpuinfo takes a second."""
    try:
        first = Path("/proc/cpuinfo").read_text(encoding="utf-8").split("\n\n", maxsplit=1)[0]
    except OSError:
        first = ""
    rows = {
        key.strip(): value.strip() for key, _, value in (line.partition(":") for line in first.splitlines())
    }
    if "model name" not in rows:
        import cpuinfo

        told: Mapping[str, Any] = cpuinfo.get_cpu_info()
        return told
    return {
        "brand_raw": rows["model name"],
        "vendor_id_raw": rows.get("vendor_id", ""),
        "flags": rows.get("flags", rows.get("Features", "")).split(),
        "hz_actual": (_nominal_hertz(rows),),
    }


def _nominal_hertz(rows: Mapping[str, str]) -> int:
    """A clock that is the same at every look: by name, by the system's limit, else what /proc says."""
    _, _, named = rows["model name"].partition("@")
    if named.strip().lower().endswith("ghz"):
        return int(float(named.strip()[:-3]) * 1e9)
    for name in ("base_frequency", "cpuinfo_max_freq"):
        path = Path("/sys/devices/system/cpu/cpu0/cpufreq") / name
        try:
            return int(path.read_text(encoding="ascii")) * 1000
        except (OSError, ValueError):
            continue
    return int(float(rows.get("cpu MHz", 0)) * 1e6)


def _from_words(told: Mapping[str, Any]) -> Device:
    cores, threads = _cores(), _threads()
    brand = str(told.get("brand_raw", "")).strip() or "CPU of this machine"
    clock = float((told.get("hz_actual") or told.get("hz_advertised") or (0,))[0]) or None
    known = match_cpu(brand)
    if known is not None:
        share = min(1.0, cores / known.units)
        return replace(
            known,
            name=brand,
            units=cores,
            threads=threads,
            peak_flops_per_s={key: peak * share for key, peak in known.peak_flops_per_s.items()},
            bandwidth_bytes_per_s=known.bandwidth_bytes_per_s * share,
            memory_bytes=_memory(),
        )
    flags = set(told.get("flags", ()))
    rate = next((value for flag, value in _FLOP_PER_CYCLE if flag in flags), _PLAIN_FLOP_PER_CYCLE)
    usual = device(DEFAULT_CPU)
    hertz = clock or usual.clock_hz or 2.5e9
    return Device(
        slug="this-cpu",
        name=brand,
        kind="cpu",
        vendor=str(told.get("vendor_id_raw", "")),
        peak_flops_per_s={"fp64": cores * rate * hertz / 2, "fp32": cores * rate * hertz},
        bandwidth_bytes_per_s=min(usual.bandwidth_bytes_per_s, _CORE_BYTES_PER_S * cores),
        memory_bytes=_memory(),
        units=cores,
        threads=threads,
        clock_hz=clock,
        cache_bytes=_cache(told),
        tdp_w=None,
        source="instruction set and clock as the CPU tells them; bandwidth assumed by core",
        notes="Not calibrated: run `analyze calibrate` for measured ceilings.",
        assumed=("bandwidth_bytes_per_s",),
    )


def _calibrated(found: Device, measured: Mapping[str, float]) -> Device:
    threads = int(measured.get("threads", 1))
    rates = [value for key, value in measured.items() if key.startswith(f"gemm.float32.t{threads}.")]
    doubles = [value for key, value in measured.items() if key.startswith(f"gemm.float64.t{threads}.")]
    narrow = [value for key, value in measured.items() if key.startswith(f"gemm.int8.t{threads}.")]
    peaks = dict(found.peak_flops_per_s)
    for name, seen in (("fp32", rates), ("fp64", doubles), ("int8", narrow)):
        if seen:
            peaks[name] = max(seen)
    memory = measured.get(f"copy.t{threads}.{_MEMORY_COPY_BYTES}")
    return replace(
        found,
        slug="this-cpu",
        peak_flops_per_s=peaks,
        bandwidth_bytes_per_s=memory or found.bandwidth_bytes_per_s,
        units=min(found.units, int(measured.get("cores", found.units))),
        origin="calibrated",
        source=_SOURCE_MEASURED,
        notes="",
        calibration=measured,
        assumed=(),
    )


def _cores() -> int:
    """Cores that this process may use; logical ones where the machine does not tell physical ones."""
    import psutil

    logical = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(logical, psutil.cpu_count(logical=False) or logical))


def _threads() -> int:
    """Hardware threads of the whole machine."""
    return os.cpu_count() or 1


def _memory() -> int | None:
    import psutil

    return int(psutil.virtual_memory().total)


def _cache(told: Mapping[str, Any]) -> int | None:
    """The third-level cache, from the system where it tells."""
    try:
        text = Path("/sys/devices/system/cpu/cpu0/cache/index3/size").read_text(encoding="ascii").strip()
        return int(text[:-1]) * {"K": 1024, "M": 1024**2}[text[-1]]
    except (OSError, ValueError, KeyError, IndexError):
        size = told.get("l3_cache_size")
        return size if isinstance(size, int) and size > 0 else None


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value


def _words(name: str) -> frozenset[str]:
    split = name.lower().replace("-", " ").replace("/", " ").split()
    return frozenset(word for word in split if word not in ("nvidia", "tesla", "geforce", "graphics", "device"))


def _likeness(words: frozenset[str], card: Device) -> int:
    """Shared words of the model's own; a number that differs (A10, A100) is no likeness."""
    own = _words(f"{card.name} {card.memory_type}")
    model = {
        word
        for word in own
        if any(sign.isdigit() for sign in word) and not word.endswith("gb") and "dr" not in word
    }
    return len(words & own) if model & words else 0


def _memory_distance(card: Device, memory_bytes: int) -> float:
    return abs((card.memory_bytes or 0) - memory_bytes)
