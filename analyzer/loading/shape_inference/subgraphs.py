"""Loading: what is fed to the bodies of If, Loop and Scan, and what they give."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from analyzer.graph import DTYPES, Graph, Shape, Tensor, Trips
from analyzer.loading.shape_inference.onnx_inference import Types, element_type, merged
from analyzer.loading.shape_inference.protobuf_values import UNKNOWN_TYPE, Type, declared_type

if TYPE_CHECKING:
    import onnx

InputTensors = Sequence[Tensor | None]
AttributeMap = Mapping[str, Any]


def body_inputs(
    proto: onnx.NodeProto,
    body: onnx.GraphProto,
    inputs: InputTensors,
    attributes: AttributeMap,
    carried: Graph | None = None,
) -> list[Type]:
    """The types of a body's inputs from those of the node that runs it.

    Args:
        proto: The node.
        body: Its subgraph.
        inputs: What the node reads.
        attributes: The node's attributes.
        carried: The body once built; sizes of its state that one pass through it changes are left open.
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
        return [_closed_with_ones(kind) for kind in declared] if proto.domain == "com.microsoft" else declared
    given += [UNKNOWN_TYPE] * (len(declared) - len(given))
    return [merged(one, two) for one, two in zip(given, declared, strict=False)]


def _loop(inputs: InputTensors, carried: Graph | None) -> list[Type]:
    state = [_type(tensor) for tensor in inputs[2:]]
    if carried is not None:
        state = [
            _unchanged_by_a_pass(kind, after) for kind, after in zip(state, carried.outputs[1:], strict=False)
        ]
    # A body reads the trip's number, the condition and then the state (onnx/defs/controlflow/defs.cc).
    return [(DTYPES["int64"], ()), (DTYPES["bool"], ()), *state]


def _unchanged_by_a_pass(kind: Type, after: Tensor) -> Type:
    """What of a shape holds before and after one pass."""
    dtype, before = kind
    if before is None or after.shape is None or len(before) != len(after.shape):
        return dtype, None
    return dtype, tuple(one if one == two else None for one, two in zip(before, after.shape, strict=True))


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


def _closed_with_ones(kind: Type) -> Type:
    """A generation body's input with 1 in place of what stays open."""
    dtype, shape = kind
    return dtype, None if shape is None else tuple(1 if size is None else size for size in shape)


def _type(tensor: Tensor | None) -> Type:
    return UNKNOWN_TYPE if tensor is None else (tensor.dtype, tensor.shape)


def control_flow_types(
    proto: onnx.NodeProto,
    inputs: InputTensors,
    attributes: AttributeMap,
    graphs: Mapping[str, Graph],
    trips: Trips | None = None,
) -> Types:
    """The types of the outputs of If, Loop and Scan from those of their bodies, by output name.

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
    """What of a shape holds for both."""
    if one is None or two is None or len(one) != len(two):
        return None
    return tuple(first if first == second else None for first, second in zip(one, two, strict=True))


def _loop_types(inputs: InputTensors, body: Graph, found: Trips | None) -> list[Type]:
    count = len(body.inputs) - 2
    trips = _trip_count(inputs, body) if found is None else int(found.count) if found.exact else None
    results = [_type(tensor) for tensor in body.outputs[1:]]
    if trips == 0:  # the body never runs: the state goes through unchanged
        results[:count] = [_type(tensor) for tensor in inputs[2:]]
    scanned = [(dtype, None if shape is None else (trips, *shape)) for dtype, shape in results[count:]]
    return results[:count] + scanned


def _trip_count(inputs: InputTensors, body: Graph) -> int | None:
    """How often a Loop runs, where its limit is known and its condition never turns false."""
    limit = inputs[0].value if inputs and inputs[0] is not None else None
    if limit is None or limit.size != 1:
        return None
    start = inputs[1] if len(inputs) > 1 else None
    if start is not None and (start.value is None or not start.value.reshape(-1)[0]):
        return None
    return int(limit.reshape(-1)[0]) if condition_stays_true(body) else None


def condition_stays_true(body: Graph) -> bool:
    """Whether a Loop's body always gives a true condition, given that it was true."""
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
