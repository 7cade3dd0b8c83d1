"""What a CPU session executes of quantised models, against the graph that ONNX Runtime itself makes of them."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper
from quantized_models import BLOCKS_SINCE, FLOAT, INT8, OPSETS, UINT8, Builder, cases

from analyzer.loading.onnx_graph.build import to_graph
from analyzer.ort.execution import Group
from analyzer.ort.fusion import groups_from_optimized, predicted_groups
from analyzer.ort.placement import place


def optimized(model: onnx.ModelProto, folder: Path) -> onnx.ModelProto:
    """ONNX Runtime's own optimised graph."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.optimized_model_filepath = str(folder / "optimized.onnx")
    onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return onnx.load(folder / "optimized.onnx", load_external_data=False)


# A convolution in blocks is a Conv of another domain, where we say FusedConv.
SAME = {"FusedConv": "Conv"}


def told(groups: tuple[Group, ...]) -> dict[tuple[int, ...], str]:
    return {group.members: SAME.get(group.op_type, group.op_type) for group in groups if group.members}


@pytest.mark.parametrize("opset", OPSETS)
def test_the_groups_of_quantised_models_are_those_that_the_session_executes(opset: int, tmp_path: Path) -> None:
    wrong = {}
    for name, model in cases(opset):
        graph = to_graph(model)
        real, predicted = (
            told(groups_from_optimized(graph, optimized(model, tmp_path), "cpu")),
            told(predicted_groups(graph, "cpu")),
        )
        if predicted != real:
            wrong[name] = (predicted, real)
    assert wrong == {}


WINDOW: dict[str, Any] = {"kernel_shape": [3, 3], "pads": [1] * 4}
SINGLE: dict[str, dict[str, Any]] = {
    **{op_type: {} for op_type in ("Sigmoid", "LeakyRelu", "Softmax", "Tanh")},
    **dict.fromkeys(("MaxPool", "AveragePool"), WINDOW),
    "Transpose": {"perm": [0, 1, 3, 2]},
}


def random_model(seed: int, opset: int) -> onnx.ModelProto:
    """A few operators in a row and in branches, most between pairs; some results are outputs."""
    draw, b = random.Random(seed), Builder()
    values, read, made = ["x"], {"x"}, set()

    def quantised(value: str) -> str:
        if value.startswith("Dequantize") or draw.random() < 0.3:
            return value
        kind = draw.choice((UINT8, UINT8, INT8))
        zero = draw.choice((0, 10, None) if kind == UINT8 else (0, -128, None))
        return b.pair(value, kind, scale=draw.choice((0.02, 6 / 255)), zero=zero)

    def convolution(data: str) -> str:
        axis, kind = draw.choice((None, 0)), draw.choice((INT8, UINT8, FLOAT))
        stored = b.random.normal(size=(8, 8, 1, 1))
        weights = b.constant(stored) if kind == FLOAT else b.weights((8, 8, 1, 1), kind, axis=axis)
        result = b.node("Conv", data, weights, *draw.choice(([], [b.row(8)])))
        limits = [b.constant(np.array(draw.choice(ends))) for ends in ((0.0, -1.0), (6.0, 1.0))]
        limited = draw.choice(("", "Relu", "Clip"))
        return b.node(limited, result, *(limits if limited == "Clip" else [])) if limited else result

    for _ in range(draw.randint(2, 5)):
        source, other = draw.choice((*values, values[-1], values[-1])), draw.choice(values)
        op_type = draw.choice((*SINGLE, "Add", "Mul", "Conv", "Conv", "MatMul"))
        if (op_type, source) in made:
            continue  # of equal operators the session keeps one
        made.add((op_type, source))
        data = quantised(source)
        if op_type == "Conv":
            result = convolution(data)
        elif op_type == "MatMul":
            axis = draw.choice((None, 1)) if data.startswith("Dequantize") else None
            result = b.node("MatMul", data, b.weights((8, 8), draw.choice((INT8, UINT8)), axis=axis))
        elif op_type in SINGLE:
            result = b.node(op_type, data, **SINGLE[op_type])
        else:
            result = b.node(op_type, data, quantised(other))
            read.add(other)
        read.add(source)
        values.append(quantised(result))
    results = [value for value in values[1:] if value not in read or draw.random() < 0.1]
    model = b.model(results[0], (8, 8, 8, 8), opset)
    model.graph.output.extend(helper.make_tensor_value_info(name, FLOAT, None) for name in results[1:])
    return model


# Which nodes a change of layout or type is part of is not unique, and where it stands not either.
MOVES = {"Transpose", "Reshape", "QuantizeLinear", "DequantizeLinear", "ReorderInput", "ReorderOutput"}


# Known: a Transpose or a DQ that several operators read, of which some compute on integers.
DIFFERENT = {5, 82}


def kernels(op_types: Iterable[str]) -> Counter[str]:
    return Counter(SAME.get(op_type, op_type) for op_type in op_types if op_type not in MOVES)


@pytest.mark.parametrize("opset", [13, 21])
def test_random_quantised_models_run_by_the_kernels_that_the_session_has(opset: int, tmp_path: Path) -> None:
    wrong, refused = {}, 0
    for seed in range(150):
        model = random_model(seed, opset)
        try:
            real = kernels(node.op_type for node in optimized(model, tmp_path).graph.node)
        except onnxruntime.capi.onnxruntime_pybind11_state.Fail:  # of what it has itself rewritten
            refused += 1
            continue
        predicted = kernels(group.op_type for group in predicted_groups(to_graph(model), "cpu"))
        if predicted != real:
            wrong[seed] = (predicted - real, real - predicted)
    assert (set(wrong), refused < 10) == (DIFFERENT, True), wrong


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


def test_pairs_around_an_operator_that_cuda_lacks_become_part_of_its_kernel_on_the_cpu() -> None:
    # MaxPool has no CUDA kernel since opset 22. What crosses is uint8: 8 channels of 16 by 16, then 15 by 15.
    builder = Builder()
    pooled = builder.node("MaxPool", builder.pair(builder.node("Tanh", "x")), kernel_shape=[2, 2])
    graph = to_graph(builder.model(builder.node("Tanh", builder.pair(pooled)), (1, 8, 16, 16), 23))
    copies = {copy.direction: copy.nbytes for copy in place(graph).copies}
    assert copies == {"to_cpu": 8 * 16 * 16, "to_gpu": 8 * 15 * 15}
    groups = {group.members: group.provider for group in predicted_groups(graph, "cuda")}
    assert groups == {(0,): "cuda", (1,): "cuda", (2, 3, 4): "cpu", (5,): "cuda", (6,): "cuda"}
