"""ONNX Runtime's own tools that make another model of a model file, in a child process."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from analyzer.errors import MeasurementError
from analyzer.measurement.child_process import run_task
from analyzer.progress import Progress
from analyzer.run_folder import run_folder

_CHILD = "analyzer.measurement.model_tools_child"
# To calibrate a large model takes as long as some dozen runs of it without any fusion.
_TIMEOUT_S = 3600.0


def rewritten(
    tool: str, model: Path, folder: Path, progress: Progress | None = None, **arguments: Any
) -> Mapping[str, Any]:
    """Write what a tool makes of a model, with its weights beside it, into an empty folder; return its results.

    The tool, one of ``model_tools_child``, takes plain values besides. The model's file has its own name there.

    Raises:
        MeasurementError: It makes nothing of the model.
    """
    task = {"tool": tool, "model": str(model), "folder": str(folder), **arguments}
    with run_folder() as own:
        values = run_task(_CHILD, task, own, timeout_s=_TIMEOUT_S, progress=progress)
    trouble = values.get("trouble")
    if trouble is not None:
        raise MeasurementError(trouble.message, hint=trouble.hint)
    told: Mapping[str, Any] = values.get("told") or {}
    if not (folder / model.name).exists():
        raise MeasurementError("the tool wrote no model")
    return told
