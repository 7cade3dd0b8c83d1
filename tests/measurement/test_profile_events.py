"""ONNX Runtime's profile read; the events are written out here, times in microseconds."""

import json
from pathlib import Path
from typing import Any

import pytest

from analyzer.measurement import profile

CPU, CUDA = "CPUExecutionProvider", "CUDAExecutionProvider"


def call(start: int, duration: int) -> dict[str, Any]:
    return {"cat": "Session", "name": "model_run", "ts": start, "dur": duration}


def node(
    name: str, start: int, duration: int, op_type: str = "Relu", provider: str = CPU, **arguments: Any
) -> dict[str, Any]:
    args = {"op_name": op_type, "provider": provider, **arguments}
    return {"cat": "Node", "name": f"{name}_kernel_time", "ts": start, "dur": duration, "args": args}


def two_runs() -> list[dict[str, Any]]:
    return [
        node("a", 105, 10),
        node("b", 120, 30, "Gemm"),
        call(100, 60),
        node("a", 205, 14),
        node("b", 220, 32, "Gemm"),
        call(200, 60),
    ]


def test_nodes_belong_to_the_call_in_which_they_ran() -> None:
    first, second = profile.runs(two_runs())
    assert [item.name for item in first.nodes] == ["a", "b"]
    assert [item.end_us - item.start_us for item in second.nodes] == [14, 32]


def test_runs_that_only_warm_up_can_be_left_out() -> None:
    (second,) = profile.runs(two_runs(), skip=range(1))
    assert second.start_us == 200
    (first,) = profile.runs(two_runs(), skip={1})
    assert first.start_us == 100


def test_times_are_the_mean_over_the_middle_half_of_the_runs() -> None:
    events = []
    for number, duration in enumerate([1, 10, 11, 90]):
        events += [node("a", 1000 * number + 1, duration), call(1000 * number, 500)]
    (only,) = profile.by_node(profile.runs(events))
    assert only.time.value == pytest.approx(10.5e-6)
    assert only.calls == 1


def test_times_of_a_machine_with_two_speeds_add_up_to_a_run() -> None:
    """Each of two nodes is slow in another half of the runs: no run is as fast as both at their best."""
    events = []
    for number, (first, second) in enumerate([(10, 30), (10, 30), (10, 30), (30, 10), (30, 10), (90, 90)]):
        begin = 1000 * number
        events += [node("a", begin + 1, first), node("b", begin + 200, second), call(begin, 500)]
    found = profile.by_node(profile.runs(events))
    assert sum(item.time.value for item in found) == pytest.approx(40e-6)


def test_a_name_that_repeats_within_a_run_adds_up() -> None:
    events = [node("a", 1, 5), node("a", 10, 7), call(0, 30)]
    (only,) = profile.by_node(profile.runs(events))
    assert only.time.value == pytest.approx(12e-6)
    assert only.calls == 2


def test_nodes_of_a_subgraph_are_part_of_their_owner() -> None:
    events = [
        node("before", 0, 5),
        node("inner", 12, 4),
        node("if", 10, 8, "If"),
        node("after", 18, 3),
        call(0, 40),
    ]
    names = [item.name for item in profile.by_node(profile.runs(events))]
    assert names == ["before", "if", "after"]


def test_nested_subgraphs_leave_the_outermost() -> None:
    events = [node("deep", 12, 2), node("if", 11, 5, "If"), node("loop", 10, 9, "Loop"), call(0, 40)]
    assert [item.name for item in profile.by_node(profile.runs(events))] == ["loop"]


def test_a_node_without_length_at_the_end_of_an_if_is_not_inside_it() -> None:
    events = [node("if", 10, 5, "If"), node("after", 15, 0), call(0, 40)]
    assert [item.name for item in profile.by_node(profile.runs(events))] == ["if", "after"]


def test_providers_types_and_shapes_are_read() -> None:
    shapes = {"input_type_shape": [{"float": [2, 3]}, {"int64": []}], "output_type_shape": [{"float": [3]}]}
    events = [node("a", 1, 5, "Gather", CUDA, **shapes), call(0, 30)]
    (only,) = profile.by_node(profile.runs(events))
    assert (only.provider, only.op_type) == ("cuda", "Gather")
    assert only.inputs == (("float", (2, 3)), ("int64", ()))
    assert only.outputs == (("float", (3,)),)


def test_the_arena_is_its_largest_over_the_providers_nodes() -> None:
    events = [
        node("a", 1, 5, mem_in_use_peak="100", mem_arena_held="256"),
        node("b", 9, 5, mem_in_use_peak="120", mem_arena_held="256"),
        node("c", 19, 5, provider=CUDA, mem_in_use_peak="7000", mem_arena_held="8192"),
    ]
    assert profile.arena_peak_bytes(events, "cpu") == 120
    assert profile.arena_peak_bytes(events, "cuda") == 7000
    assert profile.arena_peak_bytes([], "cpu") is None


def test_a_file_that_was_cut_off_gives_what_it_holds(tmp_path: Path) -> None:
    lines = [json.dumps(event) for event in two_runs()]
    path = tmp_path / "profile.json"
    path.write_text("[\n" + ",\n".join(lines[:4]) + ',\n{"cat": "Node", "na')
    assert len(profile.read(path)) == 4
