"""One answer over all GPUs, batches, precisions and CPU instances, from a model as from its record."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import onnx
import pytest

from analyzer import analyze
from analyzer.api import analyze_record
from analyzer.errors import RecordError
from analyzer.record import from_dict, from_json, to_dict
from analyzer.record.analysis import Analysis
from analyzer.record.outcome import Answer, RankedWay

CPU = "epyc-9654"
GPUS = ("t4", "l4", "a100-80gb-sxm")


def asked(model: onnx.ModelProto, **options: Any) -> Analysis:
    return analyze(model, run=False, **{"cpu": CPU, "gpu": ",".join(GPUS), "batch": (4096, 1024), **options})


@pytest.fixture(scope="module")
def analysis(wide_model: onnx.ModelProto) -> Analysis:
    return asked(wide_model)


def answer(analysis: Analysis) -> Answer:
    assert analysis.answer is not None
    return analysis.answer


def of_device(analysis: Analysis, slug: str, batch: int = 4096) -> RankedWay:
    return next(
        one
        for one in analysis.ranking
        if (one.device, one.batch, one.named, one.requested) == (slug, batch, True, True)
    )


def plain(analysis: Analysis) -> dict[str, Any]:
    return {key: value for key, value in to_dict(analysis).items() if key != "environment"}


def test_every_gpu_and_the_cpu_stand_at_every_batch_that_was_asked_for(analysis: Analysis) -> None:
    named = [one for one in analysis.ranking if one.named and one.requested]
    assert sorted((one.device, one.batch) for one in named) == sorted(
        (device, batch) for device in (*GPUS, CPU) for batch in (1024, 4096)
    )
    rented = [one for one in analysis.ranking if not one.named]
    assert len(rented) == len({(one.provider, one.instance) for one in rented}) > 20
    assert all(one.kind == "cpu" and one.usd_per_hour for one in rented)


def test_candidates_have_the_figures_of_plans_sweep_and_costs(analysis: Analysis) -> None:
    first, plan = of_device(analysis, "t4"), analysis.plan("gpu")
    assert plan is not None
    assert (first.plan, first.latency_s, first.memory_bytes) == ("gpu", plan.latency_s, plan.memory_bytes)
    assert (first.instance, first.usd_per_million) == (plan.instance, plan.usd_per_million)
    other = next(item for item in analysis.alternatives if item.device.slug == "l4")
    assert of_device(analysis, "l4").latency_s == next(p.latency_s for p in other.plans if p.name == "gpu")
    row = next(row for row in analysis.sweep if row.batch == 1024)
    assert of_device(analysis, "t4", 1024).latency_s == row.plans["gpu"].latency_s


def test_a_limit_that_the_first_gpu_misses_is_kept_by_the_one_that_can(wide_model: onnx.ModelProto) -> None:
    free = asked(wide_model, batch=4096)
    slow, fast = of_device(free, "t4").latency_s, of_device(free, "a100-80gb-sxm").latency_s
    assert slow is not None
    assert fast is not None
    limit = math.sqrt(slow * fast)
    found = asked(wide_model, batch=4096, slo=f"{limit:.9f}s")
    assert (answer(found).device, answer(found).meets) == ("a100-80gb-sxm", True)
    assert answer(found).sentence.startswith("The A100 SXM4 80GB keeps ")
    assert "x the limit of " in of_device(found, "t4").remark
    assert "nothing comes nearer" not in found.verdict.sentence
    none = asked(wide_model, batch=4096, slo=f"{fast / 2:.9f}s")
    assert (answer(none).device, answer(none).meets) == ("a100-80gb-sxm", False)


def test_a_card_that_the_release_does_not_run_on_is_listed_and_cannot_win(wide_model: onnx.ModelProto) -> None:
    found = asked(wide_model, gpu="p100-16gb-pcie,t4", batch=4096)
    barred = of_device(found, "p100-16gb-pcie")
    assert not barred.runs
    assert "release wheel" in barred.remark
    assert answer(found).device == "t4"


def test_other_precisions_of_every_gpu_are_listed_as_other_models(analysis: Analysis) -> None:
    others = [one for one in analysis.ranking if not one.requested]
    assert {one.device for one in others} == {*GPUS, CPU}
    assert {"fp16", "int8"} <= {one.precision for one in others if one.device == "l4"}
    assert all("accuracy must be checked" in one.remark for one in others if one.runs)
    assert answer(analysis).requested


def test_their_dollars_say_where_as_those_of_the_precision_that_was_asked_for(analysis: Analysis) -> None:
    priced = [one for one in analysis.ranking if not one.requested and one.usd_per_million is not None]
    places = {cost.machine: cost for cost in analysis.instances}
    assert priced
    for one in priced:
        listed = places[one.machine]
        told = (one.usd_per_hour, one.price_date, one.pricing, one.region)
        assert told == (listed.usd_per_hour, listed.price_date, listed.pricing, listed.region)


def test_instances_with_cpus_and_gpus_stand_in_one_list_by_dollars(analysis: Analysis) -> None:
    rows = analysis.instances
    assert {row.gpu for row in rows} >= {None, *GPUS}
    prices = [row.usd_per_million for row in rows]
    assert prices == sorted(prices)
    names = [(row.provider, row.instance) for row in rows]
    assert len(names) == len(set(names))
    for row in rows:  # dollars an hour over inferences an hour
        per_hour = row.throughput_per_s * 3600
        assert row.usd_per_million == pytest.approx(row.usd_per_hour / per_hour * 1e6)


def test_a_record_that_is_decided_anew_ranks_as_the_model_would(wide_model: onnx.ModelProto) -> None:
    saved = from_json(asked(wide_model, gpu="l4").render("json"))
    options: dict[str, Any] = {"gpu": "t4,a100", "slo": "2ms", "objective": "throughput"}
    again = analyze_record(saved, **options)
    afresh = asked(wide_model, **options)
    assert answer(again).sentence == answer(afresh).sentence
    assert [(one.device, one.batch, one.instance) for one in again.ranking] == [
        (one.device, one.batch, one.instance) for one in afresh.ranking
    ]
    assert plain(from_json(again.render("json"))) == plain(again)


def test_a_check_ranks_too_without_other_precisions(wide_model: onnx.ModelProto) -> None:
    found = analyze(wide_model, check=True, gpu="t4,l4", batch=4096, run=False)
    assert answer(found).sentence
    assert all(one.requested for one in found.ranking)


def test_all_of_the_catalogue_are_answered_by_one_gpu_whose_details_the_record_has(
    wide_model: onnx.ModelProto,
) -> None:
    found = asked(wide_model, gpu="all", batch=4096)
    assert found.devices.gpu is not None
    assert answer(found).kind == "gpu"
    assert answer(found).device == found.devices.gpu.slug
    # A gain within the error is not worth dollars.
    usable = [one for one in found.ranking if one.named and one.requested and one.is_usable]
    fastest = min(usable, key=lambda one: one.latency_s or math.inf)
    assert fastest.why_not is None or fastest.why_not.reason == "as_good"
    assert found.devices.gpu.slug not in {one.device.slug for one in found.alternatives}


def test_a_record_without_a_ranking_is_read(analysis: Analysis) -> None:
    old = {key: value for key, value in to_dict(analysis).items() if key not in ("answer", "ranking")}
    assert (from_dict(old, name="old").answer, from_dict(old, name="old").ranking) == (None, ())


def test_an_answer_that_is_not_the_first_of_the_ranking_is_refused(analysis: Analysis) -> None:
    damaged = to_dict(analysis)
    damaged["ranking"].reverse()
    with pytest.raises(RecordError, match="answer: it is not the first of the ranking"):
        from_dict(damaged, name="damaged")


def test_an_answer_that_cannot_run_is_refused(analysis: Analysis) -> None:
    damaged = to_dict(analysis)
    damaged["answer"]["runs"] = damaged["ranking"][0]["runs"] = False
    with pytest.raises(RecordError, match="cannot run"):
        from_dict(damaged, name="damaged")


def test_a_run_that_failed_has_no_answer_at_any_batch(analysis: Analysis) -> None:
    failed = replace(from_json(analysis.render("json")), run_fails="the kernel raised")
    found = analyze_record(failed, gpu="l4")
    assert (found.answer, found.verdict.device) == (None, None)
    assert len({one.batch for one in found.ranking}) == 2
    assert not any(one.runs for one in found.ranking if one.requested)
