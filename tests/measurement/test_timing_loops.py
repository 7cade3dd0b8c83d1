"""Warm-up, adaptive runs and summaries, on a clock that the test holds."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzer.measurement.timing_loops import (
    Budget,
    is_steady,
    median,
    quantile,
    relative_error,
    rest,
    summarize,
    timed_runs,
    warm_up,
)


class Clock:
    """A clock on which every call takes the next duration of a list, the last one for ever."""

    def __init__(self, *durations: float) -> None:
        self.now = 0.0
        self.durations = list(durations)
        self.calls = 0

    def __call__(self) -> float:
        return self.now

    def call(self) -> None:
        self.calls += 1
        self.now += self.durations.pop(0) if len(self.durations) > 1 else self.durations[0]


def test_warm_up_goes_on_until_runs_get_no_faster() -> None:
    clock = Clock(9.0, 5.0, 3.0, 2.0, 1.5, 1.2, 1.0)
    samples = warm_up(clock.call, Budget(seconds=1000), clock=clock)
    assert samples[0] == 9.0
    assert samples[-1] == 1.0
    assert is_steady(samples)


def test_warm_up_stops_at_its_budget() -> None:
    clock = Clock(*(100 * 0.8**n for n in range(60)))
    samples = warm_up(clock.call, Budget(seconds=300), clock=clock)
    assert 3 <= len(samples) < 8


def test_two_runs_warm_up_where_one_alone_exceeds_the_budget() -> None:
    clock = Clock(50.0, 52.0, 30.0)
    assert warm_up(clock.call, Budget(seconds=10), clock=clock) == [50.0, 52.0]


@pytest.mark.parametrize(
    ("spins_s", "least_s", "most_s"), [(0.0, 0.0, 0.03), (0.04, 0.04, 0.08), (9e9, 0.2, 0.3)]
)
def test_runs_begin_when_no_thread_of_the_last_session_spins_or_never_will_stop(
    monkeypatch: pytest.MonkeyPatch, spins_s: float, least_s: float, most_s: float
) -> None:
    """A thread that spins for so long after the last run takes processor time for as long."""
    clock = Clock(0.0)
    monkeypatch.setattr(time, "process_time", lambda: min(clock.now, spins_s))
    monkeypatch.setattr(time, "sleep", lambda seconds: setattr(clock, "now", clock.now + seconds))
    rest()
    assert least_s <= clock.now <= most_s


def test_the_number_of_runs_asked_for_is_kept() -> None:
    clock = Clock(2.0)
    assert len(timed_runs(clock.call, Budget(seconds=1, runs=13), clock=clock)) == 13


def test_runs_stop_at_the_budget() -> None:
    clock = Clock(1.0, 2.0, 1.0, 3.0, 1.0, 2.0, 4.0, 1.0)
    timed_runs(clock.call, Budget(seconds=6), clock=clock)
    assert 6 <= clock.now <= 10


def test_a_slow_model_still_gets_a_few_runs() -> None:
    clock = Clock(8.0)
    assert 2 <= len(timed_runs(clock.call, Budget(seconds=6), clock=clock)) <= 5


def test_a_model_without_noise_needs_no_more_than_is_enough() -> None:
    clock = Clock(0.001)
    samples = timed_runs(clock.call, Budget(seconds=1000, least_seconds=0.01), clock=clock)
    assert 50 <= len(samples) <= 200


def test_a_noisy_model_gets_more_runs_than_a_quiet_one() -> None:
    noisy = Clock(*([0.001, 0.002] * 5000))
    runs = len(timed_runs(noisy.call, Budget(seconds=5, least_seconds=0.01), clock=noisy))
    assert runs > 200


def test_the_clock_is_told_about_progress() -> None:
    clock = Clock(0.05)
    told: list[float] = []
    timed_runs(clock.call, Budget(seconds=2, runs=40), clock=clock, tick=told.append)
    assert told
    assert told == sorted(told)
    assert told[-1] <= 1


def test_quantiles_by_hand() -> None:
    assert median([3, 1, 2]) == 2
    assert quantile([0, 10], 0.25) == 2.5
    with pytest.raises(ValueError, match="no values"):
        median([])


@given(st.lists(st.floats(1e-6, 10), min_size=1, max_size=50), st.floats(0, 1))
def test_intervals_hold_their_median_and_widen_with_contention(samples: list[float], contention: float) -> None:
    quiet = summarize(samples, warmup_runs=3, method="")
    busy = summarize(samples, warmup_runs=3, method="", contention=contention)
    assert busy.low <= quiet.low <= quiet.value <= quiet.high <= busy.high
    assert quiet.low <= quiet.value * 0.98 * (1 + 1e-12)
    assert quiet.high >= quiet.value * 1.02 * (1 - 1e-12)


def test_threads_that_wait_for_each_other_may_have_made_runs_three_times_as_long() -> None:
    """Three models on two cores: beside others, beside nobody, and the share that lacked on their pages."""
    for beside, quiet, lacked in ((0.412, 0.157, 0.7), (0.360, 0.134, 0.85), (0.282, 0.140, 0.76)):
        found = summarize([beside] * 20, warmup_runs=3, method="", contention=lacked, threads=2)
        assert found.low <= quiet
        alone = summarize([beside] * 20, warmup_runs=3, method="", contention=lacked)
        assert alone.low > found.low


def test_threads_that_shared_badly_may_have_made_runs_longer_or_shorter() -> None:
    """A convolution of 8 ms took 6.2 on cores without a common cache, one of 0.6 ms took 0.9."""
    for here, there in ((6.2, 8.0), (0.9, 0.6)):
        found = summarize([here] * 50, warmup_runs=3, method="", sharing=1.7)
        assert found.low <= there <= found.high
        assert found.value == here


def test_the_error_of_a_median_falls_with_the_root_of_the_runs() -> None:
    few, many = [1.0, 2.0] * 8, [1.0, 2.0] * 32
    assert relative_error(few) / relative_error(many) == pytest.approx(2, rel=0.01)


def test_the_interval_of_few_runs_is_wider_than_their_spread() -> None:
    one, two, many = (summarize([2.0] * runs, warmup_runs=0, method="") for runs in (1, 2, 50))
    assert one.high - one.low > 2 * (many.high - many.low)
    assert one.high > two.high > many.high > 2.0
