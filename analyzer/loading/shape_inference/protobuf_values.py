"""Loading: what protobuf stores -> plain Python values, element types and shapes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from analyzer.errors import GraphError
from analyzer.graph import DTYPES_BY_NUMBER, UNDEFINED, DType, Shape

if TYPE_CHECKING:
    import numpy as np
    import onnx

SMALL = 1024
"""Tensors of up to so many elements are kept as values: shapes, axes, scales."""

LONGEST = 8192
"""Elements of the rows that a loop's condition is computed from: where each of so many bags begins."""

LARGEST = 2**63 - 1
"""More elements than this cannot be addressed."""

Type = tuple[DType, Shape]
UNKNOWN_TYPE: Type = (UNDEFINED, None)

# Numbers of the enums of onnx.proto (TensorProto.DataLocation, TensorProto.DataType,
# AttributeProto.AttributeType), written out: onnx is imported where it is used, and these are compared for
# every node and tensor.
# raw_data is little-endian by onnx.proto, whatever the machine; bool and 8-bit types have no byte order.
_RAW = {1: "<f4", 2: "u1", 3: "i1", 6: "<i4", 7: "<i8", 9: "?", 10: "<f2", 11: "<f8"}
# The fields for values that are not raw; float16 and others share int32_data as bits and go through
# numpy_helper.
_FIELDS = {1: ("float_data", "f4"), 6: ("int32_data", "i4"), 7: ("int64_data", "i8"), 11: ("double_data", "f8")}
_FLOAT, _INT, _STRING, _TENSOR, _GRAPH, _FLOATS, _INTS, _STRINGS, _TENSORS = range(1, 10)
_TYPE_PROTO = 13
GRAPH_KINDS = (5, 10)
"""Attributes that hold bodies: AttributeProto.GRAPH, GRAPHS."""
EXTERNAL = 1
"""TensorProto.EXTERNAL."""


def size_name(tensor: str, axis: int, dim: onnx.TensorShapeProto.Dimension) -> str:
    """By what an open size is bound: its own name, else that of its place, ``x[0]``."""
    return dim.dim_param or f"{tensor}[{axis}]"


_READERS: Mapping[int, Callable[[Any], Any]] = {
    _INT: lambda proto: proto.i,
    _INTS: lambda proto: tuple(proto.ints[:]),
    _FLOAT: lambda proto: proto.f,
    _FLOATS: lambda proto: tuple(proto.floats[:]),
    _STRING: lambda proto: proto.s.decode("utf-8", "replace"),
    _STRINGS: lambda proto: tuple(text.decode("utf-8", "replace") for text in proto.strings),
    _TENSOR: lambda proto: tensor_value(proto.t),
    _TENSORS: lambda proto: tuple(map(tensor_value, proto.tensors)),
    _TYPE_PROTO: lambda proto: type_string(proto.tp),
}


def attribute_value(proto: onnx.AttributeProto) -> Any:
    """Return an attribute as a plain Python value; None for what has none here (subgraphs, references)."""
    reader = _READERS.get(proto.type)
    return None if reader is None else reader(proto)


def plain_attributes(protos: Iterable[onnx.AttributeProto]) -> dict[str, Any]:
    """Return a node's attributes as plain Python values, without those that hold subgraphs."""
    return {proto.name: attribute_value(proto) for proto in protos if proto.type not in GRAPH_KINDS}


def tensor_value(
    proto: onnx.TensorProto, limit: int = SMALL, *, shape: tuple[int, ...] | None = None
) -> np.ndarray[Any, Any] | None:
    """Return the elements of a stored tensor; None where they are many or lie elsewhere."""
    if proto.data_location == EXTERNAL:
        return None
    dims = tuple(proto.dims[:]) if shape is None else shape
    if math.prod(dims) > limit:
        return None
    import numpy as np

    code = proto.data_type
    try:
        raw = proto.raw_data
        if raw and code in _RAW:
            array = np.frombuffer(raw, _RAW[code])
            return array if array.shape == dims else array.reshape(dims)
        if code in _FIELDS:
            field, kind = _FIELDS[code]
            return np.array(getattr(proto, field)[:], kind).reshape(dims)
        from onnx import numpy_helper

        return numpy_helper.to_array(proto)
    except (ValueError, TypeError, KeyError) as error:  # KeyError: a type that there is none of
        raise GraphError(
            f"tensor '{proto.name}' says {list(dims)} but its data does not fit: {error}",
            hint="save the model again",
        ) from error


def declared_type(proto: onnx.TypeProto, name: str) -> Type:
    """Element type and shape as a file declares them; None for a size it leaves open.

    Raises:
        GraphError: A size is negative or the tensor is larger than can be addressed; names the tensor.
    """
    tensor = proto.tensor_type
    # The quick way for what is whole: dim_value of an open dimension reads as 0, so that one `min` finds both.
    dims = [dim.dim_value for dim in tensor.shape.dim]
    if dims and min(dims) > 0 and tensor.elem_type in DTYPES_BY_NUMBER and math.prod(dims) <= LARGEST:
        return DTYPES_BY_NUMBER[tensor.elem_type], tuple(dims)
    if proto.HasField("tensor_type"):
        dtype = DTYPES_BY_NUMBER.get(tensor.elem_type, UNDEFINED)
        if not tensor.HasField("shape"):
            return dtype, None
        return dtype, checked(
            tuple(dim.dim_value if dim.HasField("dim_value") else None for dim in tensor.shape.dim), name
        )
    text = type_string(proto)
    return (DType(name=text, bits=None), None) if text else UNKNOWN_TYPE


def checked(shape: Shape, name: str) -> Shape:
    """Return the same shape, if a tensor can have it.

    Raises:
        GraphError: A size is negative, or the product is over 2**63 - 1; names the tensor.
    """
    if not shape:
        return shape
    count, lowest = 1, 0
    for size in shape:
        if size is not None:
            count *= size  # Python's integers do not wrap: over 2**63 - 1 stays over it
            if size < lowest:
                lowest = size
    if lowest < 0:
        raise GraphError(
            f"tensor '{name}' has a negative size: {_text(shape)}",
            hint="a size is 0 or more; an open one has a name instead of a number",
        )
    if count > LARGEST:
        raise GraphError(
            f"tensor '{name}' has more elements than can be addressed: {_text(shape)}",
            hint="check the sizes that the file declares and the batch",
        )
    return shape


def type_string(proto: onnx.TypeProto) -> str:
    """ONNX's type string (``seq(tensor(float))``); empty where the type is not said."""
    kind = proto.WhichOneof("value")
    if kind in ("tensor_type", "sparse_tensor_type"):
        element = getattr(proto, kind).elem_type
        name = _element_name(element)
        return f"{'sparse_' if kind.startswith('sparse') else ''}tensor({name})"
    if kind == "sequence_type":
        return f"seq({type_string(proto.sequence_type.elem_type)})"
    if kind == "optional_type":
        return f"optional({type_string(proto.optional_type.elem_type)})"
    if kind == "map_type":
        return f"map({_element_name(proto.map_type.key_type)},{type_string(proto.map_type.value_type)})"
    return ""


def _element_name(number: int) -> str:
    name = DTYPES_BY_NUMBER.get(number, UNDEFINED).name
    return {"float32": "float", "float64": "double"}.get(name, name)


def _text(shape: Shape) -> str:
    return "[" + ", ".join("?" if size is None else str(size) for size in shape or ()) + "]"
