"""The processors of this machine: the CPU with its calibration, the first CUDA GPU."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from analyzer.devices.calibration import affinity_cores, disturbance, first_processor, load_calibration
from analyzer.devices.catalogue import DEFAULT_CPU, device, gpus, match_cpu
from analyzer.devices.device import Device
from analyzer.devices.nvml import driver, handle, text

# FLOPs per cycle and core in fp32 by what the CPU says it can do, widest first: two FMA units of that width
# (lanes x 2 operations x 2 units). AVX without FMA adds and multiplies on one unit each, SSE likewise on half
# the lanes. A CPU with one AVX-512 unit does half of it, but the flags do not tell.
_FLOP_PER_CYCLE = (("avx512f", 64.0), ("avx2", 32.0), ("fma", 32.0), ("asimd", 16.0), ("avx", 16.0))
_PLAIN_FLOP_PER_CYCLE = 8.0
# Operations on bytes over those on fp32, of instructions that multiply and add four at once, and of tiles.
_INT8_GAIN = (("amx_int8", 32.0), ("avx512_vnni", 4.0), ("avx_vnni", 4.0))
_MEMORY_COPY_BYTES = 256 << 20  # beyond any cache, and the largest key of `copy.t{T}.{bytes}`
# What one core streams at least: half of what the reference core of prediction/reference_core.toml does.
_CORE_BYTES_PER_S = 20e9
_SOURCE_MEASURED = "measured on this machine by `analyze calibrate`"
# Of a calibration's keys those in FLOP/s, and the types in them whose arithmetic is of each precision.
_PRODUCTS = "gemm|gemm_dynamic|gemm_trans|bmm|conv|attention"
_PROBED_IN = {"fp32": "float32", "fp64": "float64", "int8": "int8|u8s8|u8u8|dynamic|nbits[48]a4"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """The processors of a machine: its CPU with its calibration, and its first GPU."""

    cpu: Device
    gpu: Device | None


# Set only where work is done for another machine.
_STOOD_FOR: ContextVar[Machine | None] = ContextVar("machine that is stood for", default=None)


def this_machine() -> Machine:
    """Return the processors of this machine, or of the one that it stands for."""
    return Machine(cpu=this_cpu(), gpu=local_gpu())


@contextmanager
def standing_for(machine: Machine | None) -> Iterator[None]:
    """Has "this machine" mean another one: where a fleet is spread, the one that asks; None changes nothing."""
    token = _STOOD_FOR.set(machine)
    try:
        yield
    finally:
        _STOOD_FOR.reset(token)


def this_cpu(calibration: Mapping[str, float] | None = None) -> Device:
    """Return the CPU of this machine.

    Peaks and bandwidth are the calibrated ones where there is a calibration, else the catalogue's share of the
    same model, else what its instruction set and clock suggest, with an assumed bandwidth. With None the
    calibration that is kept for this machine is loaded.
    """
    machine = _STOOD_FOR.get()
    if machine is not None and calibration is None:
        return machine.cpu
    description = _cpu_description()
    measured = load_calibration() if calibration is None else calibration
    cpu = _described_cpu(description)
    return cpu if not measured else _calibrated(cpu, measured)


def local_gpu() -> Device | None:
    """Return the first GPU that CUDA sees here, by its entry in the catalogue; None where there is none.

    A GPU that the catalogue does not hold is described by what the driver tells, its peaks by the nearest
    entry of its architecture.
    """
    machine = _STOOD_FOR.get()
    if machine is not None:
        return machine.gpu
    try:
        with driver() as nvml:
            gpu = handle(nvml)
            name = text(nvml.nvmlDeviceGetName(gpu))
            memory = int(nvml.nvmlDeviceGetMemoryInfo(gpu).total)
            capability = ".".join(str(part) for part in nvml.nvmlDeviceGetCudaComputeCapability(gpu))
    except (
        Exception
    ):  # no driver, no library, none visible: each of its own kind, all mean that there is no GPU
        return None
    return gpu_by_name(name, memory, capability, load_calibration() or {})


def gpu_by_name(
    name: str, memory_bytes: int, capability: str, calibration: Mapping[str, float]
) -> Device | None:
    """Return catalogue's GPU that a driver calls ``NVIDIA A100-SXM4-80GB`` (8.0), with what was measured here.

    Its memory tells variants apart.
    """
    words = _words(name)
    cards = gpus()
    candidates = [card for card in cards if card.compute_capability == capability]
    major = f"{capability.partition('.')[0]}."
    # An unknown card is nearest to one of its generation: the same major number, the same kind of tensor cores.
    candidates = candidates or [card for card in cards if card.compute_capability.startswith(major)]
    ranked = sorted(
        candidates,
        key=lambda card: (-_likeness(words, card), abs((card.memory_bytes or 0) - memory_bytes)),
    )
    if not ranked:
        return None
    best = ranked[0]
    measured_on_gpu = {key: value for key, value in calibration.items() if key.startswith("cuda.")}
    exact = _likeness(words, best) >= 1
    return replace(
        best,
        name=name,
        memory_bytes=memory_bytes,
        origin="calibrated" if measured_on_gpu else "catalogue",
        calibration=measured_on_gpu,
        notes=best.notes if exact else f"Not in the catalogue; figures of the {best.name}.",
        assumed=best.assumed if exact else (*best.assumed, "model"),
    )


def _cpu_description() -> Mapping[str, Any]:
    """Return the CPU's description in py-cpuinfo's keys; Linux has it at once, py-cpuinfo takes a second."""
    rows = first_processor()
    if "model name" not in rows:
        import cpuinfo

        description: Mapping[str, Any] = cpuinfo.get_cpu_info()
        return description
    return {
        "brand_raw": rows["model name"],
        "vendor_id_raw": rows.get("vendor_id", ""),
        "flags": rows.get("flags", rows.get("Features", "")).split(),
        "hz_actual": (_nominal_hertz(rows),),
    }


def _nominal_hertz(rows: Mapping[str, str]) -> int:
    """Return a clock that is the same at every look: by name, by the system's limit, else what /proc says."""
    # Intel writes the base clock into the name ("@ 2.50GHz"); "cpu MHz" is the clock of the moment and changes
    # from look to look, so that two records of one machine would differ.
    _, _, clock_in_name = rows["model name"].partition("@")
    if clock_in_name.strip().lower().endswith("ghz"):
        return int(float(clock_in_name.strip()[:-3]) * 1e9)
    for name in ("base_frequency", "cpuinfo_max_freq"):
        path = Path("/sys/devices/system/cpu/cpu0/cpufreq") / name
        try:
            return int(path.read_text(encoding="ascii")) * 1000  # sysfs gives kHz
        except (OSError, ValueError):
            continue
    return int(float(rows.get("cpu MHz", 0)) * 1e6)


