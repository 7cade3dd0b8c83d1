"""Quantised and classical models that were once wrong by 3 to 10,000 times, on a CPU of the catalogue.

What each must take at least or at most follows from the float network, from what is read, or from a count.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from quantized_models import INT4, INT8, Builder

from analyzer import analyze
from analyzer.devices import catalogue
from analyzer.record.analysis import Analysis

CPU = catalogue.device("epyc-7763")
SIDE, LAYERS = 1024, 4


def analysed(model: onnx.ModelProto, **options: Any) -> Analysis:
    return analyze(model, run=False, gpu="l4", cpu=CPU.slug, **options)


def latency(analysis: Analysis) -> float:
    return analysis.plan("cpu").latency_s


def products(weights: Callable[[Builder], str] | None) -> Analysis:
    """Four products of one row behind each other, dynamic int8 where no weights are given."""
    builder = Builder()
    data = "x"
    for _ in range(LAYERS):
        data = builder.node("MatMul", data, weights(builder)) if weights else _dynamic(builder, data)
    return analysed(builder.model(data, (1, SIDE), 21))


def _dynamic(b: Builder, data: str) -> str:
    name = f"q{len(b.nodes)}"
    outputs = [f"{name}_{part}" for part in ("data", "scale", "zero")]
    b.nodes.append(helper.make_node("DynamicQuantizeLinear", [data], outputs, name=name))
    stored = b.constant(b.random.integers(-100, 100, (SIDE, SIDE)), INT8)
    zero = b.constant(np.array(0), INT8)
    whole = b.node("MatMulInteger", outputs[0], stored, outputs[2], zero)
    scale = b.node("Mul", outputs[1], b.constant(np.array(0.01)))
    return b.node("Mul", b.node("Cast", whole, to=TensorProto.FLOAT), scale)


@pytest.fixture(scope="module")
def floats() -> Analysis:
    return products(lambda b: b.constant(b.random.normal(size=(SIDE, SIDE))))


@pytest.fixture(scope="module")
def in_blocks() -> Analysis:
    return products(lambda b: b.weights((SIDE, SIDE), INT8, axis=0, block=32))


def test_products_with_weights_in_blocks_are_no_reason_to_split(in_blocks: Analysis) -> None:
    assert in_blocks.verdict.device in ("cpu", "either", "gpu")
    # What is read packed, once, at the bandwidth that the memory has.
    packed = LAYERS * SIDE * SIDE
    assert latency(in_blocks) > 0.2 * packed / CPU.bandwidth_bytes_per_s


def test_four_bits_are_read_in_less_time_than_eight_and_than_floats(
    floats: Analysis, in_blocks: Analysis
) -> None:
    four = products(lambda b: b.weights((SIDE, SIDE), INT4, axis=0, block=32))
    assert latency(four) <= latency(in_blocks)
    assert latency(four) < latency(floats)


def test_dynamic_quantisation_takes_no_multiple_of_floats(floats: Analysis) -> None:
    assert latency(products(None)) < 2 * latency(floats)


def convolutions(form: str) -> Analysis:
    """Six convolutions behind each other."""
    b = Builder()
    data = b.pair("x") if form == "int8" else "x"
    shape = (64, 64, 3, 3)
    for _ in range(6):
        weights = b.weights(shape, INT8) if form == "int8" else b.constant(b.random.normal(size=shape))
        result = b.node("Conv", data, weights, pads=[1] * 4)
        data = b.pair(result) if form == "int8" else result
    return analysed(b.model(data, (1, 64, 56, 56), 17))


def test_quantised_convolutions_gain_what_the_cpu_has_instructions_for_and_are_not_split() -> None:
    int8, fp32 = convolutions("int8"), convolutions("floats")
    # AVX2 alone: 2 x as many 8-bit as 32-bit multiplications at best, less what stands between.
    assert 0.6 < latency(fp32) / latency(int8) < 2.2
    assert int8.verdict.device != "hybrid"
    # On CUDA they compute in floats between the pairs, which come on top.
    assert int8.plan("gpu").latency_s > fp32.plan("gpu").latency_s


def classical(op_type: str, columns: int, outputs: int, **attributes: Any) -> Callable[[int], Analysis]:
    """One operator of ai.onnx.ml over rows that nothing but the batch tells."""
    names = [f"y{number}" for number in range(outputs)]
    node = helper.make_node(op_type, ["x"], names, domain="ai.onnx.ml", **attributes)
    kinds = [TensorProto.INT64, TensorProto.FLOAT] if outputs == 2 else [TensorProto.FLOAT]
    graph = helper.make_graph(
        [node],
        op_type,
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [None, columns])],
        [helper.make_tensor_value_info(name, kind, None) for name, kind in zip(names, kinds, strict=True)],
    )
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("ai.onnx.ml", 3)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    return lambda rows: analysed(model, batch=rows)


def test_support_vectors_take_their_products_for_every_row() -> None:
    vectors, columns = 800, 20
    machine = classical(
        "SVMRegressor",
        columns,
        1,
        kernel_type="RBF",
        n_supports=vectors,
        support_vectors=[0.5] * (vectors * columns),
        coefficients=[1.0] * vectors,
        kernel_params=[0.1, 0.0, 3.0],
        rho=[0.0],
    )
    few, many = latency(machine(100)), latency(machine(1000))
    # A difference, a square and a sum of every column for every vector, and an exponential, at the whole peak.
    naive = 1000 * vectors * 3 * columns / CPU.peak_flops_per_s["fp32"]
    assert many > naive
    assert 5 < many / few < 15


def test_a_scaler_and_a_regression_follow_the_rows() -> None:
    scaler = classical("Scaler", 30, 1, offset=[0.0] * 30, scale=[1.0] * 30)
    regression = classical(
        "LinearClassifier",
        30,
        2,
        classlabels_ints=[0, 1],
        coefficients=[0.1] * 60,
        intercepts=[0.0, 0.0],
        post_transform="LOGISTIC",
    )
    for pipeline in (scaler, regression):
        few, many = latency(pipeline(1000)), latency(pipeline(100_000))
        assert 10 < many / few < 200
        assert many > 100_000 * 30 * 4 / CPU.bandwidth_bytes_per_s


def test_a_one_hot_encoder_writes_as_many_columns_as_it_has_categories() -> None:
    encoder = classical("OneHotEncoder", 1, 1, cats_int64s=list(range(50)), zeros=1)
    assert encoder(1000).operators[0].outputs[0].shape == (1000, 1, 50)
    assert latency(encoder(100_000)) > 100_000 * 50 * 4 / CPU.bandwidth_bytes_per_s
