"""Run a module of this package in a child process, and report how that ended.

Who may send what to whom:

- Reading: a child parses a stranger's file within limits. The file may take the child over, so this process
  decodes nothing but MessagePack from it, never a pickle.
- Measuring and applying: the model is the user's own. The child bounds its crash, its hang and its memory.
- Fleets: a server imports PyTorch once and forks a child for each model, whose code is the user's own.
- No child is a sandbox: it has the rights of the user. None imports from the working folder (``-P``), and on
  Linux none outlives the thread that started it.

Messages are MessagePack behind their length, on the child's standard input and output; both are closed to the
code that runs there.
"""

from __future__ import annotations

import contextlib
import math
import mmap
import os
import queue
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Literal, cast

import msgspec

SELDOM = (500_000, 50, 100)
"""When to look for garbage (Python 3.11's own are 700, 10, 10): a graph is many things that all live on."""

# Before each message: a start-up file of the user's may print before the channel is ours.
_MARK = b"\0analyzer\0"
_LENGTH = struct.Struct("<Q")
_CHUNK_BYTES = 2**20
# Between two looks at whether a child lives, and where the system does not limit its memory, at that.
_INTERVAL_S = 0.2
# A child that has closed its channel gets so long to exit.
_EXIT_S = 10.0
# Windows ends a process that faults with an NTSTATUS of severity "error" (0xC0000005: access violation).
_NTSTATUS_ERROR = 0xC0000000
_PLACE_BYTES = 1024


class ChildEndedError(Exception):
    """The end of a child from which a message was awaited; it is dead.

    Attributes:
        status: Its exit status; a negative one is a signal's number.
        reason: ``time`` or ``memory`` where it was killed for that, else ``exit``.
    """

    def __init__(self, status: int, reason: Literal["exit", "time", "memory"]) -> None:
        super().__init__(status, reason)
        self.status = status
        self.reason = reason

    @property
    def fault(self) -> str:
        """Return the signal or the NTSTATUS that ended it; empty where it exited."""
        return fault_of(self.status)


def fault_of(status: int) -> str:
    """Return the name of the signal, or the NTSTATUS, of an exit status: ``SIGSEGV``; empty for any other."""
    if status < 0:
        try:
            return signal.Signals(-status).name
        except ValueError:
            return f"signal {-status}"
    return f"{status:#x}" if status >= _NTSTATUS_ERROR else ""


class Channel:
    """Messages between two processes.

    Args:
        source, target: File descriptors, which it owns.
    """

    def __init__(self, source: int, target: int) -> None:
        self._source = source
        self._target = target
        self._buffer = bytearray()
        self._chunks: queue.SimpleQueue[bytes] | None = None

    def send(self, message: object) -> None:
        """Send a message of lists, mappings, texts, numbers and bytes.

        Raises:
            OSError: The other side is gone.
        """
        content = msgspec.msgpack.encode(message, enc_hook=_number)
        view = memoryview(_MARK + _LENGTH.pack(len(content)) + content)
        while view:
            view = view[os.write(self._target, view) :]

    def receive(self, timeout_s: float = math.inf) -> Any:
        """Return the next message.

        Raises:
            EOFError: The other side is gone, or sends what is no message.
            TimeoutError: It sends none within this time; what it has sent of one is not lost.
        """
        deadline = time.monotonic() + timeout_s
        while True:
            start = self._buffer.find(_MARK)
            del self._buffer[: start if start >= 0 else max(0, len(self._buffer) + 1 - len(_MARK))]
            begin = len(_MARK) + _LENGTH.size
            if len(self._buffer) >= begin:
                end = begin + _LENGTH.unpack_from(self._buffer, len(_MARK))[0]
                if len(self._buffer) >= end:
                    content = bytes(self._buffer[begin:end])
                    del self._buffer[:end]
                    try:
                        return msgspec.msgpack.decode(content)
                    except msgspec.DecodeError:
                        raise EOFError from None
            chunk = self._chunk(None if timeout_s == math.inf else max(0.0, deadline - time.monotonic()))
            if not chunk:
                raise EOFError
            self._buffer += chunk

    def _chunk(self, timeout_s: float | None) -> bytes:
        """Return some bytes; none where the other side is gone."""
        if sys.platform == "win32":  # where no pipe can be waited for with a time limit: a thread reads
            if self._chunks is None:
                self._chunks = queue.SimpleQueue()
                threading.Thread(target=self._read_all, args=(self._chunks,), daemon=True).start()
            try:
                return self._chunks.get(timeout=timeout_s)
            except queue.Empty:
                raise TimeoutError from None
        from multiprocessing.connection import wait

        if not wait([self._source], timeout_s):
            raise TimeoutError
        return os.read(self._source, _CHUNK_BYTES)

    def _read_all(self, chunks: queue.SimpleQueue[bytes]) -> None:
        chunk = b"-"
        while chunk:
            try:
                chunk = os.read(self._source, _CHUNK_BYTES)
            except OSError:
                chunk = b""
            chunks.put(chunk)

    def close(self) -> None:
        """Close both directions."""
        for descriptor in (self._source, self._target):
            with contextlib.suppress(OSError):
                os.close(descriptor)


