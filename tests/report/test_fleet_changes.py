"""What changed between two fleets, by the rule that is stated and in the words that are shown."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from analyzer.record.analysis import Tool
from analyzer.record.fleet import Fleet, FleetDevice, FleetFailure, FleetModel
from analyzer.record.outcome import RankedWay
from analyzer.report.fleet_tables import changes

DEVICES = (
    FleetDevice(slug="l4", name="NVIDIA L4", kind="gpu"),
    FleetDevice(slug="epyc", name="AMD EPYC 9654", kind="cpu"),
)


def cell(latency_s: float, device: str = "l4", **values: Any) -> RankedWay:
    about = {
        "low_s": latency_s * 0.8,
        "high_s": latency_s * 1.25,
        "batch": 1,
        "usd_per_million": latency_s * 100,
    }
    side = "gpu" if device == "l4" else "cpu"
    return RankedWay(device=device, kind=side, plan=side, latency_s=latency_s, **about | values)  # type: ignore[arg-type]


def model(
    name: str = "m", *cells: RankedWay, device: str = "gpu", digest: str = "d", cheapest: int = 0
) -> FleetModel:
    return FleetModel(
        name=name,
        reference=f"{name}.py",
        cells=cells or (cell(0.01),),
        device=device,
        digest=digest,
        cheapest=cheapest,
    )


def fleet(*models: FleetModel, version: str = "1", **values: Any) -> Fleet:
    return Fleet(models=models, devices=DEVICES, tool=Tool(name="analyze", version=version), **values)


AS_BEFORE = ("Nothing changed: 1 model as before.",)
FAILED = FleetModel(name="m", reference="m.py", failure=FleetFailure(kind="error", message="no"))


def test_the_same_fleet_has_not_changed() -> None:
    assert changes(fleet(model()), fleet(model())) == ("Nothing changed: 1 model as before.",)


def test_models_come_go_fail_and_are_mended() -> None:
    bad = replace(FAILED, name="bad")
    old = fleet(model("bad"), model("gone"), replace(FAILED, name="mended"), model("same"))
    new = fleet(bad, model("mended"), model("new"), model("same"))
    assert changes(old, new) == (
        "bad fails now.",
        "mended failed before and no longer does.",
        "new is new.",
        "gone is gone.",
        "1 model is as before.",
    )
    many = fleet(*(model(f"m{number:02}") for number in range(12)))
    assert changes(fleet(model("m00")), many)[0] == (
        "11 models are new: m01, m02, m03, m04, m05, m06, m07, m08, m09, m10 and 1 more."
    )


def test_what_still_fails_is_no_change() -> None:
    assert changes(fleet(FAILED), fleet(FAILED)) == ("Nothing changed: 1 model as before.",)


def test_verdict_device_and_dollars_are_told_in_one_line() -> None:
    both = (cell(0.01), cell(0.02, "epyc", usd_per_million=0.5))
    old = fleet(model("m", *both))
    new = fleet(model("m", *both, device="cpu", cheapest=1, digest="e"))
    assert changes(old, new) == (
        "m: the model is another; verdict gpu -> cpu; costs least on AMD EPYC 9654, before on NVIDIA L4; "
        "$1.00 -> $0.500 a million.",
    )


def test_exact_predictions_differ_from_five_per_cent_on() -> None:
    old = fleet(model("m", cell(0.0100, usd_per_million=None)))
    assert changes(old, fleet(model("m", cell(0.0104, usd_per_million=None)))) == AS_BEFORE
    assert changes(old, fleet(model("m", cell(0.0106, usd_per_million=None)))) == (
        "m: 10.0 ms -> 10.6 ms on NVIDIA L4 at batch 1 (+6 %).",
    )


def test_measured_times_differ_where_their_intervals_do_not_touch() -> None:
    old = fleet(model("m", cell(0.010, origin="measured", usd_per_million=None)))  # up to 12.5 ms

    def at(latency_s: float) -> Fleet:
        return fleet(model("m", cell(latency_s, origin="measured", usd_per_million=None)))

    assert changes(old, at(0.0155)) == AS_BEFORE  # from 12.4 ms
    assert changes(old, at(0.0158)) != AS_BEFORE  # from 12.6 ms
    assert changes(old, at(0.0065)) == AS_BEFORE  # up to 8.1 ms, and from 8
    assert changes(old, at(0.0063)) != AS_BEFORE


def test_predictions_of_two_versions_differ_beyond_their_intervals() -> None:
    old = fleet(model("m", cell(0.010, usd_per_million=None)))
    assert changes(old, fleet(model("m", cell(0.012, usd_per_million=None)), version="2")) == AS_BEFORE
    assert changes(old, fleet(model("m", cell(0.020, usd_per_million=None)), version="2")) != AS_BEFORE


def test_dollars_of_another_way_of_paying_are_not_compared() -> None:
    old, new = fleet(model()), fleet(model("m", cell(0.01, usd_per_million=0.1)), pricing="spot")
    assert changes(old, new) == (
        "Dollars are not compared: on-demand before, spot now.",
        "1 model is as before.",
    )


def test_names_of_strangers_drive_no_terminal() -> None:
    assert "\x1b" not in "".join(changes(fleet(), fleet(model("\x1b[31mred"))))
