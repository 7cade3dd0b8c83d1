"""Compact operators of a training step, and what each means in ONNX's own operators.

A backward or an optimizer step is one operator in the graph, so that it can be read, counted and shown as one;
no runtime has kernels for it. What runs, and what is placed and timed, is its definition.
"""

from analyzer.training_operators.definition import DOMAIN, OPSET, Definition, DefinitionBuilder, define
from analyzer.training_operators.registry import definition, is_defined

__all__ = ["DOMAIN", "OPSET", "Definition", "DefinitionBuilder", "define", "definition", "is_defined"]
