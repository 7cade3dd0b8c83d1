"""Ask a child process to read strangers' files, within limits, and say in one sentence how that ended.

The child is forked where that is safe (the command line, before any thread is there): it then has all modules
and costs some milliseconds. Elsewhere a new interpreter is started once and asked again and again.
"""

from __future__ import annotations

import atexit
import contextlib
import dataclasses
import os
import re
import sys
import threading
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from analyzer import errors
from analyzer.errors import AnalyzerError, ModelError, UsageError
from analyzer.text import did_you_mean, duration
from analyzer.units import byte_count

if TYPE_CHECKING:
    from analyzer.process import Channel, Child, ChildEndedError

Handlers = Mapping[str, Callable[..., Any]]
"""Requests by name; arguments and results are what MessagePack has."""

IS_ISOLATED = sys.platform != "win32"  # whose processes have no limits: files are read in this one

_DONE, _REFUSED, _OUT_OF_MEMORY, _FAULT = "done", "refused", "out of memory", "fault"
# Seconds after which the system ends a child whose parent, which would have ended it, is gone.
_GRACE_S = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits on reading one file.

    Attributes:
        memory: Bytes of private memory that the child may add to what it begins with, on top of four times the
            file where its weights are read.
        time: Seconds of one step of reading: parsing, inference at one batch, writing a runnable model.
        nodes: Operators, bodies of control flow and of called functions included.
        bytes: Of the graph without its weights, functions put in their callers' places.
        functions: Functions that the model defines.
        depth: Graphs within graphs, and functions that call functions.
        attributes: Of one node.
        folded: Bytes of all values that are computed before the run.
    """

    memory: int = 2 * 2**30
    time: float = 40.0
    nodes: int = 200_000
    bytes: int = 512 * 2**20
    functions: int = 10_000
    depth: int = 64
    attributes: int = 1_000
    folded: int = 64 * 2**20

    def as_message(self) -> dict[str, float]:
        """Return the limits by name."""
        return dataclasses.asdict(self)


DEFAULT_LIMITS = Limits()

_NAMES = tuple(field.name for field in dataclasses.fields(Limits))
_IN_BYTES = ("memory", "bytes", "folded")
_BYTE_UNITS: Mapping[str, int] = MappingProxyType(
    {"": 1, "b": 1}
    | {f"{prefix}{ending}": 1000**power for power, prefix in enumerate("kmgt", 1) for ending in ("", "b")}
    | {f"{prefix}ib": 1024**power for power, prefix in enumerate("kmgt", 1)}
)


def parse_limits(texts: Iterable[str]) -> Limits:
    """Return the limits that ``NAME=VALUE`` texts leave: those named have that value, others their default.

    Args:
        texts: ``memory=8GB``, ``time=5min``, ``nodes=2000000``; one text may hold several with commas.

    Raises:
        UsageError: No such limit, or a value that is none.
    """
    given: dict[str, float] = {}
    for part in (part.strip() for text in texts for part in text.split(",") if part.strip()):
        name, separator, value = (piece.strip() for piece in part.partition("="))
        if not separator or name not in _NAMES:
            form = f"NAME=VALUE, of {', '.join(_NAMES)}"
            if name in _NAMES:
                raise UsageError(f"--limit {part}: no value", hint=form)
            raise UsageError(f"--limit {part}: no such limit", hint=did_you_mean(name, _NAMES, form))
        given[name] = _number(name, value)
    return dataclasses.replace(DEFAULT_LIMITS, **given)  # type: ignore[arg-type]  # by name, checked above


def _number(name: str, text: str) -> float:
    where = f"--limit {name}"
    if name == "time":
        return duration(text, where=where)
    match = re.fullmatch(r"(\d{1,18})\s*([a-z]*)", text.lower())
    units = _BYTE_UNITS if name in _IN_BYTES else {"": 1}
    if match is None or match[2] not in units or int(match[1]) < 1:
        example = "8GB" if name in _IN_BYTES else "1000000"
        raise UsageError(f"{where}: {text!r} is no size", hint=f"write --limit {name}={example}")
    return int(match[1]) * units[match[2]]


class ReadingFaultError(Exception):
    """A handler's error that is no message for users; the text is its traceback in the child."""


