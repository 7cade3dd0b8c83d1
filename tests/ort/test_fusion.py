"""Groups against ONNX Runtime's own CPU session: its optimised graph, and the node names in its profile."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest

from analyzer.loading.onnx_graph.build import to_graph
from analyzer.ort.execution import Group
from analyzer.ort.fusion import executed_names, groups_from_optimized, predicted_groups

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


def with_scalars(onnx_model: onnx.ModelProto, **values: float) -> onnx.ModelProto:
    for name, value in values.items():
        onnx_model.graph.initializer.append(onnx.numpy_helper.from_array(np.array(value, np.float32), name))
    return onnx_model


@pytest.mark.parametrize("low", [-1.0, None, 0.0, 1.0])
def test_a_clip_takes_up_a_relu_whatever_its_lower_limit(low: float | None, tmp_path: Path) -> None:
    lower = "" if low is None else "low"
    text = f"(float[4] x) => (float[4] y) {{ n = Neg (x) a = Relu (n) y = Clip (a, {lower}, high) }}"
    limits = {"high": 6.0} if low is None else {"low": low, "high": 6.0}
    clipped = with_scalars(model(text), **limits)
    assert predicted_types(clipped) == executed_types(clipped, tmp_path) == ["Neg", "Clip"]


def test_a_convolution_takes_up_the_clip_that_has_taken_up_a_relu(tmp_path: Path) -> None:
    text = (
        """(float[1,3,8,8] x) => (float[1,4,6,6] y) { c = Conv (x, w) a = Relu (c) y = Clip (a, low, high) }"""
    )
    clipped = with_scalars(model(text, w=(4, 3, 3, 3)), low=0.0, high=6.0)
    (group,) = predicted_groups(to_graph(clipped), "cpu")
    assert len(executed_types(clipped, tmp_path)) == 1
    assert group.members == (0, 1, 2)


@pytest.mark.parametrize("bias", [(8,), (1, 8), (4, 1), (4, 8)])
@pytest.mark.parametrize("constant", [True, False])
def test_a_product_takes_up_any_bias_that_a_gemm_broadcasts(
    bias: tuple[int, ...], constant: bool, tmp_path: Path
) -> None:
    shape = ",".join(map(str, bias))
    fed = "" if constant else f", float[{shape}] b"
    weights = {"w": (8, 8), "b": bias} if constant else {"w": (8, 8)}
    biased = model(f"(float[4,8] x{fed}) => (float[4,8] y) {{ a = MatMul (x, w) y = Add (a, b) }}", **weights)
    assert predicted_types(biased) == executed_types(biased, tmp_path) == ["Gemm"]


def test_of_the_sum_of_two_products_one_is_a_gemm(tmp_path: Path) -> None:
    summed = model(
        "(float[4,8] x) => (float[4,8] y) { a = MatMul (x, v) b = MatMul (x, w) y = Add (a, b) }",
        v=(8, 8),
        w=(8, 8),
    )
    assert sorted(predicted_types(summed)) == sorted(executed_types(summed, tmp_path)) == ["Gemm", "MatMul"]


def test_products_of_doubles_stay_products(tmp_path: Path) -> None:
    biased = model("(double[4,8] x) => (double[4,8] y) { a = MatMul (x, w) y = Add (a, b) }")
    for name, shape in (("w", (8, 8)), ("b", (8,))):
        biased.graph.initializer.append(onnx.numpy_helper.from_array(np.ones(shape), name))
    assert predicted_types(biased) == executed_types(biased, tmp_path) == ["MatMul", "Add"]


@pytest.mark.parametrize("activation", ["Selu", "ThresholdedRelu", "Elu", "Softplus", "Gelu"])
def test_a_gemm_takes_up_the_activations_that_onnx_runtime_has_for_it(activation: str, tmp_path: Path) -> None:
    text = f"(float[4,8] x) => (float[4,8] y) {{ a = Gemm (x, w, b) y = {activation} (a) }}"
    activated = model(text, w=(8, 8), b=(8,))
    assert predicted_types(activated) == executed_types(activated, tmp_path)


@pytest.mark.parametrize(
    ("operation", "gone"), [("Add (zero, n)", True), ("Mul (one, n)", True), ("Sub (zero, n)", False)]
)
def test_a_constant_that_changes_nothing_is_seen_on_both_sides(
    operation: str, gone: bool, tmp_path: Path
) -> None:
    text = f"(float[4] x) => (float[4] y) {{ n = Neg (x) a = {operation} y = Abs (a) }}"
    neutral = with_scalars(model(text), zero=0.0, one=1.0)
    expected = ["Neg", "Abs"] if gone else ["Neg", "Sub", "Abs"]
    assert predicted_types(neutral) == executed_types(neutral, tmp_path) == expected


def test_a_transpose_is_gone_behind_a_gather_of_one_index(tmp_path: Path) -> None:
    gathered = model(
        """(float[4,8,16] x) => (float[4,16] y) {
            n = Neg (x) t = Transpose <perm = [1, 0, 2]> (n) g = Gather <axis = 0> (t, two) y = Abs (g)
        }"""
    )
    gathered.graph.initializer.append(onnx.numpy_helper.from_array(np.array(2), "two"))
    assert predicted_types(gathered) == executed_types(gathered, tmp_path) == ["Neg", "Gather", "Abs"]


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
