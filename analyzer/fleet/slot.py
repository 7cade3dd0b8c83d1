"""A place where one model after the other is worked on, each in a process of its own, with a limit on time."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import replace
from typing import Any, BinaryIO, cast

import msgspec

from analyzer.fleet.job import Job, Outcome, failed, job_to_bytes, outcome_from_bytes
from analyzer.fleet.server import LOG_BYTES, receive, send
from analyzer.isolation.process import child_environment
from analyzer.record.fleet import FleetFailure
from analyzer.text import without_controls

# A process that was killed is tried again: another one's hunger for memory may have been why.
_ATTEMPTS = 2
# So often a server may end under a model before that is the model's fault.
_SERVERS = 6


class WorkSlot:
    """A server of processes (``fleet.server``), begun at the first job and again after each end of it.

    Args:
        python: Whether models are Python, for which it imports PyTorch before the first.
        memory: Bytes that a model's process may have; 0 for no limit.
    """

    def __init__(self, *, python: bool, memory: int = 0) -> None:
        self._python = python
        self._memory = memory
        self._server: subprocess.Popen[bytes] | None = None
        self._log: BinaryIO | None = None
        self._closed = self._busy = False
        self._lock = threading.Lock()

    def run(self, job: Job, *, timeout_s: float) -> Outcome:
        """Works on a model; whatever becomes of it is an outcome.

        Args:
            job: The model and its question.
            timeout_s: Seconds after which its process is ended.
        """
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
                self._tidy()
        return outcome

    def close(self) -> None:
        """Ends the server and what runs in it; the job at hand comes to nothing."""
        with self._lock:
            self._closed = True
            # A thread that waits for an answer sees its end, and tidies up: a stream that is closed under it
            # would have it wait for ever.
            self._kill() if self._busy else self._tidy()

    def _once(self, job: Job, timeout_s: float) -> Outcome:
        start = time.perf_counter()
        status, answer = self._asked(job, timeout_s)
        seconds = time.perf_counter() - start
        if answer:
            outcome = outcome_from_bytes(answer)
            return outcome if outcome.model.failure is None else replace(outcome, log=self._printed())
        failure = _timed_out(timeout_s) if status is None else _ended(status)
        return failed(job, failure, seconds=seconds, log=self._printed())

    def _asked(self, job: Job, timeout_s: float) -> tuple[int | None, bytes]:
        """The status of the model's process and its answer; no status where time was up."""
        with self._lock:
            if self._closed:
                return -signal.SIGTERM, b""
            self._busy = True
            before, server = self._server, self._begun()
        assert server.stdin is not None
        assert server.stdout is not None
        assert self._log is not None
        self._log.seek(0)
        self._log.truncate()
        try:
            if server is not before:
                # Importing is nobody's time; a server that ends over it leaves nothing to read.
                receive(cast("BinaryIO", server.stdout))
            send(cast("BinaryIO", server.stdin), job_to_bytes(job))
            if not _readable(server.stdout, timeout_s):
                self._end()
                return None, b""
            message = receive(cast("BinaryIO", server.stdout))
        except OSError:  # the server itself is gone
            message = None
        if message is None:
            status = server.wait()
            self._end()
            return status or -signal.SIGKILL, b""
        if not hasattr(os, "fork"):
            self._end()  # each model has an interpreter of its own there
        found: list[Any] = msgspec.msgpack.decode(message)
        return found[0], found[1]

    def _begun(self) -> subprocess.Popen[bytes]:
        if self._server is None or self._server.poll() is not None:
            self._end()
            if self._log is not None:
                self._log.close()
            self._log = cast("BinaryIO", tempfile.TemporaryFile())  # noqa: SIM115 - as long as the server
            # -P: a file of the working folder must not stand in for a module.
            self._server = subprocess.Popen(
                [
                    *(sys.executable, "-P", "-m", "analyzer.fleet.server"),
                    *(str(self._memory), "python" if self._python else "onnx"),
                ],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._log,
                start_new_session=True,  # Ctrl-C reaches the driver alone, and we end the rest
                env=child_environment(),
            )
        return self._server

    def _tidy(self) -> None:
        self._end()
        if self._log is not None:
            self._log.close()
            self._log = None

    def _end(self) -> None:
        """Ends the server; of the thread that uses it, or where none does."""
        self._kill()
        server, self._server = self._server, None
        if server is None:
            return
        for stream in (server.stdin, server.stdout):
            with contextlib.suppress(OSError):
                assert stream is not None
                stream.close()

    def _kill(self) -> None:
        server = self._server
        if server is None or server.poll() is not None:  # its number may be another's by now
            return
        with contextlib.suppress(ProcessLookupError, PermissionError):
            # The whole session: the model's process, and those that it began.
            os.killpg(server.pid, signal.SIGKILL) if hasattr(os, "killpg") else server.kill()
        server.wait()

    def _printed(self) -> str:
        """The end of what the model's code printed."""
        if self._log is None:
            return ""
        size = self._log.seek(0, os.SEEK_END)
        self._log.seek(max(0, size - LOG_BYTES))
        lines = self._log.read().decode("utf-8", "replace").splitlines()
        return "\n".join(map(without_controls, lines))


def _readable(stream: Any, timeout_s: float) -> bool:
    """Whether something can be read within this time."""
    if sys.platform == "win32":
        return _readable_on_windows(stream, timeout_s)
    with selectors.DefaultSelector() as selector:
        selector.register(stream, selectors.EVENT_READ)
        return bool(selector.select(timeout_s))


def _readable_on_windows(stream: Any, timeout_s: float) -> bool:
    # No pipe can be selected there: a thread waits for the first byte.
    waiting = threading.Thread(target=stream.peek, args=(1,), daemon=True)
    waiting.start()
    waiting.join(timeout_s)
    return not waiting.is_alive()


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
    try:
        name = signal.Signals(-status).name
    except ValueError:
        name = f"signal {-status}"
    hint = "Memory may have run out: fewer at once (`--jobs 1`) leave more for each."
    return FleetFailure(
        kind="killed",
        message=f"Its process was ended by {name}.",
        hint=hint if -status == getattr(signal, "SIGKILL", 9) else "Native code crashed on it.",
    )
