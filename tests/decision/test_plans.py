from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from analyzer.decision import decide
from analyzer.decision.decision_input import Decision, DecisionInput
from analyzer.decision.error_components import of_measured_run, over, ratio, rescaled, summed
from analyzer.decision.placement_problem import Problems, placement_problem
from analyzer.decision.plans import by_operator_type, plan_all
from analyzer.figures import Figure
from analyzer.graph import DTYPES, Graph, Node, Tensor
from analyzer.ort.execution import Copy, Group, NodePlacement, Placement
from analyzer.prediction.estimate import Estimate
from analyzer.record.outcome import PlanResult

COPY_S = 10e-6 + 1e6 / 10e9  # a megabyte at 10 GB/s and the fixed 10 us: 110 us


def named(decision: Decision) -> dict[str, PlanResult]:
    return {plan.name: plan for plan in decision.plans}


def test_the_gpu_plan_is_its_groups_and_the_copies_of_inputs_outputs_and_between(
    build: Callable[..., Any], op: type[Any]
) -> None:
    ops = (
        op(reads=("in",), gpu=1e-4),
        op(reads=(0,), cpu=5e-4, gpu=5e-4, able=False),
        op(reads=(1,), gpu=2e-4),
    )
    plan = named(decide(build(*ops)))["gpu"]
    assert plan.latency_s == pytest.approx(1e-4 + 5e-4 + 2e-4 + 4 * COPY_S)
    assert [(item.tensor, item.direction, item.where) for item in plan.transfers.items] == [
        ("in", "to_gpu", "input"),
        ("t2", "to_cpu", "output"),
        ("t0", "to_cpu", "inside"),
        ("t1", "to_gpu", "inside"),
    ]
    assert plan.transfers.bytes == 4_000_000
    assert plan.transfers.time_s == pytest.approx(4 * COPY_S)
    assert (plan.operators_on_gpu, plan.operators_on_cpu) == (2, 1)


def test_only_what_a_cpu_operator_reads_is_copied_into_pinned_memory(
    build: Callable[..., Any], op: type[Any]
) -> None:
    """At 10 GB/s; inputs, outputs and what such an operator wrote go at the 4 GB/s of ordinary memory."""
    ops = (op(reads=("in",)), op(reads=(0,), able=False), op(reads=(1,)))
    question = build(*ops)
    link = replace(question.gpu.link, pageable_bytes_per_s=4e9)
    plan = named(decide(replace(question, gpu=replace(question.gpu, link=link))))["gpu"]
    ordinary_s = 10e-6 + 1e6 / 4e9
    assert {(item.tensor, item.direction): item.time_s for item in plan.transfers.items} == {
        ("in", "to_gpu"): pytest.approx(ordinary_s),
        ("t2", "to_cpu"): pytest.approx(ordinary_s),
        ("t0", "to_cpu"): pytest.approx(COPY_S),
        ("t1", "to_gpu"): pytest.approx(ordinary_s),
    }


def test_the_cpu_plan_copies_nothing(build: Callable[..., Any], op: type[Any]) -> None:
    plan = named(decide(build(op(reads=("in",), cpu=1e-3), op(reads=(0,), cpu=2e-3))))["cpu"]
    assert plan.latency_s == pytest.approx(3e-3)
    assert plan.transfers.count == 0


def test_throughput_is_inferences_over_latency(build: Callable[..., Any], op: type[Any]) -> None:
    plan = named(decide(build(op(reads=("in",), cpu=4e-3), batch=32)))["cpu"]
    assert plan.throughput_per_s == pytest.approx(32 / 4e-3)


def test_errors_of_one_device_add_and_do_not_average(build: Callable[..., Any], op: type[Any]) -> None:
    chain = [op(reads=("in",) if n == 0 else (n - 1,), cpu=1e-3, gpu=None, able=False) for n in range(100)]
    plan = named(decide(build(*chain, spread=1.25)))["cpu"]
    assert plan.low_s == pytest.approx(0.1 / 1.25)
    assert plan.high_s == pytest.approx(0.1 * 1.25)


def test_errors_of_different_devices_add_in_squares(build: Callable[..., Any], op: type[Any]) -> None:
    """1 ms on the GPU and 1 ms of fall-back, each up to 1.3 ms: 2 ms up to 2 + 0.3 * sqrt(2), copies apart."""
    ops = (op(reads=("in",), gpu=1e-3, elements=0), op(reads=(0,), cpu=1e-3, gpu=1e-3, able=False, elements=0))
    plan = named(decide(build(*ops, spread=1.3, input_elements=0)))["gpu"]
    assert plan.transfers.count == 0
    assert plan.latency_s == pytest.approx(2e-3)
    assert plan.high_s == pytest.approx(2e-3 + 0.3e-3 * 2**0.5)


