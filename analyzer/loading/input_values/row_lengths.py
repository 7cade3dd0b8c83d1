"""How many steps recurrences take: from what ``--input`` says of the inputs that their lengths come from."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from analyzer.graph import Graph, Node, Tensor
from analyzer.loading.onnx_graph.evaluation import Evaluation
from analyzer.loading.python.input_spec import InputSpec
from analyzer.loading.python.nested_inputs import steps_of
from analyzer.record.notes import WHOLE_SEQUENCES

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]

# By operator, the operand that holds the lengths, and where X has its steps.
_RECURRENCES = ("LSTM", "GRU", "RNN")
_LENGTHS = 4

Bounds = tuple[int, int]


def by_graph_name(specs: Iterable[InputSpec]) -> dict[str, InputSpec]:
    """Specs by the name that their input has in the graph: what stands in a dict has its way, batch_lengths."""
    found: dict[str, InputSpec] = {}
    for spec in specs:
        found |= dict.fromkeys((spec.name, "_".join(steps_of(spec.name))), spec)
    return found


def with_steps(graph: Graph, specs: Iterable[InputSpec]) -> Graph:
    """The graph whose recurrences know how many steps their longest sequence may have, and notes that say so.

    Args:
        graph: The model at one batch.
        specs: ``--input`` options and inferred inputs; those with values tell.
    """
    with_values = by_graph_name(spec for spec in specs if spec.values is not None)
    given = {name: spec.values for name, spec in with_values.items() if spec.values is not None}
    if not any(node.op_type in _RECURRENCES for node in graph.nodes):
        return graph
    lengths_of = _Lengths(graph, given)
    nodes = list(graph.nodes)
    told: dict[str, None] = {}
    for node in graph.nodes:
        if node.op_type not in _RECURRENCES:
            continue
        lengths, whole = node.input(_LENGTHS), _steps(node)
        if lengths is None or not whole:
            continue
        found = lengths_of.bounds(lengths)
        fewest, most = (1, whole) if found is None else (min(max(end, 1), whole) for end in found)
        if (fewest, most) == (whole, whole):
            continue
        nodes[node.index] = replace(node, steps=(fewest, most))
        told[_note(node.op_type, whole, None if found is None else (fewest, most))] = None
    return replace(graph, nodes=tuple(nodes), notes=(*graph.notes, *told)) if told else graph


def whole_sequences(graph: Graph, name: str) -> int | None:
    """What fills an input so that recurrences take all their steps: lengths of that size, a mask of ones.

    What is predicted of unknown lengths are whole sequences: what is run must be no shorter.

    Args:
        graph: The model at one batch.
        name: An input of whole numbers.

    Returns:
        None where no length follows from it, or not from it alone.
    """
    bits = next((tensor.dtype.bits for tensor in graph.inputs if tensor.name == name), None)
    if not bits or name not in _behind_lengths(graph):
        return None
    for node in graph.nodes:
        lengths, whole = node.input(_LENGTHS) if node.op_type in _RECURRENCES else None, _steps(node)
        if lengths is None or not whole:
            continue
        for value in (whole, 1):
            found = _Lengths(graph, {name: (value, value)}).bounds(lengths)
            # What its type cannot hold is no length.
            if found == (whole, whole) and value < 2 ** (bits - 1):
                return value
    return None


def _steps(node: Node) -> int:
    shape = node.inputs[0].shape if node.inputs and node.inputs[0] is not None else None
    if not shape or len(shape) != 3:
        return 0
    return shape[1 if node.attributes.get("layout") == 1 else 0] or 0


class _Lengths:
    """What elements of tensors may be, from what is said of the inputs.

    Args:
        graph: The model.
        given: The smallest and the largest value of inputs that are said.
    """

    def __init__(self, graph: Graph, given: Mapping[str, tuple[float, float]]) -> None:
        self._graph = graph
        self._given = given
        # Those alone that lengths follow from: what else is given makes no corners.
        behind = _behind_lengths(graph)
        inputs = {tensor.name: tensor for tensor in graph.inputs if tensor.name in behind}
        # An input of one value has one corner, of a range three: what is computed of lengths rises or falls.
        told = {name: inputs[name] for name in given if name in inputs}
        ends = {
            name: sorted({low, (low + high) / 2, high}) for name, (low, high) in given.items() if name in told
        }
        corners = itertools.islice(itertools.product(*ends.values()), _MOST_CORNERS + 1)
        found = [
            {name: _filled(told[name], value) for name, value in zip(ends, corner, strict=True)}
            for corner in corners
        ]
        self._corners = [
            Evaluation(graph, corner, most_elements=_MOST_ELEMENTS, most_tensors=_MOST_TENSORS)
            for corner in (found if len(found) <= _MOST_CORNERS else ())
        ]

    def bounds(self, tensor: Tensor) -> Bounds | None:
        """The smallest and the largest that any of its elements may be; None where that is not known."""
        if tensor.value is not None and tensor.value.size and tensor.value.dtype.kind in "iu":
            return int(tensor.value.min()), int(tensor.value.max())
        if tensor.dtype.is_float:
            return None
        if tensor.name not in self._graph.producer:
            ends = self._given.get(tensor.name)
            return None if ends is None else (int(ends[0]), int(ends[1]))
        # From the values themselves, as the operators before it compute them from those of the inputs.
        arrays = [corner.value(tensor) for corner in self._corners]
        known = [array for array in arrays if array is not None and array.size and array.dtype.kind in "iu"]
        if not known or len(known) < len(arrays):
            return None
        return min(int(array.min()) for array in known), max(int(array.max()) for array in known)


# Inputs of values, each with up to three; operators between them and lengths; rows of a tensor there.
_MOST_CORNERS, _MOST_TENSORS, _MOST_ELEMENTS = 27, 512, 2**16


def _behind_lengths(graph: Graph) -> frozenset[str]:
    """Names of all tensors that the lengths of recurrences are computed from."""
    lengths = [node.input(_LENGTHS) for node in graph.nodes if node.op_type in _RECURRENCES]
    waiting = [tensor.name for tensor in lengths if tensor is not None]
    seen = set(waiting)
    while waiting:
        producer = graph.producer.get(waiting.pop())
        if producer is not None:
            more = {tensor.name for tensor in graph.nodes[producer].present_inputs} - seen
            seen |= more
            waiting += more
    return frozenset(seen)


def _filled(tensor: Tensor, value: float) -> Array | None:
    import numpy as np
    import onnx

    if tensor.shape is None or not tensor.dtype.onnx or tensor.dtype.name == "string":
        return None
    if tensor.elements is None or tensor.elements > _MOST_ELEMENTS:
        return None
    kind = onnx.helper.tensor_dtype_to_np_dtype(tensor.dtype.onnx)
    return np.full([size or 0 for size in tensor.shape], value).astype(kind)


def _note(op_type: str, whole: int, found: Bounds | None) -> str:
    if found is None:
        return (
            f"The lengths that {op_type} reads are not known: {WHOLE_SEQUENCES}, {whole} steps, "
            " and may be as low as those of one step (--input NAME=B:int64=LENGTH says how long)."
        )
    fewest, most = found
    taken = f"{most}" if fewest == most else f"{fewest} to {most}"
    return (
        f"The times of {op_type} are those of sequences of {taken} of {whole} steps, as --input says; "
        "its FLOPs and bytes are counted for whole sequences."
    )
