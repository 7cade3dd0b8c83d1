"""Sessions of an applied plan, in a child process: its graph at level 1, and whether it does as it is told."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from analyzer.errors import MeasurementError
from analyzer.measurement.child_process import run_task
from analyzer.measurement.request import to_message
from analyzer.measurement.session import SessionSide
from analyzer.progress import Progress
from analyzer.run_folder import run_folder

if TYPE_CHECKING:
    import onnx

_CHILD = "analyzer.measurement.applied_child"
# Making a session of a large model takes minutes on a slow disk; more is a hang.
_TIMEOUT_S = 1800.0


def level_one(model: Path) -> onnx.ModelProto:
    """The graph that ONNX Runtime places, without weights: what its level 1 leaves of a model.

    Raises:
        MeasurementError: The CPU's provider cannot make a session of it.
    """
    import onnx

    with run_folder() as folder:
        saved = folder / "level-one.onnx"
        tasks = [{"kind": "level_one", "model": str(model), "optimized": str(saved)}]
        found = _done(tasks, folder, None)["level_one"]
        if found.get("trouble") or not saved.exists():
            raise MeasurementError(found.get("trouble") or "ONNX Runtime saved no optimised graph")
        return onnx.load(str(saved), load_external_data=False)


def recorded_nodes(side: SessionSide) -> dict[str, str]:
    """The nodes that a session records, by name, and the provider of each, without ``ExecutionProvider``.

    Raises:
        MeasurementError: There is no such session.
    """
    nodes = result_of({"kind": "placement", "applied": to_message(side)})["nodes"]
    return {name: provider.removesuffix("ExecutionProvider") for name, provider in nodes.items()}


def result_of(task: Mapping[str, Any], progress: Progress | None = None) -> Mapping[str, Any]:
    """Return the results of one task.

    Raises:
        MeasurementError: It could not be done.
    """
    found: Mapping[str, Any] = verify([task], progress)[task["kind"]]
    if "trouble" in found:
        raise MeasurementError(found["trouble"])
    return found


def verify(tasks: Sequence[Mapping[str, Any]], progress: Progress | None = None) -> dict[str, Any]:
    """Results by kind of task, each with ``trouble`` where it could not be done; see ``applied_child``."""
    with run_folder() as folder:
        return _done(
            [{**task, "optimized": str(folder / "optimized.onnx")} for task in tasks], folder, progress
        )


def _done(
    tasks: Sequence[Mapping[str, Any]], folder: Path, progress: Progress | None
) -> dict[str, dict[str, Any]]:
    place = folder / "child"
    place.mkdir()
    values = run_task(_CHILD, {"tasks": list(tasks)}, place, timeout_s=_TIMEOUT_S, progress=progress)
    ended = values.get("trouble")
    trouble = ended.message if ended is not None else "it was not reached"
    return {task["kind"]: values.get(task["kind"]) or {"trouble": trouble} for task in tasks}
