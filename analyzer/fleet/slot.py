"""A place where one model after the other is worked on, each in a process of its own, with a limit on time."""

from __future__ import annotations

import os
import signal
import threading
import time
from dataclasses import replace

import msgspec

from analyzer.fleet.job import Job, Outcome, failed
from analyzer.process import Child, ChildEndedError, fault_of
from analyzer.record.fleet import FleetFailure
from analyzer.text import without_controls

# A process that was killed is tried again: another one's hunger for memory may have been why.
_ATTEMPTS = 2
# So often a server may end under a model before that is the model's fault.
_SERVERS = 6
# The end of what a model's code prints, which a report of its failure shows.
_LOG_BYTES = 8192


class WorkSlot:
    """A server of processes (``fleet.server``), begun at the first job and again after each end of it.

    ``python``: it imports PyTorch before the first. A model's process may have ``memory`` bytes; 0 is no limit.
    """

    def __init__(self, *, python: bool, memory: int = 0) -> None:
        self._arguments = (str(memory), "python" if python else "onnx")
        self._server: Child | None = None
        self._closed = self._busy = False
        self._lock = threading.Lock()

    def run(self, job: Job, *, timeout_s: float) -> Outcome:
        """Work on a model for ``timeout_s`` at most; whatever becomes of it is an outcome."""
        attempts = servers = 0
        while True:
            outcome = self._once(job, timeout_s)
            failure = outcome.model.failure
            # Its own process ended, or the server and with it any process.
            attempts += self._server is not None
            servers += self._server is None
            exhausted = attempts >= _ATTEMPTS or servers >= _SERVERS
            if failure is None or failure.kind != "killed" or exhausted or self._closed:
                break
        with self._lock:
            self._busy = False
            if self._closed:
                self._end()
        return outcome

    def close(self) -> None:
        """Ends the server and what runs in it; the job at hand comes to nothing."""
        with self._lock:
            self._closed = True
            # A thread that waits for an answer sees its end, and tidies up.
            if not self._busy:
                self._end()
            elif self._server is not None:
                self._server.kill()

    def _once(self, job: Job, timeout_s: float) -> Outcome:
        start = time.perf_counter()
        with self._lock:
            if self._closed:
                return failed(job, _ended(-signal.SIGTERM), seconds=0.0, log="")
            self._busy = True
            is_new = self._server is None or not self._server.is_alive()
            if is_new:
                self._end()
                self._server = Child.start("analyzer.fleet.server", *self._arguments)
            server = self._server
        assert server is not None
        assert server.log is not None
        answer, is_over = b"", not hasattr(os, "fork")  # each model has an interpreter of its own there
        failure = None
        try:
            if is_new:
                server.receive()  # importing is no model's time
            server.log.seek(0)
            server.log.truncate()
            server.send(msgspec.msgpack.encode(job))
            status, answer = server.receive(timeout_s)
            failure = None if answer else _ended(status)
        except ChildEndedError as ended:  # the server itself is gone
            failure, is_over = _ended(ended.status or -signal.SIGKILL), True
            if ended.reason == "time":
                failure = _timed_out(timeout_s)
        seconds = time.perf_counter() - start
        log = "\n".join(map(without_controls, server.printed(_LOG_BYTES).splitlines()))
        if is_over:
            self._end()
        if failure is not None:
            return failed(job, failure, seconds=seconds, log=log)
        outcome = msgspec.msgpack.decode(answer, type=Outcome)
        return outcome if outcome.model.failure is None else replace(outcome, log=log)

    def _end(self) -> None:
        """End the server; of the thread that uses it, or where none does."""
        server, self._server = self._server, None
        if server is not None:
            server.close()


def _timed_out(timeout_s: float) -> FleetFailure:
    return FleetFailure(
        kind="timeout",
        message=f"It gave no answer within {timeout_s:g} s.",
        hint="A longer --timeout gives it more time.",
    )


def _ended(status: int) -> FleetFailure:
    if status >= 0:
        return FleetFailure(
            kind="killed",
            message=f"Its process ended with status {status} before it answered.",
            hint="The model's own code may end it: `analyze` on it alone shows what it prints.",
        )
    name = fault_of(status)
    hint = "Memory may have run out: fewer at once (`--jobs 1`) leave more for each."
    return FleetFailure(
        kind="killed",
        message=f"Its process was ended by {name}.",
        hint=hint if name == "SIGKILL" else "Native code crashed on it.",
    )
