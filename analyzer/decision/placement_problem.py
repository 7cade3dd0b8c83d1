"""The minimum cut's problem: units that move as one, and the tensors between them as edges.

A unit is a connected union of overlapping CPU and CUDA groups: a device runs all of it or nothing, since a
fused kernel cannot be cut. Operators in no group (folded, eliminated) cost nothing and hand on what they read.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from analyzer.arrays import Bools, Floats, Ints
from analyzer.decision.decision_input import DecisionInput, Side
from analyzer.graph import Graph
from analyzer.ort.execution import Placement
from analyzer.precision import bytes_at

HOST = -1  # where inputs come from, outputs go to, and operators without a CUDA kernel run


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorEdge:
    """A tensor that a cut may cross, and then has to be copied: one edge to all its readers.

    Attributes:
        tensor: Its name.
        producer: Unit that writes it on the GPU when that unit is there; ``HOST`` if it is on the host anyway.
        readers: Other units that need it where they are.
        host: Whether it is needed on the host anyway.
        is_input, is_output: Whether the caller feeds it, whether the caller gets it.
    """

    tensor: str
    producer: int
    readers: tuple[int, ...]
    host: bool
    is_input: bool = False
    is_output: bool = False


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Arcs:
    """The network of a minimum cut, for whatever costs.

    Vertices are the source (0), the sink (1), then a unit each, then helpers of edges with several readers.

    Attributes:
        start, end: Vertices of each arc.
        cost: Which cost an arc has, an index into those of ``EdgeArrays.arcs``.
        vertices: How many there are.
    """

    start: Ints
    end: Ints
    cost: Ints
    vertices: int


class EdgeArrays:
    """The edges of a problem, tensors between so many units, as arrays."""

    SOURCE, SINK, UNITS = 0, 1, 2

    def __init__(self, units: int, edges: Sequence[TensorEdge]) -> None:
        self._count = len(edges)
        self._producer = np.array([edge.producer for edge in edges], dtype=np.int64)
        self._host = np.array([edge.host for edge in edges], dtype=np.bool_)
        self._reader = np.array([unit for edge in edges for unit in edge.readers], dtype=np.int64)
        readers = np.array([len(edge.readers) for edge in edges], dtype=np.int64)
        self._edge_of_reader = np.repeat(np.arange(self._count), readers)
        self.arcs = self._arcs(units, edges)

    def crossed(self, on_gpu: Bools) -> tuple[Bools, Bools]:
        """Return which edges a placement copies to the GPU, and which to the CPU."""
        written_on_gpu = np.append(on_gpu, False)[self._producer]  # HOST is the last
        reader_on_gpu = on_gpu[self._reader]
        read_on_gpu = self._with_reader(reader_on_gpu)
        read_on_cpu = self._with_reader(~reader_on_gpu) | self._host
        return ~written_on_gpu & read_on_gpu, written_on_gpu & read_on_cpu

    def by_unit(self, costs: Floats, units: int) -> Floats:
        """Return for each of so many units the sum of the costs of the edges that it writes or reads."""
        unit = np.concatenate((self._producer, self._reader))
        of_edge = np.concatenate((costs, costs[self._edge_of_reader]))
        known = unit != HOST
        return np.bincount(unit[known], of_edge[known], minlength=units).astype(np.float64)

    def _with_reader(self, which: Bools) -> Bools:
        """Return edges that have one of these readers."""
        result = np.zeros(self._count, dtype=np.bool_)
        result[self._edge_of_reader[which]] = True
        return result

    def _arcs(self, units: int, edges: Sequence[TensorEdge]) -> Arcs:
        """From, to, cost when the first is on the CPU's side and the second on the GPU's.

        Costs are numbered: each unit's on the GPU, each unit's on the CPU, each edge's copy to the GPU, each
        edge's copy to the CPU, and at last one that is never paid.
        """
        inward, outward = 2 * units, 2 * units + self._count
        never = outward + self._count
        arcs: list[tuple[int, int, int]] = []
        for unit in range(units):
            arcs.append((self.SOURCE, self.UNITS + unit, unit))
            arcs.append((self.UNITS + unit, self.SINK, units + unit))
        helper = self.UNITS + units
        for position, edge in enumerate(edges):
            producer = self.SOURCE if edge.producer == HOST else self.UNITS + edge.producer
            readers = [self.UNITS + unit for unit in edge.readers]
            if len(readers) == 1:  # the common case needs no vertex of its own
                arcs.append((producer, readers[0], inward + position))
            elif readers:
                arcs.append((producer, helper, inward + position))
                # The vertex joins the GPU's side with the first reader there: one copy is paid, more readers
                # are free.
                arcs += [(helper, reader, never) for reader in readers]
                helper += 1
            if producer == self.SOURCE:
                continue
            if edge.host:  # needed on the host whatever its readers do: the copy hangs on the producer alone
                arcs.append((self.SOURCE, producer, outward + position))
            elif len(readers) == 1:
                arcs.append((readers[0], producer, outward + position))
            else:
                arcs.append((helper, producer, outward + position))
                arcs += [(reader, helper, never) for reader in readers]
                helper += 1
        columns = np.array(arcs, dtype=np.int64).reshape(-1, 3).T
        return Arcs(start=columns[0], end=columns[1], cost=columns[2], vertices=helper)


@dataclass(frozen=True, kw_only=True)
class PlacementProblem:
    """Units of a graph and the edges between them.

    Attributes:
        unit: Unit of each operator, ``HOST`` for one in no group.
        units: How many units there are.
        gpu_capable: For each operator, whether it runs on the GPU when its unit is there.
        edges: Tensors between units, or between a unit and the host.
        edge_arrays: The same as arrays.
        nbytes: Size of each edge's tensor at the question's precision; None where not known.
        weights: Bytes of initializers that each unit reads on the GPU, each initializer once.
        roots: For a tensor that an eliminated operator hands on, the tensor it really is; None for a constant.
        graph: The operators, at any batch.
    """

    unit: tuple[int, ...]
    units: int
    gpu_capable: tuple[bool, ...]
    edges: tuple[TensorEdge, ...]
    edge_arrays: EdgeArrays = field(compare=False, repr=False)
    nbytes: tuple[int | None, ...]
    weights: tuple[int, ...]
    roots: Mapping[str, str | None]
    graph: Graph = field(compare=False, repr=False)

    @cached_property
    def gpu_capable_units(self) -> tuple[bool, ...]:
        """Units of which at least a part runs on the GPU."""
        capable = {unit for unit, on_gpu in zip(self.unit, self.gpu_capable, strict=True) if on_gpu}
        return tuple([unit in capable for unit in range(self.units)])

    @cached_property
    def gpu_sides(self) -> tuple[Side, ...]:
        """Device of each operator in the CUDA session, the same for every GPU."""
        return self.sides(self.gpu_capable_units)

    def sides(self, on_gpu: Sequence[bool]) -> tuple[Side, ...]:
        """Device of each operator; one that does not run goes with its input's producer, else with the CPU."""
        sides: list[Side] = []
        for node, unit, gpu_capable in zip(self.graph.nodes, self.unit, self.gpu_capable, strict=True):
            if unit != HOST:
                sides.append("gpu" if gpu_capable and on_gpu[unit] else "cpu")
                continue
            before = (self.graph.producer.get(read.name) for read in node.present_inputs if not read.constant)
            producer = next((index for index in before if index is not None and index < node.index), None)
            sides.append("cpu" if producer is None else sides[producer])
        return tuple(sides)


