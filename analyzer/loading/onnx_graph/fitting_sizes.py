"""Loading: sizes at which a graph can be executed, and the smallest open ones at which it can.

ONNX's inference looks at types and ranks, and at sizes as far as shapes follow from them. What a kernel refuses
besides is looked at here: it loads, and fails in every run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NoReturn

from analyzer.errors import GraphError
from analyzer.graph import DEFAULT_DOMAIN, Graph, Node, Tensor

# Tried for an open dimension, besides the sizes of the weights that a node reads: small ones first.
_TRIED = (2, 3, 4, 5, 6, 7, 8, 10, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 1024, 2048, 4096)
# Nodes built in all attempts together: a search takes a second or two at most.
_MOST_NODES = 200_000
_FITS = 2**63


def require_fitting(graph: Graph, forbidden: Sequence[tuple[int, str, str, str]]) -> None:
    """Refuse a graph with a node that no run can execute at these sizes.

    Args:
        graph: Its bodies are not looked at: one may never be executed.
        forbidden: Nodes that ONNX's inference refuses: index (-1 in a body), name, operator, reason.

    Raises:
        GraphError: Names the node and what does not fit.
    """
    reasons = {index: reason for index, _, _, reason in reversed(forbidden) if index >= 0}
    for node in graph.nodes:
        reason = reasons.get(node.index) or (_misfit(node) if node.op_type in _LOOKED_AT else "")
        if reason:
            _refuse(node, reason)


def _refuse(node: Node, reason: str) -> NoReturn:
    error = GraphError(
        f"node '{node.name}' ({node.op_type}) cannot be executed at these sizes: {reason}",
        hint="Give the sizes that the file was made for (--batch, --input): a constant in it may fix them.",
    )
    error.node, error.wanted = node.index, known_sizes(node.inputs)
    raise error


def known_sizes(inputs: Sequence[Tensor | None]) -> tuple[int, ...]:
    """Return the sizes of what a node reads: another input's may have to match one of them."""
    return tuple(size for tensor in inputs if tensor is not None for size in tensor.shape or () if size)


_LOOKED_AT = frozenset({"Reshape", "Conv", "ConvTranspose", "Pad", "Gather"})


def _misfit(node: Node) -> str:
    """Return why a kernel refuses a node at its sizes; empty where it does not, or that is not known."""
    data, second = node.input(0), node.input(1)
    if node.domain != DEFAULT_DOMAIN or data is None or data.shape is None or None in data.shape:
        return ""
    result = node.output(0)
    before, after = data.elements, None if result is None else result.elements
    if node.op_type == "Conv" and before and after == 0:  # of a pool the result is empty
        return f"its window is larger than its input {list(data.shape)}"
    if node.op_type == "Reshape":
        if before and after and before != after and result is not None:
            return f"it makes {list(result.shape or ())} of {list(data.shape)}"
    elif node.op_type in ("Conv", "ConvTranspose"):
        first, each, *_ = second.shape if second is not None and second.elements and second.shape else (0, 0)
        taken = first if node.op_type == "ConvTranspose" else (each or 0) * node.attributes.get("group", 1)
        if taken and data.shape[1:2] != (taken,):
            return f"its weight takes {taken} channels, its input is {list(data.shape)}"
    elif node.op_type == "Pad" and node.attributes.get("mode") == "reflect":
        return _reflected_too_far(node, [size or 0 for size in data.shape])
    elif node.op_type == "Gather" and second is not None and second.value is not None and second.value.size:
        axis = node.attributes.get("axis", 0)
        size = data.shape[axis] or 0
        if max(int(second.value.max()), -int(second.value.min()) - 1) >= size:
            return f"it takes index {int(second.value.max())} of an axis of {size}"
    return ""


def _reflected_too_far(node: Node, sizes: Sequence[int]) -> str:
    stored = node.input(1)
    pads = node.attributes.get("pads") if stored is None else stored.value
    if pads is None or node.input(3) is not None:
        return ""
    both = [int(pad) for pad in pads]
    for size, first, last in zip(sizes, both[: len(sizes)], both[len(sizes) :], strict=False):
        if max(first, last) >= size:  # onnxruntime/core/providers/cpu/tensor/pad.cc
            return f"it reflects {max(first, last)} of an axis of {size}"
    return ""


class SizeSearch:
    """The search for sizes of open dimensions at which a graph can be executed.

    Args:
        build: Makes the graph with these sizes; raises GraphError, with the node, where they do not fit.
        names: The dimensions.
    """

    def __init__(self, build: Callable[[Mapping[str, int]], Graph], names: Iterable[str]) -> None:
        self.names = tuple(names)
        self._build = build
        self._best = dict.fromkeys(self.names, 1)
        self._settled: set[str] = set()
        self._wanted: tuple[int, ...] = ()
        self._nodes_left = _MOST_NODES

    def smallest(self) -> Mapping[str, int] | None:
        """Return the least sizes that fit, those of 1 too; None where none were found.

        One size after the other is raised to the least at which the graph gets further than before.
        """
        place = self._reached(self._best)
        while place != _FITS:
            if not self.names:
                return None
            wanted = self._wanted
            further = next(self._further(place, wanted), None)
            if further is None:
                return None
            self._best, place = further
        return self._best

    def example(self, size: int) -> Mapping[str, int]:
        """Return sizes that fit with this one in as many places as can be; after ``smallest``."""
        sizes = dict.fromkeys(self._best, size)
        if self._reached(sizes) == _FITS:
            return sizes
        sizes = dict(self._best)
        for name in sizes:
            if self._reached({**sizes, name: size}) == _FITS:
                sizes[name] = size
        return sizes

    def _further(self, place: int, wanted: Sequence[int]) -> Iterator[tuple[dict[str, int], int]]:
        tried = sorted({*_TRIED, *wanted})
        for name in self._best:
            for size in tried:
                sizes = {**self._best, name: size}
                reached = self._reached(sizes)
                if reached > place:
                    self._settled.add(name)
                    yield sizes, reached
        # Height and width, where both are too small.
        free = [name for name in self._best if name not in self._settled] or list(self._best)
        low = 1
        for size in _TRIED:
            reached = self._reached(self._best | dict.fromkeys(free, size))
            if reached > place:
                while size - low > 1:
                    middle = (low + size) // 2
                    between = self._reached(self._best | dict.fromkeys(free, middle))
                    if between > place:
                        size, reached = middle, between
                    else:
                        low = middle
                yield self._best | dict.fromkeys(free, size), reached
            low = size

    def _reached(self, sizes: Mapping[str, int]) -> int:
        """The node at which the graph stops to fit."""
        if self._nodes_left < 0:
            return -1
        try:
            graph = self._build(sizes)
        except GraphError as error:
            self._wanted = error.wanted
            self._nodes_left -= max(error.node, 0) + 100
            return error.node
        self._nodes_left -= len(graph.nodes) + 100
        return _FITS
