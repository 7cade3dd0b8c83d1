"""From ONNX Runtime's optimised graph back to the operators of the original one.

ONNX Runtime drops all origins as soon as one node changes, so nodes are joined by the tensors that both
graphs have: what an executed node stands for is found by walking the original graph back from the tensors
that it writes to tensors that the optimised graph still has. Executed nodes that pass each other tensors of
ONNX Runtime's own making are taken together. Names tell the tensors of changed layouts and precisions.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from analyzer.graph import Graph, Node, names_read
from analyzer.ort.fusion_view import HELPERS
from analyzer.ort.rewriting import QUANTIZE, QUANTIZERS
from analyzer.ort.simplify import simplify

if TYPE_CHECKING:
    import onnx

# NchwcTransformer's (nchwc_transformer.cc) and MemcpyTransformer's (transformer_memcpy.cc) nodes.
_SAME_VALUE = frozenset(("ReorderInput", "ReorderOutput", "MemcpyToHost", "MemcpyFromHost"))
_COPIES = frozenset(("MemcpyToHost", "MemcpyFromHost"))
# ``transformer_memcpy.cc`` renames one side of a copy, the passes for float16 what they cast; ``_token_N``
# makes a name unique.
_OTHER_SIDE = re.compile(r"_CUDAExecutionProvider(_token_\d+)?$")
# ensure_unique_dq_for_node_unit.cc
_COPY = re.compile(r"/duplicated(_token_\d+)?$")
_OTHER_TYPE = re.compile(r"^(InsertedPrecisionFreeCast_)+")
# nchwc_transformer.cc names a node after the tensor that it writes, and that suffix.
_LAYOUT_NAME = "_nchwc"
# selectors_actions/actions.cc and nhwc_transformer.cc keep an operator's name where a kernel on integers, or
# one for channels that come last, takes its place, and add a number.
_UNIQUE = re.compile(r"_token_\d+$")
_LIMITERS = ("Relu", "Clip")


def stands_for(executed: str, op_type: str) -> bool:
    """Return whether a type of executed nodes is an operator's kernel on integers or channels last."""
    return executed in (f"QLinear{op_type}", f"Nhwc{op_type}", *_INTEGER_KERNELS.get(op_type, ()))


