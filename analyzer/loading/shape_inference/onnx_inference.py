"""Loading, third step: what protobuf stores as plain values, and the types of all tensors by ONNX's inference.

One pass over the whole model tells nearly everything. What it leaves open is inferred again, node by node,
once the values that decide it have been folded. Bodies of If, Loop and Scan are fed what their node reads.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from analyzer.errors import GraphError
from analyzer.graph import (
    DEFAULT_DOMAIN,
    DTYPES,
    DTYPES_BY_NUMBER,
    UNDEFINED,
    DType,
    Graph,
    Shape,
    Tensor,
    Trips,
)
from analyzer.operators import CONTRIB_DOMAIN
from analyzer.process import now_at

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
    """Return the same shape, if a tensor can have it."""
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


Types = dict[str, Type]

WITH_GRAPHS = frozenset({"If", "Loop", "Scan", "SequenceMap"})
"""Operators of ONNX's own domain that run bodies."""


def infer_model(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return the model with the types that its inputs and weights imply as value_info.

    None are there where inference cannot be had at all.

    What the model states is cleared: inference would take it for true, and leave open what contradicts it.
    """
    from onnx import shape_inference

    now_at("onnx's shape inference of the whole model")
    without_sizes(model.graph)
    try:
        # data_prop follows the values of Shape, Gather and Concat through the graph: they decide what Reshape
        # gives.
        return shape_inference.infer_shapes(model, data_prop=True)
    except Exception:  # what C++ throws on a graph it cannot read: nodes are then inferred one by one
        return model


def without_sizes(graph: onnx.GraphProto, *, numbers_only: bool = False) -> None:
    """Clear what a graph and its bodies state of tensors that its nodes imply.

    With ``numbers_only`` a statement that has a symbol stays, and all types of elements do.
    """
    for value in (*graph.value_info, *graph.output):
        if numbers_only:
            _clear_shape(value, numbers_only=True)
        else:
            value.ClearField("type")
    for node in graph.node:
        own = (node.domain or DEFAULT_DOMAIN) != DEFAULT_DOMAIN
        if not own and node.op_type not in WITH_GRAPHS:
            continue
        for attribute in node.attribute:
            if attribute.type not in GRAPH_KINDS:
                continue
            for body in (attribute.g, *attribute.graphs):
                without_sizes(body, numbers_only=numbers_only)
                # Operators of other domains make their bodies' inputs themselves: nothing else tells them.
                if not own:
                    for value in body.input:
                        _clear_shape(value, numbers_only=numbers_only)


def _clear_shape(value: onnx.ValueInfoProto, *, numbers_only: bool) -> None:
    kind = value.type.tensor_type
    dims = kind.shape.dim
    if not numbers_only or (dims and all(dim.HasField("dim_value") for dim in dims)):
        kind.ClearField("shape")


def graph_types(graph: onnx.GraphProto, *, lenient: bool = False) -> Types:
    """Return the types that a graph's value_info and outputs tell, by tensor name.

    Args:
        graph: A graph after inference.
        lenient: Leave a size that cannot be open instead of refusing it: inference gives such ones in branches
            that are never taken.
    """
    read = _open_where_impossible if lenient else declared_type
    types: Types = {}
    seen: dict[bytes, Type] = {}  # most of a graph's tensors share few types
    for value in itertools.chain(graph.value_info, graph.output):
        name, proto = value.name, value.type
        key = proto.SerializeToString()
        kind = seen.get(key)
        if kind is None:
            kind = seen[key] = read(proto, name)
        types[name] = kind
    return types


def _open_where_impossible(proto: onnx.TypeProto, name: str) -> Type:
    for dim in proto.tensor_type.shape.dim:
        if dim.dim_value < 0:
            dim.Clear()
    return declared_type(proto, name)


Memo = dict[tuple[object, ...], tuple[list[Type | None], str]]
"""What was inferred, by all that decides it: a model's layers are alike."""


def infer_node(
    proto: onnx.NodeProto,
    inputs: Sequence[Tensor | None],
    opsets: Mapping[str, int],
    ir_version: int,
    *,
    memo: Memo,
    lenient: bool = False,
) -> tuple[Types, str]:
    """Return the types of a node's outputs from those of its inputs, and why ONNX forbids the node.

    Small values are known. No types are there where nothing tells; the reason is empty where none is given.
    """
    outputs = proto.output[:]
    # Attributes as bytes: those of any kind compare so, tensors too. The names of inputs and outputs are no
    # part of it, only which outputs there are: that is what makes equal layers one entry.
    key = (
        lenient,
        proto.op_type,
        proto.domain,
        *[attribute.SerializeToString() for attribute in proto.attribute],
        *[tensor and (tensor.dtype.name, tensor.shape, _bytes(tensor.value)) for tensor in inputs],
        *[bool(name) for name in outputs],
    )
    known = memo.get(key)
    if known is None:
        types, forbidden = _infer_outputs(proto, inputs, opsets, ir_version, lenient)
        known = memo[key] = [types.get(name) for name in outputs], forbidden
    kinds, forbidden = known
    return {name: kind for name, kind in zip(outputs, kinds, strict=True) if kind is not None}, forbidden


def _bytes(value: np.ndarray[Any, Any] | None) -> object:
    if value is None:
        return None
    return value.tobytes() if value.dtype != object else repr(value.tolist())


def _infer_outputs(
    proto: onnx.NodeProto,
    inputs: Iterable[Tensor | None],
    opsets: Mapping[str, int],
    ir_version: int,
    lenient: bool,
) -> tuple[Types, str]:
    import onnx
    from onnx import numpy_helper, shape_inference

    domain = "" if proto.domain == DEFAULT_DOMAIN else proto.domain
    try:
        schema = onnx.defs.get_schema(proto.op_type, opsets.get(domain or DEFAULT_DOMAIN, 1), domain)
        # ONNX's inference of one node reads constants from `data` alone, whatever the graph around it holds.
        types, data = {}, {}
        for name, tensor in zip(proto.input, inputs, strict=False):
            if tensor is not None:
                types[name] = type_proto(tensor)
                if tensor.value is not None:
                    data[name] = numpy_helper.from_array(tensor.value, name)
        imports = [
            onnx.helper.make_opsetid("" if key == DEFAULT_DOMAIN else key, opsets[key]) for key in opsets
        ]
        inferred = shape_inference.infer_node_outputs(schema, proto, types, data, None, imports, ir_version)
    except shape_inference.InferenceError as error:
        # What ONNX says of a node, without the kinds of its errors.
        return {}, re.sub(r"\[\w+\]\s*|\(op_type:[^)]*\):?\s*", "", str(error)).strip().partition("\n")[0][:200]
    except Exception:  # C++ throws several types at nodes it cannot infer: their outputs stay open
        return {}, ""
    read = _open_where_impossible if lenient else declared_type
    return {name: read(value, name) for name, value in inferred.items()}, ""


def strict_errors(model: onnx.ModelProto) -> str:
    """Return what ONNX's inference refuses in a whole model; empty where it refuses nothing."""
    from onnx import shape_inference

    try:
        shape_inference.infer_shapes(model, strict_mode=True)
    except shape_inference.InferenceError as error:
        return str(error)
    return ""


def merged(first: Type | None, second: Type | None) -> Type:
    """Return what two sources know of one tensor; the first wins where they differ."""
    if first is None or second is None:
        return first or second or UNKNOWN_TYPE
    dtype = first[0] if first[0].name != "undefined" else second[0]
    one, two = first[1], second[1]
    if one is None or two is None or len(one) != len(two):
        return dtype, two if one is None else one
    return dtype, tuple(other if size is None else size for size, other in zip(one, two, strict=True))


def is_open(kind: Type | None) -> bool:
    """Return whether a tensor's type leaves anything to find out."""
    if kind is None:
        return True
    dtype, shape = kind
    # The shape of a sequence, optional or map is None by nature: its type is written with parentheses,
    # `seq(...)`.
    if shape is None:
        return "(" not in dtype.name
    return None in shape or not dtype.onnx


def type_proto(tensor: Tensor) -> onnx.TypeProto:
    """Return a tensor's type in ONNX's form."""
    import onnx

    if "(" in tensor.dtype.name:
        return _parsed(tensor.dtype.name)
    return onnx.helper.make_tensor_type_proto(tensor.dtype.onnx, tensor.shape)


def element_type(dtype_name: str) -> onnx.TypeProto | None:
    """Return the element type, in ONNX's form, of a sequence or optional; None for anything else."""
    kind, _, rest = dtype_name.partition("(")
    return _parsed(rest[:-1]) if kind in ("seq", "optional") else None


def _parsed(text: str) -> onnx.TypeProto:
    import onnx

    helper = onnx.helper
    match = re.fullmatch(r"(\w+)\((.*)\)", text)
    if match is None:
        return onnx.TypeProto()
    kind, inner = match.groups()
    if kind == "seq":
        return helper.make_sequence_type_proto(_parsed(inner))
    if kind == "optional":
        return helper.make_optional_type_proto(_parsed(inner))
    if kind == "map":
        key, _, value = inner.partition(",")
        return helper.make_map_type_proto(_element_number(key), _parsed(value))
    make = helper.make_sparse_tensor_type_proto if kind == "sparse_tensor" else helper.make_tensor_type_proto
    return make(_element_number(inner), None)


def _element_number(name: str) -> int:
    import onnx

    return int(onnx.TensorProto.DataType.Value(name.upper()))


InputTensors = Sequence[Tensor | None]
AttributeMap = Mapping[str, Any]


def body_inputs(
    proto: onnx.NodeProto,
    body: onnx.GraphProto,
    inputs: InputTensors,
    attributes: AttributeMap,
    carried: Graph | None = None,
) -> list[Type]:
    """Return the types of a body's inputs from those of the node that runs it.

    With ``carried``, the body once built, sizes of its state that one pass through it changes are left open.
    """
    declared = [declared_type(value.type, value.name) for value in body.input]
    if proto.op_type == "Loop":
        given = _loop(inputs, carried)
    elif proto.op_type == "Scan":
        given = _scan(inputs, attributes, len(declared))
    elif proto.op_type == "SequenceMap":
        given = [_element(tensor) for tensor in inputs]
    else:
        # BeamSearch, GreedySearch and Sampling make the bodies' inputs themselves
        # (onnxruntime/contrib_ops/cpu/transformers/subgraph_gpt.cc): no input of the node tells them.
        if proto.domain != CONTRIB_DOMAIN:
            return declared
        # There 1 is in place of what stays open.
        return [
            (kind, shape and tuple(1 if size is None else size for size in shape)) for kind, shape in declared
        ]
    given += [UNKNOWN_TYPE] * (len(declared) - len(given))
    return [merged(one, two) for one, two in zip(given, declared, strict=False)]


def _loop(inputs: InputTensors, carried: Graph | None) -> list[Type]:
    state = [_type(tensor) for tensor in inputs[2:]]
    if carried is not None:
        # What of a shape holds before and after one pass.
        pairs = zip(state, carried.outputs[1:], strict=False)
        state = [(dtype, common_shape(before, after.shape)) for (dtype, before), after in pairs]
    # A body reads the trip's number, the condition and then the state (onnx/defs/controlflow/defs.cc).
    return [(DTYPES["int64"], ()), (DTYPES["bool"], ()), *state]


def _scan(inputs: InputTensors, attributes: AttributeMap, count: int) -> list[Type]:
    fed = list(inputs)[len(inputs) - count :]
    scanned = attributes.get("num_scan_inputs", 0)
    batched = len(fed) < len(inputs)  # opset 8 puts sequence_lens first and a batch axis on everything
    axes = attributes.get("scan_input_axes") or (0,) * scanned
    types = []
    for position, tensor in enumerate(fed):
        dtype, shape = _type(tensor)
        shape = shape[1:] if batched and shape else shape
        if position >= count - scanned and shape:
            axis = axes[position - (count - scanned)] % len(shape)
            shape = shape[:axis] + shape[axis + 1 :]
        types.append((dtype, shape))
    return types


def _element(tensor: Tensor | None) -> Type:
    if tensor is None:
        return UNKNOWN_TYPE
    kind = element_type(tensor.dtype.name)
    return _type(tensor) if kind is None else declared_type(kind, tensor.name)


def _type(tensor: Tensor | None) -> Type:
    return UNKNOWN_TYPE if tensor is None else (tensor.dtype, tensor.shape)


def control_flow_types(
    proto: onnx.NodeProto,
    inputs: InputTensors,
    attributes: AttributeMap,
    graphs: Mapping[str, Graph],
    trips: Trips | None = None,
) -> Types:
    """Return the types of the outputs of If, Loop and Scan from those of their bodies, by output name.

    ``trips`` of a Loop, where they were found; else its limit alone tells them.
    """
    if proto.op_type == "If":
        types = _if_types(inputs, graphs)
    elif proto.op_type == "Loop":
        types = _loop_types(inputs, graphs["body"], trips)
    elif proto.op_type == "Scan":
        types = _scan_types(inputs, attributes, graphs["body"])
    else:
        return {}
    return {name: kind for name, kind in zip(proto.output, types, strict=False) if name}


def _if_types(inputs: InputTensors, graphs: Mapping[str, Graph]) -> list[Type]:
    yes, no = (
        [_type(tensor) for tensor in graphs[branch].outputs] for branch in ("then_branch", "else_branch")
    )
    condition = inputs[0].value if inputs[0] is not None else None
    if condition is not None:
        return yes if condition.reshape(-1)[0] else no
    return [(one[0], common_shape(one[1], two[1])) for one, two in zip(yes, no, strict=False)]


def common_shape(one: Shape, two: Shape) -> Shape:
    """Return what of a shape holds for both."""
    if one is None or two is None or len(one) != len(two):
        return None
    return tuple(first if first == second else None for first, second in zip(one, two, strict=True))


def _loop_types(inputs: InputTensors, body: Graph, counted: Trips | None) -> list[Type]:
    count = len(body.inputs) - 2
    trips = _trip_count(inputs, body) if counted is None else int(counted.count) if counted.exact else None
    results = [_type(tensor) for tensor in body.outputs[1:]]
    if trips == 0:  # the body never runs: the state goes through unchanged
        results[:count] = [_type(tensor) for tensor in inputs[2:]]
    scanned = [(dtype, None if shape is None else (trips, *shape)) for dtype, shape in results[count:]]
    return results[:count] + scanned


def _trip_count(inputs: InputTensors, body: Graph) -> int | None:
    """Return how often a Loop runs, where its limit is known and its condition never turns false."""
    limit = inputs[0].value if inputs and inputs[0] is not None else None
    if limit is None or limit.size != 1:
        return None
    start = inputs[1] if len(inputs) > 1 else None
    if start is not None and (start.value is None or not start.value.reshape(-1)[0]):
        return None
    return int(limit.reshape(-1)[0]) if condition_stays_true(body) else None


def condition_stays_true(body: Graph) -> bool:
    """Return whether a Loop's body always gives a true condition, given that it was true."""
    result: Tensor | None = body.outputs[0]
    while result is not None and result is not body.inputs[1]:
        if result.value is not None:
            return bool(result.value.reshape(-1)[0])
        index = body.producer.get(result.name)
        if index is None or body.nodes[index].op_type != "Identity":
            return False
        result = body.nodes[index].inputs[0]
    return result is not None


def _scan_types(inputs: InputTensors, attributes: AttributeMap, body: Graph) -> list[Type]:
    scanned = attributes.get("num_scan_inputs", 0)
    count = len(body.inputs) - scanned
    batched = len(inputs) > len(body.inputs)
    axes = attributes.get("scan_input_axes") or (0,) * scanned
    first = inputs[len(inputs) - scanned]
    shape = None if first is None else first.shape
    lead: tuple[int | None, ...] = () if not batched else (shape[0] if shape else None,)
    length = shape[axes[0] + len(lead)] if shape else None
    types: list[Type] = []
    out_axes = attributes.get("scan_output_axes") or (0,) * (len(body.outputs) - count)
    for position, tensor in enumerate(body.outputs):
        dtype, inner = _type(tensor)
        if inner is not None and position >= count:
            axis = out_axes[position - count] % (len(inner) + 1)
            inner = (*inner[:axis], length, *inner[axis:])
        types.append((dtype, None if inner is None else lead + inner))
    return types
