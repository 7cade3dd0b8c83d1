"""Devices and the links between them: peaks, bandwidths, prices, each with its origin."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from analyzer.quantities import Amount, Count, Positive

DeviceKind = Literal["cpu", "gpu"]
DeviceOrigin = Literal["calibrated", "catalogue"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """The way between the host's memory and a GPU's.

    Attributes:
        name: ``PCIe 4.0 x16``.
        bandwidth_bytes_per_s: Sustained, one way, pinned memory.
        pageable_bytes_per_s: Sustained, one way, from ordinary memory.
        latency_s: Fixed time of one copy.
        source: Where the figures come from.
    """

    name: str
    bandwidth_bytes_per_s: Positive
    pageable_bytes_per_s: Positive
    # Between 6.6 us (a pageable copy of 4 bytes, NVIDIA forum 56270) and the 30 us of a small cudaMemcpy on a
    # V100 (te42kyfo/gpu-benches).
    latency_s: Amount = 10e-6
    source: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """A processor with its memory.

    Attributes:
        slug: Its key in the catalogue, lower case (``a100-80gb-sxm``).
        name: As the vendor writes it.
        kind: ``cpu`` or ``gpu``.
        vendor, architecture: As in the catalogue.
        peak_flops_per_s: Dense peaks by type: ``fp64``, ``fp32``, ``tf32``, ``fp16``, ``bf16``, ``int8``,
            ``fp8``, ``fp4`` (operations per second); a type the device lacks is absent.
        bandwidth_bytes_per_s: Peak memory bandwidth.
        memory_bytes: Its own memory; None for a CPU of the catalogue.
        units: Streaming multiprocessors of a GPU, cores of a CPU.
        threads: Hardware threads of a CPU.
        clock_hz: The clock that the peaks assume.
        turbo_hz: The highest clock of one core of a CPU.
        cache_bytes: Last-level cache (L2 of a GPU, L3 of a CPU).
        tdp_w: Board or package power.
        compute_capability: ``8.0`` for CUDA devices, else empty.
        link: The way to the host, None for a CPU.
        runs_release_wheel: Whether the onnxruntime-gpu release wheel has machine code for it.
        year: Year of release.
        origin: ``catalogue`` or ``calibrated`` (measured on this machine).
        source: Where the figures come from.
        notes: What to know about them.
        calibration: Measured ceilings of this machine, by key of ``devices.calibration``; empty if none.
        assumed: Figures that no source gives and that were taken from a sibling: predictions widen.
        memory_type: ``HBM2e``, ``GDDR6``, ``DDR5``; empty where not known.
        sustained: What was measured on this model elsewhere: ``fp16`` (best matrix product, operations per
            second), ``bandwidth`` (streams, bytes per second).
        like: The catalogue's device that an entry of a user's file takes its other figures from; empty if none.
        bus_bandwidth: Of a machine with such GPUs, by how many take part: ``busbw`` of nccl-tests'
            ``all_reduce_perf`` in large sums (bytes per second). Empty where nobody measured it.
    """

    slug: str
    name: str
    kind: DeviceKind
    vendor: str = ""
    architecture: str = ""
    peak_flops_per_s: Mapping[str, Positive] = field(default_factory=dict)
    bandwidth_bytes_per_s: Positive
    memory_bytes: Count | None = None
    units: Count = 1
    threads: Count = 1
    clock_hz: Positive | None = None
    turbo_hz: Positive | None = None
    cache_bytes: Count | None = None
    tdp_w: Amount | None = None
    compute_capability: str = ""
    link: Link | None = None
    runs_release_wheel: bool = True
    year: Count | None = None
    origin: DeviceOrigin = "catalogue"
    source: str = ""
    notes: str = ""
    calibration: Mapping[str, Positive] = field(default_factory=dict)
    assumed: tuple[str, ...] = ()
    memory_type: str = ""
    sustained: Mapping[str, Positive] = field(default_factory=dict)
    like: str = ""
    bus_bandwidth: Mapping[int, Positive] = field(default_factory=dict)
