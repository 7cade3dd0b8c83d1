"""The record of a fleet (``fleet.json``): many models on many devices, what should move, what shares a machine.

Each model has a record of its own beside it; here stands of each what a table of all needs. Seconds, bytes, US
dollars. None means not known, never 0. Nothing but ``environment`` depends on where or when it ran.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from analyzer.options import Pricing
from analyzer.quantities import Amount, Count, Value
from analyzer.record.analysis import Tool
from analyzer.record.outcome import RankedWay

# Raised where a key is renamed or removed, or means something else; adding one keeps it.
FLEET_SCHEMA_VERSION: Final = 1

FleetQuestion = Literal["run", "generate", "capacity"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """The traffic of a model.

    Attributes:
        rate: Requests a second, each of them one inference.
        limit_s: Longest latency of a request, waiting included; None for none.
        percentile: Of which the limit holds; 0 for the mean.
    """

    rate: Amount
    limit_s: Amount | None = None
    percentile: Amount = 99


@dataclass(frozen=True, slots=True, kw_only=True)
class Today:
    """The place of a model now, from the manifest: instances of the price list, and how many."""

    instance: str
    count: Count = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetFailure:
    """The reason for a missing record.

    Attributes:
        kind: ``error`` (it cannot be read, built or exported), ``timeout``, ``killed`` (its process ended),
            ``memory``, ``fault`` (of the program itself).
        message, hint: What a user of ``analyze MODEL`` would be told.
    """

    kind: Literal["error", "timeout", "killed", "memory", "fault"]
    message: str
    hint: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetModel:
    """A model of the fleet and its answer.

    Attributes:
        name: Its own among all; the record is ``<name>.json``, the page ``<name>.html``.
        reference: MODEL as ``analyze`` takes it.
        question: What was asked of it: ``run`` (analyse), ``generate`` or ``capacity``.
        options: By long option, as they are written on the command line.
        owner, tags: From the manifest.
        traffic, today: From the manifest; None where it does not say.
        failure: None of a model that has a record.
        digest: Of the model, as its record has it.
        parameters: Of the model; None where not known.
        device: The verdict's of its record: ``cpu``, ``gpu``, ``hybrid`` or ``either``; empty where there is
            none, or where it failed.
        sentence: The answer of its record.
        errors, warnings: Findings of its record.
        cells: Devices and batches, as the record ranks them, one a device and batch.
        best: Index of the cell that its record calls the best; None where nothing keeps the limit.
        cheapest: Index of the cell of the fewest dollars among those that run, fit and keep their limits.
        notes: What to know about it.
    """

    name: str
    reference: str
    question: FleetQuestion = "run"
    options: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    owner: str = ""
    tags: tuple[str, ...] = ()
    traffic: Traffic | None = None
    today: Today | None = None
    failure: FleetFailure | None = None
    digest: str = ""
    parameters: Count | None = None
    device: str = ""
    sentence: str = ""
    errors: Count = 0
    warnings: Count = 0
    cells: tuple[RankedWay, ...] = ()
    best: Count | None = None
    cheapest: Count | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetDevice:
    """A column of the table; ``named`` is False of a CPU that stands on the price list alone."""

    slug: str
    name: str
    kind: Literal["cpu", "gpu"]
    named: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """A model that would cost less elsewhere and keep its limits there.

    Attributes:
        model: Its name.
        today_instance, today_count, today_usd_per_month: Where it runs now; None where no price is known.
        cell: Index of the model's cell where it should run.
        instance, count, usd_per_month: There.
        saved_usd_per_month: The difference.
        certain: Whether the dearer end of the 90 % interval still saves.
        today_kind: Whether it runs on a machine with a GPU now.
    """

    model: str
    today_instance: str
    today_count: Count
    today_usd_per_month: Amount
    cell: Count
    instance: str
    count: Count
    usd_per_month: Amount
    saved_usd_per_month: Amount
    certain: bool
    today_kind: Literal["cpu", "gpu"] = "cpu"


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedModel:
    """A model on a shared instance.

    Attributes:
        model: Its name.
        cell: Index of the model's cell whose plan and batch it runs by there.
        share: Share of the instance's device that its requests keep busy.
        rate: Requests a second that it gets here: a busy model has several instances.
        memory_bytes: What it holds there.
        latency_s: Percentile of its limit with all that share the instance, waiting included; None where it
            has no limit.
        position: On which of the instance's GPUs it is, from 0; those on one share it.
    """

    model: str
    cell: Count
    share: Amount
    rate: Amount
    memory_bytes: Count
    latency_s: Amount | None = None
    position: Count = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedInstance:
    """Rented machines that are alike, each with these models on it; ``count`` is how many."""

    provider: str
    instance: str
    device: str
    count: Count
    usd_per_month: Amount
    models: tuple[PackedModel, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Consolidation:
    """Models with traffic on as few dollars of instances as can be, each within its limits.

    Attributes:
        instances: The machines and who shares them.
        usd_per_month: All of them.
        least_usd_per_month: No packing costs less than this.
        apart_usd_per_month: With instances of its own for each model.
        today_usd_per_month: What the same models cost now; None where the manifest does not say of all.
        left_out: Names of models with traffic that no instance keeps within its limits, each with its reason.
        notes: What it rests on.
    """

    instances: tuple[PackedInstance, ...]
    usd_per_month: Amount
    least_usd_per_month: Amount
    apart_usd_per_month: Amount
    today_usd_per_month: Amount | None = None
    left_out: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceBias:
    """The bias of predictions on a device, from its measured models.

    Attributes:
        device: Its slug.
        models: How many were measured.
        ratio, low, high: Measured over predicted time in the middle, with its 90 % interval.
        spread: Standard deviation of the ratio's logarithm from model to model; 0 of one model.
    """

    device: str
    models: Count
    ratio: Amount
    low: Amount
    high: Amount
    spread: Amount = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetEnvironment:
    """Place and time of the run; the only part that may differ between two runs of a question."""

    where: str = ""
    date: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)
    seconds: Mapping[str, Amount] = field(default_factory=dict)
    kept: tuple[str, ...] = ()
    facts: Mapping[str, Value] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """The whole of ``fleet.json``.

    Attributes:
        models: By name.
        devices: In the order in which they were asked for, CPUs last.
        sentences: The answer in words, the most important first.
        moves: By dollars saved, the most first.
        consolidation: None where no model has traffic.
        biases: Of measured devices.
        left: Models that are not done yet: it was interrupted.
        changes: What changed since the fleet that it was compared with, in sentences.
        pricing: The way of paying that all dollars are by.
        environment: Where and when; per model how long it took (``seconds``), which were kept from before.
    """

    schema_version: Literal[1] = FLEET_SCHEMA_VERSION
    tool: Tool
    models: tuple[FleetModel, ...]
    devices: tuple[FleetDevice, ...]
    sentences: tuple[str, ...] = ()
    moves: tuple[Move, ...] = ()
    consolidation: Consolidation | None = None
    biases: tuple[DeviceBias, ...] = ()
    left: Count = 0
    changes: tuple[str, ...] = ()
    pricing: Pricing = "on-demand"
    environment: FleetEnvironment = field(default_factory=FleetEnvironment)
