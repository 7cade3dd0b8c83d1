"""Data-parallel training: each GPU has the batch, and all sum the gradients. Analytic, nothing is measured."""

from __future__ import annotations

from dataclasses import dataclass

from analyzer.devices.peer_links import GPUS_A_MACHINE, NETWORK, Peer
from analyzer.figures import Figure
from analyzer.prediction.collectives import collective_time

GPUS = (1, 2, 4, 8, 16, 32, 64)
# Buckets are summed while the rest of the backward pass runs; half of what could hide is assumed to.
OVERLAP = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Scaled:
    """A step on several GPUs.

    Attributes:
        gpus: How many.
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
    """An all-reduce: in one machine as measured (``collectives``), over several a ring."""
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
    """An all-reduce over a ring: each GPU sends 2 (n - 1) / n of the bytes, in 2 (n - 1) messages.

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
    """The step on 1 to 64 GPUs.

    Args:
        step: On one GPU.
        backward_s: Its backward pass, behind which communication can hide.
        nbytes: Bytes of all gradients.
        peer: The link between GPUs of one machine.
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
    """The number of GPUs from which half of a step or more is communication; None where it never is."""
    return next((row.gpus for row in rows if row.exposed_s >= row.step.value / 2), None)
