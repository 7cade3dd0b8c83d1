"""A saved record decided anew gives what analysing the model with the same options gives, sweep and all."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from analyzer import analyze
from analyzer.api import analyze_record
from analyzer.errors import AnalyzerError, RecordError
from analyzer.record import from_json, to_dict

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


def through_json(analysis):
    return from_json(analysis.render("json"))


def without(analysis, *keys):
    """The record as plain values; what depends on the machine's clock, and what was asked, left out."""
    return {key: value for key, value in to_dict(analysis).items() if key not in ("environment", *keys)}


def same(one, other):
    """Whether two records agree; figures to a billionth, since a record's numbers are decimal."""
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(value, other[key]) for key, value in one.items())
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, float):
        return one == pytest.approx(other, rel=1e-9)
    return one == other


@pytest.fixture(scope="module")
def saved(tiny_model):
    return through_json(analyze(tiny_model, batch=8, run=False, gpu="l4"))


@pytest.mark.parametrize("gpu", ["t4", "h100", "l4,a100", "none"])
def test_another_gpu_gives_the_whole_record_of_an_analysis_for_it(tiny_model, saved, gpu):
    assert same(
        without(analyze_record(saved, gpu=gpu)), without(analyze(tiny_model, batch=8, run=False, gpu=gpu))
    )


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
def test_every_option_gives_the_record_of_an_analysis_with_it(tiny_model, saved, options, in_one):
    afresh = analyze(tiny_model, batch=8, run=False, gpu="l4", **options)
    assert same(without(analyze_record(saved, **options), "kept"), without(afresh, "kept")), in_one
    assert not same(without(afresh, "kept"), without(saved, "kept")), f"{in_one} changes nothing here"


def test_own_prices_count(tiny_model, saved, tmp_path):
    path = tmp_path / "prices.toml"
    path.write_text(PRICES)
    again = analyze_record(saved, prices=path, objective="cost")
    afresh = analyze(tiny_model, batch=8, run=False, gpu="l4", prices=path, objective="cost")
    assert again.costs == afresh.costs
    assert "our rack" in {plan.instance and row.provider for row in again.costs for plan in again.plans}


def test_what_was_asked_for_lives_on_in_the_record(tiny_model):
    asked = {"slo": "30us", "pin": ("first=cpu",), "utilisation": 0.3, "precision": "fp32", "cpu": CPU}
    saved = through_json(analyze(tiny_model, batch=8, run=False, gpu="l4", objective="cost", **asked))
    afresh = analyze(tiny_model, batch=8, run=False, gpu="a100", objective="cost", **asked)
    assert same(without(analyze_record(saved, gpu="a100")), without(afresh))


@pytest.mark.parametrize(
    "name", ["resnet50.py", "recommender.py", "lstm.py", "preprocessing.py", "boosted_trees.onnx"]
)
def test_samples_are_decided_anew_as_they_are_afresh(name):
    # Together: convolutions, tables that are read whole from some batch on, layouts that cost nothing at batch
    # 1, operands that are left out, trees.
    model = SAMPLES / name
    saved = through_json(analyze(model, run=False, gpu="l4", cpu=CPU))
    for gpu in ("t4", "a100"):
        afresh = analyze(model, run=False, gpu=gpu, cpu=CPU)
        assert same(without(analyze_record(saved, gpu=gpu)), without(afresh))


def test_what_a_sweep_needs_makes_the_record_little_larger():
    analysis = analyze(SAMPLES / "resnet50.py", run=False, gpu="l4", cpu=CPU)
    whole, bare = len(analysis.render("json")), len(replace(analysis, kept=None).render("json"))
    assert whole < 1.05 * bare


def squares():
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
    constants = [numpy_helper.from_array(np.float32(value), name) for name, value in scalars.items()]
    graph = helper.make_graph(nodes, "squares", [x], [y], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


def test_squares_of_the_batch_grow_as_squares():
    model = squares()
    saved = through_json(analyze(model, batch=8, run=False, gpu="l4", cpu=CPU))
    figures = {(item.operator, item.figure): item.square for item in saved.kept.batches.odd_figures}
    assert figures[1, "flops"] == 2 * 64  # a product of [B, 64] by [64, B]
    assert figures[1, "bytes_written"] == 4
    assert saved.kept.batches.between
    for gpu in ("t4", "h100"):
        afresh = analyze(model, batch=8, run=False, gpu=gpu, cpu=CPU)
        assert same(without(analyze_record(saved, gpu=gpu)), without(afresh))


def test_the_cpus_measured_times_stay(tiny_model):
    measured = analyze(tiny_model, batch="8,64", runs=3, gpu="l4")
    again = analyze_record(through_json(measured), gpu="t4")
    assert again.plan("cpu").origin == "measured"
    assert again.plan("cpu").latency_s == pytest.approx(measured.plan("cpu").latency_s)
    assert again.plan("gpu").origin == "predicted"
    cpu = {row.batch: row.plans["cpu"] for row in again.sweep}
    assert {batch for batch, plan in cpu.items() if plan.origin == "measured"} == {8, 64}


def test_a_measured_record_decided_anew_for_its_own_gpu_is_what_it_was(tiny_model):
    measured = analyze(tiny_model, batch=8, runs=3, gpu="l4")
    again = analyze_record(through_json(measured), gpu="l4")
    assert same(without(again)["sweep"], without(measured)["sweep"])
    assert same(without(again)["plans"], without(measured)["plans"])
    assert same(without(again)["verdict"], without(measured)["verdict"])


def test_another_cpu_is_predicted_whatever_the_records_was_measured_at(tiny_model):
    measured = analyze(tiny_model, batch=8, runs=3, gpu="l4")
    again = analyze_record(through_json(measured), cpu=CPU)
    afresh = analyze(tiny_model, batch=8, run=False, gpu="l4", cpu=CPU)
    assert same(without(again)["plans"], without(afresh)["plans"])


def test_a_record_of_an_older_version_has_its_own_batch_alone_and_says_so(saved):
    old = replace(saved, kept=None)
    again = analyze_record(old, gpu="t4")
    assert [row.batch for row in again.sweep] == [8]
    assert (again.verdict.crossover_batch, again.verdict.largest_batch) == (None, 8)
    assert any("holds batch 8 alone" in note for note in again.model.notes)
    assert again.plan("gpu").latency_s == pytest.approx(analyze_record(saved, gpu="t4").plan("gpu").latency_s)


def test_a_model_of_one_batch_has_a_sweep_of_one_batch(tiny_model):
    fixed = type(tiny_model)()
    fixed.CopyFrom(tiny_model)
    fixed.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 8
    saved = through_json(analyze(fixed, run=False, gpu="l4"))
    again, afresh = analyze_record(saved, gpu="t4"), analyze(fixed, run=False, gpu="t4")
    assert same(without(again), without(afresh))
    assert not again.model.notes


def test_a_training_steps_record_is_refused(saved):
    step = replace(saved, model=replace(saved.model, training=True))
    with pytest.raises(RecordError, match="training step"):
        analyze_record(step, gpu="t4")


def test_an_unknown_gpu_is_refused(saved):
    with pytest.raises(AnalyzerError, match="No device is called"):
        analyze_record(saved, gpu="t44")


def test_an_option_that_needs_the_model_is_refused(saved):
    with pytest.raises(TypeError, match="batch"):
        analyze_record(saved, batch=3)
