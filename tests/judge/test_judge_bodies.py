"""Placement inside of If, Loop and Scan against the real CUDA provider, node by node and copy by copy."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from analyzer.loading.onnx_graph.build import to_graph
from analyzer.ort.execution import PlacedBody, Placement
from analyzer.ort.placement import place

if TYPE_CHECKING:
    from court import Judge

SHAPE = (8, 64)
WEIGHT = numpy_helper.from_array(np.zeros((64, 64), np.float32), "weight")
BIAS = numpy_helper.from_array(np.zeros(64, np.float32), "bias")
START = numpy_helper.from_array(np.array([0]), "zero")


def info(name: str, shape: Any = SHAPE, kind: int = TensorProto.FLOAT) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, shape)


def node(op_type: str, sources: str, target: str, **attributes: Any) -> onnx.NodeProto:
    """A node that is called after what it writes."""
    return helper.make_node(op_type, sources.split(), [target], name=f"n_{target}", **attributes)


def model(nodes: list[onnx.NodeProto], constants: list[onnx.TensorProto], result: str = "y") -> onnx.ModelProto:
    graph = helper.make_graph(nodes, "g", [info("x")], [info(result)], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


def loop(
    *inside: onnx.NodeProto,
    own: tuple[onnx.TensorProto, ...] = (),
    around: tuple[onnx.TensorProto, ...] = (),
    condition: str = "c",
) -> onnx.ModelProto:
    """A Loop whose body takes ``s`` to ``after``, with constants of its own and of the graph around it."""
    nodes = [*inside, node("Identity", condition, "again")]
    given = [info("i", [], TensorProto.INT64), info("c", [], TensorProto.BOOL), info("s")]
    body = helper.make_graph(nodes, "b", given, [info("again", [], TensorProto.BOOL), info("after")], own)
    constants = [numpy_helper.from_array(np.array(5), "trips"), numpy_helper.from_array(np.array(True), "go")]
    run = node("Loop", "trips go start", "y", body=body)
    return model([node("Relu", "x", "start"), run, node("Relu", "y", "z")], [*constants, *around], "z")


def branches(condition: str, then: list[onnx.NodeProto], other: list[onnx.NodeProto], target: str) -> Any:
    bodies = [helper.make_graph(nodes, "b", [], [info(nodes[-1].output[0])]) for nodes in (then, other)]
    return node("If", condition, target, then_branch=bodies[0], else_branch=bodies[1])


def decided_on_the_gpu() -> onnx.ModelProto:
    choice = branches(
        "positive",
        [node("Tan", "start", "tan"), node("Relu", "tan", "one")],
        [node("Sqrt", "start", "other")],
        "y",
    )
    limit = numpy_helper.from_array(np.array(0, np.float32), "limit")
    before = [node("Relu", "x", "start"), node("ReduceSum", "start", "sum", keepdims=0)]
    return model([*before, node("Greater", "sum limit", "positive"), choice], [limit])


def scanned() -> onnx.ModelProto:
    inside = [node("Add", "state one", "sum"), node("Tan", "sum", "tan"), node("Identity", "sum", "each")]
    row = [info("state", [64]), info("one", [64])]
    body = helper.make_graph(inside, "b", row, [info("tan", [64]), info("each", [64])])
    first = node("ReduceSum", "x zero", "row", keepdims=0)
    scan = helper.make_node("Scan", ["row", "x"], ["last", "y"], name="scan", body=body, num_scan_inputs=1)
    return model([first, scan], [START])


TAN_BETWEEN = (node("Sqrt", "s", "root"), node("Tan", "root", "tan"), node("Relu", "tan", "after"))
CASES = {
    "all on the GPU": loop(node("MatMul", "s weight", "m"), node("Tanh", "m", "after"), own=(WEIGHT,)),
    "weights of the graph around": loop(
        node("MatMul", "s weight", "m"),
        node("Tan", "m", "tan"),
        node("Add", "tan bias", "after"),
        around=(WEIGHT, BIAS),
    ),
    "no kernel in between": loop(*TAN_BETWEEN),
    "no kernel at the end": loop(node("Sqrt", "s", "root"), node("Tan", "root", "after")),
    "no kernel at the start": loop(node("Tan", "s", "tan"), node("Relu", "tan", "after")),
    "what is handed on is read on both sides": loop(
        node("Tan", "s", "tan"), node("Sqrt", "s", "root"), node("Add", "tan root", "after")
    ),
    "what is outside is read on the GPU": loop(node("Add", "s start", "after")),
    "what is outside is read on the CPU": loop(node("Tan", "start", "tan"), node("Add", "s tan", "after")),
    "what is outside is read on both sides": loop(
        node("Tan", "start", "tan"), node("Sqrt", "start", "root"), node("Add", "root tan", "after")
    ),
    "what is fed is read on both sides": loop(
        node("Tan", "x", "tan"), node("Sqrt", "x", "root"), node("Add", "root tan", "after")
    ),
    "the condition is computed on the GPU": loop(
        node("ReduceMax", "s", "most", keepdims=0),
        node("Less", "most limit", "less"),
        *TAN_BETWEEN,
        own=(numpy_helper.from_array(np.array(5, np.float32), "limit"),),
        condition="less",
    ),
    "the pass is used as a number": loop(
        node("Cast", "i", "pass", to=TensorProto.FLOAT), node("Add", "s pass", "after")
    ),
    "a composite": loop(node("Mish", "s", "mish"), node("Tan", "mish", "after")),
    "constants of its own are folded": loop(
        node("Neg", "bias", "minus"), node("Add", "s minus", "after"), own=(BIAS,)
    ),
    "constants around it": loop(node("Neg", "bias", "minus"), node("Add", "s minus", "after"), around=(BIAS,)),
    "a branch in a loop": loop(
        branches(
            "c", [node("Tan", "s", "tan"), node("Relu", "tan", "one")], [node("Relu", "s", "two")], "chosen"
        ),
        node("Sqrt", "chosen", "after"),
    ),
    "a branch": decided_on_the_gpu(),
    "a scan": scanned(),
}


def bodies(placement: Placement) -> Iterator[PlacedBody]:
    for body in placement.bodies:
        yield body
        yield from bodies(body.placement)


@pytest.mark.parametrize("case", CASES)
def test_every_node_and_copy_inside_is_as_the_real_provider_has_it(judge: Judge, case: str) -> None:
    asked = CASES[case]
    onnx.checker.check_model(asked)
    ruling = judge.rule(asked)
    assert ruling.error == ""
    found = list(bodies(place(to_graph(asked))))
    placed = [pair for body in found for pair in zip(body.graph.nodes, body.placement.nodes, strict=True)]
    mine = {item.name: where.provider for item, where in placed if where.why != "folded"}
    inside = {name: provider for name, provider in ruling.assigned.items() if name in mine}
    assert mine == {**mine, **inside}
    # A composite is placed in parts without names; an Identity that ends a graph is taken out.
    assert {item.op_type for item, _ in placed if item.name in set(mine) - set(inside)} <= {"Mish", "Identity"}
    copies = {(copy.direction, copy.tensor) for body in found for copy in body.placement.copies}
    assert copies == ruling.tensors_copied_inside
