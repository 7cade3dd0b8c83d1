"""Models and options -> jobs: what each model is asked, checked before any of them is read."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from analyzer.checks.settings import read_settings
from analyzer.devices.detection import Machine, standing_for, this_machine
from analyzer.errors import AnalyzerError, UsageError
from analyzer.fleet.entry import Entry
from analyzer.fleet.job import Job
from analyzer.loading.model_reference import parse_reference
from analyzer.options import given_keywords, keywords_of, taken_by
from analyzer.record.fleet import FleetQuestion


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
        asked = tuple(_asked(entry, options, here) for entry in entries)
    commands = {one.decide.question for one in asked}
    for name in options:
        if not any(name in _names(command) for command in commands):
            raise UsageError(
                f"--{name} says nothing about these models.",
                hint=f"They are asked by `{_spelled(sorted(commands)[0])}`.",
            )
    return asked


def _asked(entry: Entry, options: Mapping[str, Any], machine: Machine) -> AskedModel:
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
    """Says what cannot be right of options, and which device nobody knows, before a model is read."""
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
    """Keywords as MessagePack has them."""
    return {
        name: str(value) if isinstance(value, Path) else list(value) if isinstance(value, tuple) else value
        for name, value in keywords.items()
    }


def _spelled(question: FleetQuestion) -> str:
    """The command as it is typed: the one that analyses has no name of its own."""
    return "analyze MODEL" if question == "run" else f"analyze {question}"


def _names(question: FleetQuestion) -> frozenset[str]:
    return frozenset(option.name for option in taken_by(question) if option.is_keyword)