@pytest.mark.parametrize(
    ("kinds", "expected"),
    [
        ({"cpu": "measured", "gpu": "predicted"}, {"cpu": "measured", "gpu": "predicted", "hybrid": "mixed"}),
        (
            {"cpu": "predicted", "gpu": "predicted"},
            {"cpu": "predicted", "gpu": "predicted", "hybrid": "predicted"},
        ),
    ],
)
def test_a_plan_of_measured_and_predicted_parts_is_mixed(
    build: Callable[..., Any], op: type[Any], kinds: dict[str, str], expected: dict[str, str]
) -> None:
    ops = (op(reads=("in",), cpu=1e-2, gpu=1e-5), op(reads=(0,), cpu=1e-5, gpu=1e-2))
    found = named(decide(build(*ops, origins=kinds)))
    assert {name: plan.origin for name, plan in found.items()} == expected


def test_a_run_measured_as_a_whole_is_the_plans_latency(build: Callable[..., Any], op: type[Any]) -> None:
    """Groups say 3 ms, the clock says 2 ms: in the best plan a group counts two thirds of what it says."""
    whole = Estimate(value=2e-3, low=1.9e-3, high=2.2e-3, origin="measured")
    ops = (op(reads=("in",), cpu=1.5e-3, gpu=1e-2), op(reads=(0,), cpu=1.5e-3, gpu=1e-5))
    plans = named(decide(build(*ops, cpu_latency=whole)))
    assert (plans["cpu"].latency_s, plans["cpu"].low_s, plans["cpu"].high_s) == (2e-3, 1.9e-3, 2.2e-3)
    assert plans["hybrid"].latency_s == pytest.approx(1e-3 + 1e-5 + 2 * COPY_S)


def test_a_measured_cuda_run_is_the_gpu_plans_latency(build: Callable[..., Any], op: type[Any]) -> None:
    whole = Estimate(value=7e-4, low=6e-4, high=9e-4, origin="measured")
    plan = named(decide(build(op(reads=("in",), cpu=1e-2, gpu=1e-4), cuda_latency=whole)))["gpu"]
    assert (plan.latency_s, plan.origin) == (pytest.approx(7e-4), "measured")
    assert (plan.low_s, plan.high_s) == (pytest.approx(6e-4), pytest.approx(9e-4))


def test_without_a_gpu_there_is_the_cpu_plan_alone(build: Callable[..., Any], op: type[Any]) -> None:
    decision = decide(build(op(reads=("in",)), gpu=None))
    assert [plan.name for plan in decision.plans] == ["cpu"]
    assert decision.placement == ("cpu",)


def test_an_eliminated_operator_costs_nothing_and_hands_its_input_on(
    build: Callable[..., Any], op: type[Any]
) -> None:
    """0 -> 1 -> 2 where neither session runs 1: the tensor of 0 goes to 2 straight, on the same side."""
    ops = (op(reads=("in",), cpu=1e-2), op(reads=(0,)), op(reads=(1,), cpu=1e-2))
    decision = decide(build(*ops, cpu_groups=[(0,), (2,)], cuda_groups=[(0,), (2,)]))
    plan = named(decision)["gpu"]
    assert plan.latency_s == pytest.approx(2e-4 + 2 * COPY_S)
    assert decision.placement == ("gpu", "gpu", "gpu")
    assert decision.operators[1].reason == "folded"


def test_an_operator_that_only_the_cuda_session_eliminates_is_free_there(
    build: Callable[..., Any], op: type[Any]
) -> None:
    ops = (op(reads=("in",), cpu=1e-2), op(reads=(0,), cpu=1e-3), op(reads=(1,), cpu=1e-2))
    decision = decide(build(*ops, cuda_groups=[(0,), (2,)]))
    assert named(decision)["hybrid"].latency_s == pytest.approx(2e-4 + 2 * COPY_S)


def test_a_time_that_is_not_known_is_told_and_never_counts_as_fast(
    build: Callable[..., Any], op: type[Any]
) -> None:
    ops = (op(reads=("in",), cpu=1e-3, gpu=1e-3), op(reads=(0,), cpu=5e-2, gpu=None))
    decision = decide(build(*ops))
    assert "not known" in named(decision)["gpu"].why
    assert decision.placement[1] == "cpu"
    assert decision.operators[1].reason == "unknown"


