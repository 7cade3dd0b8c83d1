"""Kernels on integers: which measured rate holds for which, and what moves over memory."""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType

import numpy as np
import onnx
import pytest
from quantized_models import INT8, UINT8, Builder

from analyzer.costs import count
from analyzer.devices import catalogue
from analyzer.devices.device import Device
from analyzer.loading.onnx_graph.build import to_graph
from analyzer.measurement.probes import conv_classes
from analyzer.ort.fusion import predicted_groups
from analyzer.prediction import predict, workload
from analyzer.prediction.irregular_pieces import PROBED_CONVOLUTIONS, IntegerShapes

SIZE = 512
# A rate for each family, far apart; copies so fast that they do not matter.
RATES = {"u8s8": 4e11, "u8u8": 2e11, "nbits4a4": 8e11, "nbits4a0": 5e10, "nbits8a4": 3e11}


def machine() -> Device:
    values = {"threads": 1.0, "cores": 1.0, "dispatch.t1": 1e-12, "call.t1": 1e-12, "copy.t1.1024": 1e18}
    shape = f"t1.m{SIZE}.n{SIZE}.k{SIZE}"
    values[f"gemm.float32.{shape}"] = 1e11
    values |= {f"gemm.{family}.{shape}": rate for family, rate in RATES.items()}
    return replace(catalogue.device("epyc-9654"), calibration=MappingProxyType(values))


def product_s(model: onnx.ModelProto, op_type: str) -> float:
    graph = to_graph(model)
    groups = predicted_groups(graph, "cpu")
    times = predict(workload(graph, count(graph), groups), machine())
    (chosen,) = [time for group, time in zip(groups, times, strict=True) if group.op_type == op_type]
    return chosen.value


def static(weights: int) -> onnx.ModelProto:
    builder = Builder()
    product = builder.node("MatMul", builder.pair("x"), builder.weights((SIZE, SIZE), weights))
    return builder.model(builder.pair(product), (SIZE, SIZE), 21)


@pytest.mark.parametrize(("weights", "family"), [(INT8, "u8s8"), (UINT8, "u8u8")])
def test_a_product_on_integers_runs_at_the_rate_of_its_types(weights: int, family: str) -> None:
    expected = 2 * SIZE**3 / RATES[family]
    assert product_s(static(weights), "QLinearMatMul") == pytest.approx(expected, rel=1e-3)


