"""Calibrations: measured, kept under a fingerprint, read again."""

import json
import math
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from itertools import chain
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest
from click.testing import CliRunner

from analyzer.cli.catalogues import calibrate as command
from analyzer.devices import calibration as kept
from analyzer.errors import OutputError
from analyzer.measurement import cpu_ceilings, machine_load, probes
from analyzer.measurement.cpu_ceilings import CallCost, measure_ceilings, measure_probe, wander
from analyzer.measurement.probes import Probe, conv_classes, convolutions


def values(progress: Callable[..., Any]) -> dict[str, float]:
    progress("products", 0.5)
    return {"dispatch.t1": 1e-7, "gemm.float32.t1.m16.n16.k16": 3e10, "threads": 1.0}


def at_noon() -> Any:
    return datetime(2026, 1, 2, 12, tzinfo=UTC)


def test_what_was_measured_is_read_again(tmp_path: Path) -> None:
    made = kept.calibrate(values, folder=tmp_path, now=at_noon)
    assert made.date == "2026-01-02T12:00:00+00:00"
    assert made.path.parent == tmp_path
    assert kept.load_calibration(tmp_path) == values(lambda *_: None)
    assert kept.load(tmp_path).date == made.date


def test_progress_is_passed_on(tmp_path: Path) -> None:
    seen = []
    kept.calibrate(values, folder=tmp_path, progress=lambda *told: seen.append(told))
    assert seen == [("products", 0.5)]


def test_a_machine_that_was_never_calibrated_has_no_ceilings(tmp_path: Path) -> None:
    assert kept.load_calibration(tmp_path) is None


@pytest.mark.parametrize("part", ["cpu", "cores", "onnxruntime", "gpu"])
def test_a_change_of_the_machine_makes_it_void(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    kept.calibrate(values, folder=tmp_path)
    changed = {**kept.fingerprint(), part: "another"}
    monkeypatch.setattr(kept, "fingerprint", lambda: changed)
    assert kept.load_calibration(tmp_path) is None


@pytest.mark.parametrize(
    "damage",
    [
        lambda _: "{",
        lambda _: "[]",
        lambda stored: json.dumps({**stored, "version": 99}),
        lambda stored: json.dumps({**stored, "values": {}}),
        lambda stored: json.dumps({**stored, "values": {"dispatch.t1": "fast"}}),
        lambda stored: json.dumps({**stored, "values": {"dispatch.t1": math.nan}}),
        lambda stored: json.dumps({**stored, "values": {"dispatch.t1": 0}}),
        lambda stored: json.dumps({**stored, "fingerprint": {}}),
    ],
)
def test_a_damaged_file_counts_as_none(tmp_path: Path, damage: Callable[..., Any]) -> None:
    path = kept.calibrate(values, folder=tmp_path).path
    path.write_text(damage(json.loads(path.read_text())))
    assert kept.load_calibration(tmp_path) is None


def test_a_folder_that_cannot_be_written_is_one_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match="cannot be written"):
        kept.calibrate(values, folder=tmp_path / "file" / "below")


def test_the_fingerprint_names_processor_cores_and_runtime() -> None:
    mark = kept.fingerprint()
    assert mark["cpu"]
    assert int(mark["cores"]) >= 1
    assert "onnxruntime" in mark["onnxruntime"]
    assert kept.fingerprint() == mark


def overhead(call_s: float = 0.0, now_s: float = 0.0) -> CallCost:
    """What a call costs, at best and at this moment."""
    found: Any = SimpleNamespace(call_s=call_s, call_now_s=lambda: now_s)
    return found


SOURCES = (
    convolutions,
    *(
        partial(probes.listed, family)
        for family in (
            *("products", "elementwise", "reductions", "pooling", "data movement", "recurrences", "attention"),
            "short rows",
        )
    ),
)


