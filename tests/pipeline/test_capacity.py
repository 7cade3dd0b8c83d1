"""A capacity plan: how many instances of each kind, from a model as from its record."""

from __future__ import annotations

import math
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from analyzer import analyze, plan_capacity
from analyzer.devices import catalogue
from analyzer.errors import AnalyzerError, DeviceError, UsageError
from analyzer.figures import QueueLoad
from analyzer.pipeline.capacity.inference import InferenceService
from analyzer.pipeline.capacity.sizing import requested_gpus
from analyzer.pipeline.capacity.traffic import make_question
from analyzer.record import from_dict, to_dict, to_json
from analyzer.record.analysis import Analysis
from analyzer.record.capacity import CapacityOption, CapacityResult
from analyzer.serving import ServiceCurve, highest_rate

RATE, LIMIT_S = 3e6, 0.001
# One GPU and one CPU, which are rented as instances of several sizes: the whole list takes ten times as long.
FEW: dict[str, Any] = {"gpu": "l4", "cpu": "epyc-9654"}
# One instance of each kind, where sizes and dollars are not the matter; single requests without delay.
TWO: dict[str, Any] = {"gpu": "h200", "cpu": "altra-q64-30"}
SINGLE: dict[str, Any] = {"max_batch": 1, "max_delay": 0}
# Of an option without an answer these are told, and nothing else.
NAMES = {
    *("provider", "instance", "region", "device", "kind", "precision", "feasible", "reason"),
    *("origin", "price_date", "pricing", "device_name", "width", "gpu_count"),
}
PRICES = """
[[instances]]
provider = "Ours"
name = "box"
gpu = "l4"
gpu_count = 1
usd_per_hour = 0.01
price_date = "2026-01-01"

[[instances]]
provider = "Ours"
name = "two boxes"
gpu = "l4"
gpu_count = 2
usd_per_hour = 0.02
price_date = "2026-01-01"
"""


def asked(model: Any, **options: Any) -> Analysis:
    given: dict[str, Any] = {"rate": RATE, "p99": LIMIT_S, "run": False, **FEW, **options}
    return plan_capacity(model, **{name: value for name, value in given.items() if value is not None})


def capacity(analysis: Analysis) -> CapacityResult:
    assert analysis.capacity is not None
    return analysis.capacity


def feasible(analysis: Analysis) -> list[CapacityOption]:
    return [option for option in capacity(analysis).options if option.feasible]


def by_instance(analysis: Analysis) -> dict[tuple[str, str], CapacityOption]:
    return {(option.provider, option.instance): option for option in capacity(analysis).options}


def plain(analysis: Analysis) -> dict[str, Any]:
    return {key: value for key, value in to_dict(analysis).items() if key not in ("environment", "invocation")}


@pytest.fixture(scope="module")
def planned(wide_model: onnx.ModelProto) -> Analysis:
    return asked(wide_model)


@pytest.fixture(scope="module")
def needy(wide_model: onnx.ModelProto) -> Analysis:
    return asked(wide_model, headroom="20%", growth=2, spare=1)


@pytest.fixture(scope="module")
def two(wide_model: onnx.ModelProto) -> Analysis:
    return asked(wide_model, **TWO)


@pytest.mark.parametrize(("name", "times", "headroom", "spare"), [("planned", 1, 0.0, 0), ("needy", 2, 0.2, 1)])
def test_counts_and_dollars_follow_from_the_highest_rate_and_the_price(
    name: str, times: int, headroom: float, spare: int, request: pytest.FixtureRequest
) -> None:
    for option in feasible(request.getfixturevalue(name)):
        assert option.highest_rate_per_s is not None
        assert option.count == math.ceil(times * RATE * (1 + headroom) / option.highest_rate_per_s) + spare
        instance = next(
            one
            for one in catalogue.instances()
            if (one.provider, one.name) == (option.provider, option.instance)
        )
        a_month = option.count * instance.usd_per_hour * 730
        assert option.usd_per_month == pytest.approx(a_month)
        # What an hour costs, over the requests of an hour.
        assert option.usd_per_million == pytest.approx(a_month / 730 / (times * RATE * 3600) * 1e6)


