"""What ``analyze apply`` is asked, checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from analyzer.errors import OutputError, UsageError
from analyzer.text import nearest

PlanName = Literal["cpu", "gpu", "hybrid"]
PLANS: tuple[PlanName, ...] = ("cpu", "gpu", "hybrid")
AUTO = "auto"
# What `apply` writes beside the model and its weights.
SESSION, PROGRAM, RESULT, RECORD = "session.json", "run.py", "apply.json", "record.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplyQuestion:
    """What is applied, and where it is written.

    Attributes:
        plan: None for the verdict's.
        folder: Where the files go.
        force: Whether files of that folder may be replaced.
        auto_opset: Whether the opset is chosen by time.
    """

    plan: PlanName | None
    folder: Path
    force: bool = False
    auto_opset: bool = False


def make_question(given: Mapping[str, Any], folder: Path, *, force: bool = False) -> ApplyQuestion:
    """Checks what was given.

    Args:
        given: Keywords of ``apply_plan()``.
        folder: Where to write.
        force: Whether files there may be replaced.

    Raises:
        OutputError: The folder is a file, or holds something already.
        UsageError: A plan that is none, no folder, several GPUs or batches, a training step.
    """
    for name in ("gpu", "batch"):
        value = given.get(name)
        several = (
            value.split(",") if isinstance(value, str) else value if isinstance(value, (list, tuple)) else ()
        )
        if len(several) > 1 or (name == "gpu" and "all" in several):
            raise UsageError(
                f"--{name} {','.join(map(str, several))}: one session is for one {name}.",
                hint=f"Compare them with `analyze MODEL --{name} ...`, then apply one.",
            )
    question = ApplyQuestion(
        plan=_plan(given.get("plan")),
        folder=folder,
        force=force,
        auto_opset=given.get("opset") == AUTO,
    )
    _check_folder(question)
    return question


def _plan(name: str | None) -> PlanName | None:
    if name is None:
        return None
    for plan in PLANS:
        if plan == name:
            return plan
    meant = nearest(name.lower(), PLANS)
    raise UsageError(
        f"--plan {name}: no such plan.",
        hint=f"Did you mean {meant}?" if meant else f"One of {', '.join(PLANS)}.",
    )


def _check_folder(question: ApplyQuestion) -> None:
    folder = question.folder
    if folder.exists() and not folder.is_dir():
        raise OutputError(f"{folder} is a file.", hint="--output names a folder.")
    try:
        filled = folder.is_dir() and any(folder.iterdir())
    except OSError as error:
        raise OutputError(f"{folder} cannot be read: {error.strerror}.") from error
    if filled and not question.force:
        raise OutputError(
            f"The folder {folder} is not empty.", hint="Name another, or --force to replace what apply writes."
        )
