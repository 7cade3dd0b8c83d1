"""A graph of floats as ``quant_pre_process`` leaves it: what ONNX Runtime's level 1 fuses is one node.

ONNX Runtime's quantisers warn where it was not run before them: a BatchNormalization behind a convolution, or
the Add of a bias, would be quantised by itself. Of level 1 this writes what changes products: convolutions with
their affine followers, MatMul and Add as Gemm, and nothing that passes a tensor on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from math import prod
from typing import Any

import numpy as np

from analyzer.conversion.graph_writer import GraphWriter
from analyzer.graph import DEFAULT_DOMAIN, Graph, Node, Tensor, names_read
from analyzer.ort.fusion_rules import convolution_and_affine, matmul_add, takes_the_place_of
from analyzer.ort.fusion_view import Fused, View
from analyzer.ort.simplify import simplify


def preprocessed(graph: Graph) -> Graph:
    """The graph after ONNX Runtime's basic optimisation of its products."""
    simplified = simplify(graph)
    gone = simplified.folded | simplified.removed
    fused = {
        node.index: Fused(op_type=node.op_type, members=[node.index], provider="cpu")
        for node in graph.nodes
        if node.index not in gone
    }
    view = View(graph=graph, simplified=simplified, group=fused)
    for index in _attention_products(graph):
        if index in fused:
            fused[index].final = True
    convolution_and_affine(view)
    matmul_add(view)
    return _without_first_of_two_reshapes(_Preprocessor(view).graph())


# ``FuseContiguousReshapes`` of onnxruntime/core/optimizer/reshape_fusion.cc
def _without_first_of_two_reshapes(graph: Graph) -> Graph:
    """Of two Reshapes in a row the second is enough: one behind a flattened Gemm is often the first."""
    outputs = {tensor.name for tensor in graph.outputs}
    source: dict[str, Tensor] = {}
    for node in graph.nodes:
        data, result = node.input(0), node.output(0)
        if node.op_type != "Reshape" or data is None or result is None or result.name in outputs:
            continue
        readers = graph.consumers.get(result.name, ())
        reader = graph.nodes[readers[0]] if len(readers) == 1 else None
        again = reader is not None and reader.op_type == "Reshape" and takes_the_place_of(reader, node)
        if again and not result.constant:
            source[result.name] = source.get(data.name, data)
    if not source:
        return graph
    writer = GraphWriter(graph)
    for node in graph.nodes:
        result = node.output(0)
        if result is None or result.name not in source:
            inputs = (tensor if tensor is None else source.get(tensor.name, tensor) for tensor in node.inputs)
            writer.add(node, inputs=tuple(inputs))
    return writer.finish(graph.inputs, graph.outputs, graph.opsets)


# ``AttentionPatternCache`` of onnxruntime/core/optimizer/matmul_add_fusion.cc: at level 1 they are left for a
# fusion of level 2.
def _attention_products(graph: Graph) -> Iterator[int]:
    """The four products of an attention behind a LayerNormalization: three read it, one is added to it."""
    for norm in graph.nodes:
        result = norm.output(0)
        if norm.op_type != "LayerNormalization" or result is None:
            continue
        readers = [graph.nodes[index] for index in graph.consumers.get(result.name, ())]
        by_type = Counter(node.op_type for node in readers)
        if by_type["Add"] != 1 or by_type["MatMul"] != 3 or by_type["Shape"] != len(readers) - 4:
            continue
        residual = next(node for node in readers if node.op_type == "Add")
        bias = _writer(graph, next((t for t in residual.present_inputs if t.name != result.name), None), "Add")
        if bias is None:
            continue
        yield from (node.index for node in readers if node.op_type == "MatMul")
        for tensor in bias.present_inputs:
            product = _writer(graph, tensor, "MatMul")
            if product is not None:
                yield product.index


def _writer(graph: Graph, tensor: Tensor | None, op_type: str) -> Node | None:
    index = None if tensor is None else graph.producer.get(tensor.name)
    return graph.nodes[index] if index is not None and graph.nodes[index].op_type == op_type else None