def test_the_ends_of_the_interval_hold_the_answer(needy: Analysis) -> None:
    for option in feasible(needy):
        assert option.low_rate_per_s <= option.highest_rate_per_s <= option.high_rate_per_s
        assert option.low_count <= option.count
        assert option.low_usd_per_month <= option.usd_per_month
        if option.high_count is not None:
            assert option.count <= option.high_count
            assert option.usd_per_month <= option.high_usd_per_month


def test_every_option_that_is_called_feasible_keeps_the_limit(planned: Analysis, needy: Analysis) -> None:
    for option in (*feasible(planned), *feasible(needy)):
        assert option.p50_s <= option.p90_s <= option.p95_s <= option.p99_s <= LIMIT_S
        assert 0 < option.utilisation <= 1
        assert 1 <= option.mean_batch <= option.max_batch


def test_options_stand_by_dollars_cpus_beside_gpus_and_the_first_is_the_best(planned: Analysis) -> None:
    options = capacity(planned).options
    dollars = [option.usd_per_month or 0.0 for option in options if option.feasible]
    assert dollars == sorted(dollars)
    assert [option.feasible for option in options] == sorted((o.feasible for o in options), reverse=True)
    assert {option.kind for option in feasible(planned)} == {"cpu", "gpu"}
    assert capacity(planned).best == 0


def test_what_cannot_keep_the_limit_has_a_reason_and_no_figure(wide_model: onnx.ModelProto) -> None:
    # 50 us: an L4 takes longer for a batch, this CPU does not.
    found = asked(wide_model, p99="50us", rate=100)
    refused = [option for option in capacity(found).options if not option.feasible]
    assert refused
    assert feasible(found)
    for option in refused:
        assert option.reason.endswith(".")
        figures = {field.name for field in fields(option)} - NAMES
        assert {name for name in figures if getattr(option, name) is not None} == set()


def test_nothing_that_keeps_the_limit_is_no_best(wide_model: onnx.ModelProto) -> None:
    # The delay is waited out at so low a rate.
    found = capacity(asked(wide_model, rate=10, max_batch=8, max_delay="2ms", **TWO))
    assert found.best is None
    assert found.traffic == ()
    assert all("wait up to 2.00 ms for their batch to fill" in option.reason for option in found.options)


def test_the_highest_rate_of_one_gpu_is_that_of_the_records_own_sweep(
    wide_model: onnx.ModelProto, planned: Analysis
) -> None:
    record = analyze(wide_model, gpu="l4", run=False)
    points = tuple((row.batch, min(plan.latency_s for name, plan in row.plans.items() if name != "cpu"))
                   for row in record.sweep)  # fmt: skip
    curve = ServiceCurve(points=points)
    ones = [option for option in feasible(planned) if option.kind == "gpu" and option.replicas == 1]
    assert ones
    for option in ones:
        expected = highest_rate(
            curve, LIMIT_S, percentile=99, max_batch=option.max_batch, max_delay_s=option.max_delay_s or 0.0
        )
        assert option.highest_rate_per_s == pytest.approx(expected, rel=0.05)


def test_two_gpus_of_an_instance_take_about_twice_as_much_as_one(planned: Analysis) -> None:
    by_number = {
        option.replicas: option.highest_rate_per_s for option in feasible(planned) if option.kind == "gpu"
    }
    assert {1, 2, 4, 8} <= set(by_number)
    for number, rate in by_number.items():
        # A little more than so many alone: whoever is free takes the next batch.
        assert 0.97 * number <= rate / by_number[1] <= 1.3 * number


