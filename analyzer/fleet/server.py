"""``python -m analyzer.fleet.server BYTES onnx|python``: imports once, then forks a process for each model.

What is heavy to import (PyTorch first of all) is imported here, before the first model; each model has a
process of its own, a copy of this one, so that none meets what another left behind. A message is a job, the
answer to it the exit status of the model's process and its outcome.
"""

from __future__ import annotations

import gc
import os
import sys
from contextlib import suppress

import msgspec

from analyzer.errors import LibraryError
from analyzer.fleet.job import Job
from analyzer.fleet.work import work
from analyzer.process import SELDOM, Channel, Child, ChildEndedError, limit_memory, run_as_child

# The first message: from now on a model's time counts.
READY = "ready"


def serve(channel: Channel, memory: int, *, python: bool) -> None:
    """Answer jobs until the other side goes away.

    A model's process may have ``memory`` bytes of its own; 0 is no limit. ``python``: models are Python, whose
    export needs PyTorch.
    """
    # What cannot be imported fails where it is needed, with the message of that place.
    with suppress(ImportError, LibraryError):
        _import_before_the_first(python=python)
    gc.collect()
    gc.freeze()  # nothing of it is garbage, and looking at it would copy its memory
    channel.send(READY)
    with suppress(EOFError):
        while True:
            job = channel.receive()
            # Where no process can be forked (Windows), the driver starts an interpreter for each model.
            channel.send(_answer_apart(job, memory) if hasattr(os, "fork") else [0, _outcome(job)])


def _import_before_the_first(*, python: bool) -> None:
    import onnx_ir  # noqa: F401

    from analyzer.decision.min_cut import import_solver
    from analyzer.loading import torch_private
    from analyzer.report import html  # noqa: F401

    import_solver()
    if python:
        torch_private.import_exporter()


def _answer_apart(job: bytes, memory: int) -> list[object]:
    """Return the exit status of the model's process (negative: a signal), and its answer or nothing."""

    def answer(channel: Channel) -> None:
        if memory:
            limit_memory(memory)
        gc.set_threshold(*SELDOM)
        channel.send(_outcome(job))

    child = Child.fork(answer, log=False)
    try:
        outcome = child.receive()
        return [child.wait(), outcome]
    except ChildEndedError as ended:
        return [ended.status, b""]
    finally:
        child.close()


def _outcome(content: bytes) -> bytes:
    return msgspec.msgpack.encode(work(msgspec.msgpack.decode(content, type=Job)))


if __name__ == "__main__":
    sys.dont_write_bytecode = True  # a model's folder stays as it is
    run_as_child(lambda channel: serve(channel, int(sys.argv[1]), python=sys.argv[2] == "python"))
