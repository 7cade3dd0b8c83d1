"""Whole sessions, launches against the host, shares of operators, copies."""

from dataclasses import replace

import numpy as np
import prediction_graphs as made
import pytest
from session_totals import predict_total, session_overhead

from analyzer import prediction
from analyzer.arrays import Floats
from analyzer.costs import count
from analyzer.devices import catalogue
from analyzer.graph import Graph, Node
from analyzer.ort.execution import Group
from analyzer.prediction.gpu.launch import CALL_S, FLOOR_S, GAP_S, STREAM_S
from analyzer.prediction.predict import model_times, stacked

LAUNCHED_S = FLOOR_S + GAP_S + STREAM_S


def chain(length: int, elements: int) -> Graph:
    tensors = [made.tensor(f"t{position}", elements) for position in range(length + 1)]
    return made.graph(
        *(made.node("Relu", [tensors[position]], tensors[position + 1], position) for position in range(length))
    )


def layers(count: int) -> Graph:
    """Of each three operators one is a product, as in BERT."""
    nodes: list[Node] = []
    last = made.tensor("t0", 8, 64)
    for layer in range(count):
        weight = made.tensor(f"w{layer}", 64, 64, constant=True)
        for op_type, others in (("MatMul", [weight]), ("Relu", []), ("Tanh", [])):
            following = made.tensor(f"t{len(nodes) + 1}", 8, 64)
            nodes.append(made.node(op_type, [last, *others], following, len(nodes)))
            last = following
    return made.graph(*nodes)


def test_many_small_nodes_cost_what_the_host_needs_to_launch_them() -> None:
    """BERT on a V100's host, a Broadwell Xeon, took 8.8 to 11.8 us a node: at batch 1 it rules."""
    work = made.work(layers(33))
    host = catalogue.device("xeon-e5-2699-v4")
    whole = predict_total(work, catalogue.device("v100-16gb-pcie"), host=host)
    assert 8.0e-6 < whole.value / 99 < 11.8e-6
    assert whole.bound == "overhead"
    assert whole.low < 8.8e-6 * 99 < 11.8e-6 * 99 < whole.high


def test_a_faster_host_launches_faster() -> None:
    """A desktop's core needs less than half of what an old server's does; what it launches takes the same."""
    work, card = made.work(layers(10)), catalogue.device("a100")
    hosts = [
        catalogue.device(slug) for slug in ("xeon-e5-2699-v4", "xeon-platinum-8480-plus", "core-i9-14900k")
    ]
    old, server, desktop = (predict_total(work, card, host=host).value for host in hosts)
    assert desktop < server < old
    assert desktop < old / 2
    large = made.work(chain(10, 20_000_000))
    slow, usual = predict_total(large, card, host=hosts[0]), predict_total(large, card)
    assert slow.value == usual.value
    # Whose CPU launches is not known where none is named: a usual server's, less surely.
    unnamed = predict_total(work, card)
    assert unnamed.high / unnamed.value > 1.7
    assert desktop < unnamed.value < old


@pytest.mark.parametrize("device", ["l4", "epyc-9654"])
def test_sessions_of_a_stack_take_what_each_takes_by_itself(device: str) -> None:
    """Small sessions wait for the host, large ones do not; weights of one are no others' of the next."""
    works = [made.work(layers(5)), made.work(chain(10, 20_000_000)), made.work(layers(40))]
    sessions, where = prediction.Sessions(), catalogue.device(device)
    sessions.stack(works)
    for work in reversed(works):
        alone = prediction.predict_session(work, where, precision="fp32").estimates()
        assert sessions.predict(work, where, precision="fp32").estimates() == alone


