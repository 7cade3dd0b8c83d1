"""Profiled and unprofiled runs in turns."""

import itertools
import time
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from analyzer.measurement.noise import SingleThread, Turn, TurnResult, alternate, quieter_half, turns_for
from analyzer.measurement.timing_loops import summarize


class Session:
    """Counts its calls and notes who ran when."""

    def __init__(self, name: str, log: list[str], seconds: float = 0.0) -> None:
        self.name, self.log, self.seconds = name, log, seconds

    def __call__(self) -> None:
        self.log.append(self.name)
        time.sleep(self.seconds)


def in_turns(
    plain: Session | None, profiled: Session, turns: tuple[Turn, ...], **given: Any
) -> tuple[TurnResult, ...]:
    """With a single thread, whose cores are always close."""
    return alternate(plain, profiled, turns, tick=lambda _: None, distance=SingleThread(), **given)


@given(
    st.floats(1e-6, 10),
    st.integers(1, 1000),
    st.floats(0.1, 60),
    st.none() | st.integers(0, 500),
    st.integers(1, 20),
)
def test_turns_hold_what_was_asked_for_whatever_their_number(
    run_s: float, profiled: int, seconds: float, runs: int | None, most: int
) -> None:
    turns = turns_for(run_s, profiled, seconds, runs=runs, most=most)
    assert 1 <= len(turns) <= most
    assert sum(turn.profiled_runs for turn in turns) == profiled
    assert abs(sum(turn.plain.seconds for turn in turns) - seconds) < 1e-6 * seconds
    if runs is not None:
        assert sum(turn.plain.runs for turn in turns) == runs  # type: ignore[misc]


def test_both_kinds_run_in_turns_and_settling_runs_do_not_count() -> None:
    log: list[str] = []
    plain, profiled = Session("plain", log, 0.002), Session("profiled", log, 0.002)
    turns = turns_for(0.002, 9, 1.0, runs=12, most=3)
    taken = in_turns(plain, profiled, turns, run_s=0.002, already=4)
    assert [len(turn.samples) for turn in taken] == [4, 4, 4]
    counted = [number for turn in taken for number in turn.profiled]
    assert len(set(counted)) == 9
    assert 4 not in counted  # the first call of the first turn settles
    assert max(counted) == 4 + log.count("profiled") - 1
    changes = sum(before != after for before, after in itertools.pairwise(log))
    assert changes == 5  # three turns of two kinds


def test_a_long_run_is_not_spent_on_settling() -> None:
    log: list[str] = []
    turns = turns_for(2.0, 2, 4.0, runs=2, most=2)
    taken = in_turns(Session("plain", log), Session("profiled", log), turns, run_s=2.0, already=3)
    assert log == ["profiled", "plain", "profiled", "plain"]
    assert [turn.profiled for turn in taken] == [range(3, 4), range(4, 5)]


def test_without_the_unprofiled_session_the_profiled_runs_are_made_all_the_same() -> None:
    log: list[str] = []
    turns = turns_for(0.2, 5, 1.0, runs=None, most=4)
    taken = in_turns(None, Session("profiled", log), turns, run_s=0.2, already=0)
    assert log == ["profiled"] * 5
    assert not any(turn.samples for turn in taken)


def test_the_quieter_half_is_that_of_the_lower_medians() -> None:
    assert quieter_half([[5, 5, 5], [2, 2, 90], [3], [4, 4]]) == {1, 2}
    assert quieter_half([[3], [1], [2]]) == {1, 2}
    assert quieter_half([[], [7]]) == {1}


@given(st.lists(st.floats(1, 2), min_size=1, max_size=9), st.floats(1.5, 10))
def test_turns_that_were_disturbed_leave_the_latency_alone_while_they_are_fewer(
    quiet: list[float], slower: float
) -> None:
    """A neighbour slows down fewer turns than there are quiet ones."""
    disturbed = [slower * max(quiet)] * ((len(quiet) - 1) // 2)
    turns = [[value] for value in [*disturbed, *quiet]]
    chosen = [turns[number] for number in quieter_half(turns)]
    assert all(one[0] in quiet for one in chosen)


def test_the_interval_holds_what_the_median_leaves_out() -> None:
    latency = summarize([1.0, 1.0, 1.0, 3.0, 3.0, 3.0], warmup_runs=0, method="", undisturbed=[1.0, 1.0, 1.0])
    assert latency.value == 1.0
    assert latency.high == 3.0
    assert latency.runs == 6
