"""Copies into and out of blocks: what is looked at is as much as is needed."""

from dataclasses import replace
from typing import Literal

from hypothesis import given
from hypothesis import strategies as st
from prediction_graphs import alone, graph, node, tensor

from analyzer.graph import Graph, Tensor
from analyzer.memory.session_plan import SessionPlan, with_layouts
from analyzer.memory.session_steps import REORDER, steps_of
from analyzer.prediction.layout_changes import (
    LayoutCopies,
    channels_last_copies,
    channels_last_groups,
    layout_copies,
)

IMAGE = (16, 8, 8)


OPERATORS = ("Conv", "MaxPool", "Relu", "Add", "Mul", "Softmax", "Erf", "Sigmoid", "Transpose")
# An operator, which of the last four images it reads, and which of all it reads besides.
NETWORKS = st.lists(
    st.tuples(st.sampled_from(OPERATORS), st.integers(0, 3), st.integers(0, 30)), min_size=3, max_size=25
)


def network(operators: list[tuple[str, int, int]], batch: int = 1) -> Graph:
    """Operators that write blocks, carry them, read them, or have nothing to do with them.

    Two inputs are of the batch, one is not: at batch 1 all are alike.
    """
    images = [tensor("x", batch, *IMAGE), tensor("z", batch, *IMAGE), tensor("one", 1, *IMAGE)]
    nodes = []
    for index, (op, last, any_of) in enumerate(operators):
        read = [images[-4:][last % len(images[-4:])]]
        attributes = {}
        if op == "Conv":
            read.append(tensor(f"w{index}", 16, 16, 3, 3, constant=True))
            attributes = {"kernel_shape": (3, 3), "pads": (1, 1, 1, 1), "strides": (1, 1), "group": 1}
        elif op == "MaxPool":
            attributes = {"kernel_shape": (3, 3), "pads": (1, 1, 1, 1), "strides": (1, 1)}
        elif op in ("Add", "Mul"):
            read.append(images[any_of % len(images)])
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


@given(operators=NETWORKS, known=st.sampled_from((1, 2)), session=st.sampled_from(("cpu", "cuda")))
def test_copies_and_plans_are_those_that_a_look_at_all_steps_finds_at_another_batch_too(
    operators: list[tuple[str, int, int]], known: int, session: Literal["cpu", "cuda"]
) -> None:
    one, other = network(operators, known), network(operators, 7)
    groups = alone(one, "cpu")
    expected: dict[int, list[int | None]] = {}
    for step in with_layouts(one, steps_of(one, groups)):
        if step.op_type == REORDER:
            expected.setdefault(step.node.index, []).append(step.outputs[0].value.size)
    copies = layout_copies(one, groups)
    assert sizes_by_group(copies) == expected
    if (there := copies.at(other)) is None:
        assert known == 1  # where tensors look alike that are not
    else:
        assert sizes_by_group(there) == sizes_by_group(layout_copies(other, alone(other, "cpu")))
    if (plan := SessionPlan.of(one, alone(one, session)).at(other)) is None:
        assert known == 1
    else:
        peak = SessionPlan.of(other, alone(other, session)).peak_bytes(session)
        assert plan.peak_bytes(session) == peak


def test_blocks_are_copied_where_an_operator_between_convolutions_reads_none() -> None:
    mixed = network([("Conv", 0, 0), ("Softmax", 3, 0), ("Conv", 3, 0)])
    # Into blocks, out of them, and so again.
    assert len(layout_copies(mixed, alone(mixed, "cpu")).copies) == 4
    plain = network([("Softmax", 0, 0), ("Erf", 3, 0), ("Transpose", 3, 0)])
    assert layout_copies(plain, alone(plain, "cpu")).copies == ()


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


def test_bytes_lie_channels_last_from_a_convolution_to_what_minds() -> None:
    def image(name: str, side: int = 8) -> Tensor:
        return tensor(name, 1, 16, side, side, dtype="uint8")

    chain = [("QLinearConv", "a"), ("MaxPool", "b"), ("Erf", "c"), ("QLinearConv", "d"), ("Sign", "e")]
    names = ["x", *(name for _, name in chain)]
    one = graph(*(node(op, [image(names[at])], image(name), at) for at, (op, name) in enumerate(chain)))
    groups = tuple(replace(group, op_type=op) for group, (op, _) in zip(alone(one, "cpu"), chain, strict=True))
    inside = channels_last_groups(one, groups)
    assert inside == {0, 1, 3}
    assert channels_last_groups(one, groups[1:3]) == set()
    copies = [
        (at, piece.op, piece.elements, piece.fixed) for at, piece in channels_last_copies(one, groups, inside)
    ]
    # Out behind the pool, in behind the Erf, out behind the second convolution; the input enters the first.
    names_and_groups = [(1, "First"), (2, "Last"), (3, "First"), (0, "Last")]
    assert copies == [(at, f"TransposeBytes{name}", 1024, 2048) for at, name in names_and_groups]
