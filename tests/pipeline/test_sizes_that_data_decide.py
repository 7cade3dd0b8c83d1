"""Sizes behind a pool of nodes: from the values given, from those filled in, or as a run had them."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper

from analyzer import analyze
from analyzer.api import analyze_record
from analyzer.graph import SizeOrigin
from analyzer.loading.onnx_graph.build import to_graph, with_known_sizes
from analyzer.record.analysis import Analysis, OperatorResult

POOL = """
import torch
from torch import nn


class Pool(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(16, 32)
        self.head = nn.Linear(32, 5)

    def forward(self, x, edge_index, batch):
        h = torch.relu(self.first(x))
        h = torch.zeros_like(h).index_add(0, edge_index[1], h[edge_index[0]])
        graphs = int(batch.max()) + 1
        return self.head(torch.zeros(graphs, 32).index_add(0, batch, h))
"""
OFFERED = """

def example_inputs():
    edges = torch.arange(80).reshape(2, 40)
    return {"x": torch.ones(100, 16), "edge_index": edges, "batch": torch.arange(100) // 20}
"""
NODES, EDGES = "x=100,16", "edge_index=2,40:int64=0..99"


@pytest.fixture
def pool(tmp_path: Path) -> Path:
    path = tmp_path / "pool.py"
    path.write_text(POOL)
    return path


def head(analysis: Analysis) -> OperatorResult:
    return analysis.operators[-1]


@pytest.mark.parametrize(
    ("values", "graphs"),
    # Of 100 nodes that are spread evenly over four graphs none stays empty, but for one case in 10^12.
    [("0..3", 4), ("6", 7)],
)
def test_values_that_are_given_tell_how_many_graphs_there_are(pool: Path, values: str, graphs: int) -> None:
    batch = f"batch=100:int64={values}"
    analysis = analyze(pool, input=[NODES, EDGES, batch], run=False, gpu="l4")
    assert head(analysis).outputs[0].shape == (graphs, 5)
    assert head(analysis).macs == graphs * 32 * 5
    assert (head(analysis).basis, "by the values given for batch" in head(analysis).note) == ("modelled", True)
    told = analysis.render("text")
    assert "The values of batch decide the size of" in told
    assert batch in told
    assert "guess" not in told
    assert all(plan.memory_bytes is not None for plan in analysis.plans)


def test_more_graphs_are_more_work(pool: Path) -> None:
    few, many = (
        analyze(pool, input=[NODES, EDGES, f"batch=100:int64={last}"], run=False, gpu="l4").totals.macs
        for last in (0, 99)
    )
    assert many - few == 99 * 32 * 5


def test_sizes_of_values_that_nobody_gives_are_not_known_and_the_note_says_how_to_give_them(pool: Path) -> None:
    unknown = analyze(pool, input=[NODES, EDGES, "batch=100:int64"], run=False, gpu="l4")
    given = analyze(pool, input=[NODES, EDGES, "batch=100:int64=0..1"], run=False, gpu="l4")
    assert head(unknown).outputs[0].shape == (None, 5)
    shown = " ".join(unknown.render("text").split())
    assert "Some sizes are guessed." in shown
    assert "--input batch=100:int64=LOW..HIGH gives them" in shown
    wide, narrow = head(unknown).cpu, head(given).cpu
    assert wide is not None
    assert narrow is not None
    assert wide.high_s / wide.low_s > 2 * narrow.high_s / narrow.low_s
    again = analyze_record(unknown, gpu="l4")
    assert [(plan.low_s, plan.high_s) for plan in again.plans] == [
        (plan.low_s, plan.high_s) for plan in unknown.plans
    ]


def test_where_the_file_makes_the_inputs_the_run_tells_the_sizes(pool: Path) -> None:
    pool.write_text(POOL + OFFERED)
    unknown = analyze(pool, run=False, gpu="l4")
    assert head(unknown).outputs[0].shape == (None, 5)
    told = " ".join(unknown.render("text").split())
    assert "are not known before a run (--input batch=100:int64=LOW..HIGH gives them)" in told
    measured = analyze(pool, gpu="l4", time_budget=0.3)
    assert head(measured).outputs[0].shape == (5, 5)  # 100 nodes, 20 in each
    assert "as measured, for the data of that run alone" in head(measured).note
    assert "as measured, which holds for the data of that run alone" in " ".join(
        measured.render("text").split()
    )


def ones(kept: str) -> onnx.ModelProto:
    nodes = [
        helper.make_node("Relu", ["x"], ["a"], name="first"),
        helper.make_node("NonZero", ["a"], ["n"], name="places"),
        helper.make_node("Cast", ["n"], [kept], name="last", to=TensorProto.FLOAT),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [4, 16])
    y = helper.make_tensor_value_info(kept, TensorProto.FLOAT, None)
    graph = helper.make_graph(nodes, "places", [x], [y])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


def test_sizes_that_floats_decide_are_those_of_the_run() -> None:
    # Relu leaves nothing of what is below zero.
    analysis = analyze(ones("y"), input=["x=4,16:float32=-2..-1"], gpu="l4", time_budget=0.3)
    assert [operator.outputs[0].shape for operator in analysis.operators] == [(4, 16), (2, 0), (2, 0)]
    assert "The values of x decide the size of" in analysis.render("text")


def test_a_shape_of_a_run_that_contradicts_the_graph_is_left_out() -> None:
    graph, shown = to_graph(ones("y")), SizeOrigin(kind="measured")
    # NonZero gives a row for each of two axes: three rows are another tensor's, or another layout's.
    assert with_known_sizes(graph, shapes={"n": (3, 7)}) is graph
    closed = with_known_sizes(graph, shapes={"n": (2, 7)})
    assert [node.output(0).shape for node in closed.nodes] == [(4, 16), (2, 7), (2, 7)]
    assert closed.outputs[0].shape == (2, 7)
    assert dict(closed.size_origins) == {"n": shown, "y": shown}
