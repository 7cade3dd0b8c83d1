"""Loading: how many tensors a sequence has and of what shape, and so the shapes of what is made of it.

ONNX's types say of a sequence no more than the type of its tensors: what loops gather in one and join behind
them would have no known size.
"""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from typing import Any, NamedTuple

from analyzer.graph import Node, Tensor
from analyzer.loading.shape_inference.onnx_inference import common_shape
from analyzer.loading.shape_inference.protobuf_values import UNKNOWN_TYPE, Type

Names = list[str]


class Sequence(NamedTuple):
    """A sequence.

    Attributes:
        length: How many tensors it has; None where that is not known.
        element: What all of them are.
    """

    length: int | None
    element: Type


def followed(call: Node, names: Names, known: MutableMapping[str, Sequence]) -> Mapping[str, Type]:
    """Note a node's sequences in ``known``, by name; return the types of the tensors that it makes of one."""
    op_type, inputs = call.op_type, call.inputs
    if op_type == "SequenceEmpty":
        known[names[0]] = Sequence(0, UNKNOWN_TYPE)
    elif op_type == "SequenceConstruct":
        made = Sequence(0, UNKNOWN_TYPE)
        for tensor in inputs:
            made = _inserted(made, tensor)
        known[names[0]] = made
    elif op_type == "SequenceInsert":
        if inputs[0] is not None and inputs[0].name in known:
            known[names[0]] = _inserted(known[inputs[0].name], inputs[1])
    elif op_type == "Loop" and "body" in call.graphs:
        known.update(_of_states(call, names, known))
    elif op_type == "ConcatFromSequence" and inputs[0] is not None and inputs[0].name in known:
        joined = _joined(known[inputs[0].name], call.attributes)
        return {} if joined is None else {names[0]: joined}
    return {}


def _inserted(before: Sequence, tensor: Tensor | None, count: int | None = 1) -> Sequence:
    element = UNKNOWN_TYPE if tensor is None else (tensor.dtype, tensor.shape)
    if before.length == 0:
        return Sequence(count, element)
    length = None if before.length is None or count is None else before.length + count
    return Sequence(length, (element[0], common_shape(before.element[1], element[1])))


def _of_states(call: Node, names: Names, known: Mapping[str, Sequence]) -> dict[str, Sequence]:
    """The sequences into which each pass of a loop puts one tensor more."""
    body = call.graphs["body"]
    count = int(call.trips.count) if call.trips is not None and call.trips.exact else None
    states: dict[str, Sequence] = {}
    rows = zip(call.inputs[2:], body.inputs[2:], body.outputs[1:], names, strict=False)
    for given, before, after, name in rows:
        index = body.producer.get(after.name)
        node: Node | None = None if index is None else body.nodes[index]
        if given is None or given.name not in known or node is None or node.op_type != "SequenceInsert":
            continue
        if node.input(0) is before:
            states[name] = (
                known[given.name] if count == 0 else _inserted(known[given.name], node.input(1), count)
            )
    return states


def _joined(joined: Sequence, attributes: Mapping[str, Any]) -> Type | None:
    """What ConcatFromSequence makes of a sequence."""
    dtype, shape = joined.element
    if shape is None:
        return None
    if attributes.get("new_axis", 0):
        axis = attributes["axis"] % (len(shape) + 1)
        return dtype, (*shape[:axis], joined.length, *shape[axis:])
    axis = attributes["axis"] % len(shape)
    size = shape[axis]
    whole = None if size is None or joined.length is None else size * joined.length
    return dtype, (*shape[:axis], whole, *shape[axis + 1 :])
