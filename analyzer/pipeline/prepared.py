"""A graph at one batch, counted, placed and grouped: what both devices are predicted from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from analyzer import prediction
from analyzer.conversion import HALF, without_half_kernel
from analyzer.costs import CostTable, count
from analyzer.devices.device import Device
from analyzer.figures import Figure, total
from analyzer.graph import DEFAULT_DOMAIN, DTYPES, Graph, Node, Tensor
from analyzer.loading.onnx_graph.build import with_known_sizes
from analyzer.memory.session_plan import SessionPlan
from analyzer.ort.execution import Group, Placement, Provider, Session
from analyzer.ort.fusion import predicted_groups
from analyzer.ort.kernels import registry
from analyzer.ort.placement import best_opset, place
from analyzer.ort.simplify import simplify
from analyzer.prediction.estimate import Estimate

_CAST_SINCE = 13  # an opset that knows bfloat16


class WideOperators:
    """Operators of a model in float32 that have no kernel in a narrow type, and the Casts that they need."""

    def __init__(self, graph: Graph, precision: str, release: str = "") -> None:
        self._graph = graph
        self._narrow = HALF[precision]
        self.indices = frozenset(without_half_kernel(graph, self._narrow, release=release))

    def among(self, groups: Sequence[Group]) -> npt.NDArray[np.bool_]:
        """Return which of the groups of a session on CUDA run in float32."""
        flags = [group.provider == "cuda" and not self.indices.isdisjoint(group.members) for group in groups]
        return np.array(flags, dtype=np.bool_)

    def casts(self, groups: Sequence[Group], gpu: Device, precision: str) -> list[Figure | None]:
        """Time of the Casts before and behind each group; None where its neighbours are wide as well."""
        owners = [
            (tensor, number) for number, group in enumerate(groups) for tensor in self._cast_tensors(group)
        ]
        narrow = DTYPES[self._narrow]
        nodes = tuple(
            Node(
                index=index,
                name=f"Cast_{index}",
                op_type="Cast",
                version=_CAST_SINCE,
                inputs=(tensor,),
                outputs=(Tensor(name=f"{tensor.name}_{index}", shape=tensor.shape, dtype=narrow),),
                attributes={"to": narrow.onnx},
            )
            for index, (tensor, _) in enumerate(owners)
        )
        graph = Graph(
            name="casts",
            nodes=nodes,
            inputs=tuple({tensor.name: tensor for tensor, _ in owners}.values()),
            outputs=tuple(tensor for node in nodes for tensor in node.present_outputs),
        )
        alone = tuple(
            Group(session="cuda", name=node.name, op_type="Cast", members=(node.index,), provider="cuda")
            for node in nodes
        )
        work = prediction.workload(graph, count(graph), alone)
        times: list[list[Figure]] = [[] for _ in groups]
        for (_, number), time in zip(
            owners, prediction.predict_arrays(work, gpu, precision=precision).estimates(), strict=True
        ):
            if time is not None:
                times[number].append(time)
        return [total(each) if each else None for each in times]

    def _cast_tensors(self, group: Group) -> Iterator[Tensor]:
        graph, members = self._graph, frozenset(group.members)
        read = {t.name: t for index in group.members for t in graph.nodes[index].present_inputs}
        for tensor in read.values():
            writer = graph.producer.get(tensor.name)
            if (
                writer not in members
                and writer not in self.indices
                and not tensor.constant
                and _is_wide(tensor)
            ):
                yield tensor
        for index in group.members:
            for tensor in graph.nodes[index].present_outputs:
                readers = graph.consumers.get(tensor.name, ())
                inside = all(reader in members or reader in self.indices for reader in readers)
                if _is_wide(tensor) and not (readers and inside):
                    yield tensor


def _is_wide(tensor: Tensor) -> bool:
    return tensor.dtype.name == "float32"


@dataclass(frozen=True, kw_only=True, eq=False)
class CpuForm:
    """A graph as a CPU session runs it, where that computes and keeps weights in other types than the graph's.

    Casts between types of ``prepared`` may be missing; ``lacks`` are types of operators for which ONNX
    Runtime's CPU provider has no kernel there.
    """

    prepared: PreparedGraph
    weight_bytes: int
    lacks: tuple[str, ...] = ()


# No slots: cached_property writes into the instance's __dict__.
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
        alike: The same operators between the same tensors at another batch: what sessions do is the same where
            no size decides it. None where there is none.
        cpu_form: What a CPU session runs; None where that is this graph.
    """

    graph: Graph
    table: CostTable
    placement: Placement
    cpu_groups: tuple[Group, ...]
    cuda_groups: tuple[Group, ...]
    step_peak: int | None = None
    planned: tuple[tuple[Group, ...], tuple[Group, ...]] | None = None
    alike: PreparedGraph | None = None
    cpu_form: CpuForm | None = None

    def __post_init__(self) -> None:
        # Carried through every replace(), so that memory is planned from the same groups at the batches that
        # were measured and at those that were not.
        if self.planned is None:
            object.__setattr__(self, "planned", (self.cpu_groups, self.cuda_groups))

    @property
    def on_cpu(self) -> PreparedGraph:
        """The groups of a CPU session."""
        return self if self.cpu_form is None else self.cpu_form.prepared

    @cached_property
    def load_fails(self) -> str:
        """Return why the release does not load the model; empty where it does."""
        graph = self.graph
        return registry(self.placement.release).refuses_model(
            ir_version=graph.ir_version,
            opset=graph.opsets.get(DEFAULT_DOMAIN, 0),
            problems=graph.problems,
            operators=(node.identity for node in graph.nodes),
        )

    @cached_property
    def _places(self) -> tuple[int, ...] | None:
        """By operator of the CPU's form, the index of the same one here, where all of them are."""
        if self.cpu_form is None:
            return None
        result, start, nodes = [], 0, self.graph.nodes
        for node in self.cpu_form.prepared.graph.nodes:
            while nodes[start].op_type != node.op_type:
                start += 1
            result.append(start)
            start += 1
        return tuple(result)

    @cached_property
    def groups_on_cpu(self) -> tuple[Group, ...]:
        """The groups of a CPU session by this graph's operators."""
        places = self._places
        if places is None:
            return self.cpu_groups
        return tuple(
            replace(group, members=tuple(places[member] for member in group.members))
            for group in self.on_cpu.cpu_groups
        )

    def from_cpu(self, times: tuple[Estimate | None, ...]) -> tuple[Estimate | None, ...]:
        """Time of a CPU session's operators by this graph's; None for one that it does without."""
        places = self._places
        if places is None:
            return times
        known = dict(zip(places, times, strict=True))
        return tuple(known.get(index) for index in range(len(self.graph.nodes)))

    @cached_property
    def cpu_work(self) -> prediction.Workload:
        """The CPU session's groups as numbers."""
        copies, operators = self.cpu_layout_copies, self.operators
        return prediction.workload(self.graph, self.table, self.cpu_groups, copies=copies, operators=operators)

    @cached_property
    def cuda_work(self) -> prediction.Workload:
        """The CUDA session's groups as numbers."""
        return prediction.workload(self.graph, self.table, self.cuda_groups, operators=self.operators)

    def shares(
        self,
        session: Session,
        times: tuple[Estimate | None, ...],
        device: Device,
        precision: str,
        threads: int | None = None,
    ) -> tuple[Estimate | None, ...]:
        """Time of a session's groups, split over the operators; see ``prediction.operator_shares``."""
        groups, work = self.cpu_groups, self.cpu_work
        if session == "cuda":
            groups, work = self.cuda_groups, self.cuda_work
        graph, table, own = self.graph, self.table, self.operators
        return prediction.operator_shares(
            graph, table, groups, work, times, device, precision, threads=threads, operators=own
        )

    @cached_property
    def cpu_layout_copies(self) -> prediction.LayoutCopies:
        """Copies between layouts in the CPU session."""
        known = None
        if self.alike is not None and self.alike.cpu_groups is self.cpu_groups:
            known = self.alike.cpu_layout_copies.at(self.graph)
        return known or prediction.layout_copies(self.graph, self.cpu_groups)

    @cached_property
    def _known(self) -> dict[str, Any]:
        """Plans of sessions by provider, and what half precision leaves in 32 bits by precision."""
        return {}

    def session_plan(self, provider: Provider) -> SessionPlan:
        """Return how one of the sessions plans its buffers."""
        known: SessionPlan | None = self._known.get(provider)
        if known is None:
            if self.alike is not None and self.alike.planned is self.planned:
                known = self.alike.session_plan(provider).at(self.graph)
            assert self.planned is not None
            known = self._known[provider] = known or SessionPlan.of(
                self.graph, self.planned[provider == "cuda"]
            )
        return known

    def wide(self, precision: str) -> WideOperators:
        """Return operators without a CUDA kernel in ``fp16`` or ``bf16``."""
        if precision not in self._known:
            self._known[precision] = WideOperators(self.graph, precision, self.placement.release)
        wide: WideOperators = self._known[precision]
        return wide

    @cached_property
    def operators(self) -> prediction.OperatorPieces:
        """The operators by themselves as numbers."""
        return prediction.OperatorPieces(self.graph, self.table)

    @cached_property
    def cpu_peak(self) -> int | None:
        """Bytes of activations that the CPU session holds at most; of a training step all that is alive."""
        # How a session plans its buffers is not modelled for a step, whose weights and states are fed to it.
        return self.step_peak if self.graph.is_training_step else self.session_plan("cpu").peak_bytes("cpu")

    @cached_property
    def cuda_peak(self) -> int | None:
        """Bytes of activations that the CUDA session holds at most on the GPU; of a training step all."""
        return self.step_peak if self.graph.is_training_step else self.session_plan("cuda").peak_bytes("cuda")


