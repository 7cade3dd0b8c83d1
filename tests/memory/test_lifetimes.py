"""Memory of tensors by their lifetimes: against a count of every moment, and of a step by hand."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from analyzer.graph import DTYPES, Graph, Node, Tensor
from analyzer.memory.fit import peak_memory_bytes, step_bytes
from analyzer.operators import IN_PLACE


def floats(name: str, elements: int | None) -> Tensor:
    return Tensor(name=name, shape=(elements,), dtype=DTYPES["float32"])


def network(operators: list[tuple[str, int, int, int, bool]]) -> Graph:
    """Operators that read one or two of the last tensors and write one of 1 to 3 sizes; some are results."""
    x = floats("x", 2)
    tensors, nodes = [x], []
    for index, (op_type, first, second, elements, _) in enumerate(operators):
        read = [tensors[-4:][first % len(tensors[-4:])]]
        if op_type == "MatMul":
            read.append(tensors[second % len(tensors)])
        made = floats(f"t{index}", read[0].elements if op_type in ("Reshape", "Relu") else elements)
        nodes.append(Node(index=index, name=f"n{index}", op_type=op_type, inputs=tuple(read), outputs=(made,)))
        tensors.append(made)
    results = [tensor for tensor, (*_, kept) in zip(tensors[1:-1], operators, strict=False) if kept]
    results.append(tensors[-1])
    return Graph(name="random", nodes=tuple(nodes), inputs=(x,), outputs=tuple(results), initializers=())


def most_alive(graph: Graph, in_place: bool) -> int:
    """The most bytes of buffers at a moment; one lives from its writer to the last reader of its tensors."""
    end = len(graph.nodes)
    results = {tensor.name for tensor in graph.outputs}
    last = {
        name: max([node.index for node in graph.nodes if name in {one.name for one in node.inputs}], default=-1)
        for name in ("x", *(node.outputs[0].name for node in graph.nodes))
    } | dict.fromkeys(results, end)
    buffer = {"x": "x"}
    born, size = {"x": -1}, {"x": 8}

    def shown_later(name: str) -> list[str]:
        """A tensor and the views of it, made or not yet."""
        views = [
            node.outputs[0].name
            for node in graph.nodes
            if node.op_type == "Reshape" and node.inputs[0].name == name
        ]
        return [name, *(further for view in views for further in shown_later(view))]

    for node in graph.nodes:
        read, made = node.inputs[0].name, node.outputs[0]
        names = [name for one, held in buffer.items() if held == buffer[read] for name in shown_later(one)]
        takes_over = (
            in_place
            and node.op_type in IN_PLACE
            and made.name not in results
            and buffer[read] != "x"
            and size[buffer[read]] == made.nbytes
            and max(last[name] for name in names) == node.index
        )
        if node.op_type == "Reshape" or takes_over:
            buffer[made.name] = buffer[read]
        else:
            buffer[made.name], born[made.name], size[made.name] = made.name, node.index, made.nbytes or 0
    dies = born | {"x": end}
    for name, held in buffer.items():
        dies[held] = max(dies[held], last[name])
    return max(
        sum(size[held] for held in born if born[held] <= moment <= dies[held]) for moment in range(-1, end)
    )


OPERATORS = st.tuples(
    st.sampled_from(["MatMul", "Exp", "Relu", "Reshape"]),
    st.integers(0, 3),
    st.integers(0, 20),
    st.integers(1, 3),
    st.sampled_from([False, False, False, True]),
)


@given(operators=st.lists(OPERATORS, min_size=1, max_size=12), in_place=st.booleans())
def test_the_peak_is_the_most_that_lives_at_a_moment(
    operators: list[tuple[str, int, int, int, bool]], in_place: bool
) -> None:
    graph = network(operators)
    peak = most_alive(graph, in_place)
    assert peak_memory_bytes(graph, in_place=in_place) == peak
    assert peak_memory_bytes(graph, inputs=False, in_place=in_place) == peak - 8
    assert peak_memory_bytes(graph) == most_alive(graph, in_place=True)


def test_a_cache_that_the_caller_holds_is_counted_once_and_an_unread_open_size_not_at_all() -> None:
    past, now, new = floats("past", 5), floats("now", 5), floats("new", 3)
    unread = floats("unread", None)
    nodes = (
        Node(index=0, name="n0", op_type="Exp", inputs=(past,), outputs=(now, unread)),
        Node(index=1, name="n1", op_type="Exp", inputs=(now,), outputs=(new,)),
    )
    graph = Graph(
        name="step", nodes=nodes, inputs=(past,), outputs=(now, new), initializers=(), carried={"past": "now"}
    )
    assert peak_memory_bytes(graph) == 4 * (5 + 3)
    assert peak_memory_bytes(graph, inputs=False) == 4 * (5 + 3)
    assert peak_memory_bytes(replace(graph, outputs=(now, new, unread))) is None
    assert peak_memory_bytes(replace(graph, inputs=(floats("past", None),))) is None


def test_the_memory_of_a_step_is_weights_state_gradients_what_backward_reads_and_a_rest() -> None:
    """In bytes: x 16, w 12, state m 20, h 24 and its view v, a 28, loss 4, ga 28, the gradient gw 12."""
    x, w, m, h, v = (floats(name, size) for name, size in zip("xwmhv", (4, 3, 5, 6, 6), strict=True))
    a, loss, ga, gw, w2 = (
        floats(name, size) for name, size in zip(("a", "loss", "ga", "gw", "w2"), (7, 1, 7, 3, 3), strict=True)
    )
    steps = [
        ("MatMul", "forward", (x, w), h),
        ("Reshape", "forward", (h,), v),
        ("Relu", "forward", (v,), a),
        ("ReduceSum", "forward", (a,), loss),
        ("Mul", "backward", (loss, v), ga),
        ("MatMul", "backward", (x, ga), gw),
        ("Sub", "optimizer", (w, gw, m), w2),
    ]
    nodes = tuple(
        Node(index=index, name=f"n{index}", op_type=op_type, phase=phase, inputs=read, outputs=(made,))
        for index, (op_type, phase, read, made) in enumerate(steps)
    )
    graph = Graph(name="step", nodes=nodes, inputs=(x, w, m), outputs=(loss, w2), initializers=())
    memory = step_bytes(graph, ["w"], ["m"], ["gw"])
    assert (memory.weights_bytes, memory.optimizer_state_bytes, memory.gradients_bytes) == (12, 20, 12)
    assert memory.fixed_bytes == 12 + 20 + 12
    # Backward reads x, the loss and, through v, h; a is not read.
    assert memory.activations_bytes == 16 + 4 + 24
    # The inputs, h, and beside them a and the loss, or the loss and ga.
    assert memory.peak_bytes == (16 + 12 + 20) + 24 + 28 + 4
    assert memory.other_bytes == 104 - 44 - 44
    # Larger gradients than what lives at the peak leave no rest.
    assert step_bytes(graph, ["w", "x"], ["m"], ["gw", "ga", "h"]).other_bytes == 0
    open_x = replace(graph, inputs=(floats("x", None), w, m))
    unknown = step_bytes(open_x, ["w"], ["m"], ["gw"])
    assert (unknown.activations_bytes, unknown.other_bytes, unknown.peak_bytes) == (None, None, None)
