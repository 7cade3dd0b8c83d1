"""Counting convolutions: dense, taps on padding included."""

from __future__ import annotations

from math import prod

from analyzer.costs.cost import Cost, dims, elements, out
from analyzer.costs.families.elementwise import activation
from analyzer.costs.families.per_element import CONTRIB, NCHWC, NHWC, per_input
from analyzer.costs.families.products import product
from analyzer.costs.registry import rule
from analyzer.graph import Node


def taps(node: Node, weight: int = 1) -> int:
    """Multiply-accumulates an output element: what one output channel's filter holds, Cin/group * kernel."""
    # W is [Cout, Cin/group, kernel...] of a Conv and [Cin, Cout/group, kernel...] of a ConvTranspose
    # (onnx/defs/nn/defs.cc): behind the first axis stands what one element is multiplied with, of either.
    return prod(dims(node.input(weight))[1:])


@rule("Conv")
def conv(node: Node) -> Cost:
    """2 * N * Cout * (output positions) * Cin/group * (kernel taps), and 1 * outputs for a bias.

    The kernel comes from the weight; the output's shape holds pads, auto_pad, strides and dilations.
    """
    outputs = out(node)
    return product(node, outputs * taps(node), outputs if node.input(2) is not None else 0)


@rule("ConvInteger")
def conv_integer(node: Node) -> Cost:
    """2 * N * Cout * (output positions) * Cin/group * (kernel taps): integer operations count alike."""
    return product(node, out(node) * taps(node))


@rule("Conv", domain=NHWC)
@rule("NhwcConv", domain=CONTRIB)
def nhwc_conv(node: Node) -> Cost:
    """2 * outputs * Cin/group * (kernel taps), and 1 * outputs for a bias; channels last."""
    return conv(node)


@rule("FusedConv", "NhwcFusedConv", domain=CONTRIB)
def fused_conv(node: Node) -> Cost:
    """2 * outputs * Cin/group * (kernel taps), 1 * outputs each for bias and for Z.

    And the activation's FLOPs.
    """
    outputs = out(node)
    # X, W, B and Z, which is added (onnxruntime/core/graph/contrib_ops/contrib_defs.cc, FusedConv).
    each = (node.input(2) is not None) + (node.input(3) is not None)
    each += activation(node.attributes.get("activation", ""))
    return product(node, outputs * taps(node), each * outputs)


@rule("Conv", domain=NCHWC)
def nchwc_conv(node: Node) -> Cost:
    """As FusedConv, on blocked channels; channels that fill up a block count."""
    return fused_conv(node)


@rule("ConvTranspose")
def conv_transpose(node: Node) -> Cost:
    """2 * N * Cin * (input positions) * Cout/group * (kernel taps), and 1 * outputs for a bias.

    Dense over input elements times taps: what pads crop from the output is computed first.
    """
    return _transposed(node, bias=2)


@rule("ConvTranspose", domain=NHWC)
def nhwc_conv_transpose(node: Node) -> Cost:
    """2 * inputs * Cout/group * (kernel taps), and 1 * outputs for a bias; channels last."""
    return _transposed(node, bias=2)


@rule("ConvTransposeWithDynamicPads", domain=CONTRIB)
def conv_transpose_dynamic(node: Node) -> Cost:
    """2 * inputs * Cout/group * (kernel taps), and 1 * outputs for a bias."""
    return _transposed(node, bias=3)


def _transposed(node: Node, bias: int) -> Cost:
    macs = elements(node.inputs[0]) * taps(node)
    return product(node, macs, out(node) if node.input(bias) is not None else 0)


@rule("DeformConv")
def deform_conv(node: Node) -> Cost:
    """2 * outputs * Cin/group * taps as Conv, 2 * 2^d * samples to interpolate them, bias and mask 1 each.

    Samples are N * Cin * (output positions) * (kernel taps), each interpolated from the 2^d points around it.
    """
    outputs = out(node)
    shape = dims(node.outputs[0])
    channels, kernel = dims(node.inputs[0])[1], prod(dims(node.inputs[1])[2:])
    samples = shape[0] * channels * prod(shape[2:]) * kernel
    # X, W, offset, B, mask (onnx/defs/nn/defs.cc, DeformConv).
    each = 2 * 2 ** (len(shape) - 2) + (node.input(4) is not None)
    return product(node, outputs * taps(node), each * samples + (outputs if node.input(3) is not None else 0))


@rule("CausalConvWithState")
@rule("CausalConvWithState", "VarlenCausalConvWithState", domain=CONTRIB)
def causal_conv(node: Node) -> Cost:
    """2 * outputs * k, 1 * outputs for a bias, 2 * outputs for SiLU.

    Each channel has its own kernel of k taps.
    """
    # Whether W is [channels, 1, k] or [channels, k], its elements over its channels are the taps.
    outputs, weight = out(node), node.input(1)
    channels = dims(weight)[0]
    bias = node.input(3 if node.op_type.startswith("Varlen") else 2)
    name = node.attributes.get("activation", "")
    each = (bias is not None) + activation("" if name.lower() == "none" else name)
    return product(node, outputs * (elements(weight) // channels), each * outputs)


@rule("WordConvEmbedding", domain=CONTRIB)
def word_conv_embedding(node: Node) -> Cost:
    """2 * words * (window positions) * taps * filters, tanh and the maximum over positions 1 each.

    And the bias.

    Sequence is [words, characters], W is [filters, 1, window, embedding], C the characters' table.
    """
    *lead, characters = dims(node.inputs[0])
    words = prod(lead)
    filters, *kernel = dims(node.input(1))
    window = node.attributes.get("conv_window_size", kernel[-2])
    positions = max(characters - window + 1, 0)
    sums = words * positions * filters
    return product(node, sums * prod(kernel), 3 * sums)


per_input({"Col2Im": (1, "each element of a block is added to its place.")}, family=__name__)