def test_twice_the_limit_never_costs_more(wide_model: onnx.ModelProto, planned: Analysis) -> None:
    loose = by_instance(asked(wide_model, p99=2 * LIMIT_S))
    for option in feasible(planned):
        # By more than the noise of what was looked at, where one instance more or less is the matter.
        most = option.usd_per_month * (1 + 1 / option.count) if option.count > 30 else option.usd_per_month
        assert loose[option.provider, option.instance].usd_per_month <= most


def test_growth_is_the_rate_times_as_much(wide_model: onnx.ModelProto) -> None:
    grown, doubled = asked(wide_model, growth=2, rate=RATE, **TWO), asked(wide_model, rate=2 * RATE, **TWO)
    assert capacity(grown).options == capacity(doubled).options
    assert (capacity(grown).rate_per_s, capacity(grown).growth) == (RATE, 2)


def test_the_mean_and_the_median_take_no_more_than_the_99th_percentile(
    wide_model: onnx.ModelProto, two: Analysis
) -> None:
    p99 = by_instance(two)
    for limit in ("p50", "mean"):
        other = asked(wide_model, p99=None, **{limit: LIMIT_S}, **TWO)
        assert feasible(other)
        assert capacity(other).percentile == (50 if limit == "p50" else None)
        for option in feasible(other):
            tight = p99[option.provider, option.instance]
            assert not tight.feasible or option.count <= tight.count


def test_a_record_gives_the_plan_of_its_model_in_memory_and_as_a_file(
    wide_model: onnx.ModelProto, two: Analysis, tmp_path: Path
) -> None:
    record = analyze(wide_model, run=False, **TWO)
    assert capacity(asked(record, **TWO)) == capacity(two)
    (path,) = (one for one in record.save(tmp_path) if one.suffix == ".json")
    assert capacity(asked(str(path), **TWO)) == capacity(two)


def test_a_record_of_another_gpu_and_of_the_cpu_alone_gives_it_too(
    wide_model: onnx.ModelProto, two: Analysis
) -> None:
    for gpu in ("t4", "none"):
        record = analyze(wide_model, run=False, gpu=gpu, cpu=TWO["cpu"])
        assert capacity(asked(record, **TWO)).options == capacity(two).options


def test_the_same_question_twice_gives_the_same_bytes(wide_model: onnx.ModelProto, planned: Analysis) -> None:
    again = asked(wide_model)
    assert plain(again) == plain(planned)
    assert to_json(from_dict(to_dict(planned))) == to_json(planned)


def test_named_gpus_stand_beside_the_cpus_and_none_leaves_those_alone(tiny_model: onnx.ModelProto) -> None:
    def devices(gpu: str | None) -> set[str]:
        found = asked(tiny_model, gpu=gpu, cpu=TWO["cpu"], rate=1000, **SINGLE)
        return {option.device for option in capacity(found).options}

    assert devices("none") == {"altra-q64-30"}
    assert devices("h200,rtx-a6000") == {"altra-q64-30", "h200", "rtx-a6000"}
    rented = {one.gpu for one in catalogue.instances() if one.gpu is not None and one.gpu_count >= 1}
    assert devices(None) == {"altra-q64-30"} | rented


def test_all_gpus_are_those_of_the_catalogue_whether_they_are_rented_or_not() -> None:
    instances = catalogue.instances()
    assert requested_gpus(instances, None, ["all"]) == tuple(catalogue.gpus())
    assert {gpu.slug for gpu in requested_gpus(instances, None, None)} < {gpu.slug for gpu in catalogue.gpus()}


def test_a_gpu_that_nobody_rents_out_is_an_option_without_dollars_behind_those_with(
    wide_model: onnx.ModelProto, two: Analysis
) -> None:
    found = asked(wide_model, gpu="rtx-3080-10gb", cpu=TWO["cpu"])
    options = feasible(found)
    (own,) = [option for option in options if option.device == "rtx-3080-10gb"]
    assert own is options[-1]
    assert (own.provider, own.instance, own.usd_per_month, own.usd_per_million) == ("", "", None, None)
    assert own.count == math.ceil(RATE / own.highest_rate_per_s)
    note = "No price of NVIDIA GeForce RTX 3080 10GB is known: it stands behind all that has one."
    assert note in capacity(found).notes
    assert not any("No price" in one for one in capacity(two).notes)


