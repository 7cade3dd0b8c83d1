"""Runs commands of ``analyze`` one after another in one process; a line of JSON asks for each (see ``runner``).

A request names the arguments, the folder to be in, and the files that take both outputs, also what native code
prints. The answer says the exit status and the most memory that this process held meanwhile.
"""

from __future__ import annotations

import faulthandler
import io
import json
import os
import signal
import sys
import time
import traceback
from pathlib import Path
from typing import Any


def main() -> None:
    """Answers requests until there are none."""
    answers = os.fdopen(os.dup(1), "w")
    # Dumped before a worker that hangs is ended: where it hung. A crash dumps by itself.
    if hasattr(signal, "SIGUSR1"):
        faulthandler.register(signal.SIGUSR1, file=2)
    faulthandler.enable(file=2)
    for line in sys.stdin:
        answers.write(json.dumps(answer(json.loads(line))) + "\n")
        answers.flush()


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """Runs one command with its outputs in files."""
    os.chdir(request["folder"])
    os.environ.update(request["environment"])
    for descriptor, name in ((1, "stdout"), (2, "stderr")):
        file = os.open(request[name], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(file, descriptor)
        os.close(file)
    # Streams of its own, as a process has: Click remembers how to write to one that it has seen.
    sys.stdout = stream(1, request["encoding"], "strict")
    sys.stderr = stream(2, request["encoding"], "backslashreplace")
    forget_peak()
    begin = time.perf_counter()
    status = run(request["arguments"])
    sys.stdout.flush()
    sys.stderr.flush()
    return {"status": status, "seconds": time.perf_counter() - begin, "peak": peak()}


def stream(descriptor: int, encoding: str, errors: str) -> io.TextIOWrapper:
    """A new stream that leaves the descriptor open when it goes."""
    raw = io.FileIO(descriptor, "w", closefd=False)
    return io.TextIOWrapper(io.BufferedWriter(raw), encoding=encoding, errors=errors)


def run(arguments: list[str]) -> int:
    """The exit status of one command; what gets past the command line's own net ends a process with 1."""
    try:
        if arguments[0] == "plant":  # how tests of the harness make each kind of failure
            return planted(arguments[1])
        from analyzer.cli import run_command_line

        return run_command_line(arguments)
    except SystemExit as error:
        return error.code if isinstance(error.code, int) else 1
    except BaseException:
        traceback.print_exc()
        return 1


def planted(fault: str) -> int:
    """A failure on purpose."""
    if fault == "crash":
        os.kill(os.getpid(), signal.SIGSEGV)
    if fault == "hang":
        while True:
            pass
    if fault == "memory":
        held = []
        while True:
            held.append(bytearray(b"\1") * 2**26)
    if fault == "traceback":
        raise KeyError("planted")
    if fault == "file":
        Path(os.environ["TMPDIR"], "left").touch()
        Path("../outside").touch()
        Path("model.onnx").write_bytes(b"")
    print(fault)
    return int(fault) if fault.isdigit() else 0


def forget_peak() -> None:
    """Begins the count of ``peak`` anew (Linux alone can)."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return


def peak() -> int:
    """The most memory in bytes since ``forget_peak``, 0 where that is not told."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:")), 0)


if __name__ == "__main__":
    main()
