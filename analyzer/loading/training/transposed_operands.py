"""Transposed operands of products, taken into the product, as the forward pass of a Linear has them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from analyzer.loading.training.translation_registry import take_type

if TYPE_CHECKING:
    import onnx_ir as ir


def merge_transposes(model: ir.Model) -> None:
    """Turns a product of matrices of which one is transposed into ``Gemm`` with ``transA`` or ``transB``."""
    # First what is turned twice, which is what it was: the gradient of a Linear turns its weight back.
    for node in list(model.graph):
        source = _before_transpose(_before_transpose(node.outputs[0])) if _is_transpose(node) else None
        if source is not None:
            node.outputs[0].replace_all_uses_with(source, replace_graph_outputs=True)
    _drop_unused(model)
    for node in list(model.graph):
        if node.domain or node.op_type not in ("MatMul", "Gemm"):
            continue
        if not all(_is_matrix(value) for value in node.inputs[:2]):
            continue
        flags = [_before_transpose(value) is not None for value in node.inputs[:2]]
        if any(flags):
            # One kernel reads either way (a flag of BLAS); a Transpose
            # would be a copy that is placed and timed.
            _merge(model, node, flags)
    for node in list(model.graph):
        # (A B)^T = B^T A^T: the gradient of a weight, which PyTorch makes as a product and turns.
        product = node.inputs[0].producer() if node.inputs and node.inputs[0] is not None else None
        if product is not None and _is_transpose(node) and _is_lone_product(node.inputs[0]):
            _turn(model, node, product)
    _drop_unused(model)


def _is_matrix(value: ir.Value | None) -> bool:
    return value is not None and value.shape is not None and len(value.shape) == 2


def _before_transpose(value: ir.Value | None) -> ir.Value | None:
    """What a value is the transpose of; None where it is none."""
    producer = value.producer() if value is not None else None
    return producer.inputs[0] if producer is not None and _is_transpose(producer) else None


def _is_transpose(node: ir.Node) -> bool:
    if node.op_type != "Transpose" or node.domain:
        return False
    attribute, shape = node.attributes.get("perm"), node.outputs[0].shape
    turned = attribute is None or list(attribute.as_ints()) == [1, 0]
    return turned and shape is not None and len(shape) == 2


def _is_lone_product(value: ir.Value | None) -> bool:
    """Whether a value is a product of two matrices, without a third summand, that is read once."""
    producer = value.producer() if value is not None else None
    if (
        value is None
        or producer is None
        or producer.domain
        or value.is_graph_output()
        or len(value.uses()) != 1
    ):
        return False
    if producer.op_type == "MatMul":
        return all(_is_matrix(operand) for operand in producer.inputs)
    return producer.op_type == "Gemm" and len(producer.inputs) == 2  # a summand would have to be turned too


def _turn(model: ir.Model, transpose: ir.Node, product: ir.Node) -> None:
    """A transposed product is the product of the transposed operands, the other way round."""
    import onnx_ir

    transposed_a, transposed_b = (product.attributes.get_int(name, 0) for name in ("transA", "transB"))
    turned = onnx_ir.node(
        "Gemm",
        [product.inputs[1], product.inputs[0]],
        attributes={"transA": 1 - transposed_b, "transB": 1 - transposed_a},
        name=product.name,
    )
    turned.metadata_props.update(product.metadata_props)
    old, new = transpose.outputs[0], turned.outputs[0]
    take_type(new, old)
    new.name = old.name
    model.graph.insert_before(transpose, turned)
    old.replace_all_uses_with(new, replace_graph_outputs=True)
    model.graph.remove(transpose, safe=True)
    model.graph.remove(product, safe=True)


def _merge(model: ir.Model, node: ir.Node, flags: list[bool]) -> None:
    import onnx_ir

    before = [bool(node.attributes.get_int(name, 0)) for name in ("transA", "transB")]
    inputs = [
        _before_transpose(value) if flag else value for value, flag in zip(node.inputs[:2], flags, strict=True)
    ]
    if any(value is None or value.shape is None for value in inputs):
        return
    attributes: dict[str, int | float] = {
        name: int(was != flag) for name, was, flag in zip(("transA", "transB"), before, flags, strict=True)
    }
    for name in ("alpha", "beta"):
        if name in node.attributes:
            attributes[name] = node.attributes[name].as_float()
    merged = onnx_ir.node("Gemm", [*inputs, *node.inputs[2:]], attributes=attributes, name=node.name)
    merged.metadata_props.update(node.metadata_props)
    old, new = node.outputs[0], merged.outputs[0]
    take_type(new, old)
    new.name = old.name
    model.graph.insert_before(node, merged)
    old.replace_all_uses_with(new, replace_graph_outputs=True)
    model.graph.remove(node, safe=True)


def _drop_unused(model: ir.Model) -> None:
    outputs = set(map(id, model.graph.outputs))
    for node in reversed(list(model.graph)):
        if node.op_type == "Transpose" and not any(
            value.uses() or id(value) in outputs for value in node.outputs
        ):
            model.graph.remove(node, safe=True)
