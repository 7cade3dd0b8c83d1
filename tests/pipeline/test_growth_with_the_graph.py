"""Work grows with the graph and no faster: told by counting what is executed, not by a clock."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from analyzer.checks import run as find_findings
from analyzer.devices import catalogue
from analyzer.loading.onnx_graph.build import to_graph
from analyzer.ort.placement import place
from analyzer.pipeline.batches import BatchModels
from analyzer.pipeline.device_decisions import analysis_of, decide_on
from analyzer.pipeline.options import make_options
from analyzer.pipeline.predictor import Predictor
from analyzer.pipeline.prepared import prepare
from analyzer.record.analysis import Analysis, ModelInfo


def gelus(count: int) -> onnx.ModelProto:
    """Products, each with its bias and a GELU in five operators, one behind the other, all of one shape."""
    nodes, name = [], "x"
    for index in range(count):
        made = {op: f"{op}{index}" for op in ("product", "biased", "scaled", "erf", "plus", "times", "halved")}
        nodes += [
            helper.make_node("MatMul", [name, "w"], [made["product"]]),
            helper.make_node("Add", [made["product"], "b"], [made["biased"]]),
            helper.make_node("Div", [made["biased"], "one"], [made["scaled"]]),
            helper.make_node("Erf", [made["scaled"]], [made["erf"]]),
            helper.make_node("Add", [made["erf"], "one"], [made["plus"]]),
            helper.make_node("Mul", [made["biased"], made["plus"]], [made["times"]]),
            helper.make_node("Mul", [made["times"], "one"], [made["halved"]]),
        ]
        name = made["halved"]
    values = {"w": np.ones((8, 8)), "b": np.ones(8), "one": np.ones(1)}
    graph = helper.make_graph(
        nodes,
        "gelus",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [8, 8])],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, [8, 8])],
        [numpy_helper.from_array(value.astype(np.float32), name) for name, value in values.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)


def shapes(count: int) -> onnx.ModelProto:
    """That many operators that read one tensor's shape, each with a reader of its own on the host."""
    nodes = []
    for index in range(count):
        nodes.append(helper.make_node("Shape", ["x"], [f"s{index}"]))
        nodes.append(helper.make_node("Mul", [f"s{index}", f"s{index}"], [f"m{index}"]))
    graph = helper.make_graph(
        nodes,
        "shapes",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 8])],
        [helper.make_tensor_value_info(f"m{index}", TensorProto.INT64, [2]) for index in range(count)],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)


def calls(action: Callable[[], object]) -> int:
    """How many functions are called meanwhile, Python's and C's, a generator's steps included."""
    called = 0

    def count(_frame: FrameType, event: str, _argument: object) -> None:
        nonlocal called
        called += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        action()
    finally:
        sys.setprofile(before)
    return called


def instructions(action: Callable[[], object]) -> int:
    """How many of the interpreter's instructions are executed meanwhile: finer than calls, and slower."""
    executed = 0

    def count(frame: FrameType, event: str, _argument: object) -> Any:
        nonlocal executed
        frame.f_trace_opcodes = True
        executed += event == "opcode"
        return count

    before = sys.gettrace()
    sys.settrace(count)
    try:
        action()
    finally:
        sys.settrace(before)
    return executed


def analysed(model: onnx.ModelProto) -> Analysis:
    """All between loading and the findings, at one batch."""
    options = make_options(check=True, run=False)
    cpu, gpu = catalogue.device(catalogue.DEFAULT_CPU), catalogue.device("l4")
    prepared = prepare(to_graph(model))
    decisions = decide_on(Predictor(options, cpu), prepared, BatchModels(), (gpu,), 1, {})
    info = ModelInfo(
        name="grown",
        source="grown.onnx",
        digest="",
        opset=20,
        batch=1,
        precision="fp32",
        parameters=0,
        parameter_bytes=0,
        inputs=(),
        training=False,
    )
    return analysis_of(info, prepared, decisions, cpu)


def is_linear(counted: Callable[[int], int]) -> bool:
    """Whether the growth doubles with the number, as that of a + b n does; that of n^2 is fourfold."""
    one, two, four = map(counted, (25, 50, 100))
    return four - two <= 2.05 * (two - one)


def test_preparing_and_deciding_call_twice_as_much_for_twice_the_operators() -> None:
    analysed(gelus(2))  # tables that are read once
    assert is_linear(lambda count: calls(lambda: analysed(gelus(count))))


def test_placing_many_shape_computations_calls_twice_as_much_for_twice_as_many() -> None:
    place(to_graph(shapes(2)))
    assert is_linear(lambda count: calls(lambda: place(to_graph(shapes(count)))))


def test_findings_take_twice_the_instructions_for_twice_the_patterns() -> None:
    """Of many GELUs on one source line, what lies inside was once asked of all anew for each tensor."""
    subjects = {count: analysed(gelus(count)) for count in (2, 25, 50, 100)}
    find_findings(subjects[2])
    assert is_linear(lambda count: instructions(lambda: find_findings(subjects[count])))