def packed(bits: int, accuracy: int, *, biased: bool = False, rows: int = SIZE) -> onnx.ModelProto:
    builder = Builder()
    weights = builder.constant(builder.random.integers(0, 9, (SIZE, SIZE // 32, 32 * bits // 8)), UINT8)
    scales = builder.constant([[0.01] * (SIZE // 32)] * SIZE)
    result = builder.node(
        "MatMulNBits",
        *("x", weights, scales),
        domain="com.microsoft",
        K=SIZE,
        N=SIZE,
        bits=bits,
        block_size=32,
        accuracy_level=accuracy,
    )
    if biased:
        result = builder.node("Add", result, builder.constant([0.5] * SIZE))
    return builder.model(result, (rows, SIZE), 21)


@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize(("bits", "accuracy"), [(4, 4), (4, 0), (8, 4)])
def test_a_product_with_packed_weights_runs_at_the_rate_of_its_level(
    bits: int, accuracy: int, biased: bool
) -> None:
    """One that takes up the bias behind it keeps its bits and its level."""
    model = packed(bits, accuracy, biased=biased)
    assert [group.op_type for group in predicted_groups(to_graph(model), "cpu")] == ["MatMulNBits"]
    expected = 2 * SIZE**3 / RATES[f"nbits{bits}a{accuracy}"]
    assert product_s(model, "MatMulNBits") == pytest.approx(expected, rel=1e-3)


@pytest.mark.parametrize(("threads", "rows", "wider"), [(2, 1, 1.25), (1, 1, 1.0), (2, SIZE, 1.0)])
def test_a_row_of_packed_weights_on_several_threads_is_less_sure(threads: int, rows: int, wider: float) -> None:
    """What a second thread gains in a probe is more than it gains in a step of generation."""
    graph = to_graph(packed(4, 4, rows=rows))
    groups = predicted_groups(graph, "cpu")
    work = workload(graph, count(graph), groups)
    values = {**machine().calibration, "threads": float(threads)}
    values |= {key.replace("t1", "t2"): value for key, value in values.items()}
    (time,) = predict(work, replace(machine(), calibration=MappingProxyType(values)), threads=threads)
    width = time.high / time.value
    (alone,) = predict(work, machine())
    assert width == pytest.approx(wider * alone.high / alone.value, rel=1e-3)


@pytest.mark.parametrize(("accuracy", "times"), [(4, 1.0), (0, 2.5)])
def test_one_row_by_weights_that_become_floats_reads_them_out_of_order(accuracy: int, times: float) -> None:
    """Blocks of several columns side by side lie far apart: no cache line comes before it is asked for."""
    builder, copies = Builder(), 16
    results = []
    for _ in range(copies):
        weights = builder.constant(builder.random.integers(0, 9, (SIZE, SIZE // 32, 16)), UINT8)
        scales = builder.constant([[0.01] * (SIZE // 32)] * SIZE)
        sizes = {"K": SIZE, "N": SIZE, "bits": 4, "block_size": 32, "accuracy_level": accuracy}
        results.append(builder.node("MatMulNBits", "x", weights, scales, domain="com.microsoft", **sizes))
    graph = to_graph(builder.model(builder.node("Sum", *results), (1, SIZE), 21))
    groups = predicted_groups(graph, "cpu")
    matrix = SIZE * SIZE / 2 + 4 * SIZE * SIZE / 32
    values = {**machine().calibration, "read.t1.1024": 1e12, f"read.t1.{int(copies * matrix)}": 1e10}
    values |= {f"gemm.{family}.t1.m1.n{SIZE}.k{SIZE}": rate for family, rate in RATES.items()}
    known = replace(machine(), calibration=MappingProxyType(values))
    found = predict(workload(graph, count(graph), groups), known)
    (each,) = {
        round(time.value, 12)
        for group, time in zip(groups, found, strict=True)
        if group.op_type == "MatMulNBits"
    }
    alone = matrix / np.exp(np.interp(np.log(matrix), np.log([1024, copies * matrix]), np.log([1e12, 1e10])))
    beyond = times * (matrix / 1e10 - alone)
    assert each == pytest.approx(2 * SIZE**2 / RATES[f"nbits4a{accuracy}"] + beyond, rel=0.05)


def test_of_packed_weights_the_packed_bytes_are_read() -> None:
    builder = Builder()
    weights = builder.weights((SIZE, SIZE), onnx.TensorProto.INT4, axis=0, block=32, zero=False)
    graph = to_graph(builder.model(builder.node("MatMul", "x", weights), (1, SIZE), 21))
    work = workload(graph, count(graph), predicted_groups(graph, "cpu"))
    assert work["fixed"].tolist() == [SIZE * SIZE / 2]
    # One scale for 32 weights, a row in, a row out.
    assert work["read"].tolist() == [4 * (SIZE * SIZE / 32 + SIZE)]
    assert work["written"].tolist() == [4 * SIZE]


def test_a_dequantised_constant_runs_each_time() -> None:
    """ONNX Runtime never folds it: rule 6 of the conventions names it as the exception."""
    builder = Builder()
    conv = builder.node("Conv", "x", builder.weights((8, 8, 3, 3), axis=0), pads=[1] * 4)
    graph = to_graph(builder.model(conv, (1, 8, 16, 16), 17))
    dequantize = count(graph).costs[0]
    elements = 8 * 8 * 3 * 3
    assert dequantize.flops == 2 * elements  # minus a zero point, times a scale
    assert dequantize.bytes_written == 4 * elements
    assert [group.op_type for group in predicted_groups(graph, "cpu")] == ["DequantizeLinear", "Conv"]


@pytest.mark.parametrize(("name", "least", "most"), [("xeon-e5-2686-v4", 0.8, 1.5), ("epyc-9654", 2.0, 4.5)])
def test_without_instructions_for_integers_convolutions_gain_little(
    name: str, least: float, most: float
) -> None:
    cpu = catalogue.device(name)

    def seconds(quantised: bool) -> float:
        builder = Builder()
        data = builder.pair("x") if quantised else "x"
        shape = (64, 64, 3, 3)
        weights = builder.weights(shape) if quantised else builder.constant(builder.random.normal(size=shape))
        conv = builder.node("Conv", data, weights, pads=[1] * 4)
        model = builder.model(builder.pair(conv) if quantised else conv, (1, 64, 56, 56), 17)
        graph = to_graph(model)
        groups = predicted_groups(graph, "cpu")
        times = predict(workload(graph, count(graph), groups), cpu, threads=1)
        return sum(time.value for group, time in zip(groups, times, strict=True) if "Conv" in group.op_type)

    assert least < seconds(quantised=False) / seconds(quantised=True) < most


def position_s(products: int, filters: int, taps: int, tap_s: float) -> float:
    """A made-up machine: 10 ps a product in panels of 16 filters, 0.2 ns a result, so much for each tap."""
    return -(-filters // 16) * 16 * products * 1e-11 + filters * 2e-10 + (taps if taps > 1 else 0) * tap_s


STEM_TAP_S, TAP_S = 3e-9, 1e-9


def rate_of(name: str) -> float:
    products, filters, taps = PROBED_CONVOLUTIONS[name]
    tap_s = STEM_TAP_S if name.startswith("stem") else TAP_S
    return 2 * products * filters / position_s(products, filters, taps, tap_s)


@pytest.mark.parametrize(
    ("name", "products", "filters", "taps"),
    [
        ("1x1", 16, 64, 1),  # results outweigh products
        ("1x1", 96, 24, 1),  # a panel and a half
        ("1x1small", 64, 256, 1),
        ("stem3x3s2", 27, 16, 9),  # gathering outweighs both
        ("3x3", 144, 16, 9),
        ("3x3s2", 288, 64, 9),
    ],
)
def test_a_convolution_on_integers_costs_its_results_taps_and_panels(
    name: str, products: int, filters: int, taps: int
) -> None:
    """From rates of probes alone the costs of a made-up machine come back, at shapes that none of them has."""
    factor = IntegerShapes(rate_of).factors(
        np.array([name]), *(np.array([float(size)]) for size in (filters, products, taps))
    )
    seconds = 2 * products * filters / rate_of(name) * float(factor[0])
    expected = position_s(products, filters, taps, STEM_TAP_S if name.startswith("stem") else TAP_S)
    assert seconds == pytest.approx(expected, rel=1e-6)


def test_without_probes_and_in_groups_the_rate_of_the_class_stays() -> None:
    shape = [np.array([16.0, 16.0])] * 3
    names = np.array(["1x1", "3x3"])
    assert IntegerShapes(lambda name: None).factors(names, *shape).tolist() == [1.0, 1.0]
    grouped = np.array(["group32", "depthwise3x3"])
    assert IntegerShapes(rate_of).factors(grouped, *shape).tolist() == [1.0, 1.0]


def test_the_shapes_are_those_that_are_probed() -> None:
    for name, shape in PROBED_CONVOLUTIONS.items():
        kind = conv_classes()[name]
        taps = kind.kernel**kind.rank
        assert shape == (kind.channels // kind.group * taps, kind.filters, taps), name
