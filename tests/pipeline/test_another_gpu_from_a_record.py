"""A saved record decided anew gives what analysing the model with the same options gives, sweep and all."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from analyzer import analyze
from analyzer.api import analyze_record
from analyzer.devices import catalogue
from analyzer.devices.detection import gpu_by_name
from analyzer.devices.device import Device
from analyzer.errors import AnalyzerError, RecordError
from analyzer.figures import total
from analyzer.graph import Graph
from analyzer.loading.loaded import Loaded
from analyzer.options import Options
from analyzer.ort.execution import Group
from analyzer.ort.fusion import predicted_groups
from analyzer.ort.placement import place
from analyzer.pipeline import measure, target_devices
from analyzer.pipeline.measure import Measured
from analyzer.prediction.estimate import Estimate, limited
from analyzer.progress import Progress
from analyzer.record import from_json, to_dict
from analyzer.record.analysis import Analysis

if TYPE_CHECKING:
    from tests.conftest import Machine

SAMPLES = Path(__file__).parents[2] / "samples"
CPU = "epyc-9654"
PRICES = """
[[instances]]
provider = "our rack"
name = "one L4"
gpu = "l4"
gpu_count = 1
usd_per_hour = 0.01
price_date = "2026-01-01"
"""


# What only a guess is known of forgets most: the machine that any of these tests fails on first.
uncalibrated = pytest.mark.parametrize("machine", ["unknown"], indirect=True)
# A guess and measured ceilings: what a record keeps of a machine differs in these two.
guessed_and_calibrated = pytest.mark.parametrize("machine", ["unknown", "calibrated"], indirect=True)


def through_json(analysis: Analysis) -> Analysis:
    return from_json(analysis.render("json"))


def without(analysis: Analysis, *keys: str) -> dict[str, Any]:
    """The record as plain values, without what depends on the machine's clock and without these keys."""
    return {key: value for key, value in to_dict(analysis).items() if key not in ("environment", *keys)}


def same(one: Any, other: Any) -> bool:
    """Whether two records agree; figures to a billionth, since a record's numbers are decimal."""
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(value, other[key]) for key, value in one.items())
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=1e-9)
    return one == other


def timed(number: int, seconds: float) -> Estimate:
    """The time of the group of this number, to within 2 %."""
    spent = seconds * (1 + number % 3)
    return Estimate(value=spent, low=0.98 * spent, high=1.02 * spent, origin="measured")


def session(
    graph: Graph, kind: Literal["cpu", "cuda"], seconds: float
) -> tuple[tuple[Group, ...], tuple[Estimate, ...], Estimate]:
    """What a session executed: its groups, their times and the whole call."""
    groups = predicted_groups(graph, kind, place(graph) if kind == "cuda" else None)
    times = tuple(timed(number, seconds) for number, _ in enumerate(groups))
    return groups, times, limited(total(times), None)


def measure_at_once(
    loaded: Loaded, graph: Graph, batch: int, options: Options, *, cpu: bool, cuda: bool, progress: Progress
) -> Measured:
    """Stands for runs of the model: every machine takes the same, a microsecond and more for each inference."""
    found = Measured()
    if cpu:
        groups, times, whole = session(graph, "cpu", 1e-6 * (3 + batch))
        found = replace(found, cpu_groups=groups, cpu_times=times, cpu_latency=whole)
    if cuda:
        groups, times, whole = session(graph, "cuda", 4e-6)
        found = replace(found, cuda_groups=groups, cuda_times=times, cuda_latency=whole)
    return found


