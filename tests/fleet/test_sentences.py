"""The fleet's answer in words, to the letter."""

from __future__ import annotations

from typing import Literal

from analyzer.fleet.writing import sentences_of
from analyzer.record.fleet import (
    Consolidation,
    DeviceBias,
    FleetDevice,
    FleetFailure,
    FleetModel,
    Move,
    PackedInstance,
    PackedModel,
)
from analyzer.record.outcome import RankedWay

DEVICES = (
    FleetDevice(slug="l4", name="NVIDIA L4", kind="gpu"),
    FleetDevice(slug="t4", name="NVIDIA Tesla T4", kind="gpu"),
    FleetDevice(slug="cpu", name="AMD EPYC 9654", kind="cpu"),
)
CELLS = (
    RankedWay(device="l4", kind="gpu", plan="gpu", batch=1, latency_s=0.01),
    RankedWay(device="t4", kind="gpu", plan="gpu", batch=1, latency_s=0.02),
    RankedWay(device="cpu", kind="cpu", plan="cpu", batch=1, latency_s=0.03),
)


def models(*cheapest: int | None) -> list[FleetModel]:
    return [
        FleetModel(name=f"m{number}", reference="m.py", cells=CELLS, cheapest=index)
        for number, index in enumerate(cheapest)
    ]


def move(
    name: str, cell: int, saved: float, *, certain: bool = True, today_kind: Literal["cpu", "gpu"] = "gpu"
) -> Move:
    return Move(
        model=name,
        today_instance="g6.xlarge",
        today_count=1,
        today_usd_per_month=1000.0,
        today_kind=today_kind,
        cell=cell,
        instance="x",
        count=1,
        usd_per_month=1000 - saved,
        saved_usd_per_month=saved,
        certain=certain,
    )


def test_who_pays_for_a_gpu_without_need_comes_first() -> None:
    moves = [move("m0", 2, 2000), move("m1", 2, 1100), move("m2", 1, 50)]
    assert sentences_of(models(2, 2, 1), DEVICES, moves=moves) == (
        "2 of 3 models pay for a GPU they do not need: $3,100 a month.",
        "1 of 3 models would cost less elsewhere: $50.0 a month.",
        "At full load, 2 of 3 cost least on a CPU and 1 on a Tesla T4.",
    )


def test_what_may_be_the_interval_is_told_as_that() -> None:
    moves = [move("m0", 2, 2000), move("m1", 2, 400, certain=False), move("m2", 0, 70, certain=False)]
    first, second, third, _ = sentences_of(models(2, 2, 0), DEVICES, moves=moves)
    assert first == "1 of 3 models pays for a GPU it does not need: $2,000 a month."
    assert second == (
        "1 more may pay for a GPU they do not need, $400 a month: within the predictions' 90 % intervals."
    )
    assert (
        third == "1 of 3 models may cost less elsewhere, $70.0 a month: within the predictions' 90 % intervals."
    )


def test_who_leaves_a_cpu_needed_no_gpu_before_either() -> None:
    (first, _) = sentences_of(models(2), DEVICES, moves=[move("m0", 2, 10, today_kind="cpu")])
    assert first == "1 of 1 model would cost less elsewhere: $10.0 a month."


def test_where_models_cost_least_is_told_by_how_many() -> None:
    assert sentences_of(models(0, 0, 2, 2, 2, 1), DEVICES) == (
        "At full load, 3 of 6 cost least on a CPU, 2 on an L4 and 1 on a Tesla T4.",
    )


def test_what_failed_comes_last() -> None:
    failed = FleetModel(name="bad", reference="b.py", failure=FleetFailure(kind="error", message="no"))
    nowhere = FleetModel(
        name="big", reference="b.py", cells=(RankedWay(device="l4", kind="gpu", plan="gpu", fits=False),)
    )
    assert sentences_of([*models(0), failed, nowhere], DEVICES) == (
        "At full load, 1 of 3 costs least on an L4.",
        "1 runs, fits or keeps its limit on no device.",
        "1 failed.",
    )


def test_sharing_is_told_with_its_bound() -> None:
    packed = PackedModel(model="m0", cell=0, share=0.1, rate=1, memory_bytes=1)
    machine = PackedInstance(
        provider="AWS", instance="g6", device="l4", count=2, usd_per_month=1200.0, models=(packed,)
    )
    told = Consolidation(
        instances=(machine,),
        usd_per_month=1200.0,
        least_usd_per_month=1100.0,
        apart_usd_per_month=3000.0,
        today_usd_per_month=4000.0,
        left_out={"m9": "no"},
    )
    assert sentences_of(models(0), DEVICES, consolidation=told)[:2] == (
        "1 model with traffic fits on 2 instances: $1,200 a month, instead of $4,000 today and $3,000 with "
        "machines of their own; no packing costs less than $1,100.",
        "1 model with traffic has no place among them.",
    )


def test_a_measured_card_says_how_far_predictions_were_off() -> None:
    bias = DeviceBias(device="l4", models=5, ratio=1.2, low=1.1, high=1.3)
    assert sentences_of(models(0), DEVICES, biases=[bias])[-1] == (
        "On the L4 5 measured models took 1.2x the predicted time (1.1x to 1.3x): "
        "the other predictions on it are corrected by that."
    )
