"""A machine of a cluster: what it is, the working folder on it, and one model at a time.

A record shows paths relative to their repository, and a repository is known by its ``.git``, which is not
carried. So a node lays the copy out below a folder that stands for the repository, with an empty ``.git``
wherever there is one here; what still names the copy's own place is told as ours.

Nothing here knows who sent it: a cluster's engine calls these functions in processes that live for many models.
"""

from __future__ import annotations

import atexit
import hashlib
import os
import platform
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import msgspec

from analyzer import __version__
from analyzer.errors import ModelError, UsageError
from analyzer.fleet.job import Job, Outcome
from analyzer.fleet.local import WorkSlot, available_bytes
from analyzer.loading.cache import package_versions
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
    """Report which models, or files that options name, lie outside of what is carried.

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
    """Return the whole path of a model's file or folder; None of a model in a module."""
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
            status = os.stat(path)
            facts = f"{status.st_size} {status.st_mtime_ns}" if not os.path.isdir(path) else "folder"
        except OSError:
            facts = "none"
        digest.update(f"{path}\0{facts}\0".encode("utf-8", "surrogateescape"))
    return digest.hexdigest()


def _with_neighbours(paths: Iterable[str]) -> set[str]:
    """Return the paths, and Python files and configurations in their folders."""
    result = set(paths)
    for folder in {path if os.path.isdir(path) else os.path.dirname(path) for path in result}:
        try:
            names = os.listdir(folder)
        except OSError:
            continue
        result |= {os.path.join(folder, name) for name in names if name.endswith((".py", ".json"))}
    return result


def lay_out(copy: str, folder_facts: Carried) -> str:
    """Lay the carried files out as in their repository, once, by links; return the folder to work in."""
    # The same files may have been carried from elsewhere.
    place_of_it = "\0".join((folder_facts.below, *folder_facts.repositories)).encode("utf-8", "surrogateescape")
    top = f"{copy.rstrip(os.sep)}-{hashlib.sha256(place_of_it).hexdigest()[:12]}"
    below = folder_facts.below or os.curdir
    if not os.path.isdir(top):
        with folder_aside(Path(top).parent) as building:
            place = os.path.normpath(os.path.join(building, below))
            shutil.copytree(copy, place, copy_function=_link, symlinks=True, dirs_exist_ok=True)
            repositories = [os.path.join(place, name) for name in folder_facts.repositories]
            for folder in (str(building), *repositories) if folder_facts.below else repositories:
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


def moved(job: Job, folder_facts: Carried, here: str) -> Job:
    """Return a job with paths of a carried folder that lies elsewhere."""
    swap = _Swap(folder_facts.folder, here)
    return replace(
        job,
        reference=swap.path(job.reference),
        keywords={name: swap.value(value) for name, value in job.keywords.items()},
        folder=swap.path(job.folder),
    )


def moved_back(outcome: Outcome, folder_facts: Carried, here: str) -> Outcome:
    """Return an outcome as it would be told where the carried folder is: texts, and what it was made from."""
    swap = _Swap(here, folder_facts.folder)
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


_VISIBLE = "CUDA_VISIBLE_DEVICES"


class OtherNodeError(Exception):
    """A machine whose answers would not be this one's: it has another program, or other files."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFacts:
    """A machine's facts: its program, and the slugs of its first GPU (empty for none) and its CPU."""

    program: Mapping[str, str]
    gpu: str
    cpu: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """The settings that all models of a run share; ``python``: some of them are Python.

    ``program`` is ``program_facts()`` of who asks, empty where it is the same machine; ``carried`` the folder
    of which a node has a copy, None where it has the folder itself.
    """

    python: bool
    timeout_s: float
    program: Mapping[str, str] = field(default_factory=dict)
    carried: Carried | None = None


@lru_cache(maxsize=1)
def program_facts() -> Mapping[str, str]:
    """Return facts that decide whether two machines give the same bytes, the most telling first."""
    from analyzer.fleet.store import program_digest

    return {
        "onnx-analyzer": __version__,
        "Python": platform.python_version(),
        **dict(package_versions()),
        "the program's files": program_digest(),
    }


def require_same_program(ours: Mapping[str, str], theirs: Mapping[str, str], node: str) -> None:
    """Report what a node has another version of.

    Raises:
        OtherNodeError: There is something.
    """
    for name, version in ours.items():
        other = theirs.get(name, "")
        if other == version:
            continue
        if name == "the program's files":
            raise OtherNodeError(f"{node} has onnx-analyzer {__version__} of other files than this machine.")
        raise OtherNodeError(f"{node} has {name} {other or 'not installed'}; this machine has {version}.")


