"""Fixes one after the other: the original model -> a model file that is analysed as one of its own."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from analyzer.conversion import integer_form
from analyzer.errors import AnalyzerError, DisagreementError, RecordError, UsageError
from analyzer.loading.python.source_lines import shown_path
from analyzer.loading.weights import Runnable, materialise
from analyzer.measurement.tensor_files import save_tensors
from analyzer.option_kinds import NEGATION
from analyzer.options import OPTIONS, PlanName, keywords_of
from analyzer.pipeline.apply.fixes.bench import Bench, NotApplied, OutputTerms, Stage
from analyzer.pipeline.apply.fixes.rewritings import (
    FixedStage,
    cut_logits,
    in_half,
    in_integers,
    restore_fusions,
)
from analyzer.pipeline.apply.request import ApplyRequest, check_form
from analyzer.pipeline.apply.result import AppliedFix
from analyzer.pipeline.batches import AnalysisBasis
from analyzer.pipeline.forms import CONVERTED
from analyzer.pipeline.replay.decide import basis_of, decide_again
from analyzer.pipeline.target_devices import model_precision
from analyzer.progress import Progress
from analyzer.record.analysis import Analysis

Fix = Callable[[Stage, Bench], FixedStage | NotApplied]
FIXES: Mapping[str, Fix] = {"fusions": restore_fusions, "last-logits": cut_logits}
FORMS: Mapping[str, Fix] = {"fp16": in_half, "int8": in_integers}
_FEEDS, _MODEL = "original-inputs.npz", "model.onnx"
# What says how the original is loaded: the model behind its fixes is fixed to all of that.
_OF_LOADING = frozenset({"batch", "input", "opset", "precision", "cache", "training", "dataset_size"})


@dataclass(frozen=True, slots=True, kw_only=True)
class FixedModel:
    """A model behind all of its fixes.

    ``before`` and ``original`` are the analysis and the files of the original; ``batch`` is None for what the
    model's inputs say.
    """

    before: Analysis
    path: Path
    batch: int | None
    original: Runnable
    terms: OutputTerms
    fixes: tuple[AppliedFix, ...]

    def options(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return what is asked about it: what the original was, by the record or the user."""
        options: dict[str, Any] = {}
        texts = self.before.invocation.options if self.before.invocation is not None else {}
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
        if self.batch is not None:
            options["batch"] = self.batch
        return options

    def named_as_written(self, analysis: Analysis, folder: Path) -> Analysis:
        """Return its analysis under the name that it is written to."""
        path, invocation = shown_path(folder / _MODEL), analysis.invocation
        return replace(
            analysis,
            model=replace(analysis.model, name=self.before.model.name, source=path),
            invocation=None if invocation is None else replace(invocation, model=path),
        )

    def release(self) -> None:
        """Remove the file: its weights are linked where it was written to, which is then the only place."""
        shutil.rmtree(self.path.parent, ignore_errors=True)


