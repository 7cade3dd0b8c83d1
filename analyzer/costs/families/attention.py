"""Count attention as ONNX defines it: two products and the softmax; linear attention: one state per head.

Dense: a causal or windowed mask is not discounted; the note gives the discounted figure. Keys and values are
read once per KV head, query heads that share them do not multiply the bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

from analyzer.costs.cost import Basis, Cost, cost, dims, elements, nbytes, out, reads
from analyzer.costs.families.normalization import SOFTMAX
from analyzer.costs.families.per_element import CONTRIB
from analyzer.costs.families.products import product
from analyzer.costs.registry import count_graph, rule
from analyzer.graph import Node, Tensor
from analyzer.operators import CONTRIB_DOMAIN

ROTARY = 3
"""FLOPs an element that is rotated: two products and a sum."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Heads:
    """The sizes of one attention: batch, query heads, queries, keys, and the two head sizes."""

    batch: int
    heads: int
    queries: int
    keys: int
    size: int
    value_size: int

    @classmethod
    def dividing(cls, hidden: int, values: int, *, batch: int, heads: int, queries: int, keys: int) -> Heads:
        """Heads that share the width of the queries and that of the values."""
        size, value_size = hidden // heads, values // heads
        return cls(batch=batch, heads=heads, queries=queries, keys=keys, size=size, value_size=value_size)

    @property
    def scores(self) -> int:
        """Number of scores, over all heads."""
        return self.batch * self.heads * self.queries * self.keys

    @property
    def macs(self) -> int:
        """Multiply-accumulates of both products."""
        return self.scores * (self.size + self.value_size)

    def flops(self, *, masked: bool = False, softcap: bool = False) -> int:
        """2 * macs, and for each score: scale 1, softmax 5, mask 1, softcap 3."""
        return 2 * self.macs + (1 + SOFTMAX + masked + 3 * softcap) * self.scores

    @property
    def causal_scores(self) -> int:
        """Scores that a causal mask leaves, the last query seeing every key."""
        if self.keys >= self.queries:
            each = self.queries * (self.keys - self.queries) + self.queries * (self.queries + 1) // 2
        else:
            # Fewer keys than queries: the earliest queries see none.
            each = self.keys * (self.keys + 1) // 2
        return self.batch * self.heads * each


def attend(
    node: Node,
    heads: Heads,
    *,
    masked: bool = False,
    softcap: bool = False,
    causal: bool = False,
    macs: int = 0,
    extra: int = 0,
    basis: Basis = "exact",
    note: str = "",
) -> Cost:
    """Return the Cost of an attention with projections of ``macs`` and other FLOPs ``extra`` beside it."""
    whole = heads.flops(masked=masked, softcap=softcap)
    # Projections make every token's keys and queries: no mask spares any of them.
    if causal and not note:
        unmasked = whole * heads.causal_scores // max(heads.scores, 1) + 2 * macs + extra
        note = f"dense; a kernel that skips what the causal mask hides computes {unmasked} FLOPs"
    return cost(node, flops=whole + 2 * macs + extra, macs=heads.macs + macs, basis=basis, note=note)


def heads_of(node: Node) -> Heads:
    """Sizes from Q, K and V of rank 4 (batch, heads, sequence, size) or rank 3 (batch, sequence, hidden)."""
    query, key, values = (dims(node.input(position)) for position in range(3))
    # Inputs by position as in Attention-23 (onnx/defs/nn/defs.cc): Q, K, V, attn_mask, past_key, past_value.
    past = node.input(4)
    earlier = dims(past)[-2] if past is not None else 0
    if len(query) == 4:
        batch, heads, queries, size = query
        return Heads(
            batch=batch, heads=heads, queries=queries, keys=key[2] + earlier, size=size, value_size=values[3]
        )
    heads, kv_heads = node.attributes["q_num_heads"], node.attributes["kv_num_heads"]
    return Heads(
        batch=query[0],
        heads=heads,
        queries=query[1],
        keys=key[1] + earlier,
        size=query[2] // heads,
        value_size=values[2] // kv_heads,
    )


@rule("Attention")
def attention(node: Node) -> Cost:
    """2 * B * Hq * S * L * (Dk + Dv), and 6 FLOPs a score (scale, softmax of 5), 1 more for a mask.

    3 for softcap.

    Hq are query heads, also where fewer key heads serve them; L includes the past. ``present`` outputs are
    written in full.
    """
    return attend(
        node,
        heads_of(node),
        masked=node.input(3) is not None,
        softcap=bool(node.attributes.get("softcap", 0)),
        causal=bool(node.attributes.get("is_causal", 0)),
    )


@rule("FlexAttention", domain="ai.onnx.preview", depends=True)
def flex_attention(node: Node) -> Cost:
    """2 * B * Hq * S * L * (Dk + Dv), 6 FLOPs a score, and what score_mod and prob_mod compute."""
    query, key, values = (dims(node.input(position)) for position in range(3))
    heads = Heads(
        batch=query[0], heads=query[1], queries=query[2], keys=key[2], size=query[3], value_size=values[3]
    )
    extra = 0
    for graph in node.graphs.values():
        inner = count_graph(graph)
        if inner.basis == "unknown":
            note = "a modifier's shapes are open: 1 FLOP a score for each of its operators is assumed"
            extra += heads.scores * len(graph.nodes)
            return attend(node, heads, extra=extra, basis="modelled", note=note)
        extra += inner.flops or 0
    return attend(node, heads, extra=extra)


