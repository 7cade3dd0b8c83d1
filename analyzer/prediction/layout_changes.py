"""Copies between ONNX Runtime's blocked layout (NCHWc) and the plain one, which its CPU session inserts."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from analyzer.graph import Graph, Tensor
from analyzer.memory.session_plan import with_layouts
from analyzer.memory.session_steps import REORDER, Value, sizes_in, steps_of
from analyzer.ort.blocked_layout import CARRIERS, CONVOLUTIONS, POOLS
from analyzer.ort.execution import Group
from analyzer.prediction.work_item import FLOAT_BYTES, Kind, Piece

# Costs per element what a transposition of heads does (both move runs of a block).
_OP = "TransposeHeads"
_BLOCKED = CONVOLUTIONS | POOLS


@dataclass(frozen=True, slots=True, kw_only=True)
class LayoutCopy:
    """One copy of a tensor from a layout to the other.

    Attributes:
        group: Index of the group that reads or writes the blocks.
        made: What the copy makes.
        nbytes: Its size; None where not known.
    """

    group: int
    made: Value
    nbytes: int | None

    def piece(self) -> Piece:
        """Return the copy as work; of an unknown size it is none."""
        size = self.nbytes or 0
        return Piece(kind=Kind.MOVE, op=_OP, read=size, written=size, elements=size / FLOAT_BYTES)


@dataclass(frozen=True, slots=True, kw_only=True)
class LayoutCopies:
    """The copies between layouts that a session makes.

    Attributes:
        values: All that is written near blocks: what is in blocks follows from their shapes.
    """

    copies: tuple[LayoutCopy, ...] = ()
    values: tuple[Value, ...] = ()

    def at(self, graph: Graph) -> LayoutCopies | None:
        """Those of the model at another batch, whose operators are the same; None where they may be others."""
        sizes = sizes_in(graph, self.values)
        if sizes is None:
            return None
        copies = [replace(copy, nbytes=sizes[copy.made.name]) for copy in self.copies]
        return LayoutCopies(copies=tuple(copies), values=self.values)


def layout_copies(graph: Graph, groups: Sequence[Group]) -> LayoutCopies:
    """Return the copies between layouts that a session of these groups makes."""
    if not any(group.provider == "cpu" and group.op_type in _BLOCKED for group in groups):
        return LayoutCopies()
    owner = {member: index for index, group in enumerate(groups) for member in group.members}
    steps = with_layouts(graph, steps_of(graph, groups, _near_blocks(graph, groups, owner)))
    values = [output.value for step in steps for output in step.outputs]
    copies = [
        LayoutCopy(group=owner[step.node.index], made=step.outputs[0].value, nbytes=step.outputs[0].value.size)
        for step in steps
        if step.op_type == REORDER
    ]
    return LayoutCopies(copies=tuple(copies), values=tuple(values))


def _near_blocks(graph: Graph, groups: Sequence[Group], owner: Mapping[int, int]) -> set[int]:
    """Return indices of the groups that may write blocks, of those that read them, and of what these read.

    No other changes what is copied: of a large model mostly few.
    """
    in_blocks: set[str] = set()
    near: set[int] = set()
    for index, group in enumerate(groups):
        nodes = [graph.nodes[member] for member in group.members]
        reads_blocks = not in_blocks.isdisjoint(
            [name for node in nodes for name in graph.names_read[node.index]]
        )
        writes = group.op_type in _BLOCKED or (reads_blocks and group.op_type in CARRIERS)
        if writes:
            in_blocks.update(tensor.name for node in nodes for tensor in node.present_outputs)
        if writes or reads_blocks:
            near.add(index)
    read = {name for index in near for member in groups[index].members for name in graph.names_read[member]}
    sources = [owner.get(graph.producer[name]) for name in read if name in graph.producer]
    return near.union([index for index in sources if index is not None])


# Transposes that a CPU session puts around convolutions on integers, whose kernels want channels last.
#
# ``NhwcTransformer`` (``onnxruntime/core/optimizer/nhwc_transformer.cc``) puts one before and one behind each
# QLinearConv, and the transpose optimizer takes out those that meet across operators that do not mind the
# layout.
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
    """Return images of bytes that leave a group."""
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
