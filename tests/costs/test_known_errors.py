"""The errors that other counters make, each with the figure worked out by hand."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

from analyzer.costs import count, elements
from analyzer.record.analysis import Coverage

INT64, UINT8, INT8 = TensorProto.INT64, TensorProto.UINT8, TensorProto.INT8


def test_attention_holds_two_products_of_every_query_with_every_key(cost_of: Callable[..., Any]) -> None:
    # batch 32, 8 heads, 128 queries and keys, head size 64: 2 * 32*8*128*128 * (64 + 64)
    cost = cost_of("Attention", opset=23, q=[32, 8, 128, 64], k=[32, 8, 128, 64], v=[32, 8, 128, 64])
    assert 2 * cost.macs == 1_073_741_824


def test_grouped_attention_is_counted_by_query_heads_and_reads_keys_once_per_kv_head(
    cost_of: Callable[..., Any],
) -> None:
    cost = cost_of("Attention", opset=23, q=[2, 8, 16, 64], k=[2, 2, 16, 64], v=[2, 2, 16, 64])
    assert cost.macs == 2 * 8 * 16 * 16 * 128
    assert cost.bytes_read == 4 * (2 * 8 * 16 * 64 + 2 * (2 * 2 * 16 * 64))
    assert cost.bytes_written == 4 * 2 * 8 * 16 * 64


def test_a_causal_mask_is_not_discounted_and_the_discounted_figure_is_told(cost_of: Callable[..., Any]) -> None:
    shapes = {"q": [1, 1, 4, 8], "k": [1, 1, 4, 8], "v": [1, 1, 4, 8]}
    dense = cost_of("Attention", opset=23, **shapes)
    causal = cost_of("Attention", opset=23, attributes={"is_causal": 1}, **shapes)
    assert causal.flops == dense.flops
    assert str(dense.flops * 10 // 16) in causal.note  # 4 + 3 + 2 + 1 of 4 * 4 scores are left


def test_attention_over_a_past_counts_its_keys_and_writes_the_present_in_full(
    make_graph: Callable[..., Any],
) -> None:
    names = ["q", "k", "v", "", "pk", "pv"]
    node = helper.make_node("Attention", names, ["y", "present_k", "present_v"])
    shapes = {"q": [1, 2, 1, 8], "k": [1, 2, 1, 8], "v": [1, 2, 1, 8], "pk": [1, 2, 9, 8], "pv": [1, 2, 9, 8]}
    cost = count(make_graph([node], shapes, ["y", "present_k", "present_v"], opset=23)).costs[0]
    assert cost.macs == 1 * 2 * 1 * 10 * 16
    assert cost.bytes_written == 4 * (2 * 8 + 2 * (2 * 10 * 8))


def test_a_broadcast_first_operand_of_a_product_counts_for_every_batch(cost_of: Callable[..., Any]) -> None:
    assert cost_of("MatMul", a=[5, 6], b=[8, 6, 7]).macs == 8 * 5 * 6 * 7


@pytest.mark.parametrize(
    ("a", "b", "macs"), [([6], [6], 6), ([6], [6, 7], 42), ([5, 6], [6], 30), ([6], [4, 6, 7], 4 * 42)]
)
def test_products_with_one_dimensional_operands_are_counted(
    cost_of: Callable[..., Any], a: list[int], b: list[int], macs: int
) -> None:
    assert cost_of("MatMul", a=a, b=b).macs == macs


def test_a_transposed_convolution_is_counted_by_input_positions(cost_of: Callable[..., Any]) -> None:
    # 2 * N * Cin * Hin * Win * Cout/g * kh * kw, stride 2
    cost = cost_of("ConvTranspose", x=[1, 4, 5, 5], w=[4, 6, 3, 3], attributes={"strides": [2, 2]})
    assert 2 * cost.macs == 2 * 4 * 25 * 6 * 9


def test_a_transposed_convolution_of_48_macs_has_48_macs(cost_of: Callable[..., Any]) -> None:
    cost = cost_of("ConvTranspose", x=[1, 1, 2, 2], w=[1, 3, 2, 2], attributes={"strides": [2, 2]})
    assert cost.macs == 48


def test_groups_of_a_transposed_convolution_are_in_its_weight(cost_of: Callable[..., Any]) -> None:
    whole = cost_of("ConvTranspose", x=[1, 8, 5, 5], w=[8, 8, 3, 3])
    grouped = cost_of("ConvTranspose", x=[1, 8, 5, 5], w=[8, 2, 3, 3], attributes={"group": 4})
    assert whole.macs == 4 * grouped.macs


def test_crops_of_a_transposed_convolution_do_not_lower_its_count(cost_of: Callable[..., Any]) -> None:
    shapes = {"x": [1, 4, 5, 5], "w": [4, 6, 3, 3]}
    assert (
        cost_of("ConvTranspose", **shapes).macs
        == cost_of("ConvTranspose", attributes={"pads": [1] * 4}, **shapes).macs
    )


def test_a_same_padded_convolution_of_stride_two_has_half_the_positions_rounded_up(
    cost_of: Callable[..., Any],
) -> None:
    cost = cost_of(
        "Conv", x=[1, 3, 7, 7], w=[8, 3, 3, 3], attributes={"auto_pad": "SAME_UPPER", "strides": [2, 2]}
    )
    assert cost.macs == 8 * 4 * 4 * 3 * 9


def test_a_convolution_without_kernel_shape_takes_it_from_the_weight(cost_of: Callable[..., Any]) -> None:
    assert cost_of("Conv", x=[2, 3, 8, 8], w=[4, 3, 5, 3]).macs == 2 * 4 * 4 * 6 * 3 * 15


@pytest.mark.parametrize(("op_type", "gates"), [("LSTM", 4), ("GRU", 3), ("RNN", 1)])
@pytest.mark.parametrize("directions", [1, 2])
def test_recurrent_layers_count_every_step_and_direction(
    cost_of: Callable[..., Any], op_type: str, gates: int, directions: int
) -> None:
    steps, batch, width, hidden = 5, 3, 7, 4
    cost = cost_of(
        op_type,
        x=[steps, batch, width],
        w=[directions, gates * hidden, width],
        r=[directions, gates * hidden, hidden],
        attributes={"hidden_size": hidden, "direction": "bidirectional" if directions == 2 else "forward"},
    )
    assert cost.macs == steps * batch * directions * gates * hidden * (width + hidden)
    assert cost.bytes_read == 4 * (steps * batch * width + directions * gates * hidden * (width + hidden))


def test_an_addition_with_a_broadcast_operand_is_one_flop_an_output(cost_of: Callable[..., Any]) -> None:
    cost = cost_of("Add", a=[1, 64, 56, 56], b=[1, 64, 1, 1])
    assert cost.flops == 64 * 56 * 56
    assert cost.bytes_read == 4 * (64 * 56 * 56 + 64)


@pytest.mark.parametrize("op_type", ["Softmax", "Gelu", "Sigmoid"])
def test_activations_are_not_free(cost_of: Callable[..., Any], op_type: str) -> None:
    assert cost_of(op_type, x=[4, 16]).flops >= 64


def test_softmax_and_layer_norm_stay_within_the_conventions(cost_of: Callable[..., Any]) -> None:
    assert 3 <= cost_of("Softmax", x=[4, 16]).flops / 64 <= 5
    assert 4 <= cost_of("LayerNormalization", x=[4, 16], s=[16], b=[16]).flops / 64 <= 9


@pytest.mark.parametrize(
    ("equation", "a", "b", "macs"),
    [
        ("bhqd,bhkd->bhqk", [2, 8, 16, 64], [2, 8, 32, 64], 2 * 8 * 16 * 32 * 64),
        ("ij,jk", [3, 4], [4, 5], 60),
        ("...ij,...jk->...ik", [7, 3, 4], [4, 5], 7 * 60),
        ("i,j->ij", [3], [4], 0),
    ],
)
def test_einsum_costs_its_contraction(
    cost_of: Callable[..., Any], equation: str, a: list[int], b: list[int], macs: int
) -> None:
    cost = cost_of("Einsum", a=a, b=b, attributes={"equation": equation})
    assert cost.macs == macs
    assert cost.flops == (2 * macs or 12)


def test_einsum_of_three_operands_is_contracted_pair_by_pair(cost_of: Callable[..., Any]) -> None:
    cost = cost_of("Einsum", a=[3, 4], b=[4, 5], c=[5, 6], attributes={"equation": "ij,jk,kl->il"})
    assert cost.macs == 3 * 4 * 5 + 3 * 5 * 6


def test_einsum_without_a_sum_over_one_operand_is_a_permutation(cost_of: Callable[..., Any]) -> None:
    assert cost_of("Einsum", a=[3, 4], attributes={"equation": "ij->ji"}).flops == 0


def test_an_embedding_reads_the_rows_that_are_looked_up(cost_of: Callable[..., Any]) -> None:
    cost = cost_of("Gather", table=[50_000, 768], ids=(INT64, [1, 128]))
    assert cost.flops == 0
    assert cost.bytes_read == 128 * 768 * 4 + 128 * 8
    assert cost.bytes_written == 128 * 768 * 4


def test_an_embedding_never_reads_more_rows_than_there_are(cost_of: Callable[..., Any]) -> None:
    assert cost_of("Gather", table=[10, 4], ids=(INT64, [1000])).bytes_read == 10 * 4 * 4 + 8000


def test_each_tensor_is_read_in_its_own_width(cost_of: Callable[..., Any]) -> None:
    # int4 weights packed two to a byte beside float32 activations and scales
    cost = cost_of(
        "MatMulNBits",
        domain="com.microsoft",
        a=[1, 16, 4096],
        b=(UINT8, [11008, 128, 16]),
        s=[11008 * 128],
        attributes={"N": 11008, "K": 4096, "bits": 4, "block_size": 32},
    )
    assert cost.macs == 16 * 4096 * 11008
    assert cost.bytes_read == 4 * 16 * 4096 + 11008 * 128 * 16 + 4 * 11008 * 128
    assert 2 * cost.macs < cost.flops <= 2 * cost.macs + 3 * 4096 * 11008


def test_four_bit_tensors_are_half_a_byte_rounded_up_per_tensor(cost_of: Callable[..., Any]) -> None:
    cost = cost_of("DequantizeLinear", x=(TensorProto.INT4, [5]), s=[])
    assert cost.bytes_read == 3 + 4


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


def test_the_sizes_of_the_graph_are_what_the_formulas_used(make_graph: Callable[..., Any]) -> None:
    graph = make_graph([helper.make_node("Relu", ["x"], ["y"])], {"x": [3, 4]}, ["y"])
    assert elements(graph.nodes[0].outputs[0]) == 12
