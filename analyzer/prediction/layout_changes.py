"""Copies between ONNX Runtime's blocked layout (NCHWc) and the plain one, which its CPU session inserts."""

from __future__ import annotations

from collections.abc import Sequence

from analyzer.graph import Graph
from analyzer.memory.blocked_buffers import REORDER
from analyzer.memory.session_plan import with_layouts
from analyzer.memory.session_steps import steps_of
from analyzer.ort.blocked_layout import CONVOLUTIONS, POOLS
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
    for step in with_layouts(graph, steps_of(graph, groups)):
        if step.op_type == REORDER:
            copies.setdefault(owner[step.node.index], []).append(_piece(step.outputs[0].value.size or 0))
    return copies


def _piece(size: int) -> Piece:
    return Piece(kind=Kind.MOVE, op=_OP, read=size, written=size, elements=size / FLOAT_BYTES)
