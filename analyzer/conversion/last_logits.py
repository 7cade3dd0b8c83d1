"""A decoder's logits of its last token alone: who generates reads no others, and they are most of its product.

Behind the last product every operator works row by row, so that the product may as well be given one row.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from analyzer.graph import Graph, Node, Tensor

if TYPE_CHECKING:
    import onnx

TOKENS = 1
"""The axis of the tokens in logits of [batch, tokens, vocabulary]."""

_RANK = 3
_TABLE = 2  # axes of a matrix
_SOFTMAX_OF_ONE_AXIS = 13  # before this opset over all axes from one on
_ROW_BY_ROW = frozenset(
    {"Cast", "Identity", "Tanh", "Sigmoid", "Add", "Sub", "Mul", "Div", "Neg", "Clip", "QuantizeLinear"}
    | {"DequantizeLinear", "Softmax", "LogSoftmax"}
)
_PRODUCTS = frozenset({"MatMul", "MatMulNBits", "FusedMatMul"})


@dataclass(frozen=True, slots=True, kw_only=True)
class LastLogits:
    """The place at which the last row is taken.

    Attributes:
        output: The logits, an output of the model.
        tokens: How many rows they have.
        vocabulary: How wide they are.
        product: Name of the last product.
        rows: The tensor of which it is given the last row.
    """

    output: str
    tokens: int
    vocabulary: int
    product: str
    rows: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NoLogits:
    """There is nothing to cut; ``why`` says so in a clause."""

    why: str


def last_logits(graph: Graph) -> LastLogits | NoLogits:
    """Return where the logits of a model at one batch can be cut to their last row."""
    vocabularies = set(_vocabularies(graph))
    wide = [
        tensor
        for tensor in graph.outputs
        if tensor.rank == _RANK and tensor.dtype.is_float and tensor.shape and tensor.shape[-1] in vocabularies
    ]
    if not wide:
        return NoLogits(why="no output is logits of [batch, tokens, vocabulary]")
    logits = wide[0]
    tokens, vocabulary = (logits.shape or ())[1:]
    if tokens is None or vocabulary is None or tokens <= 1:
        return NoLogits(why=f"its logits {logits.name} have one row already")
    product = _product(graph, logits)
    rows = product.input(0) if product is not None else None
    if product is None or rows is None:
        return NoLogits(why=f"its logits {logits.name} do not come row by row from a product with the weights")
    return LastLogits(
        output=logits.name, tokens=tokens, vocabulary=vocabulary, product=product.name, rows=rows.name
    )


def _vocabularies(graph: Graph) -> Iterator[int]:
    """Yield rows of the tables that whole numbers choose from."""
    for node in graph.nodes:
        table, indices = node.input(0), node.input(1)
        if node.op_type == "Gather" and table is not None and indices is not None and table.shape:
            integers = indices.dtype.name in ("int64", "int32")
            if (
                integers
                and not indices.constant
                and node.attributes.get("axis", 0) == 0
                and table.rank == _TABLE
            ):
                yield from filter(None, table.shape[:1])


def _product(graph: Graph, logits: Tensor) -> Node | None:
    """Return the last product, where between it and the logits nothing else reads and all works row by row."""
    tensor: Tensor | None = logits
    outputs = {output.name for output in graph.outputs}
    while tensor is not None:
        allowed = 0 if tensor is logits else 1
        index = graph.producer.get(tensor.name)
        alone = tensor is logits or tensor.name not in outputs
        if index is None or not alone or len(graph.consumers.get(tensor.name, ())) != allowed:
            return None
        node = graph.nodes[index]
        if node.op_type in _PRODUCTS:
            return node if _is_by_rows(node, tensor) else None
        tensor = _operand(node, tensor)
    return None


def _is_by_rows(node: Node, result: Tensor) -> bool:
    """Return whether each row of a product is of one row of its first operand."""
    data, weights = node.input(0), node.input(1)
    if data is None or weights is None or data.shape is None or result.shape is None:
        return False
    turned = any(node.attributes.get(name, 0) for name in ("transA", "transBatchA", "transBatchB"))
    packed = node.op_type == "MatMulNBits"
    return data.shape[:-1] == result.shape[:-1] and not turned and (packed or weights.rank == _TABLE)


def _operand(node: Node, result: Tensor) -> Tensor | None:
    """Return one operand that has a row for each token; None where the operator does more than work on rows."""
    if node.op_type not in _ROW_BY_ROW:
        return None
    if node.op_type in ("Softmax", "LogSoftmax"):
        usual = -1 if node.version >= _SOFTMAX_OF_ONE_AXIS else 1
        if node.attributes.get("axis", usual) not in (-1, _RANK - 1):
            return None
    if node.op_type in ("QuantizeLinear", "DequantizeLinear"):
        scale = node.input(1)
        if scale is None or scale.elements != 1:  # one for each row would be one too many
            return None
    operands = [tensor for tensor in node.present_inputs if tensor.shape == result.shape]
    others = [tensor for tensor in node.present_inputs if tensor.shape != result.shape]
    if len(operands) != 1 or not all(
        tensor.shape is not None and all(size == 1 for size in tensor.shape[:-1]) for tensor in others
    ):
        return None
    return operands[0]


def cut(proto: onnx.ModelProto, logits: LastLogits) -> None:
    """Put a Gather of the last row before the last product, in place; weights are not needed."""
    import onnx

    graph = proto.graph
    taken = {name for node in graph.node for name in (node.name, *node.input, *node.output)}
    taken |= {tensor.name for tensor in graph.initializer}
    index = next(at for at, node in enumerate(graph.node) if node.name == logits.product)
    product = graph.node[index]
    row, last = _fresh(f"{logits.rows}_last", taken), _fresh(f"{logits.product}_last_token", taken)
    graph.initializer.append(onnx.numpy_helper.from_array(np.array([-1], dtype=np.int64), last))
    gather = onnx.helper.make_node(
        "Gather", [logits.rows, last], [row], name=_fresh(f"{logits.product}_of_the_last", taken), axis=TOKENS
    )
    gather.metadata_props.extend(product.metadata_props)
    product.input[0] = row
    graph.node.insert(index, gather)
    for value in graph.output:
        # A file need not declare the shape of an output.
        if value.name == logits.output and len(value.type.tensor_type.shape.dim) == _RANK:
            value.type.tensor_type.shape.dim[TOKENS].dim_value = 1
    # Shapes of the rows that are gone; whoever reads the model infers them again.
    del graph.value_info[:]


def _fresh(name: str, taken: set[str]) -> str:
    while name in taken:
        name += "_"
    taken.add(name)
    return name
