"""One model's share of a fleet: the request that a process gets and its reply, checked before any is read."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from analyzer.checks.settings import read_settings
from analyzer.devices.detection import Machine, standing_for, this_machine
from analyzer.errors import AnalyzerError, UsageError
from analyzer.fleet.model_list import Entry
from analyzer.loading.dependencies import Dependencies
from analyzer.loading.model_reference import CONFIG_NAME, parse_reference
from analyzer.options import given_keywords, keywords_of, taken_by
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
    """The outcome of a job: its row, whose ``failure`` says why there is no record, and the files' texts.

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
    """Return the outcome of a job whose process could not answer: what it had read is not known.

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
    """Yield finished jobs; those that ran out of memory among others are put into ``again``."""
    for job, outcome in finished:
        if outcome.model.failure is not None and outcome.model.failure.kind == "memory":
            again.append(job)
        else:
            yield job, outcome


def is_python(job: Job) -> bool:
    """Return whether PyTorch builds or reads the model: no graph, no configuration of a generating one."""
    if os.path.basename(job.reference) == CONFIG_NAME or os.path.isfile(
        os.path.join(job.folder, job.reference, CONFIG_NAME)
    ):
        return job.question != "generate"  # else its shape is read, and nothing is built
    return not job.reference.lower().endswith((".onnx", ".json")) and not os.path.isdir(
        os.path.join(job.folder, job.reference)
    )


def own_files(job: Job) -> Dependencies:
    """Return the model's file (of a folder: its configuration) and the Python files beside it, now."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedModel:
    """A model that was named, and the job that answers for it without running anything."""

    entry: Entry
    decide: Job


def jobs_of(
    entries: Sequence[Entry], options: Mapping[str, Any], *, machine: Machine | None = None
) -> tuple[AskedModel, ...]:
    """Return a job for each model.

    Options are by long option, as the command line has them: for all models, before what a manifest or the
    settings of pyproject.toml say. "This machine" means the processors of ``machine``, else those of this one.

    Raises:
        UsageError: An option that no model of the fleet takes, or a value that cannot be right.
    """
    here = machine or this_machine()
    with standing_for(here):  # each model's options are checked, and the machine is asked about itself once
        requests = tuple(_request(entry, options, here) for entry in entries)
    commands = {one.decide.question for one in requests}
    for name in options:
        if not any(name in _names(command) for command in commands):
            raise UsageError(
                f"--{name} says nothing about these models.",
                hint=f"They are asked by `{_spelled(sorted(commands)[0])}`.",
            )
    return requests


def _request(entry: Entry, options: Mapping[str, Any], machine: Machine) -> AskedModel:
    question = entry.question or "run"
    for name in entry.options:
        if name not in _names(question):
            raise UsageError(
                f"{entry.where}: `{name}` says nothing about {entry.name}.",
                hint=f"`{_spelled(question)}` has no --{name}.",
            )
    path = Path(entry.reference)
    # As the command of one model looks for them.
    start = path if path.exists() else parse_reference(entry.reference).path or Path.cwd()
    settings = read_settings(start).options
    values: dict[str, Any] = {**settings, **entry.defaults, **entry.options, **options}
    taken = {name: value for name, value in values.items() if name in _names(question)}
    taken.pop("run", None)
    if "no-run" in _names(question):
        taken["no-run"] = True
    keywords = _plain(given_keywords(taken, question))
    _check(entry, question, keywords)
    return AskedModel(
        entry=entry,
        decide=Job(
            name=entry.name,
            reference=entry.reference,
            question=question,
            keywords=keywords,
            folder=os.getcwd(),
            machine=machine,
        ),
    )


def _check(entry: Entry, question: FleetQuestion, keywords: Mapping[str, Any]) -> None:
    """Report what cannot be right of options, and which device nobody knows, before a model is read."""
    from analyzer.pipeline.options import make_options
    from analyzer.pipeline.target_devices import find_targets

    known = {name: value for name, value in keywords.items() if name in keywords_of("run")}
    find_targets(make_options(**known))
    if question == "capacity":
        # Here: no other question needs all that sizes a service.
        from analyzer.pipeline.capacity.plan import check_service

        try:
            check_service(entry.reference, keywords)
        except AnalyzerError as error:
            raise UsageError(f"{entry.where}: {error.message}", hint=error.hint) from error


def _plain(keywords: Mapping[str, Any]) -> dict[str, Any]:
    """Return keywords as MessagePack has them."""
    return {
        name: str(value) if isinstance(value, Path) else list(value) if isinstance(value, tuple) else value
        for name, value in keywords.items()
    }


def _spelled(question: FleetQuestion) -> str:
    """Return the command as it is typed: the one that analyses has no name of its own."""
    return "analyze MODEL" if question == "run" else f"analyze {question}"


def _names(question: FleetQuestion) -> frozenset[str]:
    return frozenset(option.name for option in taken_by(question) if option.is_keyword)
