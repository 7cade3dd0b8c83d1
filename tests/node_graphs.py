"""Small models made from nodes: inputs and weights by shape, small constants by value."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from analyzer.graph import Graph
from analyzer.loading.onnx_graph.build import to_graph

FLOAT = TensorProto.FLOAT


def model_of(
    nodes: Sequence[onnx.NodeProto],
    inputs: Mapping[str, Any],
    outputs: Sequence[str],
    constants: Mapping[str, Any] | None = None,
    weights: Mapping[str, Any] | None = None,
    opset: int = 21,
    declared: Mapping[str, Any] | None = None,
) -> onnx.ModelProto:
    """A model; inputs, weights and declared outputs are shapes, or (element type, shape).

    Constants are values.
    """

    def info(name: str, kind: Any) -> onnx.ValueInfoProto:
        if kind is None:
            return helper.make_empty_tensor_value_info(name)
        dtype, shape = (
            kind if isinstance(kind, tuple) and len(kind) == 2 and isinstance(kind[1], list) else (FLOAT, kind)
        )
        return helper.make_tensor_value_info(name, dtype, list(shape))

    stored = [numpy_helper.from_array(np.asarray(value), name) for name, value in (constants or {}).items()]
    for name, kind in (weights or {}).items():
        value = info(name, kind).type.tensor_type
        dims = [dim.dim_value for dim in value.shape.dim]
        stored.append(
            TensorProto(name=name, data_type=value.elem_type, dims=dims, data_location=TensorProto.EXTERNAL)
        )
    graph = helper.make_graph(
        list(nodes),
        "test",
        [info(name, kind) for name, kind in inputs.items()],
        [info(name, (declared or {}).get(name)) for name in outputs],
        stored,
    )
    imports = {node.domain for node in nodes if node.domain not in ("", "ai.onnx")}
    opsets = [helper.make_opsetid("", opset)]
    opsets += [helper.make_opsetid(domain, {"ai.onnx.ml": 3}.get(domain, 1)) for domain in sorted(imports)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def graph_of(*args: Any, bindings: Mapping[str, int] | None = None, **kwargs: Any) -> Graph:
    """Return the graph of a model; ``bindings`` sets its symbolic sizes."""
    return to_graph(model_of(*args, **kwargs), bindings=bindings)
