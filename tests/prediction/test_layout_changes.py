"""Copies into and out of blocks: what is looked at is as much as is needed."""

import random

import pytest
from prediction_graphs import alone, graph, node, tensor

from analyzer.graph import Graph, Tensor
from analyzer.memory.blocked_buffers import REORDER
from analyzer.memory.session_plan import with_layouts
from analyzer.memory.session_steps import steps_of
from analyzer.prediction.layout_changes import layout_copies

IMAGE = (1, 16, 8, 8)


def network(seed: int) -> Graph:
    """Operators that write blocks, carry them, read them, or have nothing to do with them, at random."""
    chance = random.Random(seed)
    images: list[Tensor] = [tensor("x", *IMAGE), tensor("z", *IMAGE)]
    nodes = []
    for index in range(chance.randint(3, 25)):
        op = chance.choice(["Conv", "MaxPool", "Relu", "Add", "Mul", "Softmax", "Erf", "Sigmoid", "Transpose"])
        read = [chance.choice(images[-4:])]
        attributes = {}
        shape = IMAGE
        if op == "Conv":
            read.append(tensor(f"w{index}", 16, 16, 3, 3, constant=True))
            attributes = {"kernel_shape": (3, 3), "pads": (1, 1, 1, 1), "strides": (1, 1), "group": 1}
        elif op == "MaxPool":
            attributes = {"kernel_shape": (3, 3), "pads": (1, 1, 1, 1), "strides": (1, 1)}
        elif op in ("Add", "Mul"):
            read.append(chance.choice(images))
        elif op == "Transpose":
            attributes = {"perm": (0, 2, 3, 1)}
            shape = (1, 8, 8, 16)
        made = tensor(f"t{index}", *shape)
        nodes.append(node(op, read, made, index, **attributes))
        if shape == IMAGE:
            images.append(made)
    return graph(*nodes)


@pytest.mark.parametrize("seed", range(200))
def test_copies_are_those_that_a_look_at_all_steps_finds(seed: int) -> None:
    one = network(seed)
    groups = alone(one, "cpu")
    expected: dict[int, list[int | None]] = {}
    for step in with_layouts(one, steps_of(one, groups)):
        if step.op_type == REORDER:
            expected.setdefault(step.node.index, []).append(step.outputs[0].value.size)
    found = {index: [piece.written for piece in pieces] for index, pieces in layout_copies(one, groups).items()}
    assert found == expected


def test_some_of_these_networks_copy_and_some_do_not() -> None:
    counts = [len(layout_copies(one, alone(one, "cpu"))) for one in map(network, range(200))]
    assert counts.count(0) > 10
    assert sum(count > 1 for count in counts) > 50
