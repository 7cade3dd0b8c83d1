"""Values of integer and boolean inputs, and the sizes and steps that follow from them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from analyzer.graph import Graph, Node, Tensor
from analyzer.loading.onnx_graph.build import open_tensors, with_known_sizes
from analyzer.loading.onnx_graph.evaluation import Evaluation
from analyzer.loading.python.input_spec import InputSpec, drawn_values, steps_of
from analyzer.record.batch_ranges import WHOLE_SEQUENCES

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]

# Larger inputs decide sizes too, but nobody waits for what they hold at each of many batches.
_MOST_ELEMENTS = 2**20


def by_graph_name(specs: Iterable[InputSpec]) -> dict[str, InputSpec]:
    """Return specs by the name of an input in the graph: what stands in a dict has its way, batch_lengths."""
    result: dict[str, InputSpec] = {}
    for spec in specs:
        result |= dict.fromkeys((spec.name, "_".join(steps_of(spec.name))), spec)
    return result


def whole_values(graph: Graph, tensor: Tensor, spec: InputSpec | None) -> Array:
    """Return what an input of whole numbers or truth values is filled with, the same in every run."""
    import numpy as np

    shape = tuple(size or 0 for size in tensor.shape or ())
    if spec is None or spec.values is None:
        if tensor.dtype.name == "bool":
            return np.ones(shape, dtype=bool)
        name = tensor.name if spec is None else spec.name
        values = range_filled(graph, tensor.name)
        spec = InputSpec(name=name, shape=shape, dtype=tensor.dtype.name, values=values)
    return drawn_values(spec, shape, whole=True).astype(tensor.dtype.name)


def range_filled(graph: Graph, name: str) -> tuple[int, int]:
    """Return the whole numbers that an input is filled with: valid rows of what it indexes, and an int8.

    Sequences are whole, as they are predicted; what indexes a table says no length.
    """
    rows = rows_indexed(graph, name)
    whole = whole_sequences(graph, name) if rows <= _NO_TABLE else None
    return (0, max(min(rows, 127), 1) - 1) if whole is None else (whole, whole)


# Rows of a table that none is.
_NO_TABLE = 2


def rows_indexed(graph: Graph, name: str) -> int:
    """Return the rows of the smallest table that a tensor indexes through Gather, 2 where it indexes none."""
    rows = []
    for index in graph.consumers.get(name, ()):
        node = graph.nodes[index]
        table, indices, output = node.input(0), node.input(1), node.output(0)
        if node.op_type == "Gather" and indices and indices.name == name and table and table.shape:
            rows.append(table.shape[node.attributes.get("axis", 0)] or 2)
        elif node.op_type in ("Cast", "Identity", "Reshape", "Unsqueeze", "Squeeze") and output:
            rows.append(rows_indexed(graph, output.name))
    return min(rows, default=_NO_TABLE)


def with_given_sizes(graph: Graph, specs: Iterable[InputSpec]) -> Graph:
    """Return the graph with the sizes that follow from the values which ``--input`` gives."""
    if not open_tensors(graph):
        return graph
    given = by_graph_name(spec for spec in specs if spec.values is not None)
    values = {
        tensor.name: whole_values(graph, tensor, given[tensor.name])
        for tensor in graph.inputs
        if tensor.name in given and tensor.name not in graph.carried and _is_whole(tensor)
    }
    return with_known_sizes(graph, values) if values else graph


def _is_whole(tensor: Tensor) -> bool:
    """Return whether an input's numbers are whole, few enough, and of a type that NumPy has."""
    dtype = tensor.dtype
    known = (
        not dtype.is_float and dtype.bits is not None and "int4" not in dtype.name and "int2" not in dtype.name
    )
    return known and tensor.elements is not None and tensor.elements <= _MOST_ELEMENTS


# By operator, the operand that holds the lengths; what is computed on the way to them.
_RECURRENCES = ("LSTM", "GRU", "RNN")
_LENGTHS, _MOST_ROWS, _MOST_OPERATORS = 4, 2**16, 512


def with_steps(graph: Graph, specs: Iterable[InputSpec]) -> Graph:
    """Return the graph whose recurrences know the steps that values of inputs tell, and notes that say so."""
    recurrences = [node for node in graph.nodes if node.op_type in _RECURRENCES]
    if not recurrences:
        return graph
    given = by_graph_name(spec for spec in specs if spec.values is not None)
    nodes, notes = list(graph.nodes), dict[str, None]()
    for node in recurrences:
        lengths, whole = node.input(_LENGTHS), _steps(node)
        if lengths is None or not whole:
            continue
        result = _bounds(graph, lengths, given)
        fewest, most = (1, whole) if result is None else (min(max(end, 1), whole) for end in result)
        if (fewest, most) == (whole, whole):
            continue
        nodes[node.index] = replace(node, steps=(fewest, most))
        if result is None:
            note = (
                f"The lengths that {node.op_type} reads are not known: {WHOLE_SEQUENCES}, {whole} steps, "
                " and may be as low as those of one step (--input NAME=B:int64=LENGTH says how long)."
            )
        else:
            taken = f"{most}" if fewest == most else f"{fewest} to {most}"
            note = (
                f"The times of {node.op_type} are those of sequences of {taken} of {whole} steps, as --input "
                "says; its FLOPs and bytes are counted for whole sequences."
            )
        notes[note] = None
    return replace(graph, nodes=tuple(nodes), notes=(*graph.notes, *notes)) if notes else graph


