"""The GPU's records joined to nodes; the expected figures are worked out in tests/data/traces/README.md."""

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from analyzer.measurement.gpu_trace import Traced, TracedNode, join, node_times
from analyzer.measurement.request import Latency

TRACES = Path(__file__).parents[1] / "data" / "traces"
START_NS = 1_760_000_000_000_000_000
ORDER = ["gemm", "view", "softmax", "probabilities_to_host", "tan", "tangents_from_host", "relu"]
MICRO = 1e-6


@pytest.fixture
def profile() -> list[dict[str, Any]]:
    return json.loads((TRACES / "constructed_profile.json").read_text())


@pytest.fixture
def kineto() -> dict[str, Any]:
    return json.loads((TRACES / "constructed_kineto.json").read_text())


def by_name(traced: Traced | None) -> dict[str, TracedNode]:
    return {node.name: node for node in traced.nodes}


def latency(median_s: float) -> Latency:
    return Latency(
        value=median_s,
        p10_s=median_s,
        p90_s=median_s,
        min_s=median_s,
        low=median_s * 0.98,
        high=median_s * 1.02,
        runs=10,
        warmup_runs=3,
        method="",
    )


def test_every_kernel_goes_to_the_node_that_launched_it(
    kineto: dict[str, Any], profile: list[dict[str, Any]]
) -> None:
    nodes = by_name(join(kineto, profile, start_ns=START_NS))
    assert list(nodes) == ORDER
    assert [nodes[name].kernels for name in ORDER] == [2, 0, 1, 0, 0, 0, 1]
    assert "gemm" in nodes["gemm"].kernel_names[1]
    assert nodes["gemm"].device_s == pytest.approx(105 * MICRO)
    assert nodes["softmax"].device_s == pytest.approx(10 * MICRO)
    assert nodes["relu"].device_s == pytest.approx(5 * MICRO)  # median of 4 and 6


def test_copies_are_kept_apart_from_kernels(kineto: dict[str, Any], profile: list[dict[str, Any]]) -> None:
    nodes = by_name(join(kineto, profile, start_ns=START_NS))
    assert nodes["probabilities_to_host"].copy_s == pytest.approx(3 * MICRO)
    assert nodes["tangents_from_host"].copy_s == pytest.approx(2.5 * MICRO)
    assert nodes["probabilities_to_host"].device_s == 0


def test_idle_time_goes_to_the_node_that_ends_it_and_to_the_cpu_node_that_caused_it(
    kineto: dict[str, Any], profile: list[dict[str, Any]]
) -> None:
    nodes = by_name(join(kineto, profile, start_ns=START_NS))
    gaps = [nodes[name].gap_s / MICRO for name in ORDER]
    assert gaps == pytest.approx([61, 0, 1, 1, 50, 27, 23.5])


def test_runs_without_records_foreign_threads_and_lost_launches_are_left_out(
    kineto: dict[str, Any], profile: list[dict[str, Any]]
) -> None:
    traced = join(kineto, profile, start_ns=START_NS)
    assert traced.runs == 2
    assert traced.matched == 1.0
    assert traced.tail_s == pytest.approx(111 * MICRO)  # 400 - 288 and 400 - 290
    names = [name for node in traced.nodes for name in node.kernel_names]
    assert not any("lost" in name or "vectorized" in name for name in names)


@pytest.mark.parametrize("shift_us", [-400, -37, 55, 300])
def test_clocks_that_are_apart_are_brought_together(
    kineto: dict[str, Any], profile: list[dict[str, Any]], shift_us: int
) -> None:
    moved = {**kineto, "baseTimeNanoseconds": kineto["baseTimeNanoseconds"] + shift_us * 1000}
    expected = by_name(join(kineto, profile, start_ns=START_NS))
    traced = join(moved, profile, start_ns=START_NS)
    assert traced.shift_us == pytest.approx(-shift_us, abs=12)  # the windows leave that much play
    assert {name: node.kernels for name, node in by_name(traced).items()} == {
        name: node.kernels for name, node in expected.items()
    }
    assert by_name(traced)["gemm"].device_s == pytest.approx(105 * MICRO)


def test_clocks_that_agree_are_left_alone(kineto: dict[str, Any], profile: list[dict[str, Any]]) -> None:
    assert join(kineto, profile, start_ns=START_NS).shift_us == 0.0


def test_a_trace_with_absolute_times_joins_as_well(
    kineto: dict[str, Any], profile: list[dict[str, Any]]
) -> None:
    """Older Kineto writes microseconds since the epoch and no base."""
    shift = kineto.pop("baseTimeNanoseconds") / 1000
    for event in kineto["traceEvents"]:
        event["ts"] += shift
    nodes = by_name(join(kineto, profile, start_ns=START_NS))
    assert [nodes[name].kernels for name in ORDER] == [2, 0, 1, 0, 0, 0, 1]


