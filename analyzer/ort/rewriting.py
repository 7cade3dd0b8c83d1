"""A graph of executed nodes that can be rewired: what rules that insert and take out nodes work on.

``View`` knows operators of the exported graph alone. Around quantised operators ONNX Runtime inserts, doubles
and removes nodes first, and then decides by what stands beside each other: here that is done as it does it,
and what is left is told to the view. Scales and zero points are compared as
``onnxruntime/core/optimizer/qdq_transformer/qdq_util.cc`` does.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from analyzer.graph import Node, Tensor
from analyzer.ort.execution import Provider
from analyzer.ort.fusion_view import View, in_execution_order


@dataclass(kw_only=True, eq=False)
class ExecutedNode:
    """A node that would be executed.

    Attributes:
        operator: The one that it mainly stands for; None of one that was inserted.
        members: Indices of the operators that it stands for; none of one that was inserted.
        reads: Names of the tensors that it reads, by position; None where one is absent.
        writes: Names of the tensors that it writes.
        alive: Whether it still is in the graph.
        taken_by: The node that does its work instead.
        axis: Of a QuantizeLinear or DequantizeLinear.
        stands_for: Name of the stored floats that an inserted DequantizeLinear of int32 gives.
    """

    op_type: str
    operator: Node | None
    members: list[int]
    provider: Provider
    reads: list[str | None]
    writes: list[str | None]
    alive: bool = True
    taken_by: ExecutedNode | None = None
    axis: int = 1
    stands_for: str = ""


@dataclass(kw_only=True, eq=False)
class Rewriting:
    """Nodes and the tensors between them.

    Attributes:
        nodes: All nodes, in execution order; inserted ones at the end.
        tensors: What is known of each tensor of the exported graph, by the name that is left of it.
        outputs: Names of the graph's outputs.
        inner: Names that subgraphs read from outside.
        types: Element types by name; they may be changed.
    """

    nodes: list[ExecutedNode]
    tensors: dict[str, Tensor]
    outputs: set[str]
    inner: set[str]
    types: dict[str, str]
    writer: dict[str, ExecutedNode] = field(default_factory=dict)
    # Dicts as ordered sets: thousands may read one stored zero point, and each may be taken out.
    readers: dict[str, dict[tuple[ExecutedNode, int], None]] = field(default_factory=dict)
    made: int = 0

    def __post_init__(self) -> None:
        for executed in self.nodes:
            self._wire(executed)

    def _wire(self, executed: ExecutedNode) -> None:
        for name in executed.writes:
            if name is not None:
                self.writer[name] = executed
        for position, name in enumerate(executed.reads):
            if name is not None:
                self.readers.setdefault(name, {})[executed, position] = None

    def alive(self, *op_types: str) -> Iterator[ExecutedNode]:
        """Yield the nodes of these types, all without one, that are in the graph when their turn comes."""
        for executed in list(self.nodes):
            if executed.alive and (not op_types or executed.op_type in op_types):
                yield executed

    def producer(self, name: str | None, *op_types: str) -> ExecutedNode | None:
        """Return the node that writes a tensor, if it is of one of these types."""
        executed = None if name is None else self.writer.get(name)
        return executed if executed is not None and (not op_types or executed.op_type in op_types) else None

    def edges(self, executed: ExecutedNode, position: int = 0) -> list[tuple[ExecutedNode, int]]:
        """Return which nodes read one of its results, and as which input."""
        name = executed.writes[position] if position < len(executed.writes) else None
        return [] if name is None else list(self.readers.get(name, ()))

    def gives_output(self, executed: ExecutedNode) -> bool:
        """Return whether it writes an output of the graph."""
        return any(name in self.outputs for name in executed.writes)

    def only_edge(self, executed: ExecutedNode) -> tuple[ExecutedNode, int] | None:
        """Return the one reader of its only result, which is no output of the graph and read by no subgraph."""
        edges = self.edges(executed)
        if len(edges) != 1 or self.gives_output(executed) or executed.writes[0] in self.inner:
            return None
        return edges[0]

    def is_constant(self, name: str | None) -> bool:
        """Return whether a tensor is stored with the model or folded."""
        return name is not None and name not in self.writer and name in self.tensors and (
            self.tensors[name].constant
        )  # fmt: skip

    def add(self, executed: ExecutedNode) -> ExecutedNode:
        """Put a node into the graph."""
        self.nodes.append(executed)
        self._wire(executed)
        return executed

    def read_instead(self, executed: ExecutedNode, position: int, name: str | None) -> None:
        """Make a node read another tensor at a position."""
        before = executed.reads[position]
        if before is not None:
            del self.readers[before][executed, position]
        executed.reads[position] = name
        if name is not None:
            self.readers.setdefault(name, {})[executed, position] = None

    def write_instead(self, executed: ExecutedNode, position: int, name: str) -> None:
        """Make a node write another tensor at a position; who read the old one is not touched."""
        before = executed.writes[position]
        if before is not None and self.writer.get(before) is executed:
            del self.writer[before]
        executed.writes[position] = name
        self.writer[name] = executed

    def remove(self, executed: ExecutedNode) -> None:
        """Remove a node from the graph."""
        executed.alive = False
        for position in range(len(executed.reads)):
            self.read_instead(executed, position, None)
        for name in executed.writes:
            if name is not None and self.writer.get(name) is executed:
                del self.writer[name]

    def fresh(self, base: str, like: str | None = None) -> str:
        """Return a name for a tensor that ONNX Runtime makes up, of the type of another."""
        self.made += 1
        name = f"{base}#{self.made}"
        self.types[name] = self.types.get(like or base, "")
        return name


def _flattened(gemm: ExecutedNode) -> list[ExecutedNode]:
    """Return a Gemm of more than two axes, between the two Reshapes that ONNX Runtime puts around it."""
    source, result = gemm.reads[0], gemm.writes[0]
    gemm.reads[0], gemm.writes[0] = f"{source}#rows", f"{result}#rows"
    before, after = (
        ExecutedNode(
            op_type="Reshape", operator=None, members=[], provider=gemm.provider, reads=[a], writes=[b]
        )
        for a, b in ((source, gemm.reads[0]), (gemm.writes[0], result))
    )
    return [before, gemm, after]


def rewriting(view: View) -> Rewriting:
    """Return the nodes that a view holds so far."""
    alias, graph = view.simplified.alias, view.graph
    executed_nodes: list[ExecutedNode] = []
    for fused in in_execution_order(view.group):
        nodes = [graph.nodes[index] for index in sorted(fused.members)]
        # Of several the first is the one that the group is named after: what fuses at level 1 follows it.
        main = next((node for node in nodes if node.op_type == fused.op_type), nodes[0])
        written = {tensor.name for node in nodes for tensor in node.present_outputs}
        reads: list[str | None] = []
        for node in (main, *(node for node in nodes if node is not main)):
            for tensor in node.inputs:
                name = None if tensor is None else alias.get(tensor.name, tensor.name)
                if name not in written and (node is main or name is not None):
                    reads.append(name)
        executed = ExecutedNode(
            op_type=fused.op_type,
            operator=main,
            members=list(fused.members),
            provider=fused.provider,
            reads=reads,
            writes=[None if tensor is None else tensor.name for tensor in nodes[-1].outputs],
            axis=main.attributes.get("axis", 1),
        )
        executed_nodes += _flattened(executed) if fused.extra == ("Reshape", "Reshape") else [executed]
    tensors = {tensor.name: tensor for tensor in (*graph.inputs, *graph.initializers)}
    tensors |= graph.tensors
    inner = {
        tensor.name
        for node in graph.nodes
        for body in node.graphs.values()
        for child in body.nodes
        for tensor in child.present_inputs
    }
    return Rewriting(
        nodes=executed_nodes,
        tensors=tensors,
        outputs=set(view.output_names),
        inner=inner,
        types={name: tensor.dtype.name for name, tensor in tensors.items()},
    )


QUANTIZE, DEQUANTIZE = "QuantizeLinear", "DequantizeLinear"
QUANTIZERS = frozenset((QUANTIZE, DEQUANTIZE))
SMALL = frozenset({"int8", "uint8"})
WIDE = frozenset({"int16", "uint16"})


def scalar(graph: Rewriting, name: str | None) -> Tensor | None:
    """Return the constant of one element that has this name."""
    tensor = None if name is None or not graph.is_constant(name) else graph.tensors[name]
    return tensor if tensor is not None and tensor.elements == 1 and (tensor.rank or 0) <= 1 else None


def input_of(executed: ExecutedNode, position: int) -> str | None:
    """Name of what a node reads at a position; None where there is none."""
    return executed.reads[position] if position < len(executed.reads) else None


def has_scalars(graph: Rewriting, executed: ExecutedNode) -> bool:
    """Return whether scale and zero point, if there is one, are constants of one element."""
    zero_point = input_of(executed, 2)
    return scalar(graph, input_of(executed, 1)) is not None and (
        zero_point is None or scalar(graph, zero_point) is not None
    )


# ``IsQDQPairSupported`` of qdq_util.cc
def quantize_alike(graph: Rewriting, one: ExecutedNode, other: ExecutedNode) -> bool:
    """Return whether two nodes quantise alike: equal constant scales and zero points of one element."""
    for position in (1, 2):
        first, second = (scalar(graph, input_of(executed, position)) for executed in (one, other))
        if first is None or second is None or first.dtype != second.dtype:
            return False
        if first is not second and not equal_values(first, second):
            return False
    return True


def equal_values(one: Tensor, other: Tensor) -> bool:
    """Return whether two constants are known and hold the same elements."""
    if one.value is None or other.value is None:
        return False
    return bool(np.array_equal(one.value.reshape(-1), other.value.reshape(-1)))
