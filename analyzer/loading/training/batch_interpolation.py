"""A training step at every batch, from its graphs at two: each number grows by the same an example.

PyTorch traces a step at one batch. Two traces of the same operators give every size, and every whole number of
an attribute or a small constant, a start and a growth. They hold at every batch if all are multiples of the
batch (what also grows with its square is no multiple of it at both), or if a third trace comes out as they say.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from analyzer.graph import Graph, Tensor

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]


class DifferentError(ValueError):
    """Two graphs are not the same operators at two batches, or a number does not grow evenly."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LinearInBatch:
    """Whole numbers at every batch: ``start + slope * batch``, a number or an array as ``like`` is."""

    like: Any
    start: Array
    slope: Array

    def at(self, batch: int) -> Any:
        """Return the numbers at a batch."""
        numbers = self.start + self.slope * batch
        return numbers.astype(self.like.dtype) if hasattr(self.like, "dtype") else numbers.item()


def without_constants(graph: Graph) -> Graph:
    """Return the graph without operators that only make constants, which cost nothing."""
    computing = [node for node in graph.nodes if not all(tensor.constant for tensor in node.present_outputs)]
    nodes = tuple(dataclasses.replace(node, index=index) for index, node in enumerate(computing))
    return dataclasses.replace(graph, nodes=nodes)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class AnyBatch:
    """A graph whose numbers are known at every batch.

    Attributes:
        graph: At the first batch.
        shapes, values: Of tensors in which a number grows, by name.
        attributes: Of nodes in which a number grows, by index.
        proportional: Whether every whole number that grows is a multiple of the batch.
    """

    graph: Graph
    shapes: Mapping[str, Any]
    values: Mapping[str, Any]
    attributes: Mapping[int, Mapping[str, Any]]
    proportional: bool

    def at(self, batch: int) -> Graph:
        """Return the graph at a batch.

        Raises:
            DifferentError: A size would be negative: the numbers hold for larger batches alone.
        """
        grown: dict[str, Tensor] = {}

        def swapped(tensors: Sequence[Any]) -> tuple[Any, ...]:
            return tuple(self._tensor(tensor, batch, grown) for tensor in tensors)

        nodes = tuple(
            dataclasses.replace(
                node,
                inputs=swapped(node.inputs),
                outputs=swapped(node.outputs),
                attributes=_at(self.attributes.get(node.index, node.attributes), batch),
            )
            for node in self.graph.nodes
        )
        return dataclasses.replace(
            self.graph,
            nodes=nodes,
            inputs=swapped(self.graph.inputs),
            outputs=swapped(self.graph.outputs),
            initializers=swapped(self.graph.initializers),
        )

    def _tensor(self, tensor: Tensor | None, batch: int, grown: dict[str, Tensor]) -> Tensor | None:
        if tensor is None or not (tensor.name in self.shapes or tensor.name in self.values):
            return tensor
        if tensor.name not in grown:
            shape = _at(self.shapes.get(tensor.name, tensor.shape), batch)
            if any(size is not None and size < 0 for size in shape or ()):
                raise DifferentError
            value = _at(self.values.get(tensor.name, tensor.value), batch)
            grown[tensor.name] = dataclasses.replace(tensor, shape=shape, value=value)
        return grown[tensor.name]


def _at(value: Any, batch: int) -> Any:
    if isinstance(value, LinearInBatch):
        return value.at(batch)
    if isinstance(value, tuple):
        return tuple(_at(element, batch) for element in value)
    return {name: _at(item, batch) for name, item in value.items()} if isinstance(value, dict) else value


def bound(first: Graph, one: int, second: Graph, other: int) -> AnyBatch:
    """Return the step at any batch, from two, without operators that only make constants.

    Raises:
        DifferentError: They are not alike.
    """
    first, second = without_constants(first), without_constants(second)
    joining = _Joining(one, other)
    shapes: dict[str, Any] = {}
    values: dict[str, Any] = {}
    seen: dict[str, Tensor] = {}
    for a, b in _pairs(first, second):
        # One constant here may be several there, where two numbers happen to be equal at this batch.
        if a.name in seen:
            once = seen[a.name].value
            _same(_alike(seen[a.name], b) and (once is None or (b.value is not None and _equal(once, b.value))))
            continue
        seen[a.name] = b
        _same(a.dtype == b.dtype and a.constant == b.constant)
        if (shape := joining.joined(a.shape, b.shape)) is not a.shape:
            # A table with a row for each example: its elements decide nothing.
            shapes[a.name], values[a.name] = shape, None
        elif (value := joining.joined(a.value, b.value)) is not a.value:
            values[a.name] = value
    attributes = {}
    for node, twin in zip(first.nodes, second.nodes, strict=True):
        items = {name: joining.joined(item, twin.attributes[name]) for name, item in node.attributes.items()}
        if any(items[name] is not item for name, item in node.attributes.items()):
            attributes[node.index] = items
    return AnyBatch(
        graph=first, shapes=shapes, values=values, attributes=attributes, proportional=joining.proportional
    )


