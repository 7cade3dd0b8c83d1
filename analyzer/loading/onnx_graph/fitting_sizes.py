"""Loading: sizes at which a graph can be executed, and the smallest open ones at which it can.

ONNX's inference looks at types and ranks, and at sizes as far as shapes follow from them. What a kernel refuses
besides is looked at here: it loads, and fails in every run.
"""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from analyzer.errors import GraphError
from analyzer.graph import DEFAULT_DOMAIN, Graph, Node, Tensor

# Tried for an open dimension, besides the sizes of the weights that a node reads: small ones first.
_TRIED = (2, 3, 4, 5, 6, 7, 8, 10, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 1024, 2048, 4096)
# Nodes built in all attempts together: a search takes a second or two at most.
_MOST_NODES = 200_000
_FITS = 2**63


def require_fitting(graph: Graph, forbidden: Sequence[tuple[int, str, str, str]]) -> None:
    """Refuse a graph with a node that no run can execute at these sizes.

    ``forbidden`` are nodes that ONNX's inference refuses: index (-1 in a body), name, operator, reason. Bodies
    are not looked at: one may never be executed.
    """
    reasons = {index: reason for index, _, _, reason in reversed(forbidden) if index >= 0}
    for node in graph.nodes:
        reason = reasons.get(node.index) or _misfit(node)
        if reason:
            error = GraphError(
                f"node '{node.name}' ({node.op_type}) cannot be executed at these sizes: {reason}",
                hint="Give the sizes that the file was made for (--batch, --input): "
                "a constant in it may fix them.",
            )
            error.node, error.wanted = node.index, known_sizes(node.inputs)
            raise error


def known_sizes(inputs: Sequence[Tensor | None]) -> tuple[int, ...]:
    """Return the sizes of what a node reads: another input's may have to match one of them."""
    return tuple(size for tensor in inputs if tensor is not None for size in tensor.shape or () if size)


def _misfit(node: Node) -> str:
    """Return why a kernel refuses a node at its sizes; empty where it does not, or that is not known."""
    if node.op_type not in _MISFITS or node.domain != DEFAULT_DOMAIN:
        return ""
    data = node.input(0)
    return _MISFITS[node.op_type](node, data) if data is not None and data.elements is not None else ""


def _reshape(node: Node, data: Tensor) -> str:
    result = node.output(0)
    if result is None or not data.elements or not result.elements or data.elements == result.elements:
        return ""
    return f"it makes {list(result.shape or ())} of {list(data.shape or ())}"


def _convolution(node: Node, data: Tensor) -> str:
    shape, second = data.shape or (), node.input(1)
    if second is None or not second.elements or len(second.shape or ()) < len("OI"):
        return ""
    weight, groups = [size or 0 for size in second.shape or ()], int(node.attributes.get("group", 1))
    taken = weight[0] if node.op_type == "ConvTranspose" else weight[1] * groups
    if shape[1:2] != (taken,):
        return f"its weight takes {taken} channels, its input is {list(shape)}"
    if weight[0] % groups:
        return f"its weight is {weight}, which {groups} groups do not divide"
    kernel = [*node.attributes.get("kernel_shape", weight[2:])]
    if kernel != weight[2:]:
        return f"its kernel_shape is {kernel}, its weight {weight}"
    if node.op_type == "Conv" and data.elements and _exceeds(node, kernel, shape[2:]):
        return f"its window is larger than its input {list(shape)}"
    return ""


def _exceeds(node: Node, kernel: Sequence[int], sizes: Sequence[int | None]) -> bool:
    """Return whether a window is larger than what it moves over; of a pool the result is empty then."""
    if str(node.attributes.get("auto_pad", "NOTSET")).startswith("SAME"):
        return False
    pads = node.attributes.get("pads", (0,) * (2 * len(kernel)))
    dilations = node.attributes.get("dilations", (1,) * len(kernel))
    # ONNX's inference rounds what is negative to 0: a stride hides that nothing fits.
    return any(
        (window - 1) * dilation + 1 > (size or 0) + first + last
        for window, dilation, size, first, last in zip(
            kernel, dilations, sizes, pads, pads[len(kernel) :], strict=False
        )
    )


def _stft(node: Node, data: Tensor) -> str:
    # core/providers/cpu/signal/dft.cc
    window, length = node.input(2), node.input(3)
    if length is not None and length.value is not None:
        frame = int(length.value)
    else:
        frame = (window.elements or 0) if window is not None else 0
    signal = next(iter((data.shape or ())[1:2]), None) or 0
    return f"its frames of {frame} exceed the signal of {signal}" if frame > signal else ""


def _depth_to_space(node: Node, data: Tensor) -> str:
    # core/providers/cpu/tensor/space_depth_ops.h
    channels, size = (data.shape or ())[1:2], node.attributes["blocksize"]
    unfit = next((count for count in channels if (count or 0) % size**2), 0)
    return f"its {unfit} channels are no multiple of {size**2}" if unfit else ""


def _einsum(node: Node, _data: Tensor) -> str:
    """Look for a label of two sizes."""
    equation = str(node.attributes.get("equation", "")).replace(" ", "")
    sizes: dict[str, int] = {}
    for labels, tensor in zip(equation.partition("->")[0].split(","), node.inputs, strict=False):
        shape = () if tensor is None or tensor.shape is None else tensor.shape
        for label, size in zip(labels, shape, strict=False) if "." not in labels else ():
            if size not in (None, 1) and sizes.setdefault(label, size or 1) != size:
                return f"its label {label} is {sizes[label]} and {size}"
    return ""


