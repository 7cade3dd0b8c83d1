"""Small models made on the spot: one operator, its inputs by shape, small constants by value."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

sys.path.insert(0, str(Path(__file__).parent.parent))

from analyzer.costs import Cost, count
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


@pytest.fixture(name="make_model")
def _make_model() -> Callable[..., onnx.ModelProto]:
    return model_of


@pytest.fixture
def make_graph() -> Callable[..., Graph]:
    """Makes a Graph from nodes, inputs and constants."""

    def make(*args: Any, bindings: Mapping[str, int] | None = None, **kwargs: Any) -> Graph:
        return to_graph(model_of(*args, **kwargs), bindings=bindings)

    return make


@pytest.fixture
def cost_of() -> Callable[..., Cost]:
    """Counts one operator: ``cost_of("Conv", x=[1, 3, 8, 8], w=[4, 3, 3, 3])``, inputs in the order given.

    ``constants`` are values by name; ``None`` as a shape leaves an optional input out.
    """

    def counted(
        op_type: str,
        *,
        domain: str = "",
        opset: int = 21,
        outputs: int = 1,
        constants: Mapping[str, Any] | None = None,
        attributes: Mapping[str, Any] | None = None,
        declared: Sequence[Any] = (),
        order: Sequence[str] | None = None,
        **shapes: Any,
    ) -> Cost:
        names = list(order) if order is not None else [*shapes, *(constants or {})]
        results = [f"out{position}" for position in range(outputs)]
        node = helper.make_node(
            op_type,
            [name if name in (constants or {}) or shapes.get(name) is not None else "" for name in names],
            results,
            domain=domain,
            name="node",
            **(attributes or {}),
        )
        model = model_of(
            [node],
            {name: shape for name, shape in shapes.items() if shape is not None},
            results,
            constants,
            opset=opset,
            declared=dict(zip(results, declared, strict=False)),
        )
        return count(to_graph(model)).costs[-1]

    return counted
