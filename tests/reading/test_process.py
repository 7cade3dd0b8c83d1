"""A child process: what it sends arrives, and each way in which it can end is told apart."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from analyzer import process
from analyzer.process import Channel, Child, ChildEndedError

MODULE = """
import os, subprocess, sys, time
{before}
from analyzer.process import run_as_child

def main(channel):
    {body}

if __name__ == "__main__":
    run_as_child(main)
"""


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Child]]:
    children: list[Child] = []
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))

    def start(body: str, before: str = "") -> Child:
        (tmp_path / "working_child.py").write_text(MODULE.format(body=body, before=before))
        children.append(Child.start("working_child"))
        return children[-1]

    yield start
    for child in children:
        child.close()


def ended(child: Child, timeout_s: float = 600) -> ChildEndedError:
    with pytest.raises(ChildEndedError) as caught:
        child.receive(timeout_s)
    assert not child.is_alive()
    return caught.value


def test_messages_of_any_size_go_both_ways(start: Callable[..., Child]) -> None:
    child = start("while True: channel.send(channel.receive())")
    for message in (None, [1, 2.5, {"a": b"\0\xff"}], b"\0analyzer\0" * 1000, os.urandom(5 * 2**20)):
        child.send(message)
        assert child.receive(600) == message


def test_what_was_sent_before_a_crash_arrives(start: Callable[..., Child]) -> None:
    child = start("channel.send('first'); channel.send('second'); os.kill(os.getpid(), 11)")
    assert [child.receive(600), child.receive(600)] == ["first", "second"]
    assert (ended(child).status, ended(child).fault, ended(child).reason) == (-11, "SIGSEGV", "exit")


def test_half_a_message_is_none(start: Callable[..., Child]) -> None:
    assert ended(start("os.write(channel._target, b'\\0analyzer\\0' + b'\\x09' * 8); sys.exit(3)")).status == 3


def test_what_is_no_message_ends_the_child(
    start: Callable[..., Child], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "_EXIT_S", 0.1)
    child = start(r"os.write(channel._target, b'\0analyzer\0' + b'\1' + b'\0' * 7 + b'\xc1'); time.sleep(600)")
    assert ended(child).fault == "SIGKILL"


def test_a_hang_is_ended_in_time_and_what_it_started_with_it(start: Callable[..., Child]) -> None:
    child = start("channel.send(subprocess.Popen(['sleep', '600']).pid); time.sleep(600)")
    grandchild = child.receive(600)
    assert ended(child, 0.3).reason == "time"
    assert gone(grandchild)


def test_a_process_that_outlives_the_child_does_not_hold_the_channel(start: Callable[..., Child]) -> None:
    child = start("channel.send(os.fork() or (time.sleep(600), 0)[1]); os._exit(5)")
    grandchild = child.receive(600)
    begun = time.monotonic()
    assert ended(child).status == 5
    assert time.monotonic() - begun < 60  # seconds; the process that holds it sleeps for 600
    psutil.Process(grandchild).kill()


def test_what_is_printed_goes_to_the_log(start: Callable[..., Child]) -> None:
    child = start(
        "print('inside', flush=True); os.system('echo native'); channel.send(1)",
        before="print('before the channel is there', flush=True)",
    )
    assert child.receive(600) == 1
    child.wait(600)
    assert child.printed(1000).split() == ["inside", "native"]


def test_a_forked_child_does_the_same() -> None:
    program = (
        "import os, sys\n"
        "from analyzer.process import Child, ChildEndedError\n"
        "def main(channel): channel.send(channel.receive() + 1); os.kill(os.getpid(), 9)\n"
        "child = Child.fork(main)\n"
        "child.send(1)\n"
        "print(child.receive())\n"
        "try: child.receive()\n"
        "except ChildEndedError as error: print(error.fault)\n"
        "child.close()\n"
    )
    done = subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, check=True)
    assert done.stdout.split() == ["2", "SIGKILL"]


def test_a_fork_of_the_parent_leaves_the_child_alone(start: Callable[..., Child]) -> None:
    child = start("while True: channel.send(channel.receive())")
    number = os.fork()
    if number == 0:
        child.close()
        os._exit(int(child.is_alive()))
    assert os.waitpid(number, 0)[1] == 0
    child.send("still there")
    assert child.receive(600) == "still there"


def test_a_message_that_cannot_be_sent_is_a_fault_of_ours() -> None:
    with pytest.raises(NotImplementedError):
        Channel(0, 1).send(object())


def gone(pid: int) -> bool:
    try:
        process = psutil.Process(pid)
        process.wait(60)
    except psutil.NoSuchProcess:
        return True
    except psutil.TimeoutExpired:
        return False
    return True
