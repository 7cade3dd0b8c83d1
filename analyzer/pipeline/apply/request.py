"""Options of ``analyze apply``, checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from analyzer.errors import OutputError, UsageError
from analyzer.option_kinds import AUTO, parts
from analyzer.options import ALL, FIXES, ApplyOptions, PlanName
from analyzer.pipeline.forms import CONVERTED

# Precisions that it is not converted to; the rest say what float32 is computed in.
_NO_CONVERTER = {
    "bf16": "ONNX Runtime ships no converter to it, and its CPU provider no kernels to compare numbers with",
    "int4": "weights in 4 bits are predicted, not written",
}
# What `apply` writes beside the model and its weights.
SESSION, PROGRAM, RESULT, RECORD = "session.json", "run.py", "apply.json", "record.json"
# Of the model before its fixes.
ORIGINAL_RECORD = "original.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplyRequest:
    """The plan to apply, and its destination.

    Attributes:
        plan: None for the verdict's.
        folder: Where the files go.
        force: Whether files of that folder may be replaced.
        auto_opset: Whether the opset is chosen by time.
        fixes: Names of those to apply.
        every_fix: Whether all were options for, so that one that does not apply is left out.
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
        """Return whether the model is rewritten before its plan is applied."""
        return bool(self.fixes or self.form)


def make_request(given: Mapping[str, Any], folder: Path, *, force: bool = False) -> ApplyRequest:
    """Check what was given.

    ``given`` are keywords of ``apply_plan()``.

    Raises:
        OutputError: The folder is a file, or holds something already.
        UsageError: A plan that is none, no folder, several GPUs or batches, a training step.
    """
    for name in ("gpu", "batch"):
        value = given.get(name)
        several = parts(value) if isinstance(value, (str, list, tuple)) else []
        if len(several) > 1 or (name == "gpu" and ALL in several):
            raise UsageError(
                f"--{name} {','.join(map(str, several))}: one session is for one {name}.",
                hint=f"Compare them with `analyze MODEL --{name} ...`, then apply one.",
            )
    options, precision = ApplyOptions.of(given), given.get("precision")
    every_fix = ALL in options.fixes
    request = ApplyRequest(
        plan=options.plan,
        folder=folder,
        force=force,
        auto_opset=given.get("opset") == AUTO,
        fixes=tuple(name for name in FIXES if every_fix or name in options.fixes),
        every_fix=every_fix,
        form=precision if precision in (*CONVERTED, *_NO_CONVERTER) else None,
    )
    if folder.exists() and not folder.is_dir():
        raise OutputError(f"{folder} is a file.", hint="--output names a folder.")
    try:
        filled = folder.is_dir() and any(folder.iterdir())
    except OSError as error:
        raise OutputError(f"{folder} cannot be read: {error.strerror}.") from error
    if filled and not force:
        raise OutputError(
            f"The folder {folder} is not empty.", hint="Name another, or --force to replace what apply writes."
        )
    return request


def check_form(form: str) -> None:
    """Refuses a precision that nothing converts a model to."""
    if form in _NO_CONVERTER:
        raise UsageError(
            f"--precision {form}: {_NO_CONVERTER[form]}.",
            hint=f"One of {', '.join(CONVERTED)}, or a model that is exported in {form}.",
        )
