"""How far tensors reach: their largest magnitude, but for what is infinite on purpose."""

from __future__ import annotations

import numpy as np
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper

from analyzer.measurement.applied_child import beyond, with_ranges


@pytest.mark.parametrize("kind", [TensorProto.FLOAT, TensorProto.FLOAT16])
@pytest.mark.parametrize("opset", [13, 20])
def test_a_model_tells_the_ends_of_its_tensors(kind: int, opset: int) -> None:
    x = helper.make_tensor_value_info("x", kind, [2, 3])
    y = helper.make_tensor_value_info("y", kind, [2, 3])
    nodes = [
        helper.make_node("Neg", ["x"], ["n"], name="neg"),
        helper.make_node("Add", ["n", "n"], ["y"], name="add"),
    ]
    graph = helper.make_graph(nodes, "g", [x], [y])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)
    content = with_ranges(model, ["n", "y"]).SerializeToString()
    session = ort.InferenceSession(content, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    values = np.array([[1, 2, 3], [4, -7, 6]], dtype=helper.tensor_dtype_to_np_dtype(kind))
    outputs = dict(zip(names, session.run(None, {"x": values}), strict=True))
    assert beyond(outputs, 5.0) == {"n": 7.0, "y": 14.0}
    assert beyond(outputs, 10.0) == {"y": 14.0}
    assert beyond(outputs, 14.0) == {}


def test_what_is_infinite_or_no_number_is_not_beyond() -> None:
    values = {f"t.reaches.Reduce{end}": np.float32(value) for end, value in (("Max", np.nan), ("Min", -np.inf))}
    assert beyond(values, 1.0) == {}
