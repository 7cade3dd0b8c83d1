"""Transposed operands of products, taken into the product, as the forward pass of a Linear has them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from analyzer.loading.training.translation_values import take_type

if TYPE_CHECKING:
    import onnx_ir as ir

_FLAGS = ("transA", "transB")


def merge_transposes(model: ir.Model) -> None:
    """Turn a product of matrices of which one is transposed into ``Gemm`` with ``transA`` or ``transB``."""
    # First what is turned twice, which is what it was: the gradient of a Linear turns its weight back.
    for node in list(model.graph):
        source = _before_transpose(_before_transpose(node.outputs[0])) if _is_transpose(node) else None
        if source is not None:
            node.outputs[0].replace_all_uses_with(source, replace_graph_outputs=True)
    _drop_unused(model)
    for node in list(model.graph):
        if node.domain or node.op_type not in ("MatMul", "Gemm") or not all(map(_is_matrix, node.inputs[:2])):
            continue
        sources = [_before_transpose(value) for value in node.inputs[:2]]
        if any(source is not None and source.shape is not None for source in sources):
            # One kernel reads either way (a flag of BLAS); a Transpose would be a copy, placed and timed.
            operands = [source or value for source, value in zip(sources, node.inputs[:2], strict=True)]
            flags = [
                bool(node.attributes.get_int(name, 0)) != (source is not None)
                for name, source in zip(_FLAGS, sources, strict=True)
            ]
            _replace(model, node, node, [*operands, *node.inputs[2:]], flags)
    for node in list(model.graph):
        # (A B)^T = B^T A^T: the gradient of a weight, which PyTorch makes as a product and turns.
        product = node.inputs[0].producer() if node.inputs and node.inputs[0] is not None else None
        if product is not None and _is_transpose(node) and _is_lone_product(node.inputs[0]):
            flags = [not product.attributes.get_int(name, 0) for name in reversed(_FLAGS)]
            _replace(model, node, product, [product.inputs[1], product.inputs[0]], flags)
            model.graph.remove(product, safe=True)
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
    attribute = node.attributes.get("perm")
    return (attribute is None or list(attribute.as_ints()) == [1, 0]) and _is_matrix(node.outputs[0])


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
        return all(map(_is_matrix, producer.inputs))
    return producer.op_type == "Gemm" and len(producer.inputs) == 2  # a summand would have to be turned too


def _replace(
    model: ir.Model, node: ir.Node, product: ir.Node, operands: Sequence[ir.Value | None], flags: Sequence[bool]
) -> None:
    """Put a product of other operands, under the name of ``product``, in the place of a node."""
    import onnx_ir

    attributes: dict[str, int | float] = dict(zip(_FLAGS, map(int, flags), strict=True))
    scales = {name: product.attributes[name] for name in ("alpha", "beta") if name in product.attributes}
    attributes |= {name: scale.as_float() for name, scale in scales.items()}
    merged = onnx_ir.node("Gemm", operands, attributes=attributes, name=product.name)
    merged.metadata_props.update(product.metadata_props)
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
