"""Copies between ONNX Runtime's blocked layout (NCHWc) and the plain one, which its CPU session inserts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from analyzer.graph import Graph
from analyzer.memory.blocked_buffers import REORDER
from analyzer.memory.session_plan import with_layouts
from analyzer.memory.session_steps import steps_of
from analyzer.ort.blocked_layout import CARRIERS, CONVOLUTIONS, POOLS
from analyzer.ort.execution import Group
from analyzer.prediction.work_item import FLOAT_BYTES, Kind, Piece

# Costs per element what a transposition of heads does (both move runs of a block).
_OP = "TransposeHeads"
_BLOCKED = CONVOLUTIONS | POOLS


def layout_copies(graph: Graph, groups: Sequence[Group]) -> dict[int, list[Piece]]:
    """The copies between layouts, by the index of the group that reads or writes the blocks."""
    if not any(group.provider == "cpu" and group.op_type in _BLOCKED for group in groups):
        return {}
    owner = {member: index for index, group in enumerate(groups) for member in group.members}
    copies: dict[int, list[Piece]] = {}
    for step in with_layouts(graph, steps_of(graph, groups, _near_blocks(graph, groups, owner))):
        if step.op_type == REORDER:
            copies.setdefault(owner[step.node.index], []).append(_piece(step.outputs[0].value.size or 0))
    return copies


def _near_blocks(graph: Graph, groups: Sequence[Group], owner: Mapping[int, int]) -> set[int]:
    """Indices of the groups that may write blocks, of those that read them, and of what these read.

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


def _piece(size: int) -> Piece:
    return Piece(kind=Kind.MOVE, op=_OP, read=size, written=size, elements=size / FLOAT_BYTES)
