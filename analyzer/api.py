"""The Python interface: ``analyze()``, the whole pipeline on one screen."""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from analyzer.checks import run as find_findings
from analyzer.errors import UsageError
from analyzer.loading.load import load
from analyzer.loading.loaded import Loaded
from analyzer.loading.model_reference import parse_reference, with_arguments
from analyzer.loading.python.user_module import executions_cached
from analyzer.loading.reading_process import HANDLERS
from analyzer.options import Options, takes_options
from analyzer.pipeline import build_record
from analyzer.pipeline.batches import AnalysisBasis, batch_models, corrections_of
from analyzer.pipeline.device_decisions import analysis_of, decide_on
from analyzer.pipeline.exports import exported_batches, missing_note, traced_steps
from analyzer.pipeline.forms import in_form, requested_precision
from analyzer.pipeline.machine import memory_of
from analyzer.pipeline.measure import measure_batches
from analyzer.pipeline.opportunities import opportunities
from analyzer.pipeline.options import invocation_of, make_options
from analyzer.pipeline.predictor import Predictor
from analyzer.pipeline.prepared import PreparedGraph, prepare, with_measured_sizes
from analyzer.pipeline.replay_record import write_replay_data
from analyzer.pipeline.target_devices import find_targets
from analyzer.pipeline.training_summary import training_result
from analyzer.process import SELDOM
from analyzer.progress import Progress, silent
from analyzer.reading import READING
from analyzer.record.analysis import Analysis

if TYPE_CHECKING:
    import onnx
    import onnx_ir
    import torch

    from analyzer.pipeline.apply.result import Applied

    Model = str | os.PathLike[str] | torch.nn.Module | onnx.ModelProto | onnx_ir.Model


READING.without_isolation(HANDLERS)  # where the system lets no other process answer


@takes_options("run")
def analyze(
    model: Model, *, inputs: Any = None, progress: Progress | None = None, check: bool = False, **options: Any
) -> Analysis:
    """Analyse a model: count, place, measure or predict, decide.

    Args:
        model: What the command line takes, or an ``nn.Module`` (with ``inputs``), an ``onnx.ModelProto``, an
            ``onnx_ir.Model``.
        inputs: For a module: a tensor, a tuple of them, or a dict.
        progress: Called with each stage and, where known, its share (0 to 1).
        check: Whether to decide as ``analyze check`` does: no figure of this machine, a fixed CPU.
        **options: The long options with underscores (``batch=64, gpu="a100"``); ``--no-run`` is ``run=False``,
            ``--no-cache`` is ``cache=False``, ``--no-state`` is ``state=False``. ``slo`` is a text with its
            unit (``"50ms"``) or a number, which is seconds.

    Raises:
        AnalyzerError: A child of it, by what the user must do.
        TypeError: No such option.
    """
    with _rare_garbage_collection(), executions_cached():
        return _analyze(model, inputs, {**options, "check": check}, progress or silent)[0]


