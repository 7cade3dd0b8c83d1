"""Which operators are compact ones of a training step, and the definition of each."""

from __future__ import annotations

from analyzer.graph import Node

# Importing a family registers its definitions.
from analyzer.training_operators import forward, gradients, optimizer_steps, spatial  # noqa: F401
from analyzer.training_operators.definition import DEFINITIONS, DOMAIN, OPSET, Definition, DefinitionBuilder


def is_defined(node: Node) -> bool:
    """Whether a node is a compact operator with a definition."""
    return node.domain == DOMAIN and node.op_type in DEFINITIONS


def definition(node: Node, opset: int = OPSET) -> Definition | None:
    """What a compact operator means; None for any other operator."""
    if not is_defined(node):
        return None
    body = DefinitionBuilder(node=node, opset=opset)
    DEFINITIONS[node.op_type](body, node)
    return Definition(nodes=tuple(body.nodes), literals=tuple(body.literals))
