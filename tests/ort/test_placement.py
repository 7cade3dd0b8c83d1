"""Where ONNX Runtime's CUDA session puts operators; expected values are from its documentation and sources."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import onnx
import pytest
from symbolic_sizes import opened

from analyzer.graph import Graph
from analyzer.loading.onnx_graph.build import to_graph
from analyzer.ort.placement import best_opset, place


def graph(text: str, opset: int = 20, **initializers: Any) -> Graph:
    return to_graph(model(text, opset, **initializers))


def model(text: str, opset: int = 20, **initializers: Any) -> onnx.ModelProto:
    header = f'<ir_version: 10, opset_import: ["" : {opset}]>'
    parsed = onnx.parser.parse_model(f"{header} g {text}")
    for index, node in enumerate(parsed.graph.node):
        node.name = f"{node.op_type}_{index}"
    parsed.graph.initializer.extend(
        onnx.numpy_helper.from_array(np.asarray(value), name) for name, value in initializers.items()
    )
    return parsed


def providers(of: Graph) -> dict[str, str]:
    return {node.name: placed.provider for node, placed in zip(of.nodes, place(of).nodes, strict=True)}


def reasons(of: Graph) -> dict[str, str]:
    return {node.name: placed.why for node, placed in zip(of.nodes, place(of).nodes, strict=True)}


POOLED = """(float[1,3,8,8] x) => (float[1,3,4,4] y) {
    a = Relu (x)
    b = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (a)
    y = Sigmoid (b)
}"""


def test_max_pool_has_a_cuda_kernel_at_opset_21() -> None:
    pooled = graph(POOLED, 21)
    assert set(providers(pooled).values()) == {"cuda"}
    assert place(pooled).copies == ()


def test_max_pool_at_opset_23_goes_to_the_cpu_with_a_copy_each_way() -> None:
    pooled = graph(POOLED, 23)
    found = place(pooled)
    assert providers(pooled) == {"Relu_0": "cuda", "MaxPool_1": "cpu", "Sigmoid_2": "cuda"}
    assert found.nodes[1].why == "no-kernel-for-opset"
    assert not found.nodes[1].supported
    copies = [
        (copy.direction, copy.tensor, copy.nbytes, copy.producer, copy.consumers) for copy in found.copies
    ]
    assert copies == [("to_cpu", "a", 1 * 3 * 8 * 8 * 4, 0, (1,)), ("to_gpu", "b", 1 * 3 * 4 * 4 * 4, 1, (2,))]


def test_the_detail_names_the_opset_that_brings_the_kernel_back() -> None:
    pooled = graph(POOLED, 23)
    detail = place(pooled).nodes[1].detail
    assert "no CUDA kernel for MaxPool since opset 22" in detail
    assert "has one at opset 21" in detail
    assert best_opset(pooled.nodes[1]) == 21


def test_an_operator_without_any_cuda_kernel_says_so() -> None:
    found = place(graph("(float[4] x) => (float[4] y) { y = Tan (x) }"))
    assert found.nodes[0].why == "no-cuda-kernel"
    assert "no CUDA kernel for Tan" in found.nodes[0].detail


def test_a_graph_input_that_only_the_cpu_reads_and_an_output_are_no_copies_inside_the_graph() -> None:
    assert place(graph("(float[4] x) => (float[4] y) { y = Tan (x) }")).copies == ()


def test_a_graph_input_that_both_sides_read_is_copied_once() -> None:
    both = graph(
        "(float[4] x) => (float[4] y, float[4] z) { y = Tan (x) a = Exp (x) b = Neg (x) z = Add (a, b) }"
    )
    copies = [(copy.direction, copy.tensor, copy.producer, copy.consumers) for copy in place(both).copies]
    assert copies == [("to_gpu", "x", None, (1, 2))]


def test_one_tensor_with_two_readers_on_the_other_side_is_copied_once() -> None:
    shared = graph("(float[4] x) => (float[4] y) { a = Exp (x) b = Tan (a) c = Sinh (a) y = Add (b, c) }")
    copies = [(copy.direction, copy.tensor, copy.consumers) for copy in place(shared).copies]
    assert copies == [("to_cpu", "a", (1, 2)), ("to_gpu", "b", (3,)), ("to_gpu", "c", (3,))]


def test_a_constant_is_there_on_both_sides_without_a_copy() -> None:
    text = "(float[4] x) => (float[4] y) { a = Tan (x) b = Mul (a, w) c = Mod <fmod = 1> (b, w) y = Sinh (c) }"
    assert {copy.tensor for copy in place(graph(text, w=np.ones(4, np.float32))).copies} == {"a", "c"}


HALF = "(float16[4] x) => (float16[4] y) { a = Exp (x) b = Tan (a) y = Neg (b) }"


def test_an_fp16_operator_without_kernels_runs_in_float32_between_casts() -> None:
    found = place(graph(HALF))
    assert found.nodes[1].provider == "cpu"
    assert "float32 between two casts" in found.nodes[1].detail
    assert [copy.nbytes for copy in found.copies] == [8, 8]
    assert found.fails == ""


def test_a_bfloat16_operator_without_kernels_fails_the_session() -> None:
    brain = graph("(bfloat16[4] x) => (bfloat16[4] y) { a = Exp (x) y = LeakyRelu (a) }")
    assert "LeakyRelu with bfloat16" in place(brain).fails
    assert place(brain).lacks == ()  # other types have kernels: this says nothing of the operator


def test_a_type_that_the_kernel_does_not_take_is_named() -> None:
    found = place(graph("(int32[4,4] x) => (int32[4,4] y) { y = MatMul (x, x) }"))
    assert found.nodes[0].why == "no-kernel-for-type"
    assert "int32" in found.nodes[0].detail


@pytest.mark.parametrize(
    "text",
    [
        "(float[4,4] x) => (int64[1,4] y) { y = ArgMax <axis = 0, select_last_index = 1> (x) }",
        "(string[4] x) => (float[4] y) { y = Cast <to = 1> (x) }",
    ],
)
def test_an_attribute_or_type_that_the_provider_refuses_is_on_the_cpu(text: str) -> None:
    assert set(providers(graph(text)).values()) == {"cpu"}


def test_a_gru_needs_the_reset_gate_applied_after_the_product() -> None:
    text = """(float[5,2,3] x, float[1,12,3] w, float[1,12,4] r) => (float[5,1,2,4] y) {{
        y = GRU <hidden_size = 4, linear_before_reset = {flag}> (x, w, r)
    }}"""
    assert reasons(graph(text.format(flag=0))) == {"GRU_0": "capability"}
    assert reasons(graph(text.format(flag=1))) == {"GRU_0": "cuda-kernel"}


def test_what_constants_alone_give_is_folded() -> None:
    text = "(float[4] x) => (float[4] y) { a = Neg (w) b = Add (a, w) y = Mul (x, b) }"
    assert reasons(graph(text, w=np.arange(4, dtype=np.float32))) == {
        "Neg_0": "folded",
        "Add_1": "folded",
        "Mul_2": "cuda-kernel",
    }


SHAPES = """(float[N,6] x) => (float[M,3] y) {
    a = Relu (x)
    s = Shape (a)
    n = Gather (s, zero)
    m = Mul (n, two)
    t = Concat <axis = 0> (m, three)
    y = Reshape (a, t)
}"""
LITERALS: dict[str, Any] = {"zero": np.array([0]), "two": np.array([2]), "three": np.array([3])}


def test_the_shape_of_a_static_tensor_and_all_that_follows_is_folded() -> None:
    static = to_graph(model(SHAPES, **LITERALS), bindings={"N": 5})
    assert set(list(reasons(static).values())[1:5]) == {"folded"}


def test_shape_arithmetic_on_a_symbolic_size_stays_on_the_cpu_on_purpose() -> None:
    graphs = [to_graph(model(SHAPES, **LITERALS), bindings={"N": size}) for size in (5, 7)]
    symbolic = opened(*graphs)
    assert reasons(symbolic) == {
        "Relu_0": "cuda-kernel",
        "Shape_1": "cuda-kernel",
        "Gather_2": "shape-arithmetic",
        "Mul_3": "shape-arithmetic",
        "Concat_4": "shape-arithmetic",
        "Reshape_5": "cuda-kernel",
    }
    assert place(symbolic).copies == ()


def test_a_composite_operator_without_kernels_is_where_its_definition_is() -> None:
    found = place(graph("(float[4] x, float16[1] t) => (float16[4] y) { y = CastLike (x, t) }"))
    assert found.nodes[0].provider == "cuda"
    assert "definition" in found.nodes[0].detail


CUSTOM = """<ir_version: 10, opset_import: ["" : 20, "mine" : 1]> g (float[1,3] x) => (float[1,3] y) {
    a = Relu (x)
    b = mine.Twist (a)
    y = Sigmoid (b)
}"""


def test_an_operator_that_no_provider_knows_fails_the_session_and_is_on_neither_device() -> None:
    found = place(to_graph(onnx.parser.parse_model(CUSTOM)))
    assert found.fails.startswith("no provider has a kernel for Twist")
    assert found.lacks == ("Twist",)
    assert found.nodes[1].why == "no-kernel"
    assert not found.nodes[1].supported
    assert found.copies == ()


def test_placement_needs_neither_torch_nor_onnxruntime() -> None:
    code = """
import sys
import onnx
from analyzer.loading.onnx_graph.build import to_graph
from analyzer.ort.fusion import predicted_groups
from analyzer.ort.placement import place
text = '<ir_version: 10, opset_import: ["" : 23]> g (float[4] x) => (float[4] y) { a = Relu (x) y = Tan (a) }'
graph = to_graph(onnx.parser.parse_model(text))
placement = place(graph)
predicted_groups(graph, "cuda", placement)
print(sorted({"torch", "onnxruntime"} & set(sys.modules)))
"""
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "[]"
