"""What the decision answers, as the record holds it: plans, the verdict, prices, batches; see ``analysis``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from analyzer.option_table import Pricing
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


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanResult:
    """One way to run the model: ``cpu``, ``gpu`` (ONNX Runtime's CUDA session) or ``hybrid`` (the best).

    ``origin`` and ``low_s`` to ``high_s`` are the latency's. Dollars are those of ``instance``, whose time may
    be predicted where the plan's own was measured on another machine; joules rest on modelled power. Both have
    an origin and a 90 % interval of their own. ``instance_latency_s`` is the time of a run there, ``host`` and
    ``host_basis`` are as in ``CostRow``. ``energy_of`` says whose watts were counted. ``pricing``, ``region``
    and ``price_date`` are of the instance's price.
    """

    name: Literal["cpu", "gpu", "hybrid"]
    latency_s: Amount
    low_s: Amount
    high_s: Amount
    throughput_per_s: Amount
    transfers: Transfers
    memory_bytes: Count | None
    fits: bool
    energy_j: Amount | None
    usd_per_million: Amount | None
    origin: Literal["measured", "predicted", "mixed"]
    operators_on_gpu: Count = 0
    operators_on_cpu: Count = 0
    instance: str = ""
    why: str = ""
    usd_low_per_million: Amount | None = None
    usd_high_per_million: Amount | None = None
    usd_origin: str = ""
    energy_low_j: Amount | None = None
    energy_high_j: Amount | None = None
    energy_origin: str = ""
    pricing: Pricing = "on-demand"
    region: str = ""
    price_date: str = ""
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
    """The answer. ``speedup`` is always the CPU plan's latency over the GPU plan's; None without a GPU.

    ``crossover_batch`` is the first from which the GPU is expected to be faster; ``ranges`` say how sure that
    is, from the smallest batch looked at to the largest that fits. ``slo_s`` is the latency that had to be met
    (``--slo``); None where none was asked for. ``device`` is None where ONNX Runtime runs the model on no
    device, and where a run that was requested failed.
    """

    device: Literal["cpu", "gpu", "hybrid", "either"] | None
    objective: Literal["latency", "throughput", "cost", "energy"]
    speedup: Positive | None
    low: Amount | None
    high: Amount | None
    crossover_batch: Count | None
    reason: str
    sentence: str = ""
    because: tuple[str, ...] = ()
    would_change: tuple[str, ...] = ()
    crossovers: tuple[Count, ...] = ()
    saturation_batch: Count | None = None
    largest_batch: Count | None = None
    slo_s: Positive | None = None
    ranges: tuple[BatchRange, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CostRow:
    """An instance that can run the model, and what a million inferences cost there.

    ``origin`` is that of the latency there, from which throughput and dollars follow; ends of 90 % intervals.
    ``region`` is where the price holds. ``plan`` is how it runs there. Where that uses a GPU, ``host`` is the
    machine's processor, which launches the GPU's kernels and computes what stays on it; ``host_basis`` is
    ``known``, ``nearest`` (the nearest one of the catalogue) or ``assumed`` (the source of the price does not
    tell, and intervals are wider). Else both are empty.
    """

    provider: str
    instance: str
    gpu: str | None
    usd_per_hour: Amount
    price_date: str
    throughput_per_s: Amount
    usd_per_million: Amount
    meets_slo: bool | None
    latency_s: Amount | None = None
    origin: Literal["measured", "predicted", "mixed"] = "predicted"
    low_s: Amount | None = None
    high_s: Amount | None = None
    usd_low_per_million: Amount | None = None
    usd_high_per_million: Amount | None = None
    pricing: Pricing = "on-demand"
    region: str = ""
    plan: Literal["", "cpu", "gpu", "hybrid"] = ""
    host: str = ""
    host_basis: Literal["", "known", "nearest", "assumed"] = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PrecisionResult:
    """The same weights in one precision on one device, as ONNX Runtime would run them.

    ``decided`` marks what the verdict is about. ``speedup`` is the latency of the model as it is on this device
    over this one's. What cannot run has no figures; ``reason`` says why, and of the others what they gain by.
    Dollars are those of the instance that runs it for the least, with the ends of their interval; what is told
    of it is empty and None where none is known.
    """

    precision: str
    device: Literal["cpu", "gpu"]
    reason: str
    decided: bool = False
    latency_s: Amount | None = None
    low_s: Amount | None = None
    high_s: Amount | None = None
    origin: Literal["measured", "predicted", "mixed"] = "predicted"
    throughput_per_s: Amount | None = None
    memory_bytes: Count | None = None
    fits: bool = True
    usd_per_million: Amount | None = None
    instance: str = ""
    speedup: Positive | None = None
    speedup_low: Positive | None = None
    speedup_high: Positive | None = None
    usd_low_per_million: Amount | None = None
    usd_high_per_million: Amount | None = None
    usd_origin: str = ""
    provider: str = ""
    usd_per_hour: Amount | None = None
    price_date: str = ""
    pricing: Pricing = "on-demand"
    region: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepPlan:
    """One plan at one batch."""

    latency_s: Amount
    low_s: Amount
    high_s: Amount
    throughput_per_s: Amount
    origin: Literal["measured", "predicted", "mixed"]
    fits: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepRow:
    """All plans at one batch; ``plans`` is keyed by plan name."""

    batch: Count
    plans: Mapping[Literal["cpu", "gpu", "hybrid"], SweepPlan]
