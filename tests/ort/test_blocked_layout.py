"""What works in blocks of channels, and where the layout changes: as ONNX Runtime's optimised model says."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper

from analyzer.costs import count
from analyzer.loading.onnx_graph.build import to_graph
from analyzer.memory.session_plan import executed_steps
from analyzer.ort.fusion import predicted_groups
from analyzer.prediction.workload import workload

node = helper.make_node
CHANNELS = 32  # whole blocks of 8 and of 16

SCALES = {"twice": np.array([1, 1, 2, 2], np.float32), "half": np.array([1, 1, 0.5, 0.5], np.float32)}
NUMBERS = {
    "low": np.array(0, np.float32),
    "high": np.array(6, np.float32),
    "each": np.ones((1, CHANNELS, 1, 1), np.float32),
    "image": np.ones((1, CHANNELS, 8, 8), np.float32),
    "vector": np.ones(CHANNELS, np.float32),
    "axes": np.array([0, 2, 3]),
    **SCALES,
}
ACTIVATIONS = ("Relu", "Sigmoid", "Tanh", "HardSigmoid", "HardSwish", "LeakyRelu", "Clip", "Gelu", "Elu")
LINEAR = {"mode": "linear"}
ASYMMETRIC = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
HALF_PIXEL = {"coordinate_transformation_mode": "pytorch_half_pixel"}
# What stands between two convolutions; a third one reads the first as well, so that nothing joins it.
BETWEEN: dict[str, list[onnx.NodeProto]] = {
    **{
        op_type: [node(op_type, ["c"], ["y"])]
        for op_type in (*ACTIVATIONS, "Softplus", "Exp", "Abs")
        if op_type != "Clip"
    },
    "Clip": [node("Clip", ["c", "low", "high"], ["y"])],
    "SiLU": [node("Sigmoid", ["c"], ["s"]), node("Mul", ["c", "s"], ["y"])],
    "BatchNormalization": [node("BatchNormalization", ["c", *["vector"] * 4], ["y"], epsilon=1e-5)],
    "MaxPool": [node("MaxPool", ["c"], ["y"], kernel_shape=[2, 2])],
    "AveragePool": [node("AveragePool", ["c"], ["y"], kernel_shape=[2, 2])],
    "GlobalAveragePool": [node("GlobalAveragePool", ["c"], ["y"])],
    "LpPool": [node("LpPool", ["c"], ["y"], kernel_shape=[2, 2])],
    "sum of three": [node("Sum", ["c", "c", "c"], ["y"])],
    "sum with the input": [node("Add", ["c", "x"], ["y"])],
    "sum with a constant": [node("Add", ["c", "image"], ["y"])],
    "square": [node("Mul", ["c", "c"], ["y"])],
    "product by channel": [node("Mul", ["c", "each"], ["y"])],
    "product with an image": [node("Mul", ["c", "image"], ["y"])],
    "difference": [node("Sub", ["c", "c"], ["y"])],
    "squeeze and excite": [
        node("GlobalAveragePool", ["c"], ["p"]),
        node("Sigmoid", ["p"], ["s"]),
        node("Mul", ["c", "s"], ["y"]),
    ],
    "sum of an image and its mean": [node("GlobalAveragePool", ["c"], ["p"]), node("Add", ["c", "p"], ["y"])],
    "nearest": [node("Resize", ["c", "", "twice"], ["y"], **ASYMMETRIC)],
    "nearest of half pixels": [node("Resize", ["c", "", "twice"], ["y"])],
    "linear": [node("Resize", ["c", "", "twice"], ["y"], **LINEAR)],
    "linear as PyTorch's": [node("Resize", ["c", "", "twice"], ["y"], **LINEAR, **HALF_PIXEL)],
    "linear to the half": [node("Resize", ["c", "", "half"], ["y"], **LINEAR)],
    "cubic": [node("Resize", ["c", "", "twice"], ["y"], mode="cubic")],
}


def conv(source: str, target: str, weight: str, **attributes: Any) -> onnx.NodeProto:
    return node("Conv", [source, weight], [target], name=target, **attributes)


def model(
    nodes: list[onnx.NodeProto],
    outputs: list[str],
    weights: dict[str, tuple[int, ...]],
    channels: int = CHANNELS,
) -> onnx.ModelProto:
    """A model of x [1, channels, 8, 8]."""
    stored = {name: np.ones(shape, np.float32) for name, shape in weights.items()}
    read = {name for item in nodes for name in item.input}
    stored |= {name: value for name, value in NUMBERS.items() if name in read}
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, channels, 8, 8])],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs],
        [numpy_helper.from_array(value, name) for name, value in stored.items()],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    return onnx.shape_inference.infer_shapes(made)


def executed(made: onnx.ModelProto, folder: Path) -> Counter[str]:
    """Types of the nodes that ONNX Runtime's CPU session executes, blocked ones under their plain names."""
    options = ort.SessionOptions()
    options.optimized_model_filepath = str(folder / "optimised.onnx")
    options.log_severity_level = 3
    ort.InferenceSession(made.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return Counter(item.op_type for item in onnx.load(folder / "optimised.onnx").graph.node)


def copies(found: Counter[str]) -> int:
    return found["ReorderInput"] + found["ReorderOutput"]


@pytest.fixture(scope="module")
def block(tmp_path_factory: pytest.TempPathFactory) -> int:
    """Channels of a block here: a convolution of 12 channels reads them as they are where blocks have 16."""
    made = model([conv("x", "y", "w")], ["y"], {"w": (16, 12, 1, 1)}, channels=12)
    found = executed(made, tmp_path_factory.mktemp("block"))
    if not copies(found):
        pytest.skip("this processor has no blocked kernels")
    return 8 if found["ReorderInput"] else 16


def predicted_copies(made: onnx.ModelProto, block: int) -> tuple[int, int]:
    """Copies between layouts in the plan of buffers, and in what is predicted."""
    graph = to_graph(made)
    groups = predicted_groups(graph, "cpu")
    planned = [step for step in executed_steps(graph, groups, block) if step.op_type == "Reorder"]
    work = workload(graph, count(graph), groups)
    return len(planned), sum(work.ops[index] == "TransposeHeads" for index in work.op)


@pytest.mark.parametrize("name", BETWEEN)
def test_the_layout_changes_where_the_session_changes_it(name: str, block: int, tmp_path: Path) -> None:
    nodes = [conv("x", "c", "w1"), conv("c", "z3", "w3"), *BETWEEN[name], conv("y", "z", "w2")]
    square = (CHANNELS, CHANNELS, 1, 1)
    made = model(nodes, ["z", "z3"], {"w1": square, "w2": square, "w3": square})
    told = copies(executed(made, tmp_path))
    assert predicted_copies(made, block) == (told, told)


@pytest.mark.parametrize(
    ("channels", "filters", "groups"),
    [(3, 32, 1), (32, 32, 1), (32, 48, 1), (18, 32, 1), (20, 32, 1), (32, 32, 32), (64, 64, 32), (32, 64, 2)],
)
def test_a_convolution_works_on_blocks_where_the_session_has_it_so(
    channels: int, filters: int, groups: int, block: int, tmp_path: Path
) -> None:
    weights: dict[str, tuple[int, ...]] = {"w": (filters, channels // groups, 1, 1)}
    made = model([conv("x", "y", "w", group=groups)], ["y"], weights, channels=channels)
    told = copies(executed(made, tmp_path))
    assert predicted_copies(made, block) == (told, told)


def test_a_convolution_with_a_bias_that_is_fed_stays_plain(block: int, tmp_path: Path) -> None:
    nodes = [node("ReduceMax", ["x", "axes"], ["b"], keepdims=0), node("Conv", ["x", "w", "b"], ["y"])]
    made = model(nodes, ["y"], {"w": (CHANNELS, CHANNELS, 1, 1)})
    assert copies(executed(made, tmp_path)) == 0
    assert predicted_copies(made, block) == (0, 0)


@pytest.mark.parametrize("op_type", ["MaxPool", "GlobalAveragePool"])
def test_a_pooling_works_on_blocks_without_any_convolution(op_type: str, block: int, tmp_path: Path) -> None:
    attributes: dict[str, Any] = {"kernel_shape": [2, 2]} if op_type == "MaxPool" else {}
    made = model([node(op_type, ["x"], ["y"], **attributes)], ["y"], {})
    assert copies(executed(made, tmp_path)) == 2
    assert predicted_copies(made, block) == (2, 2)


def test_the_channels_of_a_block_are_those_of_the_processor() -> None:
    # Two convolutions of 24 filters: whole blocks of 8, so that their Concat stays in them; not of 16.
    nodes = [
        conv("x", "a", "w"),
        conv("x", "b", "v"),
        node("Concat", ["a", "b"], ["c"], axis=1),
        conv("c", "y", "w2"),
    ]
    graph = to_graph(model(nodes, ["y"], {"w": (24, 32, 1, 1), "v": (24, 32, 1, 1), "w2": (32, 48, 1, 1)}))
    groups = predicted_groups(graph, "cpu")
    assert len([step for step in executed_steps(graph, groups, 8) if step.op_type == "Reorder"]) == 2
    assert len([step for step in executed_steps(graph, groups, 16) if step.op_type == "Reorder"]) == 5


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("other", ["x", "blocks", "nothing"])
@pytest.mark.parametrize("channels", [CHANNELS, 18])
def test_a_convolution_takes_up_what_the_session_lets_it(
    activation: str, other: str, channels: int, block: int, tmp_path: Path
) -> None:
    square = (channels, channels, 1, 1)
    nodes = [conv("x", "b", "w0")] if other == "blocks" else []
    nodes.append(conv("b" if other == "blocks" else "x", "c", "w1"))
    if other != "nothing":
        nodes.append(node("Add", ["c", "b" if other == "blocks" else "x"], ["s"]))
    last = nodes[-1].output[0]
    extra = ["low", "high"] if activation == "Clip" else []
    nodes += [node(activation, [last, *extra], ["y"]), conv("y", "z", "w2")]
    made = model(nodes, ["z"], {"w0": square, "w1": square, "w2": square}, channels)
    told = executed(made, tmp_path)
    apart = told[activation] + (told["Mul"] if activation == "HardSwish" else 0)
    graph = to_graph(made)
    groups = predicted_groups(graph, "cpu")
    types = Counter(group.op_type for group in groups)
    assert (types["Add"], min(1, types[activation])) == (told["Add"], min(1, apart))
    assert predicted_copies(made, block)[0] == copies(told)
