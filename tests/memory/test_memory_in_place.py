"""Which operators write over their input is what ONNX Runtime's arena shows."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from analyzer.loading.onnx_graph.build import to_graph
from analyzer.memory.fit import peak_memory_bytes
from analyzer.operators import IN_PLACE

_ONE_INPUT = """
Abs Ceil Celu Clip Cos Elu Erf Exp Floor HardSigmoid LeakyRelu Log LogSoftmax Neg Reciprocal Relu Round Selu
Shrink Sigmoid Sign Sin Softmax Softplus Softsign Sqrt Tanh ThresholdedRelu
"""
BYTES = 64 * 64 * 4


def model(op_type: str, inputs: list[str]) -> onnx.ModelProto:
    """x -> Abs -> the operator -> Transpose -> z, so that neither end of the operator is the caller's."""
    nodes = [
        helper.make_node("Abs", ["x"], ["a"], name="first"),
        helper.make_node("Neg", ["x"], ["b"], name="second"),
        helper.make_node(op_type, inputs, ["y"], name="judged"),
        helper.make_node("Transpose", ["y"], ["z"], name="last"),
    ]
    if "b" not in inputs:
        del nodes[1]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [64, 64]) for name in ("x", "z")]
    graph = helper.make_graph(nodes, "one", ends[:1], ends[1:])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)


def asked_for(proto: onnx.ModelProto, folder: Path) -> tuple[int, ...]:
    """Bytes that the judged operator asked ONNX Runtime's arena for, and most that were held at once."""
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.enable_profiling = True
    options.enable_mem_pattern = False
    options.profile_file_prefix = str(folder / "profile")
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 3
    session = ort.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    session.run(None, {"x": np.ones((64, 64), np.float32)})
    with open(session.end_profiling(), encoding="utf-8") as stream:
        events = [event for event in json.load(stream) if event["name"].endswith("_kernel_time")]
    (judged,) = (event["args"] for event in events if event["name"] == "judged_kernel_time")
    peak = max(int(event["args"]["mem_bytes_requested_in_use"]) for event in events)
    return int(judged["mem_requested_in_use_delta"]), peak


@pytest.mark.parametrize("op_type", _ONE_INPUT.split())
def test_an_operator_of_one_input_is_in_place_where_the_arena_is_asked_for_nothing(
    op_type: str, tmp_path: Path
) -> None:
    proto = model(op_type, ["a"])
    delta, peak = asked_for(proto, tmp_path)
    assert (delta == 0) == (op_type in IN_PLACE)
    assert peak_memory_bytes(to_graph(proto), inputs=False) == peak


@pytest.mark.parametrize("op_type", ["Add", "Sub", "Mul", "Div", "Pow", "Max", "Min", "Sum"])
def test_arithmetic_asks_for_memory_of_its_own(op_type: str, tmp_path: Path) -> None:
    proto = model(op_type, ["a", "b"])
    delta, peak = asked_for(proto, tmp_path)
    assert delta == BYTES
    assert op_type not in IN_PLACE
    assert peak_memory_bytes(to_graph(proto), inputs=False) == peak == 3 * BYTES
