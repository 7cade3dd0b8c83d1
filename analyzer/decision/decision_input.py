"""The input of a decision and its results: plain values, and the bytes that a plan needs on a device."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from analyzer.costs.cost import Costs
from analyzer.devices.device import Device, Instance
from analyzer.figures import Figure
from analyzer.graph import Graph
from analyzer.memory import fit
from analyzer.options import Objective
from analyzer.ort.execution import Group, Placement
from analyzer.precision import is_full, narrowed
from analyzer.prediction.estimate import Estimate
from analyzer.record.analysis import BatchRange, CostRow, OperatorVerdict, PlanResult, SweepRow, VerdictResult
from analyzer.record.batch_ranges import may_have_batch
from analyzer.text import listed

Side = Literal["cpu", "gpu"]
Estimates = tuple[Estimate | None, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pin:
    """A user's wish: operators whose name, module or type fits ``pattern`` run on ``device``."""

    pattern: str
    device: Side


HostBasis = Literal["", "known", "nearest", "assumed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class HostedRun:
    """A run in a machine that can be rented.

    Attributes:
        plan: How it runs there.
        latency: Host to host.
        host: Beside a GPU the machine's processor, which launches kernels and computes what stays on it, with
            the cores that one copy of the model has; empty where it is taken to be the question's.
        basis: Whether that is the machine's own, the nearest one of the catalogue, or assumed.
    """

    plan: Literal["cpu", "gpu", "hybrid"]
    latency: Figure
    host: str = ""
    basis: HostBasis = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionInput:
    """Everything that is known before deciding.

    Attributes:
        graph: The model at one batch.
        table: Costs of its operators.
        cpu: The processor of the CPU plan, and of what falls back to it.
        cpu_groups, cpu_times: What a CPU session executes, and how long each takes; None is not known.
        gpu: The graphics processor; None to look at the CPU alone, then all that follows about it is unused.
        cuda_groups, cuda_times: What a [CUDA, CPU] session executes, each timed where that session runs it.
        placement: Where that session puts each operator, and the copies it inserts inside the graph.
        batch: Inferences per run; None counts as 1.
        precision: Of the weights and activations on either device.
        objective: What to make least (or most).
        limit_s: The longest latency that is acceptable, None for no limit.
        pins: Operators bound to a device in the best plan; the last that fits an operator wins.
        instances: What can be rented.
        utilisation: Share of the rented time in which inferences run, over 0 and up to 1.
        cpu_latency, cuda_latency: A whole run as measured, host to host; the groups' times are scaled to it.
        cpu_shares, gpu_shares: Time of each operator (a group's time, split); None for a folded one. Plans need
            none of them, verdicts of operators do.
        peak_memory_bytes: Activations alive at once in the CUDA session, None where not known; without a GPU in
            the CPU's.
        cpu_peak_memory_bytes: Those of the CPU's session; None takes the same.
        cpu_weight_bytes: Of the weights as the CPU's session keeps them; None takes the graph's.
        cpu_lacks: Types of operators for which the CPU's session has no kernel: its plan is told for reference.
        run_fails: Why the run that was requested failed; empty where it did not.
        load_fails: Why ONNX Runtime does not load the model; empty where it does.
        cpu_fails: Why ONNX Runtime creates no session of its CPU provider alone; empty where it does.
        lacks: Types of operators that no provider has a kernel for: ONNX Runtime runs the model nowhere, and
            every plan is told as if something else ran it.
        cpu_on: Latency of the CPU plan on an instance's own CPU, None where it cannot be predicted. Without it
            only instances with the CPU of the question are ranked for the CPU plan.
        gpu_on: A run on an instance's GPU and its own CPU, by the name of a plan: the CUDA session, or the
            better of the plans there that use the GPU (``hybrid``); None where it has no room. Without it
            instances take as long as beside the question's CPU.
        cpu_is_this_machine: Whether ``cpu`` is this machine's ("this CPU"); None tells by its being calibrated
            or measured.
        about_form: What is to be known of a quantised model first, in sentences.
        gpu_only: Operators that no session runs on the CPU, where a GPU can run them: its provider has no
            kernel for them, or no annotation holds them there.
        together: Operators that a plan must keep together, beside those of a group: indices, ascending.
    """

    graph: Graph
    table: Costs
    cpu: Device
    cpu_groups: tuple[Group, ...]
    cpu_times: Estimates
    gpu: Device | None = None
    cuda_groups: tuple[Group, ...] = ()
    cuda_times: Estimates = ()
    placement: Placement | None = None
    batch: int | None = None
    precision: str = "fp32"
    objective: Objective = "latency"
    limit_s: float | None = None
    pins: tuple[Pin, ...] = ()
    instances: tuple[Instance, ...] = ()
    utilisation: float = 1.0
    cpu_latency: Figure | None = None
    cuda_latency: Figure | None = None
    cpu_shares: Estimates = ()
    gpu_shares: Estimates = ()
    peak_memory_bytes: int | None = None
    cpu_peak_memory_bytes: int | None = None
    cpu_weight_bytes: int | None = None
    cpu_lacks: tuple[str, ...] = ()
    run_fails: str = ""
    load_fails: str = ""
    cpu_fails: str = ""
    lacks: tuple[str, ...] = ()
    cpu_on: Callable[[Instance], Figure | None] | None = None
    gpu_on: Callable[[Instance, Literal["gpu", "hybrid"]], HostedRun | None] | None = None
    cpu_is_this_machine: bool | None = None
    about_form: tuple[str, ...] = ()
    gpu_only: frozenset[int] = frozenset()
    together: tuple[tuple[int, ...], ...] = ()

    @property
    def inferences(self) -> int:
        """Inferences per run."""
        return self.batch or 1

    @property
    def fails(self) -> str:
        """Return why there is no answer: a run failed, or none of the devices runs the model; else empty."""
        known = self.run_fails or self.file_fails
        if known or self._has_unknown_operators:
            return known or f"no provider has a kernel for {listed(self.lacks)}, whose time is not known"
        fails_on_gpu = self.gpu is None or (self.placement is not None and bool(self.placement.fails))
        return self.cpu_refuses if fails_on_gpu else ""

    @property
    def file_fails(self) -> str:
        """Return why there is no answer whatever the types and devices; empty where there may be one."""
        return next(iter(self.graph.empty_inputs), "").rstrip(".") or self.load_fails

    @property
    def _has_unknown_operators(self) -> bool:
        """Return whether nothing is known of an operator that no provider has a kernel for."""
        if not self.lacks:
            return False
        known = {
            node.op_type: cost.basis != "unknown"
            for node, cost in zip(self.graph.nodes, self.table.costs, strict=True)
            if node.op_type in self.lacks
        }
        return not all(known.get(op_type, False) for op_type in self.lacks)

    @property
    def cpu_refuses(self) -> str:
        """Return why no session of the CPU alone runs what a GPU may run; empty where one does."""
        return "" if self.lacks else self.cpu_fails

    @property
    def has_batch(self) -> bool:
        """Return whether an input has as many rows as the batch says."""
        graph = self.graph
        return may_have_batch(self.batch, graph.inputs, training=graph.is_training_step)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """The quantities that change with the batch.

    Attributes:
        rows: Every plan at every batch.
        crossover_batch: Smallest batch from which the GPU wins up to the largest looked at; None if none.
        crossovers: Every batch at which the faster device changes.
        saturation_batch: Smallest batch at which the GPU gives 90 % of its best throughput.
        largest_batch: Largest batch looked at that fits the GPU's memory; None if none does or it is not known.
        note: The crossover in a sentence.
        ranges: Who is faster from which batch to which, ``either`` where the interval leaves it open.
    """

    rows: tuple[SweepRow, ...] = ()
    crossover_batch: int | None = None
    crossovers: tuple[int, ...] = ()
    saturation_batch: int | None = None
    largest_batch: int | None = None
    note: str = ""
    ranges: tuple[BatchRange, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """The answer.

    Attributes:
        plans: ``cpu``, ``gpu``, ``hybrid``; ``cpu`` alone where there is no GPU or none can run it.
        verdict: For the model.
        operators: A verdict for each operator; none without its share of the time.
        placement: Each operator's device in the best plan.
        costs: Instances that carry the verdict's device, best first.
    """

    plans: tuple[PlanResult, ...]
    verdict: VerdictResult
    operators: tuple[OperatorVerdict, ...]
    placement: tuple[Side, ...]
    costs: tuple[CostRow, ...] = ()


def weight_bytes(question: DecisionInput) -> int:
    """Return all weights on a GPU, at the question's precision."""
    # By type: an element has four bytes, so that no tensor's own rounding is lost. It is asked for each plan.
    return sum(
        narrowed(nbytes, question.precision) if dtype == "float32" else nbytes
        for dtype, nbytes in question.graph.initializer_bytes.items()
    )


def cpu_weight_bytes(question: DecisionInput) -> int:
    """Return all weights on the CPU, as its session keeps them."""
    stored = question.cpu_weight_bytes
    return question.graph.parameter_bytes if stored is None else stored


def _activations(question: DecisionInput, device: Device | None) -> int | None:
    """Return activations alive at once: on a GPU at the question's precision, on a CPU at the model's own."""
    if device is question.cpu and question.cpu_peak_memory_bytes is not None:
        return question.cpu_peak_memory_bytes
    peak = question.peak_memory_bytes
    if peak is None or is_full(question.precision) or device is question.cpu:
        return peak
    # The peak was planned at the model's own types; at another precision it shrinks about as all outputs do
    # together. Which tensors are alive at the peak is not known here.
    by_type = question.graph.written_bytes
    before = sum(by_type.values())
    after = sum(
        narrowed(nbytes, question.precision) if dtype == "float32" else nbytes
        for dtype, nbytes in by_type.items()
    )
    return int(peak * after / before) if before else peak


def needed(question: DecisionInput, weights: int, device: Device | None) -> int | None:
    """Return weights and the activations alive at once on a device; None where those are not known."""
    activations = _activations(question, device)
    return None if activations is None else weights + activations


def fits(question: DecisionInput, weights: int, device: Device | None) -> bool:
    """Return whether a device has room for these weights and the activations; true where unknown."""
    return fit.fits(weights + (_activations(question, device) or 0), fit.room(device))


def all_fits_gpu(question: DecisionInput) -> bool:
    """Return whether the GPU has room for the whole model, as its CUDA session needs it."""
    return fits(question, weight_bytes(question), question.gpu)


def room_for_weights(question: DecisionInput) -> float | None:
    """Return the bytes that the activations leave on the GPU for weights; None for no limit."""
    limit = fit.room(question.gpu)
    # All activations, as if every operator ran there: the cut may leave room unused, but never runs out of it.
    return None if limit is None else max(0, limit - (_activations(question, question.gpu) or 0))
