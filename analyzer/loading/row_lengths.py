"""How many steps recurrences take: from what ``--input`` says of the inputs that their lengths come from."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from analyzer.graph import Graph, Node, Tensor
from analyzer.loading.python.input_spec import InputSpec
from analyzer.loading.python.nested_inputs import steps_of

# By operator, the operand that holds the lengths, and where X has its steps.
_RECURRENCES = ("LSTM", "GRU", "RNN")
_LENGTHS = 4
_UNCHANGED = frozenset(
    {"Cast", "Identity", "TopK", "Gather", "GatherElements", "Reshape", "Squeeze", "Unsqueeze", "Flatten"}
)
# How deep lengths are followed to an input.
_DEEPEST = 64

Bounds = tuple[int, int]
_ARITHMETIC: Mapping[str, Callable[[Bounds, Bounds], tuple[int, ...]]] = {
    "Add": lambda a, b: (a[0] + b[0], a[1] + b[1]),
    "Sub": lambda a, b: (a[0] - b[1], a[1] - b[0]),
    "Mul": lambda a, b: tuple(x * y for x in a for y in b),
    # Of whole numbers towards 0, as ONNX says.
    "Div": lambda a, b: tuple(int(x / y) for x in a for y in b) if b[0] > 0 else (),
    "Min": lambda a, b: (min(a[0], b[0]), min(a[1], b[1])),
    "Max": lambda a, b: (max(a[0], b[0]), max(a[1], b[1])),
}


def with_steps(graph: Graph, specs: Iterable[InputSpec]) -> Graph:
    """The graph whose recurrences know how many steps their longest sequence may have, and notes that say so.

    Args:
        graph: The model at one batch.
        specs: ``--input`` options and inferred inputs; those with values tell.
    """
    given: dict[str, Bounds] = {}
    for spec in specs:
        if spec.values is not None:
            bounds = int(spec.values[0]), int(spec.values[1])
            # What stands in a dict has its way as its name in the graph: batch_lengths.
            given |= dict.fromkeys((spec.name, "_".join(steps_of(spec.name))), bounds)
    nodes = list(graph.nodes)
    told: dict[str, None] = {}
    for node in graph.nodes:
        if node.op_type not in _RECURRENCES:
            continue
        lengths, whole = node.input(_LENGTHS), _steps(node)
        if lengths is None or not whole:
            continue
        found = _bounds(graph, lengths, given, _DEEPEST)
        fewest, most = (1, whole) if found is None else (min(max(end, 1), whole) for end in found)
        if (fewest, most) == (whole, whole):
            continue
        nodes[node.index] = replace(node, steps=(fewest, most))
        told[_note(node.op_type, whole, None if found is None else (fewest, most))] = None
    return replace(graph, nodes=tuple(nodes), notes=(*graph.notes, *told)) if told else graph


def _steps(node: Node) -> int:
    shape = node.inputs[0].shape if node.inputs and node.inputs[0] is not None else None
    if not shape or len(shape) != 3:
        return 0
    return shape[1 if node.attributes.get("layout") == 1 else 0] or 0


def _bounds(graph: Graph, tensor: Tensor, given: Mapping[str, Bounds], depth: int) -> Bounds | None:
    """The smallest and the largest that any of its elements may be; None where that is not known."""
    if tensor.value is not None and tensor.value.size and tensor.value.dtype.kind in "iu":
        return int(tensor.value.min()), int(tensor.value.max())
    producer = graph.producer.get(tensor.name)
    if producer is None:
        return given.get(tensor.name)
    node = graph.nodes[producer]
    operands = list(node.present_inputs)
    if not depth or not operands or tensor.dtype.is_float:
        return None
    first = _bounds(graph, operands[0], given, depth - 1)
    if node.op_type in _UNCHANGED:
        values = node.output(0)
        return first if values is not None and values.name == tensor.name else None
    if node.op_type not in _ARITHMETIC or len(operands) != 2 or first is None:
        return None
    second = _bounds(graph, operands[1], given, depth - 1)
    ends = () if second is None else _ARITHMETIC[node.op_type](first, second)
    return (min(ends), max(ends)) if ends else None


def _note(op_type: str, whole: int, found: Bounds | None) -> str:
    if found is None:
        return (
            f"The lengths that {op_type} reads are not known: its times are those of whole sequences, {whole} "
            "steps, and may be as low as those of one step (--input NAME=B:int64=LENGTH says how long)."
        )
    fewest, most = found
    taken = f"{most}" if fewest == most else f"{fewest} to {most}"
    return (
        f"The times of {op_type} are those of sequences of {taken} of {whole} steps, as --input says; "
        "its FLOPs and bytes are counted for whole sequences."
    )
