"""Counting linear attention: a state of Dk by Dv a head, updated and read once a token."""

from __future__ import annotations

from math import prod

from analyzer.costs.cost import Cost
from analyzer.costs.dimensions import dims, elements, out
from analyzer.costs.families.per_element import CONTRIB
from analyzer.costs.families.products import product
from analyzer.costs.registry import rule
from analyzer.costs.traffic import cost
from analyzer.graph import Node

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
