"""Fixes one after the other, and the proof that the applied plan gives the model's outputs."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from analyzer.conversion import integer_form
from analyzer.decision.decision_input import DecisionInput
from analyzer.errors import AnalyzerError, DisagreementError, RecordError, UsageError
from analyzer.graph import Graph
from analyzer.loading.python.source_lines import shown_path
from analyzer.loading.weights import Runnable, materialise
from analyzer.measurement.applied_child import verify
from analyzer.measurement.output_agreement import allowed
from analyzer.measurement.request import to_message
from analyzer.measurement.session import SessionSide
from analyzer.measurement.tensor_files import save_tensors
from analyzer.operators import draws_random_numbers
from analyzer.option_kinds import NEGATION
from analyzer.options import CUDA_GRAPH, NHWC, OPTIONS, PlanName, keywords_of
from analyzer.pipeline.apply.fixes import (
    Bench,
    FixedStage,
    NotApplied,
    OutputTerms,
    Stage,
    compared,
    cut_logits,
    in_half,
    in_integers,
    numbers_task,
    restore_fusions,
)
from analyzer.pipeline.apply.request import ApplyRequest, check_form
from analyzer.pipeline.apply.result import Applied, AppliedFix, Verified
from analyzer.pipeline.batches import AnalysisBasis
from analyzer.pipeline.forms import CONVERTED
from analyzer.pipeline.measure import installed_release, minor
from analyzer.pipeline.replay import basis_of, decide_again
from analyzer.pipeline.target_devices import gpu_of_this_machine, model_precision
from analyzer.progress import Progress
from analyzer.record.analysis import Analysis
from analyzer.text import first_few, plural
from analyzer.units import seconds

Fix = Callable[[Stage, Bench], FixedStage | NotApplied]
FIXES: Mapping[str, Fix] = {"fusions": restore_fusions, "last-logits": cut_logits}
FORMS: Mapping[str, Fix] = {"fp16": in_half, "int8": in_integers}
_FEEDS, _MODEL = "original-inputs.npz", "model.onnx"
# What says how the original is loaded: the model behind its fixes is fixed to all of that.
_OF_LOADING = frozenset(
    {"batch", "input", "input_data", "opset", "precision", "cache", "training", "dataset_size"}
)


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


# Types that NumPy has, and computes with.
_COMPARED = frozenset({"bool", "float16", "float32", "float64"}) | {
    f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)
}
_TIMED_S = 5.0
_THERE = "`python run.py --verify` compares it on a machine with a GPU."


def verified(
    result: Applied,
    side: SessionSide,
    feeds: Path,
    question: DecisionInput,
    fixed: FixedModel | None,
    progress: Progress,
    *,
    run: bool,
) -> Applied:
    """Return the result with what was found; ``run`` says whether it may be timed."""
    plain = SessionSide(model=side.model if fixed is None else fixed.original.model_path)
    here = gpu_of_this_machine()
    on_gpu = side.provider == "cuda"
    # Without a GPU the annotated model runs on the CPU, too: its numbers must be the same.
    runs = side if here is not None or not on_gpu else replace(side, provider="cpu", cuda={})
    # A captured graph reads and writes where it did when it was captured: run.py binds memory once.
    runs = replace(runs, cuda={name: value for name, value in runs.cuda.items() if name != CUDA_GRAPH})
    tasks = [
        {
            "precision": _arithmetic(side, question.graph) if runs.provider == "cuda" else None,
            **numbers_task(plain, runs, feeds, OutputTerms() if fixed is None else fixed.terms),
        }
    ]
    # Another release may place it otherwise: what is installed proves nothing of it.
    other = on_gpu and minor(installed_release()) != minor(result.onnxruntime)
    if not other:
        tasks.append({"kind": "placement", "applied": to_message(side)})
    timed = run and on_gpu and here is not None and question.gpu is not None and CUDA_GRAPH not in side.cuda
    if timed:
        tasks.append(
            {
                "kind": "time",
                "applied": to_message(side),
                "feeds": str(feeds),
                # A cache that grows lies there, too, though no two runs share its memory.
                "in_place": dict(result.state) if question.graph.carried else None,
                "budget_s": _TIMED_S,
            }
        )
    progress("verifying numbers and placement", None)
    matches = verify(tasks)
    reasons: dict[str, str] = {}
    numbers: bool | None = None
    differences: tuple[Mapping[str, Any], ...] = ()
    if "trouble" in matches["numbers"]:
        reasons["numbers"] = f"They were not compared: {matches['numbers']['trouble']}."
    else:
        numbers, wrong, rows = compared(matches["numbers"])
        # The noise is of converted models alone.
        differences = tuple(
            {name: value for name, value in row.items() if name != "sqnr_db" or value is not None}
            for row in rows
        )
        if wrong:
            reasons["numbers"] = wrong
    draws = any(map(draws_random_numbers, question.graph.nodes))
    if numbers is False and draws:
        # Each device draws its own: a difference says nothing of the plan.
        numbers, reasons["numbers"] = None, f"The model draws random numbers: {reasons['numbers']}."
    placement = None
    if other:
        reasons["placement"] = (
            f"The plan is for ONNX Runtime {result.onnxruntime}; {installed_release()} is installed."
        )
    else:
        placement = _placement(result, matches["placement"], reasons, renamed=NHWC in side.cuda)
    measured, in_time = _time(result, side, matches.get("time"), reasons, here_is_gpu=here is not None)
    # What each output may be off by between the plan's session and one of the same model on the CPU.
    outputs = question.graph.outputs
    tolerances = {
        output.name: allowed(output.dtype.name, _arithmetic(side, question.graph))
        for output in outputs
        if output.dtype.name in _COMPARED and not draws
    }
    notes, left = list(result.notes), [output for output in outputs if output.name not in tolerances]
    if left and not tolerances and draws:
        notes.append("run.py --verify compares no numbers: the model draws random ones.")
    elif left:
        names = first_few(f"{output.name} ({output.dtype.name})" for output in left)
        notes.append(f"run.py --verify does not compare {names}: NumPy has no such type to compute with.")
    return replace(
        result,
        verified=Verified(placement=placement, numbers=numbers, time=in_time, reasons=reasons),
        differences=differences,
        measured_s=measured,
        tolerances=tolerances,
        notes=tuple(notes),
    )


def _arithmetic(side: SessionSide, graph: Graph) -> str | None:
    """Return a GPU's rounding where it is coarser than the outputs' types: a key of ``TOLERANCES``."""
    if side.provider != "cuda":
        return None
    if integer_form(graph) is not None:
        return "int8"
    half = {"fp16": "float16", "bf16": "bfloat16"}.get(model_precision(graph))
    return half or (None if "use_tf32" in side.cuda else "tf32")


def _placement(
    result: Applied, observed: Mapping[str, Any], reasons: dict[str, str], *, renamed: bool
) -> bool | None:
    """Compare nodes and copies; of a session that renames nodes, those that are planned alone."""
    if "trouble" in observed:
        reasons["placement"] = f"CUDA's provider does not load here: {observed['trouble']}. {_THERE}"
        return None
    nodes = {name: provider.removesuffix("ExecutionProvider") for name, provider in observed["nodes"].items()}
    names = result.nodes.keys() if renamed else nodes.keys() | result.nodes.keys()
    wrong = sorted(name for name in names if nodes.get(name) != result.nodes.get(name))
    problems = []
    if wrong:
        first = wrong[0]
        problems.append(
            f"{plural(len(wrong), 'node')} elsewhere than planned, such as {first}: "
            f"{nodes.get(first, 'not recorded')} where {result.nodes.get(first, 'nothing')} was planned"
        )
    if observed["copies"] != result.copies:
        problems.append(f"{plural(observed['copies'], 'copy', 'copies')} where {result.copies} were planned")
    if problems:
        reasons["placement"] = "; ".join(problems)
    return not problems


def _time(
    result: Applied,
    side: SessionSide,
    observed: Mapping[str, Any] | None,
    reasons: dict[str, str],
    *,
    here_is_gpu: bool,
) -> tuple[float | None, bool | None]:
    if observed is None:
        why = (
            "the plan needs no GPU, and `analyze` times the CPU"
            if side.provider == "cpu"
            else "there is no GPU here"
            if not here_is_gpu
            else "`python run.py` times a CUDA graph"
            if CUDA_GRAPH in side.cuda
            else "--no-run"
        )
        reasons["time"] = f"It was not timed: {why}."
        return None, None
    if "trouble" in observed:
        reasons["time"] = f"It was not timed: {observed['trouble']}."
        return None, None
    median = float(observed["median_s"])
    low, high = result.latency.low, result.latency.high
    inside = low <= median <= high
    if not inside:
        reasons["time"] = f"{seconds(median)} where {seconds(low)} to {seconds(high)} were predicted"
    return median, inside
