"""Which measured loop an operator runs on a CPU where one operator has several."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from analyzer.graph import Node, Tensor
from analyzer.operators import CLASSICAL_DOMAIN, INTEGER_PRODUCTS
from analyzer.prediction import integer_kernels

_ARITHMETIC = frozenset({"Add", "Sub", "Mul", "Div", "Min", "Max"})
_COMPARISONS = frozenset({"Equal", "Greater", "Less", "GreaterOrEqual", "LessOrEqual"})
_WHOLE = frozenset({"int64", "int32", "uint64", "uint32"})


def variant(node: Node) -> str:
    """The operator's name, or that of the variant that ``devices.calibration`` measures apart."""
    try:
        return _variant(node)
    except Exception:  # attributes that are none of its operator's: it runs nowhere, but is counted
        return node.op_type


def _variant(node: Node) -> str:
    first, second = node.input(0), node.input(1)
    if node.op_type in _ARITHMETIC and first is not None and second is not None:
        return _arithmetic(node.op_type, first, second)
    if node.op_type in INTEGER_PRODUCTS:
        return integer_kernels.family_of(node.op_type, node)
    if node.domain == CLASSICAL_DOMAIN:
        return _classical(node, first)
    if node.op_type in _MAPS:
        return _map(node, first, second)
    return node.op_type if first is None else _moved(node, first)


_MAPS = frozenset({"Pow", "Gelu", "Cast", "CastLike", "DequantizeLinear", "PRelu", "Mod"}) | _COMPARISONS


def _map(node: Node, first: Tensor | None, second: Tensor | None) -> str:
    """Of operators that make each element from one of each operand."""
    if node.op_type == "Pow":
        return _power(second)
    if node.op_type == "Gelu":
        return "GeluTanh" if node.attributes.get("approximate") == "tanh" else "Gelu"
    if node.op_type in ("Cast", "CastLike"):
        return _cast(first, node.output(0))
    if node.op_type == "DequantizeLinear":
        return _dequantize(node)
    if first is None or second is None:
        return node.op_type
    if node.op_type == "PRelu":
        return "PRelu" if first.elements == second.elements else "PReluChannels"
    if first.dtype.name in _WHOLE:
        return "ModInt64" if node.op_type == "Mod" else "EqualInt64"
    return node.op_type


def _moved(node: Node, first: Tensor) -> str:
    """Of operators that read elements elsewhere than where they write them."""
    if node.op_type == "Transpose":
        return _transpose(node, first)
    if node.op_type in ("Resize", "Upsample"):
        nearest = node.attributes.get("mode", "nearest") == "nearest"
        narrow = node.op_type == "Resize" and first.dtype.bits == _BYTE
        return ("ResizeBytes" if narrow else "ResizeNearest") if nearest else "ResizeLinear"
    if node.op_type in ("MaxPool", "AveragePool", "LpPool"):
        return _pool(node.op_type, first)
    if node.op_type in _ALONG:
        return _along(node, first)
    if node.op_type == "Slice":
        return "SliceSteps" if _steps_along_last(node, first) else "Slice"
    crd = node.op_type == "DepthToSpace" and node.attributes.get("mode") == "CRD"
    return "DepthToSpaceCRD" if crd else node.op_type


def _steps_along_last(node: Node, source: Tensor) -> bool:
    """Whether elements are left out between others: steps along other axes copy whole runs."""
    axes, steps = node.input(3), node.input(4)
    if steps is None or steps.value is None:
        return False
    taken = steps.value.reshape(-1).tolist()
    places = range(len(taken)) if axes is None or axes.value is None else axes.value.reshape(-1).tolist()
    rank = source.rank or 1
    return any(step != 1 and int(axis) % rank == rank - 1 for axis, step in zip(places, taken, strict=False))


# What takes the last axis in order, and others with every element far from the next.
_ALONG = frozenset({"GatherElements", "Scatter", "ScatterElements"})


def _along(node: Node, first: Tensor) -> str:
    rank = first.rank or 0
    axis = int(node.attributes.get("axis", 0))
    name = "ScatterElements" if node.op_type == "Scatter" else node.op_type
    return name if rank and axis % rank == rank - 1 else f"{name}Outer"


def _power(exponent: Tensor | None) -> str:
    """Squares and cubes are multiplied (core/providers/cpu/math/element_wise_ops.cc), others are powers."""
    if exponent is None or exponent.elements != 1:
        return "PowTensor"
    known = exponent.value is not None and float(exponent.value.reshape(-1)[0]) in (2.0, 3.0)
    return "Pow" if known else "PowScalar"


def _pool(op: str, source: Tensor) -> str:
    """Pools of images have a kernel of their own, of sequences and volumes loops; bytes are channels last."""
    if op == "MaxPool" and source.dtype.bits == _BYTE:
        return "NhwcMaxPool"
    return op + {_SEQUENCE: "1d", _VOLUME: "3d"}.get(source.rank or 0, "")


_SEQUENCE, _VOLUME = 3, 5


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
    # Between bytes, integers of 32 bits and floats a cast costs what a comparison does, which writes bytes.
    return "CastInt" if "int64" in names else "Equal"


def _transpose(node: Node, source: Tensor) -> str:
    rank = source.rank or 0
    order = tuple(node.attributes.get("perm", range(rank - 1, -1, -1)))
    if order and order[-1] == rank - 1:
        return "TransposeHeads" if _moves_one_axis(order, source) else KEPT_RUNS
    if order[-2:] == (rank - 1, rank - 2):
        return "TransposeMatrix"
    return "TransposeNHWC" if _moves_one_axis(order, source) else "TransposeAny"


KEPT_RUNS = "TransposeRuns"
"""A transpose that moves several axes and keeps the last: runs are copied, each with an index of its own."""


def kept_run(node: Node, sizes: tuple[int, ...]) -> int:
    """Elements of such a run: all behind the last axis that is moved."""
    run = 1
    for place, axis in reversed(list(enumerate(node.attributes.get("perm", ())))):
        if place != axis:
            break
        run *= sizes[axis]
    return run


def _moves_one_axis(order: Sequence[int], source: Tensor) -> bool:
    """Whether one axis of more than one element is moved past others, which has a loop of its own."""
    sizes = source.shape or ()
    moved = [axis for axis in order if axis >= len(sizes) or sizes[axis] != 1]
    return any(
        all(before < after for before, after in pairwise(moved[:place] + moved[place + 1 :]))
        for place in range(len(moved))
    )
