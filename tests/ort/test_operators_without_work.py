"""Which operators do no work: as ONNX Runtime runs them."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper

from analyzer.costs import count
from analyzer.loading.onnx_graph.build import to_graph
from analyzer.operators import VIEWS, is_view
from analyzer.ort.execution import launches
from analyzer.ort.fusion import predicted_groups
from analyzer.prediction.workload import workload

node = helper.make_node
STORED = {
    "ratio": np.array(0.5, np.float32),
    "yes": np.array(True),
    "shape": np.array([3, 2]),
    "axis": np.array([0]),
}


def model(nodes: list[onnx.NodeProto], dtype: int = TensorProto.FLOAT, opset: int = 20) -> onnx.ModelProto:
    """A model of x [1, 2, 3] with the result y."""
    read = {name for item in nodes for name in item.input}
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 2, 3])],
        [helper.make_tensor_value_info("y", dtype, None)],
        [numpy_helper.from_array(value, name) for name, value in STORED.items() if name in read],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)


@pytest.mark.parametrize("op_type", sorted(VIEWS))
def test_a_view_gives_the_bytes_that_it_was_given(op_type: str) -> None:
    inputs = {"Reshape": ["x", "shape"], "Squeeze": ["x", "axis"], "Unsqueeze": ["x", "axis"]}
    attributes: dict[str, Any] = {"to": TensorProto.INT32} if op_type == "BitCast" else {}
    made = model(
        [node(op_type, inputs.get(op_type, ["x"]), ["y"], **attributes)],
        TensorProto.INT32 if op_type == "BitCast" else TensorProto.FLOAT,
        opset=26,
    )
    session = ort.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"])
    given = np.linspace(-1, 1, 6, dtype=np.float32).reshape(1, 2, 3)
    (result,) = session.run(None, {"x": given})
    assert result.tobytes() == given.tobytes()
    assert launches(op_type) == 0


def test_a_dropout_takes_time_in_training_and_none_at_inference() -> None:
    # In training a mask is drawn, multiplied and scaled; at inference the operator is the identity.
    training = to_graph(model([node("Dropout", ["x", "ratio", "yes"], ["y"])]))
    inference = to_graph(model([node("Dropout", ["x"], ["y"])]))
    for graph, pieces in ((training, 1), (inference, 0)):
        groups = predicted_groups(graph, "cuda")
        assert len(workload(graph, count(graph), groups).kind) == pieces
        assert [group.kernels for group in groups] == [pieces]
        assert is_view(graph.nodes[0]) == (not pieces)