@pytest.fixture(scope="module")
def every_probe() -> list[tuple[str, str, float, float | None]]:
    """Key, domain, amount and what was measured, None where nothing was.

    One at a time: together their arrays would fill a gigabyte.
    """
    found = []
    for probe in chain.from_iterable(source() for source in SOURCES):
        # The 64 MB products are left out for their time, not for doubt.
        value = 1.0 if "4096" in probe.key else measure_probe(probe, 1, 0.0, overhead())
        found.append((probe.key, probe.domain, probe.amount, value))
    return found


def test_every_probe_has_a_key_of_its_own_that_the_documentation_names(every_probe: Any) -> None:
    keys: dict[str, set[str]] = {}
    for key, domain, amount, _ in every_probe:
        keys.setdefault(key, set()).add(domain)
        assert "{T}" in key
        assert f"``{key.split('.')[0]}." in kept.__doc__
        assert amount > 0
    # A key has two probes only where one is for the blocked layout and the other stands in for it.
    assert all(len(domains) == 1 or probes.BLOCKED in domains for domains in keys.values())
    assert len(keys) > 140
    assert set(conv_classes()) == {key.split(".")[-1] for key in keys if key.startswith("conv.")}


def test_every_key_has_a_kernel_in_this_build(every_probe: Any) -> None:
    values = [(key, value) for key, _, _, value in every_probe if value is not None]
    assert all(value > 0 for _, value in values)
    assert {key for key, _ in values} == {key for key, *_ in every_probe}


def test_an_operator_without_a_kernel_has_no_ceiling() -> None:
    probe = probes.Probe(
        key="x",
        amount=1.0,
        per="time",
        op_type="Frobnicate",
        inputs=(probes.floats(4),),
        domain="com.microsoft",
    )
    assert measure_probe(probe, 1, 0.0, overhead()) is None


def test_rates_and_times_are_reciprocal_views_of_the_same_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run of 3 s of which the call is 1: 2 s for 8 units of work."""
    monkeypatch.setattr(cpu_ceilings, "undisturbed_seconds", lambda *_, **__: 3.0)
    call = overhead(1.0, 1.0)
    rate, time = (
        probes.Probe(key="x", amount=8.0, per=per, op_type="Neg", inputs=(probes.floats(4),))
        for per in ("rate", "time")
    )
    assert measure_probe(rate, 1, 0.0, call) == 4.0
    assert measure_probe(time, 1, 0.0, call) == 0.25
    assert measure_probe(rate.repeated(4), 1, 0.0, call) == 16.0


@pytest.mark.parametrize(("now", "left"), [(2.0, 1.0), (2.9, 0.3), (4.0, 0.3)])
def test_what_is_as_short_as_a_call_is_compared_with_one_of_the_same_moment(
    monkeypatch: pytest.MonkeyPatch, now: float, left: float
) -> None:
    """A call of 4 s at best so far takes less at the moment of a run of 3; a tenth is the operator's."""
    monkeypatch.setattr(cpu_ceilings, "undisturbed_seconds", lambda *_, **__: 3.0)
    probe = Probe(key="x", amount=1.0, per="time", op_type="Neg", inputs=(probes.floats(4),))
    assert measure_probe(probe, 1, 0.0, overhead(4.0, now)) == pytest.approx(left)


def test_ceilings_cover_one_thread_and_all(monkeypatch: pytest.MonkeyPatch) -> None:
    few = (
        ("products", lambda: iter([next(probes.listed("products"))])),
        ("bandwidth", lambda: iter([next(probes.listed("bandwidth"))])),
    )
    monkeypatch.setattr(cpu_ceilings, "_FAMILIES", few)
    seen = []
    found = measure_ceilings(seconds=0.05, threads=2, progress=lambda *told: seen.append(told))
    found.pop("busy", None)
    assert set(found) == {
        *("threads", "cores", "dispatch.t1", "dispatch.t2", "call.t1", "call.t2", "run.t1", "run.t2"),
        *("sharing.t1", "sharing.t2", "wander.t1", "wander.t2"),
        *("gemm.float32.t1.m16.n16.k16", "gemm.float32.t2.m16.n16.k16", "copy.t1.16384", "copy.t2.16384"),
    }
    assert all(value > 0 for value in found.values())
    stages = [stage for stage, _ in seen]
    assert stages[:8] == [*["products"] * 2, *["bandwidth"] * 2] * 2
    assert [share for _, share in seen] == sorted(share for _, share in seen)


