"""The nodes that a session executes, as the plan of its buffers sees them: what each reads, gives and shows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Protocol

from analyzer.graph import Graph, Node, Shape, Tensor, names_read, packed_bytes
from analyzer.operators import IN_PLACE, IN_PLACE_ON_CUDA, is_view


class Executed(Protocol):
    """A node that a session executes."""

    @property
    def op_type(self) -> str:
        """Its type."""

    @property
    def members(self) -> tuple[int, ...]:
        """Indices of the operators that it stands for."""

    @property
    def provider(self) -> str:
        """Where it runs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Value:
    """A tensor where it lies."""

    name: str
    shape: Shape
    bits: int | None
    provider: str

    @property
    def size(self) -> int | None:
        """Bytes, None where not known."""
        return packed_bytes(self.shape, self.bits)

    @property
    def kind(self) -> tuple[object, ...]:
        """Values of one kind may lie in each other's buffers."""
        return (self.shape, self.bits, self.provider)


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """What a step gives; ``shows`` names the value whose memory it shows, None for memory of its own."""

    value: Value
    shows: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutedStep:
    """A node that is executed.

    Attributes:
        op_type: Its type.
        node: The operator of the file that it mainly stands for.
        reads: Names of values, once for each use; constants are not among them.
        outputs: What it gives.
        overwrites: Inputs that its kernel may write over.
        added: What a convolution adds to its result, None for nothing.
        rank: When ONNX Runtime made it: nodes of the file, then those of fusions, then those of layouts.
    """

    op_type: str
    node: Node
    reads: tuple[str, ...]
    outputs: tuple[Output, ...]
    overwrites: tuple[Value, ...] = ()
    added: Value | None = None
    rank: tuple[int, int] = (0, 0)


def steps_of(graph: Graph, groups: Sequence[Executed]) -> list[ExecutedStep]:
    """The executed nodes, in the order of the groups."""
    constants = {tensor.name for tensor in graph.initializers}
    constants |= {tensor.name for node in graph.nodes for tensor in node.present_outputs if tensor.constant}
    results = {tensor.name for tensor in graph.outputs}
    idle = frozenset(range(len(graph.nodes))).difference(*(group.members for group in groups))
    idle |= {node.index for node in graph.nodes if _idle(node)}
    steps = []
    for group in groups:
        part = _GroupReader(graph, group, constants, idle)
        outputs = tuple(part.outputs(results))
        if outputs:
            steps += _turned_last(part.step(outputs))
    return steps


def _turned_last(step: ExecutedStep) -> list[ExecutedStep]:
    """A Transpose whose parts become a Split's is pushed behind it: each part is turned by itself."""
    order = step.node.attributes.get("perm", ())
    turned = bool(order) and (step.op_type, step.node.op_type) == ("Split", "Transpose")
    if not turned or any(output.shows is not None for output in step.outputs):
        return [step]
    parts = [_unturned(output.value, order) for output in step.outputs]
    split = replace(step, outputs=tuple(Output(value=part) for part in parts))
    return [
        split,
        *(
            replace(step, op_type="Transpose", reads=(part.name,), outputs=(output,))
            for part, output in zip(parts, step.outputs, strict=True)
        ),
    ]


def _unturned(value: Value, order: Sequence[int]) -> Value:
    shape = list(value.shape or ())
    if len(shape) == len(order):
        for axis, size in zip(order, value.shape or (), strict=True):
            shape[axis] = size
    return replace(value, name=value.name + "\0part", shape=None if value.shape is None else tuple(shape))


