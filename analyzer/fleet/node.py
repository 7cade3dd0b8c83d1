"""What a machine of a cluster does: says what it is and what it sees, and works on one model at a time.

Nothing here knows who sent it: a cluster's engine calls these functions in processes that live for many models.
"""

from __future__ import annotations

import atexit
import os
import platform
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import msgspec

from analyzer import __version__
from analyzer.fleet.carried import Carried, lay_out, moved, moved_back, sight
from analyzer.fleet.job import Job
from analyzer.fleet.local import available_bytes
from analyzer.fleet.slot import WorkSlot
from analyzer.loading.cache import package_versions

_VISIBLE = "CUDA_VISIBLE_DEVICES"


class OtherNodeError(Exception):
    """A machine whose answers would not be this one's: it has another program, or other files."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFacts:
    """What a machine is: its program, and the slugs of its first GPU (empty for none) and its CPU."""

    program: Mapping[str, str]
    gpu: str
    cpu: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What all models of a run are worked on with; ``python``: some of them are Python.

    ``program`` is ``program_facts()`` of who asks, empty where it is the same machine; ``carried`` the folder
    of which a node has a copy, None where it has the folder itself.
    """

    python: bool
    timeout_s: float
    program: Mapping[str, str] = field(default_factory=dict)
    carried: Carried | None = None


@lru_cache(maxsize=1)
def program_facts() -> Mapping[str, str]:
    """What decides whether two machines give the same bytes, most telling first."""
    from analyzer.fleet.store import program_digest

    return {
        "onnx-analyzer": __version__,
        "Python": platform.python_version(),
        **dict(package_versions()),
        "the program's files": program_digest(),
    }


def require_same_program(ours: Mapping[str, str], theirs: Mapping[str, str], node: str) -> None:
    """Says what a node has another version of.

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
    """What this machine is, also where an engine hides its GPUs from a task that asked for none."""
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


def lacking(paths: Sequence[str], told: Carried) -> list[str]:
    """Which of these files of the carried folder did not come here, relative to it."""
    here = _working_copy(told)
    names = (os.path.relpath(path, told.folder) for path in paths)
    return sorted(name for name in names if not os.path.exists(os.path.join(here, name)))


def _working_copy(told: Carried) -> str:
    """The folder here that stands for the carried one; the working folder of this process is a copy of that."""
    return lay_out(_started_in(), told)


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
    """Works on a model in a process of its own; returns the outcome as bytes.

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


class _Kept:
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
    if _Kept.slot is None or _Kept.key != key:
        if _Kept.slot is not None:
            _Kept.slot.close()
        else:
            atexit.register(_close)
        _restore_environment(carried=carried)
        left = min(available_bytes(), memory or sys.maxsize)
        _Kept.slot = WorkSlot(python=python, memory=int(left / at_once) if at_once else 0)
        _Kept.key = key
    return _Kept.slot


def _close() -> None:
    if _Kept.slot is not None:
        _Kept.slot.close()


def _restore_environment(*, carried: bool) -> None:
    """Takes away what an engine gives its own processes, and a process of ``analyze MODEL`` has not."""
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
    kept = [path for path in paths if os.path.realpath(path) != copy]
    if kept != paths:
        os.environ["PYTHONPATH"] = os.pathsep.join(kept)
