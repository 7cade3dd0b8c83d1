"""Runs cases in a process that stays alive, watched from outside: time, memory, death, what is left behind."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any
from unittest import mock

import psutil
from faults import BYTES, SECONDS, Outcome
from fuzz_case import Case
from mutate_settings import VICTIM

_LOOK_EVERY_S = 0.05
# A worker is replaced after so many commands, or where it keeps so much: what it caches is no case's.
_COMMANDS, _KEPT_BYTES = 1000, 1_500_000_000


class Runner:
    """One worker process at a time and the folders that its cases lie in."""

    def __init__(self, *, seconds: float = SECONDS, memory: int = BYTES) -> None:
        self.seconds, self.memory = seconds, memory
        self.home = Path(tempfile.mkdtemp(prefix="analyzer-fuzz-"))
        self.temporary, self.around = self.home / "tmp", self.home / "around"
        programs = self.home / "bin"
        programs.mkdir()
        # Whatever opens a page would be told of as a file outside the case's folder.
        for name in ("xdg-open", "browser"):
            (programs / name).write_text(f"#!/bin/sh\ntouch {self.around}/a-browser\n")
            (programs / name).chmod(0o700)
        self.worker: subprocess.Popen[bytes] | None = None
        self.answered = 0

    def __enter__(self) -> Runner:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the worker and removes all folders."""
        self._end()
        shutil.rmtree(self.home, ignore_errors=True)

    def run(self, case: Case) -> list[Outcome]:
        """The outcomes of a case's commands."""
        shutil.rmtree(self.around, ignore_errors=True)
        folder = self.around / "case"
        lay_out(case, folder)
        outcomes = []
        for step in case.steps:
            outcome = self._command(case, step, folder)
            outcomes.append(outcome)
            if outcome.status not in (0, 1):
                break
        return outcomes

    def _command(self, case: Case, step: tuple[str, ...], folder: Path) -> Outcome:
        before = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
        outputs = {name: self.home / name for name in ("stdout", "stderr")}
        for path in outputs.values():
            path.write_bytes(b"")
        request = {
            "arguments": step,
            "folder": str(folder),
            "encoding": case.encoding,
            "environment": {"ANALYZER_CACHE_DIR": str(folder / "cache"), **case.environment},
            **{name: str(path) for name, path in outputs.items()},
        }
        outcome = self._answer(request, step)
        outcome.stdout, outcome.stderr = (outputs[name].read_bytes() for name in ("stdout", "stderr"))
        outcome.changed = tuple(
            name for name, content in case.files.items() if not is_still(folder / name, content)
        )
        outcome.written = {
            name: (folder / name).read_bytes()
            for name in sorted(
                {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()} - before
            )
            if not name.startswith(("cache/", "link"))
        }
        outside = {VICTIM.removeprefix("../"), folder.name}
        outcome.outside = tuple(sorted({path.name for path in self.around.iterdir()} - outside))
        outcome.left = self._swept()
        return outcome

    def _swept(self) -> tuple[str, ...]:
        """What lies in the temporary folder, removed."""
        left = sorted(path.name for path in self.temporary.iterdir())
        for path in self.temporary.iterdir():
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
        return tuple(left)

    def _answer(self, request: dict[str, Any], step: tuple[str, ...]) -> Outcome:
        worker, encoding = self._ready(), request["encoding"]
        assert worker.stdin is not None
        assert worker.stdout is not None
        begin = time.perf_counter()
        worker.stdin.write(json.dumps(request).encode() + b"\n")
        worker.stdin.flush()
        peak, ended = 0, ""
        with selectors.DefaultSelector() as waiting:
            waiting.register(worker.stdout, selectors.EVENT_READ)
            while not waiting.select(_LOOK_EVERY_S):
                peak = max(peak, held_by(worker.pid))
                spent = time.perf_counter() - begin
                ended = "memory" if peak > self.memory else "time" if spent > self.seconds else ""
                if ended:
                    break
        spent = time.perf_counter() - begin
        if ended:
            self._end(dump=True)
            return Outcome(
                arguments=step, encoding=encoding, status=None, ended=ended, seconds=spent, peak=peak
            )
        line = worker.stdout.readline()
        if not line:  # it died
            status = worker.wait()
            self._end()
            return Outcome(arguments=step, encoding=encoding, status=status, seconds=spent, peak=peak)
        answer = json.loads(line)
        self.answered += 1
        return Outcome(
            arguments=step,
            encoding=encoding,
            status=answer["status"],
            seconds=answer["seconds"],
            peak=max(peak, answer["peak"]),
        )

    def _ready(self) -> subprocess.Popen[bytes]:
        if self.worker is not None and (
            self.answered >= _COMMANDS or held_by(self.worker.pid) > min(_KEPT_BYTES, self.memory / 2)
        ):
            self._end()
        if self.worker is None:
            shutil.rmtree(self.temporary, ignore_errors=True)
            self.temporary.mkdir()
            environment = {
                **os.environ,
                "TMPDIR": str(self.temporary),
                "XDG_DATA_HOME": str(self.home / "data"),
                "PATH": f"{self.home / 'bin'}{os.pathsep}{os.environ.get('PATH', '')}",
                "BROWSER": "browser",
                "PYTHONUTF8": "1",
                "NO_COLOR": "1",
            }
            self.worker = subprocess.Popen(
                [sys.executable, str(Path(__file__).with_name("worker.py"))],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env=environment,
                cwd=self.home,
                start_new_session=True,
            )
            self.answered = 0
        return self.worker

    def _end(self, *, dump: bool = False) -> None:
        """Ends the worker and all that it started; first it says where it was."""
        worker, self.worker = self.worker, None
        if worker is None:
            return
        started = family(worker.pid)
        if dump and hasattr(signal, "SIGUSR1"):
            worker.send_signal(signal.SIGUSR1)
            time.sleep(0.2)
        for process in started:
            try:
                process.kill()
            except psutil.NoSuchProcess:
                continue
        worker.wait()
        for pipe in (worker.stdin, worker.stdout):
            if pipe is not None:
                pipe.close()


def lay_out(case: Case, folder: Path) -> None:
    """Writes a case's files and links."""
    folder.mkdir(parents=True)
    for name, content in case.files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    for name, target in case.links.items():
        (folder / name).symlink_to(target)
    if case.prepare is not None:
        with (
            contextlib.chdir(folder),
            mock.patch.dict(os.environ, {"ANALYZER_CACHE_DIR": str(folder / "cache")}),
        ):
            case.prepare(folder)


def is_still(path: Path, content: bytes) -> bool:
    """Whether a file has this content."""
    return path.is_file() and path.read_bytes() == content


def family(pid: int) -> list[psutil.Process]:
    """A process and all that it started."""
    try:
        process = psutil.Process(pid)
        return [*process.children(recursive=True), process]
    except psutil.NoSuchProcess:
        return []


def held_by(pid: int) -> int:
    """Bytes of memory that a process and all that it started hold now."""
    held = 0
    for process in _members(pid):
        try:
            held += process.memory_info().rss
        except psutil.Error:
            continue
    return held


def _members(pid: int) -> list[psutil.Process]:
    """As ``family``; where the system lists a process's children, without a look at every other process."""
    numbers = [pid]
    try:
        for one in numbers:
            for task in Path(f"/proc/{one}/task").iterdir():
                numbers += map(int, (task / "children").read_text().split())
        return [psutil.Process(number) for number in numbers]
    except (OSError, psutil.NoSuchProcess):
        return family(pid)
