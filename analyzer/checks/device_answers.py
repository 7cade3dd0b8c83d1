"""Answers of a record for each requested GPU: budgets hold, or do not, on every one of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from analyzer.checks.phrases import forced_operators
from analyzer.devices.device import Device
from analyzer.record.analysis import Analysis, CostRow, PlanResult, VerdictResult

Keeps = Literal["yes", "likely", "unlikely", "no"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceAnswer:
    """The plans beside one GPU, and the verdict between them, as in the record.

    The GPU is None where only the CPU was looked at. ``first`` says that it is the record's own GPU, which its
    operators and its sweep are about.
    """

    gpu: Device | None
    plans: tuple[PlanResult, ...]
    verdict: VerdictResult
    costs: tuple[CostRow, ...]
    first: bool

    @property
    def slug(self) -> str:
        """A further GPU's name in findings; empty for the record's own."""
        return "" if self.first or self.gpu is None else self.gpu.slug

    def plan(self, name: str) -> PlanResult | None:
        """Return the plan of this name, None where there is none."""
        return next((plan for plan in self.plans if plan.name == name), None)

    def can_run(self, plan: PlanResult) -> bool:
        """Return whether a plan runs at all: its devices have room, and ONNX Runtime's wheel has their code."""
        return plan.fits and not self.wants_another_build(plan)

    def wants_another_build(self, plan: PlanResult) -> bool:
        """Return whether a plan uses a GPU that ONNX Runtime's release wheel has no machine code for."""
        if self.gpu is None or self.gpu.runs_release_wheel or plan.name == "cpu":
            return False
        # The best plan may be the CPU's own.
        return plan.name == "gpu" or plan.operators_on_gpu > 0

    def holder(self, plan: PlanResult) -> str:
        """Return the name of the device that has to have room for a plan."""
        return "the CPU" if plan.name == "cpu" or self.gpu is None else self.gpu.name

    @property
    def decided(self) -> PlanResult | None:
        """The plan that the verdict is for; of two that tie the one of less latency that can run."""
        names = ("cpu", "gpu") if self.verdict.device == "either" else (self.verdict.device,)
        result = [plan for plan in self.plans if plan.name in names]
        return min(result, key=lambda plan: (not self.can_run(plan), plan.latency_s), default=None)

    @staticmethod
    def keeps(plan: PlanResult, limit_s: float) -> Keeps:
        """Return whether a plan keeps a limit on latency, by its interval; what has no room keeps none.

        A GPU that needs another build of ONNX Runtime is judged by what was predicted for it.
        """
        if not plan.fits or plan.low_s > limit_s:
            return "no"
        if plan.high_s <= limit_s:
            return "yes"
        return "likely" if plan.latency_s <= limit_s else "unlikely"


def device_answers(analysis: Analysis) -> tuple[DeviceAnswer, ...]:
    """Return the record's own GPU first, then the others in the order in which they were named."""
    every: list[tuple[Device | None, Any]] = [(analysis.devices.gpu, analysis)]
    every += ((other.device, other) for other in analysis.alternatives)
    return tuple(
        DeviceAnswer(gpu=gpu, plans=one.plans, verdict=one.verdict, costs=one.costs, first=one is analysis)
        for gpu, one in every
    )


# ONNX Runtime's CUDA provider has no kernel of this domain at all: trees and encoders are of the CPU.
_OF_THE_CPU = "ai.onnx.ml"


def is_for_cpu(analysis: Analysis) -> bool:
    """Return whether the CPU is as good as every GPU, and would be if operators without kernels cost nothing.

    Then nothing is to be brought to a GPU at this batch. A model that is the CPU's only because some of its
    operators have no CUDA kernel is not among these, nor one that has lost a kernel to its opset: there the
    kernels are what is missing, and the second costs nothing to mend. What no CUDA kernel can be written for
    (classical operators, texts) is not missing.
    """
    forced = forced_operators(analysis)
    if any(op.gpu is not None and op.gpu.kernel_opset is not None for op in forced):
        return False
    answers = device_answers(analysis)
    return all(answer.gpu is not None and _is_for_cpu(answer, analysis) for answer in answers)


def _is_for_cpu(answer: DeviceAnswer, analysis: Analysis) -> bool:
    cpu, gpu = answer.plan("cpu"), answer.plan("gpu")
    if answer.verdict.device not in ("cpu", "either") or cpu is None or gpu is None or not gpu.latency_s:
        return False
    # What the objective makes least.
    here, there = (
        {"cost": plan.usd_per_million, "energy": plan.energy_j}.get(analysis.verdict.objective, plan.latency_s)
        for plan in (cpu, gpu)
    )
    if here is None or there is None:
        return False
    # A text is an object of the host's memory: the CUDA provider has a kernel for no operator on them.
    wanting = [
        op
        for op in forced_operators(analysis)
        if op.domain != _OF_THE_CPU and all(tensor.dtype != "string" for tensor in (*op.inputs, *op.outputs))
    ]
    saved = sum(op.cpu.time_s or 0.0 for op in wanting)
    if wanting:
        saved += sum(item.time_s or 0.0 for item in gpu.transfers.items if item.where == "inside")
    return there * max(1 - saved / gpu.latency_s, 0.0) >= here