def placement_problem(question: DecisionInput) -> PlacementProblem:
    """Return units and edges of a question that has a GPU."""
    graph = question.graph
    groups = (group.members for group in (*question.cpu_groups, *question.cuda_groups))
    unit, units = _units(len(graph.nodes), (*groups, *question.together))
    gpu_capable = _gpu_capable(question, unit)
    roots = _roots(graph, unit)
    edges = tuple(_edges(question, unit, gpu_capable, roots))
    return PlacementProblem(
        unit=unit,
        units=units,
        gpu_capable=gpu_capable,
        edges=edges,
        edge_arrays=EdgeArrays(units, edges),
        nbytes=_sizes(question, edges),
        weights=_weights(question, unit, units, gpu_capable),
        roots=roots,
        graph=graph,
    )


class Problems:
    """The problems of a model's questions, each solved for by many devices and worked out once.

    Mostly a model has the same units and edges at every batch and precision: those of the first question are
    found for all, whose tensors have other sizes.
    """

    def __init__(self) -> None:
        # Each holds its question too, as an id is another's once its object is gone.
        self._known: dict[Hashable, tuple[DecisionInput, PlacementProblem]] = {}

    def of(self, question: DecisionInput) -> PlacementProblem:
        """Return the units and edges of a question that has a GPU."""
        parts = question.graph, question.cpu_groups, question.cuda_groups, question.placement
        key = (*map(id, parts), question.precision, question.together)
        if key not in self._known:
            first, same = next(iter(self._known.values()), (None, None))
            if first is not None and same is not None and _same_units(question, first):
                weights = _weights(question, same.unit, same.units, same.gpu_capable)
                problem = replace(same, nbytes=_sizes(question, same.edges), weights=weights)
            else:
                problem = placement_problem(question)
            self._known[key] = question, problem
        return self._known[key][1]


