"""How FLOPs and bytes are counted: one worked figure for each convention."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

from analyzer.costs import count

INT64 = TensorProto.INT64


def test_a_bias_of_a_convolution_adds_its_outputs(cost_of: Callable[..., Any]) -> None:
    plain = cost_of("Conv", x=[1, 3, 8, 8], w=[4, 3, 3, 3])
    biased = cost_of("Conv", x=[1, 3, 8, 8], w=[4, 3, 3, 3], b=[4])
    assert plain.flops == 2 * 4 * 36 * 27
    assert biased.flops - plain.flops == 4 * 36
    assert biased.macs == plain.macs
    assert biased.bytes_read - plain.bytes_read == 16


def test_c_of_a_gemm_adds_m_times_n(cost_of: Callable[..., Any]) -> None:
    assert cost_of("Gemm", a=[5, 6], b=[6, 7], c=[7]).flops == 2 * 5 * 6 * 7 + 5 * 7


@pytest.mark.parametrize("op_type", ["Relu", "Sigmoid", "Erf", "Exp", "Tanh", "Neg", "Sqrt"])
def test_elementwise_operators_cost_one_flop_an_output(cost_of: Callable[..., Any], op_type: str) -> None:
    cost = cost_of(op_type, x=[3, 5])
    assert (cost.flops, cost.macs, cost.bytes_read, cost.bytes_written) == (15, 0, 60, 60)


@pytest.mark.parametrize(
    ("op_type", "shapes", "constants", "attributes"),
    [
        ("Concat", {"a": [3, 5], "b": [3, 5]}, {}, {"axis": 0}),
        ("Cast", {"x": [3, 5]}, {}, {"to": TensorProto.FLOAT16}),
        ("Pad", {"x": [3, 5]}, {"pads": [1, 1, 1, 1]}, {}),
        ("Tile", {"x": [3, 5]}, {"repeats": [2, 2]}, {}),
        ("Expand", {"x": [1, 5]}, {"shape": [3, 5]}, {}),
        ("DepthToSpace", {"x": [1, 4, 2, 2]}, {}, {"blocksize": 2}),
    ],
)
def test_movement_has_no_flops_and_has_bytes(
    cost_of: Callable[..., Any],
    op_type: str,
    shapes: dict[str, list[int]],
    constants: dict[Any, Any],
    attributes: dict[Any, Any],
) -> None:
    cost = cost_of(op_type, **shapes, constants=constants, attributes=attributes)
    assert (cost.flops, cost.macs, cost.basis) == (0, 0, "exact")
    assert cost.bytes_read > 0
    assert cost.bytes_written > 0


@pytest.mark.parametrize(
    ("op_type", "constants"),
    [
        ("Reshape", {"s": [15]}),
        ("Squeeze", {"s": [0]}),
        ("Unsqueeze", {"s": [0]}),
        ("Flatten", {}),
        ("Identity", {}),
    ],
)
def test_views_move_nothing(cost_of: Callable[..., Any], op_type: str, constants: dict[Any, Any]) -> None:
    cost = cost_of(op_type, x=[1, 15], constants=constants)
    assert (cost.flops, cost.bytes_moved) == (0, 0)


def test_dropout_at_inference_is_a_view_and_in_training_it_is_not(cost_of: Callable[..., Any]) -> None:
    assert cost_of("Dropout", x=[10]).bytes_moved == 0
    training = cost_of("Dropout", x=[10], constants={"ratio": np.float32(0.5), "mode": np.bool_(True)})
    assert training.flops == 20


def test_a_permutation_of_axes_of_size_one_is_a_view_and_a_real_one_is_traffic(
    cost_of: Callable[..., Any],
) -> None:
    assert cost_of("Transpose", x=[1, 5, 3], attributes={"perm": [1, 0, 2]}).bytes_moved == 0
    assert cost_of("Transpose", x=[1, 5, 3], attributes={"perm": [0, 2, 1]}).bytes_moved == 2 * 60


def test_a_slice_reads_its_slice(cost_of: Callable[..., Any]) -> None:
    cost = cost_of("Slice", x=[100, 10], constants={"starts": [0], "ends": [3], "axes": [0]})
    assert cost.bytes_read == 3 * 10 * 4 + 3 * 8


def test_a_cast_reads_and_writes_each_in_its_own_width(cost_of: Callable[..., Any]) -> None:
    cost = cost_of("Cast", x=[10], attributes={"to": TensorProto.FLOAT16})
    assert (cost.bytes_read, cost.bytes_written) == (40, 20)


def test_expand_writes_what_it_makes(cost_of: Callable[..., Any]) -> None:
    assert cost_of("Expand", x=[1, 5], constants={"s": [7, 5]}).bytes_written == 7 * 5 * 4


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


def test_integer_products_are_two_operations_too(cost_of: Callable[..., Any]) -> None:
    kinds = {"a": (TensorProto.UINT8, [5, 6]), "b": (TensorProto.INT8, [6, 7])}
    cost = cost_of("MatMulInteger", **kinds)
    assert cost.flops == 2 * 5 * 6 * 7
    assert (cost.bytes_read, cost.bytes_written) == (30 + 42, 4 * 35)


def test_dequantising_costs_at_most_three_a_weight(cost_of: Callable[..., Any]) -> None:
    without = cost_of("DequantizeLinear", x=(TensorProto.INT8, [100]), s=[])
    with_point = cost_of("DequantizeLinear", x=(TensorProto.INT8, [100]), s=[], z=(TensorProto.INT8, []))
    assert (without.flops, with_point.flops) == (100, 200)


def test_pools_count_every_tap(cost_of: Callable[..., Any]) -> None:
    cost = cost_of(
        "MaxPool", x=[1, 2, 8, 8], attributes={"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1] * 4}
    )
    assert cost.flops == 2 * 4 * 4 * 9
    assert cost_of("GlobalAveragePool", x=[1, 2, 8, 8]).flops == 2 * 64


def test_reductions_count_their_inputs(cost_of: Callable[..., Any]) -> None:
    assert cost_of("ReduceSum", x=[4, 5], constants={"axes": [1]}).flops == 20
    assert cost_of("ReduceMean", x=[4, 5], constants={"axes": [1]}).flops == 24


def test_resize_counts_its_taps(cost_of: Callable[..., Any]) -> None:
    sizes = {"roi": np.zeros(0, np.float32), "scales": np.array([1, 1, 2, 2], np.float32)}
    linear = cost_of("Resize", x=[1, 3, 4, 4], constants=sizes, attributes={"mode": "linear"})
    nearest = cost_of("Resize", x=[1, 3, 4, 4], constants=sizes, attributes={"mode": "nearest"})
    assert (linear.flops, nearest.flops) == (2 * 4 * 3 * 64, 0)


def test_a_sum_of_three_is_two_additions(cost_of: Callable[..., Any]) -> None:
    assert cost_of("Sum", a=[10], b=[10], c=[10]).flops == 20


def test_a_clip_with_one_bound_is_one_pass(cost_of: Callable[..., Any]) -> None:
    assert cost_of("Clip", x=[10], constants={"low": np.float32(0)}).flops == 10


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


def test_multi_head_attention_of_onnx_runtime_is_counted_as_the_products_it_holds(
    cost_of: Callable[..., Any],
) -> None:
    cost = cost_of(
        "MultiHeadAttention",
        domain="com.microsoft",
        q=[2, 16, 64],
        k=[2, 24, 64],
        v=[2, 24, 64],
        attributes={"num_heads": 4},
    )
    assert cost.macs == 2 * 4 * 16 * 24 * (16 + 16)
    assert cost.bytes_written == 4 * 2 * 16 * 64


def test_attention_of_onnx_runtime_holds_its_projections(cost_of: Callable[..., Any]) -> None:
    cost = cost_of(
        "Attention", domain="com.microsoft", x=[2, 16, 64], w=[64, 192], b=[192], attributes={"num_heads": 4}
    )
    assert cost.macs == 2 * 16 * 64 * 192 + 2 * 4 * 16 * 16 * 32


def test_grouped_query_attention_of_onnx_runtime_counts_query_heads_over_the_whole_cache(
    cost_of: Callable[..., Any],
) -> None:
    int32 = TensorProto.INT32
    cost = cost_of(
        "GroupQueryAttention",
        domain="com.microsoft",
        q=[1, 1, 64],
        k=[1, 1, 16],
        v=[1, 1, 16],
        pk=[1, 2, 31, 8],
        pv=[1, 2, 31, 8],
        lens=(int32, [1]),
        constants={"total": np.array(32, np.int32)},
        outputs=3,
        attributes={"num_heads": 8, "kv_num_heads": 2},
    )
    assert cost.macs == 8 * 32 * 16
    assert cost.basis == "exact"
    assert cost.bytes_written == 4 * (64 + 2 * 2 * 32 * 8)


def test_a_mixture_runs_each_token_through_k_experts_and_reads_those_alone(cost_of: Callable[..., Any]) -> None:
    cost = cost_of(
        "MoE",
        domain="com.microsoft",
        x=[3, 8],
        router=[3, 16],
        fc1=[16, 32, 8],
        b1=None,
        fc2=[16, 8, 32],
        order=["x", "router", "fc1", "b1", "fc2"],
        attributes={"k": 2},
    )
    assert cost.macs == 3 * 2 * (32 * 8 + 8 * 32)
    assert cost.bytes_read == 4 * (24 + 48 + 6 * 2 * 32 * 8)
    assert cost.basis == "modelled"


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


def test_a_linear_model_is_a_product(cost_of: Callable[..., Any]) -> None:
    cost = cost_of(
        "LinearRegressor",
        domain="ai.onnx.ml",
        x=[7, 3],
        declared=[[7, 2]],
        attributes={"coefficients": [1.0] * 6, "intercepts": [0.0, 0.0], "targets": 2},
    )
    assert (cost.macs, cost.flops) == (42, 84 + 14)
