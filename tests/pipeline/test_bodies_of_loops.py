"""What a Loop, If or Scan holds is placed, told in the record, and a finding where it must leave the GPU.

Which operators go where is what the real CUDA provider does (``tests/judge/test_judge_bodies.py`` asks it).
"""

from collections.abc import Sequence

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from analyzer import analyze
from analyzer.record import from_json
from analyzer.record.analysis import Analysis, Finding

FLOAT, ROWS = TensorProto.FLOAT, 8
BYTES = ROWS * 64 * 4


def info(name: str, shape: Sequence[int] = (ROWS, 64), kind: int = FLOAT) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, shape)


def whole(
    nodes: Sequence[onnx.NodeProto], *, outputs: Sequence[str] = ("y",), trips: int | None = None
) -> onnx.ModelProto:
    inputs = [info("x")] if trips is not None else [info("x"), info("trips", [], TensorProto.INT64)]
    constants = [numpy_helper.from_array(np.array(True), "go")]
    if trips is not None:
        constants.append(numpy_helper.from_array(np.array(trips), "trips"))
    graph = helper.make_graph(nodes, "g", inputs, [info(name) for name in outputs], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


def loop(*inside: onnx.NodeProto, trips: int | None = 100) -> onnx.ModelProto:
    """A Loop whose body takes ``s`` to ``after``."""
    nodes = [helper.make_node("Identity", ["c"], ["again"], name="again"), *inside]
    given = [info("i", [], TensorProto.INT64), info("c", [], TensorProto.BOOL), info("s")]
    body = helper.make_graph(nodes, "b", given, [info("again", [], TensorProto.BOOL), info("after")])
    before = helper.make_node("Relu", ["x"], ["start"], name="before")
    node = helper.make_node("Loop", ["trips", "go", "start"], ["y"], name="loop", body=body)
    return whole([before, node], trips=trips)


def node(op_type: str, source: str, target: str) -> onnx.NodeProto:
    return helper.make_node(op_type, [source], [target], name=target)


def analysed(model: onnx.ModelProto) -> Analysis:
    return analyze(model, run=False, gpu="l4", cpu="epyc-9654")


def found(analysis: Analysis) -> list[Finding]:
    return [item for item in analysis.findings if item.code == "A105"]


TAN_BETWEEN = (node("Sqrt", "s", "root"), node("Tan", "root", "tan"), node("Relu", "tan", "after"))


def test_an_operator_without_a_kernel_in_a_loop_is_an_error_with_its_copies_for_each_pass() -> None:
    analysis = analysed(loop(*TAN_BETWEEN))
    (finding,) = found(analysis)
    assert finding.operator is not None
    assert (finding.severity, analysis.operators[finding.operator].op_type) == ("error", "Loop")
    assert "Tan 'tan'" in finding.message
    assert "each of up to 100 passes" in finding.message
    assert "2 copies" in finding.message
    assert finding.bytes == 100 * 2 * BYTES
    (body,) = analysis.bodies
    assert [(item.op_type, item.why) for item in body.on_cpu] == [("Tan", "no-cuda-kernel")]
    assert [(item.tensor, item.direction, item.bytes) for item in body.copies] == [
        ("root", "to_cpu", BYTES),
        ("tan", "to_gpu", BYTES),
    ]


def test_a_loop_whose_body_has_kernels_is_no_finding() -> None:
    analysis = analysed(loop(node("Sqrt", "s", "root"), node("Relu", "root", "after")))
    assert found(analysis) == []
    (body,) = analysis.bodies
    assert (body.operators, body.passes, body.on_cpu, body.copies) == (3, 100, (), ())


def test_passes_that_only_the_run_tells_are_not_made_up() -> None:
    (finding,) = found(analysed(loop(*TAN_BETWEEN, trips=None)))
    assert "on each pass:" in finding.message
    assert finding.bytes is None


def test_a_branch_inside_of_a_loop_runs_as_often_as_the_loop() -> None:
    then = helper.make_graph([node("Tan", "s", "tan"), node("Relu", "tan", "yes")], "t", [], [info("yes")])
    other = helper.make_graph([node("Sqrt", "s", "no")], "e", [], [info("no")])
    branch = helper.make_node("If", ["c"], ["after"], name="if", then_branch=then, else_branch=other)
    analysis = analysed(loop(branch))
    body = next(item for item in analysis.bodies if item.on_cpu)
    assert (body.name, body.passes) == ("body/if.then_branch", 100)
    assert [(item.tensor, item.direction) for item in body.copies] == [("tan", "to_gpu")]


def test_a_scan_makes_a_pass_for_each_element() -> None:
    nodes = [node("Tan", "sum", "tan"), node("Identity", "sum", "each")]
    nodes.insert(0, helper.make_node("Add", ["state", "one"], ["sum"], name="sum"))
    row = [info("state", [64]), info("one", [64])]
    body = helper.make_graph(nodes, "b", row, [info("tan", [64]), info("each", [64])])
    first = helper.make_node("ReduceMax", ["x"], ["start"], name="start", keepdims=0)
    scan = helper.make_node("Scan", ["row", "x"], ["last", "y"], name="scan", body=body, num_scan_inputs=1)
    expand = helper.make_node("Expand", ["start", "size"], ["row"], name="row")
    model = whole([first, expand, scan], trips=1)
    model.graph.initializer.append(numpy_helper.from_array(np.array([64]), "size"))
    (result,) = analysed(model).bodies
    assert result.passes == ROWS
    assert [(item.tensor, item.direction, item.bytes) for item in result.copies] == [("sum", "to_cpu", 64 * 4)]


def test_the_record_keeps_the_bodies() -> None:
    analysis = analysed(loop(*TAN_BETWEEN))
    assert from_json(analysis.render("json")).bodies == analysis.bodies


@pytest.mark.parametrize("gpu", ["none"])
def test_without_a_gpu_nothing_is_said_of_bodies(gpu: str) -> None:
    analysis = analyze(loop(*TAN_BETWEEN), run=False, gpu=gpu, cpu="epyc-9654")
    assert (analysis.bodies, found(analysis)) == ((), [])