def node_facts() -> NodeFacts:
    """Return this machine's facts, also where an engine hides its GPUs from a task that requested none."""
    import psutil

    from analyzer.devices.detection import this_machine

    began = psutil.Process().environ().get(_VISIBLE)
    if os.environ.get(_VISIBLE) == "" and began != "":
        os.environ.pop(_VISIBLE)
        os.environ |= {} if began is None else {_VISIBLE: began}
    machine = this_machine()
    return NodeFacts(
        program=program_facts(), gpu=machine.gpu.slug if machine.gpu is not None else "", cpu=machine.cpu.slug
    )


def lacking(paths: Sequence[str], folder_facts: Carried) -> list[str]:
    """Return which of these files of the carried folder did not come here, relative to it."""
    here = _working_copy(folder_facts)
    names = (os.path.relpath(path, folder_facts.folder) for path in paths)
    return sorted(name for name in names if not os.path.exists(os.path.join(here, name)))


def _working_copy(folder_facts: Carried) -> str:
    """Return the local copy of the carried folder; the working folder of this process is a copy of that."""
    return lay_out(_started_in(), folder_facts)


@lru_cache(maxsize=1)
def _started_in() -> str:
    return os.getcwd()


@dataclass(frozen=True, slots=True, kw_only=True)
class Errand:
    """A model that is sent to a machine: its job as bytes, and its file, empty of a model in a module.

    ``sight`` is that of the file where who asks looked at it, empty where that need not be compared.
    ``at_once`` models share the machine at most, and ``memory`` bytes; 0 for what it has left.
    """

    job: bytes
    path: str = ""
    sight: str = ""
    at_once: int = 1
    memory: int = 0


def work_on_node(errand: Errand, order: Order) -> bytes:
    """Work on a model in a process of its own; return the outcome as bytes.

    Raises:
        OtherNodeError: This machine's answer would be another one.
    """
    # Machines that join while others work were not asked before.
    if order.program:
        require_same_program(order.program, program_facts(), platform.node())
    if errand.sight and sight((errand.path,)) != errand.sight:
        raise OtherNodeError(f"{platform.node()} does not have {errand.path} as it is here.")
    job = msgspec.msgpack.decode(errand.job, type=Job)
    here = ""
    if order.carried is not None:
        here = _working_copy(order.carried)
        job = moved(job, order.carried, here)
    # A measurement foresees its own need.
    at_once = 0 if job.device else errand.at_once
    slot = _slot(at_once, errand.memory, python=order.python, carried=order.carried is not None)
    outcome = slot.run(job, timeout_s=order.timeout_s)
    if order.carried is not None:
        outcome = moved_back(outcome, order.carried, here)
    return msgspec.msgpack.encode(outcome)


class _Cached:
    """The slot of this process, which outlives a model."""

    slot: WorkSlot | None = None
    key: tuple[object, ...] = ()


def _slot(at_once: int, memory: int, *, python: bool, carried: bool) -> WorkSlot:
    """Return the slot of this process, another one where it was begun for another use.

    So many share ``memory`` bytes, 0 for what is left; 0 of them for no limit. ``carried``: the working folder
    is a copy of another one.
    """
    # An engine gives each task its GPUs by a variable, which the slot's processes have from their beginning.
    key = (python, at_once, os.environ.get(_VISIBLE))
    if _Cached.slot is None or _Cached.key != key:
        if _Cached.slot is not None:
            _Cached.slot.close()
        else:
            atexit.register(_close)
        _restore_environment(carried=carried)
        left = min(available_bytes(), memory or sys.maxsize)
        _Cached.slot = WorkSlot(python=python, memory=int(left / at_once) if at_once else 0)
        _Cached.key = key
    return _Cached.slot


def _close() -> None:
    if _Cached.slot is not None:
        _Cached.slot.close()


def _restore_environment(*, carried: bool) -> None:
    """Remove variables that an engine gives its own processes and ``analyze MODEL`` has not."""
    import psutil

    began = psutil.Process().environ()
    # Ray sets it to the CPUs of the task.
    if "OMP_NUM_THREADS" not in began:
        os.environ.pop("OMP_NUM_THREADS", None)
    if not carried:
        return
    # The copy is put on the path of modules, where its files would stand in for libraries'.
    copy = os.path.realpath(_started_in())
    paths = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    remaining = [path for path in paths if os.path.realpath(path) != copy]
    if remaining != paths:
        os.environ["PYTHONPATH"] = os.pathsep.join(remaining)
