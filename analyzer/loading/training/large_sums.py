"""Sums over all of a large tensor, in two rounds: ONNX Runtime adds one after another in single precision.

Its CPU provider's mean of 10^8 squares is off by 2 %; over the last axes first and then over the rest, by 2e-7.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from analyzer.loading.training.translation_registry import take_type

if TYPE_CHECKING:
    import onnx_ir as ir

# Numbers of one example that may be added one after another: rounding errors grow with them. The batch does not
# count, so that the step has the same operators at every batch.
_AT_ONCE = 2**10


def split_large_sums(model: ir.Model) -> None:
    """Puts a round over the last axes before every sum or mean of more than 1,024 numbers an example to one."""
    for node in list(model.graph):
        if node.domain or node.op_type not in ("ReduceMean", "ReduceSum") or not node.inputs:
            continue
        source, result = node.inputs[0], node.outputs[0]
        sizes, result_sizes = _sizes(source), _sizes(result)
        if source is None or sizes is None or result_sizes is None:
            continue
        if len(sizes) > 1 and prod(sizes[1:]) > _AT_ONCE and prod(result_sizes) == 1:
            _split(model, node, source, sizes)


def _sizes(value: ir.Value | None) -> list[int] | None:
    """A value's sizes where all are known."""
    if value is None or value.shape is None:
        return None
    sizes = [size for size in value.shape if isinstance(size, int)]
    return sizes if len(sizes) == len(value.shape) else None


def _split(model: ir.Model, node: ir.Node, source: ir.Value, sizes: list[int]) -> None:
    import onnx_ir

    first = (len(sizes) + 1) // 2  # about as many axes in each round; the batch is in the second
    axes = _axes(model, range(first, len(sizes)))
    inner = onnx_ir.node(node.op_type, [source, axes], attributes={"keepdims": 1}, name=f"{node.name}/inner")
    inner.metadata_props.update(node.metadata_props)
    value = inner.outputs[0]
    value.name = f"{node.outputs[0].name}/inner"
    take_type(value, source)
    value.shape = onnx_ir.Shape(sizes[:first] + [1] * (len(sizes) - first))
    model.graph.insert_before(node, inner)
    node.replace_input_with(0, value)


def _axes(model: ir.Model, axes: range) -> ir.Value:
    import numpy as np
    import onnx_ir

    name = f"axes/{axes.start}-{axes.stop}"
    if name not in model.graph.initializers:
        tensor = onnx_ir.tensor(np.asarray(list(axes), np.int64), name=name)
        value = onnx_ir.Value(name=name, const_value=tensor)
        value.shape, value.dtype = onnx_ir.Shape([len(axes)]), onnx_ir.DataType.INT64
        model.graph.initializers[name] = value
    return model.graph.initializers[name]