def _gather(node: Node, data: Tensor) -> str:
    indices, axis = node.input(1), node.attributes.get("axis", 0)
    if indices is None or indices.value is None or not indices.value.size:
        return ""
    size = (data.shape or ())[axis] or 0
    largest = int(indices.value.max())
    outside = max(largest, -int(indices.value.min()) - 1) >= size
    return f"it takes index {largest} of an axis of {size}" if outside else ""


def _pad(node: Node, data: Tensor) -> str:
    if node.attributes.get("mode") != "reflect":
        return ""
    sizes, stored = [size or 0 for size in data.shape or ()], node.input(1)
    pads = node.attributes.get("pads") if stored is None else stored.value
    if pads is None or node.input(3) is not None:
        return ""
    both = [int(pad) for pad in pads]
    for size, first, last in zip(sizes, both[: len(sizes)], both[len(sizes) :], strict=False):
        if max(first, last) >= size:  # onnxruntime/core/providers/cpu/tensor/pad.cc
            return f"it reflects {max(first, last)} of an axis of {size}"
    return ""


_MISFITS: Mapping[str, Callable[[Node, Tensor], str]] = {
    "Conv": _convolution,
    "ConvTranspose": _convolution,
    "DepthToSpace": _depth_to_space,
    "Einsum": _einsum,
    "Gather": _gather,
    "Pad": _pad,
    "Reshape": _reshape,
    "STFT": _stft,
}


def _sides_of(wanted: Iterable[int]) -> list[int]:
    """Return sides of images whose pixels, halved up to five times, make up a factor of one of these sizes.

    A product behind Flatten reads channels times height times width.
    """
    sides = {
        side
        for size in wanted
        for side in range(2, math.isqrt(size) + 1 if size < _MOST_PIXELS else 2)
        if size % side**2 == 0
    }
    return sorted({side * 2**halvings for side in sides for halvings in range(6)})


_MOST_PIXELS = 2**24


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
        self._wanted: tuple[int, ...] = ()
        self._nodes_left = _MOST_NODES

    def smallest(self) -> Mapping[str, int] | None:
        """Return the least sizes that fit, those of 1 too; None where none were found.

        Sizes are raised to the least ones at which the graph gets further than before, one alone if that does.
        """
        place = self._reached(self._best)
        while place != _FITS:
            further = next(
                ((sizes, reached) for sizes in self._tried() if (reached := self._reached(sizes)) > place), None
            )
            if further is None:
                return None
            sizes, reached = further
            raised = [name for name, size in sizes.items() if size != self._best[name]]
            low, high = 1, sizes[raised[0]]
            while len(raised) > 1 and high - low > 1:  # the sizes tried of several at once are few
                middle = (low + high) // 2
                between = self._reached(self._best | dict.fromkeys(raised, middle))
                low, high, reached = (low, middle, between) if between > place else (middle, high, reached)
            self._best, place = self._best | dict.fromkeys(raised, high), reached
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

    def _tried(self) -> Iterator[dict[str, int]]:
        wanted, free = self._wanted, [name for name, size in self._best.items() if size == 1]
        for name in self._best:
            for size in sorted({*_TRIED, *wanted}):
                yield {**self._best, name: size}
        # Height and width, where both are too small.
        for size in (*_TRIED, *_sides_of(wanted)):
            yield self._best | dict.fromkeys(free or self._best, size)

    def _reached(self, sizes: Mapping[str, int]) -> int:
        """Return the node at which the graph stops to fit."""
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


# Characters of an expression.
_LONGEST = 1000


def is_symbol(name: str) -> bool:
    """Return whether a name stands for itself, not for a sum or product."""
    return name.isidentifier() or not any(sign in name for sign in "+-*/() ")


def symbols(name: str) -> set[str]:
    """Return the names in an expression; none where it is no expression."""
    try:
        return {node.id for node in ast.walk(_parsed(name)) if isinstance(node, ast.Name)}
    except (SyntaxError, ValueError):
        return set()


# PyTorch's exporter writes sizes that follow from a symbolic one in Python's syntax.
_OPERATORS: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
}


def evaluate(expression: str, sizes: Mapping[str, int]) -> int | None:
    """Return the value of a size such as ``12*batch + 1``.

    None where a name in it is not bound or it is no sum or product.
    """
    try:
        value = _evaluated(_parsed(expression), sizes)
    except (SyntaxError, ValueError, KeyError, ZeroDivisionError, RecursionError):
        return None
    return value if value >= 0 else None


def _parsed(text: str) -> ast.expr:
    # Parsed, never executed: the text comes from a file that someone else wrote. Exporters write short ones;
    # a long one can be nested deeper than Python's own parser takes.
    if len(text) > _LONGEST:
        raise ValueError("too long for a size")
    return ast.parse(text, mode="eval").body


def _evaluated(tree: ast.expr, sizes: Mapping[str, int]) -> int:
    # type() and not isinstance: True is an int too.
    if isinstance(tree, ast.Constant) and type(tree.value) is int:
        return tree.value
    if isinstance(tree, ast.Name):
        return sizes[tree.id]
    if isinstance(tree, ast.BinOp) and type(tree.op) in _OPERATORS:
        return _OPERATORS[type(tree.op)](_evaluated(tree.left, sizes), _evaluated(tree.right, sizes))
    raise ValueError(f"no sum or product: {ast.dump(tree)}")
