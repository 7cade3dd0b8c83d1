"""Sizes that only the data decide are counted with the most to expect, and stay open in the graph."""

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from analyzer.costs.table import count
from analyzer.loading.onnx_graph.build import to_graph, with_known_sizes

TOKENS, WIDTH, CHOICES = 12, 8, 2


def experts(number: int) -> Any:
    """For each expert the tokens that chose it, through one matrix product."""
    nodes, outputs = [], []
    constants: dict[str, Any] = {"first": np.array([0], np.int64), "axis": np.array([0], np.int64)}
    for expert in range(number):
        constants[f"e{expert}"] = np.int64(expert)
        constants[f"w{expert}"] = np.ones((WIDTH, 5), np.float32)
        nodes += [
            helper.make_node("Equal", ["choice", f"e{expert}"], [f"is{expert}"]),
            helper.make_node("NonZero", [f"is{expert}"], [f"where{expert}"]),
            helper.make_node("Gather", [f"where{expert}", "first"], [f"rows{expert}"], axis=0),
            helper.make_node("Squeeze", [f"rows{expert}", "axis"], [f"row{expert}"]),
            helper.make_node("Gather", ["x", f"row{expert}"], [f"chosen{expert}"], axis=0),
            helper.make_node("MatMul", [f"chosen{expert}", f"w{expert}"], [f"y{expert}"]),
        ]
        outputs.append(f"y{expert}")
    choice = helper.make_tensor_value_info("choice", TensorProto.INT64, [TOKENS, CHOICES])
    return nodes, {"x": [TOKENS, WIDTH], "choice": choice}, outputs, constants


@pytest.mark.parametrize("number", [2, 4, 8])
def test_experts_share_the_tokens_that_choose_among_them(make_onnx: Callable[..., Any], number: int) -> None:
    graph = to_graph(make_onnx(*experts(number)))
    assert all(node.output(0).shape == (None, 5) for node in graph.nodes if node.op_type == "MatMul")
    # However the tokens spread, each goes through as many experts as it chooses.
    assert count(graph).total.macs == TOKENS * CHOICES * WIDTH * 5
    notes = [cost.note for cost in count(graph).costs if cost.macs]
    assert all("the likely " in note for note in notes)


def test_a_mask_may_keep_everything(make_onnx: Callable[..., Any]) -> None:
    nodes = [
        helper.make_node("Greater", ["score", "limit"], ["keep"]),
        helper.make_node("Compress", ["x", "keep"], ["kept"], axis=0),
        helper.make_node("MatMul", ["kept", "w"], ["y"]),
    ]
    constants = {"limit": np.float32(0.5), "w": np.ones((WIDTH, 5), np.float32)}
    graph = to_graph(make_onnx(nodes, {"x": [7, WIDTH], "score": [7]}, ["y"], constants))
    assert graph.nodes[2].output(0).shape == (None, 5)
    assert graph.expected_shapes["y"] == (7, 5)
    assert count(graph).total.macs == 7 * WIDTH * 5


@pytest.mark.parametrize(("limit", "kept"), [(3, 2 * 4 * 3), (1000, 2 * 4 * 50)])
def test_suppression_keeps_its_limit_in_each_class_and_no_more_than_there_are(
    make_onnx: Callable[..., Any], limit: int, kept: int
) -> None:
    nodes = [
        helper.make_node("NonMaxSuppression", ["boxes", "scores", "limit"], ["chosen"]),
        helper.make_node("Cast", ["chosen"], ["numbers"], to=TensorProto.FLOAT),
        helper.make_node("MatMul", ["numbers", "w"], ["y"]),
    ]
    constants = {"limit": np.array([limit], np.int64), "w": np.ones((3, 5), np.float32)}
    graph = to_graph(make_onnx(nodes, {"boxes": [2, 50, 4], "scores": [2, 4, 50]}, ["y"], constants))
    assert count(graph).total.macs == kept * 3 * 5


def test_what_one_source_decides_may_decide_the_next(make_onnx: Callable[..., Any]) -> None:
    nodes = [
        helper.make_node("NonZero", ["x"], ["first"]),
        helper.make_node("Cast", ["first"], ["values"], to=TensorProto.FLOAT),
        helper.make_node("NonZero", ["values"], ["second"]),
    ]
    graph = to_graph(make_onnx(nodes, {"x": [3, 5]}, ["second"]))
    assert graph.expected_shapes["second"] == (2, 2 * 15)


def test_a_graph_without_such_sizes_has_none(make_onnx: Callable[..., Any]) -> None:
    nodes = [helper.make_node("Relu", ["x"], ["y"])]
    assert to_graph(make_onnx(nodes, {"x": [3, 5]}, ["y"])).expected_shapes == {}


@pytest.mark.parametrize(("branches", "size"), [(20, 23), (600, None)])
def test_sizes_follow_through_branches_that_given_values_choose_as_far_as_the_stack_holds(
    make_onnx: Callable[..., Any], branches: int, size: int | None
) -> None:
    def scalar(name: str, kind: int = TensorProto.INT64) -> onnx.ValueInfoProto:
        return helper.make_tensor_value_info(name, kind, [])

    def branch(place: int, side: str) -> onnx.GraphProto:
        name = f"{side}{place}"
        return helper.make_graph(
            [helper.make_node("Add", [f"v{place}", "one"], [name])], name, [], [scalar(name)]
        )

    nodes = [helper.make_node("Identity", ["n"], ["v0"]), helper.make_node("Greater", ["n", "zero"], ["is"])]
    for place in range(branches):
        yes, no = branch(place, "a"), branch(place, "b")
        nodes.append(helper.make_node("If", ["is"], [f"v{place + 1}"], then_branch=yes, else_branch=no))
    nodes += [
        helper.make_node("Reshape", [f"v{branches}", "row"], ["shape"]),
        helper.make_node("ConstantOfShape", ["shape"], ["y"]),
    ]
    constants = {"zero": np.int64(0), "one": np.int64(1), "row": np.array([-1], np.int64)}
    graph = to_graph(make_onnx(nodes, {"n": scalar("n")}, ["y"], constants))
    assert graph.nodes[-1].output(0).shape == (None,)
    assert with_known_sizes(graph, {"n": np.array(3)}).outputs[0].shape == (size,)