def _analyze(
    model: Model, inputs: Any, keywords: Mapping[str, Any], progress: Progress
) -> tuple[Analysis, AnalysisBasis]:
    timings: dict[str, float] = {}  # of `environment`, the one part of a record that may differ between runs
    options = make_options(**keywords)
    targets = find_targets(options)
    with _timed(timings, "load"):
        loaded = replace(_load(model, inputs, options, progress), state=options.state)
        exported, why_not = exported_batches(loaded, options, progress)
    _stop_collecting_garbage(loaded, options)
    with _timed(timings, "count and place"):
        prepared, converted = _prepare(loaded, options)
    if converted:
        options = options.replace(run=False)  # what could be run is the model as it is
    with _timed(timings, "measure"):
        steps = {**traced_steps(loaded, options, targets), **exported}
        measured = measure_batches(loaded, options, targets, progress, steps)
    with _timed(timings, "predict and decide"):
        at_own_batch = measured.get(loaded.batch or 0)  # 0: a model without a batch
        prepared = prepared if at_own_batch is None else with_measured_sizes(prepared, at_own_batch.shapes)
        here, elsewhere = corrections_of(options, targets.cpu, prepared, at_own_batch)
        predictor = Predictor(options, targets.cpu, here, elsewhere=elsewhere)
        batches = batch_models(loaded, prepared, options, progress, steps, measured)
        decisions = decide_on(predictor, prepared, batches, targets.gpus, loaded.batch, measured, progress)
    missing = missing_note(loaded, options, batches.prepared_graphs, why_not)
    model_info = build_record.model_info(
        replace(loaded, notes=(*loaded.notes, *missing)),
        prepared.graph,
        requested_precision(options, decisions.decision_input),
        converted=converted,
    )
    analysis = replace(
        analysis_of(model_info, prepared, decisions, targets.cpu),
        invocation=invocation_of(model, keywords, default_gpu=targets.default_gpu),
        environment=build_record.describe(
            measured=at_own_batch,
            timings_s=timings,
            cached=loaded.cached,
            cpu=targets.cpu,
            exported=loaded.exporter != "onnx",
        ),
        # A step's other batches come from new traces, which a record cannot make.
        kept=write_replay_data(predictor, prepared, batches, loaded.batch, measured)
        if loaded.step is None
        else None,
    )
    # Both read the record itself: its plans and, of findings, all of it.
    step = training_result(loaded, decisions.decision_input, prepared, options, analysis, batches.between)
    analysis = replace(analysis, training=step)
    basis = AnalysisBasis(
        predictor=predictor,
        prepared=prepared,
        models=batches,
        gpu=decisions.gpus[0] if decisions.gpus else None,
        measured=measured,
        loaded=loaded,
    )
    analysis = replace(analysis, opportunities=opportunities(analysis, predictor, prepared, batches))
    return replace(analysis, findings=find_findings(analysis)), basis


@takes_options("generate")
def analyze_generation(
    model: Model, inputs: Any = None, *, progress: Progress | None = None, **options: Any
) -> Analysis:
    """Analyse a language model that generates: prefill and decode steps with a cache that stays on the device.

    Args:
        model: A folder with ``config.json`` or that file, as Hugging Face keeps a model; a folder of ONNX
            Runtime GenAI; an ``.onnx`` file with its cache; a Python file or a module, with a configuration of
            Hugging Face or with ``example_inputs(batch, tokens, past)``.
        inputs: For a module without a configuration: a function of ``batch``, ``tokens`` and ``past`` that
            gives the inputs of a step of ``tokens`` new tokens behind ``past`` cached ones.
        progress: Called with each stage and, where known, its share (0 to 1).
        **options: The long options of ``analyze generate`` with underscores (``prompt=1024, gpu="a100"``);
            ``--no-run`` is ``run=False``, ``--no-cache`` is ``cache=False``. ``ttft`` and ``tpot`` are texts
            with their unit (``"50ms"``) or numbers, which are seconds.

    Raises:
        AnalyzerError: A child of it, by what the user must do.
        TypeError: No such option.
    """
    # Here: every command but `generate` starts without it.
    from analyzer.pipeline.generation import generation_with_basis

    with _rare_garbage_collection(), executions_cached():
        return generation_with_basis(model, inputs, options, progress or silent)[0]


@takes_options("capacity")
def plan_capacity(
    model: Model | Analysis,
    inputs: Any = None,
    *,
    progress: Progress | None = None,
    **options: Any,
) -> Analysis:
    """Size a service: which instances keep a limit of latency at a rate, how many, batched how, at what price.

    Args:
        model: What ``analyze()`` takes, or an analysis: of ``analyze()``, ``load_report()`` or a record's path.
        inputs: As for ``analyze()``.
        progress: Called with each stage and, where known, its share (0 to 1).
        **options: The long options of ``analyze capacity`` with underscores (``rate=500, p99="50ms"``);
            ``--no-run`` is ``run=False``. A limit is a text with its unit, or a number, which is seconds.

    Raises:
        AnalyzerError: A child of it, by what the user must do.
        TypeError: No such option.
    """
    # Here: every command but `capacity` starts without it.
    from analyzer.pipeline.capacity.plan import plan

    with _rare_garbage_collection(), executions_cached():
        return plan(model, inputs, options, _analyze, progress or silent)


