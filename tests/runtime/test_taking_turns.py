"""Profiled and unprofiled runs in turns."""

import itertools
import time

from hypothesis import given
from hypothesis import strategies as st

from analyzer.runtime.alternating import alternate, turns_for


class Session:
    """Counts its calls and notes who ran when."""

    def __init__(self, name, log, seconds=0.0):
        self.name, self.log, self.seconds = name, log, seconds

    def __call__(self):
        self.log.append(self.name)
        time.sleep(self.seconds)


@given(
    st.floats(1e-6, 10),
    st.integers(1, 1000),
    st.floats(0.1, 60),
    st.none() | st.integers(0, 500),
    st.integers(1, 20),
)
def test_turns_hold_what_was_asked_for_whatever_their_number(run_s, profiled, seconds, runs, most):
    turns = turns_for(run_s, profiled, seconds, runs=runs, most=most)
    assert 1 <= len(turns) <= most
    assert sum(turn.profiled_runs for turn in turns) == profiled
    assert abs(sum(turn.plain.seconds for turn in turns) - seconds) < 1e-6 * seconds
    if runs is not None:
        assert sum(turn.plain.runs for turn in turns) == runs


def test_both_kinds_run_in_turns_and_settling_runs_do_not_count():
    log = []
    plain, profiled = Session("plain", log, 0.002), Session("profiled", log, 0.002)
    turns = turns_for(0.002, 9, 1.0, runs=12, most=3)
    taken = alternate(plain, profiled, turns, run_s=0.002, already=4, tick=lambda _: None)
    assert len(taken.samples) == 12
    assert log.count("profiled") == 9 + len(taken.settling)
    changes = sum(before != after for before, after in itertools.pairwise(log))
    assert changes == 5  # three turns of two kinds
    counted = set(range(4, 4 + log.count("profiled"))) - taken.settling
    assert len(counted) == 9
    assert min(taken.settling) == 4  # the first call of the first turn


def test_a_long_run_is_not_spent_on_settling():
    log = []
    turns = turns_for(0.2, 2, 0.4, runs=2, most=2)
    taken = alternate(
        Session("plain", log), Session("profiled", log), turns, run_s=0.2, already=0, tick=lambda _: None
    )
    assert log == ["profiled", "plain", "profiled", "plain"]
    assert not taken.settling


def test_without_the_unprofiled_session_the_profiled_runs_are_made_all_the_same():
    log = []
    turns = turns_for(0.2, 5, 1.0, runs=None, most=4)
    taken = alternate(None, Session("profiled", log), turns, run_s=0.2, already=0, tick=lambda _: None)
    assert log == ["profiled"] * 5
    assert taken.samples == ()
