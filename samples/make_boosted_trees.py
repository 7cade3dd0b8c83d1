"""Writes boosted_trees.onnx: a regressor of 50 boosted trees, as exporters of XGBoost or LightGBM write it.

Friedman, "Greedy Function Approximation: A Gradient Boosting Machine", 2001. What a tree ensemble costs
depends on the number and depth of its trees, not on what it learnt, so splits are drawn at random (and always
the same) instead of fitted: a feature, a threshold around the middle of a standard normal distribution, and a
small value in each leaf. All trees are complete, so each row takes exactly 6 comparisons a tree. Run it to
make the file anew:

    python samples/make_boosted_trees.py
"""

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper

TREES, DEPTH, FEATURES = 50, 6, 32
BRANCHES = 2**DEPTH - 1
NODES = 2 * BRANCHES + 1
PATH = Path(__file__).with_suffix("").with_name("boosted_trees.onnx")


def tree_attributes(seed: int = 20240607) -> dict[str, list]:
    """Nodes are numbered as in a heap: the children of node i are 2 i + 1 and 2 i + 2."""
    random = np.random.default_rng(seed)
    node = np.tile(np.arange(NODES), TREES)
    branch = node < BRANCHES
    leaf = ~branch
    tree = np.repeat(np.arange(TREES), NODES)
    thresholds = random.normal(scale=0.7, size=node.size)
    return {
        "nodes_treeids": tree.tolist(),
        "nodes_nodeids": node.tolist(),
        "nodes_featureids": np.where(branch, random.integers(0, FEATURES, node.size), 0).tolist(),
        "nodes_modes": np.where(branch, "BRANCH_LEQ", "LEAF").tolist(),
        "nodes_values": np.where(branch, thresholds, 0.0).astype(np.float32).tolist(),
        "nodes_truenodeids": np.where(branch, 2 * node + 1, 0).tolist(),
        "nodes_falsenodeids": np.where(branch, 2 * node + 2, 0).tolist(),
        "target_treeids": tree[leaf].tolist(),
        "target_nodeids": node[leaf].tolist(),
        "target_ids": [0] * int(leaf.sum()),
        "target_weights": random.normal(scale=0.1, size=int(leaf.sum())).astype(np.float32).tolist(),
    }


def build_model() -> onnx.ModelProto:
    trees = helper.make_node(
        "TreeEnsembleRegressor",
        inputs=["features"],
        outputs=["prediction"],
        name="boosted_trees",
        domain="ai.onnx.ml",
        n_targets=1,
        aggregate_function="SUM",
        post_transform="NONE",
        base_values=[0.5],
        **tree_attributes(),
    )
    graph = helper.make_graph(
        [trees],
        "boosted_trees",
        [helper.make_tensor_value_info("features", TensorProto.FLOAT, ["batch", FEATURES])],
        [helper.make_tensor_value_info("prediction", TensorProto.FLOAT, ["batch", 1])],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 3)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8, producer_name="make_boosted_trees.py")
    onnx.checker.check_model(model)
    return model


if __name__ == "__main__":
    onnx.save(build_model(), PATH)
    print(f"{PATH}: {PATH.stat().st_size:,} bytes")
