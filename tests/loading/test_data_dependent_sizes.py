"""Sizes that only the data decide are counted with the most to expect, and stay open in the graph."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

from analyzer.costs.table import count
from analyzer.loading.onnx_graph.build import to_graph

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
