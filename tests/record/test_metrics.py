"""``Analysis.metrics()``: the record's figures as MLflow and W&B take them."""

import json
import math
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

import pytest

from analyzer import analyze
from analyzer.record.analysis import Analysis, Finding
from analyzer.record.outcome import Answer


@pytest.fixture(scope="module")
def analysis() -> Analysis:
    return analyze("samples/boosted_trees.onnx", batch=8, gpu="l4", cpu="epyc-9654", run=False)


def test_each_metric_is_the_records_number_at_the_keys_of_its_name(analysis: Analysis) -> None:
    record = json.loads(analysis.render("json"))
    record["plans"] = {plan["name"]: plan for plan in record["plans"]}
    metrics = analysis.metrics()
    assert {"model/batch", "totals/flops", "plans/cpu/latency_s", "answer/latency_s"} <= set(metrics)
    for name, value in metrics.items():
        if not name.startswith("findings/"):
            there: Any = record
            for key in name.split("/"):
                there = there[key]
            assert value == there
        assert type(value) is float
        assert math.isfinite(value)
        # What MLflow takes (mlflow/utils/validation.py of 3.x): letters, digits and / _ - . : space.
        assert re.fullmatch(r"[/\w.\- :]+", name)


def test_no_number_of_the_whole_model_is_left_out_and_what_is_not_known_is(analysis: Analysis) -> None:
    def known(values: Mapping[str, Any], prefix: str) -> set[str]:
        return {f"{prefix}/{name}" for name, value in values.items() if type(value) in (int, float)}

    record, metrics = json.loads(analysis.render("json")), analysis.metrics()
    assert {name for name in metrics if re.fullmatch(r"totals/\w+", name)} == known(record["totals"], "totals")
    unpriced = replace(
        analysis, answer=replace(cast(Answer, analysis.answer), usd_per_million=None), plans=analysis.plans[:1]
    )
    assert set(metrics) - set(unpriced.metrics()) >= {"answer/usd_per_million", "plans/gpu/latency_s"}


def test_findings_are_counted_by_severity(analysis: Analysis) -> None:
    found = [
        Finding(code="A101", severity=severity, operator=None, message="m", fix="f", seconds=None, bytes=None)
        for severity in ("error", "note", "note")
    ]
    counted = replace(analysis, findings=tuple(found)).metrics()
    assert [counted[f"findings/{level}"] for level in ("error", "warning", "note")] == [1.0, 0.0, 2.0]