def prepare(graph: Graph, table: CostTable | None = None, *, release: str = "") -> PreparedGraph:
    """Place and group a graph; count it where its costs are not given.

    ``release`` of ONNX Runtime is the one that it is placed by; empty for the newest that is known.
    """
    simplified = simplify(graph, registry(release))
    placement = place(graph, simplified)
    return PreparedGraph(
        graph=graph,
        table=table or count(graph),
        placement=placement,
        cpu_groups=predicted_groups(graph, "cpu", simplified=simplified),
        cuda_groups=predicted_groups(graph, "cuda", placement, simplified=simplified),
    )


def at_batch(prepared: PreparedGraph, graph: Graph, table: CostTable | None = None) -> PreparedGraph:
    """Return same model at another batch: placement and groups carry over where the operators are the same."""
    # The same operators are taken to be fused and placed alike at every batch, which saves most of preparing.
    # Batch 1 may have fewer of them: what only broadcasts over the batch is folded there.
    same_operators = len(graph.nodes) == len(prepared.graph.nodes) and all(
        node.op_type == other.op_type for node, other in zip(graph.nodes, prepared.graph.nodes, strict=True)
    )
    if not same_operators:
        return prepare(graph, release=prepared.placement.release)
    tensors = graph.tensors
    copies = tuple(
        replace(copy, nbytes=tensors[copy.tensor].nbytes if copy.tensor in tensors else copy.nbytes)
        for copy in prepared.placement.copies
    )
    placement = replace(prepared.placement, copies=copies)
    alike = prepared if graph.wired_like(prepared.graph) else None
    return replace(prepared, graph=graph, table=table or count(graph), placement=placement, alike=alike)


