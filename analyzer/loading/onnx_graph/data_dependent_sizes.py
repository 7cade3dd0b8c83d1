"""Sizes that only the data decide (how many elements a mask keeps), as large as they can be expected to be.

Operators that make such sizes get the outputs that follow from what they are given; the sizes of all that is
behind them follow by the usual inference. The graph itself keeps its open sizes: these are for counting alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from analyzer.graph import Graph, Node, Tensor

if TYPE_CHECKING:
    import onnx

    Shapes = Mapping[str, tuple[int, ...]]

# Under this domain an operator is not inferred: its outputs have the shapes that are declared.
_DOMAIN = "analyzer.likely"
# What a source decides may decide the next one: proposals, then the detections among them.
_ROUNDS = 3
# They give elements of what they read, none that is new.
_SAME_VALUES = frozenset(
    {"Cast", "Expand", "Gather", "Identity", "Reshape", "Slice", "Squeeze", "Transpose", "Unsqueeze"}
)
_DATA_DEPENDENT = frozenset({"NonZero", "Compress", "Unique", "NonMaxSuppression", "Split"})


def expected_shapes(
    graph: Graph, model: Callable[[], onnx.ModelProto], remake: Callable[[onnx.ModelProto], Graph]
) -> Shapes:
    """The whole shapes expected of tensors that have an open size in ``graph``, by name.

    Args:
        graph: The model's.
        model: Gives a copy of the model; its nodes carry the names of the graph's.
        remake: Makes the graph of a changed model.
    """
    if not any(node.op_type in _DATA_DEPENDENT and _is_open(node.output(0)) for node in graph.nodes):
        return {}
    copy = model()
    copy.opset_import.add(domain=_DOMAIN, version=1)  # ONNX's inference refuses a model that lacks it
    current = graph
    for _ in range(_ROUNDS):
        proposed = _proposed_shapes(current)
        if not proposed:
            break
        _declare(copy, proposed)
        current = remake(copy)
    known = {tensor.name: tensor.shape for node in current.nodes for tensor in node.present_outputs}
    expected = {}
    for node in graph.nodes:
        for tensor in node.present_outputs:
            shape = known.get(tensor.name)
            if _is_open(tensor) and shape is not None and None not in shape:
                expected[tensor.name] = tuple(size for size in shape if size is not None)
    return expected


def _is_open(tensor: Tensor | None) -> bool:
    return tensor is not None and (tensor.shape is None or None in tensor.shape)


def _proposed_shapes(graph: Graph) -> dict[str, list[tuple[int, ...]]]:
    """By name of a node whose data decide a size: the shapes of its outputs."""
    ready = [node for node in graph.nodes if node.op_type in _DATA_DEPENDENT and _is_open(node.output(0))]
    compared = {node.name: _compared_with(graph, node.input(0)) for node in ready if node.op_type == "NonZero"}
    # A loop over experts compares the same choice with one expert each: as many masks as experts share its
    # elements.
    rivals = Counter(other for other, count in compared.values() if count == 1)
    shapes = {}
    for node in ready:
        if any(_is_open(tensor) for tensor in node.present_inputs):
            continue
        other, count = compared.get(node.name, ("", 0))
        shapes[node.name] = _output_shapes(node, max(count, rivals[other]) if other else 1)
    return shapes


def _output_shapes(node: Node, share: int) -> list[tuple[int, ...]]:
    data = node.input(0)
    assert data is not None
    assert data.shape is not None
    elements = data.elements or 0
    if node.op_type == "NonZero":
        return [(len(data.shape), -(-elements // share))]  # an index on each axis for each
    if node.op_type == "Split":
        axis, parts = node.attributes.get("axis", 0) % len(data.shape), len(node.outputs)
        even = tuple(-(-(size or 0) // parts) if i == axis else size or 0 for i, size in enumerate(data.shape))
        return [even] * parts
    if node.op_type == "NonMaxSuppression":
        return [(_selected_boxes(node), 3)]  # batch, class and box of each: the most that it can give
    axis = node.attributes.get("axis")
    if node.op_type == "Compress":
        return [(elements,) if axis is None else tuple(size or 0 for size in data.shape)]
    # Unique: values, first positions, inverse and counts; as if all were different.
    along = elements if axis is None else data.shape[axis] or 0
    first = (elements,) if axis is None else tuple(size or 0 for size in data.shape)
    return [first, (along,), (along,), (along,)]


def _selected_boxes(node: Node) -> int:
    scores, limit = node.input(1), node.input(2)
    assert scores is not None
    assert scores.shape is not None
    batch, classes, boxes = (size or 0 for size in scores.shape)
    most = int(limit.value.ravel()[0]) if limit is not None and limit.value is not None else boxes
    return batch * classes * min(most, boxes)


def _compared_with(graph: Graph, tensor: Tensor | None) -> tuple[str, int]:
    """What a mask compares with constants, and with how many: each element equals at most one of them.

    One-hot rows come from such a comparison; loops over experts compare one choice with each in turn.
    """
    while tensor is not None and tensor.name in graph.producer:
        node = graph.nodes[graph.producer[tensor.name]]
        if node.op_type == "OneHot":
            depth = node.input(1)
            known = depth is not None and depth.value is not None
            return tensor.name, int(depth.value.ravel()[0]) if known else 0  # type: ignore[union-attr]
        if node.op_type == "Equal":
            sides = [side for side in node.present_inputs if not side.constant]
            fixed = [side for side in node.present_inputs if side.constant]
            if len(sides) == len(fixed) == 1:
                return _same_values_before(graph, sides[0]), fixed[0].elements or 0
            return "", 0
        if node.op_type not in _SAME_VALUES:
            return "", 0
        tensor = node.input(0)
    return "", 0


def _same_values_before(graph: Graph, tensor: Tensor) -> str:
    """The name of a tensor before it was cast or laid out anew."""
    while tensor.name in graph.producer:
        node = graph.nodes[graph.producer[tensor.name]]
        before = node.input(0)
        if node.op_type not in _SAME_VALUES or before is None:
            break
        tensor = before
    return tensor.name


def _declare(model: onnx.ModelProto, proposed: Mapping[str, list[tuple[int, ...]]]) -> None:
    """Has the nodes' outputs keep the shapes that are told."""
    from onnx import TensorProto, helper

    graph = model.graph
    declared = {value.name: value for value in (*graph.value_info, *graph.output)}
    for node in graph.node:
        if node.name not in proposed:
            continue
        node.domain = _DOMAIN
        for position, (name, shape) in enumerate(zip(node.output, proposed[node.name], strict=False)):
            value = declared.get(name) or graph.value_info.add(name=name)
            kind: int = TensorProto.INT64  # indices and counts; the first output of some holds data
            if node.op_type == "Split" or (position == 0 and node.op_type in ("Compress", "Unique")):
                kind = value.type.tensor_type.elem_type or TensorProto.FLOAT
            value.type.CopyFrom(helper.make_tensor_type_proto(kind, shape))
