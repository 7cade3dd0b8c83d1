"""The working folder on another machine: whether it is seen there, else a copy in which paths read the same.

A record shows paths relative to their repository, and a repository is known by its ``.git``, which is not
carried. So a node lays the copy out below a folder that stands for the repository, with an empty ``.git``
wherever there is one here; what still names the copy's own place is told as ours.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from analyzer.errors import ModelError, UsageError
from analyzer.fleet.job import Job, Outcome
from analyzer.loading.dependencies import Dependencies
from analyzer.loading.model_reference import parse_reference
from analyzer.loading.python.source_lines import repository_root
from analyzer.run_folder import folder_aside
from analyzer.text import first_few
from analyzer.toml_file import split_entry

# Beside those that Ray leaves out itself (ray_constants.RAY_RUNTIME_ENV_DEFAULT_EXCLUDES).
_NOT_LOOKED_INTO = frozenset((".git", ".venv", "venv", "__pycache__", "node_modules"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Carried:
    """A folder that nodes have a copy of: where it is on the machine that asks, and ``below`` its repository.

    ``below`` is ``.`` for the repository itself, empty where it lies in none. ``repositories`` are folders
    inside of it that are repositories themselves, ``left_out`` those that a fleet wrote, both relative to it.
    """

    folder: str
    below: str
    repositories: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()


def carried(folder: str, *, notes: str) -> Carried:
    """Return what nodes must know of the working folder; in the folder called ``notes`` a fleet keeps notes."""
    repositories, left_out = [], []
    for path, names, files in os.walk(folder):
        relative = os.path.relpath(path, folder)
        if notes in names:
            left_out.append(relative)
            names.clear()
            continue
        if relative != os.curdir and (".git" in names or ".git" in files):
            repositories.append(relative)
        names[:] = [name for name in names if name not in _NOT_LOOKED_INTO]
    root = repository_root(os.path.realpath(folder))
    return Carried(
        folder=folder,
        below=os.path.relpath(os.path.realpath(folder), root) if root else "",
        repositories=tuple(sorted(repositories)),
        left_out=tuple(sorted(left_out)),
    )


def require_inside(jobs: Iterable[Job], folder: str) -> None:
    """Says which models, or files that options name, lie outside of what is carried.

    Raises:
        UsageError: Some do.
    """
    outside = sorted({path for job in jobs for path in files_of(job) if not Path(path).is_relative_to(folder)})
    if outside:
        raise UsageError(
            f"The cluster does not have the files of this machine, and these lie outside of the working folder "
            f"that is carried there: {first_few(outside)}.",
            hint="Start from a folder that holds them, or work in one that all nodes share.",
        )


def files_of(job: Job) -> Iterator[str]:
    """Whole paths of a model and of the files that its options name."""
    path = model_path(job)
    if path is not None:
        yield path
    values = (
        one for value in job.keywords.values() for one in (value if isinstance(value, list) else (value,))
    )
    for text in (text for one in values if isinstance(one, str) for text in one.split(",")):
        whole = os.path.join(job.folder, split_entry(text)[0])
        if os.path.isfile(whole):
            yield os.path.normpath(whole)


def model_path(job: Job) -> str | None:
    """The whole path of a model's file or folder; None of a model in a module."""
    whole = os.path.normpath(os.path.join(job.folder, job.reference))
    if os.path.exists(whole):
        return whole
    try:
        path = parse_reference(job.reference).path
    except ModelError:  # it was there before: its row will say so
        return None
    return None if path is None else os.path.normpath(os.path.join(job.folder, path))


def sight(paths: Iterable[str], *, neighbours: bool = False) -> str:
    """Return a hash of the sizes and times of whole paths: what rsync takes for the sign of the same file.

    With ``neighbours`` what models import and read from the same folder is looked at too.
    """
    digest = hashlib.sha256()
    for path in sorted(_with_neighbours(paths) if neighbours else set(paths)):
        try:
            found = os.stat(path)
            told = f"{found.st_size} {found.st_mtime_ns}" if not os.path.isdir(path) else "folder"
        except OSError:
            told = "none"
        digest.update(f"{path}\0{told}\0".encode("utf-8", "surrogateescape"))
    return digest.hexdigest()


def _with_neighbours(paths: Iterable[str]) -> set[str]:
    """The paths, and Python files and configurations in their folders."""
    found = set(paths)
    for folder in {path if os.path.isdir(path) else os.path.dirname(path) for path in found}:
        try:
            names = os.listdir(folder)
        except OSError:
            continue
        found |= {os.path.join(folder, name) for name in names if name.endswith((".py", ".json"))}
    return found


def lay_out(copy: str, told: Carried) -> str:
    """Lay the carried files out as in their repository, once, by links; return the folder to work in."""
    # The same files may have been carried from elsewhere.
    place_of_it = "\0".join((told.below, *told.repositories)).encode("utf-8", "surrogateescape")
    top = f"{copy.rstrip(os.sep)}-{hashlib.sha256(place_of_it).hexdigest()[:12]}"
    below = told.below or os.curdir
    if not os.path.isdir(top):
        with folder_aside(Path(top).parent) as building:
            place = os.path.normpath(os.path.join(building, below))
            shutil.copytree(copy, place, copy_function=_link, symlinks=True, dirs_exist_ok=True)
            repositories = [os.path.join(place, name) for name in told.repositories]
            for folder in (str(building), *repositories) if told.below else repositories:
                os.makedirs(os.path.join(folder, ".git"), exist_ok=True)
            try:
                os.rename(building, top)
            except OSError:  # another worker of this node was quicker
                if not os.path.isdir(top):
                    raise
    return os.path.normpath(os.path.join(top, below))


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:  # a file system without links
        shutil.copy2(source, target)


def moved(job: Job, told: Carried, here: str) -> Job:
    """A job as it is asked where the carried folder lies elsewhere."""
    swap = _Swap(told.folder, here)
    return replace(
        job,
        reference=swap.path(job.reference),
        keywords={name: swap.value(value) for name, value in job.keywords.items()},
        folder=swap.path(job.folder),
    )


def moved_back(outcome: Outcome, told: Carried, here: str) -> Outcome:
    """An outcome as it would be told where the carried folder is: texts, and what it was made from."""
    swap = _Swap(here, told.folder)
    failure = outcome.model.failure
    if failure is not None:
        failure = replace(failure, message=swap.text(failure.message), hint=swap.text(failure.hint))
    read = outcome.dependencies
    return replace(
        outcome,
        model=replace(
            outcome.model,
            reference=swap.path(outcome.model.reference),
            failure=failure,
            notes=tuple(swap.text(note) for note in outcome.model.notes),
        ),
        record=swap.text(outcome.record),
        page=swap.text(outcome.page),
        log=swap.text(outcome.log),
        dependencies=Dependencies(
            files={swap.path(path): digest for path, digest in read.files.items()},
            folders={swap.path(path): digest for path, digest in read.folders.items()},
            environment=read.environment,
            imports=read.imports,
            home=swap.path(read.home),
        ),
    )


class _Swap:
    """One folder's path for another's."""

    def __init__(self, old: str, new: str) -> None:
        self._old, self._new = old, new

    def path(self, path: str) -> str:
        inside = path == self._old or path.startswith(self._old.rstrip(os.sep) + os.sep)
        return self._new + path[len(self._old) :] if inside else path

    def value(self, value: Any) -> Any:
        if isinstance(value, str):
            return ",".join(map(self.path, value.split(",")))
        return [self.value(one) for one in value] if isinstance(value, list) else value

    def text(self, text: str) -> str:
        return text.replace(self._old, self._new)
