"""What a record keeps so that its model can be predicted again: for another device, at another batch.

Everything else of a prediction is in the record's operators. A figure at batch B is its value at the record's
own batch plus its growth for each inference more; a record is only written so where that holds exactly.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from analyzer.option_table import Pricing
from analyzer.record.quantities import Amount, Count, Number, Positive

# Figures of `costs/cost.py`, which lies above this room.
CostFigure = Literal["flops", "macs", "bytes_read", "bytes_written"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What the user asked for. ``fixed`` is True where no figure of the machine was used (``check``)."""

    # As values, where `Analysis.invocation` has them as they were written. They overlap: both stay while
    # schema_version is 1, this one for records of versions without `invocation`.
    precision: str | None = None
    cpu: str | None = None
    threads: Count | None = None
    slo_s: Amount | None = None
    pins: tuple[str, ...] = ()
    utilisation: Positive = 1.0
    fixed: bool = False
    pricing: Pricing = "on-demand"
    regions: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuFigures:
    """What predictions read of a CPU that is in no catalogue, beside what ``devices.cpu`` holds.

    ``assumed`` names the figures that no source gives, which make intervals wider; None in a record of a
    version that did not keep them.
    """

    vendor: str
    architecture: str
    units: Count
    threads: Count
    clock_hz: Amount | None
    cache_bytes: Count | None
    calibration: Mapping[str, Number]
    assumed: tuple[str, ...] | None = None
    turbo_hz: Amount | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuFigures:
    """What predictions read of a GPU beside its ``DeviceInfo``, where the catalogue has it not or otherwise."""

    slug: str
    vendor: str
    architecture: str
    units: Count
    clock_hz: Amount | None
    cache_bytes: Count | None
    compute_capability: str
    pageable_bytes_per_s: Amount | None
    link_latency_s: Amount | None
    calibration: Mapping[str, Number]
    assumed: tuple[str, ...]
    memory_type: str
    sustained: Mapping[str, Number]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayGroup:
    """What a session executed together at another batch than the record's, and the time of it."""

    name: str
    op_type: str
    members: tuple[Count, ...]
    provider: str
    time_s: Amount | None
    low_s: Amount | None
    high_s: Amount | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayRun:
    """What was measured at another batch than the record's; ``groups`` is empty where no profile was had.

    ``busy`` says whether other processes disturbed it.
    """

    batch: Count
    session: Literal["cpu", "cuda"]
    latency_s: Amount
    low_s: Amount
    high_s: Amount
    groups: tuple[ReplayGroup, ...] = ()
    busy: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnInstance:
    """An instance of the user's own price list; fields as in ``devices.instances``."""

    # The fields of `devices/instances.py`, by name and in its order: they are copied as they are.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class SmallValue:
    """Constants of one value, by name; a row of its elements, where what is not finite is a text."""

    value: tuple[
        bool | int | float | str, ...
    ]  # without a shape, which differs between tensors and grows with the batch
    tensors: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Absent:
    """Positions of the optional inputs and outputs that an operator leaves out."""

    operator: Count
    inputs: tuple[Count, ...] = ()
    outputs: tuple[Count, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeGrowth:
    """Tensors whose axes grow alike: by how much for each inference more."""

    axes: tuple[int, ...]
    tensors: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class OddSizes:
    """A tensor that grows otherwise: its shape at each batch."""

    tensor: str
    shapes: tuple[tuple[Count | None, ...] | None, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class OddFigure:
    """A figure that grows otherwise: it is ``square`` times the batch squared, or ``values`` at each batch."""

    operator: Count
    figure: CostFigure
    square: Count | None = None  # the usual case of the odd: one number and not one for each batch
    values: tuple[Count, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Batches:
    """How the model grows with the batch.

    Attributes:
        looked_at: Batches at which all of this was checked.
        between: Whether the model runs at every batch between them, and all its sizes are known there.
        sizes, odd_sizes: Of tensors; one that is in neither does not grow.
        flops, macs, bytes_read, bytes_written: Of each operator, for each inference more.
        odd_figures: Those that this does not hold for.
    """

    looked_at: tuple[Count, ...]
    between: bool
    sizes: tuple[SizeGrowth, ...]
    flops: tuple[int, ...]
    macs: tuple[int, ...]
    bytes_read: tuple[int, ...]
    bytes_written: tuple[int, ...]
    odd_sizes: tuple[OddSizes, ...] = ()
    odd_figures: tuple[OddFigure, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RecurrentSteps:
    """How long the longest sequence of a recurrence is whose lengths are values of an input.

    Attributes:
        operator: Its index.
        fewest: Steps that it takes at least.
        most: Steps that it takes at most, by which its time is predicted.
    """

    operator: Count
    fewest: Count
    most: Count


@dataclass(frozen=True, slots=True, kw_only=True)
class TextLengths:
    """How long the texts of an operator are.

    Attributes:
        operator: Its index.
        fewest: Bytes of the shortest that its interval holds.
        most: Bytes of the longest.
    """

    operator: Count
    fewest: Count
    most: Count


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayData:
    """The parts.

    Attributes:
        asked: The options that a prediction goes by.
        opsets: Version by domain.
        cpu: Of the CPU, None where its catalogue has it.
        values: Of small constants.
        absent: What operators leave out.
        batches: None where the model is fixed to one.
        gpus: Of the GPUs that the catalogue has otherwise (this machine's own, calibrated) or not at all.
        runs: What was measured at other batches.
        instances: Of the user's own price list.
        steps: Of recurrences that read lengths.
        texts: Of operators on texts.
        as_recorded: Whether the CPU's times stand as the record has them, predicted or not: it was decided anew
            from a record that kept nothing to predict them from.
    """

    asked: Asked
    opsets: Mapping[str, Count]
    cpu: CpuFigures | None = None
    values: tuple[SmallValue, ...] = ()
    absent: tuple[Absent, ...] = ()
    batches: Batches | None = None
    gpus: tuple[GpuFigures, ...] = ()
    runs: tuple[ReplayRun, ...] = ()
    instances: tuple[OwnInstance, ...] = ()
    steps: tuple[RecurrentSteps, ...] = ()
    texts: tuple[TextLengths, ...] = ()
    as_recorded: bool = False
