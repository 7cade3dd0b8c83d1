"""Floats in another width: the graph that a converter writes, and the operators that it must leave in 32 bits.

What has no kernel for the narrow type stays in float32 between two Casts
(``DEFAULT_OP_BLOCK_LIST`` of ``onnxruntime/transformers/float16.py`` names such operators by hand; here the
kernel registry says which).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from analyzer.graph import DTYPES, Graph, Node, Tensor
from analyzer.ort.capability import unsupported
from analyzer.ort.execution import Provider
from analyzer.ort.kernels import Registry, refusal, registry

HALF = {"fp16": "float16", "bf16": "bfloat16"}
"""Element types by the precisions that are 16 bits wide."""

_WIDTHS = frozenset({"float32", "float16", "bfloat16"})
# Inputs that ONNX defines as float32, whatever the data are: sizes, not data.
_ALWAYS_WIDE: Mapping[str, frozenset[int]] = MappingProxyType(
    {"Resize": frozenset({1, 2}), "Upsample": frozenset({1})}
)
_TYPE_ATTRIBUTES: Mapping[str, str] = MappingProxyType(
    {"Cast": "to", "EyeLike": "dtype", "RandomNormal": "dtype", "RandomUniform": "dtype"}
)


def in_floats(graph: Graph, dtype: str) -> Graph:
    """The graph with every float of 16 or 32 bits as ``dtype``, inputs and outputs included."""
    return _Retyping(dtype).graph(graph)


def without_half_kernel(
    graph: Graph, dtype: str, provider: Provider = "cuda", *, release: str = ""
) -> Iterator[int]:
    """Operators of a model in float32 with a kernel for that and none for ``dtype``, a narrow type, by index.

    ``release`` is ONNX Runtime's, as in ``Placement``.
    """
    retyping, kernels = _Retyping(dtype), registry(release)
    # Kernels are chosen by operator, opset and types: thousands of operators are a few dozen cases.
    known: dict[object, bool] = {}
    for node in graph.nodes:
        key = (node.identity, node.version, *(None if t is None else t.dtype.name for t in node.inputs))
        if key not in known:
            known[key] = _has_kernel(node, provider, kernels) and not _has_kernel(
                retyping.node(node), provider, kernels
            )
        if known[key]:
            yield node.index


def _has_kernel(node: Node, provider: Provider, kernels: Registry) -> bool:
    return not refusal(node, provider=provider, known=kernels)[0] and not (
        provider == "cuda" and unsupported(node)
    )


class _Retyping:
    """Keeps a tensor one object for its producer and all readers."""

    def __init__(self, dtype: str) -> None:
        self._dtype = DTYPES[dtype]
        self._made: dict[int, tuple[Tensor, Tensor]] = {}

    def graph(self, graph: Graph) -> Graph:
        return replace(
            graph,
            nodes=tuple(map(self.node, graph.nodes)),
            inputs=tuple(map(self._tensor, graph.inputs)),
            outputs=tuple(map(self._tensor, graph.outputs)),
            initializers=tuple(map(self._tensor, graph.initializers)),
        )

    def node(self, node: Node) -> Node:
        wide = _ALWAYS_WIDE.get(node.op_type, frozenset())
        return replace(
            node,
            inputs=tuple(
                tensor if tensor is None or position in wide else self._tensor(tensor)
                for position, tensor in enumerate(node.inputs)
            ),
            outputs=tuple(None if tensor is None else self._tensor(tensor) for tensor in node.outputs),
            attributes=self._attributes(node),
            graphs={name: self.graph(body) for name, body in node.graphs.items()},
        )

    def _tensor(self, tensor: Tensor) -> Tensor:
        if tensor.dtype.name not in _WIDTHS:
            return tensor
        if id(tensor) not in self._made:
            # With the tensor itself, whose id is taken by no other while it lives.
            self._made[id(tensor)] = (tensor, replace(tensor, dtype=self._dtype))
        return self._made[id(tensor)][1]

    def _attributes(self, node: Node) -> Mapping[str, Any]:
        name = _TYPE_ATTRIBUTES.get(node.op_type)
        before = None if name is None else node.attributes.get(name)
        if name is None or before not in {DTYPES[width].onnx for width in _WIDTHS}:
            return node.attributes
        return {**node.attributes, name: self._dtype.onnx}
