"""Transposes that a CPU session puts around convolutions on integers, whose kernels want channels last.

``NhwcTransformer`` (``onnxruntime/core/optimizer/nhwc_transformer.cc``) puts one before and one behind each
QLinearConv, and the transpose optimizer takes out those that meet across operators that do not mind the layout.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from analyzer.graph import Graph, Tensor
from analyzer.ort.execution import Group
from analyzer.prediction.work_item import Kind, Piece

_WANTS = "QLinearConv"
# Transposes pass through them, or they have kernels for channels last.
_INDIFFERENT = frozenset(
    {
        *("QLinearConv", "MaxPool", "Resize", "QLinearAdd", "QLinearMul", "QLinearConcat", "QLinearSigmoid"),
        *("QLinearLeakyRelu", "QLinearAveragePool", "QLinearGlobalAveragePool", "QLinearWhere"),
    }
)


def channels_last_groups(graph: Graph, groups: Sequence[Group]) -> set[int]:
    """Return the groups that work with channels last: convolutions, and what follows and does not mind."""
    inside = {
        number for number, group in enumerate(groups) if group.op_type == _WANTS and group.provider == "cpu"
    }
    if not inside:
        return inside
    group_of = {member: number for number, group in enumerate(groups) for member in group.members}
    waiting = list(inside)
    while waiting:
        for tensor in _written(graph, groups[waiting.pop()]):
            for index in graph.consumers.get(tensor.name, ()):
                reader = group_of.get(index)
                if reader is not None and reader not in inside and groups[reader].op_type in _INDIFFERENT:
                    inside.add(reader)
                    waiting.append(reader)
    return inside


def channels_last_copies(
    graph: Graph, groups: Sequence[Group], inside: Collection[int]
) -> Iterator[tuple[int, Piece]]:
    """Each Transpose at a border of the part that works with channels last, by the group that it belongs to."""
    if not inside:
        return
    group_of = {member: number for number, group in enumerate(groups) for member in group.members}
    for number, group in enumerate(groups):
        for tensor in _written(graph, group):
            readers = {group_of.get(index, -1) for index in graph.consumers.get(tensor.name, ())} - {number}
            leaves = number in inside and bool(readers.difference(inside))
            enters = number not in inside and bool(readers.intersection(inside))
            if leaves or enters:
                key = "TransposeBytesFirst" if leaves else "TransposeBytesLast"
                yield number, _transpose(tensor, key)
    for tensor in filter(_is_image, graph.inputs):
        readers = {group_of.get(index, -1) for index in graph.consumers.get(tensor.name, ())}
        if entered := readers.intersection(inside):
            yield min(entered), _transpose(tensor, "TransposeBytesLast")


def _written(graph: Graph, group: Group) -> list[Tensor]:
    """Images of bytes that leave a group."""
    members = set(group.members)
    return [
        tensor
        for member in group.members
        for tensor in graph.nodes[member].present_outputs
        if _is_image(tensor) and not members.issuperset(graph.consumers.get(tensor.name, (-1,)))
    ]


def _is_image(tensor: Tensor) -> bool:
    return tensor.rank == 4 and tensor.dtype.bits == 8


def _transpose(tensor: Tensor, op: str) -> Piece:
    size = float(tensor.nbytes or 0)
    return Piece(kind=Kind.MOVE, op=op, fixed=2 * size, elements=size)
