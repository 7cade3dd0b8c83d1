"""What a CPU that can be rented takes is its prediction, as far off as a run here shows that it is."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import onnx
import pytest
from onnx import TensorProto, helper

from analyzer import analyze, plan_capacity
from analyzer.graph import Graph
from analyzer.loading.loaded import Loaded
from analyzer.ort.fusion import predicted_groups
from analyzer.pipeline import measure
from analyzer.pipeline.measure import Measured
from analyzer.prediction.estimate import Estimate
from analyzer.record.analysis import Analysis
from analyzer.record.outcome import RankedWay


def model() -> onnx.ModelProto:
    nodes = [
        helper.make_node("Erf", ["x"], ["a"], name="erf"),
        helper.make_node("Softmax", ["a"], ["y"], name="softmax"),
    ]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["rows", 4096]) for name in "xy"]
    graph = helper.make_graph(nodes, "two", ends[:1], ends[1:])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


def estimate(seconds: float, width: float = 1.05) -> Estimate:
    return Estimate(value=seconds, low=seconds / width, high=seconds * width, origin="measured")


@dataclass(frozen=True)
class Run:
    """Stands for a run here that takes these multiples of what is predicted here, by operator."""

    here: dict[str, float]
    factors: dict[str, float]
    width: float = 1.05
    busy: bool = False

    def __call__(self, _loaded: Loaded, graph: Graph, *_: Any, **__: Any) -> Measured:
        groups = predicted_groups(graph, "cpu")
        each = tuple(
            estimate(self.here[group.op_type] * self.factors[group.op_type], self.width) for group in groups
        )
        whole = estimate(sum(time.value for time in each), self.width)
        return Measured(cpu_latency=whole, cpu_groups=groups, cpu_times=each, busy=self.busy)


def analysed(*, run: bool = True) -> Analysis:
    return analyze(model(), batch=64, gpu="l4", run=run)


def rented(analysis: Analysis) -> dict[str, RankedWay]:
    own = analysis.devices.cpu.slug
    rows = [row for row in analysis.ranking if row.kind == "cpu" and row.instance and row.requested]
    return {f"{row.provider} {row.instance}": row for row in rows if row.device != own}


def by_operator(analysis: Analysis) -> dict[str, float]:
    return {operator.op_type: operator.cpu.time_s or 0.0 for operator in analysis.operators}


@pytest.fixture(name="before")
def predicted_alone() -> Analysis:
    return analysed(run=False)


def factor_of(row: RankedWay, other: RankedWay) -> float:
    return (row.latency_s or 0.0) / (other.latency_s or math.inf)


def test_they_take_as_many_times_their_prediction_as_the_run_takes_of_its_own(
    before: Analysis, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Run(by_operator(before), {"Erf": 7.0, "Softmax": 7.0})
    monkeypatch.setattr(measure, "measure_batch", run)
    now, then = rented(analysed()), rented(before)
    assert len(now) > 10
    for name, row in now.items():
        assert factor_of(row, then[name]) == pytest.approx(7.0, rel=0.02)
        assert row.origin == "predicted"


def test_each_operator_has_its_own_factor(before: Analysis, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where softmax alone takes longer, a CPU takes longer by the part that it has there."""
    run = Run(by_operator(before), {"Erf": 1.0, "Softmax": 10.0})
    monkeypatch.setattr(measure, "measure_batch", run)
    now, then = rented(analysed()), rented(before)
    for name, row in now.items():
        assert 1.5 < factor_of(row, then[name]) < 9.5


def test_they_are_no_surer_than_the_run_that_corrects_them_nor_than_their_prediction(
    before: Analysis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two independent factors: logarithms of their ends add in squares."""
    run = Run(by_operator(before), {"Erf": 2.0, "Softmax": 2.0}, width=3.0)
    monkeypatch.setattr(measure, "measure_batch", run)
    rough, then = rented(analysed()), rented(before)
    monkeypatch.setattr(measure, "measure_batch", replace(run, width=1.0))
    sure = rented(analysed())
    for name, row in rough.items():
        assert row.latency_s is not None
        for end in ("low_s", "high_s"):
            alone = math.log(getattr(then[name], end) / then[name].latency_s)
            assert abs(math.log(getattr(sure[name], end) / row.latency_s)) == pytest.approx(
                abs(alone), rel=0.02
            )
            assert abs(math.log(getattr(row, end) / row.latency_s)) == pytest.approx(
                math.hypot(alone, math.log(3.0)), rel=0.02
            )


def test_a_capacity_plan_predicts_them_alike(before: Analysis, monkeypatch: pytest.MonkeyPatch) -> None:
    """A model that takes seven times as long needs seven times as many of an instance, of one request each."""
    asked: dict[str, Any] = {"rate": 1e6, "p99": 0.01, "max_batch": 1, "max_delay": 0, "gpu": "l4"}
    then = plan_capacity(model(), run=False, **asked)
    at_one = analyze(model(), batch=1, gpu="l4", run=False)
    monkeypatch.setattr(measure, "measure_batch", Run(by_operator(at_one), {"Erf": 7.0, "Softmax": 7.0}))
    now = plan_capacity(model(), run=True, batch=1, **asked)
    counts = [
        {
            (row.provider, row.instance): row.count
            for row in one.capacity.options
            if row.feasible and row.kind == "cpu"
        }
        for one in (then, now)
        if one.capacity is not None
    ]
    grown = [counts[1][name] / count for name, count in counts[0].items() if name in counts[1] and count > 4]
    assert grown
    assert min(grown) > 4.0  # whole instances, of which the last may have room left


@pytest.mark.parametrize(
    ("factor", "width", "taken"),
    [
        (7.0, 10.0, 1.0),  # the quiet time may be that predicted: nobody holds up a rented machine
        (7.0, 2.0, 3.5),  # it is 3.5 times the prediction at the quietest: that is the model's
        (0.5, 10.0, 0.5),  # less than predicted even so
    ],
)
def test_a_disturbed_run_corrects_them_by_what_others_do_not_explain(
    factor: float, width: float, taken: float, before: Analysis, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Run(by_operator(before), dict.fromkeys(("Erf", "Softmax"), factor), width=width, busy=True)
    monkeypatch.setattr(measure, "measure_batch", run)
    now, then = rented(analysed()), rented(before)
    assert len(now) > 10
    for name, row in now.items():
        assert factor_of(row, then[name]) == pytest.approx(taken, rel=0.02)
        # As sure as the prediction alone.
        assert (row.low_s or 0.0) / (then[name].low_s or 1.0) == pytest.approx(taken, rel=0.02)
        assert (row.high_s or 0.0) / (then[name].high_s or 1.0) == pytest.approx(taken, rel=0.02)
