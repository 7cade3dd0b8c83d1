"""The process of one model: the question answered, the page, the row of the fleet's table."""

from __future__ import annotations

import gc
import math
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any

from analyzer.errors import AnalyzerError, MemoryForeseenError
from analyzer.fleet.job import Job, Outcome, is_python, own_files
from analyzer.loading.dependencies import Dependencies, recording
from analyzer.record.analysis import Analysis
from analyzer.record.fleet import FleetFailure, FleetModel
from analyzer.record.outcome import RankedWay
from analyzer.report import capacity_words, generation_text
from analyzer.report import ranking_text as ranking_words
from analyzer.text import latency_limit


def row_of(job: Job, analysis: Analysis) -> FleetModel:
    """Return the row of a model: its answer, and a cell for each device and batch of its record."""
    invocation = analysis.invocation
    cells, best = _cells(analysis)
    return FleetModel(
        name=job.name,
        reference=job.reference,
        question=job.question,
        options=dict(invocation.options) if invocation else {},
        digest=analysis.model.digest,
        parameters=analysis.model.parameters,
        device=_side(analysis),
        sentence=_sentence(analysis),
        errors=sum(finding.severity == "error" for finding in analysis.findings),
        warnings=sum(finding.severity == "warning" for finding in analysis.findings),
        cells=cells,
        best=best,
        cheapest=cheapest_of(cells),
        notes=analysis.model.notes,
    )


def cheapest_of(cells: tuple[RankedWay, ...]) -> int | None:
    """Return cell of the fewest dollars among those that run, fit and keep their limits; None where unknown."""

    def dollars(index: int) -> float:
        cell = cells[index]
        amount = cell.usd_per_month if cell.usd_per_month is not None else cell.usd_per_million
        return math.inf if amount is None or not cell.is_usable else amount

    index = min(range(len(cells)), key=dollars, default=None)
    return None if index is None or dollars(index) == math.inf else index


def limit_of(model: FleetModel, option: str) -> float | None:
    """Return seconds that an option of a row's question limits (``slo``, ``ttft``, ``tpot``); None for none."""
    words = model.options.get(option, ())
    return latency_limit(words[0], where=f"--{option}") if words else None


def judged_anew(model: FleetModel, cell: RankedWay) -> RankedWay:
    """Return a cell with corrected times; whether it keeps its limits follows from these."""
    if cell.meets is None:
        return cell
    if model.question == "run":
        pairs = [(cell.latency_s, limit_of(model, "slo"))]
    elif model.question == "generate":
        pairs = [(cell.ttft_s, limit_of(model, "ttft")), (cell.tpot_s, limit_of(model, "tpot"))]
    else:  # a queue's times are not corrected
        return cell
    known = [time_s <= limit_s for time_s, limit_s in pairs if time_s is not None and limit_s is not None]
    return replace(cell, meets=all(known)) if known else cell


def _side(analysis: Analysis) -> str:
    """Return what the answer runs on: ``cpu``, ``gpu``, ``hybrid`` or ``either``; empty where there is none."""
    answer = analysis.answer
    if answer is not None and (ranking_words.of_run(analysis) is None or ranking_words.is_elsewhere(analysis)):
        return answer.plan
    return analysis.verdict.device or ""


def _sentence(analysis: Analysis) -> str:
    """Return the answer, or why there is none."""
    if analysis.answer is not None:
        return analysis.answer.sentence
    if analysis.capacity is not None:
        return capacity_words.sentence(analysis.capacity)
    if analysis.generation is not None:
        return generation_text.sentence(analysis, analysis.generation)
    return analysis.verdict.sentence


def _cells(analysis: Analysis) -> tuple[tuple[RankedWay, ...], int | None]:
    """Return a way for each device and batch, of a service for each device, and the index of the answer.

    Of several instances with one CPU it is the cheapest; the answer's in any case.
    """
    ranking = analysis.ranking
    index_of: dict[tuple[str, int | None], int] = {}
    for index, one in enumerate(ranking):
        if not one.requested:  # another precision is another model, whose accuracy must be checked
            continue
        place = (one.device, one.batch if analysis.capacity is None else None)
        other = index_of.setdefault(place, index)
        if other not in (index, 0) and _dearer(ranking[other], one):
            index_of[place] = index
    answered = analysis.answer is not None and analysis.answer.meets is not False
    return tuple(ranking[index] for index in sorted(index_of.values())), 0 if answered else None


