"""Which measured loop an operator runs on a CPU where one operator has several."""

from __future__ import annotations

from analyzer.graph import Node, Tensor
from analyzer.operators import CLASSICAL_DOMAIN, INTEGER_PRODUCTS
from analyzer.prediction import integer_kernels

_ARITHMETIC = frozenset({"Add", "Sub", "Mul", "Div", "Min", "Max"})
_WHOLE = frozenset({"int64", "int32", "uint64", "uint32"})


def variant(node: Node) -> str:
    """The operator's name, or that of the variant that ``devices.calibration`` measures apart."""
    first, second = node.input(0), node.input(1)
    if node.op_type in _ARITHMETIC and first is not None and second is not None:
        return _arithmetic(node.op_type, first, second)
    if node.op_type == "Pow":
        return "Pow" if second is not None and second.elements == 1 else "PowTensor"
    if node.op_type == "Gelu":
        return "GeluTanh" if node.attributes.get("approximate") == "tanh" else "Gelu"
    if node.op_type == "Cast":
        return _cast(first, node.output(0))
    if node.op_type == "Transpose" and first is not None:
        return _transpose(node, first)
    if node.op_type == "Resize" and first is not None and first.dtype.bits == _BYTE:
        return "ResizeBytes" if node.attributes.get("mode", "nearest") == "nearest" else "ResizeLinear"
    if node.op_type in ("Resize", "Upsample"):
        return "ResizeNearest" if node.attributes.get("mode", "nearest") == "nearest" else "ResizeLinear"
    if node.op_type in INTEGER_PRODUCTS:
        return integer_kernels.family_of(node.op_type, node)
    if node.op_type == "DequantizeLinear":
        return _dequantize(node)
    if node.domain == CLASSICAL_DOMAIN:
        return _classical(node, first)
    if node.op_type == "MaxPool" and first is not None and first.dtype.bits == _BYTE:
        return "NhwcMaxPool"
    return node.op_type


_BYTE = 8


def _classical(node: Node, first: Tensor | None) -> str:
    strings = first is not None and first.dtype.name == "string"
    if node.op_type in ("SVMRegressor", "SVMClassifier"):
        return f"SVM{node.attributes.get('kernel_type', 'LINEAR')}"
    if node.op_type == "Normalizer":
        return f"Normalizer{node.attributes.get('norm', 'MAX')}"
    if strings and node.op_type in ("LabelEncoder", "OneHotEncoder", "CategoryMapper"):
        return "LabelEncoderStrings"
    return "LabelEncoder" if node.op_type == "CategoryMapper" else node.op_type


def _dequantize(node: Node) -> str:
    scale, data = node.input(1), node.input(0)
    if scale is None or data is None:
        return node.op_type
    if data.dtype.bits is not None and data.dtype.bits < _BYTE:
        return "DequantizePacked"
    if not scale.rank or scale.elements == 1:
        return node.op_type
    if node.attributes.get("block_size", 0):
        return "DequantizeBlocks"
    axis = int(node.attributes.get("axis", 1))
    # Along the last axis the scale changes with each element; before it, runs of elements share one.
    return "DequantizeAxis" if data.rank and axis % data.rank == data.rank - 1 else node.op_type


def _arithmetic(op: str, first: Tensor, second: Tensor) -> str:
    if first.dtype.name in _WHOLE:
        return "MulInt64" if op in ("Mul", "Div") else "AddInt64"
    smaller = min(first.elements or 0, second.elements or 0)
    if op in ("Add", "Sub", "Mul") and smaller == 1:
        return "MulScalar" if op == "Mul" else "AddScalar"
    if op in ("Add", "Sub", "Mul") and first.elements != second.elements:
        return "AddBias"
    return op


def _cast(source: Tensor | None, target: Tensor | None) -> str:
    names = (source.dtype.name if source else "", target.dtype.name if target else "")
    if names[1] in ("float16", "bfloat16"):
        return "CastHalf"
    if names[0] in ("float16", "bfloat16"):
        return "CastFloat"
    # Between bytes and floats a cast costs what a comparison does, which writes bytes.
    return "CastInt" if "int64" in names or "int32" in names else "Equal"


def _transpose(node: Node, source: Tensor) -> str:
    rank = source.rank or 0
    order = tuple(node.attributes.get("perm", range(rank - 1, -1, -1)))
    if order and order[-1] == rank - 1:
        return "TransposeHeads"
    return "TransposeMatrix" if order[-2:] == (rank - 1, rank - 2) else "TransposeNHWC"
