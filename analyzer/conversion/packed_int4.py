"""Weights of products in 4 bits: MatMulNBits, as ``MatMulNBitsQuantizer`` and GenAI's model builder write it.

Blocks of 32 along K, symmetric (no zero points), ``accuracy_level`` 4: what GenAI's builder makes for CPUs
(``int4_block_size``, ``int4_accuracy_level``); CUDA's kernel does not look at the level. The tools leave a Gemm
as it is: here it is packed as the MatMul and the Add that it can be split into. All else stays, bodies of If
and Loop too.
"""

from __future__ import annotations

from analyzer.conversion.graph_writer import GraphWriter
from analyzer.graph import Graph, Node, Tensor
from analyzer.operators import CONTRIB_DOMAIN

BITS, BLOCK, ACCURACY_LEVEL = 4, 32, 4
_FLOATS = frozenset({"float32", "float16", "bfloat16"})


def in_int4(graph: Graph) -> Graph:
    """The graph with packed weights; the very same one where no product has any."""
    if not any(map(weights_of, graph.nodes)):
        return graph
    writer = GraphWriter(graph)
    packed: dict[tuple[str, bool], tuple[Tensor, Tensor]] = {}
    for node in graph.nodes:
        weights = weights_of(node)
        if weights is None:
            writer.add(node)
        else:
            _pack(writer, node, weights, packed)
    return writer.finish(graph.inputs, graph.outputs, {**graph.opsets, CONTRIB_DOMAIN: 1})


def weights_of(node: Node) -> Tensor | None:
    """The weights of a product that can be packed: stored floats of two axes, on the right."""
    weights, result = node.input(1), node.output(0)
    if node.identity not in (("ai.onnx", "MatMul"), ("ai.onnx", "Gemm")) or weights is None or result is None:
        return None
    attributes = node.attributes
    # A Gemm is a MatMul and an Add to the quantisers; one that scales or turns its rows is left alone.
    scaled = attributes.get("alpha", 1.0) != 1.0 or attributes.get("beta", 1.0) != 1.0
    plain = not scaled and not attributes.get("transA", 0)
    usual = weights.constant and weights.dtype.name in _FLOATS and weights.rank == 2 and not result.constant
    return weights if plain and usual and weights.elements else None


def _pack(
    writer: GraphWriter, node: Node, weights: Tensor, packed: dict[tuple[str, bool], tuple[Tensor, Tensor]]
) -> None:
    turned = bool(node.attributes.get("transB", 0))
    shape = weights.shape or ()
    columns, depth = (shape[0], shape[1]) if turned else (shape[1], shape[0])
    assert columns is not None  # `weights_of` has looked
    assert depth is not None
    stored = packed.get((weights.name, turned))
    if stored is None:
        blocks = -(-depth // BLOCK)
        name = f"{weights.name}_{'rows' if turned else 'columns'}"
        stored = packed[weights.name, turned] = (
            writer.store(f"{name}_Q4", (columns, blocks, BLOCK * BITS // 8), "uint8"),
            writer.store(f"{name}_scales", (columns * blocks,), weights.dtype.name),
        )
    bias, result = node.input(2), node.outputs[0]
    assert result is not None
    attributes = {
        "K": depth, "N": columns, "bits": BITS, "block_size": BLOCK, "accuracy_level": ACCURACY_LEVEL,
    }  # fmt: skip
    product = result
    if bias is not None:
        product = Tensor(name=writer.fresh(f"{result.name}_product"), shape=result.shape, dtype=result.dtype)
    writer.add(
        node,
        op_type="MatMulNBits",
        domain=CONTRIB_DOMAIN,
        version=1,
        inputs=(node.inputs[0], *stored),
        outputs=(product,),
        attributes=attributes,
    )
    if bias is not None:
        writer.insert("Add", node, (product, bias), result)
