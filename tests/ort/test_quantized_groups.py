"""What a CPU session executes of quantised models, against the graph that ONNX Runtime itself makes of them."""

from __future__ import annotations

from pathlib import Path

import onnx
import onnxruntime
import pytest
from quantized_models import BLOCKS_SINCE, INT8, OPSETS, UINT8, Builder, cases

from analyzer.graph import Graph
from analyzer.loading.onnx_graph.build import to_graph
from analyzer.ort.execution import Group
from analyzer.ort.fusion import groups_from_optimized, predicted_groups


def executed(model: onnx.ModelProto, folder: Path, graph: Graph) -> tuple[Group, ...]:
    """The groups of ONNX Runtime's own optimised graph."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.optimized_model_filepath = str(folder / "optimized.onnx")
    onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    optimized = onnx.load(folder / "optimized.onnx", load_external_data=False)
    return groups_from_optimized(graph, optimized, "cpu")


# A convolution in blocks is a Conv of another domain, where we say FusedConv.
SAME = {"FusedConv": "Conv"}


def told(groups: tuple[Group, ...]) -> dict[tuple[int, ...], str]:
    return {group.members: SAME.get(group.op_type, group.op_type) for group in groups if group.members}


@pytest.mark.parametrize("opset", OPSETS)
def test_the_groups_of_quantised_models_are_those_that_the_session_executes(opset: int, tmp_path: Path) -> None:
    wrong = {}
    for name, model in cases(opset):
        graph = to_graph(model)
        real, predicted = told(executed(model, tmp_path, graph)), told(predicted_groups(graph, "cpu"))
        if predicted != real:
            wrong[name] = (predicted, real)
    assert wrong == {}


def kinds(build: str, model: onnx.ModelProto) -> list[str]:
    del build
    return [group.op_type for group in predicted_groups(to_graph(model), "cpu")]


def test_a_product_with_weights_in_blocks_is_one_kernel_on_both_devices() -> None:
    builder = Builder()
    result = builder.node("MatMul", "x", builder.weights((64, 64), axis=0, block=32))
    graph = to_graph(builder.model(result, (1, 4, 64), BLOCKS_SINCE))
    for session in ("cpu", "cuda"):
        (group,) = predicted_groups(graph, session)
        assert (group.op_type, group.members) == ("MatMulNBits", (0, 1))


def test_on_cuda_a_quantised_convolution_computes_in_floats_between_its_pairs() -> None:
    builder = Builder()
    conv = builder.node("Conv", builder.pair("x"), builder.weights((8, 8, 3, 3)))
    graph = to_graph(builder.model(builder.pair(conv), (1, 8, 16, 16), 21))
    groups = predicted_groups(graph, "cuda")
    assert [group.op_type for group in groups] == [node.op_type for node in graph.nodes]
    assert {group.provider for group in groups} == {"cuda"}


@pytest.mark.parametrize("kind", [INT8, UINT8])
def test_float_weights_beside_quantised_data_become_integers(kind: int) -> None:
    builder = Builder()
    weights = builder.constant(builder.random.normal(size=(8, 8, 3, 3)))
    conv = builder.node("Conv", builder.pair("x", kind, zero=1), weights)
    model = builder.model(builder.pair(conv, kind, zero=1), (1, 8, 16, 16), 17)
    assert "QLinearConv" in [group.op_type for group in predicted_groups(to_graph(model), "cpu")]
