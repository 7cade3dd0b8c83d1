"""Counting ai.onnx.ml: tree ensembles, linear models, support vectors, and the handling of features."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import lru_cache
from math import prod
from typing import Any

from analyzer.costs.cost import Cost, OpenSizeError, cost, dims, elements, nbytes, out, reads
from analyzer.costs.families.per_element import moves, per_output
from analyzer.costs.families.products import product
from analyzer.costs.registry import rule
from analyzer.graph import Node
from analyzer.operators import CLASSICAL_DOMAIN, TreeSums

ML = CLASSICAL_DOMAIN
NODE_BYTES = 20
"""What a visit reads of a node as ONNX stores it: feature (int64), threshold (float), child (int64)."""
_DEPTH = "each leaf of a tree is as likely as any other: the mean depth of its leaves"

moves(
    {
        "ArrayFeatureExtractor": "reads the columns that are taken, writes its output",
        "CastMap": "reads a map, writes its values; a map has no fixed size",
        "CategoryMapper": "looks each element up",
        "DictVectorizer": "reads a map, writes its values; a map has no fixed size",
        "FeatureVectorizer": "reads its inputs, writes its output",
        "LabelEncoder": "looks each element up",
        "OneHotEncoder": "reads its input, writes its output",
        "ZipMap": "reads its input, writes a map; a map has no fixed size",
    },
    family=__name__,
    domain=ML,
)
per_output(
    {
        "Binarizer": (1, "one comparison"),
        "Imputer": (1, "one comparison"),
        "Scaler": (2, "subtract, multiply"),
    },
    family=__name__,
    domain=ML,
)

# FLOPs a score. By name in the older operators, by number in TreeEnsemble-5 (onnx/defs/traditionalml/defs.cc).
_POST = {"NONE": 0, "SOFTMAX": 5, "LOGISTIC": 1, "SOFTMAX_ZERO": 5, "PROBIT": 1, 0: 0, 1: 5, 2: 1, 3: 5, 4: 1}


@reads("ArrayFeatureExtractor", domain=ML)
def _columns(node: Node) -> dict[int, int]:
    data = node.inputs[0]
    if data is None or data.dtype.bits is None:
        raise OpenSizeError("the features have no fixed width", data)
    return {0: out(node) * data.dtype.bits // 8}


@rule("Normalizer", domain=ML)
def normalizer(node: Node) -> Cost:
    """2 * inputs (maximum, divide), 3 with norm L1 or L2 (absolute value or square, sum, divide)."""
    each = 2 if node.attributes.get("norm", "MAX") == "MAX" else 3
    return cost(node, flops=each * elements(node.inputs[0]))


def _table(node: Node) -> tuple[int, int]:
    """Rows and features of an input of one or two axes."""
    shape = dims(node.inputs[0])
    return (1, shape[0]) if len(shape) == 1 else (shape[0], prod(shape[1:]))


def _post(node: Node, scores: int) -> int:
    return _POST[node.attributes.get("post_transform", "NONE")] * scores


def _linear(node: Node, outputs: int) -> Cost:
    rows, features = _table(node)
    scores = rows * outputs
    with_bias = bool(node.attributes.get("intercepts"))
    return product(node, scores * features, scores * with_bias + _post(node, scores))


@rule("LinearRegressor", domain=ML)
def linear_regressor(node: Node) -> Cost:
    """2 * rows * features * targets, 1 a score for the intercept, and the post-transform."""
    return _linear(node, int(node.attributes.get("targets", 1)))


@rule("LinearClassifier", domain=ML)
def linear_classifier(node: Node) -> Cost:
    """2 * rows * features * classes, 1 a score for the intercept, and the post-transform."""
    _, features = _table(node)
    return _linear(node, max(len(node.attributes.get("coefficients", ())) // max(features, 1), 1))


@rule("SVMRegressor", "SVMClassifier", domain=ML)
def support_vectors(node: Node) -> Cost:
    """2 * rows * vectors * features for the kernel, 3 a kernel value, 2 * rows * coefficients to sum them.

    Without support vectors the model is linear in the features.
    """
    rows, features = _table(node)
    attributes = node.attributes
    weights = len(attributes.get("coefficients", ()))
    # A regressor tells how many vectors there are, a classifier how many each class has.
    vectors = attributes.get("n_supports", 0) or sum(attributes.get("vectors_per_class", ()))
    kernel = rows * vectors
    macs = kernel * features + rows * weights
    return product(node, macs, 3 * kernel + _post(node, rows * max(len(attributes.get("rho", ())), 1)))


@rule("TreeEnsembleRegressor", "TreeEnsembleClassifier", domain=ML, assumes=_DEPTH)
def tree_ensemble_by_node(node: Node) -> Cost:
    """Rows * (mean depth of every tree, summed) comparisons, as many additions as leaves have weights.

    A leaf holds one weight (boosted trees) or one for each target (forests). Bytes are those of the features,
    the results and the nodes visited.
    """
    attributes = node.attributes
    targets = attributes.get("n_targets", 0) or len(
        attributes.get("classlabels_int64s") or attributes.get("classlabels_strings") or (0,)
    )
    sums = TreeSums.of(attributes)
    if sums is not None:
        return _ensemble(node, sums.trees, sums.depth, sums.additions, sums.nodes, targets)
    trees, depth, leaves = _trees(
        tuple(attributes["nodes_treeids"]),
        tuple(attributes["nodes_nodeids"]),
        tuple(attributes["nodes_truenodeids"]),
        tuple(attributes["nodes_falsenodeids"]),
        tuple(mode == "LEAF" for mode in attributes["nodes_modes"]),
    )
    owners = attributes.get("target_treeids") or attributes.get("class_treeids") or ()
    weights = Counter(owners)
    additions = sum(weights[tree] / max(1, leaves[tree]) for tree in leaves)
    return _ensemble(node, trees, depth, additions, len(attributes["nodes_nodeids"]), targets)


@rule("TreeEnsemble", domain=ML, assumes=_DEPTH)
def tree_ensemble(node: Node) -> Cost:
    """Rows * (mean depth of every tree, summed) comparisons, rows * trees additions, post-transform.

    Bytes are those of the features, the results and the nodes visited.
    """
    attributes = node.attributes
    count, depth = 0, 0.0
    for root in attributes["tree_roots"]:
        leaves = list(_leaves(attributes, root))
        count += 1
        depth += sum(leaves) / len(leaves)
    stored = len(attributes["nodes_featureids"]) + len(attributes["leaf_targetids"])
    return _ensemble(node, count, depth, count, stored, attributes.get("n_targets", 1))


def _ensemble(node: Node, trees: int, depth: float, additions: float, stored: int, targets: int) -> Cost:
    """``additions`` are those of one row."""
    rows, _ = _table(node)
    scores = rows * targets
    flops = round(rows * depth) + round(rows * additions) + _post(node, scores)
    # A comparison a level and the leaf itself; many rows read the same nodes, from the cache after the first.
    visited = min(round(rows * (depth + trees)), stored)
    data = node.inputs[0]
    read = (nbytes(data) if data is not None else 0) + NODE_BYTES * visited
    try:
        written: int | None = sum(nbytes(tensor) for tensor in node.present_outputs)
    except OpenSizeError:
        written = None
    return Cost(flops=flops, bytes_read=read, bytes_written=written)


def _leaves(attributes: Mapping[str, Any], root: int) -> Sequence[int]:
    """Depths of the leaves below a root of a TreeEnsemble, whose leaves are numbered apart."""
    depths, waiting, seen = [], [(root, 1)], 0
    # A damaged file may hold a child that is its own ancestor: no walk may be endless.
    limit = len(attributes["nodes_featureids"]) + 1
    while waiting:
        index, depth = waiting.pop()
        seen += 1
        if seen > limit:
            raise ValueError("a tree has a cycle")
        for side in ("true", "false"):
            child = attributes[f"nodes_{side}nodeids"][index]
            if attributes[f"nodes_{side}leafs"][index]:
                depths.append(depth)
            else:
                waiting.append((child, depth + 1))
    return depths


@lru_cache(maxsize=64)
def _trees(
    trees: tuple[int, ...],
    nodes: tuple[int, ...],
    yes: tuple[int, ...],
    no: tuple[int, ...],
    is_leaf: tuple[bool, ...],
) -> tuple[int, float, Mapping[int, int]]:
    """Return the number of trees, the sum of their leaves' mean depths, and each tree's leaves."""
    # Nodes are numbered within their tree, so that only both numbers name one.
    where = {(tree, node): position for position, (tree, node) in enumerate(zip(trees, nodes, strict=True))}
    children = {
        (tree, child)
        for position, tree in enumerate(trees)
        if not is_leaf[position]
        for child in (yes[position], no[position])
    }
    depth, counts = 0.0, Counter[int]()
    # The operator does not name roots: they are what no node has as a child.
    roots = [key for key in where if key not in children]
    for tree, root in roots:
        leaves, waiting = [], [(root, 0)]
        while waiting:
            node, level = waiting.pop()
            position = where[tree, node]
            if level > len(nodes):
                raise ValueError("a tree has a cycle")
            if is_leaf[position]:
                leaves.append(level)
            else:
                waiting += [(yes[position], level + 1), (no[position], level + 1)]
        depth += sum(leaves) / len(leaves)
        counts[tree] += len(leaves)
    return len(roots), depth, counts