def test_a_cuda_graph_is_replayed_at_once() -> None:
    """Chains of one operator on an H200: 300 nodes in a graph take 1.4 to 2 us each, two 5 to 5.6."""
    card = catalogue.device("h200")
    for length, low, high in ((300, 1.3e-6, 2.1e-6), (2, 4.5e-6, 6.5e-6)):
        work = stacked([(made.work(chain(length, 1000)), [1] * length)])
        (found,) = model_times(work, card, precision="fp32", replayed=True).value
        assert low < found / length < high
    assert found < prediction.predict_session(made.work(chain(2, 1000)), card).total().value


def test_overheads_tell_floor_gap_and_host_apart() -> None:
    """Where the GPU is the slower, the host adds the longer gaps alone; where it waits, all of its surplus."""
    card = catalogue.device("a100")
    for work, waits in ((made.work(chain(10, 20_000_000)), False), (made.work(chain(10, 1000)), True)):
        parts = prediction.predict(work, card)
        for part in parts:
            assert part.overhead is not None
            assert part.overhead.floor_s == FLOOR_S
            assert part.overhead.gap_s == GAP_S
            assert (part.overhead.host_s - CALL_S / 10 > 1.5 * STREAM_S) is waits
        kernels = [item.value - item.overhead.host_s for item in parts if item.overhead]
        alone = prediction.predict_arrays(work, card)
        assert sum(kernels) == pytest.approx(float(alone.value.sum()) - 10 * STREAM_S)


def test_large_nodes_cost_their_kernels() -> None:
    work, card = made.work(chain(10, 20_000_000)), catalogue.device("a100")
    parts = prediction.predict(work, card)
    assert predict_total(work, card).value == pytest.approx(sum(item.value for item in parts))


@pytest.mark.parametrize(("slug", "session"), [("a100", "cuda"), ("xeon-platinum-8260", "cpu")])
@pytest.mark.parametrize("elements", [1000, 20_000_000])
def test_dispatched_parts_add_up_to_the_session(elements: int, slug: str, session: str) -> None:
    work, card = made.work(chain(20, elements), session), catalogue.device(slug)
    parts = prediction.predict(work, card)
    assert sum(item.value for item in parts) == pytest.approx(predict_total(work, card).value)


def test_the_host_launches_each_step_of_a_recurrence() -> None:
    """An LSTM of 50 steps took an H100's session 0.88 ms, 0.37 of it kernels (tests/data/gpu)."""
    steps, batch, size = 50, 64, 128
    inputs = [
        made.tensor("x", steps, batch, size),
        made.tensor("w", 1, 4 * size, size, constant=True),
        made.tensor("r", 1, 4 * size, size, constant=True),
    ]
    work = made.work(made.graph(made.node("LSTM", inputs, made.tensor("y", steps, 1, batch, size))))
    taken = predict_total(work, catalogue.device("h100-80gb-sxm"))
    assert taken.low < 0.88e-3 < taken.high
    assert taken.bound == "overhead"


def test_views_launch_nothing_and_cost_the_host_a_look() -> None:
    """A chain of Reshapes took 0.4 to 0.5 us each on two hosts, and no kernel."""
    view = made.graph(
        made.node(
            "Reshape",
            [made.tensor("x", 1000), made.tensor("s", 2, dtype="int64", constant=True)],
            made.tensor("y", 10, 100),
        )
    )
    groups = made.alone(view, "cuda", kernels=0)
    work, card = made.work(view, groups=groups), catalogue.device("l4")
    assert prediction.predict_arrays(work, card).value[0] == 0
    assert prediction.predict(work, card)[0].value == pytest.approx(0.45e-6)


def test_what_a_cuda_session_runs_on_the_cpu_launches_nothing() -> None:
    """Ten small operators, nine of them fallen back: the host launches one node, not ten."""
    work = chain(10, 1000)
    groups = tuple(
        replace(group, provider="cuda" if index == 0 else "cpu")
        for index, group in enumerate(made.alone(work, "cuda"))
    )
    card = catalogue.device("l4")
    one = session_overhead(made.work(chain(1, 1000)), card)
    assert session_overhead(made.work(work, groups=groups), card).value == pytest.approx(one.value)
    assert prediction.workload(work, count(work), groups).kernels.tolist() == [1.0] + [0.0] * 9


