"""The outer side: asks a process to work on a stranger's file, and says in one sentence how that ended.

The process is forked where that is safe (the command line, before any thread is there): it then has all modules
and costs some milliseconds. Elsewhere a new interpreter is started once and asked again and again.
"""

from __future__ import annotations

import atexit
import contextlib
import mmap
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import msgspec

from analyzer import errors
from analyzer.errors import AnalyzerError, ModelError
from analyzer.isolation import whereabouts
from analyzer.isolation.child import (
    DONE,
    OUT_OF_MEMORY,
    REFUSED,
    Handlers,
    die_with_parent,
    serve,
)
from analyzer.isolation.limits import Limits
from analyzer.units import byte_count

# File descriptors are not handed on to an interpreter on Windows.
IS_ISOLATED = sys.platform != "win32"
# Between looks at the memory of a process, where the system does not keep the limit.
_LOOK_EVERY_S = 0.2


class IsolatedFaultError(Exception):
    """What a handler raised that is no message for users; the text is its traceback in the other process."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Running:
    """A process that has begun.

    Attributes:
        connection: To it.
        pid: Its number.
        owner: The process that began it.
        place: What it notes of where it is.
        interpreter: It, where it is a new interpreter and no fork.
    """

    connection: Connection
    pid: int
    owner: int
    place: mmap.mmap
    interpreter: subprocess.Popen[bytes] | None = None

    def is_alive(self) -> bool:
        """Whether it can be asked."""
        # It says nothing unasked: what can be read is its end.
        return not self.connection.poll(0)

    def where(self) -> str:
        """Where it is, as the end of a sentence."""
        place = whereabouts.last_place(self.place)
        return f", at {place}" if place else ""

    def kill(self) -> None:
        """Ends it at once."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        self.exit_status()

    def exit_status(self) -> int:
        """Its exit status, waited for; a signal's number is negative."""
        self.connection.close()
        if self.interpreter is not None:
            return self.interpreter.wait()
        try:
            return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        except ChildProcessError:  # somebody else waited for it
            return 0


def _is_alone() -> bool:
    """Whether this process has no other thread, of native libraries neither."""
    try:
        return len(os.listdir("/proc/self/task")) == 1
    except OSError:
        return False  # not known here


class NotRunningError(Exception):
    """Nobody has begun the process, or it has ended."""


