"""The decision in the record: plans, the verdict, prices, batches, the ranking.

``analysis`` has the units.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from analyzer.figures import KnownLatency, OnDevice, Run, Way
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


# A plan on both devices needs copies and a session for each stretch: it must pay by more than this.
# A judgement of what another deployment is worth, no measurement.
WORTHWHILE = 1.05


def better_session(plans: Sequence[PlanResult]) -> PlanResult | None:
    """Return the quicker of the sessions on one device that fit; None where none does."""
    return min(
        (plan for plan in plans if plan.name != "hybrid" and plan.fits),
        key=lambda plan: plan.latency_s,
        default=None,
    )


def split_gain(plans: Sequence[PlanResult]) -> float | None:
    """Return the better session's latency over the best plan's; None where one of them is not known."""
    best, session = next((plan for plan in plans if plan.name == "hybrid"), None), better_session(plans)
    return session.latency_s / best.latency_s if best and session and best.latency_s else None


@dataclass(frozen=True, slots=True, kw_only=True)
class WhyNot:
    """The cause against a way to run: a slug of ``decision.ranking``, and a sentence with its figure."""

    reason: str
    sentence: str


@dataclass(frozen=True, kw_only=True)
class RankedWay(OnDevice, Way):
    """A way to answer what was asked: a device with its best plan, at one batch, in one precision.

    Attributes:
        device, device_name, kind: Of a rented CPU, that of ``instance``.
        plan: ``cpu``, ``gpu`` or ``hybrid``, the better of those that use the device.
        batch: Inferences per run; None for a model without a batch.
        gpus: GPUs that one copy of the model uses; 0 on a CPU.
        provider, instance: None where no price is known.
        requested: Whether the precision is the one that was requested; another one is another model, whose
            accuracy must be checked, and never the answer.
        named: Whether the user chose the device; False of a CPU that stands on the price list alone.
        runs: Whether it can run at all.
        meets: None where no limit was given, or no time is known.
        energy_j: For one inference; power is modelled.
        instance_latency_s: Of a run on ``instance``, whose processor may be another than the one asked for:
            what its dollars follow from. None where no price is known, of a request and of a service.
        latency_s, low_s, high_s, origin: Of a run; of a model that generates the whole request, of a service
            the percentile that its limit is about.
        throughput_per_s, usd_per_million: Of inferences; of a model that generates, of output tokens.
        ttft_s, tpot_s: Of a model that generates; None of others.
        usd_per_month, usd_low_per_month, usd_high_per_month, count: Of a service: all its instances, and how
            many; None of others.
        note: What to know about it; empty where there is nothing to say.
        why_not: None of the answer.
    """

    provider: str | None = None  # type: ignore[assignment]  # of a plan or an offer they are texts, maybe empty
    instance: str | None = None  # type: ignore[assignment]
    plan: Literal["cpu", "gpu", "hybrid"]
    batch: Count | None = None
    gpus: Count = 0
    requested: bool = True
    named: bool = True
    runs: bool = True
    meets: bool | None = None
    energy_j: Amount | None = None
    instance_latency_s: Amount | None = None
    ttft_s: Amount | None = None
    tpot_s: Amount | None = None
    usd_per_month: Amount | None = None
    usd_low_per_month: Amount | None = None
    usd_high_per_month: Amount | None = None
    count: Count | None = None
    note: str = ""
    why_not: WhyNot | None = None

    def __post_init__(self) -> None:
        """Take the empty names of what has no price as none."""
        for name in ("provider", "instance"):
            object.__setattr__(self, name, getattr(self, name) or None)

    @property
    def remark(self) -> str:
        """Return what to know about it and why it is not the answer."""
        return "; ".join(filter(None, (self.note, self.why_not.sentence if self.why_not else "")))

    @property
    def is_usable(self) -> bool:
        """Tell whether it runs, fits and keeps its limits."""
        return self.runs and self.fits and self.meets is not False


@dataclass(frozen=True, slots=True, kw_only=True)
class Guess:
    """Something that was not given and decides: what, the value that was taken, the option that corrects it."""

    what: str
    value: str
    fix: str


@dataclass(frozen=True, kw_only=True)
class Answer(RankedWay):
    """The way to run that comes first of all that was asked about.

    Attributes:
        meets: False where nothing keeps the limit: then it is what comes nearest.
        objective: What decided; ``latency`` where the requested objective is known of nothing.
        sentence: The answer.
        guessed: What it rests on that was not given.
    """

    objective: Literal["latency", "throughput", "cost", "energy"] = "latency"
    sentence: str
    guessed: tuple[Guess, ...] = ()
