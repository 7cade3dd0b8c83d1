"""Counting quantised operators: integer multiply-accumulates are 2 operations, each tensor has its own width.

Quantising is 3 FLOPs an element (divide, round, add the zero point), dequantising 2 (subtract the zero point,
multiply), 1 without a zero point.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from analyzer.costs.cost import Cost, cost, dims, elements, out, reads
from analyzer.costs.families.convolution import taps
from analyzer.costs.families.normalization import LAYER_NORM, SOFTMAX
from analyzer.costs.families.per_element import CONTRIB, per_input, per_output
from analyzer.costs.families.pooling import window
from analyzer.costs.families.products import depth, product
from analyzer.costs.registry import rule
from analyzer.graph import Node

# FLOPs an element, as the module's docstring has them.
QUANTIZE = 3
DEQUANTIZE = 2

per_input(
    {"DynamicQuantizeLinear": (2 + QUANTIZE, "minimum, maximum, divide, round, add the zero point.")},
    family=__name__,
)
per_output({"QuantizeLinear": (QUANTIZE, "divide, round, add the zero point")}, family=__name__)
per_output(
    {
        "QuantizeLinear": (QUANTIZE, "divide, round, add the zero point"),
        "QuantizeWithOrder": (QUANTIZE, "divide, round, saturate"),
        "DequantizeWithOrder": (1, "multiply"),
        "QLinearAdd": (2 * DEQUANTIZE + 1 + QUANTIZE, "dequantise both, add, quantise"),
        "QLinearConcat": (DEQUANTIZE + QUANTIZE, "dequantise, quantise"),
        "QLinearLeakyRelu": (DEQUANTIZE + 2 + QUANTIZE, "dequantise, compare and multiply, quantise"),
        "QLinearMul": (2 * DEQUANTIZE + 1 + QUANTIZE, "dequantise both, multiply, quantise"),
        "QLinearSigmoid": (DEQUANTIZE + 1 + QUANTIZE, "dequantise, sigmoid, quantise"),
        "QLinearSoftmax": (DEQUANTIZE + SOFTMAX + QUANTIZE, "dequantise, softmax of 5, quantise"),
        "QLinearWhere": (1 + DEQUANTIZE + QUANTIZE, "select, dequantise, quantise"),
        "QOrderedGelu": (1 + 5 + QUANTIZE, "multiply by the scale, Gelu of 5, quantise"),
        "QOrderedLayerNormalization": (1 + LAYER_NORM + 1 + QUANTIZE, "scale, LayerNorm of 7, quantise"),
        "DequantizeBFP": (1, "multiply"),
        "QuantizeBFP": (QUANTIZE, "maximum of a block, divide, round"),
    },
    family=__name__,
    domain=CONTRIB,
)


@rule("DequantizeLinear")
@rule("DequantizeLinear", domain=CONTRIB)
def dequantize(node: Node) -> Cost:
    """2 * outputs (subtract the zero point, multiply), 1 * outputs without a zero point."""
    return cost(node, flops=(DEQUANTIZE - (node.input(2) is None)) * out(node))


@rule("QLinearMatMul")
def qlinear_matmul(node: Node) -> Cost:
    """2 * outputs * K on integers, 3 * outputs to quantise."""
    return product(node, out(node) * depth(node), QUANTIZE * out(node))


@rule("QLinearConv")
@rule("QLinearConv", domain=CONTRIB)
def qlinear_conv(node: Node) -> Cost:
    """2 * outputs * Cin/group * taps on integers, 1 * outputs for a bias, 3 * outputs to quantise."""
    # x and w come with a scale and a zero point each: w is 3, B is 8 (onnx/defs/nn/defs.cc).
    each = QUANTIZE + (node.input(8) is not None)
    return product(node, out(node) * taps(node, 3), each * out(node))


@rule("QGemm", domain=CONTRIB)
def qgemm(node: Node) -> Cost:
    """2 * M * N * K on integers, M * N for C, 3 * M * N to quantise or 1 to scale to floats."""
    # C is 6; without y_scale, 7, the output stays float (core/graph/contrib_ops/quantization_defs.cc).
    macs = out(node) * depth(node, transposed=bool(node.attributes.get("transA", 0)))
    each = (node.input(6) is not None) + (QUANTIZE if node.input(7) is not None else 1)
    return product(node, macs, each * out(node))


@rule("QOrderedMatMul", domain=CONTRIB)
def qordered_matmul(node: Node) -> Cost:
    """2 * outputs * K on integers, 1 * outputs each for bias and C, 3 * outputs to quantise."""
    # Bias is 5, C is 6.
    each = (node.input(5) is not None) + (node.input(6) is not None) + QUANTIZE
    return product(node, out(node) * depth(node), each * out(node))


@rule("MatMulIntegerToFloat", domain=CONTRIB)
def matmul_integer_to_float(node: Node) -> Cost:
    """2 * outputs * K on integers, 1 * outputs to scale, 1 * outputs for a bias."""
    # Two scales and two zero points stand between B and the bias.
    return product(node, out(node) * depth(node), (1 + (node.input(6) is not None)) * out(node))


@rule("DynamicQuantizeMatMul", domain=CONTRIB)
def dynamic_quantize_matmul(node: Node) -> Cost:
    """2 * outputs * K on integers, 5 an element of A to quantise it, 1 * outputs to scale, 1 for a bias."""
    # B is quantised ahead, A in each run: a minimum and a maximum come first. Bias is 4.
    extra = (2 + QUANTIZE) * elements(node.inputs[0]) + (1 + (node.input(4) is not None)) * out(node)
    return product(node, out(node) * depth(node), extra)


@rule("MatMulNBits", domain=CONTRIB)
def matmul_nbits(node: Node) -> Cost:
    """2 * outputs * K, 2 a weight to dequantise it (1 without zero points), 1 * outputs for a bias."""
    # Zero_points is 3, g_idx 4, bias 5. Weights are dequantised once, however many rows A has.
    return low_bit(node, each=1 + (node.input(3) is not None), bias=5)


@rule("MatMulBnb4", domain=CONTRIB)
def matmul_bnb4(node: Node) -> Cost:
    """2 * outputs * K, 1 a weight to dequantise it."""
    return low_bit(node, each=1, bias=None)


def low_bit(node: Node, *, each: int, bias: int | None) -> Cost:
    """Return a product with packed weights of N by K (attributes), dequantised for so many FLOPs a weight."""
    attributes, outputs = node.attributes, out(node)
    with_bias = bias is not None and node.input(bias) is not None
    weights = attributes["N"] * attributes["K"]
    inner = attributes["K"] if attributes.get("transB", 1) else attributes["N"]
    return product(node, outputs * inner, each * weights + outputs * with_bias)


@rule("MatMulFpQ4", domain=CONTRIB)
def matmul_fpq4(node: Node) -> Cost:
    """2 * outputs * K, 2 a weight to dequantise it."""
    inner = depth(node)
    weights = inner * dims(node.outputs[0])[-1]
    return product(node, out(node) * inner, DEQUANTIZE * weights)


@rule("MatMulBlockQuantizedFp8Weight", domain=CONTRIB)
def matmul_fp8(node: Node) -> Cost:
    """2 * outputs * K, 1 a weight to scale it, 1 * outputs for a bias."""
    return _block(node, bias=4, each=1)


@rule("MatMulBlockQuantizedFp4Weight", domain=CONTRIB)
def matmul_fp4(node: Node) -> Cost:
    """2 * outputs * K, 2 a weight for its two scales, 1 * outputs for a bias."""
    return _block(node, bias=5, each=2)


def _block(node: Node, *, bias: int, each: int) -> Cost:
    inner, outputs = depth(node), out(node)
    weights = inner * dims(node.outputs[0])[-1]
    return product(node, outputs * inner, each * weights + outputs * (node.input(bias) is not None))


@rule("MatMulNBitsMlp", domain=CONTRIB)
def matmul_nbits_mlp(node: Node) -> Cost:
    """Gate and up product, 2 * tokens * K * N each, 1 a weight to dequantise.

    4 * outputs for biases and SwiGLU.
    """
    width, outputs = node.attributes["K"], out(node)
    weights = 2 * node.attributes["N"] * width
    norm = 4 * elements(node.inputs[0]) if node.input(2) is not None else 0
    return product(node, 2 * outputs * width, weights + 5 * outputs + norm)


@rule("MatMulNBitsQkv", domain=CONTRIB)
def matmul_nbits_qkv(node: Node) -> Cost:
    """Three products of 2 * outputs * K, 1 a weight to dequantise, 4 an input element for the norm, biases."""
    # A, skip, norm_scale, then weight, scales and bias of Q, K and V.
    attributes = node.attributes
    width, wide = attributes["K"], attributes["Nq"] + 2 * attributes["Nkv"]
    rows = elements(node.inputs[0]) // width
    biases = sum(
        rows * size
        for position, size in ((5, attributes["Nq"]), (8, attributes["Nkv"]), (11, attributes["Nkv"]))
        if node.input(position) is not None
    )
    return product(node, rows * wide * width, wide * width + 4 * elements(node.inputs[0]) + biases)


@rule("MulInteger", domain=CONTRIB)
def mul_integer(node: Node) -> Cost:
    """1 * outputs, 1 more for each zero point."""
    # A, its zero point, B, its zero point.
    return cost(node, flops=(1 + (node.input(1) is not None) + (node.input(3) is not None)) * out(node))


@rule("QLinearAveragePool", domain=CONTRIB)
def qlinear_average_pool(node: Node) -> Cost:
    """Outputs * (taps + 5): additions and the division; dequantise, quantise."""
    return cost(node, flops=out(node) * (window(node) + DEQUANTIZE + QUANTIZE))


@rule("QLinearGlobalAveragePool", domain=CONTRIB)
def qlinear_global_average_pool(node: Node) -> Cost:
    """Inputs for the sums, 5 * outputs to dequantise and quantise."""
    return cost(node, flops=elements(node.inputs[0]) + (DEQUANTIZE + QUANTIZE) * out(node))


@rule("QLinearReduceMean", domain=CONTRIB)
def qlinear_reduce_mean(node: Node) -> Cost:
    """Inputs for the sums, 6 * outputs to divide, dequantise and quantise."""
    return cost(node, flops=elements(node.inputs[0]) + (1 + DEQUANTIZE + QUANTIZE) * out(node))


@rule("GatherBlockQuantized", domain=CONTRIB)
def gather_block_quantized(node: Node) -> Cost:
    """2 * outputs to dequantise what is gathered, 1 * outputs without zero points."""
    # Zero_points is 3.
    return cost(node, flops=(DEQUANTIZE - (node.input(3) is None)) * out(node))


@reads("GatherBlockQuantized", domain=CONTRIB)
def _gathered_blocks(node: Node) -> Mapping[int, int]:
    """Rows that are gathered, of the data, the scales and the zero points alike."""
    rows = dims(node.inputs[0])
    axis = node.attributes.get("gather_axis", 0)
    share = min(elements(node.inputs[1]), rows[axis])
    bytes_read = {}
    for position in (0, 2, 3):
        tensor = node.input(position)
        if tensor is not None and tensor.dtype.bits is not None:
            bytes_read[position] = (
                prod(dims(tensor)) * tensor.dtype.bits * share // max(rows[axis], 1) + 7
            ) // 8
    return bytes_read
