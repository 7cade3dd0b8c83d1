"""How often loops run is known before the run where shapes and constants decide it, and so are sizes behind.

Expected numbers are those of naive loops in Python, and of PyTorch's FlopCounterMode.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from analyzer.costs import count
from analyzer.graph import Graph, Node, Trips
from analyzer.loading.load import load
from analyzer.loading.model_reference import parse_reference
from analyzer.loading.onnx_graph.build import to_graph

BOOL, INT64 = TensorProto.BOOL, TensorProto.INT64


def info(name: str, kind: int = INT64, shape: list[int] | None = None) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, [] if shape is None else shape)


def counting(condition: list[onnx.NodeProto], *inside: onnx.NodeProto) -> onnx.GraphProto:
    """A body whose state ``s`` becomes ``s2``; ``condition`` makes ``on`` of it."""
    given = [info("number"), info("go", BOOL), info("s")]
    return helper.make_graph([*inside, *condition], "body", given, [info("on", BOOL), info("s2")])


def looped(body: onnx.GraphProto, limit: str = "", start: int = 0, **constants: Any) -> Graph:
    node = helper.make_node("Loop", [limit, "", "start"], ["y"], name="loop", body=body)
    stored = {"start": start, **constants}
    given = [info(name) for name in ("asked",)]
    graph = helper.make_graph(
        [node], "g", given, [info("y")],
        [numpy_helper.from_array(np.array(value, np.int64), name) for name, value in stored.items()],
    )  # fmt: skip
    return to_graph(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10))


def passes(going: Callable[[int], bool], step: Callable[[int], int], start: int, most: int = 10**6) -> int:
    """A loop as ONNX defines it, its condition computed at the end of each pass."""
    done = 0
    while done < most:
        start = step(start)
        done += 1
        if not going(start):
            break
    return done


def node(op_type: str, reads: str, writes: str) -> onnx.NodeProto:
    return helper.make_node(op_type, reads.split(), [writes])


@pytest.mark.parametrize("end", [-3, 0, 1, 6, 7, 8, 1000])
@pytest.mark.parametrize("step", [1, 3])
@pytest.mark.parametrize(("op_type", "going"), [("Less", int.__lt__), ("LessOrEqual", int.__le__)])
def test_a_loop_that_counts_up_to_a_known_end_has_the_trips_of_a_naive_loop(
    op_type: str, going: Callable[[int, int], bool], step: int, end: int
) -> None:
    body = counting([node(op_type, "s2 end", "on")], node("Add", "s step", "s2"))
    found = looped(body, step=step, end=end).nodes[0].trips
    assert found == Trips(count=passes(lambda at: going(at, end), lambda at: at + step, 0))


@pytest.mark.parametrize("end", [-8, -7, 0, 3])
def test_so_has_one_that_counts_down_and_compares_from_the_other_side(end: int) -> None:
    body = counting([node("Less", "end s2", "on")], node("Sub", "s step", "s2"))
    found = looped(body, start=5, step=2, end=end).nodes[0].trips
    assert found == Trips(count=passes(lambda at: end < at, lambda at: at - 2, 5))


def test_a_loop_that_doubles_has_the_trips_of_a_naive_loop() -> None:
    body = counting([node("Less", "s2 end", "on")], node("Mul", "s step", "s2"))
    found = looped(body, start=1, step=2, end=1000).nodes[0].trips
    assert found == Trips(count=passes(lambda at: at < 1000, lambda at: at * 2, 1))


def test_a_limit_ends_a_loop_before_its_condition_does() -> None:
    body = counting([node("Less", "s2 end", "on")], node("Add", "s step", "s2"))
    assert looped(body, "most", most=4, step=1, end=9).nodes[0].trips == Trips(count=4)


def test_trips_that_the_data_decide_are_not_known_and_a_limit_is_the_most() -> None:
    body = counting([node("Less", "s2 asked", "on")], node("Add", "s step", "s2"))
    assert looped(body, step=1).nodes[0].trips is None
    assert looped(body, "most", most=9, step=1).nodes[0].trips == Trips(count=9, exact=False)


def test_a_loop_that_never_ends_takes_no_time_to_read_and_its_trips_are_not_known() -> None:
    counts_away = counting([node("Less", "s2 end", "on")], node("Sub", "s step", "s2"))
    stays = counting([node("Less", "s2 end", "on")], node("Mul", "s step", "s2"))
    assert looped(counts_away, step=1, end=9).nodes[0].trips is None
    assert looped(stays, step=1, end=9).nodes[0].trips is None


def test_a_loop_inside_of_another_has_the_mean_of_its_trips() -> None:
    """Rows of 3, 0, 5 and 1 elements: each is walked through, an empty one once by this body."""
    bounds = [0, 3, 3, 8, 9]
    inner_body = helper.make_graph(
        [node("Add", "j one", "j2"), node("Less", "j2 last", "more")], "inner",
        [info("n2"), info("go2", BOOL), info("j")], [info("more", BOOL), info("j2")],
    )  # fmt: skip
    inner = helper.make_node("Loop", ["", "any", "first"], ["after"], name="inner", body=inner_body)
    body = counting(
        [node("Less", "s2 rows", "on")],
        node("Add", "s one", "s2"), node("Gather", "bounds s", "first"), node("Gather", "bounds s2", "last"),
        node("Less", "first last", "any"), inner,
    )  # fmt: skip
    outer = looped(body, bounds=bounds, rows=4, one=1).nodes[0]
    walked = next(child for child in outer.graphs["body"].nodes if child.op_type == "Loop")
    assert (outer.trips, walked.trips) == (Trips(count=4), Trips(count=(3 + 0 + 5 + 1) / 4))


MODEL = """
import torch
from torch import nn

class Bag(nn.Module):
    def __init__(self):
        super().__init__()
        self.bag = nn.EmbeddingBag(500, 8, mode="mean"{padding})
        self.fc = nn.Linear(8, 16)

    def forward(self, ids):
        return self.fc(self.bag(ids))

def example_inputs(batch):
    return torch.randint(0, 500, (batch, 6))
"""


def loops(nodes: tuple[Node, ...]) -> Iterator[Node]:
    for one in nodes:
        if one.op_type == "Loop":
            yield one
        for graph in one.graphs.values():
            yield from loops(graph.nodes)


@pytest.fixture(scope="module", params=["", ", padding_idx=0"], ids=["plain", "padded"])
def bag(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Callable[[int], Graph]:
    folder: Path = tmp_path_factory.mktemp("bags")
    (folder / "bag.py").write_text(MODEL.replace("{padding}", request.param))
    loaded = load(parse_reference(str(folder / "bag.py")), batch=32, use_cache=False)
    return loaded.graph


@pytest.mark.parametrize("batch", [32, 3000])
def test_an_embedding_bag_loops_over_its_bags_and_in_each_over_its_indices(
    bag: Callable[[int], Graph], batch: int
) -> None:
    found = [one.trips for one in loops(bag(batch).nodes)]
    # With padding each index is looked at in a loop of its own; without it a bag is cut out at once.
    assert found in ([Trips(count=batch)], [Trips(count=batch), Trips(count=6)])


def test_what_is_behind_an_embedding_bag_is_counted_with_all_its_rows(bag: Callable[[int], Graph]) -> None:
    """FlopCounterMode: 2 * 32 * 8 * 16 for the linear layer, and nothing for the bag."""
    graph = bag(32)
    assert graph.outputs[0].shape == (32, 16)
    assert count(graph).total.macs == 32 * 8 * 16