_INTEGER_KERNELS = {
    "MatMul": ("QLinearMatMul", "MatMulIntegerToFloat", "MatMulNBits"),
    "Gemm": ("QGemm", "MatMulNBits"),
    "QLinearConv": ("QLinearConv",),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Region:
    """Executed nodes that together do the work of some operators of the original graph.

    Attributes:
        main: The executed node that the region is named after.
        members: Indices of operators, ascending; each operator is in one region.
    """

    main: onnx.NodeProto
    others: tuple[onnx.NodeProto, ...]
    members: tuple[int, ...]


def regions(graph: Graph, optimized: onnx.ModelProto) -> tuple[Region, ...]:
    """Map every executed node to the operators that it stands for, in execution order.

    An operator is in no region if ONNX Runtime has folded it or nothing reads its result.
    """
    nodes = [node for node in optimized.graph.node if node.op_type not in _COPIES]
    labels = _Labels(graph, optimized)
    clusters = _clusters(nodes, labels)
    stored = {tensor.name for tensor in optimized.graph.initializer}
    walk = _Walk(graph, labels, nodes, stored)
    # In the order of the original: what two clusters could stand for is the first one's.
    first_of = [walk.position([nodes[i] for i in cluster]) for cluster in clusters]
    members: list[set[int]] = [set() for _ in clusters]
    for number in sorted(range(len(clusters)), key=first_of.__getitem__):
        members[number] = walk.members([nodes[i] for i in clusters[number]])
    members = _with_leftovers(graph, members, walk)
    owned = [(cluster, tuple(sorted(indices))) for cluster, indices in zip(clusters, members, strict=True)]
    return tuple(_region([nodes[i] for i in cluster], indices) for cluster, indices in _attached(owned, nodes))


class _Labels:
    """Tensors of the original graph by their names in the optimised one."""

    def __init__(self, graph: Graph, optimized: onnx.ModelProto) -> None:
        self.graph = graph
        self.known = {tensor.name for tensor in (*graph.inputs, *graph.initializers)}
        self.known.update(graph.producer)
        self.by_name = {node.name: node for node in graph.nodes}
        self.origin: dict[str, str] = {}
        nodes = list(optimized.graph.node)
        self.executed = {_UNIQUE.sub("", node.name) for node in nodes}
        for node in nodes:
            self._by_node_name(node)
        # Layout changes chain: one pass in each direction passes labels along.
        for node in (*nodes, *reversed(nodes)):
            if node.op_type in _SAME_VALUE or node.name.startswith("InsertedPrecisionFreeCast_"):
                self._pass_on(node)

    def of(self, tensor: str) -> str | None:
        """Return the original tensor's name, None for one that ONNX Runtime made up."""
        if tensor in self.origin:
            return self.origin[tensor]
        plain = _COPY.sub("", _OTHER_TYPE.sub("", _OTHER_SIDE.sub("", tensor)))
        return plain if plain in self.known else None

    def _pass_on(self, node: onnx.NodeProto) -> None:
        source, target = node.input[0], node.output[0]
        label = self.of(target) or self.of(source)
        if label is not None:
            for tensor in (source, target):
                if self.of(tensor) is None:
                    self.origin[tensor] = label

    def _by_node_name(self, node: onnx.NodeProto) -> None:
        if all(self.of(name) is not None for name in node.output if name):
            return
        name = _OTHER_TYPE.sub("", node.name)
        # "<matmul>/MatMulAddFusion": what stands before the slash is the first node of the fusion.
        original = self.by_name.get(node.name.split("/")[0])
        integers = self.by_name.get(_UNIQUE.sub("", node.name))
        if name.endswith(_LAYOUT_NAME) and name.removesuffix(_LAYOUT_NAME) in self.graph.producer:
            self.origin[node.output[0]] = self._last(node, name.removesuffix(_LAYOUT_NAME))
        elif integers is not None and stands_for(node.op_type, integers.op_type):
            self._label(node, integers)
        elif original is not None and original.op_type == node.op_type:
            self._label(node, original)
            source = original.input(0)
            # What ONNX Runtime made of a function before it has no names of its own.
            if node.op_type == QUANTIZE and source is not None and self.of(node.input[0]) is None:
                self.origin[node.input[0]] = source.name

    def _label(self, node: onnx.NodeProto, original: Node) -> None:
        for mine, theirs in zip(node.output, original.outputs, strict=False):
            if mine and theirs is not None and self.of(mine) is None:
                self.origin[mine] = self._quantized(theirs.name)

    def _quantized(self, tensor: str) -> str:
        """Return the last tensor that a kernel on integers computes; a limit and a Q may be part of it."""
        followed = tensor
        while (reader := self._only_reader(followed)) is not None and reader.name not in self.executed:
            if reader.outputs[0] is None or reader.op_type not in (*_LIMITERS, QUANTIZE):
                break
            followed = reader.outputs[0].name
            if reader.op_type == QUANTIZE:
                return followed
        return tensor

    def _only_reader(self, tensor: str) -> Node | None:
        readers = self.graph.consumers.get(tensor, ())
        return self.graph.nodes[readers[0]] if len(readers) == 1 else None

    def _last(self, node: onnx.NodeProto, tensor: str) -> str:
        """Return the last tensor that a convolution in blocked layout computes: a sum and an activation follow.

        The node is named after what it wrote before they joined it: the convolution's own result, that of a
        batch normalization behind it, or already the activation's.
        """
        # Input 3 of a blocked Conv, or of a FusedConv, is the tensor that is added to the result.
        if len(node.input) > 3 and node.input[3] and not self._joins_tensors(tensor):
            tensor = self._followed(tensor, ("Add", "Sum")) or tensor
        activation = next((a.s.decode() for a in node.attribute if a.name == "activation"), "")
        kinds = (activation, "Clip" if activation == "Relu" else activation)
        if activation and self.graph.nodes[self.graph.producer[tensor]].op_type not in kinds:
            tensor = self._followed(tensor, kinds) or tensor
        return tensor

    def _joins_tensors(self, tensor: str) -> bool:
        """Return whether it is the sum of two results, and not of one and a constant."""
        producer = self.graph.nodes[self.graph.producer[tensor]]
        return producer.op_type in ("Add", "Sum") and not any(one.constant for one in producer.present_inputs)

    def _followed(self, tensor: str, op_types: Sequence[str]) -> str | None:
        for index in self.graph.consumers.get(tensor, ()):
            node = self.graph.nodes[index]
            if node.op_type in op_types and node.outputs[0] is not None:
                return node.outputs[0].name
        return None


def _clusters(nodes: Sequence[onnx.NodeProto], labels: _Labels) -> list[list[int]]:
    """Join executed nodes that share a tensor which the original graph does not have."""
    parent = list(range(len(nodes)))

    def root(index: int) -> int:
        while parent[index] != index:  # union-find, each path halved on the way
            parent[index] = parent[parent[index]]
            index = parent[index]
        return index

    written = {name: i for i, node in enumerate(nodes) for name in node.output if name}
    for index, node in enumerate(nodes):
        for name in _reads(node):
            if name in written and labels.of(name) is None:
                parent[root(index)] = root(written[name])
    clusters: dict[int, list[int]] = {}
    for index in range(len(nodes)):
        clusters.setdefault(root(index), []).append(index)
    return sorted(clusters.values(), key=lambda cluster: cluster[-1])


def _reads(node: onnx.NodeProto) -> Iterator[str]:
    """Yield tensors that an executed node reads, those of its subgraphs included."""
    yield from (name for name in node.input if name)
    for attribute in node.attribute:
        if attribute.HasField("g"):
            for child in attribute.g.node:
                yield from _reads(child)
            yield from (value.name for value in attribute.g.output)


class _Walk:
    """Walks the original graph back from what executed nodes write to what the optimised graph has."""

    def __init__(
        self, graph: Graph, labels: _Labels, nodes: Sequence[onnx.NodeProto], stored: set[str]
    ) -> None:
        self.graph = graph
        self.labels = labels
        self.simplified = simplify(graph)
        self.boundary = {labels.of(name) for node in nodes for name in node.output if name}
        self.folded = {node.index for node in graph.nodes if self._is_folded(node, stored)}
        self.taken: set[int] = set()
        self.merged = self._merged()

    def _is_folded(self, node: Node, stored: set[str]) -> bool:
        """Return whether its results are constants; ONNX Runtime may know fewer shapes than the graph."""
        names = [tensor.name for tensor in node.present_outputs]
        constant = node.index in self.simplified.folded or all(name in stored for name in names)
        return constant and not any(name in self.boundary for name in names)

    def _merged(self) -> dict[int, int]:
        """For each operator that was merged with an equal one, the one of them that is executed."""
        classes: dict[int, list[int]] = {}
        for index, first in self.simplified.twins.items():
            classes.setdefault(first, [first]).append(index)
        executed_by: dict[int, int] = {}
        for equal in classes.values():
            executed = next((index for index in equal if self._written(index)), None)
            if executed is not None:
                executed_by.update((index, executed) for index in equal if not self._written(index))
        return executed_by

    def _written(self, index: int) -> bool:
        return any(tensor.name in self.boundary for tensor in self.graph.nodes[index].present_outputs)

    def position(self, executed: Sequence[onnx.NodeProto]) -> int:
        """Return where the original graph computes the last of what these nodes write."""
        labels = [label for node in executed for name in node.output if (label := self.labels.of(name))]
        return max((self.graph.producer.get(label, -1) for label in labels), default=len(self.graph.nodes))

    def members(self, executed: Sequence[onnx.NodeProto]) -> set[int]:
        """Return the operators that these executed nodes stand for and that no earlier ones do."""
        starts = [label for node in executed for name in node.output if (label := self.labels.of(name))]
        read = {self.labels.of(name) for node in executed for name in _reads(node)}
        members: set[int] = set()
        pending = [name for name in starts if name not in read or not self._passed_through(name, executed)]
        while pending:
            index = self.graph.producer.get(pending.pop())
            if index is None or index in self.taken or index in self.folded or index in self.merged:
                continue
            self.taken.add(index)
            members.add(index)
            # The walk ends where the optimised graph has the tensor too: another node wrote it.
            pending += (name for name in names_read(self.graph.nodes[index]) if name not in self.boundary)
        return members

    def _passed_through(self, name: str, executed: Sequence[onnx.NodeProto]) -> bool:
        """Return whether these nodes only hand the tensor on, in another layout, type or place."""
        writers = [node for node in executed if any(self.labels.of(out) == name for out in node.output)]
        return all(any(self.labels.of(source) == name for source in node.input) for node in writers)


def _with_leftovers(graph: Graph, members: list[set[int]], walk: _Walk) -> list[set[int]]:
    """Add operators that were merged with an equal one, or removed, to the region of what they became."""
    home = {index: position for position, indices in enumerate(members) for index in indices}
    for node in graph.nodes:
        if node.index in home or node.index in walk.folded or not members:
            continue
        position = _neighbour(graph, node, walk, home)
        if position is not None:
            home[node.index] = position
            members[position].add(node.index)
    return members


def _neighbour(graph: Graph, node: Node, walk: _Walk, home: Mapping[int, int]) -> int | None:
    """Return region of the equal operator, else that of the operator whose result a removed one passes on."""
    if walk.merged.get(node.index) in home:
        return home[walk.merged[node.index]]
    for tensor in node.present_outputs:
        alias = walk.simplified.alias.get(tensor.name, tensor.name)
        index = graph.producer.get(alias)
        if index is not None and index in home:
            return home[index]
    used = any(graph.consumers.get(tensor.name) for tensor in node.present_outputs)
    ends = {tensor.name for tensor in graph.outputs}
    if not used and not any(tensor.name in ends for tensor in node.present_outputs):
        return None
    for name in names_read(node):
        index = graph.producer.get(name)
        if index is not None and index in home:
            return home[index]
    return None


def _attached(
    owned: Sequence[tuple[Sequence[int], tuple[int, ...]]], nodes: Sequence[onnx.NodeProto]
) -> Iterator[tuple[list[int], tuple[int, ...]]]:
    """Regions without operators (a change of layout or type) become part of the one that wrote their input."""
    attached: list[tuple[list[int], tuple[int, ...]]] = []
    home: dict[str, int] = {}
    pending: list[Sequence[int]] = []
    for cluster, members in owned:
        if not members:
            pending.append(cluster)
            continue
        attached.append((list(cluster), members))
        for index in cluster:
            home.update((name, len(attached) - 1) for name in nodes[index].output if name)
    readers = {
        name: position
        for position, (cluster, _) in reversed(list(enumerate(attached)))
        for i in cluster
        for name in _reads(nodes[i])
    }
    for cluster in pending:
        names = [name for i in cluster for name in nodes[i].input if name]
        position = next((home[name] for name in names if name in home), None)
        if position is None:
            outputs = [name for i in cluster for name in nodes[i].output if name]
            position = next((readers[name] for name in outputs if name in readers), None)
        if position is None:
            attached.append((list(cluster), ()))
        else:
            attached[position][0].extend(cluster)
            home.update((name, position) for i in cluster for name in nodes[i].output if name)
    yield from sorted(
        ((sorted(cluster), members) for cluster, members in attached), key=lambda region: region[0][-1]
    )


def _region(nodes: Sequence[onnx.NodeProto], members: tuple[int, ...]) -> Region:
    # A change of type, layout or shape may stand before or behind what it serves; alone, one of type names the
    # region, else the last.
    working = [node for node in nodes if node.op_type not in HELPERS]
    main = next((node for node in working if node.op_type not in QUANTIZERS), (working or nodes[-1:])[0])
    return Region(main=main, others=tuple(node for node in nodes if node is not main), members=members)
