"""Time of GPUs of one machine to sum, gather or exchange data, by kind, bytes, number and link.

``time = (start^p + passed / rate^p)^(1/p)``: what the kernels and their messages need with nothing to send, and
the bytes that each GPU sends over its link, which overlap badly (``p`` under 1: protocols change with the
size).
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from analyzer.devices.device import GPUS_A_MACHINE, NETWORK, Link, Peer, is_by_nvlink, is_by_pcie
from analyzer.figures import Figure
from analyzer.prediction.gpu.constants import SIZES_S

Collective = Literal["all_reduce", "all_gather", "reduce_scatter", "all_to_all"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectiveConstants:
    """One kind over one sort of link.

    Attributes:
        start_s: With nothing to send, and
        member_s: what each GPU adds.
        share: Of the link's bandwidth that two GPUs reach.
        shared: Exponent of the number of GPUs by which more of them share the way; next to 0 through a switch.
        sharpness: ``p``.
    """

    start_s: float
    member_s: float
    share: float
    shared: float
    sharpness: float


_TABLES = tomllib.loads(Path(__file__).with_name("collectives.toml").read_text(encoding="utf-8"))
NCCL = {
    link: {kind: CollectiveConstants(**row) for kind, row in rows.items()} for link, rows in _TABLES.items()
}
"""By link and kind, sums inside CUDA graphs (``in_graph``) among them."""

# Half-widths of 90 % intervals as factors, by class of predicted size (``SIZES_S``): ends jump between classes.
_NVLINK_WIDTHS = (1.3, 1.5, 1.5)
# Over PCIe towards less. Large sums among eight RTX PRO 6000 reach 20 to 41 GB/s, by machine and by NCCL's
# settings (the tables 24; voipmonitor/rtx6kpro, hardware/pcie-bandwidth.md at 070506ff, five machines).
_PCIE_BELOW = (1.35, 1.8, 2.1)
# Towards more: nine tenths of what the second sort of machines takes, of sums and of other kinds.
_SUM_THROUGH_THE_HOST, _OTHERS_THROUGH_THE_HOST = (2.8, 4.5, 7.5), (2.8, 6.0, 9.5)
# Where a machine's bus bandwidth over PCIe is told: nine tenths of both sorts in the tables; upwards what
# messages take that all go through the host (16 kB among eight RTX PRO 6000: 26 us in one machine, 69 in
# another; ibid.).
_TOLD_BELOW, _TOLD_ABOVE = (2.0, 1.8, 1.5), (2.0, 2.6, 1.5)
# Other links are taken for PCIe, of which nothing was measured.
_UNMEASURED = 3.5


def collective_time(
    kind: Collective, nbytes: float, gpus: int, peer: Peer, *, in_graph: bool = False
) -> Figure:
    """Return a collective among so many GPUs of one machine.

    ``nbytes`` are those of the whole buffer: of an all-gather the output, of a reduce-scatter the input.
    ``in_graph`` says whether an engine's own kernel sums inside a CUDA graph; other kinds take NCCL's time.
    """
    if gpus < 2:
        return Figure(value=0.0, low=0.0, high=0.0, origin="predicted")
    link = "NVLink" if is_by_nvlink(peer) else "PCIe"
    constants = NCCL[link]["in_graph" if in_graph and kind == "all_reduce" else kind]
    measured = peer.bus_bandwidth.get(gpus)
    rate = measured or reached(constants, gpus, peer.bandwidth_bytes_per_s)
    seconds = seconds_at(rate, constants, kind, nbytes, gpus)
    below, above = interval_factors(
        peer, kind, int(np.searchsorted(SIZES_S, seconds)), measured=measured is not None
    )
    return Figure(value=seconds, low=seconds / below, high=seconds * above, origin="predicted")


def interval_factors(peer: Peer, kind: Collective, size: int, *, measured: bool) -> tuple[float, float]:
    """Return factors of the interval's lower and upper end, of this class of predicted sizes (``SIZES_S``)."""
    if is_by_nvlink(peer):
        return _NVLINK_WIDTHS[size], _NVLINK_WIDTHS[size]
    if measured:
        return _TOLD_BELOW[size], _TOLD_ABOVE[size]
    if is_by_pcie(peer):
        above = _SUM_THROUGH_THE_HOST if kind == "all_reduce" else _OTHERS_THROUGH_THE_HOST
        return _PCIE_BELOW[size], above[size]
    return _UNMEASURED, _UNMEASURED


def reached(constants: CollectiveConstants, gpus: int, bandwidth: float) -> float:
    """Return bytes per second that large sums reach over a link of this bandwidth in one direction."""
    return float(constants.share * (2.0 / gpus) ** constants.shared * bandwidth)


