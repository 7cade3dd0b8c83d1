"""What other processes did during a measurement."""

import subprocess
import sys
from pathlib import Path

import pytest
from measuring_models import perceptron, save

from analyzer.measurement.child_process import measure
from analyzer.measurement.machine_load import Load, Snapshot, available_cores, default_threads, load_between
from analyzer.measurement.request import MeasureRequest


def load(others: float, cores: int = 4, stolen: float = 0.0) -> Load:
    return Load(wall_s=1, others_cores=others, stolen_cores=stolen, available_cores=cores)


def test_others_are_what_the_machine_did_less_what_we_did() -> None:
    before = Snapshot(wall_s=10.0, busy_s=100.0, stolen_s=1.0, own_s=5.0)
    after = Snapshot(wall_s=12.0, busy_s=105.0, stolen_s=1.5, own_s=8.0)
    found = load_between(before, after)
    assert found.others_cores == pytest.approx(1.0)  # (5 - 3) / 2
    assert found.stolen_cores == pytest.approx(0.25)


def test_a_quiet_machine_is_not_called_busy() -> None:
    assert not load(0.1).is_busy()
    assert load(0.1).contention(4) == 0


def test_others_disturb_only_where_no_core_is_left_for_them() -> None:
    assert load(1.0, cores=4).contention(2) == 0
    assert load(1.0, cores=4).contention(4) == pytest.approx(0.25)
    assert load(3.0, cores=2).contention(2) == 1.0
    assert "enough cores were left" in load(1.0, cores=4).sentence(2)
    assert "widened" in load(1.0, cores=4).sentence(4)


def test_cores_stolen_by_the_host_are_named() -> None:
    assert "other guests" in load(1.0, stolen=0.5).sentence(4)
    assert "other guests" not in load(1.0).sentence(4)


def test_threads_are_never_more_than_cores() -> None:
    assert 1 <= default_threads() <= available_cores()


def test_a_process_that_hogs_every_core_is_noticed(tmp_path: Path) -> None:
    path = save(perceptron(), tmp_path)
    hogs = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(available_cores())]
    try:
        measured = measure(MeasureRequest(model_path=path, time_budget_s=1.5, threads=1))
    finally:
        for hog in hogs:
            hog.kill()
            hog.wait()
    assert measured.busy
    assert any("the machine was busy" in text for text in measured.messages)
    assert measured.environment["others_cores"] > 0.25
    spread = measured.latency.high / measured.latency.low
    assert spread > measured.latency.p90_s / measured.latency.p10_s  # wider than the runs alone
