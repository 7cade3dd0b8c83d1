"""Large ensembles of trees are read as their sums, which are those of their lists."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from analyzer.costs import count
from analyzer.costs.table import parameter_bytes, parameters
from analyzer.graph import Graph
from analyzer.loading.onnx_graph.build import to_graph
from analyzer.loading.onnx_graph.onnx_file import LARGE_NODE, read_model, without_weights
from analyzer.operators import TREES

FEATURES, ROWS = 6, 4


def ensemble(*, trees: int, depth: int, targets: int = 1, shuffled: bool = False) -> onnx.ModelProto:
    """Trees of which each second one lacks the lower half of its left side, with a weight a target and leaf."""
    generator = np.random.default_rng(0)
    rows: list[tuple[int, int, str, int, int]] = []
    for tree in range(trees):
        waiting = [(0, depth - (tree % 2))]
        while waiting:
            place, left = waiting.pop()
            if left == 0 or (tree % 2 and place == 1):
                rows.append((tree, place, "LEAF", 0, 0))
            else:
                rows.append((tree, place, "BRANCH_LEQ", 2 * place + 1, 2 * place + 2))
                waiting += [(2 * place + 1, left - 1), (2 * place + 2, left - 1)]
    if shuffled:
        rows = [rows[place] for place in generator.permutation(len(rows))]
    leaves = [
        (tree, node, target) for tree, node, mode, *_ in rows if mode == "LEAF" for target in range(targets)
    ]
    lists: dict[str, Any] = {
        "nodes_treeids": [row[0] for row in rows],
        "nodes_nodeids": [row[1] for row in rows],
        "nodes_modes": [row[2] for row in rows],
        "nodes_truenodeids": [row[3] for row in rows],
        "nodes_falsenodeids": [row[4] for row in rows],
        "nodes_featureids": generator.integers(0, FEATURES, len(rows)).tolist(),
        "nodes_values": generator.standard_normal(len(rows)).tolist(),
        "target_treeids": [leaf[0] for leaf in leaves],
        "target_nodeids": [leaf[1] for leaf in leaves],
        "target_ids": [leaf[2] for leaf in leaves],
        "target_weights": generator.standard_normal(len(leaves)).tolist(),
    }
    node = helper.make_node(
        "TreeEnsembleRegressor", ["x"], ["y"], name="trees", domain="ai.onnx.ml", n_targets=targets, **lists
    )
    fed = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [ROWS, FEATURES])]
    given = [helper.make_tensor_value_info("y", TensorProto.FLOAT, [ROWS, targets])]
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 3)]
    return helper.make_model(helper.make_graph([node], "trees", fed, given), opset_imports=opsets)


def facts(graph: Graph) -> tuple[Any, ...]:
    return (*count(graph).costs, graph.outputs[0].shape, parameters(graph), parameter_bytes(graph))


def summed(content: bytes) -> onnx.ModelProto:
    return onnx.ModelProto.FromString(without_weights(content, keep_bytes=2**20, large_node=0))


@pytest.mark.parametrize("targets", [1, 3])
@pytest.mark.parametrize("shuffled", [False, True])
def test_the_sums_count_as_the_lists_do(targets: int, shuffled: bool) -> None:
    model = ensemble(trees=40, depth=7, targets=targets, shuffled=shuffled)
    short = summed(model.SerializeToString())
    assert {item.name for item in short.graph.node[0].attribute} == {"n_targets", TREES}
    assert facts(to_graph(short)) == facts(to_graph(model))


def test_a_mean_depth_is_that_of_the_leaves() -> None:
    """A tree of 7 levels has 128 leaves; of one of 6 the left half is one leaf: 1 at 1, 32 at 6."""
    found = to_graph(summed(ensemble(trees=2, depth=7).SerializeToString()))
    per_row = 7 + (1 + 32 * 6) / 33 + 2  # and an addition a tree
    assert count(found).costs[0].flops == pytest.approx(ROWS * per_row, abs=1)


def test_packed_lists_are_read_as_well() -> None:
    """onnx.proto3, by which other languages write, packs numbers: one tag and length for all of a list."""

    def number(value: int) -> bytes:
        out = bytearray()
        while value > 0x7F:
            out.append(value & 0x7F | 0x80)
            value >>= 7
        return bytes([*out, value])

    model = ensemble(trees=30, depth=7)
    node = model.graph.node[0]
    attributes = b""
    for item in node.attribute:
        text = item.SerializeToString()
        if item.ints:
            values = b"".join(map(number, item.ints))
            name = item.name.encode()
            text = b"\x0a" + number(len(name)) + name + b"\x42" + number(len(values)) + values + b"\xa0\x01\x07"
        attributes += b"\x2a" + number(len(text)) + text
    whole = onnx.ModelProto()
    whole.CopyFrom(model)
    del whole.graph.node[0].attribute[:]
    bare = whole.graph.node[0].SerializeToString() + attributes
    del whole.graph.node[:]
    graph = b"\x0a" + number(len(bare)) + bare + whole.graph.SerializeToString()
    whole.ClearField("graph")
    content = whole.SerializeToString() + b"\x3a" + number(len(graph)) + graph
    assert onnx.ModelProto.FromString(content).graph.node[0] == node
    short = summed(content)
    assert {item.name for item in short.graph.node[0].attribute} == {"n_targets", TREES}
    assert facts(to_graph(short)) == facts(to_graph(model))


def test_trees_with_a_cycle_keep_their_lists() -> None:
    model = ensemble(trees=30, depth=7)
    lists = {item.name: item for item in model.graph.node[0].attribute}
    inner = list(lists["nodes_nodeids"].ints).index(1)
    lists["nodes_truenodeids"].ints[inner] = 1  # its own child
    assert len(summed(model.SerializeToString()).graph.node[0].attribute) == len(lists)


def test_only_large_ensembles_lose_their_lists(tmp_path: Path) -> None:
    small, large = ensemble(trees=2, depth=5), ensemble(trees=150, depth=10)
    for model in (small, large):
        onnx.save(model, tmp_path / "model.onnx")
        names = {item.name for item in read_model(tmp_path / "model.onnx").graph.node[0].attribute}
        assert (TREES in names) == (model.ByteSize() > LARGE_NODE)
    assert large.ByteSize() > LARGE_NODE
