"""Attention as one kernel of a CUDA session: what flash attention needs to know of an operator."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from math import prod

from analyzer.graph import Node, Tensor
from analyzer.prediction.work_item import FLOAT_BYTES, Kind, Piece

_MICROSOFT = "com.microsoft"


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionShape:
    """Sizes of one attention.

    Attributes:
        batch, queries: Sequences, and new tokens of each.
        before: Keys of each that are older than its queries.
        heads, key_heads, size: Query heads, heads of keys and values, elements of a head: where a value has
            another number than a key, their mean, which both products and all bytes follow.
        window: Keys that a query sees at most; 0 for all.
        causal: Whether a query sees no later key.
        cache_bytes: Bytes of an element of keys and values, 0 for the floats' own.
    """

    batch: float
    queries: float
    before: float
    heads: float
    key_heads: float
    size: float
    window: float = 0.0
    causal: bool = False
    cache_bytes: float = 0.0


def attention_piece(node: Node, base: Piece, macs: float) -> Piece | None:
    """The kernel of an attention without its projections; None for what is none, or whose sizes are open.

    ``base`` is its piece by count alone, ``macs`` are multiply-accumulates, projections among them.
    """
    shape = attention_shape(node)
    if shape is None:
        return None
    products = 2.0 * shape.batch * shape.heads * shape.queries * (shape.before + shape.queries) * shape.size
    # Projections of its own, fewer keys than queries (across two sequences): other kernels.
    if not 0.99 * products <= macs <= 1.01 * products:
        return None
    # A bias or mask of the scores' size passes memory, which this kernel is taken not to.
    if node.input(_BIAS.get((node.domain, node.op_type), len(node.inputs))) is not None:
        return None
    return replace(
        base,
        kind=Kind.ATTENTION,
        batch=shape.batch,
        m=shape.queries,
        n=shape.before,
        k=shape.size,
        rows=shape.heads,
        row=shape.key_heads,
        taps=shape.window,
        stride=float(shape.causal),
        spatial=shape.cache_bytes,
    )


def attention_shape(node: Node) -> AttentionShape | None:
    """The sizes, as far as flash attention covers the operator."""
    rule = _RULES.get((node.domain, node.op_type))
    # Sizes that are none of its operator's have none.
    with suppress(KeyError, IndexError, TypeError, ZeroDivisionError, ValueError):
        return rule(node) if rule else None
    return None


def _shape(tensor: Tensor | None) -> tuple[int, ...]:
    if tensor is None or tensor.shape is None or any(size is None for size in tensor.shape):
        raise ValueError("open")
    return tuple(int(size or 0) for size in tensor.shape)


def _length(tensor: Tensor | None) -> int:
    """Keys of a cache (batch, heads, keys, size); 0 without one."""
    return 0 if tensor is None else _shape(tensor)[-2]


def _bytes(tensor: Tensor | None) -> float:
    """Of an element that is no float of the model's own width; else 0."""
    bits = tensor.dtype.bits if tensor is not None else None
    return bits / 8 if bits is not None and bits <= 8 else 0.0


def _onnx(node: Node) -> AttentionShape:
    # Q, K, V, attn_mask, past_key, past_value (Attention-23 of onnx/defs/nn/defs.cc).
    query, key = _shape(node.input(0)), _shape(node.input(1))
    past = _length(node.input(4))
    if len(query) == 4:
        batch, heads, queries, size = query
        key_heads, keys = key[1], key[2]
    else:
        heads, key_heads = int(node.attributes["q_num_heads"]), int(node.attributes["kv_num_heads"])
        batch, queries, size = query[0], query[1], query[2] // heads
        keys = key[1]
    causal = bool(node.attributes.get("is_causal", 0))
    before = max(0, past + keys - queries)
    return AttentionShape(
        batch=batch, queries=queries, before=before, heads=heads, key_heads=key_heads, size=size, causal=causal
    )


def _grouped(node: Node) -> AttentionShape:
    # Query, key, value, past_key 3, total_sequence_length 6 (onnxruntime/core/graph/contrib_ops/bert_defs.cc).
    batch, queries, width = _shape(node.input(0))
    heads, key_heads = int(node.attributes["num_heads"]), int(node.attributes["kv_num_heads"])
    size = width // heads if node.input(1) is not None else width // (heads + 2 * key_heads)
    total, present, past = node.input(6), node.output(1), node.input(3)
    if total is not None and total.value is not None:
        keys = int(total.value.reshape(-1)[0])
    elif present is not None and present.shape is not None and present.shape[2] is not None:
        # A past of this length is the same buffer, full: the queries' rows are its last.
        keys = present.shape[2]
    else:
        keys = queries + _length(past)
    return AttentionShape(
        batch=batch,
        queries=queries,
        before=max(0, keys - queries),
        heads=heads,
        key_heads=key_heads,
        size=size,
        window=max(0, int(node.attributes.get("local_window_size", -1))),
        causal=bool(node.attributes.get("causal", 1)),
        # Two elements of 4 bits stand in one of the buffer's.
        cache_bytes=_bytes(past) * int(node.attributes.get("kv_cache_bit_width", 0) or 8) / 8,
    )


