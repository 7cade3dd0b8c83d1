"""Groups against ONNX Runtime's own CPU session: its optimised graph, and the node names in its profile."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest

from analyzer.loading.onnx_graph.build import to_graph
from analyzer.ort.execution import Group
from analyzer.ort.fusion import executed_names, groups_from_optimized, predicted_groups
from analyzer.ort.placement import place
from analyzer.ort.session_nodes import LevelOne

LEVELS = {
    1: ort.GraphOptimizationLevel.ORT_ENABLE_BASIC,
    2: ort.GraphOptimizationLevel.ORT_ENABLE_EXTENDED,
    3: ort.GraphOptimizationLevel.ORT_ENABLE_ALL,
}


def model(text: str, opset: int = 20, **shapes: tuple[int, ...]) -> onnx.ModelProto:
    parsed = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : {opset}]> g {text}')
    random = np.random.default_rng(0)
    for index, node in enumerate(parsed.graph.node):
        node.name = f"{node.op_type}_{index}"
    for name, shape in shapes.items():
        value = random.standard_normal(shape).astype(np.float32)
        parsed.graph.initializer.append(onnx.numpy_helper.from_array(value, name))
    return parsed


VECTORS: dict[str, Any] = {f"{name}{number}": (16,) for name in "somv" for number in (1, 2)}
CONVOLUTIONS = model(
    """(float[1,16,8,8] x) => (float[1,10] y) {
        a = Conv <kernel_shape = [3, 3], pads = [1, 1, 1, 1]> (x, w1, b1)
        b = Relu (a)
        c = Conv <kernel_shape = [3, 3], pads = [1, 1, 1, 1]> (b, w2, b2)
        d = Add (c, b)
        e = Relu (d)
        f = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (e)
        i = Identity (f)
        g = GlobalAveragePool (i)
        h = Flatten (g)
        j = Gemm (h, w3, b3)
        y = Sigmoid (j)
    }""",
    w1=(32, 16, 3, 3), b1=(32,), w2=(32, 32, 3, 3), b2=(32,), w3=(32, 10), b3=(10,),
)  # fmt: skip

NORMALIZED = model(
    """(float[1,16,8,8] x) => (float[1,16,8,8] y) {
        a = Conv <kernel_shape = [3, 3], pads = [1, 1, 1, 1]> (x, w1)
        b = BatchNormalization (a, s1, o1, m1, v1)
        c = Relu (b)
        d = Conv <kernel_shape = [3, 3], pads = [1, 1, 1, 1]> (c, w2)
        e = BatchNormalization (d, s2, o2, m2, v2)
        f = Add (e, c)
        g = Relu (f)
        h = Conv <kernel_shape = [1, 1]> (g, w3)
        y = Relu (h)
    }""",
    w1=(16, 16, 3, 3), w2=(16, 16, 3, 3), w3=(16, 16, 1, 1),
    **VECTORS,
)  # fmt: skip

COMPOSITE = model(
    """(float[1,4,8] x) => (float[1,4,8] y) {
        a = HardSwish (x)
        b = Exp (a)
        y = HardSwish (b)
    }"""
)

TOKENS = model(
    """(float[2,4,8] x) => (float[2,4,8] y) {
        a = MatMul (x, w1)
        b = Add (a, b1)
        c = Gelu (b)
        d = MatMul (c, w2)
        e = Add (d, b2)
        f = Add (e, x)
        g = LayerNormalization (f, s, o)
        h = Sigmoid (g)
        y = Mul (g, h)
    }""",
    w1=(8, 16), b1=(16,), w2=(16, 8), b2=(8,), s=(8,), o=(8,),
)  # fmt: skip


def executed(made: onnx.ModelProto, level: int, folder: Path) -> tuple[onnx.ModelProto, set[str]]:
    """ONNX Runtime's optimised graph, and the nodes that its profile shows."""
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = LEVELS[level]
    options.optimized_model_filepath = str(folder / "optimized.onnx")
    options.enable_profiling = True
    options.profile_file_prefix = str(folder / "profile")
    session = ort.InferenceSession(made.SerializeToString(), options, providers=["CPUExecutionProvider"])
    inputs = session.get_inputs()
    session.run(None, {value.name: np.ones(value.shape, np.float32) for value in inputs})
    events = json.loads(Path(session.end_profiling()).read_text())
    names = {event["name"].removesuffix("_kernel_time") for event in events if event["cat"] == "Node"}
    return onnx.load(folder / "optimized.onnx"), names