def whole_sequences(graph: Graph, name: str) -> int | None:
    """Return what fills an input so that recurrences take all their steps: lengths of them, a mask of ones.

    What is predicted of unknown lengths are whole sequences: what is run must be no shorter.

    Returns:
        None where no length follows from it, or not from it alone.
    """
    bits = next((tensor.dtype.bits for tensor in graph.inputs if tensor.name == name), None)
    for node in graph.nodes if bits else ():
        lengths, whole = node.input(_LENGTHS) if node.op_type in _RECURRENCES else None, _steps(node)
        if lengths is None or not whole or lengths.constant:
            continue
        for value in (whole, 1):
            # What its type cannot hold is no length.
            spec = InputSpec(name=name, shape=(), values=(value, value))
            if value < 2 ** ((bits or 0) - 1) and _bounds(graph, lengths, {name: spec}) == (whole, whole):
                return value
    return None


def _steps(node: Node) -> int:
    shape = node.inputs[0].shape if node.inputs and node.inputs[0] is not None else None
    if not shape or len(shape) != 3:
        return 0
    return shape[1 if node.attributes.get("layout") == 1 else 0] or 0


def _bounds(graph: Graph, lengths: Tensor, given: Mapping[str, InputSpec]) -> tuple[int, int] | None:
    """Return the smallest and the largest of some lengths; None where they do not follow from the inputs.

    They are computed from the values of a file, else from the least, the middle and the largest values of all
    inputs that are given.
    """
    import numpy as np
    import onnx

    inputs = {tensor.name: tensor for tensor in graph.inputs}
    ranges = {name: spec.values for name, spec in given.items() if spec.values is not None}
    if lengths.name in inputs and lengths.name in ranges:
        low, high = ranges[lengths.name]
        return int(low), int(high)
    ends: list[int] = []
    varies = any(low < high and given[name].array is None for name, (low, high) in ranges.items())
    for share in (0.0, 0.5, 1.0) if varies else (0.0,):
        known: dict[str, Array | None] = {}
        for name, (low, high) in ranges.items():
            tensor, spec = inputs.get(name), given[name]
            if tensor is None or not tensor.dtype.onnx or tensor.dtype.name == "string":
                continue
            if tensor.elements is not None and tensor.elements <= _MOST_ROWS:
                kind = onnx.helper.tensor_dtype_to_np_dtype(tensor.dtype.onnx)
                shape = tuple(size or 0 for size in tensor.shape or ())
                filled = (
                    np.full(shape, low * (1 - share) + high * share) if spec.array is None else spec.rows(shape)
                )
                known[name] = filled.astype(kind)
        evaluation = Evaluation.of(graph, known, most=_MOST_ROWS, left=_MOST_OPERATORS, by_reference=True)
        array = evaluation.value(lengths)
        if array is None or not array.size or array.dtype.kind not in "iu":
            return None
        ends += [int(array.min()), int(array.max())]
    return min(ends), max(ends)


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


def deciding_inputs(graph: Graph, names: Iterable[str] | None = None) -> tuple[Tensor, ...]:
    """Return the inputs whose values decide sizes or trips, in the model's order.

    Args:
        graph: The model.
        names: Tensors whose sizes alone count; without them all sizes do, as far as floats do not decide them.
    """
    sized = None if names is None else set(names)
    waiting: list[str] = []
    for node in graph.nodes:
        positions: Iterable[int] = _DECIDING.get(node.op_type, ())
        if sized is not None:
            if sized.isdisjoint(tensor.name for tensor in node.present_outputs):
                continue
            if any(tensor.name in sized for tensor in node.present_inputs):
                continue  # it takes its size from what it reads
            positions = positions or range(len(node.inputs))
        operands = [node.input(position) for position in positions]
        waiting += [operand.name for operand in operands if operand is not None]
    seen = set(waiting)
    while waiting:
        name = waiting.pop()
        producer = graph.producer.get(name)
        # Of any values the shape is the same.
        if producer is None or graph.nodes[producer].op_type in ("Shape", "Size"):
            continue
        if sized is None and graph.tensors[name].dtype.is_float:
            continue
        more = {tensor.name for tensor in graph.nodes[producer].present_inputs} - seen
        seen |= more
        waiting += more
    return tuple(tensor for tensor in graph.inputs if tensor.name in seen)
