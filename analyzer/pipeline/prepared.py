"""A graph at one batch with everything predicted for it: what the decision is asked about."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from analyzer import prediction
from analyzer.costs import CostTable, count
from analyzer.decision import DecisionInput, WhatIf, parse_pin
from analyzer.devices import catalogue
from analyzer.devices.device import Device
from analyzer.devices.instances import Instance
from analyzer.graph import Graph
from analyzer.memory.session_plan import planned_peak_bytes
from analyzer.ort.execution import Group, Placement, Provider
from analyzer.ort.fusion import predicted_groups
from analyzer.ort.placement import place
from analyzer.pipeline.measure import Measured
from analyzer.pipeline.options import Options
from analyzer.pipeline.target_devices import cpu_precision, decision_precision
from analyzer.precision import is_full
from analyzer.prediction.estimate import Estimate, total


@dataclass(frozen=True, kw_only=True, eq=False)
class PreparedGraph:
    """One graph, counted, placed and grouped; no device yet.

    Attributes:
        graph: The model at one batch.
        table: Its costs.
        placement: ONNX Runtime's placement in a [CUDA, CPU] session.
        cpu_groups, cuda_groups: What the two sessions execute.
        step_peak: Bytes alive at the peak of a training step.
        planned: What the two sessions are predicted to execute, whose buffers are planned; it stays where
            measured groups take the place of predicted ones.
    """

    graph: Graph
    table: CostTable
    placement: Placement
    cpu_groups: tuple[Group, ...]
    cuda_groups: tuple[Group, ...]
    step_peak: int | None = None
    planned: tuple[tuple[Group, ...], tuple[Group, ...]] | None = None

    def __post_init__(self) -> None:
        if self.planned is None:
            object.__setattr__(self, "planned", (self.cpu_groups, self.cuda_groups))

    @cached_property
    def cpu_work(self) -> prediction.Workload:
        """The CPU session's groups as numbers."""
        return prediction.workload(self.graph, self.table, self.cpu_groups)

    @cached_property
    def cuda_work(self) -> prediction.Workload:
        """The CUDA session's groups as numbers."""
        return prediction.workload(self.graph, self.table, self.cuda_groups)

    @cached_property
    def cpu_peak(self) -> int | None:
        """Bytes of activations that the CPU session holds at most; of a training step all that is alive."""
        return self._peak("cpu", 0)

    @cached_property
    def cuda_peak(self) -> int | None:
        """Bytes of activations that the CUDA session holds at most on the GPU; of a training step all."""
        return self._peak("cuda", 1)

    def _peak(self, provider: Provider, session: int) -> int | None:
        if self.graph.carried:
            return self.step_peak
        assert self.planned is not None
        return planned_peak_bytes(self.graph, self.planned[session], provider=provider)


def prepare(graph: Graph) -> PreparedGraph:
    """Counts, places and groups a graph."""
    placement = place(graph)
    return PreparedGraph(
        graph=graph,
        table=count(graph),
        placement=placement,
        cpu_groups=predicted_groups(graph, "cpu", None),
        cuda_groups=predicted_groups(graph, "cuda", placement),
    )


def at_batch(prepared: PreparedGraph, graph: Graph, table: CostTable | None = None) -> PreparedGraph:
    """The same model at another batch: placement and groups carry over, since the operators are the same.

    Args:
        prepared: The model at one batch.
        graph: At the other.
        table: Its costs there, counted where None.
    """
    same = len(graph.nodes) == len(prepared.graph.nodes) and all(
        left.op_type == right.op_type for left, right in zip(graph.nodes, prepared.graph.nodes, strict=True)
    )
    if not same:
        return prepare(graph)
    sizes = {tensor.name: tensor.nbytes for node in graph.nodes for tensor in node.present_outputs}
    sizes |= {tensor.name: tensor.nbytes for tensor in graph.inputs}
    copies = tuple(
        replace(copy, nbytes=sizes.get(copy.tensor, copy.nbytes)) for copy in prepared.placement.copies
    )
    placement = replace(prepared.placement, copies=copies)
    return replace(prepared, graph=graph, table=table or count(graph), placement=placement)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sides:
    """Times of all groups on both sides."""

    cpu: tuple[Estimate | None, ...]
    cuda: tuple[Estimate | None, ...]