class _GroupReader:
    """A group while its members are read."""

    def __init__(self, graph: Graph, group: Executed, constants: set[str], idle: frozenset[int]) -> None:
        self.graph = graph
        self.group = group
        self.members = frozenset(group.members)
        self.idle = idle
        self.nodes = [graph.nodes[index] for index in group.members if index not in idle]
        self.working: list[Node] = []
        self.made: dict[str, Tensor] = {}
        self.shown: dict[str, str] = {}
        self.reads: list[str] = []
        types = [node.op_type for node in self.nodes]
        twins: dict[tuple[object, ...], Node] = {}
        for node in self.nodes:
            names = [self.shown.get(name, name) for name in names_read(node)]
            self.reads += [name for name in names if name not in self.made and name not in constants]
            twin = node
            if types.count(node.op_type) > 1:  # the key is long: only where there can be a twin
                key = (node.op_type, repr(dict(node.attributes)), *self._read_by(node))
                twin = twins.setdefault(key, node)
            if twin is not node:
                pairs = zip(node.present_outputs, twin.present_outputs, strict=False)
                self.shown.update((tensor.name, self.shown.get(same.name, same.name)) for tensor, same in pairs)
            elif is_view(node) and node.outputs[0] is not None and names:
                self.shown[node.outputs[0].name] = names[0]
            else:
                self.working.append(node)
                self.made.update((tensor.name, tensor) for tensor in node.present_outputs)

    def _read_by(self, node: Node) -> Iterator[object]:
        """What a node reads: small constants by value, anything else by name."""
        for tensor in node.inputs:
            if tensor is None or tensor.value is None:
                yield None if tensor is None else self.shown.get(tensor.name, tensor.name)
            else:
                yield tensor.dtype.name, tensor.shape, repr(tensor.value.tolist())

    def outputs(self, results: set[str]) -> Iterator[Output]:
        """What leaves the group; a view of what is made inside brings that with it."""
        given: set[str] = set()
        for node in self.nodes:
            for tensor in node.present_outputs:
                readers = self.graph.consumers.get(tensor.name, ())
                if tensor.name not in results and readers and all(map(self._within, readers)):
                    continue
                source = self.shown.get(tensor.name)
                if source is not None and source in self.made and source not in given:
                    given.add(source)
                    yield Output(value=self._value(self.made[source]))
                if tensor.name not in given:
                    given.add(tensor.name)
                    yield Output(value=self._value(tensor), shows=source)

    def _within(self, reader: int) -> bool:
        return reader in self.members or reader in self.idle

    def _value(self, tensor: Tensor) -> Value:
        shape = tensor.shape
        if self.group.op_type == "Gemm" and tensor.name in self.made and shape and None not in shape:
            shape = (prod(size or 0 for size in shape[:-1]), shape[-1])  # a Gemm stands between Reshapes
        return Value(name=tensor.name, shape=shape, bits=tensor.dtype.bits, provider=self.group.provider)

    def step(self, outputs: tuple[Output, ...]) -> ExecutedStep:
        main = self.working[0] if self.working else self.nodes[0]
        added = next(iter(self._added()), None)
        fused = main.op_type != self.group.op_type and added is None
        return ExecutedStep(
            op_type=self.group.op_type,
            node=main,
            reads=tuple(self.reads),
            outputs=outputs,
            overwrites=self._overwritten(main),
            added=added,
            rank=(int(fused), max(node.index for node in self.working or self.nodes)),
        )

    def _overwritten(self, node: Node) -> tuple[Value, ...]:
        known = IN_PLACE if self.group.provider == "cpu" else IN_PLACE_ON_CUDA
        alone = len(self.working) == 1 and node.op_type == self.group.op_type
        return self._values(node.inputs[:1]) if alone and node.op_type in known else ()

    def _added(self) -> tuple[Value, ...]:
        for node in self.working[1:]:
            if node.op_type in ("Add", "Sum"):
                return tuple(value for value in self._values(node.inputs) if value.name in self.reads)
        return ()

    def _values(self, tensors: Sequence[Tensor | None]) -> tuple[Value, ...]:
        """What is read, under the names by which it enters the group."""
        values = [self._value(tensor) for tensor in tensors if tensor is not None]
        return tuple(
            replace(value, name=self.shown[value.name]) if value.name in self.shown else value
            for value in values
        )


def _idle(node: Node) -> bool:
    return all(tensor.constant for tensor in node.present_outputs)
