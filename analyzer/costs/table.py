"""Count a graph: one Cost per operator, with sums by type, module and executed group, and the parameters.

Scales and zero points say how weights are stored and are none; packed weights are as many as they unpack to;
those of classical models stand in attributes.
"""

from __future__ import annotations

import dataclasses
import gc
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import Protocol

from analyzer.costs.cost import ZERO, Cost, OpenSizeError, nbytes, read_by_tensor
from analyzer.costs.registry import count_node
from analyzer.graph import Graph, Node, Tensor
from analyzer.operators import CLASSICAL_DOMAIN, CONTRIB_DOMAIN, TreeSums, is_view
from analyzer.record.analysis import Coverage

_FLOAT_BYTES = 4
# Of ai.onnx.ml: what was learnt (onnx/defs/traditionalml/defs.cc).
_LEARNT = (
    *("nodes_values", "nodes_splits", "target_weights", "class_weights", "leaf_weights", "base_values"),
    *("coefficients", "intercepts", "support_vectors", "rho", "prob_a", "prob_b", "offset", "scale"),
)
# Inputs that tell how others are stored: scales, zero points, orders of groups.
_UNARY, _BINARY = (1, 2, 3, 4), (1, 2, 4, 5, 6, 7)
_STORAGE: Mapping[str, tuple[int, ...]] = MappingProxyType(
    {
        "QuantizeLinear": (1, 2),
        "DequantizeLinear": (1, 2),
        "QLinearConv": _BINARY,
        "QLinearMatMul": _BINARY,
        "QLinearAdd": _BINARY,
        "QLinearMul": _BINARY,
        "QGemm": (1, 2, 4, 5, 7, 8),
        "MatMulInteger": (2, 3),
        "ConvInteger": (2, 3),
        "MatMulIntegerToFloat": (2, 3, 4, 5),
        "DynamicQuantizeMatMul": (2, 3),
        "MatMulNBits": (2, 3, 4),
        "GatherBlockQuantized": (2, 3),
        **dict.fromkeys(("QLinearSigmoid", "QLinearLeakyRelu", "QLinearSoftmax"), _UNARY),
        **dict.fromkeys(("QLinearAveragePool", "QLinearGlobalAveragePool", "QLinearReduceMean"), _UNARY),
    }
)


def parameters(graph: Graph) -> int:
    """Return how many numbers the model has learnt, those of bodies too; open shapes count nothing."""
    return sum(map(_own_parameters, graph.with_bodies))


def _own_parameters(graph: Graph) -> int:
    described: set[str] = set()
    weights: set[str] = set()
    packed: dict[str, int] = {}
    learnt = 0
    for node in graph.nodes:
        storage = _storage(node)
        for position, tensor in enumerate(node.inputs):
            if tensor is not None and tensor.initializer:
                (described if position in storage else weights).add(tensor.name)
        learnt += _in_attributes(node)
        stored = node.input(1)
        if node.identity == (CONTRIB_DOMAIN, "MatMulNBits") and stored is not None:
            packed[stored.name] = int(node.attributes["N"] * node.attributes["K"])
    only_described = described - weights
    return learnt + sum(
        packed.get(tensor.name, tensor.elements or 0)
        for tensor in graph.initializers
        if tensor.name not in only_described
    )


def parameter_bytes(graph: Graph) -> int:
    """Return bytes of all that is stored, each tensor in its own type; attributes of classical models too."""
    learnt = sum(_in_attributes(node) for each in graph.with_bodies for node in each.nodes)
    return graph.parameter_bytes + _FLOAT_BYTES * learnt


def _storage(node: Node) -> tuple[int, ...]:
    if node.op_type == "QLinearConcat":
        return tuple(position for position in range(len(node.inputs)) if position < 2 or position % 3 != 2)
    return _STORAGE.get(node.op_type, ())


