"""A training step in the record; see ``analysis`` for units."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from analyzer.figures import Figure
from analyzer.quantities import Amount, Count
from analyzer.record.outcome import PlanResult, VerdictResult


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseTotals:
    """One phase of a training step: sums over its operators, times on both sides (None where not known)."""

    name: Literal["forward", "backward", "optimizer"]
    operators: Count
    flops: Count
    macs: Count
    bytes_read: Count
    bytes_written: Count
    cpu_s: Amount | None
    gpu_s: Amount | None
    cpu_origin: Literal["measured", "predicted", "mixed"] = "predicted"
    gpu_origin: Literal["measured", "predicted", "mixed"] = "predicted"


@dataclass(frozen=True, slots=True, kw_only=True)
class StepMemory:
    """The peak memory of a training step. The optimizer writes over weights and state in place.

    ``gradients_bytes`` are of all trained parameters: all are there when the optimizer starts.
    ``activations_bytes`` are what the forward pass keeps for the backward one, example inputs included;
    ``other_bytes`` is the rest of the peak: gradients of activations, and what is alive for a moment. None
    where a shape is open.
    """

    weights_bytes: Count
    gradients_bytes: Count
    optimizer_state_bytes: Count
    activations_bytes: Count | None = None
    other_bytes: Count | None = None
    peak_bytes: Count | None = None

    @property
    def fixed_bytes(self) -> int:
        """Return what does not grow with the batch."""
        return self.weights_bytes + self.gradients_bytes + self.optimizer_state_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class StepCost:
    """The cost of a step on one plan: time and US dollars for 1,000 steps and for an epoch.

    ``origin`` is the time's, ``usd_origin`` the dollars', with the ends of their 90 % intervals.
    """

    plan: Literal["cpu", "gpu", "hybrid"]
    step_s: Amount
    thousand_steps_s: Amount
    usd_per_thousand_steps: Amount | None
    epoch_s: Amount | None
    usd_per_epoch: Amount | None
    origin: str = ""
    usd_origin: str = ""
    usd_low_per_thousand_steps: Amount | None = None
    usd_high_per_thousand_steps: Amount | None = None
    usd_low_per_epoch: Amount | None = None
    usd_high_per_epoch: Amount | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictedStep:
    """A step on GPUs, predicted: in one precision on one, or data-parallel on several.

    Attributes:
        step_s, low_s, high_s: Its seconds; of several GPUs the ends have all to none of the exchange hidden.
        precision: ``mixed`` is autocast with the optimizer in fp32; empty for the model's own.
        gpus: Each has the batch, an all-reduce sums the gradients.
        communication_s, exposed_s: Of the all-reduce, and of what of it is not hidden.
        examples_per_s: Of all GPUs.
        efficiency: Of each, compared with one alone.
    """

    step_s: Amount
    low_s: Amount
    high_s: Amount
    examples_per_s: Amount
    precision: str = ""
    gpus: Count = 1
    communication_s: Amount = 0.0
    exposed_s: Amount = 0.0
    efficiency: Amount = 1.0

    @property
    def step(self) -> Figure:
        """The seconds."""
        return Figure.about(self.step_s, self.low_s, self.high_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scaling:
    """Scaling of a step over GPUs; from ``dominates_from`` on, half is communication (None: nowhere)."""

    rows: tuple[PredictedStep, ...]
    link: str
    bytes_per_step: Count
    assumptions: tuple[str, ...]
    dominates_from: Count | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class InferenceSummary:
    """The record of the same model's inference: its file's name, date, verdict and plans.

    ``cpu`` is the CPU's name, ``gpu`` the GPU's slug; of the plans' copies only the sums are here.
    """

    file: str
    date: str
    batch: Count | None
    precision: str
    cpu: str
    gpu: str | None
    parameters: Count
    verdict: VerdictResult
    plans: tuple[PlanResult, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingResult:
    """A training step: phases, memory, cost, precisions, scaling; ``assumed`` is what the file did not say.

    ``largest_batch`` is the largest that fits the GPU, ``largest_batch_exact`` whether it was looked at itself;
    ``inference`` is the latest comparable record of the same model's inference; where there is none,
    ``inference_note`` says how to make one. ``optimizer_kernels`` is the implementation of PyTorch's optimizer
    that the GPU's time is predicted for (foreach, fused, for-loop), ``optimizer_launches`` its kernels in a
    step, ``optimizer_moved_bytes`` the bytes that they move in fp32, ``optimizer_note`` all that in words;
    empty and null where nothing is predicted.
    """

    optimizer: str
    phases: tuple[PhaseTotals, ...]
    memory: StepMemory
    costs: tuple[StepCost, ...] = ()
    precisions: tuple[PredictedStep, ...] = ()
    scaling: Scaling | None = None
    largest_batch: Count | None = None
    dataset_size: Count | None = None
    assumed: tuple[str, ...] = ()
    gradient_error: Amount | None = None
    gradient_note: str = ""
    largest_batch_exact: bool = False
    inference: InferenceSummary | None = None
    inference_note: str = ""
    optimizer_kernels: str = ""
    optimizer_launches: Count | None = None
    optimizer_moved_bytes: Count | None = None
    optimizer_note: str = ""
