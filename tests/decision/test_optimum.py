"""The best plan against all placements there are."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import networkx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analyzer.decision import decide
from analyzer.decision.decision_input import Decision
from analyzer.record.outcome import PlanResult

# Bytes a second into pinned memory, and from and into ordinary memory; each copy takes 10 us more.
PINNED, ORDINARY = 10e9, 4e9


def copy_s(elements: int, bytes_per_s: float) -> float:
    return 10e-6 + 4 * elements / bytes_per_s


def settled(ops: Iterator[Any] | list[Any]) -> list[Any]:
    """An operator without a CUDA kernel takes the CPU's time in either session."""
    return [op if op.able else replace(op, gpu=op.cpu) for op in ops]


def components(size: int, groups: Sequence[tuple[int, ...]]) -> list[set[int]]:
    """Operators that move as one."""
    graph: networkx.Graph[int] = networkx.Graph()
    graph.add_nodes_from(range(size))
    for group in groups:
        networkx.add_path(graph, group)
    return list(networkx.connected_components(graph))


def cost_of_placement(ops: list[Any], side: Sequence[bool]) -> float:
    """Directly from the definition: times of the operators, and one copy per tensor and direction.

    What the program gives and gets and what the CPU's operators write lies in ordinary memory; what comes to
    them from the GPU inside the graph in pinned memory.
    """
    spent = sum(op.gpu if there else op.cpu for op, there in zip(ops, side, strict=True))
    read = {int(r) for op in ops for r in op.reads if r != "in"}
    if any("in" in op.reads and there for op, there in zip(ops, side, strict=True)):
        spent += copy_s(250_000, ORDINARY)
    for number, there in enumerate(side):
        readers = [side[other] for other, op in enumerate(ops) if number in op.reads]
        is_output = number not in read or ops[number].result
        if there and (is_output or not all(readers)):
            spent += copy_s(ops[number].elements, ORDINARY if is_output else PINNED)
        if not there and any(readers):
            spent += copy_s(ops[number].elements, ORDINARY)
    return spent


def every_placement(ops: list[Any], parts: list[set[int]]) -> Iterator[list[bool]]:
    """All placements that keep groups whole and operators without a kernel on the CPU."""
    for choice in itertools.product((False, True), repeat=len(parts)):
        side = [False] * len(ops)
        for part, there in zip(parts, choice, strict=True):
            for number in part:
                side[number] = there
        if all(op.able or not there for op, there in zip(ops, side, strict=True)):
            yield side


def least(ops: list[Any], groups: Sequence[tuple[int, ...]] = ()) -> float:
    parts = components(len(ops), groups)
    return min(cost_of_placement(ops, side) for side in every_placement(ops, parts))


@st.composite
def cases(draw: Any, op: Any) -> Any:
    size = draw(st.integers(1, 8))
    # In half of the graphs one device is the quicker one for every operator: copies alone may split it.
    quicker = draw(st.sampled_from((None, None, "cpu", "gpu")))
    seconds = st.integers(0, 400).map(lambda us: us * 1e-6)
    ops = []
    for number in range(size):
        times = draw(seconds), draw(seconds)
        cpu, gpu = times if quicker is None else sorted(times, reverse=quicker == "gpu")
        before = draw(st.sets(st.integers(0, number - 1), max_size=3)) if number else set()
        reads = tuple(sorted(before)) or ("in",)
        ops.append(
            op(
                reads=(*reads, "in") if draw(st.booleans()) and "in" not in reads else reads,
                cpu=cpu,
                gpu=gpu,
                elements=draw(st.sampled_from((250, 250_000))),
                able=draw(st.integers(0, 4)) > 0,
                result=draw(st.integers(0, 4)) == 0,
            )
        )
    return settled(ops)


def asked(build: Callable[..., Any], ops: Sequence[Any], **given: Any) -> Any:
    """The question, over a link that is slower from and to ordinary memory."""
    question = build(*ops, **given)
    slower = replace(question.gpu.link, pageable_bytes_per_s=4e9)
    return replace(question, gpu=replace(question.gpu, link=slower))


def hybrid(decision: Decision) -> PlanResult:
    return next(plan for plan in decision.plans if plan.name == "hybrid")


@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_no_placement_of_a_small_graph_beats_the_best_plan(
    build_shared: Any, op_shared: Any, data: Any
) -> None:
    ops = data.draw(cases(op_shared))
    decision = decide(asked(build_shared, ops))
    assert hybrid(decision).latency_s == pytest.approx(least(ops), rel=1e-6, abs=1e-9)


