"""Choose the measured loop of an operator that has several on a CPU."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise

from analyzer.graph import Node, Tensor
from analyzer.operators import CLASSICAL_DOMAIN, INTEGER_PRODUCTS
from analyzer.ort.blocked_layout import BLOCK
from analyzer.prediction import irregular_pieces
from analyzer.prediction.reference_core import loops
from analyzer.prediction.work_item import MALFORMED

_ARITHMETIC = frozenset({"Add", "Sub", "Mul", "Div", "Min", "Max"})
_COMPARISONS = frozenset({"Equal", "Greater", "Less", "GreaterOrEqual", "LessOrEqual"})
_WHOLE = frozenset({"int64", "int32", "uint64", "uint32"})


_SIGNED = frozenset({"MatMulInteger", "QLinearMatMul", "QLinearConv"})
SIGNED_FIRST = "ProductOfSigned"
"""A product whose first operand is signed: MLAS has no kernel of its own for it on most processors."""
FIRST_AXIS = "FirstAxis"
"""End of the names of loops that a calibration measures along the last axis and along the first."""


def variant(node: Node) -> str:
    """Return the name of the operator's loop: a probe's, one of ``reference_core.loops``, or its own."""
    try:
        # The loop of the type where that has one of its own.
        name = _variant(node)
        first = node.input(1 if node.op_type == "Where" else 0)
        own = _SUFFIXES.get(first.dtype.name, "") if first is not None else ""
        return name + own if own and name + own in loops() else name
    except MALFORMED:  # it runs nowhere, but is counted
        return node.op_type


BYTE_POOL = "MaxPoolOfBytes"
"""A loop that depends on the layout, which the graph decides."""
DOUBLE = "Float64"
"""End of the names of loops of fp64."""
_SUFFIXES = {
    "float64": DOUBLE,
    **dict.fromkeys(("int64", "uint64"), "Int64"),
    **dict.fromkeys(("int32", "uint32"), "Int32"),
    **dict.fromkeys(("int8", "uint8"), "Byte"),
}


def width_of(node: Node, loop: str) -> float:
    """Bits of an element over those of the elements that a loop was measured with; 1 where it has its own."""
    target, source = node.output(0), node.input(0)
    written = target is not None and target.dtype.name != "bool" and node.op_type not in ("ArgMax", "ArgMin")
    moved = target if written else source
    if not moved or moved.dtype.bits is None or node.domain == CLASSICAL_DOMAIN or loop.startswith(_OWN_TYPES):
        return 1.0
    if loop.endswith(tuple(_SUFFIXES.values())):
        return moved.dtype.bits / _WIDE if loop in _MEASURED_WIDE else 1.0
    return moved.dtype.bits / _SINGLE


_SINGLE, _WIDE = 32.0, 64.0
_MEASURED_WIDE = ("AddInt64", "MulInt64", "EqualInt64")
# Loops that a probe measures on bytes or between two types.
_OWN_TYPES = ("QLinear", "Quantize", "Dequantize", "DynamicQuantize", "Cast", "And", "Or", "Xor", "Not", "Nhwc",
              "ResizeBytes", "QGemm", "DepthToSpace", "SpaceToDepth", "DynamicQuantizeMatMul")  # fmt: skip


def _variant(node: Node) -> str:
    first, second = node.input(0), node.input(1)
    if node.op_type in _ARITHMETIC and first is not None and second is not None:
        return _arithmetic(node.op_type, first, second)
    if node.op_type in _SIGNED and first is not None and first.dtype.name == "int8":
        return SIGNED_FIRST
    if node.op_type in ("MatMul", "Gemm") and first is not None and first.dtype.name in _PRODUCTS:
        return _PRODUCTS[first.dtype.name]
    if node.op_type in INTEGER_PRODUCTS:
        return irregular_pieces.family_of(node.op_type, node)
    if node.domain == CLASSICAL_DOMAIN:
        strings = first is not None and first.dtype.name == "string"
        if node.op_type in ("SVMRegressor", "SVMClassifier"):
            return f"SVM{node.attributes.get('kernel_type', 'LINEAR')}"
        if node.op_type == "Normalizer":
            return f"Normalizer{node.attributes.get('norm', 'MAX')}"
        if strings and node.op_type in ("LabelEncoder", "OneHotEncoder", "CategoryMapper"):
            return "LabelEncoderStrings"
        return "LabelEncoder" if node.op_type == "CategoryMapper" else node.op_type
    if node.op_type in _MAPS:
        return _map(node, first, second)
    return node.op_type if first is None else _moved(node, first)


# Of types for which no library multiplies matrices.
_PRODUCTS = {
    **dict.fromkeys(("int64", "uint64"), "MatMulInt64"),
    **dict.fromkeys(("int32", "uint32"), "MatMulInt32"),
    "float64": "MatMulFloat64",
}
_MAPS = _COMPARISONS | {"Pow", "Gelu", "Cast", "CastLike", "DequantizeLinear", "QuantizeLinear", "PRelu", "Mod"}


def _map(node: Node, first: Tensor | None, second: Tensor | None) -> str:
    """Of operators that make each element from one of each operand."""
    if node.op_type == "Pow":
        known = _power(second)
        whole = first is not None and not first.dtype.is_float
        return ("PowIntTensor" if known == "PowTensor" else "PowInt") if whole else known
    if node.op_type == "Gelu":
        return "GeluTanh" if node.attributes.get("approximate") == "tanh" else "Gelu"
    if node.op_type in ("Cast", "CastLike"):
        return _cast(first, node.output(0))
    if node.op_type in ("DequantizeLinear", "QuantizeLinear"):
        return _dequantize(node) if node.op_type == "DequantizeLinear" else _quantize(node)
    if first is None or second is None:
        return node.op_type
    if node.op_type == "PRelu":
        return "PRelu" if first.elements == second.elements else "PReluChannels"
    if node.op_type == "Mod":
        return "ModInt64" if first.dtype.name in _WHOLE else "Mod"
    return "EqualInt64" if first.dtype.name in _WHOLE or first.dtype.bits == _WIDE else node.op_type


def _quantize(node: Node) -> str:
    """Return a scale for each element of a row has a loop of its own, and so have blocks."""
    scale, source = node.input(1), node.input(0)
    if scale is None or source is None or not scale.rank or scale.elements == 1:
        return node.op_type
    last = _is_last(node.attributes.get("axis", 1), source)
    if node.attributes.get("block_size", 0):
        return node.op_type if last else "QuantizeBlocks"
    return "QuantizeLast" if last else node.op_type


def _is_last(axis: object, tensor: Tensor) -> bool:
    return bool(tensor.rank) and int(str(axis)) % (tensor.rank or 1) == (tensor.rank or 1) - 1


def _moved(node: Node, first: Tensor) -> str:
    """Of operators that read elements elsewhere than where they write them."""
    op, mode = node.op_type, node.attributes.get("mode")
    if op in _FORMS or op.startswith("Reduce"):
        return _FORMS.get(op, _reduction)(node, first)
    if (op, mode) in (("Pad", "wrap"), ("DepthToSpace", "CRD")):
        return "PadWrapped" if op == "Pad" else "DepthToSpaceCRD"
    if op == "Compress":
        return op if "axis" in node.attributes else "CompressFlat"
    if op == "Sign" and not first.dtype.is_float:
        return "SignInt"
    if op == "Slice":
        return "SliceSteps" if _steps_along_last(node, first) else op
    return op.removesuffix("Like") if op.startswith("Random") else op


def _resize(node: Node, source: Tensor) -> str:
    """Planes have loops of their own (core/providers/cpu/tensor/upsample.cc), other ranks general ones."""
    mode, target = node.attributes.get("mode", "nearest"), node.output(0)
    sizes, results = source.shape or (), (target.shape if target is not None else None) or ()
    scaled = [place for place, (one, other) in enumerate(zip(sizes, results, strict=False)) if one != other]
    if mode == "cubic" and not node.attributes.get("antialias"):
        down = math.prod(size or 1 for size in results) < math.prod(size or 1 for size in sizes)
        return "ResizeCubicDown" if down else "ResizeCubic"
    if mode != "nearest":
        if source.dtype.bits != _BYTE and (node.attributes.get("antialias") or len(sizes) == _IMAGE):
            last = len(sizes) == _IMAGE and bool(scaled) and scaled[-1] < len(sizes) - 1
            return "ResizeLinearLast" if last else "ResizeLinear"
        return "ResizeLinearAnywhere"
    if len(sizes) >= _VOLUME:
        return "ResizeNearestAnywhere"
    if source.dtype.bits == _BYTE and node.op_type == "Resize":
        return "ResizeBytes"
    floor = node.attributes.get("nearest_mode") == "floor" or node.op_type == "Upsample"
    twice = floor and len(sizes) == _IMAGE and [2 * size for size in sizes[2:] if size] == list(results[2:])
    plain = node.attributes.get("coordinate_transformation_mode") == "asymmetric" or node.op_type == "Upsample"
    return "ResizeNearestTwice" if twice and plain and sizes[:2] == results[:2] else "ResizeNearest"


def _grid_sample(node: Node, source: Tensor) -> str:
    """Bilinear images padded with zeros have a loop of their own (grid_sample.cc), others look each tap up."""
    mode = str(node.attributes.get("mode", "linear")).removeprefix("bi").capitalize()
    padding = node.attributes.get("padding_mode", "zeros")
    quick = mode == "Linear" and padding == "zeros" and not node.attributes.get("align_corners", 0)
    if source.rank == _VOLUME and mode != "Cubic":
        return f"GridSample{mode}Volume" + ("Reflected" if padding == "reflection" else "")
    if quick:
        return "GridSample"
    return f"GridSample{mode}" + ("Reflected" if padding == "reflection" else "")


_FAST_REDUCED = ("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin")


def _reduction(node: Node, source: Tensor) -> str:
    """Loops by axes that are reduced, R, and others, K (core/providers/cpu/reduction/reduction_ops.h)."""
    op, order = node.op_type, reduced_order(node)
    if not source.dtype.is_float and source.dtype.bits:
        if op.startswith("Arg"):
            return "ArgMaxInt"
        if op in ("ReduceMax", "ReduceMin") and source.dtype.bits <= _SINGLE and order != "RK":
            return "ReduceMax"
        return "ReduceInt64" if source.dtype.bits > _SINGLE else "ReduceInt32"
    if op.startswith("Arg") or op == "ReduceLogSumExp":
        return op
    if op not in _FAST_REDUCED:
        return "ReduceAll" if order == "R" else op
    if order in ("RK",) and op in ("ReduceMax", "ReduceMin"):
        return f"ReduceMax{FIRST_AXIS}"
    return op if order in ("", "R", "K", "KR", "RK", "KRK", "RKR") else "ReduceApart"


def named_axes(node: Node) -> Sequence[int] | None:
    """Return the axes that a reduction names, in an attribute or an input; None where it names none."""
    axes, given = node.attributes.get("axes"), node.input(1)
    if axes is None and given is not None and given.value is not None:
        axes = given.value.reshape(-1).tolist()
    return axes


def reduced_order(node: Node) -> str:
    """Return the axes of a reduction, neighbours of one sort as one: ``KRK`` of the middle one of three."""
    shape = (source.shape if (source := node.input(0)) is not None else None) or ()
    axes, given = named_axes(node), node.input(1)
    if given is not None and given.value is None:
        return ""
    places = {int(axis) % len(shape) for axis in axes} if shape and axes else set(range(len(shape)))
    letters = ["R" if place in places else "K" for place, size in enumerate(shape) if size != 1]
    return "".join(letter for letter, before in zip(letters, ["", *letters], strict=False) if letter != before)


def _along_axis(node: Node, source: Tensor) -> str:
    """Along the last axis each element waits for the one before, along others rows are added to rows."""
    rank, op = source.rank or 0, node.op_type
    given = node.input(1) if op.startswith("Cum") else None
    axis = (
        node.attributes.get("axis", -1) if given is None or given.value is None else given.value.reshape(-1)[0]
    )
    if op == "OneHot":
        return "OneHotOuter" if int(axis) not in (-1, rank) else op
    last = not rank or _is_last(axis, source)
    if op == "LpNormalization":
        return op if last else "LpNormalizationOuter"
    return "CumSum" if last else f"CumSum{FIRST_AXIS}"


def _steps_along_last(node: Node, source: Tensor) -> bool:
    """Return whether elements are left out between others: steps along other axes copy whole runs."""
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
    name = "ScatterElements" if node.op_type == "Scatter" else node.op_type
    return name if _is_last(node.attributes.get("axis", 0), first) else f"{name}Outer"


def _power(exponent: Tensor | None) -> str:
    """Squares and cubes are multiplied (core/providers/cpu/math/element_wise_ops.cc), others are powers."""
    if exponent is None or exponent.elements != 1:
        return "PowTensor"
    power = None if exponent.value is None else float(exponent.value.reshape(-1)[0])
    return {2.0: "Pow", 3.0: "PowCube"}.get(power or 0.0, "PowScalar")


def _pool(node: Node, source: Tensor) -> str:
    """Pools of images have a kernel of their own, of sequences and volumes loops; bytes are channels last.

    MLAS pools floats without gaps (core/providers/cpu/nn/pool.cc), and averages up to opset 18 alone. Others
    look each tap up, unless a session blocks the channels of an image (nchwc_transformer.cc).
    """
    if len(list(node.present_outputs)) > 1:
        return "MaxPoolIndices"
    blocked = source.rank == _IMAGE and not ((source.shape or (1, 1))[1] or 1) % BLOCK
    if node.op_type == "MaxPool" and source.dtype.bits == _BYTE:
        return BYTE_POOL
    has_gaps = any(gap != 1 for gap in node.attributes.get("dilations", ()))
    if node.op_type == "MaxPool" and (source.dtype.bits == _WIDE or (has_gaps and not blocked)):
        return "MaxPoolOfTaps"
    looked_up = node.op_type == "AveragePool" and node.version >= _AVERAGES_WITH_GAPS
    if looked_up and source.rank == _IMAGE and not blocked:
        return "AveragePoolOfTaps"
    return node.op_type + {_SEQUENCE: "1d", _VOLUME: "3d"}.get(source.rank or 0, "")


_SEQUENCE, _IMAGE, _VOLUME = 3, 4, 5
_AVERAGES_WITH_GAPS = 19  # the opset from which averages may leave out elements


_BYTE = 8


def _dequantize(node: Node) -> str:
    scale, data = node.input(1), node.input(0)
    if scale is None or data is None:
        return node.op_type
    if data.dtype.bits is not None and data.dtype.bits < _BYTE:
        return "DequantizePacked"
    if not scale.rank or scale.elements == 1:
        return node.op_type
    axis = int(node.attributes.get("axis", 1))
    if node.attributes.get("block_size", 0):
        return "DequantizeBlocksLast" if _is_last(axis, data) else "DequantizeBlocks"
    # Along the last axis the scale changes with each element; before it, runs of elements share one.
    return "DequantizeAxis" if _is_last(axis, data) else node.op_type


def _arithmetic(op: str, first: Tensor, second: Tensor) -> str:
    if op != "Div" and (first.dtype.bits == _WIDE or (op == "Mul" and first.dtype.name in _WHOLE)):
        return "MulInt64" if op == "Mul" and not first.dtype.is_float else "AddInt64"
    smaller = min(first.elements or 0, second.elements or 0)
    if op in ("Add", "Sub", "Mul") and smaller == 1:
        return "MulScalar" if op == "Mul" else "AddScalar"
    if op in ("Add", "Sub", "Mul") and first.elements != second.elements:
        return "AddBias"
    return op


def _cast(source: Tensor | None, target: Tensor | None) -> str:
    names = (source.dtype.name if source else "", target.dtype.name if target else "")
    halves = ("float16", "bfloat16")
    if names[1] in halves:
        return "CastHalf" if names[0] == "float32" else "CastToHalf"
    if names[0] in halves:
        return "CastFloat" if names[1] == "float32" else "CastFromHalf"
    if names in (("float32", "int64"), ("float64", "int64")):
        return "CastInt"
    if "bool" in names and "uint8" in names:
        return "CastBytes"
    if names[0] == "bool":
        return "CastFromBool"
    return "CastWide" if any("64" in name for name in names) else "CastNumbers"


def _transpose(node: Node, source: Tensor) -> str:
    rank = source.rank or 0
    return transposing(tuple(node.attributes.get("perm", range(rank - 1, -1, -1))), source.shape or ())


def transposing(order: Sequence[int], sizes: Sequence[int | None]) -> str:
    """Return the loop that moves axes of these sizes into this order."""
    rank = len(order)
    if order and order[-1] == rank - 1:
        return "TransposeHeads" if _moves_one_axis(order, sizes) else SAMPLED_RUNS
    if tuple(order[-2:]) == (rank - 1, rank - 2):
        name = "TransposeMatrix"
    elif _moves_one_axis(order, sizes):
        return "TransposeNHWC"
    else:
        name = "TransposeAny"
    if not order or len(sizes) != rank:
        return name
    # What is read one after the other lies whole pages apart: all falls into one set of the first cache.
    apart = math.prod(size or 1 for size in sizes[order[-1] + 1 :])
    many = (sizes[order[-1]] or 0) > _WAYS
    return f"{name}{ONE_SET}" if many and apart % _PAGE == 0 else name


# Lines of an address that the first cache and what is read ahead hold; floats of a page.
_WAYS, _PAGE = 32, 1024
ONE_SET, ONE_SET_TIMES = "OneSet", 3.2
"""End of the names of such loops, and how many times as long they take (1,024 x 1,024; 4 x 150 x 16,384)."""
SAMPLED_RUNS = "TransposeRuns"
"""A transpose that moves several axes and keeps the last: runs are copied, each with an index of its own."""


def sampled_run(node: Node, sizes: tuple[int, ...]) -> int:
    """Return elements of such a run: all behind the last axis that is moved."""
    run = 1
    for place, axis in reversed(list(enumerate(node.attributes.get("perm", ())))):
        if place != axis:
            break
        run *= sizes[axis]
    return run


def _moves_one_axis(order: Sequence[int], sizes: Sequence[int | None]) -> bool:
    """Return whether one axis of more than one element is moved past others, which has a loop of its own."""
    moved = [axis for axis in order if axis >= len(sizes) or sizes[axis] != 1]
    return any(
        all(before < after for before, after in pairwise(moved[:place] + moved[place + 1 :]))
        for place in range(len(moved))
    )


_FORMS: dict[str, Callable[[Node, Tensor], str]] = {
    "Transpose": _transpose,
    **dict.fromkeys(("Resize", "Upsample"), _resize),
    "GridSample": _grid_sample,
    **dict.fromkeys(("MaxPool", "AveragePool"), _pool),
    **dict.fromkeys(("ArgMax", "ArgMin"), _reduction),
    **dict.fromkeys(("CumSum", "CumProd", "LpNormalization", "OneHot"), _along_axis),
    **dict.fromkeys(_ALONG, _along),
}
