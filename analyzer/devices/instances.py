"""A machine that a cloud rents out: its processors, its price and the day of that price."""

from __future__ import annotations

from dataclasses import dataclass

from analyzer.options import Pricing
from analyzer.quantities import Amount, Count


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
