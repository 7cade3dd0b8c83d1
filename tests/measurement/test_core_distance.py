"""Turns of runs while the machine's cores were apart: told, waited for, left out."""

import gc
import itertools
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
from measuring_models import perceptron, save

from analyzer.figures import Figure
from analyzer.measurement import noise as core_distances
from analyzer.measurement.child_messages import Reporter
from analyzer.measurement.child_process import measure
from analyzer.measurement.noise import (
    Bias,
    CoreDistance,
    Reading,
    SingleThread,
    TurnResult,
    alternate,
    close_turns,
    core_distance,
    turns_for,
)
from analyzer.measurement.on_cpu import quiet_turns, scaled
from analyzer.measurement.profile import RawTime
from analyzer.measurement.request import Latency, Measurement, MeasureRequest
from analyzer.measurement.session import SessionSettings
from analyzer.pipeline import measure as measuring

CLOSE, APART = Reading(1.0, 2.0), Reading(1.8, 2.0)


class Scripted(CoreDistance):
    """Readings from a list, the last one for ever; the machine's best is known."""

    def __init__(self, *readings: Reading, patience_s: float = 0.0) -> None:
        super().__init__(print, print, known=CLOSE, patience_s=patience_s)
        self.left = itertools.chain(readings, itertools.repeat(readings[-1]))
        self.count = 0

    def read(self) -> Reading:
        self.count += 1
        return next(self.left)


def test_what_slows_a_single_thread_as_well_is_no_matter_of_sharing() -> None:
    distance = CoreDistance(print, print, known=CLOSE)
    assert distance.ratio(CLOSE) == 1
    assert distance.ratio(APART) == pytest.approx(1.8)
    assert distance.ratio(Reading(1.8, 3.6)) == pytest.approx(1)
    assert distance.ratio(Reading(3.0, 3.0)) == pytest.approx(2)
    # One thread for itself may be disturbed for a moment, which makes no sharing better than the best.
    assert distance.ratio(CLOSE, APART, Reading(1.0, 20.0)) == pytest.approx(1.8)
    assert distance.ratio() == 1


def test_the_best_is_the_least_of_what_is_known_and_read() -> None:
    distance = core_distance(SessionSettings(threads=2), known=Reading(1e-9, 1e9))
    first = distance.read()
    assert first.shared_s > 0
    assert first.alone_s > 0
    assert distance.best == Reading(1e-9, first.alone_s)


def test_a_single_thread_has_its_cores_close_without_a_run() -> None:
    alone = core_distance(SessionSettings(threads=1), known=APART)
    assert isinstance(alone, SingleThread)
    assert alone.ratio(alone.read(), alone.awaited()) == 1