class Reading:
    """A child that answers requests, started at the first one and again after each end of it.

    Args:
        module: It calls ``serve`` where it is run.
    """

    def __init__(self, module: str) -> None:
        self._module = module
        self._lock = threading.Lock()
        self._child: Child | None = None
        self._here: Handlers = {}

    def fork(self, handlers: Handlers) -> None:
        """Start it as a copy of this process where that is safe; else do nothing."""
        from analyzer.process import Child, may_fork

        if not IS_ISOLATED or self._running() is not None or not may_fork():
            return
        with warnings.catch_warnings():
            # Python 3.12 warns of threads that native libraries have; the child calls none of what they do.
            warnings.simplefilter("ignore", DeprecationWarning)
            self._started(Child.fork(lambda channel: serve(channel, handlers)))

    def without_isolation(self, handlers: Handlers) -> None:
        """Set what answers on a system without such processes (Windows): the handlers, without limits."""
        self._here = handlers

    def ask(
        self,
        name: str,
        arguments: Mapping[str, Any],
        limits: Limits,
        *,
        subject: str,
        file_bytes: int = 0,
    ) -> Any:
        """Return the result of a handler of the child.

        Args:
            name: The handler's.
            arguments: By name; what MessagePack has.
            limits: Memory and time.
            subject: What is read, for messages: "'model.onnx'".
            file_bytes: Where weights are read, the file's size: four times of it may be taken on top.

        Raises:
            AnalyzerError: The handler raised it; or the child crashed, met a limit, or raised anything else,
                of which the traceback is the cause of this error.
        """
        if not IS_ISOLATED:
            return self._here[name](**arguments)
        from analyzer.process import Child, ChildEndedError

        memory = limits.memory + 4 * file_bytes
        with self._lock:
            child = self._running()
            if child is None:
                child = self._started(Child.start(self._module))
            try:
                child.send([name, arguments, memory, limits.time, _working_folder()])
                kind, value = child.receive(limits.time, memory=memory)
            except ChildEndedError as ended:
                error = _error_of(ended, _place_in(child), subject, memory, limits)
                self._end_one(child)
                raise error from None
            except BaseException:  # Ctrl-C too: an answer that nobody waits for must not be taken for the next
                self._end_one(child)
                raise
            place = "" if kind == _DONE else _place_in(child)
            if kind == _OUT_OF_MEMORY:
                self._end_one(child)
                raise _out_of_memory(place, subject, memory)
        if kind == _DONE:
            return value
        if kind == _REFUSED:
            kind_of_error: type[AnalyzerError] = getattr(errors, value[0], ModelError)
            raise kind_of_error(value[1], hint=value[2])
        # No check foresaw it: of a stranger's file most likely the file, of a good one a fault of ours.
        last = value.strip().splitlines()[-1][:200]
        raise ModelError(
            f"{subject} cannot be read{place} ({last}).",
            hint="If ONNX Runtime runs the model, this is a fault of analyze: please report it with the model.",
        ) from ReadingFaultError(value)

    def end(self) -> None:
        """End it at once; the next request starts another."""
        child, self._child = self._child, None
        if child is not None:
            # A thread that waits for an answer sees the end, and closes what it waits at.
            child.kill() if self._lock.locked() else child.close()

    def _started(self, child: Child) -> Child:
        atexit.unregister(self.end)
        atexit.register(self.end)
        self._child = child
        return child

    def _running(self) -> Child | None:
        if self._child is not None and not self._child.is_alive():  # or this process is a fork of its owner
            self._child.close()
            self._child = None
        return self._child

    def _end_one(self, child: Child) -> None:
        if self._child is child:  # else it has been ended, and another may have been started
            self._child = None
        child.close()