def _dearer(one: RankedWay, other: RankedWay) -> bool:
    if one.is_usable != other.is_usable:
        return other.is_usable
    return (one.usd_per_million or math.inf) > (other.usd_per_million or math.inf)


# What allocators say where memory ends: PyTorch's (c10/core/impl/alloc_cpu.cpp), C++'s, Python's.
_OUT_OF_MEMORY = (
    "can't allocate memory",
    "not enough memory",
    "std::bad_alloc",
    "Cannot allocate memory",
    "MemoryError",
)


def work(job: Job) -> Outcome:
    """Answer a job; whatever goes wrong inside is the answer's failure."""
    start = time.perf_counter()
    os.chdir(job.folder)
    recorded: list[Dependencies] = []
    try:
        # Around the question alone: what the run makes for itself is no part of the model.
        with _surroundings(job), recording(_first_on_the_import_path(job)) as recorded:
            analysis = _analysis(job)
    except AnalyzerError as error:
        memory = isinstance(error, MemoryForeseenError)
        memory = memory or any(text in error.message for text in _OUT_OF_MEMORY)
        failure = FleetFailure(
            kind="memory" if memory else "error", message=error.message, hint=error.hint or ""
        )
    except MemoryError:
        failure = OUT_OF_MEMORY
    except RecursionError as error:
        failure = FleetFailure(kind="error", message=f"It is nested too deeply: {error}.")
    except Exception as error:  # a fault of ours is told as such, and the other models go on
        failure = FleetFailure(
            kind="fault",
            message=f"This is a fault of analyze itself: {type(error).__name__}: {error}",
            hint=f"`analyze {job.reference}` shows where; please report it.",
        )
    else:
        return Outcome(
            model=row_of(job, analysis),
            record=analysis.render("json"),
            page=analysis.render("html"),
            dependencies=_read(job, recorded),
            seconds=time.perf_counter() - start,
        )
    gc.collect()  # what filled the memory is gone before anything more is asked for
    return Outcome(
        model=FleetModel(name=job.name, reference=job.reference, question=job.question, failure=failure),
        dependencies=_read(job, recorded),
        seconds=time.perf_counter() - start,
    )


OUT_OF_MEMORY = FleetFailure(
    kind="memory",
    message="It ran out of memory.",
    hint="Fewer at once (`--jobs 1`) leave more for each.",
)


@contextmanager
def _surroundings(job: Job) -> Iterator[None]:
    from analyzer.devices.detection import standing_for
    from analyzer.loading.reading_process import reading_process
    from analyzer.run_folder import temporary_things_in_one_folder

    with standing_for(job.machine), temporary_things_in_one_folder(), reading_process():
        yield


def _first_on_the_import_path(job: Job) -> str:
    """Return folder in that a new file could stand in for a module that the model imports; empty of a graph."""
    if not is_python(job):
        return ""
    from analyzer.loading.model_reference import parse_reference
    from analyzer.loading.python.user_module import home_folder

    with suppress(AnalyzerError):  # what has gone since it was named is told where it is read
        return home_folder(parse_reference(job.reference))
    return job.folder


def _analysis(job: Job) -> Analysis:
    from analyzer import api  # here: a process that only starts others needs none of it

    answers: dict[str, Any] = {
        "run": api.analyze,
        "generate": api.analyze_generation,
        "capacity": api.plan_capacity,
    }
    analysis: Analysis = answers[job.question](job.reference, **job.keywords)
    return analysis


def _read(job: Job, recorded: list[Dependencies]) -> Dependencies:
    """Return the files that were read, as far as this process saw them, with the model's own."""
    from analyzer.loading.cache import cache_folder

    seen = recorded[0] if recorded else Dependencies()
    own = own_files(job) if not seen.files else _model_file(job)
    # Entries of the cache come and go; what they were made from is noted with them.
    cache = os.path.join(os.path.abspath(cache_folder()), "")
    folders = {path: digest for path, digest in seen.folders.items() if not f"{path}/".startswith(cache)}
    files = {path: digest for path, digest in seen.files.items() if not path.startswith(cache)}
    return Dependencies(
        files={**files, **own.files},
        folders=folders,
        environment=seen.environment,
        imports=seen.imports,
        home=seen.home,
    )


def _model_file(job: Job) -> Dependencies:
    """Return the model's file: another process reads it where it is an ONNX graph."""
    from analyzer.loading.model_reference import split_path

    files = own_files(job).files
    reference = os.path.abspath(os.path.join(job.folder, split_path(job.reference)[0]))
    return Dependencies(files={path: digest for path, digest in files.items() if path == reference})
