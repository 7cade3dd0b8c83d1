"""Attention and experts as kernels of a CUDA session: what their models need of an operator."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from math import prod

from analyzer.costs.cost import dims
from analyzer.costs.families.attention import Heads
from analyzer.costs.families.contrib_attention import HEADS
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
    """Return kernel of an attention without its projections; None for what is none, or whose sizes are open.

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
    """Return the sizes, as far as flash attention covers the operator."""
    identity = (node.domain, node.op_type)
    # Sizes that are none of its operator's have none.
    with suppress(KeyError, IndexError, TypeError, ZeroDivisionError, ValueError):
        return _paged(node) if identity == _PAGED else _as_counted(node, HEADS[identity](node))
    return None


def _as_counted(node: Node, sizes: Heads) -> AttentionShape:
    """Return the sizes that the count rests on, and what a kernel's time depends on besides."""
    attributes, grouped = node.attributes, node.op_type == "GroupQueryAttention"
    key_heads = int(attributes.get("kv_num_heads", sizes.heads))
    if node.op_type == "Attention" and len(dims(node.input(0))) == 4:
        key_heads = dims(node.input(1))[1]
    name, usual = _CAUSAL.get(node.op_type, ("", 0))
    return AttentionShape(
        batch=sizes.batch,
        queries=sizes.queries,
        before=max(0, sizes.keys - sizes.queries),
        heads=sizes.heads,
        key_heads=key_heads,
        size=(sizes.size + sizes.value_size) / 2,
        window=max(0, int(attributes.get("local_window_size", -1))) if grouped else 0,
        causal=bool(attributes.get(name, usual)),
        # Past_key is 3; two elements of 4 bits stand in one of the buffer's.
        cache_bytes=_bytes(node.input(3)) * int(attributes.get("kv_cache_bit_width", 0) or 8) / 8
        if grouped
        else 0.0,
    )


# The attribute that says whether a query sees no later key, and what holds without it.
_CAUSAL = {
    "Attention": ("is_causal", 0),
    "GroupQueryAttention": ("causal", 1),
    "MultiHeadAttention": ("unidirectional", 0),
    # One query, on a cache that past and present share.
    "DecoderMaskedMultiHeadAttention": ("", 1),
}


def _bytes(tensor: Tensor | None) -> float:
    """Of an element that is no float of the model's own width; else 0."""
    bits = tensor.dtype.bits if tensor is not None else None
    return bits / 8 if bits is not None and bits <= 8 else 0.0


