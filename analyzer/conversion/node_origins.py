"""Names and origins of a rewritten model's nodes: each its own name, new ones the line they stand for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import onnx


def keep_origins(before: onnx.ModelProto, after: onnx.ModelProto) -> None:
    """Gives nodes without metadata those of the node that they came from, in place, and all of them a name.

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
            found = by_name.get(node.name) or next(
                (by_output[name] for name in node.output if name in by_output), None
            )
            if found is not None:
                node.metadata_props.extend(found.metadata_props)
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
    found = next((other for other in neighbours if other.metadata_props), None)
    if found is not None:
        node.metadata_props.extend(found.metadata_props)
