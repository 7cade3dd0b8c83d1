"""The type that a model's floats have, by which a session on CUDA rounds its products."""

from collections.abc import Sequence

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from analyzer import analyze

HALF, EIGHT = TensorProto.FLOAT16, TensorProto.FLOAT8E4M3FN


def model(
    nodes: Sequence[onnx.NodeProto],
    inputs: Sequence[onnx.ValueInfoProto],
    result: onnx.ValueInfoProto,
    constants: Sequence[onnx.TensorProto],
) -> onnx.ModelProto:
    graph = helper.make_graph(nodes, "g", inputs, [result], constants)
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def info(name: str, kind: int, *shape: int) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, shape)


def eight_bits(name: str, *shape: int) -> onnx.TensorProto:
    return helper.make_tensor(name, EIGHT, shape, bytes(int(np.prod(shape))), raw=True)


def dequantised() -> onnx.ModelProto:
    nodes = [
        helper.make_node("DequantizeLinear", ["w", "s"], ["wide"]),
        helper.make_node("MatMul", ["x", "wide"], ["y"]),
    ]
    scale = numpy_helper.from_array(np.array(0.5, np.float16), "s")
    return model(nodes, [info("x", HALF, 8, 64)], info("y", HALF, 8, 64), [eight_bits("w", 64, 64), scale])


def multiplied_in_eight_bits() -> onnx.ModelProto:
    inputs = ["x", "w", "", "sa", "sb"]
    node = helper.make_node(
        "GemmFloat8", inputs, ["y"], domain="com.microsoft", dtype=int(HALF), transB=1
    )  # fmt: skip
    scales = [numpy_helper.from_array(np.array([0.5], np.float32), name) for name in ("sa", "sb")]
    return model(
        [node], [info("x", EIGHT, 16, 64)], info("y", HALF, 16, 64), [eight_bits("w", 64, 64), *scales]
    )


def with_integers_alone() -> onnx.ModelProto:
    node = helper.make_node("Gather", ["x", "i"], ["y"])
    index = numpy_helper.from_array(np.arange(4), "i")
    return model([node], [info("x", HALF, 64, 64)], info("y", HALF, 4, 64), [index])


@pytest.mark.parametrize("made", [dequantised, multiplied_in_eight_bits, with_integers_alone])
def test_a_model_of_halves_is_one_whatever_its_weights_are_stored_in(made) -> None:  # type: ignore[no-untyped-def]
    assert analyze(made(), run=False, gpu="h100-80gb-sxm", cpu="epyc-9654").model.precision == "fp16"