def test_a_session_s_interval_is_wider_than_its_operators() -> None:
    """Published whole models differ by a quarter from their operators' sum: no narrower than that."""
    work, card = made.work(chain(10, 20_000_000)), catalogue.device("a100")
    alone = prediction.predict(made.work(chain(1, 20_000_000)), card)[0]
    whole = predict_total(work, card)
    assert whole.high / whole.value > 1.25 > alone.high / alone.value
    assert whole.value / whole.low > 1.25 > alone.value / alone.low


def test_a_cpu_session_costs_the_sum_of_its_nodes_and_one_call() -> None:
    """The call is the same for ten nodes and for twenty, which cost twice as much without it."""
    cpu = catalogue.device("epyc-9654")
    ten, twenty = (made.work(chain(length, 1_000_000), "cpu") for length in (10, 20))
    overhead = session_overhead(ten, cpu).value
    short, long = (predict_total(work, cpu).value for work in (ten, twenty))
    assert overhead > 0
    assert long - overhead == pytest.approx(2 * (short - overhead))


def test_the_shares_of_a_group_s_operators_add_up_to_it() -> None:
    hidden = made.tensor("h", 64, 1024)
    one = made.graph(
        made.node(
            "MatMul", [made.tensor("x", 64, 1024), made.tensor("w", 1024, 1024, constant=True)], hidden, 0
        ),
        made.node("Relu", [hidden], made.tensor("r", 64, 1024), 1),
        made.node("Exp", [made.tensor("z", 10)], made.tensor("e", 10), 2),
    )
    fused = Group(session="cuda", name="f", op_type="FusedGemm", members=(0, 1), provider="cuda")
    card = catalogue.device("l4")
    work = made.work(one, groups=(fused,))
    estimates = prediction.predict(work, card)
    shares = prediction.operator_shares(one, count(one), (fused,), work, estimates, card)
    assert shares[0] is not None
    assert shares[1] is not None
    assert shares[0].value + shares[1].value == pytest.approx(estimates[0].value)
    assert shares[0].high + shares[1].high == pytest.approx(estimates[0].high)
    assert shares[0].value > shares[1].value
    assert shares[2] is None


@pytest.mark.parametrize("session", ["cpu", "cuda"])
def test_a_norm_folded_into_a_convolution_takes_nothing(session: str) -> None:
    inner = made.convolution(4, 32, 32, 28).nodes[0]
    scales = [made.tensor(name, 32, constant=True) for name in ("s", "b", "m", "v")]
    hidden = inner.outputs[0]
    assert hidden is not None
    one = made.graph(
        inner, made.node("BatchNormalization", [hidden, *scales], made.tensor("z", 4, 32, 28, 28), 1)
    )
    fused = Group(session=session, name="f", op_type="Conv", members=(0, 1), provider=session)  # type: ignore[arg-type]
    card = catalogue.device("l4" if session == "cuda" else "epyc-9654")
    work = made.work(one, groups=(fused,))
    estimates = prediction.predict(work, card)
    conv, norm = prediction.operator_shares(one, count(one), (fused,), work, estimates, card)
    assert conv is not None
    assert norm is not None
    assert (conv.value, norm.value) == (estimates[0].value, 0.0)
    alone = made.alone(one, session)
    work = made.work(one, groups=alone)
    apart = prediction.predict(work, card)
    shares = prediction.operator_shares(one, count(one), alone, work, apart, card)
    assert shares[1] == apart[1]