@pytest.mark.parametrize(("preparation", "total"), [(0.0, 10.0), (0.02, 10.0), (0.1, 10.2)])
def test_measurements_share_a_time_with_their_own_preparation(preparation: float, total: float) -> None:
    """100 in 10 s, however long they take to prepare; the least of 2 ms each is not taken from them."""
    now = 0.0
    pace = cpu_ceilings.Pace(10.0, 100, lambda: now)
    shares = []
    for _ in range(100):
        shares.append(pace.next())
        now += preparation + shares[-1]
    assert now == pytest.approx(total, rel=0.02)
    # The first does not know yet what preparation takes.
    assert max(shares[1:]) <= 1.25 * max(0.002, 0.1 - preparation)


RATE = Probe(key="rate.t{T}", amount=12.0, per="rate", op_type="Neg", inputs=())
TIME = Probe(key="time.t{T}", amount=12.0, per="time", op_type="Neg", inputs=())


def visited(monkeypatch: pytest.MonkeyPatch, seconds: dict[Probe, tuple[float, ...]]) -> dict[str, float]:
    """What comes out where the visits of each probe take so many seconds, and there are no more of them."""
    monkeypatch.setattr(cpu_ceilings, "_FAMILIES", (("one", lambda: iter(seconds)),))
    monkeypatch.setattr(cpu_ceilings, "bind", lambda model, *_: SimpleNamespace(call=model, session=None))
    monkeypatch.setattr(probes, "model_of", lambda probe: probe.key)
    monkeypatch.setattr(cpu_ceilings, "chain", lambda length: length)
    taken = {probe.key: iter(visits) for probe, visits in seconds.items()}

    def undisturbed(call: Any, *_: Any, **__: Any) -> float:
        if isinstance(call, str):
            return next(taken[call])
        # A microsecond a node, none for the call, two more with arrays.
        return call * 1e-6 if isinstance(call, int) else 10e-6

    monkeypatch.setattr(cpu_ceilings, "undisturbed_seconds", undisturbed)
    found = measure_ceilings(seconds=1.0, threads=1)
    assert [next(left, None) for left in taken.values()] == [None] * len(taken)
    return found


def test_visits_that_agree_are_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two visits of each, the better one counts."""
    found = visited(monkeypatch, {RATE: (4.0, 3.9), TIME: (3.1, 3.0)})
    assert found["rate.t1"] == pytest.approx(12 / 3.9)
    assert found["time.t1"] == pytest.approx(3 / 12)
    assert found["dispatch.t1"] == pytest.approx(1e-6)
    assert found["run.t1"] == pytest.approx(2e-6)


STEADY = {replace(TIME, key=f"steady{number}.t{{T}}"): (1.0, 1.0) for number in range(2)}


@pytest.mark.parametrize(
    ("visits", "best"),
    [
        ((6.0, 4.0, 3.0, 2.9), 2.9),  # until the two best agree
        ((6.0, 4.0, 6.0, 3.9), 3.9),
        ((9.0, 8.0, 7.0, 6.0, 5.0, 4.0), 4.0),  # or the rounds end
    ],
)
def test_a_probe_is_visited_until_its_best_comes_back(
    monkeypatch: pytest.MonkeyPatch, visits: tuple[float, ...], best: float
) -> None:
    """Others that agreed stay as they are where most did."""
    assert visited(monkeypatch, {TIME: visits, **STEADY})["time.t1"] == pytest.approx(best / 12)
    assert visited(monkeypatch, {**STEADY, RATE: visits})["rate.t1"] == pytest.approx(12 / best)


def test_where_most_differ_two_that_agree_are_not_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A host's other guests slow a machine for seconds: both visits may have been slow."""
    slow_twice = (6.0, 6.0, 6.0, 4.0, 6.0, 6.0)
    wandering = {RATE: (6.0, 4.0) * 3, replace(TIME, key="other.t{T}"): (4.0, 6.0) * 3}
    assert visited(monkeypatch, {TIME: slow_twice, **wandering})["time.t1"] == pytest.approx(4 / 12)


