"""Transposed operands of products, taken into the product, as the forward pass of a Linear has them."""

from __future__ import annotations

from typing import Any


def merge_transposes(model: Any) -> None:
    """Turns a product of matrices of which one is transposed into ``Gemm`` with ``transA`` or ``transB``."""
    for node in list(model.graph):
        if _is_transpose(node) and node.inputs[0] is not None and _is_transpose(node.inputs[0].producer()):
            source = node.inputs[0].producer().inputs[0]
            node.outputs[0].replace_all_uses_with(source, replace_graph_outputs=True)
    _drop_unused(model)
    for node in list(model.graph):
        if node.domain or node.op_type not in ("MatMul", "Gemm"):
            continue
        if any(value is None or value.shape is None or len(value.shape) != 2 for value in node.inputs[:2]):
            continue
        flags = [_transposed(value) for value in node.inputs[:2]]
        if any(flags):
            _merge(model, node, flags)
    for node in list(model.graph):
        if _is_transpose(node) and _is_lone_product(node.inputs[0]):
            _turn(model, node)
    _drop_unused(model)


def _is_transpose(node: Any) -> bool:
    if node is None or node.op_type != "Transpose" or node.domain:
        return False
    attribute, shape = node.attributes.get("perm"), node.outputs[0].shape
    turned = attribute is None or list(attribute.as_ints()) == [1, 0]
    return turned and shape is not None and len(shape) == 2


def _is_lone_product(value: Any) -> bool:
    """Whether a value is a product of two matrices, without a third summand, that is read once."""
    producer = value.producer() if value is not None else None
    if producer is None or producer.domain or value.is_graph_output() or len(value.uses()) != 1:
        return False
    if producer.op_type == "MatMul":
        return all(item.shape is not None and len(item.shape) == 2 for item in producer.inputs)
    return producer.op_type == "Gemm" and len(producer.inputs) == 2


def _turn(model: Any, transpose: Any) -> None:
    """A transposed product is the product of the transposed operands, the other way round."""
    import onnx_ir

    product = transpose.inputs[0].producer()
    first, second = (product.attributes.get_int(name, 0) for name in ("transA", "transB"))
    turned = onnx_ir.node(
        "Gemm",
        [product.inputs[1], product.inputs[0]],
        attributes={"transA": 1 - second, "transB": 1 - first},
        name=product.name,
    )
    turned.metadata_props.update(product.metadata_props)
    old, new = transpose.outputs[0], turned.outputs[0]
    new.shape, new.dtype, new.name = old.shape, old.dtype, old.name
    model.graph.insert_before(transpose, turned)
    old.replace_all_uses_with(new, replace_graph_outputs=True)
    model.graph.remove(transpose, safe=True)
    model.graph.remove(product, safe=True)


def _transposed(value: Any) -> bool:
    return _is_transpose(value.producer())


def _merge(model: Any, node: Any, flags: list[bool]) -> None:
    import onnx_ir

    before = [bool(node.attributes.get_int(name, 0)) for name in ("transA", "transB")]
    inputs = [
        value.producer().inputs[0] if flag else value
        for value, flag in zip(node.inputs[:2], flags, strict=True)
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
