"""Counts of one operator, and the models of ``node_graphs`` as fixtures."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import onnx
import pytest
from node_graphs import graph_of, model_of
from onnx import helper

from analyzer.costs import Cost, count
from analyzer.graph import Graph
from analyzer.loading.onnx_graph.build import to_graph


@pytest.fixture
def make_model() -> Callable[..., onnx.ModelProto]:
    return model_of


@pytest.fixture
def make_graph() -> Callable[..., Graph]:
    return graph_of


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
