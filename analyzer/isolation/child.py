"""The inner side: a process that does what it is asked, one thing after the other, within limits."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import sys
import traceback
from collections.abc import Callable, Mapping
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import msgspec

from analyzer.errors import AnalyzerError

Handlers = Mapping[str, Callable[..., Any]]
"""What can be asked for, by name; arguments and results are what MessagePack has."""

DONE, REFUSED, OUT_OF_MEMORY, FAULT = "done", "refused", "out of memory", "fault"

SELDOM = (100_000, 50, 100)
"""When to look for garbage (Python 3.11's own are 700, 10, 10): a graph is many things that all live on."""

# Seconds after which the system ends a process whose parent, which would have ended it, is gone.
_GRACE_S = 30


def serve(connection: Connection, handlers: Handlers) -> None:
    """Answers requests until the other side goes away."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole terminal: the parent ends us
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    _silence()
    die_first_when_memory_ends()
    gc.freeze()  # what the parent made is never garbage here, and looking at it would copy its memory
    gc.set_threshold(*SELDOM)
    while True:
        try:
            name, arguments, memory, time_s, folder = msgspec.msgpack.decode(connection.recv_bytes())
        except (EOFError, OSError):
            return
        if folder is not None:
            # Paths are as the user typed them, and a notebook changes its folder between two questions.
            with contextlib.suppress(OSError):
                os.chdir(folder)
        answer = _answer(handlers[name], arguments, memory, time_s)
        connection.send_bytes(answer)


def _answer(handler: Callable[..., Any], arguments: Mapping[str, Any], memory: int, time_s: float) -> bytes:
    encode = msgspec.msgpack.encode
    _limit(memory, time_s)
    try:
        return encode([DONE, handler(**arguments)])
    except AnalyzerError as error:
        return encode([REFUSED, [type(error).__name__, *map(sendable, (error.message, error.hint))]])
    except MemoryError:
        pass
    except RecursionError as error:
        return encode([REFUSED, ["ModelError", f"it is nested too deeply: {error}", None]])
    except Exception:
        return encode([FAULT, sendable(traceback.format_exc())])
    # Outside the handler, whose frames, and what they hold, are gone now.
    return encode([OUT_OF_MEMORY, None])


def sendable(text: str | None) -> str | None:
    """What can be sent of a message that names a file, whose bytes need not be UTF-8."""
    return None if text is None else text.encode("utf-8", "backslashreplace").decode()


def _limit(memory: int, time_s: float) -> None:
    """Sets what this process may take from now on; only the soft limits, which the next request sets anew."""
    import resource  # which Windows lacks

    if sys.platform == "linux":  # elsewhere the limit is not kept by the system; the parent watches
        _, most = resource.getrlimit(resource.RLIMIT_DATA)
        wanted = _private_bytes() + memory
        resource.setrlimit(resource.RLIMIT_DATA, (wanted if most < 0 else min(wanted, most), most))
    _, most = resource.getrlimit(resource.RLIMIT_CPU)
    used = sum(os.times()[:2])
    seconds = int(used + time_s * (os.cpu_count() or 1) + _GRACE_S)
    resource.setrlimit(resource.RLIMIT_CPU, (seconds if most < 0 else min(seconds, most), most))


def _private_bytes() -> int:
    """What RLIMIT_DATA counts: writable memory that is this process's own (proc(5), statm)."""
    import resource

    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[5])
    return pages * resource.getpagesize()


def _silence() -> None:
    """Native code writes to whatever stream is open: standard output is the parent's report."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nowhere, stream)
    os.close(nowhere)


def die_first_when_memory_ends() -> None:
    """Has the system end this process rather than the one that writes the report."""
    with contextlib.suppress(OSError):
        # 1000 is the most: first in the kernel's choice (proc_pid_oom_score_adj(5)). Raising it needs no
        # privilege.
        Path(f"/proc/{os.getpid()}/oom_score_adj").write_text("1000", encoding="ascii")


def die_with_parent() -> None:
    """On Linux, does not outlive the thread that started this process."""
    if sys.platform == "linux":
        import ctypes

        pr_set_pdeathsig = 1  # linux/prctl.h
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL)
