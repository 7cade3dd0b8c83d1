"""What the record says of a training step; see ``analysis`` for units."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseTotals:
    """One phase of a training step: sums over its operators, times on both sides (None where not known)."""

    name: Literal["forward", "backward", "optimizer"]
    operators: int
    flops: int
    macs: int
    bytes_read: int
    bytes_written: int
    cpu_s: float | None
    gpu_s: float | None
    cpu_origin: str = "predicted"
    gpu_origin: str = "predicted"


@dataclass(frozen=True, slots=True, kw_only=True)
class StepMemory:
    """What a training step keeps at its peak. The optimizer writes over weights and state in place.

    ``activations_bytes`` are what the forward pass keeps for the backward one, example inputs included;
    ``other_bytes`` is the rest of the peak: what is alive for a moment. None where a shape is open.
    """

    weights_bytes: int
    gradients_bytes: int
    optimizer_state_bytes: int
    activations_bytes: int | None
    other_bytes: int | None
    peak_bytes: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class StepCost:
    """What a step costs on one plan: time and US dollars for 1,000 steps and for an epoch.

    ``origin`` is the time's, ``usd_origin`` the dollars', with the ends of their 90 % intervals; empty and None
    in a record of a version that did not tell.
    """

    plan: str
    step_s: float
    thousand_steps_s: float
    usd_per_thousand_steps: float | None
    epoch_s: float | None
    usd_per_epoch: float | None
    origin: str = ""
    usd_origin: str = ""
    usd_low_per_thousand_steps: float | None = None
    usd_high_per_thousand_steps: float | None = None
    usd_low_per_epoch: float | None = None
    usd_high_per_epoch: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PrecisionRow:
    """The GPU's step in one precision, predicted; ``mixed`` is autocast with the optimizer in fp32."""

    precision: str
    step_s: float
    low_s: float
    high_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingRow:
    """Data-parallel training on several GPUs, predicted: each has the batch, gradients are summed by a ring.

    The interval is that of the step's own time, with all to none of the communication hidden.
    """

    gpus: int
    step_s: float
    low_s: float
    high_s: float
    communication_s: float
    exposed_s: float
    examples_per_s: float
    efficiency: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Scaling:
    """How a step scales over GPUs; from ``dominates_from`` on half of it is communication (None: nowhere)."""

    rows: tuple[ScalingRow, ...]
    link: str
    bytes_per_step: int
    assumptions: tuple[str, ...]
    dominates_from: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class InferencePlan:
    """One plan of inference, as the record of inference has it."""

    name: str
    latency_s: float
    low_s: float
    high_s: float
    throughput_per_s: float
    memory_bytes: int | None
    fits: bool
    usd_per_million: float | None
    origin: str
    usd_low_per_million: float | None = None
    usd_high_per_million: float | None = None
    usd_origin: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class InferenceSummary:
    """What a record of the same model's inference says: the file's name, its date, its verdict and plans.

    ``cpu`` is the CPU's name, ``gpu`` the GPU's slug; ``device``, ``speedup`` and its interval,
    ``crossover_batch`` and ``sentence`` are the verdict's.
    """

    file: str
    date: str
    batch: int | None
    precision: str
    cpu: str
    gpu: str | None
    parameters: int
    device: str
    speedup: float | None
    low: float | None
    high: float | None
    crossover_batch: int | None
    sentence: str
    plans: tuple[InferencePlan, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingResult:
    """A training step: phases, memory, cost, precisions, scaling; ``assumed`` is what the file did not say.

    ``largest_batch`` is the largest that fits the GPU, ``largest_batch_exact`` whether it was looked at itself;
    ``inference`` is the latest comparable record of the same model's inference; where there is none,
    ``inference_note`` says how to make one.
    """

    optimizer: str
    phases: tuple[PhaseTotals, ...]
    memory: StepMemory
    costs: tuple[StepCost, ...] = ()
    precisions: tuple[PrecisionRow, ...] = ()
    scaling: Scaling | None = None
    largest_batch: int | None = None
    dataset_size: int | None = None
    assumed: tuple[str, ...] = ()
    gradient_error: float | None = None
    gradient_note: str = ""
    largest_batch_exact: bool = False
    inference: InferenceSummary | None = None
    inference_note: str = ""