def _number(value: Any) -> Any:
    """Return a NumPy scalar as Python's own number."""
    if hasattr(value, "item"):
        return value.item()
    raise NotImplementedError(type(value))


@dataclass(slots=True, kw_only=True, eq=False)
class Child:
    """A process of ours.

    Attributes:
        pid: Its number.
        channel: Messages to and from it.
        log: Its standard error; None for a fork without one of its own.
        owner: The process that started it; a fork of that one has no child.
    """

    pid: int
    channel: Channel
    log: BinaryIO | None
    owner: int = field(default_factory=os.getpid)
    _interpreter: subprocess.Popen[bytes] | None = None
    _status: int | None = None

    @classmethod
    def start(cls, module: str, *arguments: str, environment: Mapping[str, str] | None = None) -> Child:
        """Start a new interpreter in a session of its own.

        Args:
            module: A module that calls ``run_as_child`` where it is run.
            arguments: What it finds in ``sys.argv``.
            environment: Variables on top of this process's own.
        """
        log = cast("BinaryIO", tempfile.TemporaryFile())  # noqa: SIM115  # as long as the child
        interpreter = subprocess.Popen(
            [sys.executable, "-P", "-m", module, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            env=_environment(environment or {}),
            start_new_session=True,  # Ctrl-C reaches this process alone, which ends the child
            bufsize=0,
        )
        assert interpreter.stdin is not None
        assert interpreter.stdout is not None
        channel = Channel(os.dup(interpreter.stdout.fileno()), os.dup(interpreter.stdin.fileno()))
        interpreter.stdin.close()
        interpreter.stdout.close()
        return cls(pid=interpreter.pid, channel=channel, log=log, _interpreter=interpreter)

    @classmethod
    def fork(cls, main: Callable[[Channel], None], *, log: bool = True) -> Child:
        """Copy this process; the copy calls ``main`` and exits.

        Args:
            main: What it does; status 1 where it raises.
            log: Whether its standard error is apart.
        """
        file = cast("BinaryIO", tempfile.TemporaryFile()) if log else None  # noqa: SIM115  # as long as the child
        (theirs_in, ours_out), (ours_in, theirs_out) = os.pipe(), os.pipe()
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                os.close(ours_in)
                os.close(ours_out)
                if file is not None:
                    os.dup2(file.fileno(), 2)
                _prepare()
                main(Channel(theirs_in, theirs_out))
                status = 0
            finally:
                os._exit(status)  # nothing of the parent's is to be flushed or tidied here
        os.close(theirs_in)
        os.close(theirs_out)
        return cls(pid=pid, channel=Channel(ours_in, ours_out), log=file)

    def send(self, message: object) -> None:
        """Send it a message.

        Raises:
            ChildEndedError: It cannot be reached.
        """
        try:
            self.channel.send(message)
        except OSError:
            raise ChildEndedError(self.wait(), "exit") from None

    def receive(self, timeout_s: float = math.inf, *, memory: int | None = None) -> Any:
        """Return its next message.

        Args:
            timeout_s: It is killed where it sends none for so long.
            memory: It is killed where it takes more bytes, on systems that do not limit it themselves.

        Raises:
            ChildEndedError: It has ended, or was killed.
        """
        deadline = time.monotonic() + timeout_s
        while True:
            left = max(0.0, deadline - time.monotonic())
            try:
                return self.channel.receive(min(left, _INTERVAL_S))
            except EOFError:
                raise ChildEndedError(self.wait(min(left, _EXIT_S)), "exit") from None
            except TimeoutError:
                if not self.is_alive():  # a process that it started holds the channel open
                    with contextlib.suppress(EOFError, TimeoutError):
                        return self.channel.receive(0.0)
                    raise ChildEndedError(self.wait(), "exit") from None
                if left <= _INTERVAL_S:
                    self.kill()
                    raise ChildEndedError(self.wait(), "time") from None
                if memory is not None and sys.platform != "linux" and _resident_bytes(self.pid) > memory:
                    self.kill()
                    raise ChildEndedError(self.wait(), "memory") from None

    def is_alive(self) -> bool:
        """Return whether it runs."""
        return self.owner == os.getpid() and self._poll() is None

    def wait(self, timeout_s: float = math.inf) -> int:
        """Return its exit status; it is killed where it runs on for longer."""
        deadline = time.monotonic() + timeout_s
        while (status := self._poll()) is None:
            if time.monotonic() > deadline:
                self.kill()
            time.sleep(0.002)
        return status

    def kill(self) -> None:
        """Kill it at once, with every process of its session where that is its own."""
        if not self.is_alive():  # its number may be another's by now
            return
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if self._interpreter is None:
                os.kill(self.pid, signal.SIGKILL)
            elif hasattr(os, "killpg"):
                os.killpg(self.pid, signal.SIGKILL)
            else:
                self._interpreter.kill()

    def close(self) -> None:
        """Kill it and free what it took; no other thread may wait for it."""
        if self.owner == os.getpid():
            self.kill()
            self.wait()
        self.channel.close()
        if self.log is not None:
            self.log.close()

    def printed(self, most: int) -> str:
        """Return the last bytes of its standard error as text."""
        if self.log is None or self.log.closed:
            return ""
        size = self.log.seek(0, os.SEEK_END)
        self.log.seek(max(0, size - most))
        return self.log.read().decode("utf-8", "replace")

    def place(self) -> str:
        """Return what it noted last by ``now_at``, where its log is of places; empty where nothing."""
        return self.printed(_PLACE_BYTES).partition("\0")[0]

    def _poll(self) -> int | None:
        if self._status is None and self._interpreter is not None:
            self._status = self._interpreter.poll()
        elif self._status is None:
            try:
                pid, code = os.waitpid(self.pid, os.WNOHANG)
                self._status = os.waitstatus_to_exitcode(code) if pid else None
            except ChildProcessError:  # another thread has waited for it
                self._status = 0
        return self._status


def printed_by(*command: str, folder: Path, timeout_s: float = 20.0) -> str:
    """Return what another program prints; nothing where it is not installed, fails or takes too long."""
    try:
        ended = subprocess.run(command, cwd=folder, capture_output=True, timeout=timeout_s, check=True)
    except (OSError, subprocess.SubprocessError):
        return ""
    return ended.stdout.decode("utf-8", "replace")


def may_fork() -> bool:
    """Return whether a fork of this process is safe: it has one thread, of PyTorch's too."""
    if threading.active_count() > 1 or not hasattr(os, "fork"):
        return False
    if "torch" not in sys.modules:
        return True
    try:
        return len(os.listdir("/proc/self/task")) == 1  # a thread may hold a lock at that moment
    except OSError:
        return False  # not known here


def run_as_child(main: Callable[[Channel], object]) -> None:
    """Call the main function of a module that ``Child.start`` runs."""
    channel = Channel(os.dup(0), os.dup(1))
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)  # whatever prints, native code too, prints into the log
    _prepare()
    main(channel)


