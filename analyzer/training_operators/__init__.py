"""Compact operators of a training step, and what each means in ONNX's own operators.

A backward or an optimizer step is one operator in the graph, so that it can be read, counted and shown as one;
no runtime has kernels for it. What runs, and what is placed and timed, is its definition.
"""

from analyzer.training_operators.definition import DOMAIN, OPSET, Definition, DefinitionBuilder
from analyzer.training_operators.registry import definition, is_defined
from analyzer.training_operators.update_calls import (
    IMPLEMENTATION,
    Implementation,
    Pass,
    implementation_of,
    is_update,
    passes_of,
)

__all__ = [
    "DOMAIN", "IMPLEMENTATION", "OPSET", "Definition", "DefinitionBuilder", "Implementation", "Pass",
    "definition", "implementation_of", "is_defined", "is_update", "passes_of",
]  # fmt: skip
