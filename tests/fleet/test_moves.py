"""Where models would cost less than today: prices of two machines, by hand."""

from __future__ import annotations

from typing import Any

import pytest

from analyzer.devices.device import Instance
from analyzer.errors import UsageError
from analyzer.fleet.consolidation import moves_of
from analyzer.record.fleet import FleetModel, Today, Traffic
from analyzer.record.outcome import RankedWay

HOURS = 730
G6 = Instance(provider="AWS", name="g6.xlarge", region="us", usd_per_hour=0.8, gpu="l4", gpu_count=1)
C7 = Instance(
    provider="AWS", name="c7i.large", region="us", usd_per_hour=0.1, vcpus=2, cpu="xeon-platinum-8488c"
)
A2 = Instance(
    provider="GCP", name="a2-highgpu-1g", region="us", usd_per_hour=3.0, gpu="a100-40gb-sxm", gpu_count=1
)
OFFERS = (G6, C7, A2)


def on_l4(latency_s: float = 0.004, **values: Any) -> RankedWay:
    about = {"low_s": latency_s * 0.8, "high_s": latency_s * 1.25, "memory_bytes": 10**9}
    return RankedWay(device="l4", kind="gpu", plan="gpu", batch=1, latency_s=latency_s, **about | values)


def on_cpu(latency_s: float = 0.020, **values: Any) -> RankedWay:
    about = {"low_s": latency_s * 0.8, "high_s": latency_s * 1.25, "memory_bytes": 10**9}
    machine = {"provider": "AWS", "instance": "c7i.large"}
    return RankedWay(
        device="xeon-platinum-8488c",
        kind="cpu",
        plan="cpu",
        batch=1,
        latency_s=latency_s,
        **about | machine | values,
    )


def model(*cells: RankedWay, today: str | Today | None = "g6.xlarge", **values: Any) -> FleetModel:
    place = Today(instance=today) if isinstance(today, str) else today
    return FleetModel(name=values.pop("name", "m"), reference="m.py", cells=cells, today=place, **values)


def test_a_model_of_little_traffic_moves_from_a_gpu_to_a_cpu() -> None:
    # 5 requests of 20 ms keep the CPU busy 10 % of the time; 25 ms at the slow end 12.5 %.
    (move,) = moves_of([model(on_l4(), on_cpu(), traffic=Traffic(rate=5, limit_s=0.2))], OFFERS)
    assert (move.instance, move.count, move.cell, move.today_kind) == ("c7i.large", 1, 1, "gpu")
    assert move.today_usd_per_month == pytest.approx(0.8 * HOURS)
    assert move.usd_per_month == pytest.approx(0.1 * HOURS)
    assert move.saved_usd_per_month == pytest.approx(0.7 * HOURS)
    assert move.certain


def test_traffic_needs_as_many_machines_as_its_rate_keeps_busy() -> None:
    # 100 requests of 20 ms are 2 devices' time, at 70 % of it each 3: 0.3 dollars; 25 ms: 4 of them.
    (move,) = moves_of([model(on_l4(), on_cpu(), traffic=Traffic(rate=100))], OFFERS)
    assert (move.instance, move.count) == ("c7i.large", 3)
    assert move.certain
    # 240 requests: 6.86 machines, 7 for 0.7 dollars, and at the slow end 9 for 0.9, which is more than today.
    (move,) = moves_of([model(on_l4(), on_cpu(), traffic=Traffic(rate=240))], OFFERS)
    assert (move.instance, move.count) == ("c7i.large", 7)
    assert not move.certain


def test_a_limit_that_a_cpu_cannot_keep_leaves_the_model_where_it_is() -> None:
    assert moves_of([model(on_l4(), on_cpu(), traffic=Traffic(rate=5, limit_s=0.019))], OFFERS) == ()


def test_fewer_of_the_same_instance_are_a_move() -> None:
    # 100 requests of 4 ms are 40 % of one L4.
    today = Today(instance="g6.xlarge", count=3)
    (move,) = moves_of([model(on_l4(), today=today, traffic=Traffic(rate=100, limit_s=0.05))], OFFERS)
    assert (move.instance, move.count, move.saved_usd_per_month) == ("g6.xlarge", 1, pytest.approx(1.6 * HOURS))


def test_without_traffic_an_instance_is_exchanged_for_one_that_keeps_the_limit() -> None:
    options = {"slo": ("50ms",)}
    today = Today(instance="g6.xlarge", count=2)
    (move,) = moves_of([model(on_l4(meets=True), on_cpu(meets=True), today=today, options=options)], OFFERS)
    assert (move.instance, move.count, move.certain) == ("c7i.large", 2, True)
    assert move.usd_per_month == pytest.approx(0.2 * HOURS)
    # 25 ms at the slow end.
    options = {"slo": ("24ms",)}
    (move,) = moves_of([model(on_l4(meets=True), on_cpu(meets=True), options=options)], OFFERS)
    assert not move.certain
    assert moves_of([model(on_l4(meets=True), on_cpu(meets=False), options=options)], OFFERS) == ()


def test_without_traffic_and_limit_nothing_moves_to_where_it_would_take_longer() -> None:
    assert moves_of([model(on_l4(), on_cpu())], OFFERS) == ()
    # Nothing is known of its time on an A100.
    assert moves_of([model(on_l4(0.004), on_cpu(0.003), today="a2-highgpu-1g")], OFFERS) == ()
    (move,) = moves_of([model(on_l4(0.004), on_cpu(0.003))], OFFERS)
    assert (move.instance, move.certain) == (
        "c7i.large",
        False,
    )  # 3.75 ms at the slow end, 3.2 at today's quick
    (move,) = moves_of([model(on_l4(0.004), on_cpu(0.002))], OFFERS)
    assert move.certain


def test_what_does_not_run_or_fit_is_no_place_to_move_to() -> None:
    for values in ({"runs": False}, {"fits": False}, {"meets": False}):
        assert moves_of([model(on_l4(), on_cpu(0.002, **values))], OFFERS) == ()


def test_of_a_service_the_records_own_size_counts() -> None:
    sized = on_cpu(meets=True, usd_per_month=219.0, usd_high_per_month=292.0, count=3)
    (move,) = moves_of([model(sized, question="capacity", cheapest=0)], OFFERS)
    assert (move.count, move.usd_per_month, move.certain) == (3, 219.0, True)
    dear = on_cpu(meets=True, usd_per_month=219.0, usd_high_per_month=600.0, count=3)
    (move,) = moves_of([model(dear, question="capacity", cheapest=0)], OFFERS)
    assert not move.certain  # 584 today


def test_moves_are_told_by_what_they_save() -> None:
    few = model(on_l4(), on_cpu(), name="few", traffic=Traffic(rate=100))
    many = model(on_l4(), on_cpu(), name="many", traffic=Traffic(rate=1))
    nowhere = model(on_l4(), on_cpu(), name="untold", today=None, traffic=Traffic(rate=1))
    assert [move.model for move in moves_of([few, many, nowhere], OFFERS)] == ["many", "few"]


def test_an_unknown_instance_is_an_error_with_the_nearest_name() -> None:
    with pytest.raises(UsageError, match=r"No instance is called 'g6\.xlrage'") as error:
        moves_of([model(on_l4(), today="g6.xlrage")], OFFERS)
    assert error.value.hint == "Did you mean 'g6.xlarge'?"


def test_an_instance_may_be_named_with_its_provider() -> None:
    (move,) = moves_of([model(on_l4(), on_cpu(), today="aws G6.xlarge", traffic=Traffic(rate=1))], OFFERS)
    assert move.today_instance == "g6.xlarge"