def _described_cpu(description: Mapping[str, Any]) -> Device:
    cores, threads = _cores(), _threads()
    brand = str(description.get("brand_raw", "")).strip() or "CPU of this machine"
    clock = float((description.get("hz_actual") or description.get("hz_advertised") or (0,))[0]) or None
    listed = match_cpu(brand)
    if listed is not None:
        # A virtual machine or a container has a part of the processor: peak and bandwidth by its cores.
        share = min(1.0, cores / listed.units)
        return replace(
            listed,
            name=brand,
            units=cores,
            threads=threads,
            peak_flops_per_s={key: peak * share for key, peak in listed.peak_flops_per_s.items()},
            bandwidth_bytes_per_s=listed.bandwidth_bytes_per_s * share,
            memory_bytes=_memory_bytes(),
        )
    flags = set(description.get("flags", ()))
    rate = next((value for flag, value in _FLOP_PER_CYCLE if flag in flags), _PLAIN_FLOP_PER_CYCLE)
    usual = device(DEFAULT_CPU)
    hertz = clock or usual.clock_hz or 2.5e9
    gain = next((value for flag, value in _INT8_GAIN if flag in flags), None)
    integers = {} if gain is None else {"int8": cores * rate * hertz * gain}
    return Device(
        slug="this-cpu",
        name=brand,
        kind="cpu",
        vendor=str(description.get("vendor_id_raw", "")),
        peak_flops_per_s={"fp64": cores * rate * hertz / 2, "fp32": cores * rate * hertz, **integers},
        # Few cores cannot draw a whole server's bandwidth, many do not have more than its memory channels give.
        bandwidth_bytes_per_s=min(usual.bandwidth_bytes_per_s, _CORE_BYTES_PER_S * cores),
        memory_bytes=_memory_bytes(),
        units=cores,
        threads=threads,
        clock_hz=clock,
        cache_bytes=_cache_bytes(description),
        tdp_w=None,
        source="instruction set and clock as the CPU tells them; bandwidth assumed by core",
        notes="Not calibrated: run `analyze calibrate` for measured ceilings.",
        assumed=("bandwidth_bytes_per_s",),
    )