def test_how_far_two_visits_differ_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    found = visited(monkeypatch, {TIME: (6.0, 4.0, 3.0, 3.0, 9.0, 9.0), RATE: (5.0, 6.0, *[5.0] * 4)})
    assert found["wander.t1"] == pytest.approx((6 / 4 + 6 / 5) / 2)  # the median of two


def test_wandering_is_the_median_factor_between_two_visits() -> None:
    """Whether rates or times; what was visited once says nothing, and more visits no more."""
    assert wander([(2.0, 3.0), (4.0, 2.0), (1.0,), (5.0, 5.0, 1.0)]) == 1.5
    assert wander([]) == 1.0


@pytest.mark.parametrize(("others", "both"), [(1.0, (12.0, 0.25)), (0.0, (6.0, 0.5))])
def test_on_a_busy_machine_several_threads_are_no_slower_than_one(
    monkeypatch: pytest.MonkeyPatch, others: float, both: tuple[float, float]
) -> None:
    """Who waits for a thread whose core another has waits twice: nothing that the operator does."""
    monkeypatch.setattr(cpu_ceilings, "_FAMILIES", (("one", lambda: iter([RATE, TIME])),))
    monkeypatch.setattr(cpu_ceilings, "CallCost", MagicMock(return_value=MagicMock(ceilings=dict)))
    monkeypatch.setattr(cpu_ceilings, "core_distance", lambda *_, **__: MagicMock())
    monkeypatch.setattr(cpu_ceilings, "measure_probe", lambda probe, threads, *_: both_ways(probe, threads))

    def both_ways(probe: Probe, threads: int) -> float:
        return 12.0 / threads if probe.per == "rate" else 0.25 * threads

    load = machine_load.Load(wall_s=1.0, others_cores=others, stolen_cores=0.0, available_cores=2)
    monkeypatch.setattr(machine_load, "load_between", lambda *_: load)
    found = measure_ceilings(seconds=0.0, threads=2)
    assert (found["rate.t2"], found["time.t2"]) == both
    assert (found["rate.t1"], found["time.t1"]) == (12.0, 0.25)


def test_the_command_measures_keeps_and_shows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept, "folder_of_calibrations", lambda: tmp_path)
    monkeypatch.setattr(
        cpu_ceilings, "measure_all", lambda progress, **_: values(progress or (lambda *_: None))
    )
    missing = CliRunner().invoke(command, ["--show"])
    assert missing.exit_code == 0
    assert "not calibrated" in missing.output
    made = CliRunner().invoke(command, [])
    assert made.exit_code == 0, made.output
    assert "one more node  100 ns" in made.stdout
    assert "quiet machine" not in made.stdout
    shown = CliRunner().invoke(command, ["--show"])
    assert shown.stdout == made.stdout
    assert str(tmp_path) in shown.stdout
    assert CliRunner().invoke(command, ["--quiet"]).stdout == ""


def test_the_command_says_what_disturbed_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept, "folder_of_calibrations", lambda: tmp_path)
    disturbed = {"busy": 1.5, "cores": 2.0, **values(lambda *_: None)}
    monkeypatch.setattr(cpu_ceilings, "measure_all", lambda *_, **__: disturbed)
    said = CliRunner().invoke(command, []).stdout
    assert "other processes ran (1.5 of 2 cores): calibrate again on a quiet machine." in said