def _same_units(question: DecisionInput, other: DecisionInput) -> bool:
    """Return whether two questions (at two batches or precisions) surely have the same units and edges."""
    if question.cpu_groups is not other.cpu_groups or question.cuda_groups is not other.cuda_groups:
        return False
    if question.together != other.together:
        return False
    placement, other_placement = question.placement, other.placement
    if placement is None or other_placement is None or placement.nodes is not other_placement.nodes:
        return False
    copies, others = (
        [(copy.tensor, copy.direction, copy.consumers) for copy in placed.copies]
        for placed in (placement, other_placement)
    )
    return copies == others and question.graph.wired_like(other.graph)


def _sizes(question: DecisionInput, edges: Iterable[TensorEdge]) -> tuple[int | None, ...]:
    tensors = question.graph.tensors
    inputs = {tensor.name for tensor in question.graph.inputs}
    # What the caller feeds and gets is cast on the device: it crosses in its own type.
    return tuple(
        [
            tensors[edge.tensor].nbytes
            if edge.is_output or edge.tensor in inputs
            else bytes_at(tensors[edge.tensor], question.precision)
            for edge in edges
        ]
    )


def _units(nodes: int, groups: Iterable[Sequence[int]]) -> tuple[tuple[int, ...], int]:
    """Return the unit of each operator and the number of units: union-find over the groups' members."""
    parent = list(range(nodes))
    grouped = [False] * nodes

    def root(node: int) -> int:
        while parent[node] != node:
            parent[node] = parent[parent[node]]  # path halving: near constant time for deep chains
            node = parent[node]
        return node

    # CPU and CUDA sessions fuse differently; where their groups overlap neither may be cut, so they join.
    for members in groups:
        for member in members:
            grouped[member] = True
            parent[root(member)] = root(members[0])
    numbers: dict[int, int] = {}
    unit = tuple(numbers.setdefault(root(i), len(numbers)) if grouped[i] else HOST for i in range(nodes))
    return unit, len(numbers)


def _gpu_capable(question: DecisionInput, unit: tuple[int, ...]) -> tuple[bool, ...]:
    """Operators that the CUDA session runs on the GPU, or that it eliminates and a CPU session does not."""
    providers: dict[int, set[str]] = {}
    for group in question.cuda_groups:
        for member in group.members:
            providers.setdefault(member, set()).add(group.provider)
    placed = question.placement.nodes if question.placement else ()

    # In no CUDA group, yet in one of the CPU's: CUDA's optimiser took it away, so that it costs nothing there.
    # What was placed on the CPU for another reason stays there.
    def eliminated(node: int) -> bool:
        return not placed or placed[node].provider == "cuda" or placed[node].why == "folded"

    return tuple(
        number != HOST and ("cuda" in providers[node] if node in providers else eliminated(node))
        for node, number in enumerate(unit)
    )


def _roots(graph: Graph, unit: tuple[int, ...]) -> dict[str, str | None]:
    roots: dict[str, str | None] = {tensor.name: None for tensor in graph.initializers}
    for node in graph.nodes:
        for tensor in node.present_outputs:
            if tensor.constant:
                roots[tensor.name] = None
            elif unit[node.index] == HOST:
                # Eliminated operators (Identity, Dropout, a pair of Transposes) hand on their first real input.
                read = (roots.get(name, name) for name in graph.names_read[node.index])
                roots[tensor.name] = next((name for name in read if name is not None), None)
    return roots


