"""What ``analyze apply`` is asked, checked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from analyzer.errors import OutputError, UsageError
from analyzer.text import nearest

PlanName = Literal["cpu", "gpu", "hybrid"]
PLANS: tuple[PlanName, ...] = ("cpu", "gpu", "hybrid")
AUTO = "auto"
# What `--fix` takes, in the order in which they are applied.
FIX_NAMES = ("fusions", "last-logits")
ALL_FIXES = "all"
# Precisions that a model is converted to; the rest say what float32 is computed in.
CONVERTED = ("fp16", "int8")
_NO_CONVERTER = {
    "bf16": "ONNX Runtime ships no converter to it, and its CPU provider no kernels to compare numbers with",
    "int4": "weights in 4 bits are predicted, not written",
}
# What `apply` writes beside the model and its weights.
SESSION, PROGRAM, RESULT, RECORD = "session.json", "run.py", "apply.json", "record.json"
# Of the model before its fixes.
ORIGINAL_RECORD = "original.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplyQuestion:
    """What is applied, and where it is written.

    Attributes:
        plan: None for the verdict's.
        folder: Where the files go.
        force: Whether files of that folder may be replaced.
        auto_opset: Whether the opset is chosen by time.
        fixes: Names of those to apply.
        every_fix: Whether all were asked for, so that one that does not apply is left out.
        form: The precision that the model is to be converted to where it is not in it; None for none.
    """

    plan: PlanName | None
    folder: Path
    force: bool = False
    auto_opset: bool = False
    fixes: tuple[str, ...] = ()
    every_fix: bool = False
    form: str | None = None

    @property
    def changes_model(self) -> bool:
        """Whether the model is rewritten before its plan is applied."""
        return bool(self.fixes or self.form)


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
        **_fixes(given.get("fix")),
        form=_form(given.get("precision")),
    )
    _check_folder(question)
    return question


def _plan(given: object) -> PlanName | None:
    if given is None:
        return None
    name = str(given)
    for plan in PLANS:
        if plan == name:
            return plan
    meant = nearest(name.lower(), PLANS)
    raise UsageError(
        f"--plan {name}: no such plan.",
        hint=f"Did you mean {meant}?" if meant else f"One of {', '.join(PLANS)}.",
    )


def _fixes(given: str | Sequence[str] | None) -> dict[str, Any]:
    names = given.split(",") if isinstance(given, str) else list(given or ())
    asked = [name.strip().lower() for name in names if name.strip()]
    for name in asked:
        if name not in (*FIX_NAMES, ALL_FIXES):
            meant = nearest(name, (*FIX_NAMES, ALL_FIXES))
            raise UsageError(
                f"--fix {name}: no such fix.",
                hint=f"Did you mean {meant}?" if meant else f"One of {', '.join((*FIX_NAMES, ALL_FIXES))}.",
            )
    if names and not asked:
        raise UsageError("--fix: no name.", hint=f"One of {', '.join((*FIX_NAMES, ALL_FIXES))}.")
    every = ALL_FIXES in asked
    return {"fixes": tuple(name for name in FIX_NAMES if every or name in asked), "every_fix": every}


def _form(precision: Any) -> str | None:
    return precision if precision in CONVERTED or precision in _NO_CONVERTER else None


def check_form(form: str) -> None:
    """Refuses a precision that nothing converts a model to.

    Raises:
        UsageError: Nothing does.
    """
    if form in _NO_CONVERTER:
        raise UsageError(
            f"--precision {form}: {_NO_CONVERTER[form]}.",
            hint=f"One of {', '.join(CONVERTED)}, or a model that is exported in {form}.",
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
