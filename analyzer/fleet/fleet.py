"""``analyze_fleet()``: the whole way of a fleet on one screen."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from analyzer.devices import catalogue
from analyzer.devices.detection import Machine, this_machine
from analyzer.devices.device import Instance
from analyzer.errors import UsageError
from analyzer.fleet.build import fleet_of
from analyzer.fleet.consolidation import instance_of
from analyzer.fleet.job import AskedModel, Job, jobs_of
from analyzer.fleet.local import LocalPool
from analyzer.fleet.model_list import models_of
from analyzer.fleet.store import Note, Store
from analyzer.fleet.writing import check_fleet_files, write_fleet
from analyzer.option_kinds import NEGATION
from analyzer.options import PRICINGS, taken_by, takes_options
from analyzer.pipeline.build_record import versions
from analyzer.pipeline.options import make_options
from analyzer.pipeline.target_devices import offers_of
from analyzer.progress import StageProgress
from analyzer.record.fleet import Fleet, FleetEnvironment, FleetModel
from analyzer.report.fleet_tables import changes

if TYPE_CHECKING:
    from analyzer.fleet.cluster import RayCluster

DEFAULT_TIMEOUT_S = 900.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """A task that is done: its row and how long it took, while others go on; ``kept`` where it was done before.

    ``done``, ``failed`` and ``total`` count tasks, this one among them.
    """

    task: str
    model: FleetModel
    seconds: float
    done: int
    failed: int
    total: int
    kept: bool = False


Watch = Callable[[Finished], None]
if TYPE_CHECKING:
    Executor = LocalPool | RayCluster


@dataclass(slots=True)
class _Progress:
    """Finished models so far."""

    watch: Watch
    total: int
    done: int = 0
    failed: int = 0
    notes: dict[str, Note] = field(default_factory=dict)
    kept: list[str] = field(default_factory=list)

    def finish(self, job: Job, note: Note, *, cached: bool) -> None:
        self.notes[job.task] = note
        self.done += 1
        self.failed += note.model.failure is not None
        if cached:
            self.kept.append(job.task)
        counts = {"done": self.done, "failed": self.failed, "total": self.total}
        self.watch(Finished(task=job.task, model=note.model, seconds=note.seconds, kept=cached, **counts))


@takes_options("fleet")
def analyze_fleet(
    models: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    *,
    output: str | os.PathLike[str],
    on: str = "local",
    jobs: int | None = None,
    timeout: float = DEFAULT_TIMEOUT_S,
    retry_failed: bool = False,
    compare: Fleet | None = None,
    force: bool = False,
    watch: Watch = lambda _: None,
    say: StageProgress = lambda _: None,
    **options: Any,
) -> Fleet:
    """Analyse many models: a record and a page of each, one table of all; what is finished is not done again.

    Args:
        models: Files, folders, patterns, ``package.module:Name``, manifests (``.toml``).
        output: The folder that is written.
        on: ``local``, ``ray`` (a cluster that is there, else one started here) or an address of Ray.
        jobs: Models at once; None for as many as cores and memory allow.
        timeout: Seconds for each model.
        retry_failed: Whether models that failed before are tried again.
        compare: An earlier fleet; the new one says what changed since.
        force: Whether files in ``output`` that are not ours may be replaced.
        watch: Told of each task that is finished.
        say: Told what there is to know once, as where a cluster's dashboard is.
        **options: Long options with underscores (``batch=[1, 64], gpu="t4,l4"``), for all models; ``run=True``
            measures where the devices are. A manifest gives options by model.

    Raises:
        AnalyzerError: A child of it, by what the user must do; a model that fails is a row, no error.
        KeyboardInterrupt: After what is finished was written.
    """
    named = [models] if isinstance(models, (str, os.PathLike)) else models
    entries = models_of([os.fspath(model) for model in named])
    machine = this_machine()
    measures = bool(options.get("run"))
    requests = jobs_of(entries, _by_option(options), machine=machine)
    paying = _paying(options, requests)
    offers = offers_of(make_options(**paying)).instances
    for entry in entries:
        if entry.today is not None:
            instance_of(entry.today, offers)  # what nobody rents out is said before any work
    store = Store(Path(output), force=force)
    store.check([one.decide.task for one in requests])
    check_fleet_files(store.folder, force=force)
    with _executor(on, jobs, timeout, say) as executor:
        devices = executor.devices if measures else ()
        measured = [job for one in requests for job in _measurements(one, devices)]
        progress = _Progress(watch=watch, total=len(requests) + len(measured))

        def written() -> Fleet:
            fleet = _fleet(requests, measured, progress, executor, machine, paying, offers)
            if compare is not None:
                fleet = replace(fleet, changes=changes(compare, fleet))
            write_fleet(fleet, store.folder, force=force)
            return fleet

        try:
            _run([one.decide for one in requests], executor, store, progress, retry_failed=retry_failed)
            # What cannot be analysed cannot be measured either.
            able = [job for job in measured if progress.notes[job.name].model.failure is None]
            progress.total -= len(measured) - len(able)
            _run(able, executor, store, progress, retry_failed=retry_failed)
        except BaseException:
            executor.close()
            written()
            raise
        return written()


def _run(
    jobs: Sequence[Job], executor: Executor, store: Store, progress: _Progress, *, retry_failed: bool
) -> None:
    """Take stored results, work on the rest, and store each as it is finished."""
    left = []
    for job in jobs:
        note = store.note_of(job)
        if note is None or (note.model.failure is not None and retry_failed):
            left.append(job)
        else:
            progress.finish(job, note, cached=True)
    for job, outcome in executor.run(left):
        progress.finish(job, store.keep(job, outcome), cached=False)


@contextmanager
def _executor(on: str, jobs: int | None, timeout_s: float, say: StageProgress) -> Iterator[Executor]:
    if jobs is not None and jobs < 1:
        raise UsageError(f"--jobs {jobs}: must be at least 1.")
    if not 0 < timeout_s < 1e7:
        raise UsageError(f"--timeout {timeout_s:g}: must be seconds above 0.")
    if on == "local":
        executor: Executor = LocalPool(jobs=jobs, timeout_s=timeout_s)
    else:
        # Here: Ray is an extra.
        from analyzer.fleet.cluster import RayCluster

        executor = RayCluster(on, jobs=jobs, timeout_s=timeout_s, say=say)
    try:
        yield executor
    finally:
        executor.close()


def _measurements(request: AskedModel, devices: Sequence[str]) -> Iterator[Job]:
    """Yield a job for each device of a model's question that stands where jobs are worked on."""
    job = request.decide
    targets = job.keywords.get("gpu")
    names = targets.split(",") if isinstance(targets, str) else targets
    gpus = {gpu.slug for gpu in catalogue.gpus()}
    for device in devices:
        keywords = {name: value for name, value in job.keywords.items() if name != "run"}
        if names is not None and device in gpus:
            if device not in map(str.lower, names):
                continue
            # Only the first is measured: what was measured on it does not hold beside another one.
            keywords["gpu"] = ",".join([device, *(name for name in names if name.lower() != device)])
        yield replace(job, keywords=keywords, machine=None, device=device)


