"""The one decision over all that was asked: devices, batches, precisions, instances; see ``analysis``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from analyzer.figures import Way
from analyzer.quantities import Amount, Count
from analyzer.record.outcome import CostRow


@dataclass(frozen=True, kw_only=True)
class RankedCandidate(Way):
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
        meets: None where no limit was given, or no time is known.
        energy_j: For one inference; power is modelled.
        reason: Why it cannot be the best, or what to know about it; empty where there is nothing to say.
    """

    device: str
    name: str = ""
    kind: Literal["cpu", "gpu"]
    plan: Literal["cpu", "gpu", "hybrid"]
    precision: str
    batch: Count | None
    asked: bool = True
    named: bool = True
    runs: bool = True
    meets: bool | None = None
    energy_j: Amount | None = None
    reason: str = ""

    @property
    def is_usable(self) -> bool:
        """Tell whether it runs, fits and keeps its limits."""
        return self.runs and self.fits and self.meets is not False


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
    instances: tuple[CostRow, ...] = ()
