"""A small ONNX model: two products, an activation between them; and the models that several rooms share."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper


def perceptron(hidden: int) -> onnx.ModelProto:
    def weight(rows: int, columns: int, name: str) -> onnx.TensorProto:
        return numpy_helper.from_array(np.zeros((rows, columns), dtype=np.float32), name)

    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["rows", 256])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["rows", 16])
    nodes = [
        helper.make_node("MatMul", ["x", "w1"], ["h"], name="first"),
        helper.make_node("Sigmoid", ["h"], ["a"], name="activation"),
        helper.make_node("MatMul", ["a", "w2"], ["y"], name="second"),
    ]
    weights = [weight(256, hidden, "w1"), weight(hidden, 16, "w2")]
    graph = helper.make_graph(nodes, "perceptron", [x], [y], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


@pytest.fixture(scope="module")
def tiny_model() -> onnx.ModelProto:
    return perceptron(64)


@pytest.fixture(scope="module")
def changed_model() -> onnx.ModelProto:
    return perceptron(65)


@pytest.fixture(scope="module")
def wide_model() -> onnx.ModelProto:
    """Products of 256 x 4096 and 4096 x 16: enough work that every GPU beats a CPU at batch 4096."""
    return perceptron(4096)
