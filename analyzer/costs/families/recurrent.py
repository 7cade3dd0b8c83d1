"""Counting recurrent layers: every step and direction; weights are read once, not once a step."""

from __future__ import annotations

from math import prod

from analyzer.costs.cost import Cost, dims, elements
from analyzer.costs.families.per_element import CONTRIB
from analyzer.costs.families.products import product
from analyzer.costs.registry import rule
from analyzer.graph import Node

# FLOPs an element of the state at each step, by the equations of onnx/defs/rnn/defs.cc.
LSTM, LSTM_BIAS, LSTM_PEEPHOLE = 13, 4, 6
GRU, GRU_BIAS = 11, 3
RNN, RNN_BIAS = 2, 1


def steps(node: Node) -> int:
    """Sequence length times batch: how often each weight is used."""
    return prod(dims(node.inputs[0])[:2])


def recurrent(node: Node, each: int) -> Cost:
    """Products of input and state with all weights at every step, and FLOPs for each element of the state."""
    weights = elements(node.inputs[1]) + elements(node.inputs[2])
    directions = dims(node.inputs[2])[0]
    hidden = node.attributes.get("hidden_size") or dims(node.inputs[2])[-1]
    return product(node, steps(node) * weights, each * steps(node) * directions * hidden)


@rule("LSTM")
def lstm(node: Node) -> Cost:
    """2 * T * B * D * 4H * (I + H); for each state element 13, 4 for biases, 6 for peepholes.

    The 13: four sums of input and recurrent part, three sigmoids, two tanh, three products and one sum of the
    state update. T steps at full length, D directions.
    """
    # X, W, R, B, sequence_lens, initial_h, initial_c, P (peepholes).
    each = LSTM + LSTM_BIAS * (node.input(3) is not None) + LSTM_PEEPHOLE * (node.input(7) is not None)
    return recurrent(node, each)


@rule("DynamicQuantizeLSTM", domain=CONTRIB)
def dynamic_quantize_lstm(node: Node) -> Cost:
    """As LSTM on integer weights; 5 more for each element of the input, to quantise it."""
    each = LSTM + LSTM_BIAS * (node.input(3) is not None) + LSTM_PEEPHOLE * (node.input(7) is not None)
    weights = elements(node.inputs[1]) + elements(node.inputs[2])
    hidden = node.attributes["hidden_size"]
    states = steps(node) * dims(node.inputs[2])[0] * hidden
    return product(node, steps(node) * weights, each * states + 5 * (elements(node.inputs[0]) + states))


@rule("GRU")
def gru(node: Node) -> Cost:
    """2 * T * B * D * 3H * (I + H); for each state element 11, 3 for biases, 1 more with linear_before_reset.

    The 11: three sums of input and recurrent part, two sigmoids and tanh, the reset product, and the update
    (1 - z) * n + z * h of four.
    """
    # With linear_before_reset the recurrent bias is added by itself, before the reset gate's product.
    bias = GRU_BIAS + bool(node.attributes.get("linear_before_reset", 0))
    return recurrent(node, GRU + bias * (node.input(3) is not None))


@rule("RNN")
def rnn(node: Node) -> Cost:
    """2 * T * B * D * H * (I + H); for each state element 2 (sum, activation), 1 for biases."""
    return recurrent(node, RNN + RNN_BIAS * (node.input(3) is not None))


@rule("AttnLSTM", domain=CONTRIB)
def attention_lstm(node: Node) -> Cost:
    """LSTM, and at every step 2 * (query layer + M * A + M * depth + attention layer), 5 a score for softmax.

    M are memory steps of that depth, A is the attention's size; the memory layer runs once.
    """
    # Behind LSTM's inputs: QW 8, MW 9, V 10, M 11, memory_seq_lens, AW 13.
    base = lstm(node)
    at = steps(node)
    batch = dims(node.inputs[0])[1]
    query, memory_layer, vector = node.input(8), node.input(9), node.input(10)
    memory, layer = node.input(11), node.input(13)
    directions, size = dims(vector)
    _, length, depth = dims(memory)
    macs = at * elements(query) + batch * length * elements(memory_layer)
    macs += at * directions * length * (size + depth)
    macs += at * elements(layer) if layer is not None else 0
    extra = at * directions * length * (2 * size + 5)
    return product(node, (base.macs or 0) + macs, (base.flops or 0) - 2 * (base.macs or 0) + extra)
