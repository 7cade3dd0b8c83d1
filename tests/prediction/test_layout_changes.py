"""Copies into and out of blocks: what is looked at is as much as is needed."""

import random

import pytest
from prediction_graphs import alone, graph, node, tensor

from analyzer.graph import Graph
from analyzer.memory.blocked_buffers import REORDER
from analyzer.memory.session_plan import SessionPlan, planned_peak_bytes, with_layouts
from analyzer.memory.session_steps import steps_of
from analyzer.prediction.layout_changes import LayoutCopies, layout_copies

IMAGE = (16, 8, 8)


def network(seed: int, batch: int = 1) -> Graph:
    """Operators that write blocks, carry them, read them, or have nothing to do with them, at random.

    Two inputs are of the batch, one is not: at batch 1 all are alike.
    """
    chance = random.Random(seed)
    images = [tensor("x", batch, *IMAGE), tensor("z", batch, *IMAGE), tensor("one", 1, *IMAGE)]
    nodes = []
    for index in range(chance.randint(3, 25)):
        op = chance.choice(["Conv", "MaxPool", "Relu", "Add", "Mul", "Softmax", "Erf", "Sigmoid", "Transpose"])
        read = [chance.choice(images[-4:])]
        attributes = {}
        if op == "Conv":
            read.append(tensor(f"w{index}", 16, 16, 3, 3, constant=True))
            attributes = {"kernel_shape": (3, 3), "pads": (1, 1, 1, 1), "strides": (1, 1), "group": 1}
        elif op == "MaxPool":
            attributes = {"kernel_shape": (3, 3), "pads": (1, 1, 1, 1), "strides": (1, 1)}
        elif op in ("Add", "Mul"):
            read.append(chance.choice(images))
        elif op == "Transpose":
            attributes = {"perm": (0, 2, 3, 1)}
        first = max(item.shape[0] or 0 for item in read if item.shape and not item.constant)
        shape = (8, 8, 16) if op == "Transpose" else IMAGE
        made = tensor(f"t{index}", first, *shape)
        nodes.append(node(op, read, made, index, **attributes))
        if shape == IMAGE:
            images.append(made)
    return graph(*nodes)


def sizes_by_group(copies: LayoutCopies) -> dict[int, list[int | None]]:
    sizes: dict[int, list[int | None]] = {}
    for copy in copies.copies:
        sizes.setdefault(copy.group, []).append(copy.nbytes)
    return sizes


@pytest.mark.parametrize("seed", range(200))
def test_copies_are_those_that_a_look_at_all_steps_finds(seed: int) -> None:
    one = network(seed)
    groups = alone(one, "cpu")
    expected: dict[int, list[int | None]] = {}
    for step in with_layouts(one, steps_of(one, groups)):
        if step.op_type == REORDER:
            expected.setdefault(step.node.index, []).append(step.outputs[0].value.size)
    assert sizes_by_group(layout_copies(one, groups)) == expected


def test_some_of_these_networks_copy_and_some_do_not() -> None:
    counts = [len(layout_copies(one, alone(one, "cpu")).copies) for one in map(network, range(200))]
    assert counts.count(0) > 10
    assert sum(count > 1 for count in counts) > 50


@pytest.mark.parametrize("seed", range(100))
@pytest.mark.parametrize("known", [1, 2])
def test_at_another_batch_copies_are_those_that_are_found_there(seed: int, known: int) -> None:
    one, other = network(seed, known), network(seed, 7)
    carried_over = layout_copies(one, alone(one, "cpu")).at(other)
    if carried_over is None:
        assert known == 1  # where tensors look alike that are not
    else:
        assert sizes_by_group(carried_over) == sizes_by_group(layout_copies(other, alone(other, "cpu")))


@pytest.mark.parametrize("seed", range(100))
@pytest.mark.parametrize("session", ["cpu", "cuda"])
@pytest.mark.parametrize("known", [1, 2])
def test_at_another_batch_a_session_holds_what_it_is_planned_to_hold_there(
    seed: int, session: str, known: int
) -> None:
    one, other = network(seed, known), network(seed, 7)
    carried_over = SessionPlan.of(one, alone(one, session)).at(other)
    if carried_over is None:
        assert known == 1
    else:
        expected = planned_peak_bytes(other, alone(other, session), provider=session)
        assert carried_over.peak_bytes(session) == expected


def test_some_of_these_networks_are_carried_over_from_batch_1_and_some_are_not() -> None:
    plans = [
        SessionPlan.of(one, alone(one)).at(network(seed, 7))
        for seed, one in enumerate(map(network, range(100)))
    ]
    assert 10 < plans.count(None) < 90


def test_at_batch_1_tensors_share_a_buffer_that_do_not_at_another() -> None:
    def chain(batch: int) -> Graph:
        x, table, sizes = tensor("x", batch, 8), tensor("table", 1, 8), tensor("s", 2, constant=True)
        a, b, c = tensor("a", 1, 8), tensor("b", batch, 8), tensor("c", batch, 8)
        made = [("Softmax", [table], a), ("Expand", [a, sizes], b), ("Add", [x, b], c)]
        return graph(*(node(op, list(read), out, index) for index, (op, read, out) in enumerate(made)))

    one, many = chain(1), chain(64)
    plan = SessionPlan.of(one, alone(one, "cpu"))
    assert plan.at(many) is None
    assert plan.at(chain(1)) is not None
    between = SessionPlan.of(many, alone(many, "cpu")).at(chain(4096))
    assert between is not None
    x, table, b, c = 4096 * 8, 8, 4096 * 8, 4096 * 8
    assert between.peak_bytes("cpu") == 4 * (x + table + b + c)