@rule("RotaryEmbedding")
@rule("RotaryEmbedding", "MRotaryEmbedding", domain=CONTRIB_DOMAIN)
def rotary_embedding(node: Node) -> Cost:
    """3 * rotated elements: two products and a sum; what rotary_embedding_dim leaves out is copied."""
    # A rotary_embedding_dim of 0, its default, rotates the whole head (onnx/defs/nn/defs.cc, RotaryEmbedding).
    shape, attributes = dims(node.inputs[0]), node.attributes
    part, heads = attributes.get("rotary_embedding_dim", 0), attributes.get("num_heads", 0)
    whole = elements(node.inputs[0])
    size = shape[-1] if len(shape) == 4 or not heads else shape[-1] // heads
    rotated = whole * part // size if part else whole
    return cost(node, flops=ROTARY * rotated)


def rows_read(table: Tensor, rows: int) -> int:
    """Bytes of so many rows of a table, of all that there are at most."""
    count = dims(table)[0]
    return nbytes(table) * min(rows, count) // count if count else 0


@reads("RotaryEmbedding")
@reads("RotaryEmbedding", domain=CONTRIB_DOMAIN)
def _rotary_rows(node: Node) -> Mapping[int, int]:
    """Of the tables of cosines and sines a row a token; without positions they are given by token."""
    # X, cosines, sines and perhaps positions; ONNX Runtime's own has the positions second, always.
    if node.domain != CONTRIB_DOMAIN and node.input(3) is None:
        return {}
    tables = (2, 3) if node.domain == CONTRIB_DOMAIN else (1, 2)
    shape = dims(node.inputs[0])
    # (batch, sequence, hidden) or (batch, heads, sequence, size)
    tokens = shape[0] * shape[-2]
    return {position: rows_read(table, tokens) for position in tables if (table := node.input(position))}


@rule("GemmaRotaryEmbedding", domain=CONTRIB_DOMAIN)
def gemma_rotary_embedding(node: Node) -> Cost:
    """3 * outputs, and 2 * angles for their sine and cosine."""
    outputs = sum(elements(tensor) for tensor in node.present_outputs)
    return cost(node, flops=ROTARY * outputs + 2 * elements(node.inputs[0]))


_RECURRENT = "counted as the recurrence, token by token; a chunked kernel computes more"


@rule("LinearAttention", assumes=_RECURRENT)
@rule("LinearAttention", domain=CONTRIB, assumes=_RECURRENT)
def linear_attention(node: Node) -> Cost:
    """2 * B * T * Dk * Dv * (Hkv + Hq), Hkv once more for a delta rule.

    Dk * Dv a token and head for a decay.
    """
    batch, tokens, width = dims(node.inputs[0])
    heads, kv_heads = node.attributes["q_num_heads"], node.attributes["kv_num_heads"]
    state = (width // heads) * (dims(node.inputs[2])[2] // kv_heads)
    return _recurrent(node, batch * tokens, heads, kv_heads, state)


def _recurrent(node: Node, tokens: int, heads: int, kv_heads: int, state: int) -> Cost:
    # A token adds k times v to the state and reads it with each query head that shares the KV head. A delta
    # rule first reads what the state holds for k, to write the difference: a product of the same size more.
    kind = node.attributes.get("update_rule", "gated_delta")
    updates = kv_heads * (2 if "delta" in kind else 1)
    decays = tokens * kv_heads * state if "gated" in kind else 0
    return product(node, tokens * state * (updates + heads), decays + out(node))


@rule("GatedDeltaNet", domain=CONTRIB, assumes=_RECURRENT)
def gated_delta_net(node: Node) -> Cost:
    """2 * tokens * Dk * Dv * (2 Hv + Hv) for the delta rule, Dk * Dv a token and head for the decay."""
    query, values, start = node.inputs[0], node.input(2), node.input(6)
    if values is None:
        _, heads, value_size, size = dims(start)
        tokens = prod(dims(query)[:-1])
    else:
        *lead, heads, value_size = dims(values)
        size, tokens = dims(query)[-1], prod(lead)
    return _recurrent(node, tokens, heads, heads, size * value_size)


@rule("HyperConnectionPostMix", domain=CONTRIB)
def hyper_connection_post_mix(node: Node) -> Cost:
    """2 * outputs for the branch, and 2 * outputs * C where streams are mixed by a C by C matrix."""
    outputs, mix = out(node), node.input(3)
    if mix is None:
        return cost(node, flops=2 * outputs)
    return product(node, outputs * dims(mix)[-1], 2 * outputs)


@rule("HyperConnectionPreMix", domain=CONTRIB)
def hyper_connection_pre_mix(node: Node) -> Cost:
    """2 * streams (product and sum), and 1 * outputs for the scale."""
    return cost(node, flops=2 * elements(node.inputs[0]) + out(node))


@rule("SelectiveScan", domain="analyzer.generation", assumes=_RECURRENT)
def selective_scan(node: Node) -> Cost:
    """6 * B * T * channels * state: decay of 2, update of 2, and a product of 2 that reads the state."""
    batch, tokens, channels = dims(node.inputs[0])
    each = batch * tokens * channels * dims(node.inputs[2])[2]
    return product(node, each, 4 * each)
