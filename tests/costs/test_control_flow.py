"""If, Loop and Scan: one entry each, bodies counted as often as they run."""

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper

from analyzer.costs import count
from analyzer.graph import Graph

BOOL, INT64, FLOAT = TensorProto.BOOL, TensorProto.INT64, TensorProto.FLOAT


def branch(op_types: list[str], result: str) -> onnx.GraphProto:
    names = ["x", *(f"{result}{number}" for number in range(len(op_types)))]
    nodes = [helper.make_node(op, [names[i]], [names[i + 1]]) for i, op in enumerate(op_types)]
    return helper.make_graph(nodes, result, [], [helper.make_tensor_value_info(names[-1], FLOAT, [10])])


def if_node() -> onnx.NodeProto:
    return helper.make_node(
        "If",
        ["c"],
        ["y"],
        name="if",
        then_branch=branch(["Relu"], "t"),
        else_branch=branch(["Relu", "Exp"], "e"),
    )


@pytest.mark.parametrize(("condition", "flops"), [(True, 10), (False, 20)])
def test_an_if_with_a_constant_condition_is_the_branch_it_takes(
    make_graph: Callable[..., Any], condition: bool, flops: int
) -> None:
    cost = count(make_graph([if_node()], {"x": [10]}, ["y"], {"c": np.array(condition)})).costs[0]
    assert (cost.flops, cost.basis) == (flops, "exact")


def test_an_if_that_the_data_decide_is_its_costlier_branch_and_says_so(make_graph: Callable[..., Any]) -> None:
    cost = count(make_graph([if_node()], {"x": [10], "c": (BOOL, [1])}, ["y"])).costs[0]
    assert (cost.flops, cost.basis) == (20, "modelled")
    assert "costlier branch" in cost.note


def loop_body(condition: onnx.NodeProto) -> onnx.GraphProto:
    nodes = [helper.make_node("Add", ["s", "w"], ["s2"]), condition]
    return helper.make_graph(
        nodes,
        "body",
        [
            helper.make_tensor_value_info("i", INT64, []),
            helper.make_tensor_value_info("go", BOOL, []),
            helper.make_tensor_value_info("s", FLOAT, None),
        ],
        [
            helper.make_tensor_value_info("go2", BOOL, []),
            helper.make_tensor_value_info("s2", FLOAT, None),
            helper.make_tensor_value_info("s2", FLOAT, None),
        ],
    )


KEEPS = helper.make_node("Identity", ["go"], ["go2"])


def looped(
    make_graph: Callable[..., Any],
    constants: dict[str, NDArray[Any]],
    inputs: dict[str, tuple[int, list[Any]]] | None = None,
    condition: onnx.NodeProto = KEEPS,
) -> Graph:
    node = helper.make_node("Loop", ["n", "c", "x"], ["y", "all"], body=loop_body(condition))
    return make_graph([node], {"x": [2, 5], "w": [2, 5], **(inputs or {})}, ["y", "all"], constants)


def test_a_loop_with_a_known_limit_is_its_body_as_often(make_graph: Callable[..., Any]) -> None:
    graph = looped(make_graph, {"n": np.array(7), "c": np.array(True)})
    cost = count(graph).costs[0]
    assert (cost.flops, cost.basis) == (7 * 10, "exact")
    assert graph.outputs[1].shape == (7, 2, 5)
    assert len(graph.nodes) == 1


def test_a_loop_whose_condition_may_turn_false_is_modelled_at_its_limit(make_graph: Callable[..., Any]) -> None:
    ends = helper.make_node("Less", ["i", "most"], ["go2"])
    constants = {"n": np.array(7), "c": np.array(True)}
    cost = count(looped(make_graph, constants, {"most": (INT64, [])}, ends)).costs[0]
    assert (cost.flops, cost.basis) == (7 * (10 + 1), "modelled")


def test_a_loop_whose_condition_turns_false_at_once_is_its_body_once(make_graph: Callable[..., Any]) -> None:
    ends = helper.make_node("Less", ["i", "i"], ["go2"])
    cost = count(looped(make_graph, {"n": np.array(7), "c": np.array(True)}, condition=ends)).costs[0]
    assert (cost.flops, cost.basis) == (10 + 1, "exact")


def test_a_loop_without_a_known_limit_counts_its_body_once_and_says_so(make_graph: Callable[..., Any]) -> None:
    graph = looped(make_graph, {"c": np.array(True)}, {"n": (INT64, [])})
    cost = count(graph).costs[0]
    assert (cost.flops, cost.basis) == (10, "modelled")
    assert "not known" in cost.note
    assert graph.outputs[1].shape == (None, 2, 5)


def test_a_loop_whose_state_grows_leaves_its_size_open(make_graph: Callable[..., Any]) -> None:
    grow = helper.make_graph(
        [helper.make_node("Concat", ["s", "w"], ["s2"], axis=0), helper.make_node("Identity", ["go"], ["go2"])],
        "body",
        [
            helper.make_tensor_value_info("i", INT64, []),
            helper.make_tensor_value_info("go", BOOL, []),
            helper.make_tensor_value_info("s", FLOAT, None),
        ],
        [helper.make_tensor_value_info("go2", BOOL, []), helper.make_tensor_value_info("s2", FLOAT, None)],
    )
    node = helper.make_node("Loop", ["n", "c", "x"], ["y"], body=grow)
    graph = make_graph([node], {"x": [2, 5], "w": [3, 5]}, ["y"], {"n": np.array(4), "c": np.array(True)})
    assert graph.outputs[0].shape == (None, 5)


def test_a_scan_runs_its_body_for_each_slice(make_graph: Callable[..., Any]) -> None:
    body = helper.make_graph(
        [helper.make_node("Add", ["s", "e"], ["s2"]), helper.make_node("Relu", ["s2"], ["r"])],
        "body",
        [helper.make_tensor_value_info("s", FLOAT, [5]), helper.make_tensor_value_info("e", FLOAT, [5])],
        [helper.make_tensor_value_info("s2", FLOAT, [5]), helper.make_tensor_value_info("r", FLOAT, [5])],
    )
    node = helper.make_node("Scan", ["init", "x"], ["last", "all"], body=body, num_scan_inputs=1)
    graph = make_graph([node], {"init": [5], "x": [9, 5]}, ["last", "all"])
    cost = count(graph).costs[0]
    assert (cost.flops, cost.basis) == (9 * 10, "exact")
    assert graph.outputs[1].shape == (9, 5)


def test_an_unknown_operator_in_a_body_makes_the_loop_unknown(make_graph: Callable[..., Any]) -> None:
    strange = helper.make_node("Mystery", ["go"], ["go2"], domain="com.acme")
    cost = count(looped(make_graph, {"n": np.array(7), "c": np.array(True)}, condition=strange)).costs[0]
    assert cost.basis == "unknown"
    assert "com.acme::Mystery" in cost.note


def test_a_model_local_function_is_counted_by_what_is_in_it(make_model: Callable[..., Any]) -> None:
    from analyzer.loading.onnx_graph.build import to_graph

    function = helper.make_function(
        "local",
        "Twice",
        ["a"],
        ["b"],
        [helper.make_node("Relu", ["a"], ["m"]), helper.make_node("Exp", ["m"], ["b"])],
        [helper.make_opsetid("", 21)],
    )
    model = make_model([helper.make_node("Twice", ["x"], ["y"], domain="local")], {"x": [10]}, ["y"])
    model.functions.append(function)
    table = count(to_graph(model))
    assert [node.op_type for node in table.graph.nodes] == ["Relu", "Exp"]
    assert table.total.flops == 20