@pytest.fixture
def runs(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Measurements that take no time."""
    monkeypatch.setattr(measure, "measure_batch", measure_at_once)


@pytest.fixture
def own_gpu(runs: None, monkeypatch: pytest.MonkeyPatch) -> Device:
    """A GPU of this machine: calibrated, and with less memory than the catalogue's."""
    there = gpu_by_name("NVIDIA L4", 20 * 10**9, "8.9", {"cuda.node": 9e-6, "cuda.kernel": 4e-6})
    assert there is not None
    monkeypatch.setattr(target_devices, "gpu_of_this_machine", lambda: there)
    return there


@pytest.fixture(scope="module")
def saved(machine: Machine, tiny_model: onnx.ModelProto) -> Analysis:
    return through_json(analyze(tiny_model, batch=8, run=False, gpu="l4"))


# Another one, the record's own beside another, none.
@guessed_and_calibrated
@pytest.mark.parametrize("gpu", ["t4", "l4,a100", "none"])
def test_another_gpu_gives_the_whole_record_of_an_analysis_for_it(
    tiny_model: onnx.ModelProto, saved: Analysis, gpu: str
) -> None:
    assert same(
        without(analyze_record(saved, gpu=gpu)), without(analyze(tiny_model, batch=8, run=False, gpu=gpu))
    )


@uncalibrated
def test_all_gpus_of_the_catalogue_give_the_whole_record_of_an_analysis_for_them(
    tiny_model: onnx.ModelProto, saved: Analysis
) -> None:
    again = analyze_record(saved, gpu="all")
    assert same(without(again), without(analyze(tiny_model, batch=8, run=False, gpu="all")))
    assert {again.devices.gpu.slug, *(one.device.slug for one in again.alternatives)} == {
        gpu.slug for gpu in catalogue.gpus()
    }


@uncalibrated
@pytest.mark.parametrize(
    ("options", "in_one"),
    [
        ({"cpu": CPU}, "one CPU of the catalogue"),
        ({"precision": "int8"}, "a precision"),
        ({"precision": "fp32"}, "one that a GPU with TF32 would not choose"),
        ({"objective": "cost"}, "an aim"),
        ({"slo": "30us"}, "a limit"),
        ({"pin": ("first=cpu",)}, "a pin"),
        ({"utilisation": 0.3}, "a share of the time"),
    ],
)
def test_every_option_gives_the_record_of_an_analysis_with_it(
    tiny_model: onnx.ModelProto, saved: Analysis, options: dict[str, Any], in_one: str
) -> None:
    afresh = analyze(tiny_model, batch=8, run=False, gpu="l4", **options)
    assert same(without(analyze_record(saved, **options)), without(afresh)), in_one
    assert not same(without(afresh, "kept"), without(saved, "kept")), f"{in_one} changes nothing here"


@guessed_and_calibrated
def test_all_options_together_give_the_record_of_an_analysis_with_them(
    tiny_model: onnx.ModelProto, saved: Analysis
) -> None:
    options: dict[str, Any] = {
        "gpu": "t4,a100",
        "objective": "cost",
        "slo": "1s",
        "pin": ("first=cpu",),
        "utilisation": 0.3,
    }
    afresh = analyze(tiny_model, batch=8, run=False, **options)
    again = through_json(analyze_record(saved, **options))
    assert same(without(again), without(afresh))
    assert same(without(analyze_record(again, gpu="t4,a100")), without(afresh))


@uncalibrated
def test_own_prices_count_and_live_on_in_the_record_without_their_file(
    tiny_model: onnx.ModelProto, saved: Analysis, tmp_path: Path
) -> None:
    path = tmp_path / "prices.toml"
    path.write_text(PRICES)
    again = analyze_record(saved, prices=path, objective="cost")
    afresh = analyze(tiny_model, batch=8, run=False, gpu="l4", prices=path, objective="cost")
    assert same(without(again), without(afresh))
    assert "our rack" in {plan.instance and row.provider for row in again.costs for plan in again.plans}
    path.unlink()
    later = analyze_record(through_json(afresh), gpu="l4")
    assert same(without(later), without(afresh))
    assert "our rack" in {row.provider for row in later.costs}


@uncalibrated
@pytest.mark.parametrize(
    "paid",
    [
        {"pricing": "spot"},
        {"region": "europe"},
        {"pricing": "reserved-1y", "region": "us-central1,europe-west4"},
    ],
    ids=["spot", "region", "both"],
)
def test_another_way_of_paying_is_asked_of_a_record_as_of_the_model(
    tiny_model: onnx.ModelProto, saved: Analysis, paid: dict[str, Any]
) -> None:
    afresh = analyze(tiny_model, batch=8, run=False, gpu="l4", **paid)
    assert afresh.costs
    assert same(without(through_json(analyze_record(saved, **paid))), without(afresh))
    # Once asked for it stays, for another GPU too.
    on_t4 = analyze(tiny_model, batch=8, run=False, gpu="t4", **paid)
    assert same(without(analyze_record(through_json(afresh), gpu="t4")), without(on_t4))


def test_an_own_list_keeps_its_other_prices_in_the_record(wide_model: onnx.ModelProto, tmp_path: Path) -> None:
    path = tmp_path / "prices.toml"
    path.write_text(PRICES + PRICES.replace("0.01", "0.004") + 'pricing = "reserved-3y"\n')
    usual = analyze(wide_model, batch=4096, run=False, gpu="l4", prices=path)
    path.unlink()
    reserved = analyze_record(through_json(usual), pricing="reserved-3y")
    paid = {row.instance: row.usd_per_hour for row in reserved.costs if row.provider == "our rack"}
    assert paid == {"one L4": 0.004}
    assert {row.pricing for row in reserved.costs} == {"reserved-3y"}


@uncalibrated
def test_dollars_are_in_proportion_to_the_price_of_the_hour(saved: Analysis) -> None:
    # In one region, whose machines with this GPU are of one kind.
    one, other = (
        analyze_record(saved, gpu="l4", region="us-central1", pricing=pricing)
        for pricing in ("on-demand", "spot")
    )
    usual, spot = one.plan("gpu"), other.plan("gpu")
    assert usual is not None
    assert spot is not None
    assert usual.instance == spot.instance == "g2-standard-4"
    assert (spot.pricing, spot.region, spot.price_date) == ("spot", "us-central1", "2026-08-03")
    assert usual.latency_s == spot.latency_s
    # karpenter-provider-gcp of 2026-08-03: 0.70683 an hour on demand, 0.39734 as a spot machine.
    assert usual.usd_per_million is not None
    assert spot.usd_per_million == pytest.approx(usual.usd_per_million * 0.39734 / 0.70683)


def test_what_was_asked_for_lives_on_in_the_record(tiny_model: onnx.ModelProto) -> None:
    asked: dict[str, Any] = {
        "slo": "30us",
        "pin": ("first=cpu",),
        "utilisation": 0.3,
        "precision": "fp32",
        "cpu": CPU,
    }
    saved = through_json(analyze(tiny_model, batch=8, run=False, gpu="l4", objective="cost", **asked))
    afresh = analyze(tiny_model, batch=8, run=False, gpu="a100", objective="cost", **asked)
    assert same(without(analyze_record(saved, gpu="a100")), without(afresh))


@pytest.mark.parametrize(
    "name", ["resnet50.py", "recommender.py", "lstm.py", "preprocessing.py", "boosted_trees.onnx"]
)
def test_samples_are_decided_anew_as_they_are_afresh(name: str) -> None:
    # Together: convolutions, tables that are read whole from some batch on, layouts that cost nothing at batch
    # 1, operands that are left out, trees.
    model = SAMPLES / name
    analysis = analyze(model, run=False, gpu="l4", cpu=CPU)
    afresh = analyze(model, run=False, gpu="t4,a100", cpu=CPU)
    assert same(without(analyze_record(through_json(analysis), gpu="t4,a100")), without(afresh))
    if name == "resnet50.py":
        # What a sweep needs makes the record of a model of usual size little larger.
        whole, bare = len(analysis.render("json")), len(replace(analysis, kept=None).render("json"))
        assert whole < 1.08 * bare


def squares() -> onnx.ModelProto:
    """Every input against every other: what it costs grows with the square of the batch."""
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["rows", 64])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["rows", "rows"])
    nodes = [
        helper.make_node("Transpose", ["x"], ["t"], name="turned", perm=[1, 0]),
        helper.make_node("MatMul", ["x", "t"], ["s"], name="all_pairs"),
        helper.make_node("Add", ["s", "w"], ["shifted"], name="shift"),
        helper.make_node("Clip", ["shifted", "", "most"], ["y"], name="clip"),
    ]
    scalars = {"w": 2, "most": 6}
    constants = [numpy_helper.from_array(np.array(value, np.float32), name) for name, value in scalars.items()]
    graph = helper.make_graph(nodes, "squares", [x], [y], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


def test_squares_of_the_batch_grow_as_squares() -> None:
    model = squares()
    saved = through_json(analyze(model, batch=8, run=False, gpu="l4", cpu=CPU))
    batches = saved.kept.batches
    squares_of_batches = [batch**2 for batch in batches.looked_at]
    # A product of [B, 64] by [64, B]; what reads [B, B] and a weight of four bytes.
    assert list(batches.rows[batches.flops[1]]) == [2 * 64 * square for square in squares_of_batches]
    assert list(batches.rows[batches.bytes_read[2]]) == [4 * square + 4 for square in squares_of_batches]
    assert batches.between
    afresh = analyze(model, batch=8, run=False, gpu="t4,h100", cpu=CPU)
    assert same(without(analyze_record(saved, gpu="t4,h100")), without(afresh))


def test_the_cpus_measured_times_stay(tiny_model: onnx.ModelProto) -> None:
    measured = analyze(tiny_model, batch="8,64", runs=3, gpu="l4")
    again = analyze_record(through_json(measured), gpu="t4")
    assert again.plan("cpu").origin == "measured"
    assert again.plan("cpu").latency_s == pytest.approx(measured.plan("cpu").latency_s)
    assert again.plan("gpu").origin == "predicted"
    cpu = {row.batch: row.plans["cpu"] for row in again.sweep}
    assert {batch for batch, plan in cpu.items() if plan.origin == "measured"} == {8, 64}


@guessed_and_calibrated
def test_a_measured_record_decided_anew_for_its_own_gpus_is_what_it_was(
    runs: None, tiny_model: onnx.ModelProto
) -> None:
    measured = analyze(tiny_model, batch="8,64", gpu="l4,t4")
    assert measured.plan("cpu").origin == "measured"
    again = through_json(analyze_record(through_json(measured), gpu="l4,t4"))
    assert same(without(again), without(measured))
    assert same(without(analyze_record(again, gpu="l4,t4")), without(measured))


@guessed_and_calibrated
def test_another_gpu_beside_a_measured_cpu_gives_the_record_of_a_run_for_it(
    runs: None, tiny_model: onnx.ModelProto
) -> None:
    measured = analyze(tiny_model, batch="8,64", gpu="l4")
    again = analyze_record(through_json(measured), gpu="h100,t4")
    assert same(without(again), without(analyze(tiny_model, batch="8,64", gpu="h100,t4")))


@uncalibrated
def test_a_measured_cpu_is_measured_beside_every_gpu(runs: None, tiny_model: onnx.ModelProto) -> None:
    found = analyze(tiny_model, batch=8, gpu="l4,t4").alternatives[0]
    alone = analyze(tiny_model, batch=8, gpu="t4")
    plans = {plan.name: plan for plan in found.plans}
    assert plans["cpu"] == alone.plan("cpu")
    assert plans["cpu"].origin == "measured"
    assert found.verdict == alone.verdict


@uncalibrated
def test_another_precision_on_the_gpu_is_judged_by_the_measured_cpu(
    runs: None, tiny_model: onnx.ModelProto, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A CPU that takes a hundredth of what was predicted: half precision gains nothing, so it is not told."""

    def fast(*given: Any, **more: Any) -> Measured:
        found = measure_at_once(*given, **more)
        return replace(
            found,
            cpu_latency=found.cpu_latency.scaled(1e-3),
            cpu_times=tuple(time.scaled(1e-3) for time in found.cpu_times),
        )

    monkeypatch.setattr(measure, "measure_batch", fast)
    found = analyze(tiny_model, batch=8, gpu="t4")
    assert found.verdict.device == "cpu"
    assert not [one for one in found.opportunities if "on the Tesla T4" in one.title]


@uncalibrated
def test_this_machines_own_calibrated_gpu_stays_as_it_was_measured(
    own_gpu: Device, tiny_model: onnx.ModelProto
) -> None:
    measured = analyze(tiny_model, batch="8,64")
    assert measured.plan("gpu").origin == "measured"
    again = through_json(analyze_record(through_json(measured), slo="1s"))
    afresh = analyze(tiny_model, batch="8,64", slo="1s")
    assert same(without(again), without(afresh))
    assert again.devices.gpu.memory_bytes == own_gpu.memory_bytes
    assert same(without(analyze_record(again, slo="1s")), without(afresh))


@uncalibrated
def test_a_gpus_runs_are_not_those_of_another_gpu(own_gpu: Device, tiny_model: onnx.ModelProto) -> None:
    again = analyze_record(through_json(analyze(tiny_model, batch="8,64")), gpu="t4")
    assert again.plan("gpu").origin == "predicted"
    assert {row.plans["gpu"].origin for row in again.sweep} == {"predicted"}
    assert {run.session for run in again.kept.runs} == {"cpu"}


@guessed_and_calibrated
def test_another_cpu_is_predicted_whatever_the_records_was_measured_at(
    runs: None, tiny_model: onnx.ModelProto
) -> None:
    measured = analyze(tiny_model, batch="8,64", gpu="l4")
    again = analyze_record(through_json(measured), cpu=CPU)
    afresh = analyze(tiny_model, batch="8,64", run=False, gpu="l4", cpu=CPU)
    # What was asked differs (a run); the answer does not.
    assert same(without(again, "invocation"), without(afresh, "invocation"))


@pytest.mark.parametrize("machine", ["catalogue"], indirect=True)
def test_a_part_of_a_processor_is_not_the_whole_processor_of_the_same_name(
    machine: Machine, runs: None, tiny_model: onnx.ModelProto
) -> None:
    """A machine with two cores of a Xeon Platinum 8375C was measured; the question is about all 32."""
    measured = analyze(tiny_model, batch=8, gpu="l4")
    whole = "xeon-platinum-8375c"
    again = analyze_record(through_json(measured), cpu=whole)
    assert again.plan("cpu").origin == "predicted"
    afresh = analyze(tiny_model, batch=8, run=False, gpu="l4", cpu=whole)
    assert same(without(again, "invocation"), without(afresh, "invocation"))


@pytest.mark.parametrize("machine", ["unknown", "catalogue"], indirect=True)
def test_dollars_of_a_measured_cpu_are_a_prediction_but_on_the_very_machine(
    machine: Machine, runs: None, tiny_model: onnx.ModelProto
) -> None:
    """The machine of the catalogue is a c6i.xlarge: 4 vCPUs of a Xeon Platinum 8375C."""
    found = analyze(tiny_model, batch=8, gpu="none")
    plan = found.plan("cpu")
    assert plan.origin == "measured"
    origins = {row.instance: row.origin for row in found.costs}
    known = "8375C" in machine.brand
    assert set(origins.values()) == ({"measured", "predicted"} if known else {"predicted"})
    assert (plan.instance, plan.usd_origin) == (("c6i.xlarge", "measured") if known else ("", ""))
    for row in found.costs:
        # Of a measurement 4 %.
        assert (row.usd_high_per_million / row.usd_low_per_million > 2) == (row.origin == "predicted")


@uncalibrated
def test_a_record_that_saved_nothing_to_decide_from_is_refused(saved: Analysis) -> None:
    with pytest.raises(RecordError, match="holds nothing to decide it anew from"):
        analyze_record(replace(saved, kept=None), gpu="t4")


@uncalibrated
def test_a_model_of_one_batch_has_a_sweep_of_one_batch(machine: Machine, tiny_model: onnx.ModelProto) -> None:
    fixed = type(tiny_model)()
    fixed.CopyFrom(tiny_model)
    fixed.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 8
    saved = through_json(analyze(fixed, run=False, gpu="l4"))
    again, afresh = analyze_record(saved, gpu="t4"), analyze(fixed, run=False, gpu="t4")
    assert same(without(again), without(afresh))
    assert not again.model.notes


@uncalibrated
def test_a_training_steps_record_is_refused(saved: Analysis) -> None:
    step = replace(saved, model=replace(saved.model, training=True))
    with pytest.raises(RecordError, match="training step"):
        analyze_record(step, gpu="t4")


@uncalibrated
def test_an_unknown_gpu_is_refused(saved: Analysis) -> None:
    with pytest.raises(AnalyzerError, match="No device is called"):
        analyze_record(saved, gpu="t44")


@uncalibrated
def test_an_option_that_needs_the_model_is_refused(saved: Analysis) -> None:
    with pytest.raises(TypeError, match="batch"):
        analyze_record(saved, batch=3)


@uncalibrated
def test_the_share_of_devices_decided_so_far_is_reported(saved: Analysis) -> None:
    stages: list[tuple[str, float | None]] = []
    analyze_record(saved, gpu="l4,t4,h100", progress=lambda stage, share: stages.append((stage, share)))
    assert stages == [("deciding", 0), ("deciding", 1 / 3), ("deciding", 2 / 3)]