def test_half_precision_halves_what_is_copied_inside_and_leaves_inputs_and_outputs(
    build: Callable[..., Any], op: type[Any]
) -> None:
    ops = (
        op(reads=("in",), cpu=1e-1, gpu=1e-4),
        op(reads=(0,), cpu=1e-3, gpu=1e-3, able=False),
        op(reads=(1,), cpu=1e-1, gpu=1e-4),
    )
    plan = named(decide(build(*ops, precision="fp16")))["gpu"]
    sizes = {(item.tensor, item.where): item.bytes for item in plan.transfers.items}
    assert sizes[("in", "input")] == sizes[("t2", "output")] == 1_000_000
    assert sizes[("t0", "inside")] == sizes[("t1", "inside")] == 500_000


def test_a_session_that_cannot_be_made_leaves_the_cpu_plan(build: Callable[..., Any], op: type[Any]) -> None:
    question = build(op(reads=("in",)))
    failing = replace(question.placement, fails="no provider has a kernel for Mod with bfloat16")
    decision = decide(replace(question, placement=failing))
    assert [plan.name for plan in decision.plans] == ["cpu"]
    assert decision.verdict.device == "cpu"
    assert "bfloat16" in decision.verdict.sentence
    assert decision.operators[0].reason == "no-session"


def test_what_no_provider_runs_is_compared_on_both_as_if_it_ran_and_told(
    build: Callable[..., Any], op: type[Any]
) -> None:
    question = build(op(reads=("in",), cpu=1.0, gpu=1e-3))
    failing = replace(question.placement, fails="no provider has a kernel for Relu", lacks=("Relu",))
    decision = decide(replace(question, placement=failing, lacks=("Relu",)))
    assert {plan.name for plan in decision.plans} == {"cpu", "gpu", "hybrid"}
    assert all(plan.latency_s > 0 for plan in decision.plans)
    assert all("no provider has a kernel for Relu" in plan.why for plan in decision.plans)
    assert decision.verdict.device == "gpu"
    said = decision.verdict.sentence
    assert said.startswith("ONNX Runtime cannot run this model: no provider has a kernel for Relu; a session")
    assert "as if it ran" in said


def test_without_a_gpu_the_cpu_is_not_said_to_run_what_no_provider_runs(
    build: Callable[..., Any], op: type[Any]
) -> None:
    question = replace(build(op(reads=("in",))), gpu=None, placement=None, lacks=("Relu",))
    assert decide(question).verdict.sentence.startswith("ONNX Runtime cannot run this model")


def shape_question(build: Callable[..., Any], op: type[Any], *, copied: bool) -> DecisionInput:
    """x -> Shape -> Gather (on the CPU) -> Reshape(x, shape): shapes are host memory in a CUDA session."""
    base = build(op(reads=("in",)))
    x = base.graph.inputs[0]
    small = [Tensor(name=name, shape=(1,), dtype=DTYPES["int64"]) for name in ("s", "g")]
    out = Tensor(name="y", shape=(250_000,), dtype=DTYPES["float32"])
    heavy = Tensor(name="h", shape=(250_000,), dtype=DTYPES["float32"])
    nodes = (
        Node(index=0, name="gemm", op_type="Gemm", inputs=(x,), outputs=(heavy,)),
        Node(index=1, name="shape", op_type="Shape", inputs=(heavy,), outputs=(small[0],)),
        Node(index=2, name="gather", op_type="Gather", inputs=(small[0],), outputs=(small[1],)),
        Node(index=3, name="reshape", op_type="Reshape", inputs=(heavy, small[1]), outputs=(out,)),
    )
    graph = Graph(name="shapes", nodes=nodes, inputs=(x,), outputs=(out,))
    cuda = NodePlacement(provider="cuda", supported=True, why="cuda-kernel")
    kept = NodePlacement(provider="cpu", supported=True, why="shape-arithmetic")
    copies = (Copy(tensor="g", direction="to_gpu", nbytes=8, producer=2, consumers=(3,)),) if copied else ()

    def groups(session: Any) -> Any:
        return tuple(
            Group(
                session=session,
                name=node.name,
                op_type=node.op_type,
                members=(node.index,),
                provider="cuda" if session == "cuda" and node.index != 2 else "cpu",
            )
            for node in nodes
        )

    def time(seconds: Any) -> Any:
        return Estimate(value=seconds, low=seconds, high=seconds, origin="predicted")

    on_cpu, on_gpu = (tuple(map(time, each)) for each in ((1e-1, 1e-6, 1e-6, 1e-6), (1e-3, 0.0, 1e-6, 0.0)))
    return replace(
        base,
        graph=graph,
        table=replace(base.table, costs=base.table.costs * 4),
        cpu_groups=groups("cpu"),
        cuda_groups=groups("cuda"),
        cpu_times=on_cpu,
        cuda_times=on_gpu,
        cpu_shares=on_cpu,
        gpu_shares=on_gpu,
        placement=Placement(nodes=(cuda, cuda, kept, cuda), copies=copies),
    )


