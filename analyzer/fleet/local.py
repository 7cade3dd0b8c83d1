"""This machine: some processes at once, each model in its own with a limit on time; one alone for measuring."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import replace
from queue import SimpleQueue
from typing import Any

import msgspec

from analyzer.devices.calibration import affinity_cores
from analyzer.devices.detection import this_machine
from analyzer.fleet.job import Job, Outcome, failed, is_python, without_lack_of_memory
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
        """End all processes; the job at hand comes to nothing."""
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


# What an export of a large model takes beside what processes share; what a model does that is a graph already.
_BYTES_PER_JOB = 1.5 * 2**30
_BYTES_PER_GRAPH = 0.5 * 2**30


class LocalPool:
    """Processes of this machine: ``jobs`` at once, or as many as cores and memory allow."""

    where = "local"
    facts: Mapping[str, Any]

    def __init__(self, *, jobs: int | None = None, timeout_s: float) -> None:
        self.jobs = jobs or default_jobs()
        self.facts = {"jobs": self.jobs}
        self._timeout_s = timeout_s
        self._slots: list[WorkSlot] = []

    def run(self, jobs: Sequence[Job]) -> Iterator[tuple[Job, Outcome]]:
        """Work on models and yield each as it is finished.

        What ran out of memory beside others is tried once more alone; what measures runs alone.
        """
        together = [job for job in jobs if not job.device]
        again: list[Job] = []
        finished = self._run(together, self.jobs)
        shared = self.jobs > 1 and len(together) > 1
        yield from without_lack_of_memory(finished, again) if shared else finished
        yield from self._run(again, 1)
        yield from self._run([job for job in jobs if job.device], 1)

    @property
    def devices(self) -> tuple[str, ...]:
        """This machine's GPU and its CPU: both are measured by one run, which is named after the GPU."""
        machine = this_machine()
        return (machine.gpu.slug if machine.gpu is not None else machine.cpu.slug,)

    def close(self) -> None:
        """End all processes; the job at hand comes to nothing."""
        for slot in self._slots:
            slot.close()

    def _run(self, jobs: Sequence[Job], at_once: int) -> Iterator[tuple[Job, Outcome]]:
        if not jobs:
            return
        at_once = min(at_once, len(jobs))  # more have nothing to do, and their shares of the memory go to waste
        python = need_python(jobs)
        # Each its share; a measurement foresees its own need.
        share = 0 if jobs[0].device else int(available_bytes() / at_once)
        slots = [WorkSlot(python=python, memory=share) for _ in range(at_once)]
        self._slots += slots
        free: SimpleQueue[WorkSlot] = SimpleQueue()
        for slot in slots:
            free.put(slot)

        def one(job: Job) -> Outcome:
            slot = free.get()
            try:
                return slot.run(job, timeout_s=self._timeout_s)
            finally:
                free.put(slot)

        pool = ThreadPoolExecutor(len(slots))
        try:
            futures = {pool.submit(one, job): job for job in jobs}
            for future in as_completed(futures):
                yield futures.pop(future), future.result()
        finally:
            # Also where the driver stops half way: what waits is dropped, what runs is ended.
            pool.shutdown(wait=False, cancel_futures=True)
            for slot in slots:
                slot.close()
            pool.shutdown()


def need_python(jobs: Sequence[Job]) -> bool:
    """Return whether one of these models is Python."""
    return any(is_python(job) for job in jobs)


def foreseen_bytes(job: Job) -> int:
    """Return the bytes that a model's process may take."""
    return int(_BYTES_PER_JOB if is_python(job) else _BYTES_PER_GRAPH)


def default_jobs() -> int:
    """As many as this process has cores, and its machine memory for."""
    return max(1, min(affinity_cores(), int(available_bytes() / _BYTES_PER_JOB)))


def available_bytes() -> int:
    """Return the bytes that this machine has left."""
    import psutil

    return int(psutil.virtual_memory().available)
