"""The graph as the table of fusions works on it: what is executed so far, and who reads what."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from analyzer.graph import DEFAULT_DOMAIN, Graph, Node, Tensor
from analyzer.ort.execution import Provider
from analyzer.ort.simplify import Simplified

# They change layout, precision or shape, or only move data: never what a group is named after.
HELPERS = frozenset(
    ("ReorderInput", "ReorderOutput", "Cast", "Reshape", "Transpose", "Squeeze", "Unsqueeze", "Identity")
)


@dataclass(kw_only=True)
class Fused:
    """A node that is going to be executed, while rules still work on it."""

    op_type: str
    members: list[int]
    provider: Provider
    extra: tuple[str, ...] = ()  # types of further nodes that ONNX Runtime puts around it
    final: bool = False  # whether rules leave it alone: an integer kernel


@dataclass(kw_only=True)
class View:
    """The graph as the rules see it: without what is folded or removed, with what is fused so far."""

    graph: Graph
    simplified: Simplified
    group: dict[int, Fused]
    readers: dict[str, list[int]] = field(default_factory=dict)
    writer: dict[str, int] = field(default_factory=dict)
    constants: set[str] = field(default_factory=set)
    output_names: set[str] = field(default_factory=set)
    rewired: set[int] = field(default_factory=set)  # operators before which something was inserted
    data_read: dict[int, str] = field(
        default_factory=dict
    )  # the first tensor that they read, where that changed

    def __post_init__(self) -> None:
        self.constants |= {tensor.name for tensor in self.graph.initializers}
        self.output_names |= {self.simplified.name(tensor) for tensor in self.graph.outputs}
        for node in self.graph.nodes:
            names = [tensor.name for tensor in node.present_outputs]
            if node.index in self.simplified.folded:
                self.constants.update(names)
            elif node.index not in self.simplified.removed:
                self.writer.update(dict.fromkeys(names, node.index))
                for tensor in node.present_inputs:
                    self.readers.setdefault(self.simplified.name(tensor), []).append(node.index)
                # What a subgraph reads from around it cannot be fused away (implicit inputs in ONNX Runtime).
                for body in node.graphs.values():
                    self._read_inside(body, node.index)

    def _read_inside(self, body: Graph, index: int) -> None:
        for node in body.nodes:
            for tensor in node.present_inputs:
                self.readers.setdefault(self.simplified.name(tensor), []).append(index)

    def nodes(self, *op_types: str) -> Iterator[Node]:
        """Yield operators of these types that are executed."""
        for node in self.graph.nodes:
            if node.op_type in op_types and node.index in self.group and not self.group[node.index].final:
                yield node

    def is_constant(self, tensor: Tensor | None) -> bool:
        """Return whether the tensor is a constant when ONNX Runtime optimises."""
        return tensor is not None and self.simplified.name(tensor) in self.constants

    def variable_inputs(self, node: Node) -> list[str]:
        """Return names of the tensors that the operator reads, constants apart."""
        alias, constants = self.simplified.alias, self.constants
        names = [alias.get(tensor.name, tensor.name) for tensor in node.inputs if tensor is not None]
        return [name for name in names if name not in constants]

    def producer(self, tensor: Tensor | None, *op_types: str) -> Node | None:
        """Return the operator that writes the tensor, if it is of one of these types."""
        index = None if tensor is None else self.writer.get(self.simplified.name(tensor))
        node = None if index is None else self.graph.nodes[index]
        return node if node is not None and (not op_types or node.op_type in op_types) else None

    def only_reader(self, node: Node, *op_types: str) -> Node | None:
        """Return the operator that alone reads this one's only result, if it is of one of these types."""
        tensor = node.output(0)
        # A graph output must be written: it is a reader more (``NodeProducesGraphOutput``).
        if tensor is None or self.simplified.name(tensor) in self.output_names:
            return None
        readers = self.readers.get(tensor.name, ())
        if len(readers) != 1:
            return None
        reader = self.graph.nodes[readers[0]]
        return reader if reader.op_type in op_types and reader.domain == DEFAULT_DOMAIN else None

    def is_only_read_by(self, node: Node, reader: Node) -> bool:
        """Return whether only that operator reads this one's only result."""
        return self.only_reader(node, reader.op_type) is reader

    def is_unfused(self, node: Node) -> bool:
        """Return whether no rule has fused the operator yet."""
        return len(self.group[node.index].members) == 1 and self.group[node.index].op_type == node.op_type

    def same_provider(self, *nodes: Node) -> bool:
        """Return whether all are executed on one provider."""
        return len({self.group[node.index].provider for node in nodes}) == 1

    def runs_on(self, node: Node, provider: Provider) -> bool:
        """Return whether the operator is executed there."""
        return self.group[node.index].provider == provider

    def fuse(self, op_type: str, *nodes: Node) -> Fused:
        """Make one executed node of these operators and all that was fused with them."""
        first = self.group[nodes[0].index]
        for node in nodes[1:]:
            other = self.group[node.index]
            if other is not first:
                first.members += other.members
                for index in other.members:
                    self.group[index] = first
        first.op_type = op_type
        return first

    def is_same_tensor(self, one: Tensor | None, other: Tensor | None) -> bool:
        """Return whether both are there and are one tensor."""
        return (
            one is not None and other is not None and self.simplified.name(one) == self.simplified.name(other)
        )

    def other_input(self, node: Node, tensor: Tensor | None) -> Tensor | None:
        """Of a two-input operator, the input that is not this one."""
        name = None if tensor is None else self.simplified.name(tensor)
        others = [tensor for tensor in node.present_inputs if self.simplified.name(tensor) != name]
        return others[0] if len(others) == 1 else None  # of x + x there is none


def has_static_shape(tensor: Tensor | None) -> bool:
    """Return whether every size is known."""
    return tensor is not None and tensor.elements is not None


def scalar_value(tensor: Tensor | None) -> float | None:
    """Return the value of a tensor of one element."""
    if tensor is None or tensor.value is None or tensor.elements != 1:
        return None
    return float(tensor.value.reshape(-1)[0])


def scaled_input(view: View, node: Node) -> Tensor | None:
    """Return the tensor that a Mul or Div scales by a constant scalar."""
    a, b = node.input(0), node.input(1)
    if view.is_constant(b) and b is not None and b.elements == 1:
        return a
    if node.op_type == "Mul" and view.is_constant(a) and a is not None and a.elements == 1:
        return b
    return None


def inputs_have_one_shape(node: Node) -> bool:
    """Return whether all inputs have one shape, symbolic sizes included."""
    shapes = {tensor.shape for tensor in node.present_inputs}
    return len(shapes) == 1 and None not in shapes


def is_half_on_cpu(view: View, node: Node) -> bool:
    """Return whether it is computed in float32 between casts, of which ONNX Runtime fuses little."""
    # The casts of insert_cast_transformer.cc come after all fusions: the types that they see are still float16.
    tensor = node.input(0)
    return view.runs_on(node, "cpu") and tensor is not None and tensor.dtype.name == "float16"


def in_execution_order(groups: Mapping[int, Fused]) -> list[Fused]:
    """Return every executed node once, in the order of its last operator."""
    unique = {id(group): group for group in groups.values()}
    return sorted(unique.values(), key=lambda group: max(group.members))