@takes_options("apply")
def apply_plan(
    model: Model | Analysis,
    inputs: Any = None,
    *,
    output: str | os.PathLike[str],
    force: bool = False,
    progress: Progress | None = None,
    **options: Any,
) -> Applied:
    """Write a folder that runs a plan: annotated model, session's settings, a program, what was verified.

    Args:
        model: What ``analyze()`` takes, or an analysis: of ``analyze()``, ``load_report()`` or a record's path.
        inputs: As for ``analyze()``.
        output: The folder; one that holds something needs ``force``.
        force: Whether files of that folder may be replaced.
        progress: Called with each stage and, where known, its share (0 to 1).
        **options: The long options of ``analyze apply`` with underscores (``plan="hybrid", gpu="l4"``);
            ``--no-run`` is ``run=False``.

    Raises:
        AnalyzerError: A child of it, by what the user must do.
        TypeError: No such option.
    """
    # Here: every command but `apply` starts without it.
    from analyzer.pipeline.apply.apply import apply_plan as apply_it

    with _rare_garbage_collection(), executions_cached():
        say = progress or silent
        return apply_it(model, inputs, options, output, _analyze, say, force=force)


@takes_options("render")
def analyze_record(analysis: Analysis, *, progress: Progress | None = None, **options: Any) -> Analysis:
    """Return the model of a saved record decided anew; nothing is measured and no model is read.

    Args:
        analysis: From ``load_report``.
        progress: Called with each stage and, where known, its share (0 to 1).
        **options: ``gpu``, ``cpu``, ``precision``, ``objective``, ``slo``, ``pin``, ``prices``, ``pricing``,
            ``region`` and ``utilisation``, as the command line takes them; what is left out stays as the record
            has it.

    Raises:
        AnalyzerError: An unknown device, or a record without what is needed.
        TypeError: No such option.
    """
    # Here: `analyze()` itself decides nothing anew, and every command but `render` starts without it.
    from analyzer.pipeline.replay import decide_again

    decided = decide_again(analysis, options, progress or silent)
    return replace(decided, findings=find_findings(decided))


def _prepare(loaded: Loaded, options: Options) -> tuple[PreparedGraph, bool]:
    """Return the model at its batch, and whether it is another graph than the one that was loaded."""
    graph = loaded.graph()
    form = in_form(graph, options)
    prepared = prepare(form, release=options.onnxruntime or "")
    memory = memory_of(loaded, prepared.graph)
    prepared = prepared if memory is None else replace(prepared, step_peak=memory.peak_bytes)
    return prepared, form is not graph


@contextmanager
def _rare_garbage_collection() -> Iterator[None]:
    """Let the garbage collector look less often: exporting makes millions of objects that live on.

    With Python's own thresholds a fifth to a quarter of a large export's time goes into finding no garbage.
    """
    before, enabled = gc.get_threshold(), gc.isenabled()
    gc.set_threshold(*SELDOM)
    try:
        yield
    finally:
        if not gc.get_freeze_count():
            # What was made lives on: counted as old at once, it is not walked from young to old first.
            gc.freeze()
            gc.unfreeze()
        gc.set_threshold(*before)
        if enabled:
            gc.enable()


def _stop_collecting_garbage(loaded: Loaded, options: Options) -> None:
    """Let the collector rest until ``analyze`` ends, where nothing is run and nothing is traced anew.

    A prediction makes values without circles: of a large graph the collector took a sixth of the time, and
    freed nothing.
    """
    if not options.run and loaded.step is None:
        gc.disable()


@contextmanager
def _timed(timings: dict[str, float], stage: str) -> Iterator[None]:
    start = time.perf_counter()
    yield  # no try: of a stage that failed there is no record
    timings[stage] = time.perf_counter() - start


def _load(model: Model, inputs: Any, options: Options, progress: Progress) -> Loaded:
    def stage(name: str) -> None:
        progress(name, None)

    if isinstance(model, (str, os.PathLike)):
        if inputs is not None:
            raise UsageError(
                "inputs= goes with a module; a file brings its own.", hint="Use input= or example_inputs."
            )
        return load(
            with_arguments(parse_reference(os.fspath(model)), options.arguments, options.script_arguments),
            batch=options.batch,
            specs=options.inputs,
            opset=options.opset,
            use_cache=options.cache,
            progress=stage,
            training=options.training,
            limits=options.limits,
        )
    if options.arguments:
        raise UsageError("arg= says how a model is built, and this one is built already.")
    # No cache: an object in memory has no file whose content could be the key.
    from analyzer.loading.load import load_live

    return load_live(
        model,
        inputs=inputs,
        batch=options.batch,
        specs=options.inputs,
        opset=options.opset,
        progress=stage,
        training=options.training,
        limits=options.limits,
    )