def names(groups: tuple[Group, ...]) -> set[str]:
    return {name for group in groups for name in (group.name, *group.parts)}


@pytest.mark.parametrize("level", [1, 2, 3])
@pytest.mark.parametrize("made", [CONVOLUTIONS, TOKENS], ids=["convolutions", "tokens"])
def test_every_operator_is_in_one_group_and_every_executed_node_is_named(
    made: onnx.ModelProto, level: int, tmp_path: Path
) -> None:
    graph = to_graph(made)
    optimized, profiled = executed(made, level, tmp_path)
    groups = groups_from_optimized(graph, optimized, "cpu")
    members = [index for group in groups for index in group.members]
    assert sorted(members) == list(range(len(graph.nodes)))
    assert names(groups) == profiled


def test_nodes_that_have_no_name_of_their_own_are_found_in_the_profile(tmp_path: Path) -> None:
    graph = to_graph(COMPOSITE)
    optimized, profiled = executed(COMPOSITE, 3, tmp_path)
    groups = groups_from_optimized(graph, optimized, "cpu")
    found = executed_names(groups, profiled)
    assert [group.members for group in groups] == [(0,), (1,), (2,)]
    assert [len(names) for names in found] == [2, 1, 2]
    assert {name for names in found for name in names} == profiled


def test_a_sum_behind_a_normalization_belongs_to_the_convolution_that_adds_it(tmp_path: Path) -> None:
    """The blocked convolution has the other summand as an input: the session has three convolutions, no Add."""
    optimized, _ = executed(NORMALIZED, 3, tmp_path)
    blocked = [node for node in optimized.graph.node if node.op_type == "Conv"]
    assert len(blocked) == 3
    assert not any(node.op_type == "Add" for node in optimized.graph.node)
    groups = groups_from_optimized(to_graph(NORMALIZED), optimized, "cpu")
    assert [group.members for group in groups] == [(0, 1, 2), (3, 4, 5, 6), (7, 8)]


@pytest.mark.parametrize("made", [CONVOLUTIONS, NORMALIZED, TOKENS], ids=["convolutions", "norms", "tokens"])
def test_the_table_of_fusions_foretells_what_the_session_executes(
    made: onnx.ModelProto, tmp_path: Path
) -> None:
    graph = to_graph(made)
    optimized, _ = executed(made, 3, tmp_path)
    real = {group.members for group in groups_from_optimized(graph, optimized, "cpu")}
    assert {group.members for group in predicted_groups(graph, "cpu")} == real


def test_cuda_keeps_an_activation_apart_from_its_convolution() -> None:
    groups = predicted_groups(to_graph(CONVOLUTIONS), "cuda")
    assert {group.members for group in groups} >= {(0,), (1,), (2,), (3,), (4,)}


def test_a_product_with_a_bias_launches_twice_and_a_view_never() -> None:
    launches = {group.op_type: group.kernels for group in predicted_groups(to_graph(CONVOLUTIONS), "cuda")}
    assert launches["Gemm"] == 2
    assert launches["Flatten"] == 0
    assert launches["Relu"] == 1


