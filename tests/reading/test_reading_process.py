"""What happens in the process that reads strangers' files stays there: each end of it is one message."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from analyzer.errors import GraphError, ModelError, UsageError
from analyzer.reading import DEFAULT_LIMITS, Limits, Reading, ReadingFaultError, parse_limits

HERE = Path(__file__).parent
SHORT = Limits(time=1.0)
SMALL = Limits(memory=200 * 2**20)


@pytest.fixture
def process(monkeypatch: pytest.MonkeyPatch) -> Iterator[Reading]:
    monkeypatch.setenv("PYTHONPATH", str(HERE))
    process = Reading("misbehaving")
    yield process
    process.end()


def ask(process: Reading, name: str, limits: Limits = DEFAULT_LIMITS, **arguments: object) -> object:
    return process.ask(name, arguments, limits, subject="'strange.onnx'")


def test_what_a_handler_gives_comes_back(process: Reading) -> None:
    assert ask(process, "echo", value={"shape": [1, None], "data": b"\x00\xff"}) == {
        "shape": [1, None],
        "data": b"\x00\xff",
    }


def test_one_process_answers_many_requests(process: Reading) -> None:
    assert ask(process, "number") == ask(process, "number") != os.getpid()


def test_an_error_of_the_users_is_raised_as_it_is(process: Reading) -> None:
    with pytest.raises(GraphError, match="node 'x' cannot be") as caught:
        ask(process, "refuse")
    assert caught.value.hint == "mend it"


def test_what_no_check_foresaw_is_a_message_too_and_keeps_its_traceback(process: Reading) -> None:
    with pytest.raises(ModelError, match=r"^'strange\.onnx' cannot be read .KeyError: 'axis'") as caught:
        ask(process, "fail")
    assert isinstance(caught.value.__cause__, ReadingFaultError)
    assert "misbehaving.py" in str(caught.value.__cause__)
    assert "please report" in (caught.value.hint or "")


def test_a_crash_is_a_message_that_names_file_signal_and_place(process: Reading) -> None:
    first = ask(process, "number")
    with pytest.raises(ModelError, match=r"^'strange\.onnx' .*SIGSEGV.*node 'a' \(Conv\)"):
        ask(process, "segfault", place="node 'a' (Conv)")
    assert ask(process, "number") != first  # another one goes on


def test_the_place_of_an_earlier_request_is_not_blamed(process: Reading) -> None:
    with pytest.raises(ModelError, match="node 'slow'"):
        ask(process, "hang", SHORT)
    with pytest.raises(ModelError) as caught:
        ask(process, "abort")
    assert "slow" not in caught.value.message


def test_an_abort_is_said_to_be_what_it_mostly_is(process: Reading) -> None:
    with pytest.raises(ModelError, match=r"aborted.*memory"):
        ask(process, "abort")


@pytest.mark.parametrize("name", ["hang", "spin"])
def test_what_takes_too_long_is_ended(process: Reading, name: str) -> None:
    running = ask(process, "number")
    with pytest.raises(ModelError, match=r"more than 1 s to read") as caught:
        ask(process, name, SHORT)
    assert "--limit time=" in (caught.value.hint or "")
    assert isinstance(running, int)
    assert not psutil.pid_exists(running)


@pytest.mark.skipif(sys.platform != "linux", reason="the system keeps the limit on Linux alone")
def test_what_takes_too_much_memory_is_refused(process: Reading) -> None:
    with pytest.raises(ModelError, match="more than 210 MB of memory") as caught:
        ask(process, "grow", SMALL)
    assert "--limit memory=" in (caught.value.hint or "")
    assert ask(process, "grow", Limits(memory=2**31)) == 600 * 2**20  # the option that the hint names


def test_a_process_that_died_meanwhile_is_no_error(process: Reading) -> None:
    first = ask(process, "number")
    assert isinstance(first, int)
    os.kill(first, signal.SIGKILL)
    psutil.Process(first).wait(timeout=30)
    assert ask(process, "number") != first


@pytest.mark.skipif(sys.platform != "linux", reason="a parent's death is told on Linux alone")
@pytest.mark.parametrize("forked", [True, False])
def test_it_does_not_outlive_its_parent(forked: bool) -> None:
    program = (
        "import os, signal, misbehaving\n"
        "from analyzer.reading import DEFAULT_LIMITS\n"
        "from analyzer.reading import Reading\n"
        "process = Reading('misbehaving')\n"
        f"if {forked}: process.fork(misbehaving.HANDLERS)\n"
        "print(process.ask('number', {}, DEFAULT_LIMITS, subject='x'), flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": str(HERE)},
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    number = int(ended.stdout)
    assert ended.returncode == -signal.SIGKILL
    with contextlib.suppress(psutil.NoSuchProcess):
        psutil.Process(number).wait(timeout=30)
    assert not psutil.pid_exists(number)


def test_limits_are_raised_by_name() -> None:
    assert parse_limits(["memory=8GB, time=5min", "nodes=2000000"]) == Limits(
        memory=8 * 10**9, time=300.0, nodes=2_000_000
    )
    assert parse_limits(["folded=64MiB"]).folded == 64 * 2**20


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("memroy=1GB", "Did you mean memory"),
        ("memory", "memory"),
        ("memory=0", "8GB"),
        ("nodes=many", "1000000"),
        ("nodes=1e9", "1000000"),
        ("nodes=5GB", "1000000"),
        ("time=-1s", "20ms"),
        ("depth=" + "9" * 5000, "1000000"),
    ],
)
def test_a_limit_that_is_none_is_refused(text: str, said: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_limits([text])
    assert said in f"{caught.value.message} {caught.value.hint}"