def test_fusing_an_activation_saves_its_traffic() -> None:
    hidden = made.tensor("h", 4096, 4096)
    one = made.graph(
        made.node("MatMul", [made.tensor("x", 4096, 64), made.tensor("w", 64, 4096, constant=True)], hidden, 0),
        made.node("Relu", [hidden], made.tensor("r", 4096, 4096), 1),
    )
    fused = Group(session="cuda", name="f", op_type="FusedMatMul", members=(0, 1), provider="cuda")
    card = catalogue.device("a100")
    together = prediction.predict(made.work(one, groups=(fused,)), card)[0].value
    apart = sum(item.value for item in prediction.predict(made.work(one), card))
    # The activation alone would read and write 4096 x 4096 floats.
    assert apart - together == pytest.approx(2 * 4 * 4096**2 / (0.87 * 2039e9) + LAUNCHED_S, rel=0.1)


@pytest.mark.parametrize("session", ["cpu", "cuda"])
def test_a_group_writes_its_last_members_result(session: str) -> None:
    """64 x 256 floats in, 256 x 64 weights, 64 x 64 out; what the two members pass on stays inside."""
    hidden = made.tensor("h", 64, 64)
    one = made.graph(
        made.node("MatMul", [made.tensor("x", 64, 256), made.tensor("w", 256, 64, constant=True)], hidden, 0),
        made.node("Relu", [hidden], made.tensor("r", 64, 64), 1),
    )
    fused = Group(session=session, name="f", op_type="FusedMatMul", members=(0, 1), provider=session)  # type: ignore[arg-type]
    work = made.work(one, groups=(fused,))
    assert work["written"].sum() == 4 * 64 * 64
    assert work["read"].sum() == 4 * (64 * 256 + 256 * 64)


def test_a_transpose_pushed_through_a_split_passes_memory_a_second_time() -> None:
    """Three parts of 4 x 64 floats: the Split reads and writes all, and so do the Transposes of its parts."""
    turned = made.tensor("t", 3, 4, 64)
    parts = [
        made.node("Gather", [turned, made.tensor("i", dtype="int64")], made.tensor(f"p{part}", 4, 64), part)
        for part in (1, 2, 3)
    ]
    transpose = made.node("Transpose", [made.tensor("x", 4, 3, 64)], turned, 0, perm=(1, 0, 2))
    one = replace(made.graph(transpose, *parts), outputs=tuple(part.outputs[0] for part in parts))
    fused = Group(session="cpu", name="s", op_type="Split", members=(0, 1, 2, 3), provider="cpu")
    work = made.work(one, groups=(fused,))
    passes = 2 * 4 * 3 * 4 * 64
    assert work["read"].sum() == pytest.approx(passes, rel=0.01)  # and the three indices
    assert work["written"].sum() == pytest.approx(passes)


def test_an_operator_of_which_nothing_is_known_has_a_wide_interval() -> None:
    custom = made.graph(made.node("Mystery", [made.tensor("x", 100)], made.tensor("y", 100)))
    estimate = prediction.predict(made.work(custom), catalogue.device("l4"))[0]
    assert estimate.high > 4 * estimate.value
    known = prediction.predict(made.work(made.elementwise("Relu", 100)), catalogue.device("l4"))[0]
    assert known.high < 2 * known.value


def test_a_copy_takes_a_fixed_time_and_its_bytes_over_the_link() -> None:
    """12.3 GB over PCIe 3.0 x16, measured at 12.3 GB/s pinned and 8.3 pageable: 1 s, 1.48 s, and 10 us each."""
    link = catalogue.device("t4").link
    assert link is not None
    assert prediction.transfer(link, 12.3e9).value == pytest.approx(1 + 10e-6)
    assert prediction.transfer(link, 12.3e9, pinned=False).value == pytest.approx(12.3 / 8.3 + 10e-6)
    small = prediction.transfer(link, 4)
    assert small.value == pytest.approx(10e-6, rel=0.01)
    assert small.low <= 6.6e-6
    assert small.high >= 25e-6
    assert prediction.transfer(link, 0).value == 0


