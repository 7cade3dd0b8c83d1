"""``python -m analyzer.fleet.server BYTES onnx|python``: imports once, then forks a process for each model.

What is heavy to import (PyTorch first of all) is imported here, before the first model; each model has a
process of its own, a copy of this one, so that none meets what another left behind. Jobs come on standard
input, answers go to standard output, each behind its length.
"""

from __future__ import annotations

import gc
import os
import select
import signal
import struct
import sys
from contextlib import suppress
from typing import BinaryIO

import msgspec

from analyzer.fleet.job import job_from_bytes, outcome_to_bytes
from analyzer.fleet.work import work
from analyzer.isolation.child import SELDOM, die_first_when_memory_ends, die_with_parent

_LENGTH = struct.Struct("<Q")
# Between looks at whether a model's process is still there.
_LOOK_EVERY_S = 0.2
# Bytes of what a model's code prints that are kept.
LOG_BYTES = 8192


# The first message: from now on a model's time counts.
READY = b"ready"


def send(stream: BinaryIO, content: bytes) -> None:
    """Writes a message: its length, then itself."""
    stream.write(_LENGTH.pack(len(content)) + content)
    stream.flush()


def receive(stream: BinaryIO) -> bytes | None:
    """The next message; None where the other side is gone."""
    head = stream.read(_LENGTH.size)
    if len(head) < _LENGTH.size:
        return None
    (length,) = _LENGTH.unpack(head)
    content = stream.read(length)
    return content if len(content) == length else None


def main(memory: int, *, python: bool) -> None:
    """Serves jobs until standard input ends.

    Args:
        memory: Bytes of its own that a model's process may have; 0 for no limit.
        python: Whether models are Python, whose export needs PyTorch.
    """
    die_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole terminal: the driver ends us
    requests, answers = _streams()
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")  # its C++ parts warn on standard error
    # What cannot be imported fails where it is needed, with the message of that place.
    with suppress(ImportError):
        _import_before_the_first(python=python)
    gc.collect()
    gc.freeze()  # nothing of it is garbage, and looking at it would copy its memory
    send(answers, READY)
    while (content := receive(requests)) is not None:
        send(answers, _answer_apart(content, memory) if hasattr(os, "fork") else _answer_here(content))


def _streams() -> tuple[BinaryIO, BinaryIO]:
    """Where jobs come from and answers go to; a model's code gets neither."""
    requests, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    return requests, answers


def _import_before_the_first(*, python: bool) -> None:
    import onnx_ir  # noqa: F401

    from analyzer.decision.min_cut import import_solver
    from analyzer.loading import torch_private
    from analyzer.report import html  # noqa: F401

    import_solver()
    if python:
        torch_private.import_exporter()


def _answer_here(content: bytes) -> bytes:
    """Where no process can be forked (Windows): the driver starts an interpreter for each model."""
    return msgspec.msgpack.encode([0, _outcome(content)])


def _answer_apart(content: bytes, memory: int) -> bytes:
    """The exit status of the model's process (negative: a signal) and its answer, which may be cut short."""
    ours, theirs = os.pipe()
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            os.close(ours)
            die_with_parent()
            die_first_when_memory_ends()
            _limit_memory(memory)
            gc.set_threshold(*SELDOM)
            with os.fdopen(theirs, "wb") as answer:
                send(answer, _outcome(content))
            status = 0
        finally:
            os._exit(status)  # nothing of the server's is to be flushed or tidied here
    os.close(theirs)
    outcome, ended = None, 0
    with os.fdopen(ours, "rb") as answer:
        # A process that the model began may hold the pipe open for longer than the model's own lives.
        while not ended and not _can_be_read(answer, _LOOK_EVERY_S):
            ended, code = os.waitpid(pid, os.WNOHANG)
        if not ended or _can_be_read(answer, 0.0):
            outcome = receive(answer)
    if not ended:
        _, code = os.waitpid(pid, 0)
    return msgspec.msgpack.encode([os.waitstatus_to_exitcode(code), outcome or b""])


def _can_be_read(stream: BinaryIO, within_s: float) -> bool:
    """Whether there is something to read, or its end, within this time."""
    return bool(select.select([stream], [], [], within_s)[0])


def _limit_memory(memory: int) -> None:
    """Has what asks for more fail in its own process, before the machine ends whichever it finds."""
    if memory and sys.platform == "linux":  # elsewhere the system does not keep the limit
        import resource

        _, most = resource.getrlimit(resource.RLIMIT_DATA)
        resource.setrlimit(resource.RLIMIT_DATA, (memory if most < 0 else min(memory, most), most))


def _outcome(content: bytes) -> bytes:
    return outcome_to_bytes(work(job_from_bytes(content)))


if __name__ == "__main__":
    sys.dont_write_bytecode = True  # a model's folder stays as it is
    main(int(sys.argv[1]), python=sys.argv[2] == "python")
