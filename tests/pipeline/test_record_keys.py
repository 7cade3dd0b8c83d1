"""The record has the keys that scripts rely on, at every level, with and without a GPU."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import onnx
import pytest

from analyzer import analyze
from analyzer.record.analysis import SCHEMA_VERSION

if TYPE_CHECKING:
    from tests.conftest import Machine

TOP = (
    "schema_version tool model conventions devices totals operators groups plans verdict alternatives costs "
    "sweep findings environment"
)
MODEL = "name source digest opset batch precision parameters parameter_bytes inputs training"
DEVICE = "name peak_flops_per_s bandwidth_bytes_per_s memory_bytes origin source"
TOTALS = (
    "flops macs bytes_read bytes_written intensity fused_bytes_read fused_bytes_written fused_intensity "
    "peak_memory_bytes operators coverage coverage_time"
)
OPERATOR = (
    "index name op_type domain module source inputs outputs flops macs bytes_read bytes_written intensity "
    "basis cpu gpu verdict placement"
)
TIME = "time_s low_s high_s origin bound"
GROUP = "session name op_type members provider time_s origin"
PLAN = (
    "name latency_s low_s high_s throughput_per_s transfers memory_bytes fits energy_j usd_per_million origin "
    "usd_low_per_million usd_high_per_million usd_origin energy_low_j energy_high_j energy_origin"
)
VERDICT = "device objective speedup low high crossover_batch reason"
MONEY = "usd_low_per_million usd_per_million usd_high_per_million"
COST = f"provider instance gpu usd_per_hour price_date throughput_per_s {MONEY} meets_slo origin low_s high_s"


def holds(value: dict[str, Any], keys: str) -> None:
    missing = set(keys.split()) - set(value)
    assert not missing, f"lacks {sorted(missing)}"


@pytest.fixture(scope="module")
def record(machine: Machine, tiny_model: onnx.ModelProto) -> dict[str, Any]:
    return json.loads(analyze(tiny_model, batch=8, run=False, gpu="l4,t4").render("json"))


def test_every_level_has_its_keys(record: dict[str, Any]) -> None:
    holds(record, TOP)
    assert record["schema_version"] == SCHEMA_VERSION == 1
    holds(record["tool"], "name version")
    holds(record["model"], MODEL)
    for side in ("cpu", "gpu"):
        holds(record["devices"][side], DEVICE)
    holds(record["totals"], TOTALS)
    for operator in record["operators"]:
        holds(operator, OPERATOR)
        holds(operator["cpu"], TIME)
        holds(operator["gpu"], f"{TIME} supported placed_on why")
        holds(operator["verdict"], "device speedup reason explanation")
        holds(operator["outputs"][0], "name shape dtype")
    for group in record["groups"]:
        holds(group, GROUP)
    for plan in record["plans"]:
        holds(plan, PLAN)
        holds(plan["transfers"], "count bytes time_s")
    holds(record["verdict"], VERDICT)
    holds(record["alternatives"][0], "device plans verdict costs")
    holds(record["costs"][0], COST)
    holds(record["sweep"][0], "batch plans")
    holds(record["sweep"][0]["plans"]["gpu"], "latency_s throughput_per_s origin")


def test_the_plans_are_all_cpu_the_cuda_session_and_the_best(record: dict[str, Any]) -> None:
    assert [plan["name"] for plan in record["plans"]] == ["cpu", "gpu", "hybrid"]
    latency = {plan["name"]: plan["latency_s"] for plan in record["plans"]}
    assert latency["hybrid"] <= min(latency["cpu"], latency["gpu"]) * (1 + 1e-9)


def test_the_speedup_is_the_cpus_latency_over_the_gpus(record: dict[str, Any]) -> None:
    latency = {plan["name"]: plan["latency_s"] for plan in record["plans"]}
    assert record["verdict"]["speedup"] == pytest.approx(latency["cpu"] / latency["gpu"])
    assert record["verdict"]["low"] <= record["verdict"]["speedup"] <= record["verdict"]["high"]


def test_totals_are_the_plain_sums_over_operators(record: dict[str, Any]) -> None:
    for key in ("flops", "macs", "bytes_read", "bytes_written"):
        assert record["totals"][key] == sum(operator[key] or 0 for operator in record["operators"])


def test_operator_times_add_up_to_group_times(record: dict[str, Any]) -> None:
    for session, side in (("cpu", "cpu"), ("cuda", "gpu")):
        groups = sum(group["time_s"] for group in record["groups"] if group["session"] == session)
        operators = sum(operator[side]["time_s"] or 0 for operator in record["operators"])
        assert operators == pytest.approx(groups)


def test_every_operator_is_in_one_group_of_each_session(record: dict[str, Any]) -> None:
    for session in ("cpu", "cuda"):
        members = [
            index for group in record["groups"] if group["session"] == session for index in group["members"]
        ]
        assert sorted(members) == [operator["index"] for operator in record["operators"]]


def test_intervals_hold_their_figure(record: dict[str, Any]) -> None:
    for item in (*record["plans"], *record["groups"]):
        time = item.get("latency_s", item.get("time_s"))
        assert item["low_s"] <= time <= item["high_s"]
    # The CPU is rented nowhere, and its plan has no dollars.
    for item in (*(plan for plan in record["plans"] if plan["operators_on_gpu"]), *record["costs"]):
        assert item["usd_low_per_million"] <= item["usd_per_million"] <= item["usd_high_per_million"]
    for item in record["plans"]:
        assert item["energy_low_j"] <= item["energy_j"] <= item["energy_high_j"]


def test_the_sweep_goes_from_1_to_4096_and_includes_the_batch(record: dict[str, Any]) -> None:
    batches = [row["batch"] for row in record["sweep"]]
    assert batches == sorted(batches)
    assert {1, 8, 4096} <= set(batches)
    here = next(row for row in record["sweep"] if row["batch"] == 8)
    assert here["plans"]["gpu"]["latency_s"] == pytest.approx(record["plans"][1]["latency_s"])


def test_the_digest_follows_the_graph_and_not_the_batch(
    tiny_model: onnx.ModelProto, changed_model: onnx.ModelProto
) -> None:
    def digest(model: onnx.ModelProto, batch: int) -> str:
        return analyze(model, batch=batch, run=False, gpu="none").model.digest

    assert digest(tiny_model, 1) == digest(tiny_model, 64)
    assert digest(tiny_model, 1) != digest(changed_model, 1)