def limit_memory(size: int) -> None:
    """Let this process fail where it asks for more bytes of its own, before the system ends another one."""
    if sys.platform == "linux":  # elsewhere no system keeps the limit; the parent watches
        import resource

        _, most = resource.getrlimit(resource.RLIMIT_DATA)
        resource.setrlimit(resource.RLIMIT_DATA, (size if most < 0 else min(size, most), most))


_place: mmap.mmap | None = None


def report_places() -> None:
    """Have ``now_at`` write into the log of this child, and nothing else: native code prints there."""
    global _place
    os.ftruncate(2, _PLACE_BYTES)
    _place = mmap.mmap(2, _PLACE_BYTES)  # a copy of the descriptor
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nowhere, stream)
    os.close(nowhere)


def now_at(place: str) -> None:
    """Note what is at work, for the message on what may end this process; elsewhere do nothing."""
    if _place is not None:
        text = place.encode("utf-8", "replace")[: _PLACE_BYTES - 1]
        _place[: len(text) + 1] = text + b"\0"


def _prepare() -> None:
    """Tie a child to its parent: it ends with it, and before it where memory ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole terminal: the parent ends it
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    if sys.platform == "linux":
        import ctypes

        pr_set_pdeathsig = 1  # linux/prctl.h
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL)
    with contextlib.suppress(OSError):
        # 1000 is the most: first in the kernel's choice (proc_pid_oom_score_adj(5)). Raising it needs no
        # privilege.
        Path(f"/proc/{os.getpid()}/oom_score_adj").write_text("1000", encoding="ascii")


def _environment(extra: Mapping[str, str]) -> dict[str, str]:
    """Return variables for an interpreter that finds this package as this one does."""
    root = str(Path(__file__).resolve().parents[1])
    users = os.environ.get("PYTHONPATH", "")
    # After the user's own entries: a package of theirs is imported as in the parent.
    return {**os.environ, "PYTHONPATH": f"{users}{os.pathsep}{root}" if users else root, **extra}


def _resident_bytes(pid: int) -> int:
    import psutil

    try:
        return int(psutil.Process(pid).memory_info().rss)
    except psutil.Error:
        return 0
