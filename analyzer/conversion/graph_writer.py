"""Write a graph anew: nodes in a new order, named, each with the line it stands for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from analyzer.graph import DTYPES, Graph, Node, Shape, Tensor, names_read

if TYPE_CHECKING:
    import onnx


def keep_origins(before: onnx.ModelProto, after: onnx.ModelProto) -> None:
    """Give nodes without metadata those of the node that they came from, in place, and all of them a name.

    Which one that is follows from names: the node of the same name, else the one that wrote the same tensor;
    of a node between others, such as a Cast, a neighbour. Weights are not needed.
    """
    by_name = {node.name: node for node in before.graph.node if node.name and node.metadata_props}
    by_output = {
        name: node for node in before.graph.node if node.metadata_props for name in node.output if name
    }
    _name(after)
    for node in after.graph.node:
        if not node.metadata_props:
            result = by_name.get(node.name) or next(
                (by_output[name] for name in node.output if name in by_output), None
            )
            if result is not None:
                node.metadata_props.extend(result.metadata_props)
    _from_neighbours(after)


def _name(model: onnx.ModelProto) -> None:
    taken = {node.name for node in model.graph.node if node.name}
    seen: set[str] = set()
    for index, node in enumerate(model.graph.node):
        name = node.name
        if not name or name in seen:
            name = stem = node.name or f"{node.op_type}_{index}"
            number = index
            while name in taken or name in seen:
                name, number = f"{stem}_{number}", number + 1
            node.name = name
        seen.add(name)


def _from_neighbours(model: onnx.ModelProto) -> None:
    """From whoever reads a node's output, else from whoever writes its input."""
    readers: dict[str, onnx.NodeProto] = {}
    writers: dict[str, onnx.NodeProto] = {}
    for node in model.graph.node:
        for name in node.input:
            readers.setdefault(name, node)
        for name in node.output:
            writers[name] = node
    # A Cast may stand before a Cast: the second is asked first, and knows by then.
    for node in reversed(model.graph.node):
        if not node.metadata_props:
            _take(node, _at(readers, node.output))
    for node in model.graph.node:
        if not node.metadata_props:
            _take(node, _at(writers, node.input))


def _at(nodes: Mapping[str, onnx.NodeProto], names: Iterable[str]) -> Iterator[onnx.NodeProto]:
    return (nodes[name] for name in names if name in nodes)


def _take(node: onnx.NodeProto, neighbours: Iterator[onnx.NodeProto]) -> None:
    result = next((other for other in neighbours if other.metadata_props), None)
    if result is not None:
        node.metadata_props.extend(result.metadata_props)


class GraphWriter:
    """Collects the nodes of a converted graph."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.nodes: list[Node] = []
        self._first: list[Node] = []
        self.stored: list[Tensor] = []
        self._taken = {tensor.name for tensor in (*graph.inputs, *graph.initializers)} | set(graph.producer)

    def fresh(self, name: str) -> str:
        """Return a name that no tensor has: this one, or one with strokes behind it."""
        while name in self._taken:
            name += "_"
        self._taken.add(name)
        return name

    def store(self, name: str, shape: Shape, dtype: str, value: Any = None) -> Tensor:
        """Return a new constant of the model; its name is changed where another tensor has it."""
        known = None if value is None else np.asarray(value)
        tensor = Tensor(
            name=self.fresh(name),
            shape=shape,
            dtype=DTYPES[dtype],
            constant=True,
            initializer=True,
            value=known,
        )
        self.stored.append(tensor)
        return tensor

    def add(self, node: Node, **changes: Any) -> None:
        """Add the next node: one of the graph's own, changed; ``finish`` numbers them all."""
        self.nodes.append(replace(node, **changes) if changes else node)

    def insert(
        self,
        op_type: str,
        neighbour: Node | None,
        inputs: Sequence[Tensor],
        output: Tensor,
        *,
        first: bool = False,
    ) -> Tensor:
        """Add a node of the default domain and return its output.

        It has the user's line of the node ``neighbour``; ``first`` puts it before all nodes.
        """
        (self._first if first else self.nodes).append(
            Node(
                index=0,
                name=f"{output.name}_{op_type}",
                op_type=op_type,
                version=self.graph.opsets.get("ai.onnx", 0),
                inputs=tuple(inputs),
                outputs=(output,),
                module=neighbour.module if neighbour else "",
                module_class=neighbour.module_class if neighbour else "",
                source=neighbour.source if neighbour else None,
                phase=neighbour.phase if neighbour else None,
            )
        )
        return output

    def finish(self, inputs: Iterable[Tensor], outputs: Iterable[Tensor], opsets: Mapping[str, int]) -> Graph:
        """Return the converted graph, without nodes whose constants nobody reads any more."""
        outputs = tuple(outputs)
        nodes = self._read(outputs)
        read = {name for node in nodes for name in names_read(node)} | {tensor.name for tensor in outputs}
        # Stored tensors stay one object each, in the order in which they are first read.
        stored = {tensor.name: tensor for tensor in (*self.graph.initializers, *self.stored)}
        return replace(
            self.graph,
            nodes=tuple(replace(node, index=index) for index, node in enumerate(nodes)),
            inputs=tuple(inputs),
            outputs=outputs,
            initializers=tuple(tensor for name, tensor in stored.items() if name in read),
            opsets=dict(opsets),
        )

    def _read(self, outputs: Sequence[Tensor]) -> list[Node]:
        """Return all nodes but those that compute constants which nothing reads."""
        wanted = {tensor.name for tensor in outputs}
        used: list[Node] = []
        for node in reversed([*self._first, *self.nodes]):
            written = list(node.present_outputs)
            if any(tensor.name in wanted or not tensor.constant for tensor in written) or not written:
                used.append(node)
                wanted.update(names_read(node))
        return used[::-1]
