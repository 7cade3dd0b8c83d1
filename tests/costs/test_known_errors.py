"""The errors that other counters make, each with the figure worked out by hand."""

from collections.abc import Callable
from typing import Any

import numpy as np
from onnx import TensorProto, helper

from analyzer.costs import count
from analyzer.record.analysis import Coverage

INT64, UINT8, INT8 = TensorProto.INT64, TensorProto.UINT8, TensorProto.INT8


def test_a_causal_mask_is_not_discounted_and_the_discounted_figure_is_told(cost_of: Callable[..., Any]) -> None:
    shapes = {"q": [1, 1, 4, 8], "k": [1, 1, 4, 8], "v": [1, 1, 4, 8]}
    dense = cost_of("Attention", opset=23, **shapes)
    causal = cost_of("Attention", opset=23, attributes={"is_causal": 1}, **shapes)
    assert causal.flops == dense.flops
    assert str(dense.flops * 10 // 16) in causal.note  # 4 + 3 + 2 + 1 of 4 * 4 scores are left


def test_a_module_called_twice_counts_twice_and_its_weights_are_stored_once(
    make_graph: Callable[..., Any],
) -> None:
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"]), helper.make_node("MatMul", ["y", "w"], ["z"])]
    graph = make_graph(nodes, {"x": [3, 4]}, ["z"], weights={"w": [4, 4]})
    table = count(graph)
    assert table.total.macs == 2 * 3 * 4 * 4
    assert table.total.bytes_read == 2 * (4 * 3 * 4 + 4 * 4 * 4)
    assert graph.parameter_bytes == 4 * 4 * 4


def test_a_tanh_gelu_written_out_costs_what_the_operator_costs(
    make_graph: Callable[..., Any], cost_of: Callable[..., Any]
) -> None:
    nodes = [
        helper.make_node("Pow", ["x", "three"], ["cube"]),
        helper.make_node("Mul", ["cube", "c"], ["small"]),
        helper.make_node("Add", ["x", "small"], ["sum"]),
        helper.make_node("Mul", ["sum", "c"], ["scaled"]),
        helper.make_node("Tanh", ["scaled"], ["tanh"]),
        helper.make_node("Add", ["tanh", "c"], ["one"]),
        helper.make_node("Mul", ["x", "one"], ["xone"]),
        helper.make_node("Mul", ["xone", "c"], ["y"]),
    ]
    graph = make_graph(nodes, {"x": [6, 7]}, ["y"], {"c": np.float32(1), "three": np.float32(3)})
    written_out = count(graph).total.flops
    assert written_out == 8 * 42
    assert written_out == cost_of("Gelu", x=[6, 7], attributes={"approximate": "tanh"}).flops


def test_one_unknown_operator_leaves_a_partial_total_with_its_coverage(make_graph: Callable[..., Any]) -> None:
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["y"]),
        helper.make_node("Mystery", ["y"], ["z"], domain="com.acme"),
    ]
    table = count(make_graph(nodes, {"x": [3, 4]}, ["z"], weights={"w": [4, 5]}, declared={"z": [3, 5]}))
    assert table.costs[1].flops is None
    assert "com.acme::Mystery" in table.costs[1].note
    assert table.costs[1].bytes_moved == 2 * 4 * 15
    assert table.total.flops == 2 * 60
    assert table.total.basis == "unknown"
    assert table.coverage() == Coverage(exact=0.5, modelled=0.0, unknown=0.5)


def test_an_operator_of_another_domain_is_not_the_one_of_the_same_name(cost_of: Callable[..., Any]) -> None:
    cost = cost_of("MatMul", domain="com.acme", a=[3, 4], b=[4, 5], declared=[[3, 5]])
    assert cost.basis == "unknown"
    assert cost.flops is None


def test_an_operator_that_computes_nothing_has_an_intensity_of_zero_and_a_view_has_none(
    cost_of: Callable[..., Any],
) -> None:
    assert cost_of("Transpose", x=[3, 4], attributes={"perm": [1, 0]}).intensity == 0
    view = cost_of("Reshape", x=[3, 4], constants={"s": [12]})
    assert (view.flops, view.bytes_moved, view.intensity) == (0, 0, None)


def test_a_tensor_used_twice_by_one_operator_is_read_once(make_graph: Callable[..., Any]) -> None:
    graph = make_graph([helper.make_node("Mul", ["x", "x"], ["y"])], {"x": [10]}, ["y"])
    assert count(graph).costs[0].bytes_read == 40