def _paged(node: Node) -> AttentionShape:
    # Query, key, value, key_cache 3 (blocks, tokens of a block, heads, size), block_table 7 (batch, blocks).
    *lead, width = dims(node.input(0))
    heads, key_heads = int(node.attributes["num_heads"]), int(node.attributes["kv_num_heads"])
    batch, blocks = dims(node.input(7))
    length, queries = dims(node.input(3))[1] * blocks, max(1, prod(lead) // max(1, batch))
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
_PAGED = (_MICROSOFT, "PagedAttention")


# Attention as ONNX Runtime's CPU provider computes it: a product a head, and a cache that grows by a copy.
# Positions of past keys and values, and of present ones (Attention-23 of onnx/defs/nn/defs.cc;
# onnxruntime/core/graph/contrib_ops/bert_defs.cc).
_CACHES = {
    "Attention": ((4, 1), (5, 2)),
    "GroupQueryAttention": ((3, 1), (4, 2)),
    "MultiHeadAttention": ((6, 1), (7, 2)),
}


def cached_pieces(node: Node, base: Piece) -> list[Piece] | None:
    """Return the kernels of an attention with a cache of floats; None without one, or with open sizes."""
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
    """Yield the copy of a past, which is read where the last run left it and written before the new rows."""
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


# Weights of fc1, fc2 and fc3 (onnxruntime/core/graph/contrib_ops/contrib_defs.cc).
_WEIGHTS = {"MoE": (2, 4, 6), "QMoE": (2, 5, 8)}


def experts_piece(node: Node, base: Piece, macs: float) -> Piece | None:
    """Return the piece of a mixture; None where its sizes are open.

    ``macs`` are tokens x choices x weights of an expert; ``base`` is its piece by count alone.
    """
    source, routed = node.input(0), node.input(1)
    if source is None or routed is None or source.shape is None or routed.shape is None:
        return None
    width, experts = source.shape[-1], routed.shape[-1]
    tokens = prod(size or 0 for size in routed.shape[:-1])
    chosen = float(node.attributes.get("k", 1))
    if not width or not tokens or not experts or not macs:
        return None
    weights = macs / (tokens * chosen)
    stored = [node.input(position) for position in _WEIGHTS[node.op_type]]
    packed = [tensor for tensor in stored if tensor is not None and tensor.dtype.is_packed]
    whole = [tensor for tensor in stored if tensor is not None and not tensor.dtype.is_packed]
    # fc1 makes gate and values of gated activations, in one tensor or, with fc3, in two: a third of the weights
    # each. Without a gate there are two matrices.
    gated = len([tensor for tensor in stored if tensor is not None]) > 2 or "swiglu" in str(
        node.attributes.get("activation_type", "")
    )
    matrices = 3.0 if gated else 2.0
    return replace(
        base,
        kind=Kind.EXPERTS,
        batch=float(experts),
        m=float(tokens),
        k=float(width),
        n=weights / (matrices * float(width)),
        steps=chosen,
        taps=matrices,
        # Weights of 8-bit floats are multiplied as such.
        narrow=float(bool(packed) and all(tensor.dtype.is_float for tensor in packed)),
        spatial=float(int(node.attributes.get("block_size", 0)) > 0),
        weights=4.0 * sum(float(tensor.elements or 0) for tensor in whole if tensor.constant),
        fixed_weights=float(sum(tensor.nbytes or 0 for tensor in packed if tensor.constant)),
    )


ACTIVATION = "ExpertActivation"
"""An element of a gated activation, one after the other."""
_PLAIN = frozenset({"relu", "identity"})
# Threads take whole experts of floats, eight of them at most (onnxruntime/contrib_ops/cpu/moe/moe_cpu.cc); of
# packed weights a single expert is shared out too (1.31.1, one of 1,024: 1.6 times as fast on two threads).
_MOST_THREADS = 8.0
# Experts of packed weights make floats of them; wider ones by the same loop.
_UNPACKED = "nbits4a0"
EXPERT_PRODUCT = "ExpertProduct"
"""A product of an expert of floats, whose weights lie by rows."""


def experts_on_cpu(node: Node, base: Piece, macs: float) -> list[Piece]:
    """Return kernels of ONNX Runtime's CPU provider: two products an expert, whose weights no session packs.

    Tokens are taken to spread over the experts. Empty where sizes are open.
    """
    shape = experts_piece(node, base, macs)
    if shape is None:
        return []
    hit = min(shape.m * shape.steps, shape.batch)
    shared_by = 0.0 if shape.fixed_weights else min(hit, _MOST_THREADS)
    rows = shape.m * shape.steps / hit
    # Bytes of a weight.
    packed = shape.fixed_weights / (shape.batch * shape.n * shape.k * shape.taps)

    def product(n: float, k: float) -> Piece:
        floats, integers = (0.0, n * k * packed) if packed else (n * k * FLOAT_BYTES, 0.0)
        return replace(
            base,
            kind=Kind.MATMUL,
            op=_UNPACKED if packed else EXPERT_PRODUCT,
            flops=2.0 * rows * n * k,
            read=floats,
            kept=floats,
            written=rows * n * FLOAT_BYTES,
            weights=0.0,
            fixed=integers,
            fixed_weights=integers,
            m=rows,
            n=n,
            k=k,
            repeats=hit,
            shared_by=shared_by,
        )

    # fc1 makes gates and values in one product, or in two of the same size together.
    kernels = [product(shape.n * (shape.taps - 1.0), shape.k), product(shape.k, shape.n)]
    if str(node.attributes.get("activation_type", "relu")) not in _PLAIN:
        elements = rows * hit * shape.n
        kernels.append(
            replace(base, kind=Kind.VECTOR, op=ACTIVATION, flops=0.0, read=0.0, written=0.0, fixed=0.0,
                    weights=0.0, fixed_weights=0.0, elements=elements, shared_by=shared_by)
        )  # fmt: skip
    return kernels
