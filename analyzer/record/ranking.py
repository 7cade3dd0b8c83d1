"""The one decision over all that was asked: devices, batches, precisions, instances; see ``analysis``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from analyzer.option_table import Pricing
from analyzer.quantities import Amount, Count
from analyzer.record.outcome import CostRow


@dataclass(frozen=True, slots=True, kw_only=True)
class RankedCandidate:
    """One way to answer: a device with its best plan, at one batch, in one precision.

    Attributes:
        device, name, kind: The device: its slug, its name, and on which side it is. Of a CPU that is rented,
            that of ``instance``.
        plan: ``cpu``, ``gpu`` or ``hybrid``, the better of those that use the device.
        precision: Of its floats, or of the integer form.
        batch: Inferences per run; None for a model without a batch.
        asked: Whether the precision is the one asked for; another one is another model, whose accuracy must be
            checked, and never the best.
        named: Whether the device was chosen by whoever asked, or is one of the price list's CPUs.
        runs: Whether it can run at all; where it cannot, ``reason`` says why.
        fits: Whether the plan fits the memory.
        meets_slo: None where no limit was given, or no time is known.
        latency_s, low_s, high_s, origin: Host to host, with its 90 % interval.
        throughput_per_s: Inferences, one run after the other on one device.
        usd_per_million: On the instance that runs it for the least, with its 90 % interval and the origin of
            the time there; all rented hours are paid.
        provider, instance, usd_per_hour, price_date, pricing, region: That instance and its price; empty and
            None where none is known.
        energy_j: For one inference; power is modelled.
        reason: Why it cannot be the best, or what to know about it; empty where there is nothing to say.
    """

    device: str
    name: str
    kind: Literal["cpu", "gpu"]
    plan: Literal["cpu", "gpu", "hybrid"]
    precision: str
    batch: Count | None
    asked: bool = True
    named: bool = True
    runs: bool = True
    fits: bool = True
    meets_slo: bool | None = None
    latency_s: Amount | None = None
    low_s: Amount | None = None
    high_s: Amount | None = None
    origin: Literal["measured", "predicted", "mixed"] = "predicted"
    throughput_per_s: Amount | None = None
    memory_bytes: Count | None = None
    usd_per_million: Amount | None = None
    usd_low_per_million: Amount | None = None
    usd_high_per_million: Amount | None = None
    usd_origin: str = ""
    provider: str = ""
    instance: str = ""
    usd_per_hour: Amount | None = None
    price_date: str = ""
    pricing: Pricing = "on-demand"
    region: str = ""
    energy_j: Amount | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankedInstance:
    """A rented machine at the batch at which it costs least, of those that keep the limit.

    ``device`` and ``name`` are what the model runs on there, ``plan`` how.
    """

    device: str
    name: str
    plan: Literal["cpu", "gpu", "hybrid"]
    batch: Count | None
    cost: CostRow


@dataclass(frozen=True, slots=True, kw_only=True)
class RankingResult:
    """Everything that was asked about, the best first.

    Attributes:
        objective: What ranks; ``latency`` where the wished objective is known of nothing.
        slo_s: The latency limit; None for no limit.
        candidates: Those that can be the best by the objective, then those that miss the limit, the nearest
            first, then those that cannot run, then other precisions.
        best: Index of the winner; None where nothing that runs keeps the limit.
        nearest: Where there is a limit that nothing keeps: index of what comes nearest to it.
        as_good: Indices of what is as good as the best within the 90 % intervals.
        best_by: The winner under each objective, of those that run and keep the limit.
        sentence: The answer.
        notes: What is as good or comes next, and what has no room, in sentences.
        dollars: The best beside the cheapest instance of the other side, in speed and dollars; may be empty.
        instances: Instances with a CPU and instances with a GPU by dollars, those that keep the limit first.
    """

    objective: Literal["latency", "throughput", "cost", "energy"]
    candidates: tuple[RankedCandidate, ...]
    best: Count | None
    nearest: Count | None = None
    slo_s: Amount | None = None
    as_good: tuple[Count, ...] = ()
    best_by: Mapping[Literal["latency", "throughput", "cost", "energy"], Count] = field(default_factory=dict)
    sentence: str = ""
    notes: tuple[str, ...] = ()
    dollars: str = ""
    instances: tuple[RankedInstance, ...] = ()
