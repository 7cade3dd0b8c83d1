"""A training step at every batch, from its graphs at two: each number grows by the same an example.

PyTorch traces a step at one batch. Two traces of the same operators give every size, attribute and small
constant a start and a growth. They hold at every batch if all are multiples of the batch (what also grows with
its square is no multiple of it at both), or if a third trace comes out as they say.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from analyzer.graph import Graph, Node, Shape, Tensor

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]

_NOT_KEPT = (None, None)
# Real numbers computed at two batches in single precision agree to this.
_CLOSE = 1e-6


class DifferentError(ValueError):
    """Two graphs are not the same operators at two batches, or a number does not grow evenly."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class LinearInBatch:
    """A number at every batch.

    Attributes:
        start: At batch 0.
        slope: For each example more.
        inverse: A real number that is this over the batch (a mean's divisor), added to the line.
    """

    start: float
    slope: float
    inverse: float = 0.0

    def at(self, batch: int) -> float:
        """The number at a batch; whole where start and slope are."""
        value = self.start + self.slope * batch
        return value + self.inverse / batch if self.inverse else value


def bound(first: Graph, one: int, second: Graph, other: int) -> AnyBatch:
    """The step at any batch, from two, without operators that only make constants.

    Raises:
        DifferentError: They are not alike.
    """
    return AnyBatch(without_constants(first), one, without_constants(second), other)


def without_constants(graph: Graph) -> Graph:
    """The graph without operators that only make constants, which cost nothing: small ones are gone anyway."""
    computing = [node for node in graph.nodes if not all(tensor.constant for tensor in node.present_outputs)]
    nodes = tuple(dataclasses.replace(node, index=index) for index, node in enumerate(computing))
    return dataclasses.replace(graph, nodes=nodes)


class AnyBatch:
    """A graph whose numbers are known at every batch; see ``bound``.

    Attributes:
        proportional: Whether every whole number that grows is a multiple of the batch.
    """

    def __init__(self, first: Graph, one: int, second: Graph, other: int) -> None:
        self.proportional = True
        self._graph, self._one, self._other = first, one, other
        self._tensors: dict[str, Tensor] = {}
        self._lines: dict[str, tuple[Any, Any]] = {}
        self._attributes: dict[int, dict[str, Any]] = {}
        self._same(first.carried == second.carried and first.opsets == second.opsets)
        self._same(len(first.nodes) == len(second.nodes))
        for left, right in _pairs(first, second):
            self._tensor(left, right)
        origins, other_origins = _origins(first), _origins(second)
        for a, b in zip(first.nodes, second.nodes, strict=True):
            self._same(_signature(a, origins) == _signature(b, other_origins))
            self._node(a, b)

    @staticmethod
    def _same(alike: bool) -> None:
        if not alike:
            raise DifferentError

    def _node(self, a: Node, b: Node) -> None:
        grown = {
            name: line
            for name, value in a.attributes.items()
            if (line := self._line(value, b.attributes[name])) is not None
        }
        if grown:
            self._attributes[a.index] = grown

    def _tensor(self, a: Tensor, b: Tensor) -> None:
        self._same(a.dtype == b.dtype and a.constant == b.constant)
        shape = self._line(a.shape, b.shape)
        value = None
        if shape is not None:
            value = _NOT_KEPT  # a table with a row for each example: its elements decide nothing
        elif a.value is not None or b.value is not None:
            self._same(a.value is not None and b.value is not None)
            value = self._array(a.value, b.value)
        if a.name not in self._tensors:
            self._tensors[a.name] = a
            if shape is not None or value is not None:
                self._lines[a.name] = (shape, value)
            return
        # One constant here may be several there, where two numbers happen to be equal at this batch.
        self._same(self._lines.get(a.name) == ((shape, value) if (shape, value) != (None, None) else None))

    def _line(self, a: Any, b: Any) -> Any:
        """How a value gets from one batch to the other: None where it stays."""
        if isinstance(a, (tuple, list)) and isinstance(b, (tuple, list)):
            self._same(len(a) == len(b))
            lines = tuple(self._line(x, y) for x, y in zip(a, b, strict=True))
            return lines if any(line is not None for line in lines) else None
        if hasattr(a, "dtype") or hasattr(b, "dtype"):
            self._same(hasattr(a, "dtype") and hasattr(b, "dtype"))
            return self._array(a, b)
        self._same(type(a) is type(b))  # before values: True == 1 == 1.0 in Python
        if a == b:
            return None
        if isinstance(a, bool) or not isinstance(a, (int, float)):
            raise DifferentError
        return self._through(a, b)

    def _through(self, a: float, b: float) -> LinearInBatch:
        if isinstance(a, int) and isinstance(b, int):
            # A size is a whole number at every batch only if it grows by a whole number an example.
            slope, rest = divmod(b - a, self._other - self._one)
            self._same(not rest)
            start = a - slope * self._one
            self.proportional &= not start
            return LinearInBatch(start=start, slope=slope)
        # A mean over the batch divides by it: the product with the batch stays. A line fits any two.
        if abs(a * self._one - b * self._other) <= _CLOSE * abs(a * self._one):
            return LinearInBatch(start=0.0, slope=0.0, inverse=a * self._one)
        growth = (b - a) / (self._other - self._one)
        return LinearInBatch(start=a - growth * self._one, slope=growth)

    def _array(self, a: Any, b: Any) -> Any:
        """The lines of a constant's elements, with its type; None where they stay."""
        import numpy as np

        self._same(a.shape == b.shape and a.dtype == b.dtype)
        if np.array_equal(a, b, equal_nan=a.dtype.kind == "f"):
            return None
        return (self._line(a.ravel().tolist(), b.ravel().tolist()), a)

    def at(self, batch: int) -> Graph:
        """The graph at a batch.

        Raises:
            DifferentError: A size would be negative: the numbers hold for larger batches alone.
        """
        tensors = {name: self._made(name, batch) for name in self._lines}

        def swapped(tensors_before: Sequence[Any]) -> tuple[Any, ...]:
            return tuple(
                tensors.get(tensor.name, tensor) if tensor is not None else None for tensor in tensors_before
            )

        nodes = tuple(
            dataclasses.replace(
                node,
                inputs=swapped(node.inputs),
                outputs=swapped(node.outputs),
                attributes=self._attributes_at(node, batch),
            )
            if self._touched(node)
            else node
            for node in self._graph.nodes
        )
        return dataclasses.replace(
            self._graph,
            nodes=nodes,
            inputs=swapped(self._graph.inputs),
            outputs=swapped(self._graph.outputs),
            initializers=swapped(self._graph.initializers),
        )

    def _touched(self, node: Node) -> bool:
        if node.index in self._attributes:
            return True
        return any(tensor.name in self._lines for tensor in (*node.present_inputs, *node.present_outputs))

    def _made(self, name: str, batch: int) -> Tensor:
        tensor = self._tensors[name]
        shape, value = self._lines[name]
        sizes: Shape = tensor.shape if shape is None else _at(tensor.shape, shape, batch)
        if sizes is not None and any(size is not None and size < 0 for size in sizes):
            raise DifferentError
        return dataclasses.replace(
            tensor, shape=sizes, value=tensor.value if value is None else _array_at(value, batch)
        )

    def _attributes_at(self, node: Node, batch: int) -> Mapping[str, Any]:
        grown = self._attributes.get(node.index)
        if grown is None:
            return node.attributes
        return {**node.attributes, **{name: _at(node.attributes[name], grown[name], batch) for name in grown}}


