"""Models with traffic on shared machines; sums by hand."""

from __future__ import annotations

from typing import Any

import pytest

from analyzer.devices.device import Instance
from analyzer.fleet.consolidation import consolidation_of
from analyzer.record.fleet import FleetFailure, FleetModel, Today, Traffic
from analyzer.record.outcome import RankedWay

HOURS = 730
G6 = Instance(provider="AWS", name="g6.xlarge", region="us", usd_per_hour=0.8, gpu="l4", gpu_count=1)
G6_12 = Instance(provider="AWS", name="g6.12xlarge", region="us", usd_per_hour=2.0, gpu="l4", gpu_count=4)
SLICE = Instance(provider="AWS", name="g6f.large", region="us", usd_per_hour=0.2, gpu="l4", gpu_count=0.125)


def on_l4(latency_s: float = 0.004, batch: int | None = 1, **values: Any) -> RankedWay:
    about = {"low_s": latency_s * 0.8, "high_s": latency_s * 1.25, "memory_bytes": 10**9}
    return RankedWay(device="l4", kind="gpu", plan="gpu", batch=batch, latency_s=latency_s, **about | values)


def model(
    name: str, *cells: RankedWay, rate: float | None = 10, limit_s: float | None = 0.1, **values: Any
) -> FleetModel:
    traffic = None if rate is None else Traffic(rate=rate, limit_s=limit_s)
    return FleetModel(name=name, reference=f"{name}.py", cells=cells, traffic=traffic, **values)


def test_without_traffic_nothing_is_packed() -> None:
    assert consolidation_of([model("a", on_l4(), rate=None)], [G6]) is None


def test_models_that_are_rarely_asked_share_a_gpu() -> None:
    # 10 requests of 4 ms are 4 % of the device each.
    models = [model(f"m{number}", on_l4(), today=Today(instance="g6.xlarge")) for number in range(5)]
    told = consolidation_of(models, [SLICE, G6])
    (machine,) = told.instances
    assert (machine.instance, machine.count, machine.device) == ("g6.xlarge", 1, "l4")
    assert [one.model for one in machine.models] == [f"m{number}" for number in range(5)]
    assert all(one.share == pytest.approx(0.04) and one.rate == 10 for one in machine.models)
    # With 20 % busy in runs of 4 ms a request waits for a run or two at most in 99 % of all cases.
    assert all(0.004 < one.latency_s < 0.014 for one in machine.models)
    assert told.usd_per_month == pytest.approx(0.8 * HOURS)
    assert told.apart_usd_per_month == pytest.approx(5 * 0.8 * HOURS)
    assert told.today_usd_per_month == pytest.approx(5 * 0.8 * HOURS)
    assert told.least_usd_per_month == pytest.approx(0.8 * HOURS, rel=1e-4)


def test_what_it_costs_today_is_told_only_where_all_say_so() -> None:
    models = [model("a", on_l4(), today=Today(instance="g6.xlarge")), model("b", on_l4())]
    assert consolidation_of(models, [G6]).today_usd_per_month is None


def test_models_too_large_for_one_gpu_lie_on_several_of_an_instance() -> None:
    # An L4 has 24 GB: two of 10 GB, not three. Eight of them take four L4, for 2.0 dollars instead of 3.2.
    models = [model(f"m{number}", on_l4(memory_bytes=10 * 10**9)) for number in range(8)]
    told = consolidation_of(models, [G6, G6_12])
    (machine,) = told.instances
    assert (machine.instance, machine.count) == ("g6.12xlarge", 1)
    assert sorted(one.position for one in machine.models) == [0, 0, 1, 1, 2, 2, 3, 3]


def test_a_cell_is_told_by_its_index_and_a_batch_by_what_it_saves() -> None:
    # 700 requests a second of 4 ms are 2.8 devices; in batches of 32 in 20 ms 0.44 of one.
    cells = (on_l4(fits=False, batch=64), on_l4(batch=1), on_l4(0.020, batch=32))
    told = consolidation_of([model("busy", *cells, rate=700, limit_s=0.5)], [G6])
    (machine,) = told.instances
    assert (machine.count, machine.models[0].cell) == (1, 2)


def test_what_has_no_place_is_left_out_with_its_reason() -> None:
    models = [
        model("fine", on_l4()),
        model("failed", failure=FleetFailure(kind="error", message="no")),
        model("slow", on_l4(0.2)),
        model("nowhere", on_l4(runs=False)),
        model("speaks", on_l4(), question="generate"),
    ]
    told = consolidation_of(models, [G6])
    assert told.left_out == {
        "failed": "it could not be analysed",
        "nowhere": "no requested device runs it, has room for it and keeps its limit",
        "slow": "on every machine a single run takes longer than its limit",
        "speaks": "its question is `generate`, whose requests are no single runs",
    }
    assert told.usd_per_month == pytest.approx(0.8 * HOURS)


def test_a_cpu_is_the_very_machine_that_its_time_is_for() -> None:
    small = Instance(provider="AWS", name="c7i.large", region="us", usd_per_hour=0.1, vcpus=2, cpu="x")
    large = Instance(provider="AWS", name="c7i.8xlarge", region="us", usd_per_hour=0.05, vcpus=32, cpu="x")
    cell = RankedWay(
        device="x",
        kind="cpu",
        plan="cpu",
        batch=1,
        latency_s=0.02,
        provider="AWS",
        instance="c7i.large",
        memory_bytes=10**8,
    )
    told = consolidation_of([model("a", cell)], [small, large])
    assert [machine.instance for machine in told.instances] == ["c7i.large"]
