"""Models that ONNX Runtime saved optimised are counted like those they were made from."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import helper

from analyzer.costs.table import count
from analyzer.loading.onnx_graph.build import to_graph


def test_a_convolution_in_blocks_of_channels_is_counted_with_its_padded_channels(
    make_onnx: Callable[..., Any], tmp_path: Path
) -> None:
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1], strides=[2, 2]),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("MaxPool", ["r"], ["p"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("GlobalAveragePool", ["p"], ["g"]),
        helper.make_node("Flatten", ["g"], ["f"]),
        helper.make_node("MatMul", ["f", "m"], ["y"]),
    ]
    # 32 channels: a whole number of blocks on every machine (blocks are 8 or 16), so that nothing is padded.
    constants = {"w": np.ones((32, 3, 3, 3), np.float32), "m": np.ones((32, 5), np.float32)}
    model = make_onnx(nodes, {"x": [2, 3, 16, 16]}, ["y"], constants, opset=17)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.optimized_model_filepath = str(tmp_path / "optimised.onnx")
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    saved = onnx.load(tmp_path / "optimised.onnx")
    assert count(to_graph(saved)).total.macs == count(to_graph(model)).total.macs
    assert all(tensor.elements for node in to_graph(saved).nodes for tensor in node.present_outputs)
