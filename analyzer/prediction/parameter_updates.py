"""Optimizer steps on a GPU as PyTorch runs them there: passes over all parameters at once, each with its share.

The step's other operators are predicted as ONNX Runtime runs them. An optimizer it would run as a dozen small
kernels for each bias, which nobody does: PyTorch's go over the tensors of all parameters together.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass

from analyzer.graph import Graph, Node
from analyzer.prediction.work_item import FLOAT_BYTES, Kind, Piece
from analyzer.training_operators import Pass, implementation_of, is_update, passes_of

UPDATE = "ParameterUpdate"
"""What a pass over parameters is called among pieces."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ParameterUpdate:
    """One parameter's part of its optimizer's step.

    Attributes:
        pieces: One a pass.
        kernels: Its share of the launches.
    """

    pieces: tuple[Piece, ...]
    kernels: float


def parameter_updates(graph: Graph) -> Mapping[int, ParameterUpdate]:
    """Return the optimizer steps of a graph by the position of their nodes; empty for a model of inference."""
    together: dict[Hashable, list[Node]] = {}
    for node in graph.nodes:
        if is_update(node) and _size(node):
            together.setdefault(_group(node), []).append(node)
    updates = {
        node.index: _share(node, nodes, passes)
        for nodes in together.values()
        for passes in (passes_of(nodes[0]),)
        for node in nodes
    }
    if updates:
        updates |= {node.index: _ON_THE_HOST for node in graph.nodes if _is_number(node)}
    return updates


def update_totals(graph: Graph) -> tuple[float, float]:
    """Return kernels of all optimizer steps, and the bytes in fp32 that they move."""
    updates = parameter_updates(graph).values()
    moved = sum((piece.read + piece.written) * piece.repeats for one in updates for piece in one.pieces)
    return sum(one.kernels for one in updates), moved


# Corrections that follow from the count of steps alone: Python's numbers, which are arguments of the kernels.
_ON_THE_HOST = ParameterUpdate(pieces=(), kernels=0.0)


def _is_number(node: Node) -> bool:
    if node.phase != "optimizer" or is_update(node):
        return False
    return all(tensor.elements == 1 for tensor in (*node.present_inputs, *node.present_outputs))


def _group(node: Node) -> Hashable:
    """Return the key of parameters that PyTorch updates together: one group of options and one type."""
    parameter = node.input(0)
    alone = node.index if implementation_of(node) == "for-loop" else None
    kind = parameter.dtype if parameter is not None else None
    return node.op_type, repr(sorted(node.attributes.items())), kind, alone


def _size(node: Node) -> int:
    parameter = node.input(0)
    return (parameter.elements or 0) if parameter is not None else 0


def _share(node: Node, together: list[Node], passes: tuple[Pass, ...]) -> ParameterUpdate:
    sizes = [_size(one) for one in together]
    whole = sum(sizes)
    share = _size(node) / whole
    pieces = [
        # A pass goes over the bytes of all before the next begins; this parameter has a part of its time.
        Piece(
            kind=Kind.VECTOR,
            op=UPDATE,
            read=FLOAT_BYTES * each.reads * whole,
            written=FLOAT_BYTES * each.writes * whole,
            elements=float(whole),
            repeats=share,
        )
        for each in passes
    ]
    return ParameterUpdate(pieces=tuple(pieces), kernels=share * sum(each.launches(sizes) for each in passes))
