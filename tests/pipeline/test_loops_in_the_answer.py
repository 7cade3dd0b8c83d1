"""A loop takes its trips times its body on both devices; if the trips are not known, nor is the answer."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from analyzer import analyze
from analyzer.prediction.gpu.launch import FLOOR_S, GAP_S, WAIT_S
from analyzer.record.analysis import Analysis
from analyzer.report.summary import at_least, open_sizes

FLOAT, ROWS, WIDTH = TensorProto.FLOAT, 8, 64
FLOPS_OF_A_TRIP = 2 * ROWS * WIDTH * WIDTH


def info(name: str, kind: int = FLOAT, shape: tuple[int, ...] = (ROWS, WIDTH)) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, shape)


def loop(trips: int | None) -> tuple[onnx.NodeProto, list[onnx.ValueInfoProto], list[onnx.TensorProto]]:
    """A Loop over one product, and what it reads: its limit is an input where no trips are given."""
    body = helper.make_graph(
        [helper.make_node("MatMul", ["s", "w"], ["s2"]), helper.make_node("Identity", ["go"], ["on"])],
        "body",
        [info("i", TensorProto.INT64, ()), info("go", TensorProto.BOOL, ()), info("s")],
        [info("on", TensorProto.BOOL, ()), info("s2")],
    )
    stored = [numpy_helper.from_array(np.zeros((WIDTH, WIDTH), np.float32), "w")]
    if trips is not None:
        stored.append(numpy_helper.from_array(np.array(trips), "n"))
    given = [info("x")] if trips is not None else [info("x"), info("n", TensorProto.INT64, ())]
    return helper.make_node("Loop", ["n", "", "x"], ["y"], name="loop", body=body), given, stored


def analysed(
    node: onnx.NodeProto, given: list[onnx.ValueInfoProto], stored: list[onnx.TensorProto]
) -> Analysis:
    graph = helper.make_graph([node], "g", given, [info("y")], stored)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    return analyze(model, run=False, gpu="l4", cpu="epyc-9654")


def seconds(analysis: Analysis, plan: str) -> float:
    found = analysis.plan(plan)
    assert found is not None
    assert found.latency_s is not None
    return found.latency_s


@pytest.mark.parametrize("plan", ["cpu", "gpu"])
def test_ten_times_the_trips_take_ten_times_as_long(plan: str) -> None:
    few, many = analysed(*loop(300)), analysed(*loop(3000))
    assert seconds(many, plan) / seconds(few, plan) == pytest.approx(10, rel=0.1)


def test_on_a_gpu_each_trip_launches_its_kernel_and_waits_for_the_condition() -> None:
    many = analysed(*loop(3000))
    assert seconds(many, "gpu") > 3000 * (FLOOR_S + GAP_S + WAIT_S)
    assert many.totals.flops == 3000 * FLOPS_OF_A_TRIP
    assert at_least(many) == ""


def test_trips_that_the_data_decide_leave_the_answer_open_and_the_first_screen_says_so() -> None:
    analysis = analysed(*loop(None))
    assert analysis.verdict.device == "either"
    assert analysis.operators[0].verdict.device == "either"
    for plan in ("cpu", "gpu"):
        found = analysis.plan(plan)
        assert found is not None
        assert found.high_s is not None
        assert found.low_s is not None
        assert found.high_s > 1000 * found.low_s
    assert "The data decide how often Loop #0 runs its body" in open_sizes(analysis)
    assert at_least(analysis) == "at least "
    assert analysis.totals.flops == FLOPS_OF_A_TRIP
    assert [finding.code for finding in analysis.findings if finding.severity == "warning"] == ["A302"]


@pytest.mark.parametrize("trips", [None, 3000])
def test_a_loop_inside_of_an_if_takes_as_long_as_by_itself(trips: int | None) -> None:
    node, given, stored = loop(trips)
    inside = helper.make_graph([node], "then", [], [info("y")])
    other = helper.make_graph([helper.make_node("Identity", ["x"], ["z"])], "else", [], [info("z")])
    chosen = helper.make_node("If", ["c"], ["y"], name="if", then_branch=inside, else_branch=other)
    asked = [*given, info("c", TensorProto.BOOL, ())]
    for plan in ("cpu", "gpu"):
        alone = seconds(analysed(*loop(trips)), plan)
        assert seconds(analysed(chosen, asked, stored), plan) == pytest.approx(alone, rel=0.2)
