"""This machine: some processes at once, or one alone where times are measured."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from queue import SimpleQueue
from typing import Any

from analyzer.devices.calibration import affinity_cores
from analyzer.devices.detection import this_machine
from analyzer.fleet.job import Job, Outcome, is_python, without_lack_of_memory
from analyzer.fleet.slot import WorkSlot

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
        """Works on models and yields each as it is finished.

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
        """Ends all processes."""
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
    """Whether one of these models is Python."""
    return any(is_python(job) for job in jobs)


def foreseen_bytes(job: Job) -> int:
    """What a model's process may take."""
    return int(_BYTES_PER_JOB if is_python(job) else _BYTES_PER_GRAPH)


def default_jobs() -> int:
    """As many as this process has cores, and its machine memory for."""
    return max(1, min(affinity_cores(), int(available_bytes() / _BYTES_PER_JOB)))


def available_bytes() -> int:
    """What this machine has left."""
    import psutil

    return int(psutil.virtual_memory().available)
