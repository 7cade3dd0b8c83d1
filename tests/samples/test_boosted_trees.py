"""The tree ensemble: a file of ai.onnx.ml that ONNX Runtime runs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest


@pytest.fixture
def path(samples_folder: Path) -> Path:
    return samples_folder / "boosted_trees.onnx"


def attributes(path: Path) -> dict[str, Any]:
    import onnx

    (node,) = onnx.load(path).graph.node
    assert (node.domain, node.op_type) == ("ai.onnx.ml", "TreeEnsembleRegressor")
    return {attribute.name: onnx.helper.get_attribute_value(attribute) for attribute in node.attribute}


def walk(trees: dict[str, Any], row: np.ndarray) -> tuple[float, list[int]]:
    """Follows one row through every tree; the prediction, and how many comparisons each tree took."""
    keys = list(zip(trees["nodes_treeids"], trees["nodes_nodeids"], strict=True))
    at = {key: index for index, key in enumerate(keys)}
    leaf = dict(
        zip(
            zip(trees["target_treeids"], trees["target_nodeids"], strict=True),
            trees["target_weights"],
            strict=True,
        )
    )
    total, depths = trees["base_values"][0], []
    for tree in sorted(set(trees["nodes_treeids"])):
        node, depth = 0, 0
        while trees["nodes_modes"][at[tree, node]] == b"BRANCH_LEQ":
            index = at[tree, node]
            left = row[trees["nodes_featureids"][index]] <= np.float32(trees["nodes_values"][index])
            node = trees["nodes_truenodeids"][index] if left else trees["nodes_falsenodeids"][index]
            depth += 1
        total += leaf[tree, node]
        depths.append(depth)
    return total, depths


def test_onnx_runtime_predicts_what_a_walk_through_the_trees_gives(path: Path) -> None:
    import onnxruntime

    rows = np.random.default_rng(1).normal(size=(5, 32)).astype(np.float32)
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    (predictions,) = session.run(None, {"features": rows})
    trees = attributes(path)
    walked = [walk(trees, row) for row in rows]
    np.testing.assert_allclose(predictions[:, 0], [total for total, _ in walked], rtol=1e-5, atol=1e-5)
    assert np.ptp(predictions) > 0.1
    assert {depth for _, depths in walked for depth in depths} == {6}
    assert {len(depths) for _, depths in walked} == {50}


def test_the_batch_of_the_trees_is_a_named_dimension(path: Path) -> None:
    import onnx

    model = onnx.load(path)
    onnx.checker.check_model(model, full_check=True)
    (value,) = model.graph.input
    rows, features = value.type.tensor_type.shape.dim
    assert rows.dim_param == "batch"
    assert features.dim_value == 32


def test_the_trees_are_a_small_file(path: Path) -> None:
    assert path.stat().st_size < 500_000


def test_the_script_makes_the_file_that_lies_beside_it(path: Path, sample: Callable[[str], Any]) -> None:
    import onnx

    assert sample("make_boosted_trees").build_model().graph == onnx.load(path).graph