def _multi_head(node: Node) -> AttentionShape:
    # Query, key, value, bias, key_padding_mask, attention_bias, past_key 6.
    heads = int(node.attributes["num_heads"])
    query, key = _shape(node.input(0)), node.input(1)
    batch, queries = query[0], query[1]
    size = float(query[-1] if len(query) == 5 else query[-1] // heads)
    keys, value = queries, node.input(2)
    if key is not None:
        keys = _shape(key)[2] if len(_shape(key)) == 4 else _shape(key)[1]
    if value is not None:
        size = (size + (_shape(value)[-1] if len(_shape(value)) == 4 else _shape(value)[-1] // heads)) / 2
    causal = bool(node.attributes.get("unidirectional", 0))
    before = max(0, keys + _length(node.input(6)) - queries)
    return AttentionShape(
        batch=batch, queries=queries, before=before, heads=heads, key_heads=heads, size=size, causal=causal
    )


def _masked_multi_head(node: Node) -> AttentionShape:
    # One query on a cache that past and present share: mask_index 3, attention_bias 4, past_key 5.
    heads = int(node.attributes["num_heads"])
    batch, queries, width = _shape(node.input(0))
    keys = max(_length(node.input(5)), queries)
    return AttentionShape(
        batch=batch, queries=queries, before=keys - queries, heads=heads, key_heads=heads, size=width // heads,
        causal=True,
    )  # fmt: skip


def _packed_multi_head(node: Node) -> AttentionShape:
    # Token_offset, 4, is (batch, sequence).
    heads, query = int(node.attributes["num_heads"]), _shape(node.input(0))
    batch, queries = _shape(node.input(4))
    size = query[-1] if len(query) == 4 else query[-1] // heads
    return AttentionShape(batch=batch, queries=queries, before=0, heads=heads, key_heads=heads, size=size)


def _paged(node: Node) -> AttentionShape:
    # Query, key, value, key_cache 3 (blocks, tokens of a block, heads, size), block_table 7 (batch, blocks).
    *lead, width = _shape(node.input(0))
    heads, key_heads = int(node.attributes["num_heads"]), int(node.attributes["kv_num_heads"])
    batch, blocks = _shape(node.input(7))
    length, queries = _shape(node.input(3))[1] * blocks, max(1, prod(lead) // max(1, batch))
    size = width // heads if node.input(1) is not None else width // (heads + 2 * key_heads)
    return AttentionShape(
        batch=batch,
        queries=queries,
        before=max(0, length - queries),
        heads=heads,
        key_heads=key_heads,
        size=size,
        window=max(0, int(node.attributes.get("local_window_size", -1))),
        causal=True,
        cache_bytes=_bytes(node.input(3)),
    )


# Position of a bias or mask for every pair of query and key.
_BIAS = {
    ("ai.onnx", "Attention"): 3,
    (_MICROSOFT, "GroupQueryAttention"): 10,
    (_MICROSOFT, "MultiHeadAttention"): 5,
    (_MICROSOFT, "DecoderMaskedMultiHeadAttention"): 4,
    (_MICROSOFT, "PackedMultiHeadAttention"): 6,
}
_RULES = {
    ("ai.onnx", "Attention"): _onnx,
    (_MICROSOFT, "GroupQueryAttention"): _grouped,
    (_MICROSOFT, "MultiHeadAttention"): _multi_head,
    (_MICROSOFT, "DecoderMaskedMultiHeadAttention"): _masked_multi_head,
    (_MICROSOFT, "PackedMultiHeadAttention"): _packed_multi_head,
    (_MICROSOFT, "PagedAttention"): _paged,
}


# Attention as ONNX Runtime's CPU provider computes it: a product a head, and a cache that grows by a copy.
# Positions of past keys and values, and of present ones (Attention-23 of onnx/defs/nn/defs.cc;
# onnxruntime/core/graph/contrib_ops/bert_defs.cc).
_CACHES = {
    "Attention": ((4, 1), (5, 2)),
    "GroupQueryAttention": ((3, 1), (4, 2)),
    "MultiHeadAttention": ((6, 1), (7, 2)),
}


def cached_pieces(node: Node, base: Piece) -> list[Piece] | None:
    """The kernels of an attention with a cache of floats; None for what has none, or whose sizes are open."""
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
    moved = replace(
        base, kind=Kind.MOVE, op="Concat", flops=0.0, read=read, written=written, kept=read + written
    )
    rows, row = shape.batch * shape.key_heads, shape.before * shape.size
    yield replace(moved, fixed=0.0, weights=0.0, elements=written / FLOAT_BYTES, rows=rows, row=row)


def _products(base: Piece, shape: AttentionShape, copied: float) -> Iterator[Piece]:
    keys, heads = shape.before + shape.queries, shape.batch * shape.heads
    if shape.window:
        keys = min(keys, shape.window + shape.queries - 1)
    # Each head of queries reads its keys and values anew (a product a head: gqa_attention_base.h): as often as
    # heads share them, a part of the products each time.
    again = shape.heads / shape.key_heads if shape.queries <= 1 else 1.0
    once = heads / again * keys * shape.size
    alone = replace(base, read=0.0, written=0.0, fixed=0.0, weights=0.0)
    each = replace(
        alone,
        kind=Kind.MATMUL,
        flops=2.0 * heads / again * shape.queries * keys * shape.size,
        read=once * FLOAT_BYTES,
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
    rows = heads * shape.queries
    yield replace(alone, kind=Kind.SOFTMAX, op="Softmax", flops=0.0, elements=rows * keys, rows=rows, row=keys)