# The one such child of a program. Its handlers belong to ``loading``; it stands here so that other rooms can
# ask as well.
READING = Reading("analyzer.loading.reading_process")


def _working_folder() -> bytes | None:
    try:
        return os.getcwdb()
    except OSError:  # it was deleted
        return None


def _place_in(child: Child) -> str:
    """Return where it was last, as the end of a sentence."""
    place = child.place()
    return f", at {place}" if place else ""


def _error_of(ended: ChildEndedError, place: str, subject: str, memory: int, limits: Limits) -> ModelError:
    if ended.reason == "time":
        return ModelError(
            f"{subject} takes more than {limits.time:g} s to read{place}.",
            hint="If it is a model that you trust, raise the limit: --limit time=10min.",
        )
    if ended.reason == "memory":
        return _out_of_memory(place, subject, memory)
    if ended.fault == "SIGABRT":  # C++ that gets no memory where it expects none to be lacking
        how = f"aborted, which native code does where memory ends ({byte_count(memory)} are allowed)"
    else:
        how = f"crashed ({ended.fault})" if ended.fault else f"ended early (status {ended.status})"
    return ModelError(
        f"{subject} cannot be read: the library that reads it {how}{place}.",
        hint="The file is damaged, or made to do harm. Save the model again from where it comes from.",
    )


def _out_of_memory(place: str, subject: str, memory: int) -> ModelError:
    return ModelError(
        f"{subject} takes more than {byte_count(memory)} of memory to read{place}.",
        hint="If it is a model that you trust, raise the limit: --limit memory=8GB.",
    )


def serve(channel: Channel, handlers: Handlers) -> None:
    """Answer requests until the other side goes away: the main function of the child."""
    import gc

    from analyzer.process import SELDOM, now_at, report_places

    report_places()
    gc.freeze()  # what the parent made is never garbage here, and looking at it would copy its memory
    gc.set_threshold(*SELDOM)
    while True:
        try:
            name, arguments, memory, time_s, folder = channel.receive()
        except (EOFError, OSError):
            return
        now_at("")
        if folder is not None:
            # Paths are as the user typed them, and a notebook changes its folder between two questions.
            with contextlib.suppress(OSError):
                os.chdir(folder)
        channel.send(_answer(handlers[name], arguments, memory, time_s))


def _answer(
    handler: Callable[..., Any], arguments: Mapping[str, Any], memory: int, time_s: float
) -> tuple[str, Any]:
    _limit(memory, time_s)
    try:
        return _DONE, handler(**arguments)
    except AnalyzerError as error:
        return _REFUSED, (type(error).__name__, *map(sendable, (error.message, error.hint)))
    except MemoryError:
        pass
    except RecursionError as error:
        return _REFUSED, ("ModelError", f"it is nested too deeply: {error}", None)
    except Exception:
        import traceback

        return _FAULT, sendable(traceback.format_exc())
    # Outside the handler, whose frames, and what they hold, are gone now.
    return _OUT_OF_MEMORY, None


def sendable(text: str | None) -> str | None:
    """Return what can be sent of a message that names a file, whose bytes need not be UTF-8."""
    return None if text is None else text.encode("utf-8", "backslashreplace").decode()


def _limit(memory: int, time_s: float) -> None:
    """Limit what this process takes from now on; only the soft limits, which the next request sets anew."""
    import resource  # which Windows lacks

    from analyzer.process import limit_memory

    if sys.platform == "linux":
        # Writable memory of its own, which RLIMIT_DATA counts (proc(5), statm).
        with open("/proc/self/statm", encoding="ascii") as file:
            limit_memory(int(file.read().split()[5]) * resource.getpagesize() + memory)
    _, most = resource.getrlimit(resource.RLIMIT_CPU)
    seconds = int(sum(os.times()[:2]) + time_s * (os.cpu_count() or 1) + _GRACE_S)
    resource.setrlimit(resource.RLIMIT_CPU, (seconds if most < 0 else min(seconds, most), most))
