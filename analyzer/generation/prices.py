"""What a generating model costs to rent, and the power that it draws."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from analyzer.decision.energy import power, watts
from analyzer.decision.money import usd_per_million
from analyzer.devices.device import Device
from analyzer.devices.instances import Instance


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """A machine, or a share of one, that runs the model once.

    Attributes:
        instance: The whole machine.
        usd_per_hour: Of the share.
    """

    instance: Instance
    usd_per_hour: float

    @property
    def name(self) -> str:
        """The machine's name at its provider."""
        return f"{self.instance.provider} {self.instance.name}"


def gpu_offer(gpu: Device, width: int, instances: Iterable[Instance]) -> Offer | None:
    """The cheapest share of an instance with so many of these GPUs; None where none is known.

    A machine with more of them runs as many models as fit side by side.
    """
    offers = [
        Offer(
            instance=instance,
            usd_per_hour=instance.usd_per_hour / (int(instance.gpu_count) // width),
        )
        for instance in instances
        if instance.gpu == gpu.slug and int(instance.gpu_count) >= width
    ]
    return min(offers, key=lambda offer: (offer.usd_per_hour, offer.name), default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuOffer:
    """A CPU instance and what it makes."""

    offer: Offer
    tokens_per_s: float


def cpu_offer(
    instances: Iterable[Instance],
    needed_bytes: int,
    tokens_per_s: Callable[[Instance], float | None],
) -> CpuOffer | None:
    """The CPU instance on which a token costs least, of those that hold the model.

    Args:
        instances: What can be rented.
        needed_bytes: Of memory.
        tokens_per_s: What one makes; None where that cannot be told.
    """
    offers = []
    for instance in instances:
        if instance.gpu or instance.accelerator or (instance.memory_bytes or 0) < needed_bytes:
            continue
        rate = tokens_per_s(instance)
        if rate:
            named = Offer(instance=instance, usd_per_hour=instance.usd_per_hour)
            offers.append(CpuOffer(offer=named, tokens_per_s=rate))
    return min(
        offers, key=lambda one: (one.offer.usd_per_hour / one.tokens_per_s, one.offer.name), default=None
    )


def usd_per_million_tokens(offer: Offer | None, tokens_per_s: float) -> float | None:
    """Dollars for a million output tokens of a machine that makes them all the time."""
    if offer is None or tokens_per_s <= 0:
        return None
    return usd_per_million(offer.usd_per_hour, tokens_per_s)


def joules_per_token(device: Device, cpu: Device, width: int, tokens_per_s: float) -> float | None:
    """Energy of an output token: devices at full use, GPUs with a thread of their host that waits for them."""
    gpu = device if device.kind == "gpu" else None
    drawn, each = watts(cpu if gpu else device, gpu), power(device)
    if drawn is None or each is None or tokens_per_s <= 0:
        return None
    if gpu is None:
        return drawn["cpu"] / tokens_per_s
    return (drawn["gpu"] + (width - 1) * each.full) / tokens_per_s