def seconds_at(
    rate: float, constants: CollectiveConstants, kind: Collective, nbytes: float, gpus: int
) -> float:
    """Return the form, with these constants where large sums reach this rate."""
    start = constants.start_s + constants.member_s * gpus
    sent = sent_bytes(kind, nbytes, gpus)
    p = constants.sharpness
    return float((start**p + (sent / rate) ** p) ** (1 / p))


def sent_bytes(kind: Collective, nbytes: float, gpus: float) -> float:
    """Return bytes that each GPU sends: all but its own part, to sum it and to spread the sum."""
    return (2.0 if kind == "all_reduce" else 1.0) * (gpus - 1) / gpus * nbytes


# Copies between host and GPU: a fixed time and bytes over the link's bandwidth.
# Small copies took 6.6 us (pageable) to 30 us (synchronous, V100); large ones vary by a quarter.
_FIXED_WIDTH = 2.5
_BANDWIDTH_WIDTH = 1.3
# From ordinary memory the host's cores copy first: 6.8 to 18 GB/s from 1 MB on, on four hosts of one kind of
# link (tests/data/gpu).
_PAGEABLE_WIDTH = 1.6


def transfer(link: Link, nbytes: float, *, pinned: bool = True) -> Figure:
    """Return the seconds of one copy over a link; 0 bytes are no copy.

    ``pinned`` says whether the host's memory is page-locked, as that is to which ONNX Runtime copies inside a
    graph; an input given as an ordinary array is not, nor is what an operator of the CPU wrote.
    """
    if nbytes <= 0:
        return Figure(value=0.0, low=0.0, high=0.0)
    moving = nbytes / (link.bandwidth_bytes_per_s if pinned else link.pageable_bytes_per_s)
    fixed, width = link.latency_s, _BANDWIDTH_WIDTH if pinned else _PAGEABLE_WIDTH
    return Figure(
        value=fixed + moving,
        low=fixed / _FIXED_WIDTH + moving / width,
        high=fixed * _FIXED_WIDTH + moving * width,
    )


# Data-parallel training: each GPU has the batch, and all sum the gradients. Analytic, nothing is measured.
GPUS = (1, 2, 4, 8, 16, 32, 64)
# Buckets are summed while the rest of the backward pass runs; half of what could hide is assumed to.
OVERLAP = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Scaled:
    """A step on several GPUs.

    Attributes:
        step: Time of a step, with all to none of the possible overlap as its interval.
        communication_s: The sum's own time; its interval widens the step's.
        exposed_s: What of it the step waits for.
    """

    gpus: int
    step: Figure
    communication_s: float
    exposed_s: float


# Half-width of the interval of a ring over a network, which no measurement stands behind; assumed.
_RING_WIDTH = 2.0


def summing_time(nbytes: int, gpus: int, peer: Peer) -> Figure:
    """Return an all-reduce: in one machine as measured (``collectives``), over several a ring."""
    inside = collective_time("all_reduce", nbytes, min(gpus, GPUS_A_MACHINE), peer)
    if gpus <= GPUS_A_MACHINE:
        return inside
    ring = ring_time(nbytes, gpus, peer)
    return Figure(
        value=max(ring, inside.value),
        low=max(ring / _RING_WIDTH, inside.low),
        high=max(ring * _RING_WIDTH, inside.high),
        origin="predicted",
    )


def ring_time(nbytes: int, gpus: int, peer: Peer) -> float:
    """Return an all-reduce over a ring: each GPU sends 2 (n - 1) / n of the bytes, in 2 (n - 1) messages.

    Over more than one machine the ring's slowest link is a machine's network.
    """
    if gpus < 2:
        return 0.0
    slowest = (
        NETWORK
        if gpus > GPUS_A_MACHINE and NETWORK.bandwidth_bytes_per_s < peer.bandwidth_bytes_per_s
        else peer
    )
    messages = 2 * (gpus - 1)
    return messages / gpus * nbytes / slowest.bandwidth_bytes_per_s + messages * slowest.latency_s


def scaled(step: Figure, backward_s: float, nbytes: int, peer: Peer) -> tuple[Scaled, ...]:
    """Return the step of one GPU on 1 to 64 GPUs, which exchange ``nbytes`` of gradients.

    Communication can hide behind the backward pass; ``peer`` is the link between GPUs of one machine.
    """
    rows = []
    for gpus in GPUS:
        summing = summing_time(nbytes, gpus, peer)
        exposed = summing.value - OVERLAP * min(summing.value, backward_s)
        time = Figure(
            value=step.value + exposed,
            low=step.low + max(0.0, summing.low - backward_s),
            high=step.high + summing.high,
            origin="predicted",
        )
        rows.append(Scaled(gpus=gpus, step=time, communication_s=summing.value, exposed_s=exposed))
    return tuple(rows)


def dominates_from(rows: tuple[Scaled, ...]) -> int | None:
    """Return the number of GPUs from which half of a step or more is communication; None where it never is."""
    return next((row.gpus for row in rows if row.exposed_s >= row.step.value / 2), None)
