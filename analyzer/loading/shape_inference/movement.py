"""Loading: the types of what operators give that move elements, and of shapes."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from analyzer.graph import DTYPES, DTYPES_BY_NUMBER, broadcast
from analyzer.loading.shape_inference.protobuf_values import Attributes
from analyzer.loading.shape_inference.rules import (
    AttributeValues,
    KnownInput,
    OutputTypes,
    axes_of,
    axis_of,
    numbers,
    rule,
)

_INT64 = DTYPES["int64"]


@rule("Flatten")
def _flatten(inputs: Sequence[KnownInput], attributes: AttributeValues, _outputs: int) -> OutputTypes:
    shape, axis = inputs[0].shape, attributes.get("axis", 1)
    if (
        not -len(shape) <= axis <= len(shape)
    ):  # one more than axis_of allows: the cut may lie behind the last axis
        return None
    return ((inputs[0].dtype, (prod(shape[:axis]), prod(shape[axis:]))),)


@rule("Concat")
def _concat(inputs: Sequence[KnownInput], attributes: AttributeValues, _outputs: int) -> OutputTypes:
    first = inputs[0].shape
    axis = axis_of(attributes["axis"], len(first))
    along = 0
    for tensor in inputs:
        shape = tensor.shape
        if shape[:axis] != first[:axis] or shape[axis + 1 :] != first[axis + 1 :]:
            return None
        along += shape[axis]
    return ((inputs[0].dtype, (*first[:axis], along, *first[axis + 1 :])),)


@rule("Transpose")
def _transpose(inputs: Sequence[KnownInput], attributes: AttributeValues, _outputs: int) -> OutputTypes:
    shape = inputs[0].shape
    order = attributes.get("perm") or range(len(shape) - 1, -1, -1)
    if sorted(order) != list(range(len(shape))):
        return None
    return ((inputs[0].dtype, tuple([shape[axis] for axis in order])),)


@rule("Reshape")
def _reshape(inputs: Sequence[KnownInput], attributes: AttributeValues, _outputs: int) -> OutputTypes:
    shape, requested = inputs[0].shape, numbers(inputs[1])
    if requested is None:
        return None
    # A 0 copies the size of the input at that place; with allowzero (opset 14) it is a size of no elements.
    if 0 in requested:
        if attributes.get("allowzero", 0):
            return None
        requested = [size or shape[axis] for axis, size in enumerate(requested)]
    size = prod(shape)
    if -1 in requested:
        rest = -prod(requested)
        # With a size of 0 beside it, a -1 could be anything.
        if requested.count(-1) > 1 or not rest or size % rest:
            return None
        requested[requested.index(-1)] = size // rest
    return (
        ((inputs[0].dtype, tuple(requested)),)
        if prod(requested) == size and min(requested, default=0) >= 0
        else None
    )


@rule("Unsqueeze")
def _unsqueeze(inputs: Sequence[KnownInput], attributes: AttributeValues, _outputs: int) -> OutputTypes:
    shape, axes = inputs[0].shape, axes_of(inputs, attributes)
    if axes is None:
        return None
    rank = len(shape) + len(axes)
    new = {axis_of(axis, rank) for axis in axes}
    old = iter(shape)
    return (
        ((inputs[0].dtype, tuple([1 if axis in new else next(old) for axis in range(rank)])),)
        if len(new) == len(axes)
        else None
    )


@rule("Squeeze")
def _squeeze(inputs: Sequence[KnownInput], attributes: AttributeValues, _outputs: int) -> OutputTypes:
    shape, axes = inputs[0].shape, axes_of(inputs, attributes)
    if axes is None:
        return None
    removed = {axis_of(axis, len(shape)) for axis in axes}
    if any(shape[axis] != 1 for axis in removed):
        return None
    return ((inputs[0].dtype, tuple([size for axis, size in enumerate(shape) if axis not in removed])),)


@rule("Gather")
def _gather(inputs: Sequence[KnownInput], attributes: AttributeValues, _outputs: int) -> OutputTypes:
    shape = inputs[0].shape
    axis = axis_of(attributes.get("axis", 0), len(shape))
    # The indices' whole shape takes the axis's place: a scalar index removes the axis.
    return ((inputs[0].dtype, (*shape[:axis], *inputs[1].shape, *shape[axis + 1 :])),)


@rule("GatherElements")
def _gather_elements(inputs: Sequence[KnownInput], _attributes: AttributeValues, _outputs: int) -> OutputTypes:
    return ((inputs[0].dtype, inputs[1].shape),)


@rule("Slice")
def _slice(inputs: Sequence[KnownInput], attributes: AttributeValues, _outputs: int) -> OutputTypes:
    if "starts" in attributes:  # opsets 1 to 9; inputs since opset 10
        parts: list[Any] = [attributes["starts"], attributes["ends"], attributes.get("axes"), None]
    else:
        parts = [numbers(tensor) for tensor in inputs[1:]]
        # An optional input that is absent has its default; one that is there but not known decides the sizes.
        if any(part is None and tensor is not None for part, tensor in zip(parts, inputs[1:], strict=True)):
            return None
        parts += [None] * (4 - len(parts))
    starts, ends, axes, steps = parts
    sizes = list(inputs[0].shape)
    axes = [axis_of(axis, len(sizes)) for axis in axes or range(len(starts))]
    if len(set(axes)) < len(axes):
        return None
    for start, end, axis, step in zip(starts, ends, axes, steps or (1,) * len(axes), strict=True):
        # ONNX clamps starts and ends as Python's slices do, INT64_MAX for "to the end" included.
        sizes[axis] = len(range(*slice(start, end, step).indices(sizes[axis])))
    return ((inputs[0].dtype, tuple(sizes)),)


@rule("Split")
def _split(inputs: Sequence[KnownInput], attributes: AttributeValues, outputs: int) -> OutputTypes:
    shape = inputs[0].shape
    axis = axis_of(attributes.get("axis", 0), len(shape))
    parts: Sequence[int] | None
    if "split" in attributes:
        parts = attributes["split"]
    elif len(inputs) > 1 and inputs[1] is not None:
        parts = numbers(inputs[1])
    elif "num_outputs" in attributes:
        # Where the size does not divide evenly, the last part is smaller: the sum below is then not the size,
        # and ONNX's inference is asked.
        parts = [shape[axis] // outputs] * outputs
    else:  # even parts up to opset 17, an error from 18 on
        return None
    if parts is None or sum(parts) != shape[axis] or len(parts) != outputs or min(parts) < 0:
        return None
    return [(inputs[0].dtype, (*shape[:axis], part, *shape[axis + 1 :])) for part in parts]


@rule("Expand")
def _expand(inputs: Sequence[KnownInput], _attributes: AttributeValues, _outputs: int) -> OutputTypes:
    requested = numbers(inputs[1])
    # The result has the larger rank of both and broadcasts both ways: a 1 in the request keeps the input's
    # size.
    if requested is None or min(requested, default=1) < 1:
        return None
    return ((inputs[0].dtype, broadcast([inputs[0].shape, tuple(requested)])),)


@rule("Tile")
def _tile(inputs: Sequence[KnownInput], _attributes: AttributeValues, _outputs: int) -> OutputTypes:
    shape, repeats = inputs[0].shape, numbers(inputs[1])
    if repeats is None or min(repeats, default=0) < 0:
        return None
    return ((inputs[0].dtype, tuple([size * times for size, times in zip(shape, repeats, strict=True)])),)


@rule("Shape")
def _shape(inputs: Sequence[KnownInput], attributes: AttributeValues, _outputs: int) -> OutputTypes:
    axes = inputs[0].shape[attributes.get("start", 0) : attributes.get("end")]
    return ((_INT64, (len(axes),)),)


@rule("ConstantOfShape")
def _constant_of_shape(inputs: Sequence[KnownInput], attributes: AttributeValues, _outputs: int) -> OutputTypes:
    requested = numbers(inputs[0])
    # The type alone: reading the tensor would cost more than all else about the node. 1 is float32, the
    # default.
    number = attributes.data_type("value") if isinstance(attributes, Attributes) else 1
    if requested is None or min(requested, default=0) < 0:
        return None
    return ((DTYPES_BY_NUMBER[number], tuple(requested)),)


@rule("GatherND")
def _gather_nd(inputs: Sequence[KnownInput], attributes: AttributeValues, _outputs: int) -> OutputTypes:
    data, indices = inputs[0].shape, inputs[1].shape
    batch = attributes.get("batch_dims", 0)
    # Each row of indices takes one element, or what lies behind it.
    taken = batch + indices[-1]
    if not 0 <= batch < min(len(data), len(indices)) or taken > len(data) or data[:batch] != indices[:batch]:
        return None
    return ((inputs[0].dtype, (*indices[:-1], *data[taken:])),)
