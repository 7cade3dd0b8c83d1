"""The fixes of a request applied, and the analysis of what they made as that of the written model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from analyzer.conversion import integer_form
from analyzer.errors import RecordError
from analyzer.loading.python.source_lines import shown_path
from analyzer.option_kinds import NEGATION
from analyzer.options import OPTIONS, keywords_of
from analyzer.pipeline.apply.fixes.chain import FixedModel, fixed_model
from analyzer.pipeline.apply.request import CONVERTED, ApplyRequest, check_form
from analyzer.pipeline.basis import AnalysisBasis
from analyzer.pipeline.replay.decide import basis_of, decide_again
from analyzer.pipeline.target_devices import model_precision
from analyzer.progress import Progress
from analyzer.record.analysis import Analysis

_MODEL = "model.onnx"
# What says how the original is loaded: the model behind its fixes is fixed to all of that.
_OF_LOADING = frozenset({"batch", "input", "opset", "precision", "cache", "training", "dataset_size"})


@dataclass(frozen=True, slots=True, kw_only=True)
class AppliedFixes:
    """What was done to a model.

    Attributes:
        before: Of the original.
        fixed: The model behind its fixes; None where none was applied.
        notes: On those that were left out, in sentences.
    """

    before: Analysis
    fixed: FixedModel | None
    notes: tuple[str, ...] = ()


def apply_fixes(
    analysis: Analysis, basis: AnalysisBasis, request: ApplyRequest, folder: Path, progress: Progress
) -> AppliedFixes:
    """Applies what was asked for; see ``fixed_model`` for its errors."""
    fixed, notes = fixed_model(analysis, basis, request, folder, progress)
    return AppliedFixes(before=analysis, fixed=fixed, notes=notes)


def options_behind_fixes(before: Analysis, given: Mapping[str, Any], fixed: FixedModel) -> dict[str, Any]:
    """What the model behind its fixes is asked for: what the original was, by the record or the user."""
    options: dict[str, Any] = {}
    texts = before.invocation.options if before.invocation is not None else {}
    for option in OPTIONS:
        if option.keyword in keywords_of("run") and option.name in texts:
            flag, values = option.kind.is_flag, texts[option.name]
            options[option.keyword] = (
                option.kind is not NEGATION if flag else values if option.kind.repeats else values[0]
            )
    if "cpu" in given:
        options.pop("threads", None)  # they were counted against the record's own CPU
    options |= given
    options = {name: value for name, value in options.items() if name not in _OF_LOADING}
    if fixed.batch is not None:
        options["batch"] = fixed.batch
    return options


def as_written(analysis: Analysis, fixes: AppliedFixes, request: ApplyRequest) -> Analysis:
    """The analysis of the model behind its fixes under the name that it is written to."""
    path = shown_path(request.folder / _MODEL)
    asked = analysis.invocation
    return replace(
        analysis,
        model=replace(analysis.model, name=fixes.before.model.name, source=path),
        invocation=None if asked is None else replace(asked, model=path),
    )


def with_form_of_record(
    request: ApplyRequest, analysis: Analysis, basis: AnalysisBasis
) -> tuple[ApplyRequest, Analysis, AnalysisBasis]:
    """A record that was decided in a form of its model: the same in the model's own, with the form as a fix.

    Raises:
        RecordError: The record holds the operators of the form alone.
        UsageError: Nothing converts a model to the form.
    """
    assert basis.loaded is not None
    asked, graph = basis.predictor.options.precision, basis.loaded.graph()
    own = model_precision(graph)
    if asked is None or asked in (own, integer_form(graph)):
        return request, analysis, basis
    check_form(asked)
    if asked not in CONVERTED:
        return request, analysis, basis
    if asked == "int8":
        raise RecordError(
            "The record is of the model in int8, whose floats it does not hold.",
            hint="Apply the model itself: `analyze apply MODEL --precision int8`.",
        )
    changed = {"precision": own}
    full = replace(basis_of(analysis, changed), loaded=basis.loaded)
    full.predictor.options = full.predictor.options.replace(run=basis.predictor.options.run)
    return replace(request, form=request.form or asked), decide_again(analysis, changed), full
