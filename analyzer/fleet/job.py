"""One model's share of a fleet: what a process is asked, and what it answers; both travel as MessagePack."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from analyzer.devices.detection import Machine
from analyzer.loading.dependencies import Dependencies
from analyzer.loading.model_reference import CONFIG_NAME
from analyzer.record.fleet import FleetFailure, FleetModel, FleetQuestion


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A model and a question about it.

    Attributes:
        name: The model's own name in the fleet.
        question: Which command answers, by the keywords of its Python function.
        folder: The working folder, in which paths start.
        machine: Whose processors "this machine" means; None where the one that works is meant (a measurement).
        device: Of a measurement, the slug of the device that it is about; empty where nothing is run.
    """

    name: str
    reference: str
    question: FleetQuestion = "run"
    keywords: Mapping[str, Any] = field(default_factory=dict)
    folder: str
    machine: Machine | None = None
    device: str = ""

    @property
    def task(self) -> str:
        """Its name among all tasks, and that of its files: a measurement's ends in its device."""
        return f"{self.name}@{self.device}" if self.device else self.name


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of a job: its row, whose ``failure`` says why there is no record, and the files' texts.

    ``dependencies`` are what it was made from, ``log`` the end of what the model's code printed where it
    failed.
    """

    model: FleetModel
    record: str = ""
    page: str = ""
    dependencies: Dependencies = field(default_factory=Dependencies)
    seconds: float = 0.0
    log: str = ""


def failed(job: Job, failure: FleetFailure, *, seconds: float = 0.0, log: str = "") -> Outcome:
    """The outcome of a job whose process could not answer: what it had read is not known.

    The model's file and the Python files beside it stand for that.
    """
    return Outcome(
        model=FleetModel(name=job.name, reference=job.reference, question=job.question, failure=failure),
        dependencies=own_files(job),
        seconds=seconds,
        log=log,
    )


def without_lack_of_memory(
    finished: Iterable[tuple[Job, Outcome]], again: list[Job]
) -> Iterator[tuple[Job, Outcome]]:
    """What is finished, but for what ran out of memory beside others: that is put into ``again``."""
    for job, outcome in finished:
        if outcome.model.failure is not None and outcome.model.failure.kind == "memory":
            again.append(job)
        else:
            yield job, outcome


def is_python(job: Job) -> bool:
    """Whether PyTorch builds or reads the model: no graph, and no configuration of one that generates."""
    if os.path.basename(job.reference) == CONFIG_NAME or os.path.isfile(
        os.path.join(job.folder, job.reference, CONFIG_NAME)
    ):
        return job.question != "generate"  # else its shape is read, and nothing is built
    return not job.reference.lower().endswith((".onnx", ".json")) and not os.path.isdir(
        os.path.join(job.folder, job.reference)
    )


def own_files(job: Job) -> Dependencies:
    """The model's file (of a folder: its configuration) and the Python files beside it, as they are now."""
    from pathlib import Path

    from analyzer.loading.dependencies import file_digest
    from analyzer.loading.model_reference import split_path

    # Of a module its dotted name, which is no file.
    start = Path(job.folder) / (split_path(job.reference)[0] or job.reference)
    if start.is_dir():
        files = sorted(start.glob("*.json"))
    elif start.suffix == ".py":
        files = sorted(start.parent.glob("*.py"))
    else:
        files = [start]
    paths = {os.path.abspath(path) for path in (*files, start) if not path.is_dir()}
    return Dependencies(files={path: file_digest(path) for path in sorted(paths)})