class _HostMemory:
    """Operands that CUDA kernels keep on the host (shapes), as the session's copies give away.

    Between an operator on the CPU and one on the GPU, no copy means that the tensor lies on the host: either
    the CUDA kernel reads that operand there, or (the other way round) it writes it there.
    """

    def __init__(self, graph: Graph, placement: Placement | None, roots: Mapping[str, str | None]) -> None:
        self._cuda = tuple([node.provider == "cuda" for node in placement.nodes]) if placement else ()
        # Mostly everything runs on the GPU: then no kernel keeps anything on the host.
        self._has_cpu_nodes = False in self._cuda
        self._producer = graph.producer
        self._to_gpu: dict[str, set[int]] = {}
        self._to_cpu: set[str] = set()
        for copy in placement.copies if placement else ():
            name = roots.get(copy.tensor, copy.tensor) or copy.tensor
            if copy.direction == "to_gpu":
                self._to_gpu.setdefault(name, set()).update(copy.consumers)
            else:
                self._to_cpu.add(name)

    def left_on_host(self, name: str, readers: Iterable[int]) -> bool:
        """Return whether a CUDA kernel leaves this tensor on the host."""
        if not self._has_cpu_nodes:
            return False
        producer = self._producer.get(name)
        if producer is None or not self._cuda[producer] or name in self._to_cpu:
            return False
        return any(not self._cuda[reader] for reader in readers)

    def reads(self, name: str, reader: int, *, left_on_host: bool) -> bool:
        """Return whether a CUDA kernel reads this tensor on the host."""
        if not self._has_cpu_nodes:
            return False
        producer = self._producer.get(name)
        if producer is None or not self._cuda[reader]:
            return False
        if self._cuda[producer] and not left_on_host:
            return False  # made and read on the card
        return reader not in self._to_gpu.get(name, ())


def _readers(
    graph: Graph, unit: tuple[int, ...], roots: Mapping[str, str | None]
) -> tuple[dict[str, list[int]], set[str]]:
    """Return operators that really read each tensor, and the tensors that the caller gets."""
    readers: dict[str, list[int]] = {}
    for node in graph.nodes:
        if unit[node.index] == HOST:
            continue
        names = [roots.get(name, name) for name in graph.names_read[node.index]]
        for name in names if len(names) < 2 else dict.fromkeys(names):
            if name is not None:
                readers.setdefault(name, []).append(node.index)
    outputs = (roots.get(tensor.name, tensor.name) for tensor in graph.outputs)
    return readers, {name for name in outputs if name is not None}


def _edges(
    question: DecisionInput,
    unit: tuple[int, ...],
    gpu_capable: tuple[bool, ...],
    roots: Mapping[str, str | None],
) -> Iterable[TensorEdge]:
    graph = question.graph
    memory = _HostMemory(graph, question.placement, roots)
    readers, outputs = _readers(graph, unit, roots)
    inputs = {tensor.name for tensor in graph.inputs}
    carried = {name: roots.get(new, new) or new for name, new in graph.carried.items()}
    # In a training step new weights and optimizer state are outputs for form's sake: they stay for the next
    # step.
    outputs -= {new for name, new in carried.items() if name != new}
    for name in graph.tensors:
        if name in roots and roots[name] != name:
            continue
        if name in carried and name == carried[name]:
            continue  # a weight that never changes lies where it is used
        read = readers.get(name, [])
        # What is carried to the next run lies where its new value was written.
        producer = graph.producer.get(carried.get(name, name))
        left_on_host = memory.left_on_host(name, read)
        producer_unit = (
            HOST if producer is None or left_on_host or not gpu_capable[producer] else unit[producer]
        )
        on_host = {r for r in read if not gpu_capable[r] or memory.reads(name, r, left_on_host=left_on_host)}
        reader_units = dict.fromkeys([unit[r] for r in read if unit[r] != producer_unit and r not in on_host])
        is_output = name in outputs
        host = bool(on_host) or is_output
        if reader_units or (host and producer_unit != HOST):
            yield TensorEdge(
                tensor=name,
                producer=producer_unit,
                readers=tuple(reader_units),
                host=host,
                is_input=name in inputs and name not in carried,
                is_output=is_output,
            )


def _weights(
    question: DecisionInput, unit: tuple[int, ...], units: int, gpu_capable: tuple[bool, ...]
) -> tuple[int, ...]:
    """Return the initializer of a folded operator's result (a transposed weight)."""
    # Each initializer counts for its first reader: units are free to part, but the bytes are on the card once.
    weights = [0] * units
    stored = {tensor.name: tensor for tensor in question.graph.initializers}
    for node in question.graph.nodes:
        for tensor in node.outputs:
            if tensor is not None and tensor.constant:
                stored[tensor.name] = tensor
    for node in question.graph.nodes:
        if not gpu_capable[node.index]:
            continue
        for name in question.graph.names_read[node.index]:
            if name in stored:
                tensor = stored.pop(name)
                weights[unit[node.index]] += bytes_at(tensor, question.precision) or 0
    return tuple(weights)