def with_measured_sizes(prepared: PreparedGraph, shapes: Mapping[str, Sequence[int]]) -> PreparedGraph:
    """Return the same with the sizes that the data decide as a run had them; itself where that closes none."""
    graph = with_known_sizes(prepared.graph, shapes=shapes)
    if graph is prepared.graph:
        return prepared
    return at_batch(prepared, graph)


def opset_with_kernels(prepared: PreparedGraph) -> int | None:
    """Return the opset at which fewer operators fall to the CPU for want of a kernel; None where none does."""
    fallen = [
        node
        for node, placed in zip(prepared.graph.nodes, prepared.placement.nodes, strict=True)
        if placed.why == "no-kernel-for-opset"
    ]
    opsets = (best_opset(node, prepared.placement.release) for node in fallen)
    candidates = [opset for opset in opsets if opset is not None]
    # Each candidate is the last opset with a kernel for its operator: beyond the smallest one falls again.
    return min(candidates, default=None)


def with_opset(graph: Graph, opset: int) -> Graph:
    """Return the same operators read at another opset of the default domain, to place them again."""
    nodes = tuple(replace(node, version=opset) if node.domain == "ai.onnx" else node for node in graph.nodes)
    return replace(graph, nodes=nodes, opsets={**graph.opsets, "ai.onnx": opset})
