"""Counting softmax and norms; FLOPs of a whole row (one root, one division) are left out."""

from __future__ import annotations

from analyzer.costs.cost import Cost, cost, elements, out
from analyzer.costs.families.per_element import CONTRIB, NHWC, per_input, per_output
from analyzer.costs.registry import rule
from analyzer.graph import Node
from analyzer.operators import in_training

# FLOPs an element, of the passes that the tables below name.
SOFTMAX = 5
LAYER_NORM = 6
RMS_NORM = 4

per_output(
    {
        "Softmax": (SOFTMAX, "maximum, subtract, exp, sum, divide"),
        "LogSoftmax": (SOFTMAX, "maximum, subtract, exp, sum, subtract the logarithm"),
        "Hardmax": (2, "maximum, compare"),
        "InstanceNormalization": (LAYER_NORM + 1, "mean, subtract, square, sum, multiply, scale, bias"),
        "GroupNormalization": (LAYER_NORM + 1, "mean, subtract, square, sum, multiply, scale, bias"),
        "MeanVarianceNormalization": (5, "mean, subtract, square, sum, multiply"),
        "RMSNormalization": (RMS_NORM, "square, sum, multiply, scale"),
        "SimplifiedLayerNormalization": (RMS_NORM, "square, sum, multiply, scale"),
    },
    family=__name__,
)
per_input({"LpNormalization": (3, "power, sum, divide")}, family=__name__)
per_output(
    {"BatchNormalization": (2, "scale and shift, made of the four vectors once.")}, family=__name__, domain=NHWC
)
per_output(
    {
        "BiasSoftmax": (SOFTMAX + 1, "bias; maximum, subtract, exp, sum, divide"),
        "GatedRMSNorm": (RMS_NORM + 3, "square, sum, multiply, scale; the gate's sigmoid and two products"),
    },
    family=__name__,
    domain=CONTRIB,
)


@rule("BatchNormalization")
def batch_normalization(node: Node) -> Cost:
    """2 * outputs (scale and shift, made of the four vectors once); 8 * outputs in training.

    Training takes mean (1), variance (subtract, square, sum), normalise (2), scale and shift; the running
    averages are one number a channel and left out.
    """
    return cost(node, flops=(8 if in_training(node) else 2) * out(node))


@rule("LayerNormalization")
def layer_normalization(node: Node) -> Cost:
    """6 * outputs (mean, subtract, square, sum, multiply, scale), 7 with a bias."""
    # X, Scale, B.
    return cost(node, flops=(LAYER_NORM + (node.input(2) is not None)) * out(node))


@rule("BranchwiseRMSNorm", domain=CONTRIB)
def branchwise_rms_norm(node: Node) -> Cost:
    """3 * outputs (square, sum, multiply), 4 with a scale."""
    return cost(node, flops=(3 + (node.input(1) is not None)) * out(node))


@rule("SkipLayerNormalization", domain=CONTRIB)
def skip_layer_normalization(node: Node) -> Cost:
    """7 * outputs (skip, mean, subtract, square, sum, multiply, scale), 1 more each for beta and bias."""
    # Input, skip, gamma, beta, bias.
    each = 1 + LAYER_NORM + (node.input(3) is not None) + (node.input(4) is not None)
    return cost(node, flops=each * out(node))


@rule("SkipSimplifiedLayerNormalization", domain=CONTRIB)
def skip_simplified_layer_normalization(node: Node) -> Cost:
    """5 * outputs (skip, square, sum, multiply, scale), 1 more for a bias."""
    # Input, skip, gamma, bias: there is no beta.
    return cost(node, flops=(1 + RMS_NORM + (node.input(3) is not None)) * out(node))


@rule("GroupNorm", domain=CONTRIB)
def group_norm(node: Node) -> Cost:
    """7 * outputs (mean, subtract, square, sum, multiply, scale, bias), 2 more for SiLU."""
    return cost(node, flops=(LAYER_NORM + 1 + 2 * bool(node.attributes.get("activation", 0))) * out(node))


@rule("SkipGroupNorm", domain=CONTRIB)
def skip_group_norm(node: Node) -> Cost:
    """8 * outputs (skip and GroupNorm), 1 more for a bias, 2 more for SiLU."""
    # X, gamma, beta, skip, bias.
    each = 2 + LAYER_NORM + (node.input(4) is not None) + 2 * bool(node.attributes.get("activation", 0))
    return cost(node, flops=each * out(node))


@rule("LRN")
@rule("LRN", domain=NHWC)
def lrn(node: Node) -> Cost:
    """(size + 5) * outputs: square, sum over the window, scale, add, power, divide."""
    return cost(node, flops=(node.attributes["size"] + 5) * out(node))


@rule("EmbedLayerNormalization", domain=CONTRIB)
def embed_layer_normalization(node: Node) -> Cost:
    """8 * outputs: the sum of word and position, LayerNorm of 7.

    1 more for segments. Tables are read by rows.
    """
    # Segment_embedding is 4; without it nothing is added for segments.
    return cost(node, flops=(LAYER_NORM + 2 + (node.input(4) is not None)) * out(node))


@rule("EngramGate", domain=CONTRIB)
def engram_gate(node: Node) -> Cost:
    """11 * keys: two RMS norms of 4, a product and a sum, the gate's product; 4 more for a normed output."""
    return cost(
        node, flops=(2 * RMS_NORM + 3 + (node.output(1) is not None) * RMS_NORM) * elements(node.inputs[0])
    )
