"""Transposed operands of products, taken into the product, as the forward pass of a Linear has them."""

from __future__ import annotations

from typing import Any


def merge_transposes(model: Any) -> None:
    """Turns a product of matrices of which one is transposed into ``Gemm`` with ``transA`` or ``transB``."""
    for node in list(model.graph):
        if node.domain or node.op_type not in ("MatMul", "Gemm"):
            continue
        if any(value is None or value.shape is None or len(value.shape) != 2 for value in node.inputs[:2]):
            continue
        flags = [_transposed(value) for value in node.inputs[:2]]
        if any(flags):
            _merge(model, node, flags)
    _drop_unused(model)


def _transposed(value: Any) -> bool:
    producer = value.producer()
    if producer is None or producer.op_type != "Transpose" or producer.domain:
        return False
    attribute = producer.attributes.get("perm")
    return attribute is None or list(attribute.as_ints()) == [1, 0]


def _merge(model: Any, node: Any, flags: list[bool]) -> None:
    import onnx_ir

    before = [bool(node.attributes.get_int(name, 0)) for name in ("transA", "transB")]
    inputs = [
        value.producer().inputs[0] if flag else value for value, flag in zip(node.inputs[:2], flags, strict=True)
    ]
    if any(value.shape is None for value in inputs):
        return
    attributes = {
        name: int(was != flag) for name, was, flag in zip(("transA", "transB"), before, flags, strict=True)
    }
    for name in ("alpha", "beta"):
        if name in node.attributes:
            attributes[name] = node.attributes[name].as_float()
    merged = onnx_ir.node("Gemm", [*inputs, *node.inputs[2:]], attributes=attributes, name=node.name)
    merged.metadata_props.update(node.metadata_props)
    old, new = node.outputs[0], merged.outputs[0]
    new.shape, new.dtype, new.name = old.shape, old.dtype, old.name
    model.graph.insert_before(node, merged)
    old.replace_all_uses_with(new, replace_graph_outputs=True)
    model.graph.remove(node, safe=True)


def _drop_unused(model: Any) -> None:
    outputs = set(map(id, model.graph.outputs))
    for node in reversed(list(model.graph)):
        if node.op_type == "Transpose" and not any(
            value.uses() or id(value) in outputs for value in node.outputs
        ):
            model.graph.remove(node, safe=True)