def fixed_model(
    analysis: Analysis, basis: AnalysisBasis, request: ApplyRequest, folder: Path, progress: Progress
) -> tuple[FixedModel | None, tuple[str, ...]]:
    """Return the model after the requested fixes, None where there is none, and notes on skipped ones.

    ``folder`` outlives what is done with the result.

    Raises:
        DisagreementError: A fix that was named gives other numbers.
        UsageError: A fix that was named does not apply.
    """
    fixes: dict[str, Fix] = {name: FIXES[name] for name in request.fixes}
    graph = basis.prepared.graph
    if request.form is not None and request.form not in (model_precision(graph), integer_form(graph)):
        check_form(request.form)
        fixes[request.form] = FORMS[request.form]
    if not fixes:
        return None, ()
    assert basis.loaded is not None
    place = folder / "original"
    place.mkdir()
    progress("writing the original model", None)
    # Without the user's own model, whose weights would stay in memory beside those of the tools.
    original = replace(materialise(basis.loaded, basis.loaded.batch, place), eager=None)
    feeds = folder / _FEEDS
    save_tensors(feeds, original.feeds, types=original.feed_types)
    # Those that one may be chosen of; a split only where it is what is applied.
    plans: tuple[PlanName, ...] = ("cpu", "gpu")
    if request.plan is not None:
        plans = (request.plan,)
    elif basis.predictor.pins or analysis.verdict.device == "hybrid":
        plans = ("hybrid",)
    bench = Bench(
        basis=basis,
        original=original.model_path,
        feeds=feeds,
        plans=plans,
        where_faster=request.every_fix,
        folder=folder,
        progress=progress,
    )
    stage = first = bench.stage(original.model_path, OutputTerms())
    applied: list[AppliedFix] = []
    notes: list[str] = []
    for name, fix in fixes.items():
        optional = request.every_fix and name in FIXES
        progress(f"fixing: {name}", None)
        made = _attempted(fix, stage, bench)
        if isinstance(made, FixedStage):
            before, after = stage.latency, made.stage.latency
            applied.append(
                AppliedFix(
                    name=name,
                    what=made.what,
                    latency_before_s=before.value,
                    low_before_s=before.low,
                    high_before_s=before.high,
                    latency_after_s=after.value,
                    low_after_s=after.low,
                    high_after_s=after.high,
                    blocked=made.blocked,
                    numbers=made.numbers,
                )
            )
            if made.stage.latency.value > stage.latency.value:
                notes.append(f"{_option(name)} is predicted to take more time here than the model without it.")
            if stage is not first:
                shutil.rmtree(stage.path.parent, ignore_errors=True)
            stage = made.stage
        elif optional:
            notes.append(f"--fix {name} was left out: {made.why}.")
        elif made.disagrees:
            raise DisagreementError(
                f"{_option(name)} is not applied: {made.why}.",
                hint="Nothing was written. Leave it out to apply the rest.",
            )
        else:
            raise UsageError(f"{_option(name)} does not apply to this model: {made.why}.", hint="Leave it out.")
    if not applied:
        return None, tuple(notes)
    fixed = FixedModel(
        before=analysis,
        path=stage.path,
        batch=stage.loaded.static_batch if stage.loaded.static_batch == basis.loaded.batch else None,
        original=original,
        terms=stage.terms,
        fixes=tuple(applied),
    )
    return fixed, tuple(notes)


def _attempted(fix: Fix, stage: Stage, bench: Bench) -> FixedStage | NotApplied:
    try:
        return fix(stage, bench)
    except UsageError:
        raise
    except AnalyzerError as error:
        return NotApplied(why=f"what it made cannot be read or run ({error.message.rstrip('.')})")


def _option(name: str) -> str:
    return f"--precision {name}" if name in FORMS else f"--fix {name}"


def with_form_of_record(
    request: ApplyRequest, analysis: Analysis, basis: AnalysisBasis
) -> tuple[ApplyRequest, Analysis, AnalysisBasis]:
    """Return a record decided in a form of its model as one in the model's own, with the form as a fix.

    Raises:
        RecordError: The record holds the operators of the form alone.
        UsageError: Nothing converts a model to the form.
    """
    assert basis.loaded is not None
    precision, graph = basis.predictor.options.precision, basis.loaded.graph()
    own = model_precision(graph)
    if precision is None or precision in (own, integer_form(graph)):
        return request, analysis, basis
    check_form(precision)
    if precision not in CONVERTED:
        return request, analysis, basis
    if precision == "int8":
        raise RecordError(
            "The record is of the model in int8, whose floats it does not hold.",
            hint="Apply the model itself: `analyze apply MODEL --precision int8`.",
        )
    changed = {"precision": own}
    full = replace(basis_of(analysis, changed), loaded=basis.loaded)
    full.predictor.options = full.predictor.options.replace(run=basis.predictor.options.run)
    return replace(request, form=request.form or precision), decide_again(analysis, changed), full
