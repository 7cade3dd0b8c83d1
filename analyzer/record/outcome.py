"""What the decision answers, as the record holds it: plans, the verdict, prices, batches; see ``analysis``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from analyzer.figures import KnownLatency, Run, Way
from analyzer.quantities import Amount, Count, Positive


@dataclass(frozen=True, slots=True, kw_only=True)
class TransferItem:
    """One copy of a plan; ``direction`` is ``to_gpu`` or ``to_cpu``, ``where`` says what it is for."""

    tensor: str
    direction: Literal["to_gpu", "to_cpu"]
    bytes: Count
    time_s: Amount
    where: Literal["input", "output", "inside"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Transfers:
    """The copies of a plan, inputs and outputs of the model included."""

    count: Count
    bytes: Count
    time_s: Amount
    items: tuple[TransferItem, ...] = ()


@dataclass(frozen=True, kw_only=True)
class PlanResult(KnownLatency, Way):
    """One way to run the model: ``cpu``, ``gpu`` (ONNX Runtime's CUDA session) or ``hybrid`` (the best).

    Dollars are those of ``instance``, whose time may be predicted where the plan's own was measured on another
    machine; joules rest on modelled power. ``instance_latency_s`` is the time of a run there, ``host`` and
    ``host_basis`` are as in ``CostRow``. ``energy_of`` says whose watts were counted.
    """

    name: Literal["cpu", "gpu", "hybrid"]
    throughput_per_s: Amount = field()
    transfers: Transfers
    operators_on_gpu: Count = 0
    operators_on_cpu: Count = 0
    why: str = ""
    energy_j: Amount | None = None
    energy_low_j: Amount | None = None
    energy_high_j: Amount | None = None
    energy_origin: str = ""
    energy_of: str = ""
    instance_latency_s: Amount | None = None
    host: str = ""
    host_basis: Literal["", "known", "nearest", "assumed"] = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchRange:
    """Batches from ``first`` to ``last`` and the device that is faster there.

    ``either`` where the 90 % interval of the speed-up holds 1, and where the answer changes between two batches
    and none in between was looked at.
    """

    first: Count
    last: Count
    device: Literal["cpu", "gpu", "either"]


@dataclass(frozen=True, slots=True, kw_only=True)
class VerdictResult:
    """The answer, with its reasons. ``speedup`` is always the CPU plan's latency over the GPU plan's.

    ``crossover_batch`` is the first from which the GPU is expected to be faster; ``ranges`` say how sure that
    is, from the smallest batch looked at to the largest that fits. ``slo_s`` is the latency that had to be met
    (``--slo``); None where none was asked for. ``device`` is None where ONNX Runtime runs the model on no
    device, and where a run that was requested failed; ``speedup`` is None without a GPU.
    """

    device: Literal["cpu", "gpu", "hybrid", "either"] | None
    speedup: Positive | None
    low: Amount | None
    high: Amount | None
    crossover_batch: Count | None
    sentence: str = ""
    objective: Literal["latency", "throughput", "cost", "energy"]
    reason: str
    because: tuple[str, ...] = ()
    would_change: tuple[str, ...] = ()
    crossovers: tuple[Count, ...] = ()
    saturation_batch: Count | None = None
    largest_batch: Count | None = None
    slo_s: Positive | None = None
    ranges: tuple[BatchRange, ...] = ()


@dataclass(frozen=True, kw_only=True)
class CostRow(Way):
    """An instance that can run the model, and what a million inferences cost there.

    Throughput and dollars follow from the latency there. ``device`` and ``device_name`` are what the model runs
    on there, ``plan`` how, ``batch`` inferences at once. Where that uses a GPU, ``host`` is the
    machine's processor, which launches the GPU's kernels and computes what stays on it; ``host_basis`` is
    ``known``, ``nearest`` (the nearest one of the catalogue) or ``assumed`` (the source of the price does not
    tell, and intervals are wider). Else both are empty.
    """

    gpu: str | None
    meets_slo: bool | None
    usd_per_hour: Amount = field()
    usd_per_million: Amount = field()
    throughput_per_s: Amount = field()
    device: str = ""
    device_name: str = ""
    batch: Count | None = None
    plan: Literal["", "cpu", "gpu", "hybrid"] = ""
    host: str = ""
    host_basis: Literal["", "known", "nearest", "assumed"] = ""


@dataclass(frozen=True, kw_only=True)
class PrecisionResult(Way):
    """The same weights in one precision on one device, as ONNX Runtime would run them.

    ``decided`` marks what the verdict is about. ``speedup`` is the latency of the model as it is on this device
    over this one's. What cannot run has no figures; ``reason`` says why, and of the others what they gain by.
    """

    precision: str
    device: Literal["cpu", "gpu"]
    reason: str
    decided: bool = False
    speedup: Positive | None = None
    speedup_low: Positive | None = None
    speedup_high: Positive | None = None


@dataclass(frozen=True, kw_only=True)
class SweepPlan(KnownLatency, Run):
    """One plan at one batch."""

    throughput_per_s: Amount = field()


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepRow:
    """All plans at one batch; ``plans`` is keyed by plan name."""

    batch: Count
    plans: Mapping[Literal["cpu", "gpu", "hybrid"], SweepPlan]
