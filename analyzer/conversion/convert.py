"""A precision and a graph of floats -> the graph in that precision, or why there is none."""

from __future__ import annotations

from dataclasses import dataclass

from analyzer.conversion.packed_int4 import in_int4, weights_of
from analyzer.conversion.preprocessed import preprocessed
from analyzer.conversion.static_int8 import in_int8
from analyzer.graph import DEFAULT_DOMAIN, Graph, Node

_INTEGERS = frozenset(
    {
        *("QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear", "MatMulInteger", "ConvInteger"),
        *("QLinearConv", "QLinearMatMul", "QGemm", "MatMulNBits", "MatMulBnb4", "MatMulFpQ4", "QAttention"),
        *("DynamicQuantizeMatMul", "DynamicQuantizeLSTM", "MatMulIntegerToFloat", "GatherBlockQuantized"),
    }
)
# ``BaseQuantizer`` of onnxruntime/python/tools/quantization/base_quantizer.py
_OPSET_OF_QUANTISERS = 11
_FOUR_BITS = frozenset({"int4", "uint4"})
_NOTHING_TO_PACK = "no MatMul or Gemm outside of subgraphs has stored weights of two axes to pack in 4 bits"
PRODUCTS = frozenset({"Conv", "ConvTranspose", "Gemm", "MatMul"})


@dataclass(frozen=True, slots=True, kw_only=True)
class NoForm:
    """There is no such form of this model; ``why`` says so in a sentence."""

    why: str


def integer_form(graph: Graph) -> str | None:
    """``int8`` or ``int4`` where a graph holds integers in place of floats already."""
    quantised = [node for node in graph.nodes if node.op_type in _INTEGERS]
    if not quantised:
        return None
    packed = any(node.op_type == "MatMulNBits" and node.attributes.get("bits", 4) == 4 for node in quantised)
    return "int4" if packed or any(tensor.dtype.name in _FOUR_BITS for tensor in graph.initializers) else "int8"


def convert(graph: Graph, precision: str) -> Graph | NoForm:
    """The graph in ``int8`` or ``int4``; one that has this form already stays as it is.

    Args:
        graph: The model at one batch.
        precision: ``int8`` (QuantizeLinear and DequantizeLinear, as ``quant_pre_process`` and
            ``quantize_static`` put them) or ``int4`` (weights of products packed in blocks of 32).
    """
    own = integer_form(graph)
    if own is not None:
        return graph if own == precision else NoForm(why=f"the model is quantised already, to {own}")
    if precision == "int4":
        if not any(map(weights_of, graph.nodes)):
            return NoForm(why=_NOTHING_TO_PACK)
        return in_int4(graph)
    if graph.opsets.get(DEFAULT_DOMAIN, 0) < _OPSET_OF_QUANTISERS:
        return NoForm(why=f"ONNX Runtime quantises models from opset {_OPSET_OF_QUANTISERS} on")
    if not any(map(_multiplies_floats, graph.nodes)):
        return NoForm(why="no convolution and no product of floats is there to be quantised")
    return in_int8(preprocessed(graph))


def _multiplies_floats(node: Node) -> bool:
    result = node.output(0)
    return (
        node.op_type in PRODUCTS
        and result is not None
        and not result.constant
        and result.dtype.name == "float32"
    )