def _in_attributes(node: Node) -> int:
    if node.domain != CLASSICAL_DOMAIN:
        return 0
    learnt = (node.attributes.get(name) for name in _LEARNT)
    trees = TreeSums.of(node.attributes)
    return (0 if trees is None else trees.learnt) + sum(
        len(values) for values in learnt if isinstance(values, tuple)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class TypeCost:
    """The operators of one type together."""

    domain: str
    op_type: str
    operators: int
    cost: Cost


@dataclass(frozen=True, slots=True, kw_only=True)
class ModuleCost:
    """A module with all that is below it.

    Attributes:
        path: Dotted path; empty for the whole model.
        module_class: Class name, empty where not known.
        cost: Sum over the operators of the module and of the modules in it.
        operators: Indices of the module's own operators, ascending.
        children: The modules directly in it, in the order in which they first run.
    """

    path: str
    module_class: str
    cost: Cost
    operators: tuple[int, ...]
    children: tuple[ModuleCost, ...]

    def walk(self) -> Iterator[ModuleCost]:
        """Yield this module and all below it, depth first."""
        yield self
        for child in self.children:
            yield from child.walk()


@dataclass(frozen=True, kw_only=True, eq=False)
class CostTable:
    """The costs of a graph's operators.

    Attributes:
        graph: What was counted.
        costs: One per node, in the graph's order.
    """

    graph: Graph
    costs: tuple[Cost, ...]

    @cached_property
    def total(self) -> Cost:
        """The sum over all operators; "at least" where its basis is ``unknown``."""
        return total(self.costs)

    def coverage(self, weights: Sequence[float | None] | None = None) -> Coverage:
        """Return shares of the operators that are exact, modelled and unknown.

        Each counts for its weight (its predicted time), all the same without ``weights``.
        """
        sums = {"exact": 0.0, "modelled": 0.0, "unknown": 0.0}
        for index, cost in enumerate(self.costs):
            sums[cost.basis] += 1.0 if weights is None else weights[index] or 0.0
        whole = sum(sums.values())
        if not whole:
            return Coverage(exact=1.0, modelled=0.0, unknown=0.0)
        return Coverage(**{basis: part / whole for basis, part in sums.items()})

    def by_type(self) -> tuple[TypeCost, ...]:
        """Return sums by operator type, the most FLOPs first."""
        costs_by_identity: dict[tuple[str, str], list[Cost]] = {}
        for node, cost in zip(self.graph.nodes, self.costs, strict=True):
            costs_by_identity.setdefault(node.identity, []).append(cost)
        rows = [
            TypeCost(domain=domain, op_type=op_type, operators=len(costs), cost=total(costs))
            for (domain, op_type), costs in costs_by_identity.items()
        ]
        return tuple(sorted(rows, key=lambda row: (-(row.cost.flops or 0), row.domain, row.op_type)))

    def by_module(self) -> ModuleCost:
        """Return the tree of modules, the whole model at its root."""
        root = _Branch("", [], {})
        for node in self.graph.nodes:
            branch = root
            for part in node.module.split(".") if node.module else ():
                branch = branch.children.setdefault(part, _Branch("", [], {}))
            branch.operators.append(node.index)
            branch.module_class = branch.module_class or node.module_class
        return _frozen("", root, self.costs)

    def of(self, members: Sequence[int]) -> Cost:
        """Return the sum over some operators, each with the traffic it has alone."""
        return total(tuple(self.costs[index] for index in members))


def count(graph: Graph) -> CostTable:
    """Count every operator of a graph.

    No operator ends the count: one that cannot be counted has the basis ``unknown`` and its reason.
    """
    enabled = gc.isenabled()
    gc.disable()  # it would walk all the new costs again and again, and free none
    try:
        costs = tuple([count_node(node, graph.expected_shapes) for node in graph.nodes])
    finally:
        if enabled:
            gc.enable()
    if graph.size_origins:
        costs = tuple(
            _with_size_origin(graph, node, cost) for node, cost in zip(graph.nodes, costs, strict=True)
        )
    if any(cost.note for cost in costs):
        costs = _with_origins(graph, costs)
    return CostTable(graph=graph, costs=costs)


def total(costs: Sequence[Cost]) -> Cost:
    """Return the sum of many costs, as adding them one by one gives it."""
    if not costs:
        return ZERO
    if len(costs) == 1:  # as of most groups
        return costs[0]
    # Not ``sum(costs, ZERO)``: that makes a frozen Cost for each of 100,000 operators.
    weakest = max(costs, key=lambda cost: ("exact", "modelled", "unknown").index(cost.basis))
    sums = {
        name: sum(known)
        if (known := [part for cost in costs if (part := getattr(cost, name)) is not None])
        else None
        for name in ("flops", "macs", "bytes_read", "bytes_written")
    }
    return Cost(**sums, basis=weakest.basis, note=next((cost.note for cost in costs if cost.note), ""))


def _with_origins(graph: Graph, costs: tuple[Cost, ...]) -> tuple[Cost, ...]:
    """Add to what is unknown for want of a shape the operator where that shape was first lost."""
    origins: dict[str, str] = {}
    for node in graph.nodes:
        if not any(_is_open(tensor) for tensor in node.present_outputs):
            continue
        inherited = next((origins[t.name] for t in node.present_inputs if t.name in origins), None)
        origin = inherited or f"'{node.name}' ({node.op_type})"
        origins.update((tensor.name, origin) for tensor in node.present_outputs if _is_open(tensor))
    return tuple(_explained(node, cost, origins) for node, cost in zip(graph.nodes, costs, strict=True))


def _explained(node: Node, cost: Cost, origins: Mapping[str, str]) -> Cost:
    if "is not known" not in cost.note:
        return cost
    tensors = (*node.present_inputs, *node.present_outputs)
    origin = next((origins[t.name] for t in tensors if t.name in origins and f"'{t.name}'" in cost.note), None)
    return cost if origin is None else dataclasses.replace(cost, note=f"{cost.note}; it is open since {origin}")


def _with_size_origin(graph: Graph, node: Node, cost: Cost) -> Cost:
    """Report of a count how sizes are known that the data decide: with other data it would be another."""
    tensors = (*node.present_outputs, *node.present_inputs)
    decided = next((tensor for tensor in tensors if tensor.name in graph.size_origins), None)
    if decided is None or cost.basis == "unknown" or cost == ZERO:
        return cost
    source = f"the size of '{decided.name}' is {graph.size_origins[decided.name].text}"
    return dataclasses.replace(cost, basis="modelled", note=f"{cost.note}; {source}" if cost.note else source)


def _is_open(tensor: Tensor) -> bool:
    return tensor.shape is None or None in tensor.shape


@dataclass(slots=True)
class _Branch:
    module_class: str
    operators: list[int]
    children: dict[str, _Branch]


def _frozen(path: str, branch: _Branch, costs: Sequence[Cost]) -> ModuleCost:
    children = tuple(
        _frozen(f"{path}.{name}" if path else name, child, costs) for name, child in branch.children.items()
    )
    own = [costs[index] for index in branch.operators]
    return ModuleCost(
        path=path,
        module_class=branch.module_class,
        cost=total([*own, *(child.cost for child in children)]),
        operators=tuple(branch.operators),
        children=children,
    )


class Members(Protocol):
    """A group of operators that are executed as one."""

    @property
    def members(self) -> tuple[int, ...]:
        """Indices of the operators."""


def fused(graph: Graph, table: CostTable, groups: Sequence[Members]) -> tuple[Cost, ...]:
    """Return the cost of each group: FLOPs are the members' sum, bytes those that cross its border.

    A tensor from outside is read once by the group, however many members read it; one made inside is written
    only if something outside reads it or it is an output of the model.
    """
    needed = {tensor.name for tensor in graph.outputs}
    return tuple(_group(graph, table, tuple(group.members), needed) for group in groups)


def _group(graph: Graph, table: CostTable, members: tuple[int, ...], needed: set[str]) -> Cost:
    whole = table.of(members)
    if len(members) < 2:
        return whole
    # Without those that do not run: all that they give is known before.
    nodes = [
        node
        for node in map(graph.nodes.__getitem__, members)
        if not all(tensor.constant for tensor in node.present_outputs)
    ]
    try:
        read = sum(_read(nodes).values())
        written = sum(nbytes(tensor) for tensor in _written(graph, nodes, set(members), needed))
    except OpenSizeError:
        return dataclasses.replace(whole, bytes_read=None, bytes_written=None)
    return dataclasses.replace(whole, bytes_read=read, bytes_written=written)


def _read(nodes: Sequence[Node]) -> Mapping[str, int]:
    """Return bytes of each tensor from outside, by the name under which it enters; views are looked through."""
    alias: dict[str, str] = {}
    inside: set[str] = set()
    sizes: dict[str, int] = {}
    for node in nodes:
        if is_view(node) and node.inputs[0] is not None:
            source = alias.get(node.inputs[0].name, node.inputs[0].name)
            alias.update((tensor.name, source) for tensor in node.present_outputs)
            continue
        for name, size in read_by_tensor(node).items():
            root = alias.get(name, name)
            if root not in inside:
                # One member may read a part of it, as a Gather does, and another all.
                sizes[root] = max(size, sizes.get(root, 0))
        inside.update(tensor.name for tensor in node.present_outputs)
    return sizes


def _written(graph: Graph, nodes: Sequence[Node], members: set[int], needed: set[str]) -> Iterable[Tensor]:
    """Return tensors made in the group that leave it; through a view, the tensor that it shows leaves."""
    maker: dict[str, Tensor] = {}
    leaving: dict[str, Tensor] = {}
    for node in nodes:
        for tensor in node.present_outputs:
            if is_view(node) and node.inputs[0] is not None:
                source = maker.get(node.inputs[0].name)
                if source is None:
                    continue
                maker[tensor.name] = source
            else:
                maker[tensor.name] = tensor
            readers = graph.consumers.get(tensor.name, ())
            if tensor.name in needed or any(reader not in members for reader in readers):
                leaving[maker[tensor.name].name] = maker[tensor.name]
    return leaving.values()
