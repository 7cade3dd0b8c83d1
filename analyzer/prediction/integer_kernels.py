"""Kernels of quantised operators: which measured family each belongs to, by its types and attributes."""

from __future__ import annotations

from collections.abc import Sequence

from analyzer.graph import Node, Tensor

PRODUCTS = frozenset(
    {
        *("QLinearMatMul", "QLinearConv", "QGemm", "MatMulInteger", "ConvInteger", "MatMulIntegerToFloat"),
        *("DynamicQuantizeMatMul", "MatMulNBits", "QAttention", "DynamicQuantizeLSTM"),
    }
)
"""Types of executed nodes that multiply integers."""

FAMILIES = ("u8s8", "u8u8", "dynamic", "nbits4a4", "nbits4a0", "nbits8a4", "nbits8a0")
"""Products that ``calibrate`` measures: 8 bits with weights of either sign, dynamic, packed."""

UNPACKED = ("nbits4a0", "nbits8a0")
"""Those that make floats of packed weights in each run."""

# ``qdq_matmulnbits_accuracy_level`` of a session: what DequantizeLinear and MatMul become.
_OF_SESSIONS = 4
_FEW_BITS = 4
_QUANTISES = frozenset({"DynamicQuantizeMatMul", "DynamicQuantizeLSTM", "QAttention"})


def family_of(op_type: str, node: Node) -> str:
    """The family of an integer product that is one operator of the model."""
    if op_type == "MatMulNBits":
        bits = int(node.attributes.get("bits", _FEW_BITS))
        return _packed(bits, int(node.attributes.get("accuracy_level", 0)))
    if op_type in _QUANTISES:
        return "dynamic"
    return _eight_bits([tensor for tensor in node.present_inputs if tensor.constant])


def family_of_group(op_type: str, stored: Sequence[Tensor]) -> str:
    """The family of an integer product that a session made of several operators.

    Args:
        op_type: What is executed.
        stored: The constants that it reads.
    """
    if op_type == "MatMulNBits":
        weights = max(stored, key=lambda tensor: tensor.elements or 0, default=None)
        return _packed(weights.dtype.bits or _FEW_BITS if weights is not None else _FEW_BITS, _OF_SESSIONS)
    return "dynamic" if op_type in _QUANTISES else _eight_bits(stored)


def _packed(bits: int, accuracy: int) -> str:
    # By any other level than 4 floats are multiplied by dequantised weights.
    return f"nbits{8 if bits > _FEW_BITS else 4}a{4 if accuracy == _OF_SESSIONS else 0}"


def _eight_bits(stored: Sequence[Tensor]) -> str:
    weights = max(stored, key=lambda tensor: tensor.elements or 0, default=None)
    return "u8u8" if weights is None or weights.dtype.name == "uint8" else "u8s8"
