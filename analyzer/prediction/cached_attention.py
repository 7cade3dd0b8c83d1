"""Attention as ONNX Runtime's CPU provider computes it: a product a head, and a cache that grows by a copy."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from analyzer.graph import Node, Tensor
from analyzer.prediction.attention_pieces import AttentionShape, attention_shape
from analyzer.prediction.work_item import FLOAT_BYTES, Kind, Piece

# Positions of past keys and values, and of present ones (Attention-23 of onnx/defs/nn/defs.cc;
# onnxruntime/core/graph/contrib_ops/bert_defs.cc).
_CACHES = {
    "Attention": ((4, 1), (5, 2)),
    "GroupQueryAttention": ((3, 1), (4, 2)),
    "MultiHeadAttention": ((6, 1), (7, 2)),
}


def cached_pieces(node: Node, base: Piece) -> list[Piece] | None:
    """The kernels of an attention with a cache of floats; None for what has none, or whose sizes are open.

    Args:
        node: The operator.
        base: Its piece by count alone.
    """
    places = _CACHES.get(node.op_type, ())
    caches = [(node.input(past), node.output(present)) for past, present in places]
    shape = attention_shape(node) if any(past is not None for past, _ in caches) else None
    if shape is None or shape.cache_bytes or shape.before <= 0:
        return None
    copies = [piece for past, present in caches for piece in _appended(base, past, present, shape)]
    return [*copies, *_products(base, shape, sum(piece.written for piece in copies))]


def _appended(
    base: Piece, past: Tensor | None, present: Tensor | None, shape: AttentionShape
) -> Iterator[Piece]:
    """The past is read where the last run left it, and written again in front of the new tokens' rows."""
    if past is None or not past.elements:
        return
    in_place = present is None or present.shape is None or present.shape == past.shape
    read = float(past.elements) * FLOAT_BYTES
    written = 0.0 if in_place or present is None else float(present.elements or 0) * FLOAT_BYTES
    yield replace(
        base,
        kind=Kind.MOVE,
        op="Concat",
        flops=0.0,
        read=read,
        written=written,
        kept=read + written,
        fixed=0.0,
        weights=0.0,
        elements=written / FLOAT_BYTES,
        rows=shape.batch * shape.key_heads,
        row=shape.before * shape.size,
    )


def _products(base: Piece, shape: AttentionShape, copied: float) -> Iterator[Piece]:
    keys, heads = shape.before + shape.queries, shape.batch * shape.heads
    if shape.window:
        keys = min(keys, shape.window + shape.queries - 1)
    # Each head of queries reads its keys and values anew (a product a head: gqa_attention_base.h): as often as
    # heads share them, a part of the products each time.
    again = shape.heads / shape.key_heads if shape.queries <= 1 else 1.0
    once = heads / again * keys * shape.size
    each = replace(
        base,
        kind=Kind.MATMUL,
        flops=2.0 * heads / again * shape.queries * keys * shape.size,
        read=once * FLOAT_BYTES,
        written=0.0,
        fixed=0.0,
        weights=0.0,
        batch=heads / again,
        m=shape.queries,
        repeats=again,
    )
    if shape.queries <= 1:
        # Keys lie as rows, and are turned into panels of columns before one row is multiplied by them
        # (MlasSgemmTransposePackB); values are read as they lie.
        lying = replace(each, kind=Kind.MOVE, op="TransposeHeads", flops=0.0, read=0.0, repeats=1.0)
        yield replace(lying, batch=heads, elements=once * again, rows=heads, row=0.0)
    yield replace(each, n=keys, k=shape.size)
    yield replace(
        each, n=shape.size, k=keys, written=max(0.0, base.written - copied) / again, fixed=base.fixed / again
    )
    yield replace(
        base,
        kind=Kind.SOFTMAX,
        op="Softmax",
        flops=0.0,
        read=0.0,
        written=0.0,
        fixed=0.0,
        weights=0.0,
        elements=heads * shape.queries * keys,
        rows=heads * shape.queries,
        row=keys,
    )
