"""A process that does what a stranger's file may make a library do: ``python -m misbehaving``."""

from __future__ import annotations

import ctypes
import os
import time

from analyzer.errors import GraphError
from analyzer.process import now_at, run_as_child
from analyzer.reading import Handlers, serve


def _echo(value: object) -> object:
    return value


def _number() -> int:
    return os.getpid()


def _segfault(place: str) -> None:
    now_at(place)
    ctypes.string_at(0)


def _abort() -> None:
    os.abort()


def _hang() -> None:
    now_at("node 'slow'")
    while True:
        time.sleep(1)


def _spin_in_native_code() -> None:
    # A thousand million of them in one call that nothing interrupts.
    sum(range(10**12))


def _grow() -> int:
    return len(b"".join([bytes(2**20)] * 600))


def _refuse() -> None:
    raise GraphError("node 'x' cannot be", hint="mend it")


def _fail() -> None:
    raise KeyError("axis")


HANDLERS: Handlers = {
    "echo": _echo,
    "number": _number,
    "segfault": _segfault,
    "abort": _abort,
    "hang": _hang,
    "spin": _spin_in_native_code,
    "grow": _grow,
    "refuse": _refuse,
    "fail": _fail,
}

if __name__ == "__main__":
    run_as_child(lambda channel: serve(channel, HANDLERS))
