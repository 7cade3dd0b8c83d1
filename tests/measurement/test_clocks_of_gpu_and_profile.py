"""Clocks that are a little apart, where the windows of the nodes lie side by side.

A launch beside its own window is then in the neighbour's: that almost all launches fall into some window proves
nothing. What each operator launches is written here, not taken from the code under test.
"""

import json
import random
from pathlib import Path
from typing import Any

import pytest

from analyzer.measurement.gpu_trace import clock_shift, device_activities, join
from analyzer.measurement.profile import runs

EXCERPT = Path(__file__).parents[1] / "data" / "traces" / "kineto_excerpt.json"
BASE_NS = 1_760_000_000_000_000_000
KERNELS = {"Gemm": 2, "Reshape": 0, "Softmax": 1, "Add": 1, "Transpose": 1, "Relu": 1}
MODEL = ("Gemm", "Reshape", "Softmax", "Gemm", "Add", "Transpose", "Gemm", "Relu") * 3


def recorded(apart_us: float, count: int = 20) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """A trace and a profile of the same runs: launches 2 us after a node's begin, 3.5 us from each other."""
    chance = random.Random(0)
    profile: list[dict[str, Any]] = []
    trace: list[dict[str, Any]] = []
    now = 1000
    for _ in range(count):
        begin, now = now, now + 20
        for position, kind in enumerate(MODEL):
            kernels = KERNELS[kind]
            length = 3 + 4 * kernels + chance.randint(0, 2)
            profile.append(
                {
                    "cat": "Node",
                    "name": f"node{position}_kernel_time",
                    "ts": now,
                    "dur": length,
                    "args": {"op_name": kind, "provider": "CUDAExecutionProvider"},
                }
            )
            for kernel in range(kernels):
                at = now + 2 + 3.5 * kernel + 1.5 * chance.random() + apart_us
                correlation = {"correlation": len(trace) + 1}
                common = {"ph": "X", "tid": 1, "dur": 2, "args": correlation}
                trace.append({**common, "cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": at})
                trace.append({**common, "cat": "kernel", "name": f"k{position}", "tid": 7, "ts": at + 4})
            now += length + chance.randint(0, 1)
        now += 30
        profile.append({"cat": "Session", "name": "model_run", "ts": begin, "dur": now - begin})
        now += 50
    return {"traceEvents": trace, "baseTimeNanoseconds": BASE_NS}, profile


@pytest.mark.parametrize("apart_us", [-700, -12, -6, -3, 0, 3, 6, 12, 18, 300])
def test_every_node_gets_its_own_kernels_however_far_the_clocks_are_apart(apart_us: int) -> None:
    trace, profile = recorded(apart_us)
    joined = join(trace, profile, start_ns=BASE_NS)
    assert joined.shift_us == pytest.approx(-apart_us, abs=4)
    assert [node.kernels for node in joined.nodes] == [KERNELS[kind] for kind in MODEL]
    assert {name for node in joined.nodes for name in node.kernel_names} == {
        f"k{position}" for position, kind in enumerate(MODEL) if KERNELS[kind]
    }
    for position, node in enumerate(joined.nodes):
        assert set(node.kernel_names) <= {f"k{position}"}


def test_without_launches_or_windows_nothing_is_moved() -> None:
    _, profile = recorded(0, count=2)
    assert clock_shift([], runs(profile)) == 0.0
    assert clock_shift([1.0, 2.0], ()) == 0.0


def test_a_trace_as_kineto_writes_it_is_read() -> None:
    """Relative times of three months and a base; records of waiting have a correlation and are no work."""
    trace = json.loads(EXCERPT.read_text())
    start_ns = trace["baseTimeNanoseconds"] + 88_511_388_202_000
    (kernel,) = device_activities(trace, start_ns)
    assert kernel.name == "Kernel"
    assert kernel.kind == "kernel"
    assert kernel.launched_us == pytest.approx(0.765, abs=1e-3)
    assert kernel.start_us == pytest.approx(0.785, abs=1e-3)
    assert kernel.duration_us == pytest.approx(0.020)
