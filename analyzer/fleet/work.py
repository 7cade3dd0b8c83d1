"""What the process of one model does: the question answered, the page, the row of the table."""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from analyzer.errors import AnalyzerError, MemoryForeseenError
from analyzer.fleet.job import Job, Outcome, is_python, own_files
from analyzer.fleet.row import row_of
from analyzer.loading.dependencies import Dependencies, recording
from analyzer.record.analysis import Analysis
from analyzer.record.fleet import FleetFailure, FleetModel

# What allocators say where memory ends: PyTorch's (c10/core/impl/alloc_cpu.cpp), C++'s, Python's.
_OUT_OF_MEMORY = (
    "can't allocate memory",
    "not enough memory",
    "std::bad_alloc",
    "Cannot allocate memory",
    "MemoryError",
)


def work(job: Job) -> Outcome:
    """Answers a job; whatever goes wrong inside is the answer's failure."""
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
    """The folder in which a new file could stand in for a module that the model imports; empty of a graph."""
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
    """What was read, so far as this process could see it, with the model's own files."""
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
    """The model's file: another process reads it where it is an ONNX graph."""
    from analyzer.loading.model_reference import split_path

    files = own_files(job).files
    reference = os.path.abspath(os.path.join(job.folder, split_path(job.reference)[0]))
    return Dependencies(files={path: digest for path, digest in files.items() if path == reference})