def test_every_cpu_of_the_price_list_is_looked_at_where_none_is_named() -> None:
    # Of a model of one batch an instance has few times to predict.
    found = capacity(asked(fixed_model(), gpu="none", cpu=None, rate=1, **SINGLE))
    expected = {
        (one.provider, one.name)
        for one in catalogue.instances()
        if one.gpu is None and not one.accelerator and one.cpu and one.vcpus
    }
    assert {(option.provider, option.instance) for option in found.options} == expected
    assert all(option.kind == "cpu" for option in found.options)


def test_prices_of_ones_own_are_options(wide_model: onnx.ModelProto, tmp_path: Path) -> None:
    path = tmp_path / "ours.toml"
    path.write_text(PRICES)
    found = asked(wide_model, prices=path, gpu="l4", cpu=TWO["cpu"])
    own = {option.instance: option for option in feasible(found) if option.provider == "Ours"}
    assert set(own) == {"box", "two boxes"}
    assert own["box"].usd_per_month == pytest.approx(own["box"].count * 7.30)
    assert own["two boxes"].replicas == 2
    assert capacity(found).options[0].provider == "Ours"


def test_another_way_of_paying_or_region_changes_dollars_and_no_rate(wide_model: onnx.ModelProto) -> None:
    common: dict[str, Any] = {"gpu": "l4", "cpu": TWO["cpu"], **SINGLE}
    usual = by_instance(asked(wide_model, **common))
    spot = asked(wide_model, pricing="spot", **common)
    assert capacity(spot).pricing == "spot"
    for changed in (spot, asked(wide_model, region="europe", **common)):
        assert feasible(changed)
        for key, option in by_instance(changed).items():
            assert option.highest_rate_per_s == usual[key].highest_rate_per_s
            assert option.usd_per_hour != usual[key].usd_per_hour


def test_a_batching_that_is_given_is_the_options_own(wide_model: onnx.ModelProto) -> None:
    found = asked(wide_model, max_batch=8, max_delay="0.1ms", **TWO)
    assert (capacity(found).max_batch, capacity(found).max_delay_s) == (8, pytest.approx(1e-4))
    assert feasible(found)
    for option in feasible(found):
        assert option.max_batch == 8
        assert option.max_delay_s == pytest.approx(1e-4)
    assert {option.max_delay_s for option in feasible(asked(wide_model, max_delay=0, **TWO))} == {0.0}


def test_a_trace_has_a_rate_of_its_own_or_is_played_at_another(
    wide_model: onnx.ModelProto, tmp_path: Path
) -> None:
    path = tmp_path / "trace.csv"
    arrivals_s = np.cumsum(np.random.default_rng(0).exponential(1 / 40_000, 20_000))
    path.write_text("\n".join(f"{at:.7f}" for at in arrivals_s))
    own = asked(wide_model, rate=None, arrivals=path, **SINGLE, **TWO)
    assert capacity(own).rate_per_s == pytest.approx(40_000, rel=0.03)
    # A trace of Poisson arrivals asks for what Poisson arrivals do.
    played = by_instance(asked(wide_model, arrivals=path, max_delay=0, **TWO))
    for key, option in by_instance(asked(wide_model, max_delay=0, **TWO)).items():
        assert played[key].highest_rate_per_s == pytest.approx(option.highest_rate_per_s, rel=0.15)
        assert played[key].p99_s <= LIMIT_S


def fixed_model() -> onnx.ModelProto:
    """A model whose every input has three rows."""
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [3, 64])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [3, 64])
    nodes = [helper.make_node("MatMul", ["x", "w"], ["h"]), helper.make_node("Relu", ["h"], ["y"])]
    weight = numpy_helper.from_array(np.zeros((64, 64), dtype=np.float32), "w")
    graph = helper.make_graph(nodes, "fixed", [x], [y], [weight])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


