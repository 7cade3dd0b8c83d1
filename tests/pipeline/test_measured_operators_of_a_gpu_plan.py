"""What a CUDA session leaves on the CPU takes what it took there where the CPU was measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from analyzer import analyze
from analyzer.graph import Graph
from analyzer.loading.loaded import Loaded
from analyzer.options import Options
from analyzer.ort.fusion import predicted_groups
from analyzer.pipeline import measure
from analyzer.pipeline.measure import Measured
from analyzer.prediction.estimate import Estimate
from analyzer.progress import Progress

# Far from what any of them is predicted to take, so that no prediction can stand in; not in proportion either.
SECONDS = {"Scaler": 5e-3, "Relu": 1e-3, "Normalizer": 2e-3}


def chain(types: Sequence[str]) -> onnx.ModelProto:
    """Operators one after the other; of these ONNX Runtime has a CUDA kernel for Relu alone."""
    attributes: dict[str, dict[str, Any]] = {
        "Scaler": {"scale": [2.0], "offset": [1.0]},
        "Normalizer": {"norm": "L2"},
        "Relu": {},
    }
    nodes = [
        helper.make_node(
            kind, [f"t{at}"], [f"t{at + 1}"], name=f"{kind}{at}",
            domain="" if kind == "Relu" else "ai.onnx.ml", **attributes[kind],
        )
        for at, kind in enumerate(types)
    ]  # fmt: skip
    ends = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, ["rows", 8]) for name in ("t0", f"t{len(types)}")
    ]
    graph = helper.make_graph(nodes, "chain", ends[:1], ends[1:])
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("ai.onnx.ml", 3)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def timed(seconds: float, width: float) -> Estimate:
    return Estimate(value=seconds, low=seconds / width, high=seconds * width, origin="measured")


def measured_at_once(
    loaded: Loaded, graph: Graph, batch: int, options: Options, *, cpu: bool, cuda: bool, progress: Progress
) -> Measured:
    """Stands for a run of the CPU: each operator by its type, the run in proportion to the batch."""
    groups = predicted_groups(graph, "cpu")
    times = tuple(timed(batch * SECONDS[group.op_type], 1.4) for group in groups)
    whole = timed(float(np.sum([time.value for time in times])), 1.02)
    return Measured(cpu_latency=whole, cpu_groups=groups, cpu_times=times)


@pytest.fixture(autouse=True)
def runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "measure_batch", measured_at_once)


def test_a_model_without_cuda_kernels_takes_the_measured_time_on_either_and_nothing_is_left_in_doubt() -> None:
    analysis = analyze(chain(["Scaler", "Normalizer"]), batch=8, gpu="l4")
    plans = {plan.name: plan for plan in analysis.plans}
    verdict = analysis.verdict
    assert plans["cpu"].latency_s == pytest.approx(8 * 7e-3)
    assert plans["gpu"].latency_s == pytest.approx(8 * 7e-3 + plans["gpu"].transfers.time_s)
    assert (verdict.low, verdict.high) == pytest.approx((verdict.speedup, verdict.speedup), rel=1e-3)


def test_operators_that_fall_back_take_their_measured_times_in_the_gpu_plan() -> None:
    analysis = analyze(chain(["Scaler", "Relu", "Normalizer"]), batch=4, gpu="l4")
    gpu = {operator.op_type: operator.gpu for operator in analysis.operators}
    for kind in ("Scaler", "Normalizer"):
        assert gpu[kind].time_s == pytest.approx(4 * SECONDS[kind])
        assert gpu[kind].origin == "mixed"  # timed, in another session than this one
    assert gpu["Relu"].time_s < 1e-3
    assert gpu["Relu"].origin == "predicted"


def test_no_batch_that_was_measured_ranks_a_card_without_work_before_the_cpu() -> None:
    analysis = analyze(chain(["Scaler", "Normalizer"]), batch="1,64,128", gpu="l4")
    rows = {row.batch: row.plans for row in analysis.sweep}
    for batch in (1, 64, 128):
        assert rows[batch]["cpu"].latency_s == pytest.approx(batch * 7e-3)
        assert rows[batch]["gpu"].latency_s >= batch * 7e-3
    assert "gpu" not in {part.device for part in analysis.verdict.ranges}


def test_an_operator_that_ran_fused_with_another_was_not_measured_but_its_share_was(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The contract: an operator's time is its share of its group's, and a group of several is one kernel."""

    def as_one(loaded: Loaded, graph: Graph, *_: object, **__: object) -> Measured:
        fused = replace(predicted_groups(graph, "cpu")[0], members=(0, 1))
        alone = predicted_groups(graph, "cpu")[2]
        times = (timed(3e-3, 1.1), timed(1e-3, 1.1))
        return Measured(cpu_latency=timed(4e-3, 1.1), cpu_groups=(fused, alone), cpu_times=times)

    monkeypatch.setattr(measure, "measure_batch", as_one)
    analysis = analyze(chain(["Scaler", "Relu", "Normalizer"]), batch=4, gpu="none")
    cpu = [operator.cpu for operator in analysis.operators]
    assert [time.origin for time in cpu] == ["mixed", "mixed", "measured"]
    assert sum(time.time_s or 0.0 for time in cpu[:2]) == pytest.approx(3e-3)
    assert analysis.plans[0].origin == "measured"
