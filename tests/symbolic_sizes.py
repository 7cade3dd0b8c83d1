"""A graph with its symbolic sizes left open, from two graphs in which they are bound to different values.

ONNX Runtime optimises and places a model with a symbolic batch otherwise than a static one: shapes stay to be
computed at run time. Sizes that differ between the two bindings are the ones that depend on the symbol.
"""

from __future__ import annotations

import dataclasses

from analyzer.graph import Dim, Graph, Node, Tensor


def opened(one: Graph, other: Graph) -> Graph:
    """The first graph, with every size open that is another one in the second.

    Args:
        one: A graph with a symbolic size bound.
        other: The same graph with the size bound to another value.

    Returns:
        A graph in which tensors that depend on the symbol have None for a size and no value.
    """
    if len(one.nodes) != len(other.nodes):
        raise ValueError("the two graphs are not bindings of one model")
    return _Opener().graph(one, other)


class _Opener:
    """Keeps a tensor one object for its producer and all consumers."""

    # Both graphs come from one model: nodes and tensors pair off by position, names are the same.

    def __init__(self) -> None:
        self.made: dict[str, Tensor] = {}

    def graph(self, one: Graph, other: Graph) -> Graph:
        return dataclasses.replace(
            one,
            nodes=tuple(self.node(a, b) for a, b in zip(one.nodes, other.nodes, strict=True)),
            inputs=self.tensors(one.inputs, other.inputs),
            outputs=self.tensors(one.outputs, other.outputs),
            initializers=self.tensors(one.initializers, other.initializers),
        )

    def node(self, one: Node, other: Node) -> Node:
        return dataclasses.replace(
            one,
            inputs=self.optional(one.inputs, other.inputs),
            outputs=self.optional(one.outputs, other.outputs),
            graphs={name: self.graph(body, other.graphs[name]) for name, body in one.graphs.items()},
        )

    def tensors(self, one: tuple[Tensor, ...], other: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return tuple(self.tensor(a, b) for a, b in zip(one, other, strict=True))

    def optional(
        self, one: tuple[Tensor | None, ...], other: tuple[Tensor | None, ...]
    ) -> tuple[Tensor | None, ...]:
        pairs = zip(one, other, strict=True)
        return tuple(None if a is None or b is None else self.tensor(a, b) for a, b in pairs)

    def tensor(self, one: Tensor, other: Tensor) -> Tensor:
        if one.name not in self.made:
            self.made[one.name] = _open(one, other)
        return self.made[one.name]


def _open(one: Tensor, other: Tensor) -> Tensor:
    shape = one.shape
    if shape is not None and other.shape is not None and len(shape) == len(other.shape):
        sizes: list[Dim] = [a if a == b else None for a, b in zip(shape, other.shape, strict=True)]
        shape = tuple(sizes)
    elif shape is not None:
        shape = None  # another rank: the symbol decides how many axes there are
    # A value that does not depend on the symbol is known at any size of it; one that does is computed at run
    # time.
    same = one.value is not None and other.value is not None and _equal(one, other)
    value = one.value if same else None
    # A stored tensor stays a constant; what was folded from a shape only where both bindings agree.
    constant = one.constant and (one.initializer or same)
    if shape == one.shape and value is one.value and constant == one.constant:
        return one
    return dataclasses.replace(one, shape=shape, value=value, constant=constant)


def _equal(one: Tensor, other: Tensor) -> bool:
    if one.value is None or other.value is None or one.value.shape != other.value.shape:
        return False
    # Bytes, so that NaN equals itself.
    return one.value.tobytes() == other.value.tobytes()
