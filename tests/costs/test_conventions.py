"""How FLOPs and bytes are counted: one worked figure for each convention."""

from collections.abc import Callable
from typing import Any

import pytest
from onnx import TensorProto, helper

from analyzer.costs import count

INT64 = TensorProto.INT64


def test_a_constant_subgraph_costs_nothing(make_graph: Callable[..., Any]) -> None:
    nodes = [
        helper.make_node("Transpose", ["w"], ["wt"], perm=[1, 0]),
        helper.make_node("MatMul", ["x", "wt"], ["y"]),
        helper.make_node("Shape", ["y"], ["shape"]),
    ]
    table = count(make_graph(nodes, {"x": [3, 4]}, ["y", "shape"], weights={"w": [5, 4]}))
    assert [cost.flops for cost in table.costs] == [0, 2 * 3 * 4 * 5, 0]
    assert table.costs[0].bytes_moved == 0
    assert table.costs[2].bytes_moved == 0


def test_random_numbers_are_no_constants(cost_of: Callable[..., Any]) -> None:
    assert cost_of("RandomNormal", attributes={"shape": [10]}).flops == 10


def test_strings_have_no_bytes_and_say_so(cost_of: Callable[..., Any]) -> None:
    kind = (TensorProto.STRING, [4])
    cost = cost_of("StringConcat", a=kind, b=kind)
    assert (cost.flops, cost.bytes_moved, cost.basis) == (0, None, "modelled")
    assert "no fixed width" in cost.note


def test_a_size_that_data_decide_is_named_with_the_operator_that_loses_it(
    make_graph: Callable[..., Any],
) -> None:
    nodes = [
        helper.make_node("NonZero", ["x"], ["where"], name="find"),
        helper.make_node("Cast", ["where"], ["float"], to=1, name="cast"),
        helper.make_node("Relu", ["float"], ["y"], name="relu"),
    ]
    table = count(make_graph(nodes, {"x": [4, 5]}, ["y"]))
    assert table.costs[0].flops == 20
    assert {cost.basis for cost in table.costs} == {"modelled"}
    assert "'y' along axis 1" in table.costs[2].note
    assert "'find' (NonZero)" in table.costs[2].note


def test_a_tree_ensemble_walks_each_tree_to_the_mean_depth_of_its_leaves(cost_of: Callable[..., Any]) -> None:
    # root -> (leaf at 1, node -> two leaves at 2): mean depth 5/3; 6 rows make 10 comparisons and 6 sums
    cost = cost_of(
        "TreeEnsembleRegressor",
        domain="ai.onnx.ml",
        x=[6, 3],
        declared=[[6, 1]],
        attributes={
            "n_targets": 1,
            "nodes_treeids": [0] * 5,
            "nodes_nodeids": [0, 1, 2, 3, 4],
            "nodes_featureids": [0, 0, 1, 0, 0],
            "nodes_values": [0.5, 0.0, 0.5, 0.0, 0.0],
            "nodes_modes": ["BRANCH_LEQ", "LEAF", "BRANCH_LEQ", "LEAF", "LEAF"],
            "nodes_truenodeids": [1, 0, 3, 0, 0],
            "nodes_falsenodeids": [2, 0, 4, 0, 0],
            "target_treeids": [0] * 3,
            "target_nodeids": [1, 3, 4],
            "target_ids": [0] * 3,
            "target_weights": [1.0, 2.0, 3.0],
        },
    )
    assert cost.flops == 10 + 6
    assert cost.basis == "modelled"


@pytest.mark.parametrize(("classes", "additions"), [((2, 0), 6), ((0, 1, 2, 0, 1, 2), 18)])
def test_a_leaf_adds_the_weights_that_it_holds(
    cost_of: Callable[..., Any], classes: tuple[int, ...], additions: int
) -> None:
    """One tree of one comparison: leaves of boosted trees add to one class, of forests to all."""
    each = len(classes) // 2
    cost = cost_of(
        "TreeEnsembleClassifier",
        domain="ai.onnx.ml",
        outputs=2,
        x=[6, 3],
        declared=[[6], [6, 3]],
        attributes={
            "classlabels_int64s": [0, 1, 2],
            "nodes_treeids": [0] * 3,
            "nodes_nodeids": [0, 1, 2],
            "nodes_featureids": [0] * 3,
            "nodes_values": [0.5, 0.0, 0.0],
            "nodes_modes": ["BRANCH_LEQ", "LEAF", "LEAF"],
            "nodes_truenodeids": [1, 0, 0],
            "nodes_falsenodeids": [2, 0, 0],
            "class_treeids": [0] * len(classes),
            "class_nodeids": [1] * each + [2] * each,
            "class_ids": list(classes),
            "class_weights": [0.5] * len(classes),
        },
    )
    assert cost.flops == 6 + additions  # 6 rows, a comparison each