class Predictor:
    """Asks the decision's questions about one model on chosen devices.

    Args:
        options: The user's options.
        cpu: The CPU of the decision.
        correction: Measured over predicted latency of the CPU, by which other batches are scaled; 1 where
            nothing was measured.
        instances: What can be rented; None reads the catalogue and the options' price list.
    """

    def __init__(
        self,
        options: Options,
        cpu: Device,
        correction: float = 1.0,
        instances: tuple[Instance, ...] | None = None,
    ) -> None:
        self.options = options
        self.cpu = cpu
        self.correction = correction
        self.instances = catalogue.instances(options.prices) if instances is None else instances
        self.pins = tuple(parse_pin(text) for text in options.pins)

    def question(
        self,
        prepared: PreparedGraph,
        gpu: Device | None,
        batch: int | None,
        measured: Measured | None,
        *,
        whole: bool = True,
    ) -> DecisionInput:
        """Everything known about one prepared on one GPU.

        Args:
            prepared: The model at ``batch``.
            gpu: None to look at the CPU alone.
            batch: Inferences per run.
            measured: What was measured at this batch, None for predictions alone.
            whole: Whether operators are asked about one by one; plans need groups alone.
        """
        precision = decision_precision(self.options, prepared.graph, gpu)
        if measured is not None and measured.cpu_groups:
            prepared = replace(prepared, cpu_groups=measured.cpu_groups)
        if measured is not None and measured.cuda_groups and gpu is not None:
            prepared = replace(prepared, cuda_groups=measured.cuda_groups)
        sides = self._sides(prepared, gpu, precision, measured)
        question = self._asked(prepared, gpu, batch, precision, sides, measured)
        return self._with_shares(question, prepared) if whole else question

    def _asked(
        self,
        prepared: PreparedGraph,
        gpu: Device | None,
        batch: int | None,
        precision: str,
        sides: Sides,
        measured: Measured | None,
    ) -> DecisionInput:
        options = self.options
        on_cpu = cpu_precision(precision, prepared.graph)
        return DecisionInput(
            graph=prepared.graph,
            table=prepared.table,
            cpu=self.cpu,
            cpu_groups=prepared.cpu_groups,
            cpu_times=sides.cpu,
            gpu=gpu,
            cuda_groups=prepared.cuda_groups if gpu else (),
            cuda_times=sides.cuda,
            placement=prepared.placement if gpu else None,
            batch=batch,
            precision=precision,
            objective=options.objective,
            slo_s=options.slo_s,
            pins=self.pins,
            instances=self.instances,
            utilisation=options.utilisation,
            cpu_latency=measured.cpu_latency if measured else None,
            cuda_latency=measured.cuda_latency if measured else None,
            peak_memory_bytes=prepared.cuda_peak if gpu else prepared.cpu_peak,
            here=options.cpu is None and not options.fixed,
            cpu_on=self._cpu_on(prepared, on_cpu),
        )

    def _sides(
        self, prepared: PreparedGraph, gpu: Device | None, precision: str, measured: Measured | None
    ) -> Sides:
        on_cpu = cpu_precision(precision, prepared.graph)
        here = prediction.predict(prepared.cpu_work, self.cpu, precision=on_cpu, threads=self.options.threads)
        cpu: tuple[Estimate | None, ...] = tuple(estimate.scaled(self.correction) for estimate in here)
        if measured is not None and measured.cpu_times:
            cpu = tuple(
                found if found is None else replace(found, bound=predicted.bound)
                for found, predicted in zip(measured.cpu_times, here, strict=True)
            )
        cuda = self._cuda(prepared, gpu, precision, on_cpu) if gpu else ()
        if gpu is not None and measured is not None and measured.cuda_times:
            cuda = tuple(
                found if found is None else replace(found, bound=predicted.bound if predicted else None)
                for found, predicted in zip(measured.cuda_times, cuda, strict=True)
            )
        return Sides(cpu=cpu, cuda=cuda)

    def _cuda(
        self, prepared: PreparedGraph, gpu: Device, precision: str, on_cpu: str
    ) -> tuple[Estimate | None, ...]:
        """Times in a CUDA session: groups that fall back take the CPU's time."""
        there = prediction.predict(prepared.cuda_work, gpu, precision=precision)
        if all(group.provider == "cuda" for group in prepared.cuda_groups):
            return there
        here = prediction.predict(prepared.cuda_work, self.cpu, precision=on_cpu, threads=self.options.threads)
        return tuple(
            on_gpu if group.provider == "cuda" else fallen.scaled(self.correction)
            for group, on_gpu, fallen in zip(prepared.cuda_groups, there, here, strict=True)
        )

    def _with_shares(self, question: DecisionInput, prepared: PreparedGraph) -> DecisionInput:
        """Splits the time of each group over its operators."""
        graph, table = prepared.graph, prepared.table
        on_cpu = cpu_precision(question.precision, graph)
        cpu = prediction.operator_shares(
            graph,
            table,
            prepared.cpu_groups,
            question.cpu_times,
            self.cpu,
            on_cpu,
            threads=self.options.threads,
        )
        if question.gpu is None:
            return replace(question, cpu_shares=cpu)
        gpu = prediction.operator_shares(
            graph, table, prepared.cuda_groups, question.cuda_times, question.gpu, question.precision
        )
        return replace(question, cpu_shares=cpu, gpu_shares=gpu)

    def _cpu_on(self, prepared: PreparedGraph, precision: str) -> Callable[[Instance], Estimate | None]:
        def latency(instance: Instance) -> Estimate | None:
            cpu = catalogue.instance_cpu(instance)
            if cpu is None:
                return None
            return total(prediction.predict(prepared.cpu_work, cpu, precision=precision))

        return latency

    def what_if(
        self, prepared: PreparedGraph, gpu: Device, batch: int | None, on_cpu: Measured | None
    ) -> tuple[WhatIf, ...]:
        """The same question in half precision and at the opset that brings operators back to the GPU.

        Args:
            prepared: The model at ``batch``.
            gpu: The verdict's.
            batch: Inferences per run.
            on_cpu: What the CPU was measured at: half precision is the GPU's alone, see ``cpu_precision``.
        """
        found = []
        own = decision_precision(self.options, prepared.graph, gpu)
        if self.options.precision is None and is_full(own) and "fp16" in gpu.peak_flops_per_s:
            options = replace(self.options, precision="fp16")
            half = Predictor(options, self.cpu, self.correction, self.instances)
            found.append(WhatIf(change="in fp16", question=half.question(prepared, gpu, batch, on_cpu)))
        opset = opset_with_kernels(prepared)
        if opset is not None:
            older = prepare(with_opset(prepared.graph, opset))
            found.append(
                WhatIf(change=f"exported at opset {opset}", question=self.question(older, gpu, batch, None))
            )
        return tuple(found)


def opset_with_kernels(prepared: PreparedGraph) -> int | None:
    """The opset at which fewer operators fall to the CPU for want of a kernel; None where none does."""
    from analyzer.ort.placement import best_opset

    fallen = [
        node
        for node, there in zip(prepared.graph.nodes, prepared.placement.nodes, strict=True)
        if there.why == "no-kernel-for-opset"
    ]
    candidates = [opset for opset in map(best_opset, fallen) if opset is not None]
    return min(candidates, default=None)


def with_opset(graph: Graph, opset: int) -> Graph:
    """The same operators read at another opset of the default domain, to place them again."""
    nodes = tuple(replace(node, version=opset) if node.domain == "ai.onnx" else node for node in graph.nodes)
    return replace(graph, nodes=nodes, opsets={**graph.opsets, "ai.onnx": opset})


def batch_questions(
    predictor: Predictor,
    prepared_graphs: Mapping[int, PreparedGraph],
    gpu: Device | None,
    measured: Mapping[int, Measured],
) -> dict[int, DecisionInput]:
    """The question at each batch."""
    return {
        batch: predictor.question(prepared, gpu, batch, measured.get(batch), whole=False)
        for batch, prepared in prepared_graphs.items()
    }