def test_operators_that_differ_in_names_alone_share_their_pieces() -> None:
    """Of five products the second is like the first; another shape, type or attribute is another form."""
    weight, wide = made.tensor("w", 8, 8, constant=True), made.tensor("v", 8, 16, constant=True)
    whole = made.tensor("q", 4, 8, dtype="int32")
    one = made.graph(
        made.node("Gemm", [made.tensor("a", 4, 8), weight], made.tensor("b", 4, 8), 0),
        made.node("Gemm", [made.tensor("c", 4, 8), weight], made.tensor("d", 4, 8), 1),
        made.node("Gemm", [made.tensor("e", 4, 8), wide], made.tensor("f", 4, 16), 2),
        made.node("Gemm", [whole, weight], made.tensor("g", 4, 8), 3),
        made.node("Gemm", [made.tensor("h", 4, 8), weight], made.tensor("i", 4, 8), 4, transB=1),
    )
    pieces = prediction.OperatorPieces(one, count(one))
    assert [pieces.number(operator) for operator in range(5)] == [0, 0, 2, 3, 4]
    assert pieces.of(1, cuda=False) is pieces.of(0, cuda=False)
    assert pieces.of(2, cuda=True) != pieces.of(0, cuda=True)


def test_a_bias_is_no_part_of_a_form_and_a_scale_is() -> None:
    """A file's own biases would make each product one of its kind; a Resize is another at another scale."""

    def numbers(op_type: str, *values: Floats) -> list[int]:
        constants = [
            replace(made.tensor(f"c{i}", values[i].size, constant=True), value=values[i]) for i in range(2)
        ]
        nodes = [
            made.node(op_type, [made.tensor(f"x{i}", 8, 64), constants[i]], made.tensor(f"y{i}", 8, 64), i)
            for i in range(2)
        ]
        one = made.graph(*nodes)
        pieces = prediction.OperatorPieces(one, count(one))
        return [pieces.number(operator) for operator in range(2)]

    assert numbers("Add", np.full(64, 1.0), np.full(64, 2.0)) == [0, 0]
    assert numbers("Resize", np.array([1.0, 2.0]), np.array([2.0, 1.0])) == [0, 1]


def test_like_groups_take_what_each_takes_by_itself() -> None:
    """Three products with their biases, the last with one that something else reads as well."""
    weight, bias = made.tensor("w", 64, 64, constant=True), made.tensor("z", 64, constant=True)
    nodes = []
    for index in range(3):
        product = made.tensor(f"p{index}", 64, 64)
        nodes.append(made.node("MatMul", [made.tensor(f"x{index}", 64, 64), weight], product, 2 * index))
        nodes.append(made.node("Add", [product, bias], made.tensor(f"y{index}", 64, 64), 2 * index + 1))
    nodes.append(made.node("Relu", [made.tensor("p2", 64, 64)], made.tensor("r", 64, 64), 6))
    one = made.graph(*nodes)
    groups = tuple(
        Group(session="cpu", name=f"g{i}", op_type="Gemm", members=(i, i + 1), provider="cpu")
        for i in (0, 2, 4)
    )
    together = made.work(one, "cpu", groups)
    by_itself = [made.work(one, "cpu", (group,)) for group in groups]
    for name, column in together.columns.items():
        assert column.tolist() == [value for work in by_itself for value in work[name].tolist()]
    assert together["written"][2] > together["written"][1] == together["written"][0]


@pytest.mark.parametrize("device", ["l4", "xeon-platinum-8480-plus"])
def test_an_operator_of_which_nothing_is_known_may_take_as_long_as_the_longest_other(device: str) -> None:
    large = [made.tensor(f"t{position}", 20_000_000) for position in range(2)]
    small = [made.tensor(f"s{position}", 10) for position in range(2)]
    graph = made.graph(
        made.node("Relu", [large[0]], large[1], 0),
        replace(made.node("Mine", [small[0]], small[1], 1), domain="mine"),
    )
    known, unknown = prediction.predict(made.work(graph), catalogue.device(device))
    assert unknown is not None
    assert known is not None
    # What it reads and writes says little: ten times that is still less.
    assert 20 * unknown.value < known.value
    assert unknown.high >= known.high