def test_shapes_that_lie_in_host_memory_are_not_copied(build: Callable[..., Any], op: type[Any]) -> None:
    decision = decide(shape_question(build, op, copied=False))
    plans = named(decision)
    assert plans["hybrid"].latency_s == pytest.approx(1e-3 + 1e-6 + 2 * COPY_S)
    assert decision.placement == ("gpu", "gpu", "cpu", "gpu")
    assert decision.operators[2].reason == "shape-arithmetic"


def test_a_shape_that_the_session_does_copy_is_counted(build: Callable[..., Any], op: type[Any]) -> None:
    plans = named(decide(shape_question(build, op, copied=True)))
    assert plans["gpu"].latency_s == pytest.approx(1e-3 + 1e-6 + 2 * COPY_S + 10e-6 + 8 / 10e9)


def test_a_graph_without_operators_takes_no_time_and_is_a_tie(build: Callable[..., Any], op: type[Any]) -> None:
    base = build(op(reads=("in",)))
    empty = Graph(name="empty", nodes=(), inputs=base.graph.inputs, outputs=base.graph.inputs)
    parts = ("cpu_groups", "cpu_times", "cpu_shares", "cuda_groups", "cuda_times", "gpu_shares")
    nothing: dict[str, Any] = dict.fromkeys(parts, ())
    decision = decide(
        replace(
            base, graph=empty, table=replace(base.table, costs=()), placement=Placement(nodes=()), **nothing
        )
    )
    assert decision.verdict.device == "either"
    assert decision.verdict.speedup is None
    assert all(plan.latency_s == 0 for plan in decision.plans)


def test_a_question_in_another_precision_keeps_units_and_has_the_sizes_that_it_has_by_itself(
    build: Callable[..., Any], op: type[Any]
) -> None:
    question = build(
        op(reads=("in",), weight=1000),
        op(reads=(0,), able=False),
        op(reads=(1,), weight=500, result=True),
        op(reads=(0, 2)),
        cuda_groups=[(0,), (1,), (2, 3)],
    )
    half = replace(question, precision="fp16")
    problems = Problems()
    known = problems.of(question)
    assert problems.of(half) == placement_problem(half) != known
    assert problems.of(half).edges is known.edges


def test_a_question_at_another_batch_keeps_units_and_has_the_sizes_that_it_has_by_itself(
    build: Callable[..., Any], op: type[Any]
) -> None:
    ops = (
        op(reads=("in",), weight=1000),
        op(reads=(0,), able=False),
        op(reads=(1,), weight=500, result=True),
        op(reads=(0, 2)),
    )
    question = build(*ops, cuda_groups=[(0,), (1,), (2, 3)])

    def larger(tensor: Tensor | None) -> Tensor | None:
        if tensor is None or tensor.constant or not tensor.shape:
            return tensor
        return replace(tensor, shape=(8 * (tensor.shape[0] or 1), *tensor.shape[1:]))

    nodes = tuple(
        replace(node, inputs=tuple(map(larger, node.inputs)), outputs=tuple(map(larger, node.outputs)))
        for node in question.graph.nodes
    )
    graph = question.graph
    sizes = {"inputs": tuple(map(larger, graph.inputs)), "outputs": tuple(map(larger, graph.outputs))}
    at_batch_8 = replace(question, graph=replace(graph, nodes=nodes, **sizes))
    problems = Problems()
    known, larger_one = problems.of(question), problems.of(at_batch_8)
    assert larger_one == placement_problem(at_batch_8) != known
    assert larger_one.edges is known.edges
    # One more constant, and it is another problem.
    folded = replace(nodes[3], outputs=tuple(replace(tensor, constant=True) for tensor in nodes[3].outputs))
    other = replace(at_batch_8, graph=replace(graph, nodes=(*nodes[:3], folded)))
    assert problems.of(other) == placement_problem(other)
    assert problems.of(other).edges is not known.edges


