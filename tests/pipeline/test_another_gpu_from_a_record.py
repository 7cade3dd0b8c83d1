"""``analyze render REPORT.json --gpu X`` gives what analysing the model for X gives."""

import pytest

from analyzer import analyze
from analyzer.api import analyze_record
from analyzer.errors import AnalyzerError
from analyzer.record import from_json


@pytest.fixture(scope="module")
def saved(tiny_model):
    return from_json(analyze(tiny_model, batch=8, run=False, gpu="l4").render("json"))


@pytest.mark.parametrize("gpu", ["t4", "h100"])
def test_plans_are_those_of_an_analysis_for_that_gpu(tiny_model, saved, gpu):
    again, afresh = analyze_record(saved, gpu=gpu), analyze(tiny_model, batch=8, run=False, gpu=gpu)
    for one, other in zip(again.plans, afresh.plans, strict=True):
        assert one.latency_s == pytest.approx(other.latency_s, rel=1e-6)
    assert again.devices.gpu == afresh.devices.gpu
    assert [item.verdict.device for item in again.operators] == [
        item.verdict.device for item in afresh.operators
    ]


def test_the_cpus_measured_times_stay(tiny_model):
    measured = analyze(tiny_model, batch=8, runs=3, gpu="l4")
    again = analyze_record(from_json(measured.render("json")), gpu="t4")
    assert again.plan("cpu").origin == "measured"
    assert again.plan("cpu").latency_s == pytest.approx(measured.plan("cpu").latency_s)
    assert again.plan("gpu").origin == "predicted"


def test_several_gpus_give_alternatives(saved):
    again = analyze_record(saved, gpu="t4, a100")
    assert again.devices.gpu.slug == "t4"
    assert len(again.alternatives) == 1


def test_an_unknown_gpu_is_refused(saved):
    with pytest.raises(AnalyzerError, match="No device is called"):
        analyze_record(saved, gpu="t44")
