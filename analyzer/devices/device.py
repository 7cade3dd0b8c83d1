"""Devices, the links between them and the machines that clouds rent out, each figure with its origin."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.resources import files
from typing import Literal

from analyzer.options import Pricing
from analyzer.quantities import Amount, Count, Positive
from analyzer.text import listed


@dataclass(frozen=True, slots=True, kw_only=True)
class Instance:
    """One instance type in one region, paid in one way.

    Attributes:
        provider: ``AWS``, ``GCP``, ``Azure``, ``Lambda``, ``RunPod`` or the user's own word.
        name: ``g6.xlarge``.
        region: Where the price holds.
        usd_per_hour: US dollars.
        price_date: ISO date of the price, its month where the day is not known; empty where the source does not
            tell.
        vcpus: Hardware threads; None where not known.
        memory_bytes: Memory of the host; None where not known.
        cpu_type: The CPU in the provider's words.
        cpu: Slug of that CPU, or of the nearest one, in the catalogue; empty where nothing is near.
        cpu_nearest: Whether ``cpu`` is only the nearest.
        threads_per_core: Hardware threads that make one core of ``cpu``.
        gpu: Slug of its GPU; None for a machine without one.
        gpu_count: Number of GPUs; below 1 for a slice of one.
        accelerator: An accelerator that is no GPU, in the provider's words.
        notes, source: What to know, and where it comes from.
        pricing: The way of paying: ``on-demand``, ``reserved-1y`` and ``reserved-3y`` (paid for so many years,
            used or not) or ``spot`` (spare machines, which the provider may take away).
    """

    provider: str
    name: str
    region: str
    usd_per_hour: Amount
    price_date: str = ""
    vcpus: Count | None = None
    memory_bytes: Count | None = None
    cpu_type: str = ""
    cpu: str = ""
    cpu_nearest: bool = False
    threads_per_core: Count = 2
    gpu: str | None = None
    gpu_count: Amount = 0.0
    accelerator: str = ""
    notes: str = ""
    source: str = ""
    pricing: Pricing = "on-demand"

    @property
    def replicas(self) -> int:
        """Copies of a model that run side by side: one per whole GPU, one for CPU machines and slices."""
        # A replica a GPU: splitting one model over several GPUs is another question than the price of an
        # inference.
        return max(1, int(self.gpu_count))


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


GPUS_A_MACHINE = 8  # what HGX and DGX boards hold, and what clouds rent as one machine
# 100 Gbit/s of Ethernet or InfiniBand for each machine: what clouds rent beside 8 GPUs at the least.
NETWORK_BYTES_PER_S = 12.5e9
# Of one message; assumed, no source. They matter for small gradients alone: a bucket of megabytes takes longer.
NETWORK_LATENCY_S = 10e-6
_LATENCY_S = 5e-6


# Of eight L40S and pairs of RTX PRO 6000 (ai-dynamo/aiconfigurator).
THROUGH_THE_HOST = (
    "Sums over PCIe are those of machines where GPUs write to each other's memory (NVIDIA's: "
    "`nvidia-smi topo -p2p w`). Through the host's memory large ones took 2 to 10 times as long: the upper "
    "ends of the intervals are for these. A device file can give what a machine reaches "
    "(`bus_bandwidth_bytes_per_s`, docs/how-to/own-hardware.md)."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """A link in one direction.

    Attributes:
        name: As reports show it.
        bandwidth_bytes_per_s: In one direction.
        latency_s: Of one message.
        source: Where the figure comes from.
        bus_bandwidth: What a machine was measured to reach (``Device.bus_bandwidth``).
    """

    name: str
    bandwidth_bytes_per_s: float
    latency_s: float
    source: str
    bus_bandwidth: Mapping[int, float] = field(default_factory=dict)


@cache
def _table() -> tuple[tuple[re.Pattern[str], Peer], ...]:
    text = (files("analyzer.devices") / "peer_links.toml").read_text(encoding="utf-8")
    return tuple(
        (
            re.compile(row["slug"]),
            Peer(
                name=row["link"],
                bandwidth_bytes_per_s=row["bandwidth_bytes_per_s"],
                latency_s=_LATENCY_S,
                source=row["source"],
            ),
        )
        for row in tomllib.loads(text)["peers"]
    )


def peer_link(gpu: Device) -> Peer | None:
    """NVLink where the catalogue's device has it, else its PCIe link to the host; None without a link."""
    for pattern, peer in _table():
        if pattern.fullmatch(gpu.like or gpu.slug):
            return replace(peer, bus_bandwidth=gpu.bus_bandwidth)
    if gpu.link is None:
        return None
    return Peer(
        name=gpu.link.name,
        bandwidth_bytes_per_s=gpu.link.bandwidth_bytes_per_s,
        latency_s=gpu.link.latency_s,
        source=gpu.link.source,
        bus_bandwidth=gpu.bus_bandwidth,
    )


def exchange_notes(peer: Peer, gpus: Sequence[int]) -> tuple[str, ...]:
    """Return notes on sums among so many GPUs, besides the link's name."""
    measured = [count for count in gpus if count in peer.bus_bandwidth]
    rates = listed(f"{peer.bus_bandwidth[count] / 1e9:.3g} GB/s" for count in measured)
    reached = (
        f"Large sums among {listed(map(str, measured))} GPUs reach a bus bandwidth of {rates}, as the device "
        "file says."
    )
    unknown = is_by_pcie(peer) and len(measured) < len(gpus)
    return (*((reached,) if measured else ()), *((THROUGH_THE_HOST,) if unknown else ()))


def is_by_nvlink(peer: Peer) -> bool:
    """Return whether GPUs reach each other by NVLink."""
    return peer.name.startswith("NVLink")


def is_by_pcie(peer: Peer) -> bool:
    """Return whether they do over PCIe: whether each other's memory, the machine decides."""
    return peer.name.startswith("PCIe")


NETWORK = Peer(
    name="100 Gbit/s network",
    bandwidth_bytes_per_s=NETWORK_BYTES_PER_S,
    latency_s=NETWORK_LATENCY_S,
    source="assumed",
)