def test_what_a_measured_run_shares_with_the_gpu_plan_cancels_whatever_the_operators_intervals_say(
    build: Callable[..., Any], op: type[Any]
) -> None:
    """Without a CUDA kernel either session runs the same operators: 2 ms against 2 ms and one copy each way."""
    whole = Estimate(value=2e-3, low=1.9e-3, high=3e-3, origin="measured")
    ops = (op(reads=("in",), cpu=2e-3, gpu=2e-3, able=False),)
    plans = plan_all(build(*ops, spread=2.6, cpu_latency=whole))
    assert plans.gpu is not None
    found = ratio(plans.cpu.components, plans.gpu.components)
    assert found is not None
    assert found[1:] == pytest.approx((found[0], found[0]), rel=0.01)
    assert (plans.gpu.latency.low, plans.gpu.latency.high) == pytest.approx((1.9e-3, 3e-3), rel=0.01)


def test_how_a_measured_run_divides_is_in_doubt_as_far_as_another_part_could_have_taken_the_rest() -> None:
    """1 ms of 2 ms that may be 2 ms: two parts of three are 4/3 ms; and if it is half of that, 2/3 ms."""
    whole = Estimate(value=2e-3, low=2e-3, high=2e-3, origin="measured")
    part = Estimate(value=1e-3, low=0.5e-3, high=2e-3, origin="predicted")
    found = summed(of_measured_run("cpu", [part], whole))
    assert (found.low, found.value, found.high) == pytest.approx((2e-3 / 3, 1e-3, 4e-3 / 3))


def test_a_measured_run_of_one_operator_is_as_certain_as_the_run_though_the_operator_may_take_no_time() -> None:
    # Nothing else could have taken the rest, and of no rest there are no shares.
    whole = Estimate(value=2e-3, low=1e-3, high=3e-3, origin="measured")
    part = Estimate(value=2e-3, low=0.0, high=4e-3, origin="measured")
    found = summed(of_measured_run("cpu", [part], whole))
    assert (found.low, found.value, found.high) == pytest.approx((1e-3, 2e-3, 3e-3))


@pytest.mark.parametrize(("fails", "best"), [("", "gpu"), ("its file does not load", "cpu")])
def test_an_operator_without_a_kernel_for_the_cpu_is_held_on_the_gpu_where_a_session_runs(
    build: Callable[..., DecisionInput], op: Callable[..., Any], fails: str, best: str
) -> None:
    ops = (op(reads=("in",), cpu=1e-6, gpu=1e-3),)
    plans = plan_all(build(*ops, gpu_only=frozenset({0}), load_fails=fails))
    assert plans.hybrid is not None
    assert plans.hybrid.sides == (best,)


def test_parts_of_a_session_by_type_and_of_a_run_as_a_whole_add_up(
    build: Callable[..., Any], op: type[Any]
) -> None:
    ops = (
        op(reads=("in",), cpu=1e-3),
        op(reads=(0,), cpu=2e-3, able=False, op_type="Mod", gpu=3e-3),
        op(reads=(1,)),
    )
    question = build(*ops)
    plans = plan_all(question)
    assert plans.gpu is not None
    assert plans.hybrid is not None
    by_type = {
        plan.name: {one.source: one.time.value for one in by_operator_type(question, plan)}
        for plan in (plans.cpu, plans.gpu, plans.hybrid)
    }
    assert by_type["cpu"] == pytest.approx({"cpu Relu": 2e-3, "cpu Mod": 2e-3})
    assert by_type["gpu"] == pytest.approx(
        {"gpu Relu": 2e-4, "cpu Mod": 3e-3, "link": plans.gpu.latency.value - 3.2e-3}
    )
    assert by_operator_type(question, plans.hybrid) == plans.hybrid.components
    timed = Figure(value=8e-3, low=6e-3, high=1e-2, origin="measured")
    parts = rescaled(plans.cpu.components, timed)
    assert {one.source for one in parts} == {"run"}
    assert (summed(parts).low, summed(parts).value, summed(parts).high) == pytest.approx((6e-3, 8e-3, 1e-2))
    assert rescaled((), timed)[0].time == timed


def test_a_ratio_of_times_with_nothing_in_common_errs_by_the_squares_of_both() -> None:
    one, other = (
        Figure(value=value, low=value / 2, high=value * 3, origin="predicted") for value in (6.0, 2.0)
    )
    far = math.exp(math.hypot(math.log(2), math.log(3)))  # down by 2 and 3, up by 3 and 2
    assert over(one, other) == pytest.approx((3, 3 / far, 3 * far))
    assert over(one, replace(other, low=0.0)) is None
