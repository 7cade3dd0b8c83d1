"""Nodes timed alone."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from measuring_models import FLOAT, model, save
from onnx import helper

from analyzer.figures import Figure
from analyzer.measurement.node_replay import last_cache_bytes, replay
from analyzer.measurement.profile import RawTime
from analyzer.measurement.session import SessionSettings

ONE_THREAD = SessionSettings(threads=1)


def raw(
    name: str,
    op_type: str,
    inputs: tuple[tuple[str, tuple[int, ...]], ...],
    outputs: tuple[tuple[str, tuple[int, ...]], ...],
) -> RawTime:
    return RawTime(
        name=name,
        op_type=op_type,
        provider="cpu",
        time=Figure(value=1e-6, low=1e-6, high=1e-6),
        calls=1,
        inputs=inputs,
        outputs=outputs,
    )


@pytest.fixture
def small_nodes(tmp_path: Path) -> Path:
    """A product with constant weights, a view, a gather, a node with a subgraph's name elsewhere."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["m"], name="product"),
        helper.make_node("Reshape", ["m", "shape"], ["r"], name="view"),
        helper.make_node("Softmax", ["r"], ["y"], name="softmax", axis=-1),
    ]
    constants = [("w", np.ones((16, 8), np.float32)), ("shape", np.array([8, 4], np.int64))]
    return save(
        model(nodes, [("x", FLOAT, [4, 16])], [("y", FLOAT, [8, 4])], constants), tmp_path, external=True
    )


PRODUCT = raw("product", "MatMul", (("float", (4, 16)),), (("float", (4, 8)),))
VIEW = raw("view", "Reshape", (("float", (4, 8)), ("int64", (2,))), (("float", (8, 4)),))
SOFTMAX = raw("softmax", "Softmax", (("float", (8, 4)),), (("float", (8, 4)),))


def test_nodes_are_timed_even_where_the_profile_left_packed_weights_out(small_nodes: Path) -> None:
    found = replay(small_nodes, [PRODUCT, VIEW, SOFTMAX], ONE_THREAD, seconds=900)
    assert set(found) == {"product", "view", "softmax"}
    assert all(time_s > 0 for time_s in found.values())


def test_a_result_of_another_shape_than_in_the_graph_is_not_believed(small_nodes: Path) -> None:
    wrong = raw("softmax", "Softmax", (("float", (8, 4)),), (("float", (99, 4)),))
    assert replay(small_nodes, [wrong], ONE_THREAD, seconds=900) == {}


def test_a_node_whose_shape_hangs_on_values_is_left_to_the_profile(tmp_path: Path) -> None:
    nodes = [helper.make_node("Expand", ["x", "shape"], ["y"], name="expand")]
    inputs = [("x", FLOAT, [1]), ("shape", onnx.TensorProto.INT64, [1])]
    path = save(model(nodes, inputs, [("y", FLOAT, ["n"])]), tmp_path)
    shown = raw("expand", "Expand", (("float", (1,)), ("int64", (1,))), (("float", (7,)),))
    assert replay(path, [shown], ONE_THREAD, seconds=900) == {}


def test_nodes_alike_are_timed_once(tmp_path: Path) -> None:
    nodes = [helper.make_node("Sin", [f"x{i}"], [f"x{i + 1}"], name=f"sin{i}") for i in range(5)]
    path = save(model(nodes, [("x0", FLOAT, [64])], [("x5", FLOAT, [64])]), tmp_path)
    shown = [raw(f"sin{i}", "Sin", (("float", (64,)),), (("float", (64,)),)) for i in range(5)]
    found = replay(path, shown, ONE_THREAD, seconds=900)
    assert len(found) == 5
    assert len(set(found.values())) == 1


LARGE = 1 << 18


def test_more_work_takes_longer(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Sin", ["a"], ["b"], name="small"),
        helper.make_node("Sin", ["c"], ["d"], name="large"),
    ]
    inputs, outputs = [("a", FLOAT, [8]), ("c", FLOAT, [LARGE])], [("b", FLOAT, [8]), ("d", FLOAT, [LARGE])]
    path = save(model(nodes, inputs, outputs), tmp_path)
    shown = [
        raw(name, "Sin", (("float", (n,)),), (("float", (n,)),)) for name, n in (("small", 8), ("large", LARGE))
    ]
    times = replay(path, shown, ONE_THREAD, seconds=900)
    assert times["large"] > times["small"]  # 32,768 times the work


def test_time_that_is_up_leaves_the_rest_to_the_profile(small_nodes: Path) -> None:
    found = replay(small_nodes, [PRODUCT, SOFTMAX], ONE_THREAD, seconds=-1)
    assert found == {}


def test_the_last_cache_has_a_size() -> None:
    assert last_cache_bytes() >= 1 << 18
