"""What inputs of whole numbers and truth values are filled with, and the sizes that follow from it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from analyzer.graph import Graph, SizeOrigin, Tensor
from analyzer.loading.input_values.row_lengths import by_graph_name, whole_sequences
from analyzer.loading.onnx_graph.known_sizes import open_tensors, with_known_sizes
from analyzer.loading.python.input_spec import InputSpec, drawn_values

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]

# Larger inputs decide sizes too, but nobody waits for what they hold at each of many batches.
_MOST_ELEMENTS = 2**20


def whole_values(graph: Graph, tensor: Tensor, spec: InputSpec | None, *, of_file: bool) -> Array:
    """What an input of whole numbers or truth values is filled with, the same in every run.

    Args:
        graph: Whose input it is.
        tensor: The input, of a whole shape.
        spec: What is said of it.
        of_file: Whether it is filled for a graph alone, whose tables tell which rows they have; else 0 and 1
            are, which every table has.
    """
    import numpy as np

    shape = tuple(size or 0 for size in tensor.shape or ())
    if spec is None or spec.values is None:
        if tensor.dtype.name == "bool":
            return np.ones(shape, dtype=bool)
        name = tensor.name if spec is None else spec.name
        values = range_filled(graph, tensor.name) if of_file else (0, 1)
        spec = InputSpec(name=name, shape=shape, dtype=tensor.dtype.name, values=values)
    return drawn_values(spec, shape, whole=True).astype(tensor.dtype.name)


def range_filled(graph: Graph, name: str) -> tuple[int, int]:
    """The whole numbers that an input is filled with: valid rows of what it indexes, and an int8.

    Sequences are whole, as they are predicted; what indexes a table says no length.
    """
    rows = rows_indexed(graph, name)
    whole = whole_sequences(graph, name) if rows <= _NO_TABLE else None
    return (0, max(min(rows, 127), 1) - 1) if whole is None else (whole, whole)


# Rows of a table that none is.
_NO_TABLE = 2


def rows_indexed(graph: Graph, name: str) -> int:
    """The rows of the smallest table that a tensor indexes through Gather, 2 where it indexes none."""
    rows = []
    for index in graph.consumers.get(name, ()):
        node = graph.nodes[index]
        table, indices, output = node.input(0), node.input(1), node.output(0)
        if node.op_type == "Gather" and indices and indices.name == name and table and table.shape:
            rows.append(table.shape[node.attributes.get("axis", 0)] or 2)
        elif node.op_type in ("Cast", "Identity", "Reshape", "Unsqueeze", "Squeeze") and output:
            rows.append(rows_indexed(graph, output.name))
    return min(rows, default=_NO_TABLE)


def with_filled_sizes(
    graph: Graph, specs: Iterable[InputSpec], guessed: Iterable[InputSpec], *, of_file: bool
) -> Graph:
    """The graph with the sizes that follow from what its inputs are filled with.

    Args:
        graph: The model at one batch.
        specs: ``--input`` options.
        guessed: Inputs that were inferred.
        of_file: As for ``whole_values``; without it nothing is known of inputs that neither of both names.
    """
    if not open_tensors(graph):
        return graph
    given, inferred = by_graph_name(specs), by_graph_name(guessed)
    values: dict[str, Array] = {}
    origins: dict[str, SizeOrigin] = {}
    for tensor in graph.inputs:
        spec = given.get(tensor.name) or inferred.get(tensor.name)
        whole = not tensor.dtype.is_float and tensor.dtype.bits is not None and "int4" not in tensor.dtype.name
        if not whole or tensor.elements is None or tensor.elements > _MOST_ELEMENTS:
            continue
        if tensor.name in graph.carried or (spec is None and not of_file):
            continue
        try:
            values[tensor.name] = whole_values(graph, tensor, spec, of_file=of_file)
        except TypeError:  # NumPy has no such type
            continue
        said = tensor.name in given and given[tensor.name].values is not None
        origins[tensor.name] = SizeOrigin(kind="given" if said else "filled", inputs=(tensor.name,))
    if not values:
        return graph
    return with_known_sizes(graph, values, origins=origins)


# By operator, the operands whose values decide how large its results are or how often its body runs.
_DECIDING: Mapping[str, tuple[int, ...]] = {
    "Compress": (1,),
    "ConstantOfShape": (0,),
    "Expand": (1,),
    "GRU": (4,),
    "If": (0,),
    "LSTM": (4,),
    "Loop": (0, 1),
    "NonZero": (0,),
    "Pad": (1,),
    "RNN": (4,),
    "Range": (0, 1, 2),
    "Reshape": (1,),
    "Resize": (3,),
    "Slice": (1, 2, 3, 4),
    "Split": (1,),
    "Tile": (1,),
    "TopK": (1,),
    "Unique": (0,),
}


def decides(graph: Graph, start: Tensor) -> bool:
    """Whether a tensor's values come to an operand that decides, never through floats."""
    waiting, seen = [start.name], {start.name}
    while waiting:
        name = waiting.pop()
        for index in graph.consumers.get(name, ()):
            node = graph.nodes[index]
            for position in _DECIDING.get(node.op_type, ()):
                operand = node.input(position)
                if operand is not None and operand.name == name:
                    return True
            if node.op_type in ("Shape", "Size"):  # of any values the same
                continue
            for output in node.present_outputs:
                if not output.dtype.is_float and output.name not in seen:
                    seen.add(output.name)
                    waiting.append(output.name)
    return False


def deciding_inputs(graph: Graph, names: Iterable[str]) -> tuple[Tensor, ...]:
    """The inputs whose values decide the sizes of these tensors, in the model's order."""
    sized = set(names)
    waiting: list[str] = []
    for node in graph.nodes:
        if sized.isdisjoint(tensor.name for tensor in node.present_outputs):
            continue
        if any(tensor.name in sized for tensor in node.present_inputs):
            continue  # it takes its size from what it reads
        positions = _DECIDING.get(node.op_type, range(len(node.inputs)))
        operands = [node.input(position) for position in positions]
        waiting += [operand.name for operand in operands if operand is not None]
    seen = set(waiting)
    while waiting:
        producer = graph.producer.get(waiting.pop())
        if producer is None or graph.nodes[producer].op_type in ("Shape", "Size"):
            continue
        more = {tensor.name for tensor in graph.nodes[producer].present_inputs} - seen
        seen |= more
        waiting += more
    return tuple(tensor for tensor in graph.inputs if tensor.name in seen)