class _Preprocessor:
    def __init__(self, view: View) -> None:
        self._view = view
        self._writer = GraphWriter(view.graph)
        self._tensors = {tensor.name: tensor for tensor in (*view.graph.inputs, *view.graph.initializers)}
        self._tensors |= view.graph.tensors
        self._read_inside = {name for node in view.graph.nodes if node.graphs for name in names_read(node)}

    def graph(self) -> Graph:
        graph, simplified = self._view.graph, self._view.simplified
        for node in graph.nodes:
            if node.index in simplified.folded:
                self._writer.add(node)
            elif node.index not in simplified.removed:
                self._node(node)
            elif any(tensor.name in self._read_inside for tensor in node.present_outputs):
                self._writer.add(node)  # a subgraph reads it by its name
        return self._writer.finish(graph.inputs, graph.outputs, graph.opsets)

    def _node(self, node: Node) -> None:
        group = self._view.group[node.index]
        if len(group.members) == 1:
            self._writer.add(node, inputs=tuple(map(self._left, node.inputs)))
        elif node.index == max(group.members):
            # In the place of the last of them, where all that it reads is there.
            main = self._view.graph.nodes[group.members[0]]
            if group.op_type == "Gemm":
                self._gemm(main, node)
            else:
                self._convolution(main, node)

    def _left(self, tensor: Tensor | None) -> Tensor | None:
        """What is read in place of a tensor that was only passed on."""
        if tensor is None:
            return None
        name = self._view.simplified.name(tensor)
        return tensor if name == tensor.name else self._tensors.get(name, tensor)

    def _convolution(self, conv: Node, follower: Node) -> None:
        weights, result, bias = conv.inputs[1], follower.outputs[0], conv.input(2)
        group = self._view.group[conv.index].members
        adds = any(self._view.graph.nodes[index].op_type in ("Add", "BatchNormalization") for index in group)
        if bias is None and weights is not None and adds:
            channels = weights.shape[0] if weights.shape else None
            bias = self._writer.store(f"{conv.name}_bias", (channels,), weights.dtype.name)
        inputs = (self._left(conv.inputs[0]), weights, *([bias] if bias is not None else []))
        self._writer.add(conv, inputs=inputs, outputs=(result,))

    def _gemm(self, matmul: Node, add: Node) -> None:
        data, weights, result = self._left(matmul.inputs[0]), self._left(matmul.inputs[1]), add.outputs[0]
        bias = self._left(self._view.other_input(add, matmul.output(0)))
        if data is None or weights is None or bias is None or result is None:
            raise ValueError("a MatMul and an Add without operands")  # no rule fuses them

        def gemm(rows: Tensor, result: Tensor) -> None:
            version = self._view.graph.opsets.get(DEFAULT_DOMAIN, matmul.version)
            inputs = (rows, weights, bias)
            self._writer.add(
                matmul, op_type="Gemm", version=version, inputs=inputs, outputs=(result,), attributes={}
            )

        if data.rank == 2:
            gemm(data, result)
            return
        depth, columns = (weights.shape or (None, None))[:2]
        rows = tuple(size or 0 for size in (data.shape or ())[:-1])
        flat = Tensor(
            name=self._writer.fresh(f"{matmul.name}_rows"), shape=(prod(rows), depth), dtype=data.dtype
        )
        product = Tensor(
            name=self._writer.fresh(f"{matmul.name}_product"), shape=(prod(rows), columns), dtype=result.dtype
        )
        self._reshape(matmul, data, (-1, depth), flat)
        gemm(flat, product)
        self._reshape(matmul, product, (*rows, columns), result)

    def _reshape(self, matmul: Node, data: Tensor, sizes: tuple[Any, ...], result: Tensor) -> None:
        shape = self._writer.store(
            f"{result.name}_shape", (len(sizes),), "int64", np.array(sizes, dtype=np.int64)
        )
        self._writer.insert("Reshape", matmul, (data, shape), result)
