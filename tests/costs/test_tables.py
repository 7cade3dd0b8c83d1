"""Sums by type, by module and by group, coverage, and bytes that cross memory."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

from analyzer.costs import count, count_node, folded_flops, fused
from analyzer.costs.table import CostTable
from analyzer.graph import DTYPES, Node, Tensor
from analyzer.record.analysis import Coverage


@dataclass(frozen=True)
class Members:
    members: tuple[int, ...]


def scoped(node: onnx.NodeProto, module: str, kind: str = "") -> onnx.NodeProto:
    for key, value in (("analyzer.module", module), ("analyzer.class", kind)):
        entry = node.metadata_props.add()
        entry.key, entry.value = key, value
    return node


@pytest.fixture
def table(make_graph: Callable[..., Any]) -> CostTable:
    nodes = [
        scoped(helper.make_node("MatMul", ["x", "w"], ["a"]), "body.first", "Linear"),
        scoped(helper.make_node("Add", ["a", "b"], ["c"]), "body.first", "Linear"),
        scoped(helper.make_node("Relu", ["c"], ["d"]), "body", "Sequential"),
        scoped(helper.make_node("MatMul", ["d", "w"], ["y"]), "head", "Linear"),
    ]
    return count(make_graph(nodes, {"x": [3, 4]}, ["y"], weights={"w": [4, 4], "b": [4]}))


def test_the_total_is_the_sum_over_operators(table: CostTable) -> None:
    assert table.total.flops == sum(cost.flops or 0 for cost in table.costs) == 2 * (2 * 48) + 12 + 12
    assert table.total.bytes_moved == sum(cost.bytes_moved or 0 for cost in table.costs)
    assert table.total.basis == "exact"


def test_types_are_summed_with_the_most_flops_first(table: CostTable) -> None:
    rows = table.by_type()
    assert [(row.op_type, row.operators, row.cost.flops) for row in rows] == [
        ("MatMul", 2, 192),
        ("Add", 1, 12),
        ("Relu", 1, 12),
    ]


def test_modules_form_a_tree_whose_root_is_the_total(table: CostTable) -> None:
    root = table.by_module()
    assert root.cost == table.total
    body, head = root.children
    assert (body.path, body.module_class, body.operators, body.cost.flops) == ("body", "Sequential", (2,), 120)
    assert (body.children[0].path, body.children[0].operators) == ("body.first", (0, 1))
    assert (head.path, head.cost.flops) == ("head", 96)
    assert [module.path for module in root.walk()] == ["", "body", "body.first", "head"]


def test_coverage_by_time_weighs_the_operators(make_graph: Callable[..., Any]) -> None:
    nodes = [helper.make_node("Relu", ["x"], ["y"]), helper.make_node("Odd", ["y"], ["z"], domain="com.acme")]
    table = count(make_graph(nodes, {"x": [4]}, ["z"]))
    assert table.coverage() == Coverage(exact=0.5, modelled=0.0, unknown=0.5)
    assert table.coverage([3.0, 1.0]) == Coverage(exact=0.75, modelled=0.0, unknown=0.25)
    assert table.coverage([3.0, None]) == Coverage(exact=1.0, modelled=0.0, unknown=0.0)


def test_a_group_moves_what_crosses_its_border(table: CostTable) -> None:
    whole, single = fused(table.graph, table, [Members((0, 1, 2)), Members((3,))])
    assert whole.flops == 96 + 12 + 12
    assert whole.bytes_read == 4 * (12 + 16 + 4)  # x, w and b; a and c stay on chip
    assert whole.bytes_written == 4 * 12
    assert single == table.costs[3]


def test_a_tensor_that_leaves_a_group_is_written_and_one_read_twice_is_read_once(
    make_graph: Callable[..., Any],
) -> None:
    nodes = [
        helper.make_node("Relu", ["x"], ["a"]),
        helper.make_node("Add", ["a", "x"], ["b"]),
        helper.make_node("Exp", ["a"], ["y"]),
    ]
    table = count(make_graph(nodes, {"x": [10]}, ["b", "y"]))
    (group, _) = fused(table.graph, table, [Members((0, 1)), Members((2,))])
    assert group.bytes_read == 40
    assert group.bytes_written == 80


def test_a_view_in_a_group_does_not_hide_what_is_read_through_it(make_graph: Callable[..., Any]) -> None:
    nodes = [
        helper.make_node("Reshape", ["x", "s"], ["a"]),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("Reshape", ["b", "s"], ["y"]),
    ]
    table = count(make_graph(nodes, {"x": [2, 5]}, ["y"], {"s": np.array([10])}))
    (group,) = fused(table.graph, table, [Members((0, 1, 2))])
    assert (group.bytes_read, group.bytes_written) == (40, 40)


def test_a_gather_in_a_group_reads_its_rows_alone(make_graph: Callable[..., Any]) -> None:
    nodes = [helper.make_node("Gather", ["t", "i"], ["a"]), helper.make_node("Relu", ["a"], ["y"])]
    graph = make_graph(nodes, {"i": (7, [3])}, ["y"], weights={"t": [1000, 8]})
    table = count(graph)
    (group,) = fused(graph, table, [Members((0, 1))])
    assert group.bytes_read == 3 * 8 * 4 + 3 * 8
    assert group.bytes_written == 3 * 8 * 4


def test_what_is_folded_has_no_cost_in_a_run_and_its_flops_are_known() -> None:
    """A product of constants: 2 x 4 x 8 x 16 FLOPs, once."""

    def tensor(name: str, *shape: int, constant: bool = True) -> Tensor:
        return Tensor(name=name, shape=shape, dtype=DTYPES["float32"], constant=constant)

    inputs = (tensor("a", 4, 8), tensor("b", 8, 16))
    made: dict[str, Any] = {"index": 0, "name": "product", "op_type": "MatMul", "version": 13, "inputs": inputs}
    folded = Node(**made, outputs=(tensor("c", 4, 16),))
    assert count_node(folded).flops == 0
    assert folded_flops(folded) == 2 * 4 * 8 * 16
    assert folded_flops(Node(**made, outputs=(tensor("c", 4, 16, constant=False),))) == 0
