"""Operators to pieces of work in a session on CUDA: what has one kernel there and keeps its scores inside."""

from __future__ import annotations

from collections.abc import Callable

from analyzer.costs.cost import Cost
from analyzer.graph import Node
from analyzer.operators import does_no_work
from analyzer.prediction.attention_pieces import attention_piece, experts_piece
from analyzer.prediction.features import ON_CPU_ALONE, base_piece, body_pieces, pieces_of, runs_bodies
from analyzer.prediction.work_item import MALFORMED, Piece
from analyzer.training_operators import is_defined

_RULES: dict[str, Callable[[Node, Piece, float], Piece | None]] = {
    **dict.fromkeys(
        (
            *("Attention", "MultiHeadAttention", "GroupQueryAttention", "PagedAttention"),
            *("PackedMultiHeadAttention", "DecoderMaskedMultiHeadAttention"),
        ),
        attention_piece,
    ),
    **dict.fromkeys(("MoE", "QMoE"), experts_piece),
}


def cuda_pieces_of(node: Node, cost: Cost) -> list[Piece]:
    """Return the pieces of one operator on its own; where it has no kernel of its own, those of any session."""
    if runs_bodies(node) and not does_no_work(node):
        try:
            return body_pieces(node, base_piece(node, cost), cuda_pieces_of)
        except MALFORMED:  # what is scanned has no known length: what it moves is known still
            return pieces_of(node, cost)
    rule = _RULES.get(node.op_type)
    if rule is None or not cost.flops or is_defined(node):
        return [piece for piece in pieces_of(node, cost) if piece.op not in ON_CPU_ALONE]
    try:
        fused = rule(node, base_piece(node, cost), float(cost.macs or 0))
    except MALFORMED:
        fused = None
    return pieces_of(node, cost) if fused is None else [fused]