def _calibrated(cpu: Device, measured: Mapping[str, float]) -> Device:
    threads = int(measured.get("threads", 1))
    peaks = dict(cpu.peak_flops_per_s)
    for precision, kinds in _PROBED_IN.items():
        key_of_rate = re.compile(rf"(?:{_PRODUCTS})\.(?:{kinds})\.t{threads}\.")
        rates = [value for key, value in measured.items() if key_of_rate.match(key)]
        if rates:
            # The best kernel and shape stand for the peak, as on a data sheet: what is predicted of the single
            # ones stays below it.
            peaks[precision] = max(rates)
    bandwidth = measured.get(f"copy.t{threads}.{_MEMORY_COPY_BYTES}")
    return replace(
        cpu,
        slug="this-cpu",
        peak_flops_per_s=peaks,
        bandwidth_bytes_per_s=bandwidth or cpu.bandwidth_bytes_per_s,
        units=min(cpu.units, int(measured.get("cores", cpu.units))),
        origin="calibrated",
        source=_SOURCE_MEASURED,
        notes=f"This CPU was {disturbed}." if (disturbed := disturbance(measured)) else "",
        calibration=measured,
        assumed=(),
    )


def _cores() -> int:
    """Return cores that this process may use; logical ones where the machine does not tell physical ones."""
    import psutil

    logical = affinity_cores()
    # Containers may be given fewer than the machine's physical cores; psutil always tells the machine's.
    return max(1, min(logical, psutil.cpu_count(logical=False) or logical))


def _threads() -> int:
    """Return hardware threads of the whole machine."""
    return os.cpu_count() or 1


def _memory_bytes() -> int | None:
    import psutil

    return int(psutil.virtual_memory().total)


def _cache_bytes(description: Mapping[str, Any]) -> int | None:
    """Return the third-level cache, from the system where it tells."""
    try:
        size_text = Path("/sys/devices/system/cpu/cpu0/cache/index3/size").read_text(encoding="ascii").strip()
        return int(size_text[:-1]) * {"K": 1024, "M": 1024**2}[size_text[-1]]  # "32768K"
    except (OSError, ValueError, KeyError, IndexError):
        size = description.get("l3_cache_size")
        return size if isinstance(size, int) and size > 0 else None


def _words(name: str) -> frozenset[str]:
    split = name.lower().replace("-", " ").replace("/", " ").split()
    return frozenset(word for word in split if word not in ("nvidia", "tesla", "geforce", "graphics", "device"))


def _likeness(words: frozenset[str], card: Device) -> int:
    """Shared words of the model's own; a number that differs (A10, A100) is no likeness."""
    card_words = _words(f"{card.name} {card.memory_type}")
    model_numbers = {
        word
        for word in card_words
        if any(sign.isdigit() for sign in word) and not word.endswith("gb") and "dr" not in word
    }
    return len(words & card_words) if model_numbers & words else 0
