"""Loading: the values of small tensors that are known before the model runs (shapes, axes, trip counts).

A list and nothing else: operators of shape arithmetic are a table of NumPy functions, and some more are
evaluated by ``onnx.reference``. With it alone a graph of 1,800 operators, of which 1,200 are folded, takes 2.6
times as long to make. Each is cheap by construction, whatever a file asks for: it reads few numbers, takes time
in proportion to what it reads and gives, and gives little. Each function takes NumPy, attributes and inputs and
gives the first output, or a tuple of all of them.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from analyzer.graph import DTYPES_BY_NUMBER, UNDEFINED, DType
from analyzer.loading.shape_inference.protobuf_values import LONGEST, SMALL

if TYPE_CHECKING:
    import numpy as np
    import onnx

    Array = np.ndarray[Any, Any]
    Attributes = Mapping[str, Any]
    # One that is absent is None; operators that need it fail, and so give nothing.
    Arrays = Sequence[Any]
    # The first argument is NumPy, which is imported where it is used.
    Fold = Callable[[Any, Attributes, Arrays], Any]


def fold(
    op_type: str,
    attributes: Attributes,
    inputs: Arrays,
    proto: onnx.NodeProto | None = None,
    opset: int = 0,
    *,
    most: int = SMALL,
) -> tuple[Array, ...] | None:
    """The outputs of an operator of the default domain all of whose inputs are known.

    None if they stay unknown: the operator is not on the list, it reads texts, or its result is large.

    Args:
        op_type: Which.
        attributes: Its own.
        inputs: What it reads.
        proto: The node, without which NumPy's functions alone are asked.
        opset: Of the default domain.
        most: Elements from which on something is large.
    """
    import numpy as np

    function = _FUNCTIONS.get(op_type)
    if function is None and (op_type not in BY_REFERENCE or proto is None):
        return None
    # A literal of the file may be longer than what is folded; a text has no size that its array tells, and
    # decides no shape.
    if any(
        array is not None and not (array.size <= most and array.dtype.kind not in "OSU") for array in inputs
    ):
        return None
    try:
        with np.errstate(all="ignore"):
            if function is not None:
                result = function(np, attributes, inputs)
            else:
                assert proto is not None
                result = _reference(proto, inputs, opset)
    except Exception:  # a value that cannot be had stays unknown; what cannot be at all, inference tells
        return None
    arrays = result if isinstance(result, tuple) else (result,)
    return (
        tuple(map(np.asarray, arrays))
        if all(getattr(array, "size", most + 1) <= most for array in arrays)
        else None
    )


def dtype_of(array: Array) -> DType:
    """The element type of a folded value."""
    import onnx

    try:
        return DTYPES_BY_NUMBER[onnx.helper.np_dtype_to_tensor_dtype(array.dtype)]
    except (KeyError, ValueError):
        return UNDEFINED


def _reference(proto: onnx.NodeProto, inputs: Arrays, opset: int) -> tuple[Array, ...]:
    import onnx
    from onnx.reference import ReferenceEvaluator

    # A model of this one node: the evaluator knows every operator that onnx defines, functions too.
    graph = onnx.helper.make_graph(
        [proto],
        "fold",
        [onnx.helper.make_empty_tensor_value_info(name) for name in proto.input if name],
        [onnx.helper.make_empty_tensor_value_info(name) for name in proto.output if name],
    )
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", opset)])
    feeds = {name: value for name, value in zip(proto.input, inputs, strict=False) if name}
    return tuple(ReferenceEvaluator(model).run(None, feeds))


def _cast(_: Any, attributes: Attributes, inputs: Arrays) -> Any:
    import onnx

    return inputs[0].astype(onnx.helper.tensor_dtype_to_np_dtype(attributes["to"]))


def _axes(attributes: Attributes, inputs: Arrays) -> tuple[int, ...] | None:
    """Return axes as attribute (older opsets) or as input (newer ones)."""
    if "axes" in attributes:
        return tuple(attributes["axes"])
    if len(inputs) > 1 and inputs[1] is not None:
        return tuple(int(axis) for axis in inputs[1].ravel())
    return None


def _slice(_: Any, attributes: Attributes, inputs: Arrays) -> Any:
    data, *given = inputs
    parts: list[Any] = [None if array is None else array.tolist() for array in given]
    if not given:
        parts = [attributes["starts"], attributes["ends"], attributes.get("axes")]
    starts, ends, axes, steps, *_ = (*parts, None, None)
    key = [slice(None)] * data.ndim
    for position, axis in enumerate(axes or range(len(starts))):
        step = steps[position] if steps else 1
        end: int | None = ends[position]
        # Backwards to the very first element: Python's slices need None for it, ONNX a number below -size.
        if step < 0 and end is not None and end < -data.shape[axis]:
            end = None
        key[axis] = slice(starts[position], end, step)
    return data[tuple(key)]


def _reshape(_: Any, attributes: Attributes, inputs: Arrays) -> Any:
    data = inputs[0]
    shape = attributes["shape"] if "shape" in attributes else inputs[1].tolist()
    if not attributes.get("allowzero"):
        shape = [data.shape[axis] if size == 0 else size for axis, size in enumerate(shape)]
    return data.reshape(shape)


def _small(shape: Sequence[int]) -> Sequence[int]:
    if math.prod(shape) > LONGEST:
        raise ValueError("too large to be worth folding")
    return shape


def _constant_of_shape(np: Any, attributes: Attributes, inputs: Arrays) -> Any:
    shape = _small(inputs[0].tolist())
    value = attributes.get("value")  # a tensor of one element; float32 zeros without it
    return np.zeros(shape, np.float32) if value is None else np.full(shape, value.reshape(()), value.dtype)


def _range(np: Any, _: Attributes, inputs: Arrays) -> Any:
    start, limit, delta = (array.reshape(-1)[0].item() for array in inputs[:3])
    _small((max(0, math.ceil((limit - start) / delta)),))
    return np.asarray(np.arange(start, limit, delta), inputs[0].dtype)


def _tile(np: Any, _: Attributes, inputs: Arrays) -> Any:
    data, repeats = inputs[0], inputs[1].tolist()
    _small([size * times for size, times in zip(data.shape, repeats, strict=True)])
    return np.tile(data, repeats)


def _divide(np: Any, _: Attributes, inputs: Arrays) -> Any:
    left, right = inputs
    if left.dtype.kind not in "iu":
        return left / right
    # ONNX rounds whole quotients towards zero, as C does; NumPy's // rounds down.
    return np.asarray(np.abs(left) // np.abs(right) * np.sign(left) * np.sign(right), left.dtype)


def _split(np: Any, attributes: Attributes, inputs: Arrays) -> Any:
    sizes = attributes.get("split")
    if sizes is None and len(inputs) > 1 and inputs[1] is not None:
        sizes = inputs[1].tolist()
    if sizes is None:
        raise ValueError("equal parts: their number is the node's number of outputs")
    return tuple(np.split(inputs[0], np.cumsum(sizes)[:-1], attributes.get("axis", 0)))


def _ufunc(name: str) -> Fold:
    def function(np: Any, _: Attributes, inputs: Arrays) -> Any:
        ufunc = getattr(np, name)
        return ufunc(*inputs[: ufunc.nin])

    return function


def _variadic(name: str) -> Fold:
    return lambda np, _, inputs: functools.reduce(getattr(np, name), inputs)


def _reduction(name: str) -> Fold:
    def function(np: Any, attributes: Attributes, inputs: Arrays) -> Any:
        data, axes = inputs[0], _axes(attributes, inputs)
        if not axes and attributes.get("noop_with_empty_axes"):
            return data
        result = getattr(np, name)(data, axis=axes or None, keepdims=bool(attributes.get("keepdims", 1)))
        return np.asarray(result, data.dtype)  # NumPy sums int32 as int64; ONNX keeps the type

    return function


_FUNCTIONS: Mapping[str, Fold] = {
    "Abs": _ufunc("abs"),
    "Add": _ufunc("add"),
    "And": _ufunc("logical_and"),
    "Cast": _cast,
    "Ceil": _ufunc("ceil"),
    # Opsets 1 to 3 may leave the axis out: it is 1 there.
    "Concat": lambda np, attributes, inputs: np.concatenate(inputs, attributes.get("axis", 1)),
    "ConstantOfShape": _constant_of_shape,
    "Div": _divide,
    "Equal": _ufunc("equal"),
    "Expand": lambda np, _, inputs: np.broadcast_to(
        inputs[0], _small(np.broadcast_shapes(inputs[0].shape, tuple(inputs[1].tolist())))
    ),
    "Floor": _ufunc("floor"),
    "Gather": lambda _, attributes, inputs: inputs[0].take(inputs[1], attributes.get("axis", 0)),
    "Greater": _ufunc("greater"),
    "GreaterOrEqual": _ufunc("greater_equal"),
    "Identity": lambda *given: given[-1][0],
    "Less": _ufunc("less"),
    "LessOrEqual": _ufunc("less_equal"),
    "Max": _variadic("maximum"),
    "Min": _variadic("minimum"),
    # fmod has the dividend's sign, as in C; without it ONNX takes the divisor's, as Python does.
    "Mod": lambda np, attributes, inputs: (np.fmod if attributes.get("fmod") else np.mod)(*inputs[:2]),
    "Mul": _ufunc("multiply"),
    "Neg": _ufunc("negative"),
    "Not": _ufunc("logical_not"),
    "Or": _ufunc("logical_or"),
    "Range": _range,
    "ReduceMax": _reduction("max"),
    "ReduceMin": _reduction("min"),
    "ReduceProd": _reduction("prod"),
    "ReduceSum": _reduction("sum"),
    "Reshape": _reshape,
    "Sign": _ufunc("sign"),
    "Slice": _slice,
    "Split": _split,
    "Sqrt": _ufunc("sqrt"),
    "Squeeze": lambda _, attributes, inputs: inputs[0].squeeze(_axes(attributes, inputs)),
    "Sub": _ufunc("subtract"),
    "Sum": _variadic("add"),
    "Tile": _tile,
    "Transpose": lambda _, attributes, inputs: inputs[0].transpose(attributes.get("perm")),
    "Unsqueeze": lambda np, attributes, inputs: np.expand_dims(inputs[0], _axes(attributes, inputs) or ()),
    "Where": lambda np, _, inputs: np.where(*inputs),
    "Xor": _ufunc("logical_xor"),
}
# By onnx.reference: seldom met in shape arithmetic. They give at most as many numbers as they read, or as many
# for each index (NonZero, GatherND). Not here, on purpose: what makes a size from a number (Pad, OneHot,
# windows), what repeats or joins texts, what searches (RegexFullMatch), all that computes more than it reads.
BY_REFERENCE = frozenset(
    (
        *("ArgMax", "ArgMin", "BitShift", "BitwiseAnd", "BitwiseNot", "BitwiseOr", "BitwiseXor", "Clip"),
        *("Compress", "Cos", "CumSum", "Exp", "EyeLike", "Flatten", "GatherElements", "GatherND", "IsInf"),
        *("IsNaN", "Log", "Mean", "NonZero", "Pow", "Reciprocal", "ReduceMean", "Round", "Scatter"),
        *("ScatterElements", "ScatterND", "Sin", "TopK", "Trilu", "Unique"),
    )
)