def test_a_trace_without_the_gpu_gives_nothing(kineto: dict[str, Any], profile: list[dict[str, Any]]) -> None:
    kineto["traceEvents"] = [event for event in kineto["traceEvents"] if event.get("pid") != 0]
    assert join(kineto, profile, start_ns=START_NS) is None
    assert join({"traceEvents": []}, profile, start_ns=START_NS) is None
    assert join(kineto, [], start_ns=START_NS) is None


def test_work_whose_host_call_is_missing_is_told_as_lost(
    kineto: dict[str, Any], profile: list[dict[str, Any]]
) -> None:
    work = [event for event in kineto["traceEvents"] if event.get("cat") in ("kernel", "gpu_memcpy")]
    kineto["traceEvents"] = [
        event
        for event in kineto["traceEvents"]
        if event.get("cat") != "cuda_runtime" or event["args"]["correlation"] != 102
    ]
    # 102 is the first run's product, 100 us; two more records stand there that no call of this thread made
    before = sum(event["dur"] for event in work if event["args"]["correlation"] < 300)
    everything = sum(event["dur"] for event in work)
    assert join(kineto, profile, start_ns=START_NS).lost == pytest.approx(1 - (before - 100) / everything)


def test_a_kernel_launched_outside_every_node_counts_as_unmatched(
    kineto: dict[str, Any], profile: list[dict[str, Any]]
) -> None:
    stray = [
        copy.deepcopy(event)
        for event in kineto["traceEvents"]
        if event.get("args", {}).get("correlation") == 107
    ]
    for event in stray:
        event["args"]["correlation"] = 500
        event["ts"] += 60  # at 338 of the run, when no node is at work
    kineto["traceEvents"] += stray
    traced = join(kineto, profile, start_ns=START_NS)
    assert traced.matched == pytest.approx(12 / 13)
    assert by_name(traced)["relu"].kernels == 1


def test_node_times_add_up_to_the_latency_and_leave_the_gpus_own_times_alone(
    kineto: dict[str, Any], profile: list[dict[str, Any]]
) -> None:
    traced = join(kineto, profile, start_ns=START_NS)
    assert traced is not None
    times, factor = node_times(traced, latency(300 * MICRO))
    assert sum(node.time.value for node in times) == pytest.approx(300 * MICRO)
    found = {node.name: node for node in times}
    # busy 105 + 10 + 3 + 2.5 + 5 = 125.5; gaps 163.5; so 174.5 are shared out by the gaps
    assert found["gemm"].raw_s == pytest.approx(105 * MICRO)
    assert found["gemm"].time.value == pytest.approx((105 + 174.5 * 61 / 163.5) * MICRO)
    assert found["tan"].time.value == pytest.approx(174.5 * 50 / 163.5 * MICRO)
    assert found["tan"].provider == "cpu"
    assert found["view"].time.value == 0
    assert factor == pytest.approx(300 / (125.5 + 163.5 + 111))
    assert all(node.time.low <= node.time.value <= node.time.high for node in times)


def test_where_the_gpu_works_longer_than_the_latency_its_times_are_scaled(
    kineto: dict[str, Any], profile: list[dict[str, Any]]
) -> None:
    traced = join(kineto, profile, start_ns=START_NS)
    assert traced is not None
    times, _ = node_times(traced, latency(100 * MICRO))
    assert sum(node.time.value for node in times) == pytest.approx(100 * MICRO)
    assert next(node for node in times if node.name == "gemm").time.value == pytest.approx(
        105 / 125.5 * 100 * MICRO
    )


def test_a_recorded_chain_of_four_operators_has_one_kernel_each_of_a_microsecond() -> None:
    # A recording of an H100, see tests/data/traces/README.md: four Neg of one number, three runs.
    kineto = json.loads((TRACES / "h100_chain_kineto.json").read_text())
    profile = json.loads((TRACES / "h100_chain_profile.json").read_text())
    traced = join(kineto, profile, start_ns=1_795_361_635_419_668_634)
    assert traced is not None
    assert traced.runs == 3
    assert traced.matched == 1
    assert [node.name for node in traced.nodes] == ["neg0", "neg1", "neg2", "neg3"]
    assert [node.kernels for node in traced.nodes] == [1, 1, 1, 1]
    assert all("OP_Neg" in node.kernel_names[0] for node in traced.nodes)
    # The shortest kernel in the file takes 1.055 us, the longest 1.088.
    assert all(1.05 * MICRO < node.device_s < 1.09 * MICRO for node in traced.nodes)
    assert traced.shift_us == 0