def _at(value: Any, line: Any, batch: int) -> Any:
    if line is None:
        return value
    if isinstance(line, LinearInBatch):
        return line.at(batch)
    if hasattr(value, "dtype"):
        return _array_at(line, batch)
    return tuple(_at(element, element_line, batch) for element, element_line in zip(value, line, strict=True))


def _array_at(lines_and_array: tuple[Any, Array | None], batch: int) -> Array | None:
    import numpy as np

    lines, array = lines_and_array
    if array is None:
        return None
    elements = [
        element if line is None else line.at(batch)
        for element, line in zip(array.ravel().tolist(), lines, strict=True)
    ]
    return np.asarray(elements, array.dtype).reshape(array.shape)


def _signature(node: Node, origins: Mapping[str, str]) -> tuple[Any, ...]:
    """What a node is at every batch, whatever its module: ``origins`` says where what it reads is made."""
    return (
        node.identity,
        node.version,
        node.phase,
        tuple(_role(tensor, origins) for tensor in node.inputs),
        tuple(_role(tensor, origins) for tensor in node.outputs),
        tuple(node.attributes),  # names alone: values are lines of their own
        bool(node.graphs),
    )


def _origins(graph: Graph) -> dict[str, str]:
    """By tensor the output that it is: its name may change with the batch, unlike an input's or a weight's."""
    return {
        tensor.name: f"{node.index}.{position}"
        for node in graph.nodes
        for position, tensor in enumerate(node.outputs)
        if tensor is not None
    }


def _role(tensor: Tensor | None, origins: Mapping[str, str]) -> str:
    if tensor is None:
        return ""
    return "constant" if tensor.constant else origins.get(tensor.name, tensor.name)


def _pairs(first: Graph, second: Graph) -> Iterator[tuple[Tensor, Tensor]]:
    """The tensors of two graphs that stand in the same place."""
    rows = [(first.inputs, second.inputs), (first.outputs, second.outputs)]
    rows += [(a.inputs, b.inputs) for a, b in zip(first.nodes, second.nodes, strict=True)]  # type: ignore[misc]
    rows += [(a.outputs, b.outputs) for a, b in zip(first.nodes, second.nodes, strict=True)]  # type: ignore[misc]
    for left, right in rows:
        if len(left) != len(right):
            raise DifferentError
        for a, b in zip(left, right, strict=True):
            if (a is None) != (b is None):
                raise DifferentError
            if a is not None and b is not None:
                yield a, b


def agree(interpolated: Graph, traced: Graph) -> bool:
    """Whether a bound graph is what PyTorch traces at that batch: operators, sizes, attributes, constants.

    Constants that grow with the batch are compared by their sizes alone.
    """
    traced = without_constants(traced)
    if len(interpolated.nodes) != len(traced.nodes):
        return False
    try:
        tensors = all(_alike(a, b) for a, b in _pairs(interpolated, traced))
    except DifferentError:
        return False
    origins, traced_origins = _origins(interpolated), _origins(traced)
    return tensors and all(
        _signature(a, origins) == _signature(b, traced_origins)
        and all(_equal(v, b.attributes[k]) for k, v in a.attributes.items())
        for a, b in zip(interpolated.nodes, traced.nodes, strict=True)
    )


def _alike(a: Tensor, b: Tensor) -> bool:
    if (a.shape, a.dtype, a.constant) != (b.shape, b.dtype, b.constant):
        return False
    return a.value is None or (b.value is not None and _equal(a.value, b.value))


def _equal(a: Any, b: Any) -> bool:
    import numpy as np

    if hasattr(a, "dtype") and a.dtype.kind == "f":
        return a.shape == b.shape and bool(np.allclose(a, b, rtol=_CLOSE, atol=0, equal_nan=True))
    if isinstance(a, float):
        return bool(abs(a - b) <= _CLOSE * abs(b) or a == b)
    return bool(np.array_equal(a, b)) if hasattr(a, "dtype") else bool(a == b)
