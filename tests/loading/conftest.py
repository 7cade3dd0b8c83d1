"""Small models made on the spot."""

import textwrap
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from analyzer.loading.load import load
from analyzer.loading.loaded import Loaded
from analyzer.loading.model_reference import parse_reference


def _info(name: str, shape: list[Any] | None) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)


def _model(
    nodes: list[onnx.NodeProto],
    inputs: dict[str, Any],
    outputs: list[Any],
    constants: dict[str, Any] | None = None,
    opset: int = 21,
    value_info: Sequence[onnx.ValueInfoProto] = (),
    functions: Sequence[onnx.FunctionProto] = (),
) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes,
        "test",
        [_info(name, shape) if isinstance(shape, list) else shape for name, shape in inputs.items()],
        [_info(name, None) if isinstance(name, str) else name for name in outputs],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in (constants or {}).items()],
        value_info=list(value_info),
    )
    domains = sorted({node.domain for node in nodes if node.domain})
    opsets = [helper.make_opsetid("", opset), *(helper.make_opsetid(domain, 1) for domain in domains)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10, functions=list(functions))


@pytest.fixture
def make_onnx() -> Callable[..., onnx.ModelProto]:
    """Makes a model: nodes, inputs by shape, names of outputs, constants by value."""
    return _model


@pytest.fixture
def loaded(tmp_path: Path) -> Callable[..., Loaded]:
    """Loads a Python file with this code; torch and nn are imported for it."""

    def build(code: str, **options: Any) -> Loaded:
        path = tmp_path / "stranger.py"
        path.write_text("import torch\nfrom torch import nn\n" + textwrap.dedent(code))
        return load(parse_reference(str(path)), use_cache=False, **options)

    return build