def test_a_model_of_one_fixed_batch_is_served_in_such_batches() -> None:
    found = asked(fixed_model(), rate=1000, **TWO)
    assert feasible(found)
    assert {option.max_batch for option in feasible(found)} <= {1, 2, 3}
    assert {tuple(point.batch for point in one.service) for one in capacity(found).instances} == {(3,)}
    record = analyze(fixed_model(), run=False, **TWO)
    assert capacity(asked(record, rate=1000, **TWO)).options == capacity(found).options


def branching_model() -> onnx.ModelProto:
    """The sign of the sum decides which of two branches runs."""
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["rows", 64])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["rows", 64])

    def branch(operation: str) -> onnx.GraphProto:
        out = helper.make_tensor_value_info(f"{operation}_out", TensorProto.FLOAT, ["rows", 64])
        node = helper.make_node(operation, ["x"], [f"{operation}_out"])
        return helper.make_graph([node], operation, [], [out])

    zero = numpy_helper.from_array(np.zeros((), dtype=np.float32), "zero")
    nodes = [
        helper.make_node("ReduceSum", ["x"], ["sum"], keepdims=0),
        helper.make_node("Greater", ["sum", "zero"], ["positive"]),
        helper.make_node("If", ["positive"], ["y"], then_branch=branch("Relu"), else_branch=branch("Sigmoid")),
    ]
    graph = helper.make_graph(nodes, "branching", [x], [y], [zero])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


def test_a_model_with_a_branch_is_planned_for() -> None:
    assert feasible(asked(branching_model(), rate=1000, **SINGLE, **TWO))


@pytest.mark.parametrize(
    ("precision", "on_gpu", "on_cpu"), [("fp16", "fp16", "fp32"), ("int8", "int8", "int8")]
)
def test_options_name_the_precision_of_their_times(
    wide_model: onnx.ModelProto, planned: Analysis, precision: str, on_gpu: str, on_cpu: str
) -> None:
    found = asked(wide_model, precision=precision, **SINGLE, **TWO)
    assert {(option.kind, option.precision) for option in feasible(found)} == {("gpu", on_gpu), ("cpu", on_cpu)}
    assert {(option.kind, option.precision) for option in feasible(planned)} == {
        ("gpu", "tf32"),
        ("cpu", "fp32"),
    }


def test_a_model_that_no_gpu_has_room_for_says_so(tmp_path: Path) -> None:
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["rows", 100_000])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["rows", 100_000])
    # 40 GB of weights that stand nowhere.
    weight = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[100_000, 100_000])
    weight.data_location = TensorProto.EXTERNAL
    weight.external_data.add(key="location", value="weights.bin")
    graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"])], "large", [x], [y], [weight])
    path = tmp_path / "large.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10), path)

    found = asked(path, rate=1, p99="60s")

    for option in capacity(found).options:
        if option.kind == "gpu":
            assert not option.feasible
            assert option.reason == "NVIDIA L4 has no room for the model at batch 1."
    # 96 GB and more stand beside CPUs.
    assert {option.kind for option in feasible(found)} == {"cpu"}
    assert any("has no room for the model at batch 1" in option.reason for option in capacity(found).options
               if option.kind == "cpu")  # fmt: skip