def _same(alike: bool) -> None:
    if not alike:
        raise DifferentError


class _Joining:
    """Joins what a value is at two batches; ``proportional`` as in ``AnyBatch``."""

    def __init__(self, one: int, other: int) -> None:
        self.one, self.other, self.proportional = one, other, True

    def joined(self, a: Any, b: Any) -> Any:
        """Return the value itself where it stays, else how its numbers grow."""
        if isinstance(a, (tuple, list)) and isinstance(b, (tuple, list)):
            _same(len(a) == len(b))
            parts = tuple(self.joined(x, y) for x, y in zip(a, b, strict=True))
            return a if all(part is x for part, x in zip(parts, a, strict=True)) else parts
        _same(type(a) is type(b))  # before values: True == 1 == 1.0 in Python
        is_array = hasattr(a, "dtype")
        if _equal(a, b):
            return a
        _same(a.shape == b.shape and a.dtype == b.dtype if is_array else type(a) in (int, float))
        return self._line(a, b)

    def _line(self, a: Any, b: Any) -> Any:
        import numpy as np

        x, y = np.asarray(a), np.asarray(b)
        if x.dtype.kind == "f":  # a mean's divisor, say: no figure depends on it
            return a
        _same(x.dtype.kind in "iu")
        # A size is a whole number at every batch only if it grows by a whole number an example.
        slope, rest = np.divmod(y.astype(np.int64) - x.astype(np.int64), self.other - self.one)
        _same(not rest.any())
        start = x.astype(np.int64) - slope * self.one
        self.proportional &= not start[slope != 0].any()
        return LinearInBatch(like=a, start=start, slope=slope)


def _rows(graph: Graph) -> list[Sequence[Tensor | None]]:
    nodes = graph.nodes
    return [graph.inputs, graph.outputs, *(node.inputs for node in nodes), *(node.outputs for node in nodes)]


def _skeleton(graph: Graph) -> Hashable:
    """Return what a graph is at every batch, whatever its modules."""
    # By tensor the output that it is: its name may change with the batch, unlike an input's or a weight's.
    origins = {
        tensor.name: f"{node.index}.{position}"
        for node in graph.nodes
        for position, tensor in enumerate(node.outputs)
        if tensor is not None
    }
    roles = tuple(
        tuple(
            tensor and ("constant" if tensor.constant else origins.get(tensor.name, tensor.name))
            for tensor in row
        )
        for row in _rows(graph)
    )
    # Of attributes the names alone: values are lines of their own.
    nodes = tuple(
        (node.identity, node.version, node.phase, tuple(node.attributes), bool(node.graphs))
        for node in graph.nodes
    )
    return roles, nodes


def _pairs(first: Graph, second: Graph) -> list[tuple[Tensor, Tensor]]:
    """Return the tensors of two graphs that stand in the same place."""
    _same(
        first.carried == second.carried
        and first.opsets == second.opsets
        and _skeleton(first) == _skeleton(second)
    )
    rows = zip(_rows(first), _rows(second), strict=True)
    tensors = [pair for row in rows for pair in zip(*row, strict=True)]
    return [(a, b) for a, b in tensors if a is not None and b is not None]


def agree(interpolated: Graph, traced: Graph) -> bool:
    """Return whether a bound graph is what PyTorch traces at that batch: operators, sizes and types."""
    try:
        return all(_alike(a, b) for a, b in _pairs(interpolated, without_constants(traced)))
    except DifferentError:
        return False


def _alike(a: Tensor, b: Tensor) -> bool:
    return (a.shape, a.dtype, a.constant) == (b.shape, b.dtype, b.constant)


def _equal(a: Any, b: Any) -> bool:
    import numpy as np

    if not hasattr(a, "dtype"):
        return bool(a == b)
    return bool(np.array_equal(a, b, equal_nan=a.dtype.kind == "f"))