def executed_nodes(onnx_model: onnx.ModelProto, tmp_path: Path) -> list[onnx.NodeProto]:
    """What ONNX Runtime itself makes of the model on the CPU."""
    options = ort.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "optimized.onnx")
    ort.InferenceSession(onnx_model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return list(onnx.load(tmp_path / "optimized.onnx").graph.node)


def executed_types(onnx_model: onnx.ModelProto, tmp_path: Path) -> list[str]:
    """The types of what ONNX Runtime makes of it, changes of layout and shape left out."""
    nodes = executed_nodes(onnx_model, tmp_path)
    return [node.op_type for node in nodes if node.op_type not in ("Reshape", "ReorderInput", "ReorderOutput")]


def predicted_types(onnx_model: onnx.ModelProto) -> list[str]:
    return [group.op_type for group in predicted_groups(to_graph(onnx_model), "cpu")]


# Constants of the small models below, by name: a tuple is the shape of random weights.
STORED: dict[str, Any] = {
    "zero": 0.0, "half": 0.5, "one": 1.0, "root": 2**0.5, "three": 3.0, "six": 6.0, "below": -1.0,
    "row": (8,), "other": (8,), "w": (8, 8), "v": (8, 8), "column": (4, 1), "table": (4, 8), "rows": (1, 8),
    "kernel": (4, 3, 3, 3), "each": (4, 1, 1), "one_each": (1, 4, 1, 1), "image": (4, 4, 4),
    "bytes": np.ones((8, 8), np.uint8), "more_bytes": np.full((8, 8), 3, np.uint8), "zero_point": np.uint8(1),
    "step": 0.02, "nought": np.uint8(0), "lowest": np.int8(-128), "pair": [0, 1], "single": [0.5],
    "square": (4, 4, 3, 3), "b0": (4,), "b1": (4,), "b2": (4,), "b3": np.ones(4), "turned": [4, 2, 8],
    "around": [0, 0, 1, 1, 0, 0, 1, 1], "cropped": [0, 0, -1, -1, 0, 0, 0, 0],
    "yes": True, "at0": 0, "at1": 1, "i0": [0], "i1": [1], "i2": [2], "i3": [3], "i4": [4], "end": [2**63 - 1],
    "shape": [2, 4, 8], "wider": [2, 2, 4, 8], "flat": [2, 4, 8], "heads": [1, 2, 8, 4],
}  # fmt: skip
# Every line is a model that computes y of x, by default float[2,4,8]; n is Neg (x) and k is Abs (x).
SMALL_MODELS = """
d = Div (n, root) e = Erf (d) a = Add (e, one) h = Mul (n, half) y = Mul (h, a)
d = Div (n, root) e = Erf (d) a = Add (one, e) m = Mul (n, a) y = Mul (m, half)
d = Div (n, root) e = Erf (d) a = Add (e, one) h = Mul (a, half) y = Mul (n, h)
e = Erf (n) a = Add (e, one) m = Mul (n, a) y = Mul (m, half)
d = Div (n, root) e = Erf (d) a = Add (e, one) h = Mul (k, half) y = Mul (h, a)
b = Add (n, row) y = Gelu (b)
b = Add (n, row) d = Dropout (b) y = Gelu (d)
a = Transpose (n) b = Relu (a) y = Transpose (b)
a = Transpose (n) b = Transpose (k) y = Add (a, b)
[1,3,6,6] c = Conv (x, kernel) a = Mul (c, single) y = Neg (a)
[1,3,6,6] c = Conv (x, kernel) a = Add (c, half) y = Neg (a)
[1,3,6,6] c = Conv (x, kernel) a = Mul (half, c) y = Neg (a)
[1,4,6,6] p = Pad (n, around) m, i = MaxPool <kernel_shape = [2,2]> (p) c = Cast <to = 1> (i) y = Sub (m, c)
[8,8] t = Transpose (n) y = Gemm (t, w, t)
[8,8] g = Gemm (n, w) r = Relu (g) y = Clip (r, zero, six)
b = Add (n, row) d = Div (b, root) e = Erf (d) a = Add (e, one) h = Mul (b, half) y = Mul (h, a)
b = Add (n, row) d = Div (b, root) e = Erf (d) a = Add (e, one) m = Mul (b, a) y = Mul (m, half)
b = Add (n, row) d = Div (b, root) e = Erf (d) a = Add (e, one) h = Mul (b, half) g = Mul (h, a) y = Sub (g, b)
b = Add (row, n) y = Gelu (b)
b = Add (n, row) g = Gelu (b) y = Sub (g, b)
b = Add (n, k) y = Gelu (b)
s = Mul (n, three) g = Sigmoid (s) y = Mul (n, g)
g = Sigmoid (n) y = Mul (g, n)
g = Sigmoid (n) y = Mul (g, k)
s = Mul (n, three) g = Sigmoid (s) m = Mul (n, g) y = Sub (m, s)
a = Add (n, k) y = LayerNormalization (a, row, other)
a = Add (n, k) y = LayerNormalization <axis = 1> (a, table, table)
a = Add (n, k) y = LayerNormalization <axis = 2> (a, row, other)
a = Add (n, k) b = LayerNormalization (a, row, other) y = Sub (b, a)
a = Add (n, row) y = LayerNormalization (a, row, other)
m = MatMul (n, w) b = Add (m, row) a = Add (b, k) y = LayerNormalization (a, row, other)
[2,2,4,8] a = Add (n, k) y = LayerNormalization (a, row, other)
[2,8,8] q = MatMul (x, n) b = Add (q, row) a = Add (k, b) y = LayerNormalization (a, row, other)
[2,8,8] t = Transpose <perm = [0, 2, 1]> (n) y = MatMul (t, x)
[2,8,8] t = Transpose <perm = [0, 2, 1]> (n) y = MatMul (x, t)
[2,8,8] t = Transpose <perm = [0, 2, 1]> (n) r = Transpose <perm = [0, 2, 1]> (k) y = MatMul (r, t)
[2,8,8] s = Mul (n, half) y = MatMul (x, s)
[2,8,8] m = MatMul (x, n) y = Div (m, root)
[2,8,8] m = MatMul (x, n) y = Div (root, m)
[2,8,8] m = MatMul (x, n) y = Mul (root, m)
[2,8,8] m = MatMul (x, n) y = Mul (m, row)
[1,2,4,8] r = Reshape (n, flat) t = Transpose <perm = [0, 2, 1]> (r) h = Reshape (t, heads) \
    s = Mul (h, half) y = MatMul (x, s)
[1,4,2,8] q = Transpose <perm = [0, 2, 1, 3]> (n) r = Reshape (q, flat) t = Transpose <perm = [0, 2, 1]> (r) \
    h = Reshape (t, heads) s = Mul (h, half) z = Transpose <perm = [0, 2, 1, 3]> (x) y = MatMul (z, s)
q, s, z = DynamicQuantizeLinear (x) p = MatMulInteger (q, bytes, z, zero_point) c = Cast <to = 1> (p) \
    r = Mul (s, half) y = Mul (c, r)
q, s, z = DynamicQuantizeLinear (x) p = MatMulInteger (q, bytes, z, zero_point) c = Cast <to = 1> (p) \
    r = Mul (s, half) m = Mul (c, r) y = Add (m, row)
q, s, z = DynamicQuantizeLinear (x) p = MatMulInteger (q, bytes, z, zero_point) c = Cast <to = 1> (p) \
    r = Mul (s, half) m = Mul (c, r) d = DequantizeLinear (q, s, z) y = Add (m, d)
q, s, z = DynamicQuantizeLinear (x) p = MatMulInteger (q, bytes, z, zero_point) c = Cast <to = 1> (p) \
    r = Mul (s, half) m = Mul (c, r) p2 = MatMulInteger (q, more_bytes, z, zero_point) \
    c2 = Cast <to = 1> (p2) r2 = Mul (s, three) m2 = Mul (c2, r2) y = Sub (m, m2)
a = Slice (n, i0, i2, i1) b = Slice (n, i2, i4, i1) y = Sub (a, b)
a = Slice (n, i0, i2, i1, i1) b = Slice (n, i2, i4, i1, i1) y = Sub (a, b)
a = Slice (n, i0, i1, i1) b = Slice (n, i2, i3, i1) y = Sub (a, b)
a = Slice (n, i0, i1, i1) b = Slice (n, i1, i2, i1) y = Sub (a, b)
a = Slice (n, i0, i2, i1) b = Slice (n, i2, i4, i2) c = ReduceSum (a) d = ReduceSum (b) y = Sub (c, d)
a = Gather <axis = 0> (n, at0) b = Gather <axis = 0> (n, at1) y = Sub (a, b)
a = Gather <axis = 1> (n, at0) b = Gather <axis = 1> (n, at1) y = Sub (a, b)
[4,2,8] a = Gather <axis = 1> (n, at0) b = Gather <axis = 1> (n, at1) y = Sub (a, b)
t = Transpose <perm = [1, 0, 2]> (n) g = Gather <axis = 0> (t, at1) y = Abs (g)
t = Transpose <perm = [1, 0, 2]> (n) g = Gather <axis = 0> (t, i1) y = Abs (g)
t = Transpose <perm = [1, 0, 2]> (n) g = Gather <axis = 0> (t, pair) y = Abs (g)
[2,8,8] t = Transpose <perm = [0, 2, 1]> (n) a = MatMul (t, x) b = MatMul (x, t) y = Sub (a, b)
[2,8,8] t = Transpose <perm = [0, 2, 1]> (n) a = MatMul (t, x) b = Abs (t) y = Sub (a, b)
[2,8,8] t = Transpose <perm = [0, 2, 1]> (n) a = MatMul (t, t) y = Abs (a)
[2,8,8] t = Transpose <perm = [0, 2, 1]> (n) a = MatMul (t, x) \
    s = Mul (t, half) b = MatMul (s, x) y = Sub (a, b)
r = Relu (n) q = QuantizeLinear (r, step, nought) d = DequantizeLinear (q, step, nought) y = Abs (d)
r = Relu (n) q = QuantizeLinear (r, step, zero_point) d = DequantizeLinear (q, step, zero_point) y = Abs (d)
r = Relu (n) q = QuantizeLinear (r, step, lowest) d = DequantizeLinear (q, step, lowest) y = Abs (d)
r = Relu (n) q = QuantizeLinear (r, step) d = DequantizeLinear (q, step) y = Abs (d)
r = Relu (n) q = QuantizeLinear (r, step, nought) d = DequantizeLinear (q, step, nought) \
    e = Abs (r) y = Sub (d, e)
r = Clip (n, zero, six) q = QuantizeLinear (r, step, nought) d = DequantizeLinear (q, step, nought) y = Abs (d)
r = Clip (n, zero, three) q = QuantizeLinear (r, step, nought) \
    d = DequantizeLinear (q, step, nought) y = Abs (d)
r = Clip (n, below, six) q = QuantizeLinear (r, step, lowest) d = DequantizeLinear (q, step, lowest) y = Abs (d)
c = Cast <to = 11> (x) m = Cast <to = 1> (c) y = Abs (m)
c = Cast <to = 10> (x) m = Cast <to = 1> (c) y = Abs (m)
c = Cast <to = 7> (x) m = Cast <to = 1> (c) y = Abs (m)
c = Cast <to = 1> (x) y = Abs (c)
e = Expand (n, shape) y = Abs (e)
e = Expand (n, wider) y = Abs (e)
e = Expand (x, shape) y = Abs (e)
e = Slice (n, i0, end, i1) y = Abs (e)
e = Slice (n, i0, end, i1, i1) y = Abs (e)
e = Slice (n, i0, end, i1, i2) y = Abs (e)
e = Slice (n, i0, i4, i1) y = Abs (e)
e = Slice (n, i1, end, i1) y = Abs (e)
y = Identity (n)
y = Identity (x)
i = Identity (n) a = Abs (i) y = Sub (a, n)
d = Dropout (n) y = Abs (d)
d, mask = Dropout (n) c = Cast <to = 1> (mask) y = Sub (d, c)
t = Transpose <perm = [1, 2, 0]> (n) b = Transpose <perm = [2, 0, 1]> (t) y = Abs (b)
a = Exp (x) b = Exp (x) y = Sub (a, b)
a = Pow (x, three) b = Pow (x, three) y = Sub (a, b)
a = Pow (x, three) b = Pow (x, six) y = Sub (a, b)
a = RandomNormalLike (x) b = RandomNormalLike (x) y = Sub (a, b)
a = RandomUniformLike (table) b = RandomUniformLike (table) c = Sub (a, b) y = Add (x, c)
a = RandomNormal <shape = [4, 8]> () b = RandomNormal <shape = [4, 8]> () c = Sub (a, b) y = Add (x, c)
a = RandomUniform <shape = [4, 8]> () b = RandomUniform <shape = [4, 8]> () c = Sub (a, b) y = Add (x, c)
a = Dropout (x, half, yes) b = Dropout (x, half, yes) y = Sub (a, b)
a = Dropout (table, half, yes) y = Add (x, a)
h = Shape (x) g = Reshape (n, h) y = Abs (g)
a = Add (zero, n) y = Abs (a)
a = Mul (one, n) y = Abs (a)
a = Sub (zero, n) y = Abs (a)
[4] a = Relu (n) y = Clip (a, below, six)
[4] a = Relu (n) y = Clip (a, , six)
[4] a = Relu (n) y = Clip (a, zero, six)
[4] a = Relu (n) y = Clip (a, one, six)
[1,3,6,6] c = Conv (x, kernel) a = Add (c, image) y = Neg (a)
[1,3,6,6] c = Conv (x, kernel) m = Mul (c, each) a = Add (m, one_each) y = Neg (a)
[1,3,6,6] c = Conv (x, kernel) a = Mul (c, half) y = Neg (a)
[1,3,6,6] c = Conv (x, kernel) a = Mul (c, b0) y = Neg (a)
[4,8] a = MatMul (x, w) y = Add (a, row)
[4,8] a = MatMul (x, w) y = Add (a, rows)
[4,8] a = MatMul (x, w) y = Add (a, column)
[4,8] a = MatMul (x, w) y = Add (a, table)
[4,8] a = MatMul (x, w) y = Add (a, n)
[4,8] a = MatMul (x, v) b = MatMul (x, w) y = Add (a, b)
[4,8] g = Gemm (x, w, row) y = LeakyRelu (g)
[4,8] g = Gemm (x, w, row) r = Relu (g) y = Sub (r, g)
[4,8] g = Gemm (x, w, row) y = Selu (g)
[4,8] g = Gemm (x, w, row) y = ThresholdedRelu (g)
[4,8] g = Gemm (x, w, row) y = Elu (g)
[4,8] g = Gemm (x, w, row) y = Softplus (g)
[4,8] g = Gemm (x, w, row) y = Gelu (g)
a = Add (n, k) y = Softmax (a)
[1,4,6,6] t = ConvTranspose (x, square) b = BatchNormalization (t, b0, b1, b2, b3) y = Neg (b)
[1,4,6,6] t = ConvTranspose (x, square) b = Add (t, each) y = Neg (b)
[1,4,6,6] p = Pad (n, around) c = Conv (p, square) y = Neg (c)
[1,4,6,6] p = Pad (n, around, one) c = Conv (p, square) y = Neg (c)
[1,4,6,6] p = Pad <mode = "reflect"> (n, around) c = Conv (p, square) y = Neg (c)
[1,4,6,6] p = Pad (n, cropped) c = Conv (p, square) y = Neg (c)
[1,4,6,6] p = Pad (n, around) c = Conv <auto_pad = "SAME_UPPER"> (p, square) y = Neg (c)
[1,4,6,6] p = Pad (n, around) c = Conv (p, square) d = Abs (p) e = GlobalMaxPool (d) y = Sub (c, e)
[1,4,6,6] p = Pad (n, around) y = AveragePool <kernel_shape = [2,2]> (p)
[1,4,6,6] p = Pad (n, around) y = MaxPool <kernel_shape = [2,2]> (p)
[1,4,6,6] p = Pad (n, around) y = ConvTranspose (p, square)
[4,8] m = MatMul (x, w) a = Add (m, row) y = Relu (a)
[2,8,8] m = MatMul (x, w) a = Add (m, row) y = Relu (a)
[8,8] t = Transpose (n) y = Gemm <transA = 1> (t, w)
[8,8] t = Transpose (n) a = Gemm (t, w) b = Gemm (x, t) y = Sub (a, b)
[8,8] t = Transpose (n) a = Gemm (t, w) b = Abs (t) y = Sub (a, b)
[8,8] a = Gemm (n, w) t = Transpose (a) y = Abs (t)
[8,8] a = Gemm (n, w, row) t = Transpose (a) y = Abs (t)
[8,8] t = Transpose (n) m = MatMul (t, w) a = Add (m, row) y = Abs (a)
[8,8] t = Transpose (n) m = MatMul (t, w) y = Abs (m)
a = Div (one, n) b = Mul (k, a) y = Abs (b)
a = Div (half, n) b = Mul (k, a) y = Abs (b)
b = Greater (n, k) a = Not (b) y = Where (a, n, k)
a = Transpose <perm = [1,0,2]> (n) b = Transpose <perm = [0,2,1]> (a) y = Abs (b)
a = Transpose <perm = [0,2,1]> (n) b = Transpose <perm = [1,0,2]> (a) \
    c = Transpose <perm = [2,1,0]> (b) y = Abs (c)
a = Transpose <perm = [1,0,2]> (n) b = Abs (a) y = Transpose <perm = [0,2,1]> (b)
a = Transpose <perm = [1,0,2]> (n) b = Add (a, row) c = Gelu (b) y = Transpose <perm = [1,0,2]> (c)
a = Transpose <perm = [1,0,2]> (n) h = Abs (n) g = Reshape (h, turned) b = Add (a, g) \
    y = Transpose <perm = [1,0,2]> (b)
a = Transpose <perm = [1,0,2]> (n) b = ReduceMean (a, i2) y = Transpose <perm = [1,0,2]> (b)
a = Transpose <perm = [0,2,1]> (n) b = Slice (a, i0, i2, i1) y = Transpose <perm = [0,2,1]> (b)
a = Transpose <perm = [0,2,1]> (n) b = Transpose <perm = [0,2,1]> (k) c = Mul (a, b) y = Abs (c)
a = Transpose <perm = [1,0,2]> (n) b = LayerNormalization (a, row, other) y = Transpose <perm = [1,0,2]> (b)
a = Transpose <perm = [1,0,2]> (n) b = MatMul (a, w) y = Transpose <perm = [1,0,2]> (b)
a = Transpose <perm = [1,0,2]> (n) b = Where (yes, a, zero) y = Transpose <perm = [1,0,2]> (b)
a = Transpose <perm = [0,2,1]> (n) y = Softmax (a)
""".replace("\\\n", "")


def small_model(line: str) -> onnx.ModelProto:
    shape, text = line.split("]", 1) if line.startswith("[") else ("[2,4,8", line)
    names = re.split(r"\W", text)
    made = "".join(f"{name} = {op} (x) " for name, op in (("n", "Neg"), ("k", "Abs")) if name in names)
    parsed = model(f"(float{shape}] x) => (float y) {{ {made} {text} }}")
    for name in sorted({name for node in parsed.graph.node for name in node.input} & STORED.keys()):
        value = STORED[name]
        array = np.random.default_rng(0).standard_normal(value) if isinstance(value, tuple) else np.array(value)
        array = array.astype(np.float32) if array.dtype == np.float64 else array
        parsed.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    return parsed


@pytest.mark.parametrize("line", SMALL_MODELS.strip().splitlines())
def test_of_a_small_model_that_is_predicted_which_the_session_makes(line: str, tmp_path: Path) -> None:
    made = small_model(line)
    executed = [op_type for op_type in executed_types(made, tmp_path) if op_type != "Squeeze"]
    assert sorted(op_type for op_type in predicted_types(made) if op_type != "Reshape") == sorted(executed)


@pytest.mark.parametrize(
    "line",
    [
        "t = Transpose <perm = [1, 0, 2]> (n) g = Gather <axis = 2> (t, at1) y = Abs (g)",
        "t = Transpose (n) g = Gather <axis = 1> (t, at1) y = Abs (g)",
        "q = QuantizeLinear (n, step) d = DequantizeLinear (q, step) a = Abs (d) b = Sin (d) y = Sub (a, b)",
        "q = QuantizeLinear (n, step) d = DequantizeLinear (q, step) y = Sub (d, d)",
    ],
)
def test_a_node_that_is_moved_or_repeated_is_one_of_its_readers_kernels(line: str, tmp_path: Path) -> None:
    made = small_model(line)
    kernels = sum(group.kernels for group in predicted_groups(to_graph(made), "cpu"))
    assert kernels == len(executed_types(made, tmp_path))


def test_a_convolution_takes_up_the_clip_that_has_taken_up_a_relu(tmp_path: Path) -> None:
    clipped = small_model("[1,3,8,8] c = Conv (x, kernel) a = Relu (c) y = Clip (a, zero, six)")
    (group,) = predicted_groups(to_graph(clipped), "cpu")
    assert len(executed_types(clipped, tmp_path)) == 1
    assert group.members == (0, 1, 2)


def test_products_of_doubles_stay_products(tmp_path: Path) -> None:
    biased = model("(double[4,8] x) => (double[4,8] y) { a = MatMul (x, w) y = Add (a, b) }")
    for name, shape in (("w", (8, 8)), ("b", (8,))):
        biased.graph.initializer.append(onnx.numpy_helper.from_array(np.ones(shape), name))
    assert predicted_types(biased) == executed_types(biased, tmp_path) == ["MatMul", "Add"]


@pytest.mark.parametrize(("first", "second"), [(0, 0), (0, 1), (1, 0), (1, 1)])
def test_of_two_reshapes_one_is_left_unless_either_lets_zeros_be_sizes(
    first: int, second: int, tmp_path: Path
) -> None:
    reshaped = model(
        f"""(float[1,4,32] x) => (float[1,4,2,16] y) {{
            n = Neg (x)
            a = Reshape <allowzero = {first}> (n, flat)
            b = Reshape <allowzero = {second}> (a, heads)
            y = Abs (b)
        }}"""
    )
    for name, sizes in (("flat", [4, 32]), ("heads", [1, 4, 2, 16])):
        reshaped.graph.initializer.append(onnx.numpy_helper.from_array(np.array(sizes), name))
    executed = executed_nodes(reshaped, tmp_path)
    assert predicted_types(reshaped) == [node.op_type for node in executed]
    assert len(executed) == (4 if first or second else 3)


def test_nodes_of_a_session_go_where_the_operators_are_that_they_were_made_of(tmp_path: Path) -> None:
    # Level 1 makes a Gemm of each product and its bias; a Celu has no CUDA kernel.
    text = "t = MatMul (x, w) b = Add (t, row) m = Celu (b) y = HardSwish (m)"
    made = small_model(f"[4,8] {text}")
    graph = to_graph(made)
    optimized, _ = executed(made, 1, tmp_path)
    providers = [group.provider for group in groups_from_optimized(graph, optimized, "cuda")]
    assert providers == [place(graph).nodes[index].provider for index in (0, 2, 3)] == ["cuda", "cpu", "cuda"]
    level_one = LevelOne.of(graph, optimized)
    assert level_one.together() == ((0, 1),)
    assert level_one.nodes(place(graph)) == {
        "MatMul_0/MatMulAddFusion": "cuda",
        "Celu_2": "cpu",
        "HardSwish_3": "cuda",
    }
    assert level_one.gpu_only() == frozenset({3})  # the CPU runs its definition, whose nodes have no names
