"""How many parameters a model has, however they are stored."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from quantized_models import BLOCKS_SINCE, UINT8, Builder

from analyzer.costs.table import parameter_bytes, parameters
from analyzer.loading.onnx_graph.build import to_graph


def test_scales_and_zero_points_are_no_parameters() -> None:
    builder = Builder()
    conv = builder.node("Conv", builder.pair("x"), builder.weights((8, 8, 3, 3), axis=0), pads=[1] * 4)
    graph = to_graph(builder.model(builder.pair(conv), (1, 8, 16, 16), 17))
    assert parameters(graph) == 8 * 8 * 3 * 3
    # Weights of a byte; eight scales of four bytes and eight zero points; two pairs, each with four of both.
    assert parameter_bytes(graph) == 8 * 8 * 9 + 8 * 4 + 8 + 4 * (4 + 1)


def test_packed_weights_are_as_many_as_they_unpack_to() -> None:
    builder = Builder()
    size, block = 64, 32
    weights = builder.constant(np.zeros((size, size // block, block // 2)), UINT8)
    scales = builder.constant(np.ones((size, size // block)))
    attributes = {"K": size, "N": size, "bits": 4, "block_size": block}
    result = builder.node("MatMulNBits", "x", weights, scales, domain="com.microsoft", **attributes)
    graph = to_graph(builder.model(result, (1, size), BLOCKS_SINCE))
    assert parameters(graph) == size * size
    assert parameter_bytes(graph) == size * size // 2 + 4 * size * size // block


def test_what_a_linear_model_has_learnt_stands_in_its_attributes() -> None:
    node = helper.make_node(
        "LinearRegressor", ["x"], ["y"], name="only", domain="ai.onnx.ml",
        coefficients=[0.5] * 8, intercepts=[0.1] * 2, targets=2,
    )  # fmt: skip
    fed = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [3, 4])]
    given = [helper.make_tensor_value_info("y", TensorProto.FLOAT, [3, 2])]
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 3)]
    graph = to_graph(helper.make_model(helper.make_graph([node], "linear", fed, given), opset_imports=opsets))
    assert parameters(graph) == 10
    assert parameter_bytes(graph) == 40


def test_weights_in_branches_and_in_their_branches_count() -> None:
    """Voice models choose their network by the sampling rate: all weights stand in branches of an If."""

    def branch(name: str, *nodes: onnx.NodeProto, size: int = 0) -> onnx.GraphProto:
        stored = [numpy_helper.from_array(np.ones((4, size), np.float32), f"{name}_w")] if size else []
        given = helper.make_tensor_value_info(nodes[-1].output[0], TensorProto.FLOAT, None)
        return helper.make_graph(nodes, name, [], [given], stored)

    weight = numpy_helper.from_array(np.ones((4, 5), np.float32))
    inner = helper.make_node(
        "If",
        ["c"],
        ["i"],
        then_branch=branch("yes", helper.make_node("MatMul", ["x", "yes_w"], ["a"]), size=6),
        else_branch=branch("no", helper.make_node("MatMul", ["x", "no_w"], ["b"]), size=7),
    )
    constant = helper.make_node("Constant", [], ["k"], value=weight)
    outer = helper.make_node(
        "If",
        ["c"],
        ["y"],
        then_branch=branch("first", inner),
        else_branch=branch("second", constant, helper.make_node("MatMul", ["x", "k"], ["d"])),
    )
    fed = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 4])]
    fed.append(helper.make_tensor_value_info("c", TensorProto.BOOL, []))
    made = helper.make_graph([outer], "g", fed, [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)])
    graph = to_graph(helper.make_model(made, opset_imports=[helper.make_opsetid("", 18)], ir_version=9))
    assert parameters(graph) == 4 * (5 + 6 + 7)
    assert parameter_bytes(graph) == 4 * 4 * (5 + 6 + 7)  # float32