def test_a_step_of_training_serves_nobody(two: Analysis) -> None:
    step = replace(two, model=replace(two.model, training=True), capacity=None)
    with pytest.raises(UsageError, match="training step serves no requests"):
        asked(step)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"rate": 0}, "--rate 0: must be from"),
        ({"rate": -5}, "--rate -5"),
        ({"rate": math.nan}, "--rate nan"),
        ({"rate": math.inf}, "--rate inf"),
        ({"rate": 1e-300}, "--rate 1e-300"),
        ({"rate": "many"}, "--rate many: no number"),
        ({"rate": None}, "--rate is missing"),
        ({"p99": None}, "limit of latency is missing"),
        ({"p50": "1ms"}, "Only one limit can be planned for, not --p50 and --p99"),
        ({"p99": "50"}, "--p99 50: a limit needs a unit"),
        ({"p99": 0}, "--p99: a duration must be above zero"),
        ({"p99": "1us"}, r"--p99 1us: the quickest batch of all takes .* on AMD EPYC 9654"),
        ({"spare": 1000, "rate": 1}, "--spare 1000: at most 1 are needed"),
        ({"spare": -1}, "--spare -1: must be a whole number"),
        ({"spare": 1.5}, "--spare 1.5: must be a whole number"),
        ({"spare": "one"}, "--spare one: must be a whole number"),
        ({"max_batch": 0}, "--max-batch 0: must be a whole number from 1"),
        ({"max_delay": "-1ms"}, "--max-delay: '-1ms' is no duration"),
        ({"max_delay": "5"}, "--max-delay 5: a limit needs a unit"),
        ({"headroom": -0.1}, "--headroom: -0.1 is no share"),
        ({"headroom": 1.5}, "--headroom: 1.5 is 150%"),
        ({"headroom": "20"}, "--headroom: 20 is 2000%"),
        ({"growth": 0}, "--growth 0: must be from"),
        ({"growth": "twice"}, "--growth twice: no number"),
        ({"gpu": "l5"}, "No device is called 'l5'"),
        ({"gpu": "epyc-9654"}, "--gpu epyc-9654: the AMD EPYC 9654 is a CPU"),
        ({"cpu": "l4"}, "--cpu l4: the NVIDIA L4 is a GPU"),
        ({"arrivals": "nowhere.csv"}, "--arrivals nowhere.csv: cannot be read"),
        ({"pricing": "barter"}, "--pricing barter"),
        ({"region": "mars"}, "--region mars"),
    ],
)
def test_what_cannot_be_asked_is_one_error_with_a_hint(
    tiny_model: onnx.ModelProto, options: dict[str, Any], problem: str
) -> None:
    with pytest.raises(AnalyzerError, match=problem) as caught:
        asked(tiny_model, **options)
    assert isinstance(caught.value, UsageError | DeviceError)
    assert caught.value.hint


def test_prices_in_another_currency_are_refused(tiny_model: onnx.ModelProto, tmp_path: Path) -> None:
    path = tmp_path / "ours.toml"
    path.write_text('currency = "XYZ"\n' + PRICES)
    with pytest.raises(AnalyzerError, match="'XYZ'"):
        asked(tiny_model, prices=path)


def test_a_record_takes_no_options_of_a_model(tiny_model: onnx.ModelProto) -> None:
    record = analyze(tiny_model, run=False, **FEW)
    with pytest.raises(UsageError, match="--batch changes nothing about a saved report"):
        asked(record, batch=8)


def test_an_unknown_keyword_is_a_type_error_that_names_the_nearest(tiny_model: onnx.ModelProto) -> None:
    with pytest.raises(TypeError, match=r"'headrom'\. Did you mean headroom"):
        plan_capacity(tiny_model, headrom=0.2)


def test_where_the_limit_decides_the_number_the_reason_says_how_idle_they_are() -> None:
    """A server that is busy 2 % of the time is no sign of little traffic: the limit allows no waiting."""
    question = make_question({"rate": 100.0, "p99": "40ms"})
    times = dict.fromkeys(("mean_s", "p50_s", "p90_s", "p95_s", "p99_s"), 0.0398)
    load = QueueLoad(rate_per_s=0.5, utilisation=0.02, mean_batch=1.0, saturated=False, requests=0, **times)
    service = InferenceService.__new__(InferenceService)
    service._demand = question.demand
    reason = service.why(load, 200)
    assert reason.startswith("The p99 is 39.8 ms of 40.0 ms: hardly a request may wait for another within that")
    assert reason.endswith("each of the 200 is idle 98 % of the time.")
    # Of one instance it is the traffic that is little.
    assert service.why(load, 1) == "The p99 is 39.8 ms of 40.0 ms."