class IsolatedProcess:
    """A process that answers requests, begun at the first one and again after each end of it.

    Args:
        module: What a new interpreter runs (``python -m MODULE CONNECTION WHEREABOUTS``, two file descriptors).
    """

    def __init__(self, module: str) -> None:
        self._module = module
        self._lock = threading.Lock()
        self._process: _Running | None = None
        self._here: Handlers = {}

    def fork(self, handlers: Handlers) -> None:
        """Begins it as a copy of this process; only where no other thread is there, else nothing is done."""
        if not IS_ISOLATED or self._running() or threading.active_count() > 1:
            return
        if "torch" in sys.modules and not _is_alone():
            return  # its threads may hold a lock at that moment
        place = whereabouts.shared_memory()
        ours, theirs = Pipe()
        with warnings.catch_warnings():
            # Python 3.12 warns of threads that native libraries have; the child calls none of what they do.
            warnings.simplefilter("ignore", DeprecationWarning)
            pid = os.fork()
        if pid == 0:
            try:
                ours.close()
                die_with_parent()
                whereabouts.tell_in(place)
                serve(theirs, handlers)
            finally:
                os._exit(0)  # nothing of the parent's is to be flushed or tidied here
        theirs.close()
        self._began(_Running(connection=ours, pid=pid, owner=os.getpid(), place=place))

    def without_isolation(self, handlers: Handlers) -> None:
        """Says what answers on a system without such processes (Windows): the handlers, without limits."""
        self._here = handlers

    def _start(self) -> _Running:
        ours, theirs = Pipe()
        with tempfile.TemporaryFile() as file:
            file.truncate(whereabouts.SIZE)
            place = whereabouts.shared_memory(file.fileno())
            inherited = (theirs.fileno(), file.fileno())
            interpreter = subprocess.Popen(
                # -P: a file of the user's working folder must not stand in for a module.
                [sys.executable, "-P", "-m", self._module, *map(str, inherited)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=inherited,
                env=child_environment(),
            )
        theirs.close()
        pid, owner = interpreter.pid, os.getpid()
        return self._began(
            _Running(connection=ours, pid=pid, owner=owner, place=place, interpreter=interpreter)
        )

    def _began(self, process: _Running) -> _Running:
        atexit.unregister(self.end)
        atexit.register(self.end)
        self._process = process
        return process

    def _running(self) -> _Running | None:
        process = self._process
        if process is None:
            return None
        if process.owner != os.getpid():  # this process is a fork of the one that began it
            process.connection.close()
            self._process = None
        elif not process.is_alive():
            self.end()
        return self._process

    def ask(
        self,
        name: str,
        arguments: Mapping[str, Any],
        limits: Limits,
        *,
        subject: str,
        file_bytes: int = 0,
        begins: bool = True,
    ) -> Any:
        """What a handler of the process gives.

        Args:
            name: The handler's.
            arguments: By name; what MessagePack has.
            limits: Memory and time.
            subject: What is read, for messages: "'model.onnx'".
            file_bytes: Where weights are read, the file's size: four times of it may be taken on top.
            begins: Whether the process is begun where it has ended. Not in a thread that does not last: on
                Linux a process dies with the thread that began it.

        Raises:
            NotRunningError: It has ended, and is not to be begun.
            AnalyzerError: The handler raised it; or the process crashed, met a limit, or raised anything else,
                of which the traceback is the cause of this error.
        """
        if not IS_ISOLATED:
            return self._here[name](**arguments)
        with self._lock:
            process = self._running()
            if process is None:
                if not begins:
                    raise NotRunningError
                process = self._start()
            memory = limits.memory + 4 * file_bytes
            try:
                process.place[0] = 0
                request = [name, arguments, memory, limits.time, _working_folder()]
                process.connection.send_bytes(msgspec.msgpack.encode(request))
                kind, value = _answer(process, limits, memory, subject)
            except (EOFError, BrokenPipeError, ConnectionResetError):
                if self._process is process:
                    self._process = None
                raise _death(process, subject, memory) from None
            except BaseException:  # Ctrl-C too: an answer that nobody waits for must not be taken for the next
                self._end_one(process)
                raise
            if kind == OUT_OF_MEMORY:
                self._end_one(process)
                raise _out_of_memory(process, subject, memory)
        if kind == DONE:
            return value
        if kind == REFUSED:
            kind_of_error: type[AnalyzerError] = getattr(errors, value[0], ModelError)
            raise kind_of_error(value[1], hint=value[2])
        raise _fault(process, subject, value) from IsolatedFaultError(value)

    def _end_one(self, process: _Running) -> None:
        if self._process is process:  # else it has been ended, and another may have been begun
            self.end()

    def end(self) -> None:
        """Ends it at once; the next request begins another."""
        process, self._process = self._process, None
        if process is not None and process.owner == os.getpid():
            process.kill()


# The one such process of a program. Its handlers belong to ``loading``; it stands here so that rooms beside
# that one can ask as well.
READING = IsolatedProcess("analyzer.loading.reading_process")


def _working_folder() -> bytes | None:
    try:
        return os.getcwdb()
    except OSError:  # it was deleted
        return None


def _answer(process: _Running, limits: Limits, memory: int, subject: str) -> Any:
    deadline = time.monotonic() + limits.time
    watched = sys.platform != "linux"
    while True:
        left = deadline - time.monotonic()
        if process.connection.poll(max(0.0, min(left, _LOOK_EVERY_S) if watched else left)):
            return msgspec.msgpack.decode(process.connection.recv_bytes())
        if time.monotonic() >= deadline:
            raise ModelError(
                f"{subject} takes more than {limits.time:g} s to read{process.where()}.",
                hint="If it is a model that you trust, raise the limit: --limit time=10min.",
            )
        if watched and _resident_bytes(process.pid) > memory:
            raise _out_of_memory(process, subject, memory)


def _fault(process: _Running, subject: str, traceback: str) -> ModelError:
    """What no check foresaw: of a stranger's file most likely the file, of a good one a fault of ours."""
    last = traceback.strip().splitlines()[-1][:200]
    return ModelError(
        f"{subject} cannot be read{process.where()} ({last}).",
        hint="If ONNX Runtime runs the model, this is a fault of analyze: please report it with the model.",
    )


def _out_of_memory(process: _Running, subject: str, memory: int) -> ModelError:
    return ModelError(
        f"{subject} takes more than {byte_count(memory)} of memory to read{process.where()}.",
        hint="If it is a model that you trust, raise the limit: --limit memory=8GB.",
    )


def _death(process: _Running, subject: str, memory: int) -> ModelError:
    status = process.exit_status()
    if status == -signal.SIGABRT:  # C++ that gets no memory where it expects none to be lacking
        ended = f"aborted, which native code does where memory ends ({byte_count(memory)} are allowed)"
    elif status < 0:
        ended = f"crashed ({signal.Signals(-status).name})"
    else:
        ended = f"ended early (status {status})"
    return ModelError(
        f"{subject} cannot be read: the library that reads it {ended}{process.where()}.",
        hint="The file is damaged, or made to do harm. Save the model again from where it comes from.",
    )


def child_environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """Variables for an interpreter of ours: this package is found there as it is here."""
    root = str(Path(__file__).resolve().parents[2])
    users = os.environ.get("PYTHONPATH", "")
    # After the user's own entries: a package of theirs is found as in the parent.
    own = {"PYTHONPATH": f"{users}{os.pathsep}{root}" if users else root}
    return {**os.environ, **own, **(extra or {})}


def _resident_bytes(pid: int) -> int:
    import psutil

    try:
        return int(psutil.Process(pid).memory_info().rss)
    except psutil.Error:
        return 0