def _by_option(keywords: Mapping[str, Any]) -> dict[str, Any]:
    """Return values by long option; whether models are run the kind of a job says."""
    result = {}
    for one in taken_by("fleet"):
        value = keywords.get(one.keyword)
        if value in (None, ()) or one.name == "run":
            continue
        if one.kind is not NEGATION:
            result[one.name] = value
        elif value is False:  # `--no-cache` is cache=False
            result[one.name] = True
    return result


def _paying(options: Mapping[str, Any], requests: Sequence[AskedModel]) -> dict[str, Any]:
    """Return the way of paying of all models; where settings differ, the typed one."""
    names = ("prices", "pricing", "region")
    first = {name: requests[0].decide.keywords.get(name) for name in names}
    if any(one.decide.keywords.get(name) != first[name] for one in requests for name in names):
        first = {name: options.get(name) for name in names}
    return {name: value for name, value in first.items() if value is not None}


def _fleet(
    requests: Sequence[AskedModel],
    measured: Sequence[Job],
    progress: _Progress,
    executor: Executor,
    machine: Machine,
    paying: Mapping[str, Any],
    offers: Sequence[Instance],
) -> Fleet:
    rows = [
        (one.entry, progress.notes[one.decide.task].model)
        for one in requests
        if one.decide.task in progress.notes
    ]
    by_model: dict[str, list[FleetModel]] = {}
    for job in measured:
        note = progress.notes.get(job.task)
        if note is not None:
            by_model.setdefault(job.name, []).append(note.model)
    pricing = next((way for way in PRICINGS if way == paying.get("pricing")), PRICINGS[0])
    return fleet_of(
        rows,
        by_model,
        left=len(requests) - len(rows),
        pricing=pricing,
        offers=offers,
        machine=machine,
        environment=FleetEnvironment(
            where=executor.where,
            date=datetime.now(UTC).isoformat(timespec="seconds"),
            versions=versions(),
            seconds={task: round(note.seconds, 3) for task, note in sorted(progress.notes.items())},
            kept=tuple(sorted(progress.kept)),
            facts=executor.facts,
        ),
    )