class Clock:
    """Time that passes in pauses alone."""

    def __init__(self) -> None:
        self.now = 0.0

    def perf_counter(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def test_close_cores_are_awaited_but_not_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """In pauses of a tenth of a second: a patience of 0.15 s ends in the second."""
    monkeypatch.setattr(core_distances, "time", Clock())
    patient = Scripted(APART, APART, CLOSE, APART, patience_s=60)
    assert patient.awaited() == CLOSE
    assert patient.count == 3
    assert patient.awaited(CLOSE) == CLOSE
    assert patient.count == 3
    hurried = Scripted(APART, patience_s=0.15)
    assert hurried.awaited() == APART
    assert hurried.count == 3
    assert hurried.awaited() == APART  # nothing of the patience is left
    assert hurried.count == 4


def test_turns_with_the_cores_apart_do_not_count_where_there_are_others() -> None:
    assert close_turns([1.0, 1.8, 1.1, 1.31]) == {0, 2}
    assert close_turns([1.8, 1.9]) == {0, 1}
    readings = [(CLOSE, APART), (CLOSE, CLOSE), (CLOSE, CLOSE), (APART, CLOSE)]
    turns = [TurnResult(samples=(1.0,), readings=pair) for pair in readings]
    lengths = [[1.0], [3.0], [2.0], [1.0]]
    distance = Scripted(CLOSE)
    assert quiet_turns(turns, lengths, distance) == {2}
    assert quiet_turns(turns, lengths, SingleThread()) == {0, 3}
    # Where none of them has a length, the others must do.
    assert quiet_turns(turns, [[5.0], [], [], [4.0]], distance) == {3}


def test_runs_go_on_until_enough_turns_had_the_cores_close(monkeypatch: pytest.MonkeyPatch) -> None:
    """One unprofiled run by turn is known well at once; the four turns that it takes are four close ones."""
    # Each turn collects garbage first: half a second among what all other tests have left.
    monkeypatch.setattr(gc, "collect", lambda: 0)
    turns = turns_for(1e-6, 16, 0.016, runs=None, most=16)

    def taken(*readings: Reading) -> tuple[TurnResult, ...]:
        distance = Scripted(*readings)
        return alternate(
            lambda: None, lambda: None, turns, run_s=1e-6, already=0, tick=lambda _: None, distance=distance
        )

    always = taken(APART)
    assert len(always) == 16
    assert all(turn.readings == (APART, APART) for turn in always)
    # The reading after a turn is the one before the next.
    assert [turn.readings for turn in taken(CLOSE, APART, CLOSE)][:3] == [
        (CLOSE, APART),
        (APART, CLOSE),
        (CLOSE, CLOSE),
    ]


def test_the_scale_factor_compares_runs_of_the_same_turns() -> None:
    raw = [
        RawTime(name=name, op_type="MatMul", provider="cpu", time=Figure(value=2.0, low=2.0, high=2.0), calls=1)
        for name in "ab"
    ]
    latency = Latency(
        value=3.0, p10_s=3.0, p90_s=3.0, min_s=3.0, low=2.9, high=3.1, runs=9, warmup_runs=3, method=""
    )
    bias = Bias(profiler_s=0.5, dispatch_s=0.1, call_s=0.2)
    # The nodes explain 2 x (2 - 0.5) + 0.2 s; beside the profile runs took 4 s, in quieter turns 3.
    nodes, factor, residual = scaled(raw, bias, latency, unprofiled_s=4.0)
    assert sum(node.time.value for node in nodes) == pytest.approx(3.0)
    assert factor == pytest.approx(4.0 / 3.2)
    assert residual == pytest.approx(0.8)
    assert scaled(raw, bias, latency)[1] == pytest.approx(3.0 / 3.2)


def measured(folder: Path, **options: Any) -> Measurement:
    np.savez(folder / "feeds.npz", x0=np.ones((32, 256), np.float32))
    return measure(
        MeasureRequest(
            model_path=save(perceptron(), folder),
            feeds=folder / "feeds.npz",
            time_budget_s=0.6,
            timeout_s=900,
            **options,
        )
    )


def test_cores_that_were_apart_all_the_time_widen_the_interval_and_are_named(tmp_path: Path) -> None:
    """A machine whose threads once shared work in a nanosecond has them apart for good."""
    found = measured(tmp_path, threads=2, sharing_s=(1e-9, 1.0))
    apart = found.environment["cores_apart"]
    assert apart > 100
    assert found.environment["turns_with_cores_apart"] == found.environment["turns"]
    # Another process that takes a core shows in the same readings, and has its own sentence.
    told = any(text.startswith("all the time threads shared their work") for text in found.messages)
    assert told is not found.busy
    assert (found.latency.low < found.latency.value / 100) is not found.busy


@pytest.mark.parametrize(
    ("ratios", "said"),
    [
        ([1.0, 1.1, 1.9, 1.9], None),
        ([1.0, 1.5, 1.9], "in 2 of 3 turns of runs threads shared their work up to 1.9 times worse"),
        ([1.6, 1.5], "all the time threads shared their work up to 1.6 times worse"),
    ],
)
def test_cores_apart_are_worth_a_sentence_where_most_turns_had_them_so(
    tmp_path: Path, ratios: list[float], said: str | None
) -> None:
    told: dict[str, Any] = {"messages": []}
    Reporter(Mock(send=lambda message: told.update(message[1])), tmp_path).cores_apart(ratios)
    assert told["environment"]["turns_with_cores_apart"] == sum(ratio > 1.3 for ratio in ratios)
    assert [text.startswith(said) for text in told["messages"]] == ([True] if said else [])


def test_a_single_thread_has_nobody_to_share_with(tmp_path: Path) -> None:
    found = measured(tmp_path, threads=1, sharing_s=(1e-9, 1.0))
    assert found.environment["cores_apart"] == 1
    assert not any("shared their work" in text for text in found.messages)


def test_what_a_calibration_knows_goes_with_the_measurement(monkeypatch: pytest.MonkeyPatch) -> None:
    known = {"sharing.t1": 3e-4, "sharing.t4": 1e-4}
    monkeypatch.setattr(measuring, "load_calibration", lambda: known)
    assert measuring.sharing(4) == (1e-4, 3e-4)
    assert measuring.sharing(2) is None
    monkeypatch.setattr(measuring, "load_calibration", lambda: None)
    assert measuring.sharing(4) is None
