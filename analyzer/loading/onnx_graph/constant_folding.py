"""Loading: the values of small tensors that are known before the model runs (shapes, axes, trip counts).

A list and nothing else: operators of shape arithmetic are a table of NumPy functions, and some more are
evaluated by ``onnx.reference``. With it alone a graph of 1,800 operators, of which 1,200 are folded, takes 2.6
times as long to make. Each is cheap by construction, whatever a file asks for: it reads few numbers, takes time
in proportion to what it reads and gives, and gives little. Each function takes attributes and inputs and gives
the first output, or a tuple of all of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from analyzer.graph import DTYPES_BY_NUMBER, UNDEFINED, DType, Tensor
from analyzer.loading.shape_inference.protobuf_values import LONGEST, SMALL

if TYPE_CHECKING:
    import numpy as np
    import onnx

    Array = np.ndarray[Any, Any]
    Arrays = Sequence[Array | None]
    Attributes = Mapping[str, Any]
    Fold = Callable[[Attributes, Arrays], Array | tuple[Array, ...]]


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

    function = _functions().get(op_type)
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
                result = function(attributes, inputs)
            else:
                assert proto is not None
                result = _reference(proto, inputs, opset)
    except Exception:  # a value that cannot be had stays unknown; what cannot be at all, inference tells
        return None
    arrays = result if isinstance(result, tuple) else (result,)
    return tuple(map(np.asarray, arrays)) if all(_is_small(array, most) for array in arrays) else None


def cast_like(array: Array, like: Tensor) -> tuple[Array, ...] | None:
    """Return a known value in the element type of another tensor, whose own value need not be known."""
    import onnx

    if not like.dtype.onnx:
        return None
    return (array.astype(onnx.helper.tensor_dtype_to_np_dtype(like.dtype.onnx)),)


def dtype_of(array: Array) -> DType:
    """The element type of a folded value."""
    import onnx

    try:
        return DTYPES_BY_NUMBER[onnx.helper.np_dtype_to_tensor_dtype(array.dtype)]
    except (KeyError, ValueError):
        return UNDEFINED


def _is_small(array: object, most: int) -> bool:
    return getattr(array, "size", most + 1) <= most


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


def _cast(attributes: Attributes, inputs: Arrays) -> Array:
    import onnx

    return _known(inputs, 0).astype(onnx.helper.tensor_dtype_to_np_dtype(attributes["to"]))


def _known(inputs: Arrays, position: int) -> Array:
    value = inputs[position]
    if value is None:
        raise ValueError(f"input {position} is absent")
    return value


def _axes(attributes: Attributes, inputs: Arrays, position: int = 1) -> tuple[int, ...] | None:
    """Axes as attribute (older opsets) or as input (newer ones)."""
    if "axes" in attributes:
        return tuple(attributes["axes"])
    if len(inputs) > position and inputs[position] is not None:
        return tuple(int(axis) for axis in _known(inputs, position).ravel())
    return None


def _unsqueeze(attributes: Attributes, inputs: Arrays) -> Array:
    import numpy as np

    data = _known(inputs, 0)
    axes = _axes(attributes, inputs) or ()
    return np.expand_dims(data, axes)


def _squeeze(attributes: Attributes, inputs: Arrays) -> Array:
    return _known(inputs, 0).squeeze(_axes(attributes, inputs))


def _slice(attributes: Attributes, inputs: Arrays) -> Array:
    data = _known(inputs, 0)
    if len(inputs) == 1:
        starts, ends = attributes["starts"], attributes["ends"]
        axes, steps = attributes.get("axes"), None
    else:
        starts, ends = _known(inputs, 1).tolist(), _known(inputs, 2).tolist()
        axes = None if len(inputs) < 4 or inputs[3] is None else _known(inputs, 3).tolist()
        steps = None if len(inputs) < 5 or inputs[4] is None else _known(inputs, 4).tolist()
    key = [slice(None)] * data.ndim
    for position, axis in enumerate(axes or range(len(starts))):
        step = steps[position] if steps else 1
        end: int | None = ends[position]
        # Backwards to the very first element: Python's slices need None for it, ONNX a number below -size.
        if step < 0 and end is not None and end < -data.shape[axis]:
            end = None
        key[axis] = slice(starts[position], end, step)
    return data[tuple(key)]


def _reshape(attributes: Attributes, inputs: Arrays) -> Array:
    data = _known(inputs, 0)
    shape = attributes["shape"] if "shape" in attributes else _known(inputs, 1).tolist()
    if not attributes.get("allowzero"):
        shape = [data.shape[axis] if size == 0 else size for axis, size in enumerate(shape)]
    return data.reshape(shape)


def _expand(_: Attributes, inputs: Arrays) -> Array:
    import numpy as np

    data = _known(inputs, 0)
    shape = np.broadcast_shapes(data.shape, tuple(_known(inputs, 1).tolist()))
    _check_small(shape)
    return np.broadcast_to(data, shape)


def _check_small(shape: Sequence[int]) -> None:
    if math.prod(shape) > LONGEST:
        raise ValueError("too large to be worth folding")


def _constant_of_shape(attributes: Attributes, inputs: Arrays) -> Array:
    import numpy as np

    shape = _known(inputs, 0).tolist()
    _check_small(shape)
    value = attributes.get("value")  # a tensor of one element; float32 zeros without it
    return np.zeros(shape, np.float32) if value is None else np.full(shape, value.reshape(()), value.dtype)


def _range(_: Attributes, inputs: Arrays) -> Array:
    import numpy as np

    dtype = _known(inputs, 0).dtype
    start, limit, delta = (_known(inputs, position).reshape(-1)[0].item() for position in range(3))
    _check_small((max(0, math.ceil((limit - start) / delta)),))
    return np.asarray(np.arange(start, limit, delta), dtype)


def _tile(_: Attributes, inputs: Arrays) -> Array:
    import numpy as np

    data, repeats = _known(inputs, 0), _known(inputs, 1).tolist()
    _check_small([size * times for size, times in zip(data.shape, repeats, strict=True)])
    return np.tile(data, repeats)


def _divide(_: Attributes, inputs: Arrays) -> Array:
    import numpy as np

    left, right = _known(inputs, 0), _known(inputs, 1)
    if left.dtype.kind not in "iu":
        return np.asarray(left / right)
    # ONNX rounds whole quotients towards zero, as C does; NumPy's // rounds down.
    quotient = np.abs(left) // np.abs(right)
    return np.asarray(quotient * np.sign(left) * np.sign(right), left.dtype)


def _modulo(attributes: Attributes, inputs: Arrays) -> Array:
    import numpy as np

    # fmod has the dividend's sign, as in C; without it ONNX takes the divisor's, as Python does.
    return np.asarray((np.fmod if attributes.get("fmod") else np.mod)(_known(inputs, 0), _known(inputs, 1)))


def _concat(attributes: Attributes, inputs: Arrays) -> Array:
    import numpy as np

    # Opsets 1 to 3 may leave the axis out: it is 1 there.
    return np.concatenate([array for array in inputs if array is not None], attributes.get("axis", 1))


def _split(attributes: Attributes, inputs: Arrays) -> tuple[Array, ...]:
    import numpy as np

    data, axis = _known(inputs, 0), attributes.get("axis", 0)
    sizes = attributes.get("split")
    if sizes is None and len(inputs) > 1 and inputs[1] is not None:
        sizes = _known(inputs, 1).tolist()
    if sizes is None:
        raise ValueError("equal parts: their number is the node's number of outputs")
    return tuple(np.split(data, np.cumsum(sizes)[:-1], axis))


def _binary(name: str) -> Fold:
    def function(_: Attributes, inputs: Arrays) -> Array:
        import numpy as np

        return np.asarray(getattr(np, name)(_known(inputs, 0), _known(inputs, 1)))

    return function


def _unary(name: str) -> Fold:
    def function(_: Attributes, inputs: Arrays) -> Array:
        import numpy as np

        return np.asarray(getattr(np, name)(_known(inputs, 0)))

    return function


def _variadic(name: str) -> Fold:
    def function(_: Attributes, inputs: Arrays) -> Array:
        import functools

        import numpy as np

        return np.asarray(functools.reduce(getattr(np, name), [array for array in inputs if array is not None]))

    return function


def _reduction(name: str) -> Fold:
    def function(attributes: Attributes, inputs: Arrays) -> Array:
        import numpy as np

        axes = _axes(attributes, inputs)
        if not axes and attributes.get("noop_with_empty_axes"):
            return _known(inputs, 0)
        data = _known(inputs, 0)
        result = getattr(np, name)(data, axis=axes or None, keepdims=bool(attributes.get("keepdims", 1)))
        return np.asarray(result, data.dtype)  # NumPy sums int32 as int64; ONNX keeps the type

    return function


def _gather(attributes: Attributes, inputs: Arrays) -> Array:
    return _known(inputs, 0).take(_known(inputs, 1), attributes.get("axis", 0))


def _where(_: Attributes, inputs: Arrays) -> Array:
    import numpy as np

    return np.where(_known(inputs, 0), _known(inputs, 1), _known(inputs, 2))


_BINARY = {
    "Add": "add",
    "Sub": "subtract",
    "Mul": "multiply",
    "Equal": "equal",
    "Greater": "greater",
    "GreaterOrEqual": "greater_equal",
    "Less": "less",
    "LessOrEqual": "less_equal",
    "And": "logical_and",
    "Or": "logical_or",
    "Xor": "logical_xor",
}
_UNARY = {
    "Not": "logical_not",
    "Neg": "negative",
    "Abs": "abs",
    "Floor": "floor",
    "Ceil": "ceil",
    "Sqrt": "sqrt",
    "Sign": "sign",
}
_VARIADIC = {"Max": "maximum", "Min": "minimum", "Sum": "add"}
_REDUCTION = {"ReduceProd": "prod", "ReduceSum": "sum", "ReduceMax": "max", "ReduceMin": "min"}
_WRITTEN_OUT: dict[str, Fold] = {
    "Cast": _cast,
    "Concat": _concat,
    "ConstantOfShape": _constant_of_shape,
    "Div": _divide,
    "Expand": _expand,
    "Gather": _gather,
    "Identity": lambda _, inputs: _known(inputs, 0),
    "Mod": _modulo,
    "Range": _range,
    "Reshape": _reshape,
    "Slice": _slice,
    "Split": _split,
    "Squeeze": _squeeze,
    "Tile": _tile,
    "Transpose": lambda attributes, inputs: _known(inputs, 0).transpose(attributes.get("perm")),
    "Unsqueeze": _unsqueeze,
    "Where": _where,
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
# Filled at the first use: NumPy is imported then.
_functions_by_type: dict[str, Fold] = {}


def _functions() -> dict[str, Fold]:
    if not _functions_by_type:
        _functions_by_type.update(_WRITTEN_OUT)
        makers = ((_BINARY, _binary), (_UNARY, _unary), (_VARIADIC, _variadic), (_REDUCTION, _reduction))
        for names, make in makers:
            _functions_by_type.update({op_type: make(name) for op_type, name in names.items()})
    return _functions_by_type