@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_the_placement_told_costs_what_the_plan_says(build_shared: Any, op_shared: Any, data: Any) -> None:
    ops = data.draw(cases(op_shared))
    decision = decide(asked(build_shared, ops))
    side = [device == "gpu" for device in decision.placement]
    assert hybrid(decision).latency_s == pytest.approx(cost_of_placement(ops, side), rel=1e-9, abs=1e-12)


def test_every_graph_of_four_operators_gets_its_least_placement(
    build: Callable[..., Any], op: type[Any]
) -> None:
    """All 64 ways in which an operator can read those before it, each with four draws of times."""
    rng = random.Random(20)
    pairs = list(itertools.combinations(range(4), 2))
    for edges in itertools.product((False, True), repeat=len(pairs)):
        for _ in range(4):
            ops = settled(
                op(
                    reads=tuple(a for (a, b), there in zip(pairs, edges, strict=True) if there and b == n)
                    or ("in",),
                    cpu=rng.uniform(0, 4e-4),
                    gpu=rng.uniform(0, 2e-4),
                    able=rng.random() < 0.85,
                )
                for n in range(4)
            )
            assert hybrid(decide(asked(build, ops))).latency_s == pytest.approx(least(ops), rel=1e-6)


@pytest.mark.parametrize("seed", range(20))
def test_overlapping_groups_of_both_sessions_stay_whole(
    build: Callable[..., Any], op: type[Any], seed: int
) -> None:
    """CPU groups pair (0,1), (2,3); CUDA groups pair (1,2): 0 to 3 move as one, 4 and 5 on their own."""
    rng = random.Random(seed)
    ops = [
        op(reads=(n - 1,) if n else ("in",), cpu=rng.uniform(0, 3e-4), gpu=rng.uniform(0, 3e-4))
        for n in range(6)
    ]
    cpu_groups = [(0, 1), (2, 3), (4,), (5,)]
    cuda_groups = [(0,), (1, 2), (3,), (4,), (5,)]
    decision = decide(asked(build, ops, cpu_groups=cpu_groups, cuda_groups=cuda_groups))
    # A group's time is that of its first member: the others are carried along.
    alone = [
        replace(
            o,
            cpu=o.cpu if any(g[0] == n for g in cpu_groups) else 0.0,
            gpu=o.gpu if any(g[0] == n for g in cuda_groups) else 0.0,
        )
        for n, o in enumerate(ops)
    ]
    expected = least(alone, [*cpu_groups, *cuda_groups])
    assert hybrid(decision).latency_s == pytest.approx(expected, rel=1e-6)
    assert len(set(decision.placement[:4])) == 1


def test_a_tensor_with_many_readers_on_the_other_side_is_copied_once(
    build: Callable[..., Any], op: type[Any]
) -> None:
    fan = [op(reads=("in",), cpu=1e-3, gpu=1e-5)]
    fan += [op(reads=(0,), able=False, cpu=1e-5, gpu=1e-5) for _ in range(5)]
    plan = hybrid(decide(build(*fan)))
    assert [(item.tensor, item.direction) for item in plan.transfers.items] == [
        ("in", "to_gpu"),
        ("t0", "to_cpu"),
    ]


def test_what_shrinks_the_input_stays_on_the_cpu_though_the_gpu_is_quicker_at_all(
    build: Callable[..., Any], op: type[Any]
) -> None:
    ops = [op(reads=("in",), cpu=3e-5, gpu=2e-5, elements=250)]
    ops.append(op(reads=(0,), cpu=4e-4, gpu=2e-5, elements=250))
    decision = decide(asked(build, ops))
    assert decision.placement == ("cpu", "gpu")
    # The megabyte of input would take 260 us to the GPU, the kilobyte that comes of it takes 10.25.
    assert hybrid(decision).latency_s == pytest.approx(3e-5 + 10.25e-6 + 2e-5 + 10.25e-6)


def test_constants_are_on_both_sides_and_never_copied(build: Callable[..., Any], op: type[Any]) -> None:
    plan = hybrid(decide(build(op(reads=("in",), cpu=1e-2, gpu=1e-5, weight=1000))))
    assert {item.tensor for item in plan.transfers.items} == {"in", "t0"}


def test_the_best_plan_is_never_worse_than_either_session(build: Callable[..., Any], op: type[Any]) -> None:
    rng = random.Random(7)
    for _ in range(50):
        ops = [
            op(
                reads=(n - 1,) if n else ("in",),
                cpu=rng.uniform(0, 3e-4),
                gpu=rng.uniform(0, 3e-4),
                able=rng.random() < 0.7,
            )
            for n in range(12)
        ]
        cpu, gpu, best = decide(build(*ops)).plans
        assert best.latency_s <= min(cpu.latency_s, gpu.latency_s) * (1 + 1e-9)
