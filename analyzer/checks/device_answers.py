"""The answers of devices, and phrases, that findings use."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from analyzer.devices.device import Device
from analyzer.graph import DTYPES, packed_bytes
from analyzer.record.analysis import Analysis, CostRow, OperatorResult, PlanResult, TensorInfo, VerdictResult
from analyzer.record.batch_ranges import has_batch, sizes_that_grow
from analyzer.text import first_few, plural

# The finding of a limit that a device misses; of an analysis the answer's own sentence says it.
OVER_SLO = "A607"
PLANS = {"cpu": "CPU plan", "gpu": "CUDA session", "hybrid": "best plan"}


def operator_label(operator: OperatorResult) -> str:
    """Return an operator's type and place: ``MaxPool of maxpool``; its own name where no module is known."""
    place = f" of {operator.module}" if operator.module else f" {operator.name!r}"
    return f"{operator.op_type}{place}"


def group_label(group: Sequence[OperatorResult]) -> str:
    """Return the label of one operator, or the number of several of a type, with the first places."""
    if len(group) == 1:
        return operator_label(group[0])
    places = list(dict.fromkeys(op.module or op.name for op in group))
    return f"{plural(len(group), f'{group[0].op_type} operator')} ({first_few(places)})"


def source_location(operator: OperatorResult | None) -> str:
    """Return ``file:line`` of the user's own source, empty where unknown."""
    if operator is None or operator.source is None:
        return ""
    return f"{operator.source.file}:{operator.source.line}"


def bytes_moved(operators: Iterable[OperatorResult]) -> int | None:
    """Return bytes that operators read and write together; None where none is known."""
    known = [
        operator.bytes_read + operator.bytes_written
        for operator in operators
        if operator.bytes_read is not None and operator.bytes_written is not None
    ]
    return sum(known) if known else None


def tensor_bytes(tensor: TensorInfo) -> int | None:
    """Return a tensor's bytes, None while its shape or width is open."""
    # A record may name a type that this version does not know.
    dtype = DTYPES.get(tensor.dtype)
    return packed_bytes(tensor.shape, dtype.bits) if dtype is not None else None


def total(figures: Iterable[float | None]) -> float | None:
    """Return the sum of what is known, None where nothing is."""
    known = [value for value in figures if value is not None]
    return sum(known) if known else None


def by_source_line(
    operators: Iterable[OperatorResult],
) -> tuple[tuple[OperatorResult, ...], ...]:
    """Group operators of one type from one source line, else one module class, in execution order."""
    groups: dict[tuple[str, str, str], list[OperatorResult]] = {}
    for operator in operators:
        place = source_location(operator) or operator.module_class or operator.module
        groups.setdefault((operator.domain, operator.op_type, place), []).append(operator)
    return tuple(tuple(group) for group in groups.values())


def is_executed(operator: OperatorResult) -> bool:
    """Return whether an operator is executed at all on the GPU's side (folded constants are not)."""
    return operator.gpu is not None and operator.gpu.why != "folded"


def forced_to_cpu(operator: OperatorResult) -> bool:
    """Return whether ONNX Runtime's CUDA session has to run it on the CPU, shape arithmetic apart."""
    gpu = operator.gpu
    return gpu is not None and gpu.placed_on == "cpu" and gpu.why not in ("shape-arithmetic", "folded")


def forced_operators(analysis: Analysis) -> tuple[OperatorResult, ...]:
    """Return the operators that are forced to the CPU and really run: ONNX Runtime removes some before."""
    # No group of the CUDA session at all says nothing about which operators it runs.
    executed = {index for group in analysis.groups if group.session == "cuda" for index in group.members}
    return tuple(
        op
        for op in analysis.operators
        if forced_to_cpu(op) and (not executed or op.index in executed)
        # An Identity that ends in its neighbour has a CUDA kernel, and runs nowhere.
        if not (op.op_type == "Identity" and op.gpu is not None and op.gpu.why == "cuda-kernel")
    )


def target_plan(analysis: Analysis) -> str:
    """Return the plan of the target device: ONNX Runtime's CUDA session, or the CPU where there is no GPU."""
    return "gpu" if analysis.plan("gpu") is not None else "cpu"


def time_in_plan(operator: OperatorResult, plan: str) -> float | None:
    """Return an operator's seconds in a plan."""
    on_gpu = plan == "gpu" or (plan == "hybrid" and operator.placement == "gpu" and operator.gpu is not None)
    time = operator.gpu if on_gpu else operator.cpu
    return None if time is None else time.time_s


def more_work(analysis: Analysis) -> str:
    """Return the advice that gives one run more to do; empty where nothing is known to."""
    return "raise the batch" if has_batch(analysis) else _sized(analysis, "more", "larger")


def less_work(analysis: Analysis) -> str:
    """Return the advice that makes one run hold less, with a comma behind; empty where nothing is known to."""
    advice = "use a smaller batch" if has_batch(analysis) else _sized(analysis, "less", "smaller")
    return advice and f"{advice}, "


def _sized(analysis: Analysis, work: str, size: str) -> str:
    names = sizes_that_grow(analysis)
    return f"give one call {work} work (a {size} size of {names})" if names else ""


def runs_nowhere(analysis: Analysis) -> bool:
    """Return whether ONNX Runtime creates a session of the model on none of the devices."""
    return analysis.verdict.device is None and not (analysis.run_fails or analysis.model.empty_inputs)


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
