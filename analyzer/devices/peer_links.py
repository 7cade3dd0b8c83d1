"""The link between GPUs of one machine, and the one between machines."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.resources import files

from analyzer.devices.device import Device
from analyzer.text import listed

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
    """What to know about sums among so many GPUs, besides the link's name."""
    measured = [count for count in gpus if count in peer.bus_bandwidth]
    rates = listed(f"{peer.bus_bandwidth[count] / 1e9:.3g} GB/s" for count in measured)
    reached = (
        f"Large sums among {listed(map(str, measured))} GPUs reach a bus bandwidth of {rates}, as the device "
        "file says."
    )
    unknown = is_by_pcie(peer) and len(measured) < len(gpus)
    return (*((reached,) if measured else ()), *((THROUGH_THE_HOST,) if unknown else ()))


def is_by_nvlink(peer: Peer) -> bool:
    """Whether GPUs reach each other by NVLink."""
    return peer.name.startswith("NVLink")


def is_by_pcie(peer: Peer) -> bool:
    """Whether they do over PCIe: whether each other's memory, the machine decides."""
    return peer.name.startswith("PCIe")


NETWORK = Peer(
    name="100 Gbit/s network",
    bandwidth_bytes_per_s=NETWORK_BYTES_PER_S,
    latency_s=NETWORK_LATENCY_S,
    source="assumed",
)
