"""Counting ONNX Runtime's attention operators: projections where they hold them, two products, the softmax."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from math import prod

from analyzer.costs.cost import Cost, cost, dims, elements, nbytes, out, reads, value, writes
from analyzer.costs.families.attention import ROTARY, Heads, attend, heads_of, rows_read
from analyzer.costs.families.per_element import CONTRIB, moves
from analyzer.costs.families.products import product
from analyzer.costs.registry import rule
from analyzer.graph import DEFAULT_DOMAIN, Node, Tensor

# Inputs by position, here and below: the schemas of ONNX Runtime 1.31.1
# (onnxruntime/core/graph/contrib_ops/bert_defs.cc).
_EQUAL = "all sequences are as long as the longest"
_CACHE = "the length of the sequence is not known: the whole cache is attended to"
_SELECTED = "every query attends to as many keys as it may select"


@rule("Attention", domain=CONTRIB)
def attention(node: Node) -> Cost:
    """2 * B * S * Din * (Dq + Dk + Dv) for the projections, 2 * B * H * S * L * (Dk + Dv).

    6 FLOPs a score, biases.
    """
    # Bias, mask_index, past, attention_bias.
    return _projected(node, mask=(3, 5), past=4, bias=2)


@rule("QAttention", domain=CONTRIB)
def quantized_attention(node: Node) -> Cost:
    """As Attention: 2 * B * S * Din * (Dq + Dk + Dv), 2 * B * H * S * L * (Dk + Dv), 6 FLOPs a score.

    Biases.
    """
    # Bias, two scales, mask_index, two zero points, past.
    return _projected(node, mask=(5,), past=8, bias=2)


@rule("DecoderMaskedSelfAttention", domain=CONTRIB, assumes=_CACHE)
def decoder_masked_self_attention(node: Node) -> Cost:
    """As Attention with one query, over the cache that is passed in."""
    return _projected(node, mask=(3, 5), past=4, bias=2, shared=True)


def _projected(node: Node, *, mask: tuple[int, ...], past: int, bias: int, shared: bool = False) -> Cost:
    batch, sequence, width = dims(node.inputs[0])
    weights = dims(node.inputs[1])
    heads = node.attributes["num_heads"]
    # Without sizes of their own, Q, K and V are a third each of the packed weight.
    hidden = node.attributes.get("qkv_hidden_sizes") or (weights[1] // 3,) * 3
    cache = node.input(past)
    earlier = dims(cache)[-2] if cache is not None else 0
    # A cache that past and present share is as long as it may grow: the new tokens are in it.
    keys = earlier if shared and earlier else sequence + earlier
    sizes = Heads.dividing(hidden[0], hidden[2], batch=batch, heads=heads, queries=sequence, keys=keys)
    rows = batch * sequence
    extra = rows * weights[1] if node.input(bias) is not None else 0
    if node.attributes.get("do_rotary", 0):
        extra += ROTARY * rows * (hidden[0] + hidden[1])
    return attend(
        node,
        sizes,
        masked=any(node.input(position) is not None for position in mask),
        causal=bool(node.attributes.get("unidirectional", 0)),
        macs=rows * width * weights[1],
        extra=extra,
    )


@rule("QOrderedAttention", domain=CONTRIB)
def quantized_ordered_attention(node: Node) -> Cost:
    """As Attention, Q, K and V having a weight each."""
    # Input and four scales, then the weights of Q, K and V; mask_index is 17, past 18.
    batch, sequence, width = dims(node.inputs[0])
    hidden = [dims(node.input(position))[1] for position in (5, 6, 7)]
    heads, rows = node.attributes["num_heads"], batch * sequence
    past = node.input(18)
    keys = sequence + (dims(past)[-2] if past is not None else 0)
    sizes = Heads.dividing(hidden[0], hidden[2], batch=batch, heads=heads, queries=sequence, keys=keys)
    return attend(
        node,
        sizes,
        masked=node.input(17) is not None,
        macs=rows * width * sum(hidden),
        extra=rows * sum(hidden),
    )


@rule("MultiHeadAttention", domain=CONTRIB)
def multi_head_attention(node: Node) -> Cost:
    """2 * B * H * S * L * (Dk + Dv), 6 FLOPs a score, 1 more for a mask, biases of Q, K and V 1 an element."""
    # Bias is 3, key_padding_mask 4, attention_bias 5, past_key 6.
    sizes = _multi_head(node, past=6)
    bias = node.input(3)
    extra = 0
    if bias is not None:
        keys = dims(node.input(1))[1] if node.input(1) is not None else sizes.queries
        wide = sizes.heads * sizes.size
        extra = sizes.batch * (sizes.queries * wide + keys * (wide + sizes.heads * sizes.value_size))
    masked = node.input(4) is not None or node.input(5) is not None
    return attend(
        node, sizes, masked=masked, causal=bool(node.attributes.get("unidirectional", 0)), extra=extra
    )


@rule("DecoderMaskedMultiHeadAttention", domain=CONTRIB, assumes=_CACHE)
def decoder_masked_multi_head_attention(node: Node) -> Cost:
    """2 * B * H * L * (Dk + Dv) for one query over the cache, 6 FLOPs a score, 1 more for a mask."""
    # Mask_index is 3, attention_bias 4, past_key 5: not where MultiHeadAttention has them.
    sizes = _multi_head(node, past=5, shared=True)
    return attend(node, sizes, masked=node.input(3) is not None or node.input(4) is not None)


def _multi_head(node: Node, *, past: int, shared: bool = False) -> Heads:
    heads = node.attributes["num_heads"]
    query = dims(node.inputs[0])
    key, values, cache = node.input(1), node.input(2), node.input(past)
    earlier = dims(cache)[-2] if cache is not None else 0
    batch, sequence = query[0], query[1]
    # Rank 5 is Q, K and V packed: (batch, sequence, heads, 3, size).
    size = value_size = query[-1] if len(query) == 5 else query[-1] // heads
    keys = sequence
    if key is not None:
        shape = dims(key)
        keys = shape[2] if len(shape) == 4 else shape[1]
        if values is not None:
            value_size = dims(values)[-1] if len(dims(values)) == 4 else dims(values)[-1] // heads
    keys = earlier if shared and earlier else keys + earlier
    return Heads(batch=batch, heads=heads, queries=sequence, keys=keys, size=size, value_size=value_size)


@rule("GroupQueryAttention", domain=CONTRIB, depends=True)
def group_query_attention(node: Node) -> Cost:
    """2 * B * Hq * S * L * 2D, 6 FLOPs a score, 3 for softcap, rotary 3 an element of Q and K.

    Hq are query heads; L is total_sequence_length, or the cache where that is not known before the run. Causal
    unless it says otherwise.
    """
    sizes, attributes = _grouped(node), node.attributes
    rotated = sizes.batch * sizes.queries * (sizes.heads + attributes["kv_num_heads"]) * sizes.size
    note = "" if value(node.input(6)) is not None else _CACHE
    return attend(
        node,
        sizes,
        masked=node.input(10) is not None,
        softcap=bool(attributes.get("softcap", 0)),
        causal=bool(attributes.get("causal", 1)),
        extra=ROTARY * rotated if attributes.get("do_rotary", 0) else 0,
        basis="modelled" if note else "exact",
        note=note,
    )


def _grouped(node: Node) -> Heads:
    # Past_key is 3, total_sequence_length 6, attention_bias 10.
    batch, sequence, width = dims(node.inputs[0])
    heads, kv_heads = node.attributes["num_heads"], node.attributes["kv_num_heads"]
    # Without a key of its own the first input holds Q, K and V side by side.
    size = width // heads if node.input(1) is not None else width // (heads + 2 * kv_heads)
    total = value(node.input(6))
    keys = _cached(node, sequence) if total is None else int(total[0])
    return Heads(batch=batch, heads=heads, queries=sequence, keys=keys, size=size, value_size=size)


@reads("GroupQueryAttention", domain=CONTRIB)
def _rotary_rows_of_queries(node: Node) -> Mapping[int, int]:
    """Of the tables of cosines and sines, 7 and 8, the rows of the new tokens."""
    batch, sequence, _ = dims(node.inputs[0])
    return {
        position: rows_read(table, batch * sequence) for position in (7, 8) if (table := node.input(position))
    }


# Positions of past keys and values.
_PASTS = {"GroupQueryAttention": (3, 4), "DecoderMaskedMultiHeadAttention": (5, 6)}


@writes("GroupQueryAttention", domain=CONTRIB)
@writes("DecoderMaskedMultiHeadAttention", domain=CONTRIB)
def _appended_rows(node: Node) -> Mapping[int, int]:
    """Return traffic of a present in its past's buffer: the new tokens' rows alone are written."""
    sequence = dims(node.inputs[0])[1]
    written = {}
    for position, past in zip((1, 2), map(node.input, _PASTS[node.op_type]), strict=True):
        present = node.output(position)
        if present is not None and in_place(past, present):
            length = dims(present)[2]
            written[position] = nbytes(present) * min(sequence, length) // length
    return written


def in_place(past: Tensor | None, present: Tensor) -> bool:
    """Return whether a cache is appended to where it stands: the past has the room for all tokens."""
    if past is None or past.shape is None or present.shape is None or len(present.shape) != 4:
        return False
    return past.shape[2] == present.shape[2] and bool(present.shape[2])


def _cached(node: Node, sequence: int) -> int:
    """Keys by the shapes: the present cache's length, else the past's and what is new."""
    present, past = node.output(1), node.input(3)
    if present is not None and present.shape is not None and present.shape[2] is not None:
        return present.shape[2]
    return sequence + (dims(past)[2] if past is not None else 0)


@rule("SparseAttention", domain=CONTRIB, assumes="every head has as many blocks as its layout can hold")
def sparse_attention(node: Node) -> Cost:
    """2 * B * Hq * (scores in blocks that are there) * 2D, 6 FLOPs a score, rotary 3 an element of Q and K."""
    # Past_key is 3; block_col_indices, 6, is as long as a layout has blocks.
    batch, sequence, width = dims(node.inputs[0])
    heads, kv_heads = node.attributes["num_heads"], node.attributes["kv_num_heads"]
    size = width // heads if node.input(1) is not None else width // (heads + 2 * kv_heads)
    keys = _cached(node, 0) if node.output(1) is not None else dims(node.input(3))[2]
    blocks = dims(node.input(6))[-1] * node.attributes["sparse_block_size"] ** 2
    unmasked = min(sequence * keys, blocks)
    sizes = Heads(batch=batch, heads=heads, queries=1, keys=unmasked, size=size, value_size=size)
    extra = ROTARY * batch * sequence * (heads + kv_heads) * size if node.attributes.get("do_rotary", 0) else 0
    return attend(node, sizes, extra=extra)


@rule("PackedAttention", domain=CONTRIB, assumes=_EQUAL)
def packed_attention(node: Node) -> Cost:
    """As Attention over B sequences of S tokens, both from token_offset; projections for the tokens alone."""
    # Token_offset, 3, is (batch, sequence): padding has been taken out of the input itself.
    tokens, width = dims(node.inputs[0])
    weights = dims(node.inputs[1])
    heads = node.attributes["num_heads"]
    hidden = node.attributes.get("qkv_hidden_sizes") or (weights[1] // 3,) * 3
    batch, sequence = dims(node.input(3))
    sizes = Heads.dividing(hidden[0], hidden[2], batch=batch, heads=heads, queries=sequence, keys=sequence)
    return attend(
        node,
        sizes,
        masked=node.input(5) is not None,
        macs=tokens * width * weights[1],
        extra=tokens * weights[1],
    )


@rule("PackedMultiHeadAttention", domain=CONTRIB, assumes=_EQUAL)
def packed_multi_head_attention(node: Node) -> Cost:
    """2 * B * H * S * S * (Dk + Dv), 6 FLOPs a score; B and S from token_offset."""
    # Bias is 3, token_offset 4, attention_bias 6.
    sizes = _packed(node)
    biased = dims(node.inputs[0])[0] * sizes.heads * (2 * sizes.size + sizes.value_size)
    return attend(
        node, sizes, masked=node.input(6) is not None, extra=biased if node.input(3) is not None else 0
    )


def _packed(node: Node) -> Heads:
    heads, query = node.attributes["num_heads"], dims(node.inputs[0])
    batch, sequence = dims(node.input(4))
    size = query[-1] if len(query) == 4 else query[-1] // heads
    values = node.input(2)
    value_size = dims(values)[-1] // heads if values is not None else size
    return Heads(batch=batch, heads=heads, queries=sequence, keys=sequence, size=size, value_size=value_size)


# Sizes by operator, of those that project nothing.
HEADS: Mapping[tuple[str, str], Callable[[Node], Heads]] = {
    (DEFAULT_DOMAIN, "Attention"): heads_of,
    (CONTRIB, "GroupQueryAttention"): _grouped,
    (CONTRIB, "MultiHeadAttention"): partial(_multi_head, past=6),
    (CONTRIB, "DecoderMaskedMultiHeadAttention"): partial(_multi_head, past=5, shared=True),
    (CONTRIB, "PackedMultiHeadAttention"): _packed,
}


@rule(
    "DecoderAttention",
    domain=CONTRIB,
    assumes="keys and values are projected anew, and no cache is joined to them",
)
def decoder_attention(node: Node) -> Cost:
    """Projections of Q, K and V, 2 * B * H * S * L * 2D, 6 FLOPs a score.

    Inputs are (sequence, batch, hidden).
    """
    # Query, key, their weights, bias; key_padding_mask is 5.
    sequence, batch, hidden = dims(node.inputs[0])
    keys = dims(node.inputs[1])[0]
    heads = node.attributes["num_heads"]
    sizes = Heads.dividing(hidden, hidden, batch=batch, heads=heads, queries=sequence, keys=keys)
    projected = batch * hidden * (sequence + 2 * keys)
    return attend(node, sizes, masked=node.input(5) is not None, macs=projected * hidden, extra=projected)


@rule("LongformerAttention", domain=CONTRIB, assumes="no token attends globally")
def longformer_attention(node: Node) -> Cost:
    """2 * B * S * D * 3D for the projections, 2 * B * S * (2W + 1) * 2D, 6 FLOPs a score, biases and mask."""
    return _longformer(node, weight=1)


@rule("QOrderedLongformerAttention", domain=CONTRIB, assumes="no token attends globally")
def quantized_longformer_attention(node: Node) -> Cost:
    """As LongformerAttention, on integers."""
    return _longformer(node, weight=2)


def _longformer(node: Node, weight: int) -> Cost:
    batch, sequence, hidden = dims(node.inputs[0])
    heads = node.attributes["num_heads"]
    near = min(2 * node.attributes["window"] + 1, sequence)
    sizes = Heads.dividing(hidden, hidden, batch=batch, heads=heads, queries=sequence, keys=near)
    rows, width = batch * sequence, dims(node.input(weight))[1]
    return attend(node, sizes, masked=True, macs=rows * hidden * width, extra=rows * width)


@rule(
    "PagedAttention",
    domain=CONTRIB,
    assumes="sequences of equal length, each filling its row of the block table",
)
def paged_attention(node: Node) -> Cost:
    """2 * tokens * Hq * L * (Dk + Dv), 6 FLOPs a score; L is blocks a sequence times tokens a block."""
    # Key_cache, 3, is (blocks, tokens of a block, heads, size); block_table is 7.
    blocks, length = dims(node.input(7))[1], dims(node.input(3))[1]
    return _paged(node, blocks * length)


@rule("SparsePagedAttention", domain=CONTRIB, assumes=_SELECTED)
def sparse_paged_attention(node: Node) -> Cost:
    """2 * tokens * Hq * L * (Dk + Dv), 6 FLOPs a score.

    L is what is selected, and the window where it is joined.
    """
    return _paged(node, _selected(node, 9))


@rule("DynamicSparseAttention", domain=CONTRIB, assumes=_SELECTED)
def dynamic_sparse_attention(node: Node) -> Cost:
    """2 * tokens * Hq * L * 2D, 6 FLOPs a score; L is what is selected, and the window where it is joined."""
    return _paged(node, _selected(node, 7))


def _selected(node: Node, position: int) -> int:
    chosen = dims(node.input(position))[-1]
    window: int = node.attributes.get("local_window_size", -1)
    joined = node.attributes.get("attention_mode") == "local_plus_selected"
    return chosen + (max(window, 0) if joined else 0)


def _paged(node: Node, keys: int) -> Cost:
    *lead, width = dims(node.inputs[0])
    heads, kv_heads = node.attributes["num_heads"], node.attributes["kv_num_heads"]
    size = width // heads if node.input(1) is not None else width // (heads + 2 * kv_heads)
    value_size = node.attributes.get("v_head_size", 0) or size
    tokens = prod(lead)
    sizes = Heads(batch=tokens, heads=heads, queries=1, keys=keys, size=size, value_size=value_size)
    extra = ROTARY * tokens * (heads + kv_heads) * size if node.attributes.get("do_rotary", 0) else 0
    return attend(node, sizes, softcap=bool(node.attributes.get("softcap", 0)), extra=extra)


@rule(
    "SparseAttentionIndexer",
    "PackedSparseAttentionIndexer",
    domain=CONTRIB,
    assumes="the cache of keys is full",
)
def sparse_attention_indexer(node: Node) -> Cost:
    """2 * queries * heads * keys * D to score every key in the cache, ReLU and sum 2 a score.

    Norms 4 an element.
    """
    *lead, width = dims(node.inputs[0])
    size = dims(node.inputs[2])[-1]
    heads, tokens = width // size, prod(lead)
    packed = node.op_type.startswith("Packed")
    past = node.input(12 if packed else 7)
    pooled = max(node.attributes.get("compress_ratio", 1), 1)
    keys = dims(past)[-2] if past is not None else lead[-1]
    scores = tokens * heads * (keys if packed else keys // pooled + 1)
    new = elements(node.inputs[1]) if node.input(1) is not None else 0
    return product(node, scores * size, 2 * scores + 7 * (elements(node.inputs[0]) + new))


@rule("GatedRelativePositionBias", domain=CONTRIB)
def gated_relative_position_bias(node: Node) -> Cost:
    """2 * B * S * H * size * D for the gate, its sum, sigmoid and arithmetic, and 1 * outputs for the bias."""
    size, gates = dims(node.inputs[3])
    rows = elements(node.inputs[0]) // size
    extra = elements(node.inputs[0]) + rows * (2 * gates + 2 + 4) + out(node)
    return product(node, rows * size * gates, extra)


moves(
    {"RelativePositionBias": "gathers a bias for each pair of positions, writes its output"},
    family=__name__,
    domain=CONTRIB,
)


@reads("EmbedLayerNormalization", "QEmbedLayerNormalization", domain=CONTRIB)
def _embedding_rows(node: Node) -> Mapping[int, int]:
    """Each table is read by the rows that are looked up, at most all there are."""
    tokens = elements(node.inputs[0])
    sequence = dims(node.inputs[0])[-1]
    positions = tokens if node.op_type == "EmbedLayerNormalization" and node.input(8) is not None else sequence
    looked_up = ((2, tokens), (3, positions), (4, tokens))
    return {position: rows_read(table, rows) for position, rows in looked_up if (table := node.input(position))}


@rule("QEmbedLayerNormalization", domain=CONTRIB)
def quantized_embed_layer_normalization(node: Node) -> Cost:
    """8 * outputs as EmbedLayerNormalization, and 2 * outputs a table to dequantise; 3 more for segments."""
    return cost(node, flops=(12 + 3 * (node.input(4) is not None)) * out(node))
