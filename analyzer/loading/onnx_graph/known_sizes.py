"""Loading: sizes that the data decide, where the data are known, or the sizes that a run showed."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from analyzer.graph import DEFAULT_DOMAIN, NO_ATTRIBUTES, Graph, Node, Shape, SizeOrigin, Tensor
from analyzer.loading.onnx_graph.evaluation import Evaluation, node_proto
from analyzer.loading.shape_inference.onnx_inference import Memo, infer_node

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]

# Of any tensor that is computed: a graph of a million nodes is still looked through in some milliseconds.
_MOST_ELEMENTS = 2**20
_MOST_TENSORS = 20_000


def with_known_sizes(
    graph: Graph,
    values: Mapping[str, Array] = NO_ATTRIBUTES,
    *,
    origins: Mapping[str, SizeOrigin] = NO_ATTRIBUTES,
    shapes: Mapping[str, Sequence[int]] = NO_ATTRIBUTES,
    shown: SizeOrigin | None = None,
) -> Graph:
    """The graph with every size that follows from these; itself where none does.

    Args:
        graph: A model at one batch.
        values: Elements of inputs.
        origins: By input, who said its values.
        shapes: Whole shapes of tensors, as a run had them; those that contradict the graph are left out.
        shown: What is said of sizes that follow from such shapes.
    """
    if not any(_is_open(tensor) for node in graph.nodes for tensor in node.present_outputs):
        return graph
    return _Closing(graph, values, origins, shapes, shown).graph()


def open_tensors(graph: Graph) -> tuple[str, ...]:
    """The tensors with a size that is not known, in order of execution."""
    return tuple(t.name for node in graph.nodes for t in node.present_outputs if _is_open(t))


def _is_open(tensor: Tensor) -> bool:
    # A sequence has no shape by its nature.
    return tensor.elements is None and "(" not in tensor.dtype.name


class _Closing:
    def __init__(
        self,
        graph: Graph,
        values: Mapping[str, Array],
        origins: Mapping[str, SizeOrigin],
        shapes: Mapping[str, Sequence[int]],
        shown: SizeOrigin | None,
    ) -> None:
        self._graph = graph
        self._origins = dict(origins)
        self._shapes = shapes
        self._shown = shown
        self._changed: dict[str, Tensor] = {}
        self._memo: Memo = {}
        self._size_origins: dict[str, SizeOrigin] = {}
        self._behind: dict[str, frozenset[str]] = {name: frozenset({name}) for name in values}
        self._evaluation = Evaluation(
            graph,
            values,
            shape_of=lambda tensor: self._now(tensor).shape,
            most_elements=_MOST_ELEMENTS,
            most_tensors=_MOST_TENSORS,
        )

    def graph(self) -> Graph:
        nodes = tuple(map(self._node, self._graph.nodes))
        if not self._changed:
            return self._graph
        return dataclasses.replace(
            self._graph,
            nodes=nodes,
            outputs=tuple(map(self._now, self._graph.outputs)),
            size_origins={**self._graph.size_origins, **self._size_origins},
        )

    def _now(self, tensor: Tensor) -> Tensor:
        return self._changed.get(tensor.name, tensor)

    def _node(self, node: Node) -> Node:
        inputs = tuple(None if tensor is None else self._now(tensor) for tensor in node.inputs)
        sources = frozenset[str]().union(
            *(self._behind.get(tensor.name, frozenset()) for tensor in node.present_inputs)
        )
        if sources:
            self._behind |= dict.fromkeys((tensor.name for tensor in node.present_outputs), sources)
        if any(_is_open(tensor) for tensor in node.present_outputs):
            self._close(node, inputs, sources)
        outputs = tuple(None if tensor is None else self._now(tensor) for tensor in node.outputs)
        if inputs == node.inputs and outputs == node.outputs:  # tensors compare by identity
            return node
        return dataclasses.replace(node, inputs=inputs, outputs=outputs)

    def _close(self, node: Node, inputs: Sequence[Tensor | None], sources: frozenset[str]) -> None:
        inferred = self._inferred(node, inputs)
        for position, tensor in enumerate(node.outputs):
            if tensor is None or not _is_open(tensor):
                continue
            shape, origin = self._found(node, tensor, inferred[position], sources)
            if shape is not None and origin is not None and _agrees(tensor.shape, shape):
                self._changed[tensor.name] = dataclasses.replace(tensor, shape=tuple(shape))
                self._size_origins[tensor.name] = origin

    def _found(
        self, node: Node, tensor: Tensor, inferred: Sequence[int] | None, sources: frozenset[str]
    ) -> tuple[Sequence[int] | None, SizeOrigin | None]:
        inherited = next(
            (self._size_origins[read.name] for read in node.present_inputs if read.name in self._size_origins),
            None,
        )
        if inferred is not None and inherited is not None:
            return inferred, inherited
        value = None
        if inferred is None and (value := self._evaluation.value(tensor)) is not None:
            inferred = value.shape
        said = [self._origins[name] for name in sorted(sources) if name in self._origins]
        if inferred is not None and said:
            # One origin for what follows from several: filled where any of them was.
            return inferred, SizeOrigin(
                kind="filled" if any(origin.kind == "filled" for origin in said) else "given",
                inputs=tuple(dict.fromkeys(name for origin in said for name in origin.inputs)),
            )
        if inferred is not None and self._shown is not None:
            return inferred, self._shown
        return self._shapes.get(tensor.name), self._shown

    def _inferred(self, node: Node, inputs: Sequence[Tensor | None]) -> list[Sequence[int] | None]:
        """Whole shapes of the outputs, from those of the inputs and from the values that decide them."""
        unknown: list[Sequence[int] | None] = [None] * len(node.outputs)
        proto = node_proto(node)
        if node.domain != DEFAULT_DOMAIN or node.graphs or proto is None:
            return unknown
        if any(tensor is not None and tensor.elements is None for tensor in inputs):
            return unknown
        known = [
            None
            if tensor is None
            else dataclasses.replace(tensor, value=self._evaluation.value(tensor))
            if tensor.value is None and not tensor.dtype.is_float and (position or node.op_type in _FIRST)
            else tensor
            for position, tensor in enumerate(inputs)
        ]
        opsets = {node.domain: node.version}
        types, _ = infer_node(proto, known, opsets, self._graph.ir_version, memo=self._memo)
        return [_whole(types[name][1]) if name in types else None for name in proto.output]


# Operators whose first operand is a shape; of all others the values of a later one decide.
_FIRST = frozenset({"ConstantOfShape"})


def _whole(shape: Shape) -> Sequence[int] | None:
    sizes = [size for size in shape or () if size is not None]
    return None if shape is None or len(sizes) < len(shape) else sizes


def _agrees(known: Shape, found: Sequence[int]) -> bool:
    """Whether a shape can be this one: a run may keep a tensor in another layout under the same name."""
    if known is None:
        return True
    return len(known) == len(found) and all(
        size in (None, other) for size, other in zip(known, found, strict=True)
    )
