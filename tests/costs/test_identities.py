"""Laws that counts obey, whatever the sizes: no oracle is needed."""

from typing import Any

import hypothesis.strategies as st
from hypothesis import HealthCheck, given, settings
from onnx import helper

from analyzer.costs import count

sizes = st.integers(1, 9)
quick = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@quick
@given(batch=sizes, factor=sizes, channels=sizes, filters=sizes, side=st.integers(3, 9))
def test_a_larger_batch_scales_the_flops_of_a_convolution(
    cost_of: Any, batch: Any, factor: Any, channels: Any, filters: Any, side: Any
) -> None:
    weight = [filters, channels, 3, 3]
    one = cost_of("Conv", x=[batch, channels, side, side], w=weight)
    many = cost_of("Conv", x=[batch * factor, channels, side, side], w=weight)
    assert many.flops == factor * one.flops
    assert many.bytes_written == factor * one.bytes_written


@quick
@given(batch=sizes, channels=sizes, filters=sizes, side=sizes)
def test_a_one_by_one_convolution_equals_a_product(
    cost_of: Any, batch: Any, channels: Any, filters: Any, side: Any
) -> None:
    conv = cost_of("Conv", x=[batch, channels, side, side], w=[filters, channels, 1, 1])
    product = cost_of("MatMul", a=[filters, channels], b=[batch, channels, side * side])
    assert (conv.flops, conv.macs, conv.bytes_moved) == (product.flops, product.macs, product.bytes_moved)


@quick
@given(groups=sizes, channels=sizes, filters=sizes, side=st.integers(3, 9))
def test_groups_divide_the_flops_of_a_convolution(
    cost_of: Any, groups: Any, channels: Any, filters: Any, side: Any
) -> None:
    x = [1, groups * channels, side, side]
    whole = cost_of("Conv", x=x, w=[groups * filters, groups * channels, 3, 3])
    grouped = cost_of("Conv", x=x, w=[groups * filters, channels, 3, 3], attributes={"group": groups})
    assert whole.flops == groups * grouped.flops


@quick
@given(m=sizes, n=sizes, k=sizes, with_c=st.booleans())
def test_a_gemm_equals_its_transposed_twins(cost_of: Any, m: Any, n: Any, k: Any, with_c: Any) -> None:
    c = {"c": [m, n]} if with_c else {}
    counts = set()
    for left in (0, 1):
        for right in (0, 1):
            a, b = ([k, m] if left else [m, k]), ([n, k] if right else [k, n])
            cost = cost_of("Gemm", a=a, b=b, **c, attributes={"transA": left, "transB": right})
            counts.add((cost.flops, cost.macs, cost.bytes_read, cost.bytes_written))
    assert len(counts) == 1


@quick
@given(batch=sizes, channels=sizes, filters=sizes, size=st.integers(3, 9), stride=st.integers(1, 3))
def test_a_transposed_convolution_is_the_backward_pass_of_a_convolution(
    cost_of: Any, batch: Any, channels: Any, filters: Any, size: Any, stride: Any
) -> None:
    weight, strides = [channels, filters, 3, 3], {"strides": [stride, stride]}
    up = cost_of("ConvTranspose", x=[batch, channels, size, size], w=weight, attributes=strides)
    large = (size - 1) * stride + 3
    down = cost_of("Conv", x=[batch, filters, large, large], w=weight, attributes=strides)
    assert up.macs == down.macs


@quick
@given(batch=sizes, heads=sizes, queries=sizes, keys=sizes, size=sizes, value=sizes)
def test_attention_is_its_two_products(
    cost_of: Any, batch: Any, heads: Any, queries: Any, keys: Any, size: Any, value: Any
) -> None:
    whole = cost_of(
        "Attention",
        opset=23,
        q=[batch, heads, queries, size],
        k=[batch, heads, keys, size],
        v=[batch, heads, keys, value],
    )
    scores = cost_of("MatMul", a=[batch, heads, queries, size], b=[batch, heads, size, keys])
    mixed = cost_of("MatMul", a=[batch, heads, queries, keys], b=[batch, heads, keys, value])
    assert whole.macs == scores.macs + mixed.macs


@quick
@given(m=sizes, n=sizes, k=sizes, batch=sizes)
def test_an_einsum_of_a_product_equals_the_product(cost_of: Any, m: Any, n: Any, k: Any, batch: Any) -> None:
    shapes = {"a": [batch, m, k], "b": [batch, k, n]}
    written = cost_of("Einsum", **shapes, attributes={"equation": "bmk,bkn->bmn"})
    product = cost_of("MatMul", **shapes)
    assert (written.flops, written.macs, written.bytes_moved) == (
        product.flops,
        product.macs,
        product.bytes_moved,
    )


@quick
@given(order=st.permutations(range(6)))
def test_totals_do_not_depend_on_the_order_of_the_nodes(make_graph: Any, order: Any) -> None:
    nodes = [
        helper.make_node("Relu", ["x"], ["a"], name="relu"),
        helper.make_node("Exp", ["x"], ["b"], name="exp"),
        helper.make_node("MatMul", ["a", "w"], ["c"], name="first"),
        helper.make_node("MatMul", ["b", "w"], ["d"], name="second"),
        helper.make_node("Add", ["c", "d"], ["e"], name="add"),
        helper.make_node("Softmax", ["e"], ["y"], name="softmax"),
    ]
    shapes = {"inputs": {"x": [3, 4]}, "outputs": ["y"], "weights": {"w": [4, 5]}}
    mixed = count(make_graph([nodes[index] for index in order], **shapes))
    straight = count(make_graph(nodes, **shapes))
    assert mixed.total == straight.total
    assert mixed.graph.producer["y"] == 5
