"""The Python interface: ``analyze()``, the whole pipeline on one screen."""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Unpack

from analyzer.checks import run as find_findings
from analyzer.errors import UsageError
from analyzer.loading.load import load
from analyzer.loading.loaded import Loaded
from analyzer.loading.model_reference import parse_reference
from analyzer.option_table import AnalyzeOptions, RecordOptions
from analyzer.pipeline import build_record, environment
from analyzer.pipeline.batches import batch_models, correction_of
from analyzer.pipeline.device_decisions import decide_on
from analyzer.pipeline.measure import Measured, measure_batch
from analyzer.pipeline.measurement_memory import memory_of
from analyzer.pipeline.options import Options, asked_again, invocation_of, make_options, require_keywords
from analyzer.pipeline.prepared import Predictor, prepare
from analyzer.pipeline.replay.write import keep
from analyzer.pipeline.subgraph_results import body_results
from analyzer.pipeline.target_devices import Targets, find_targets
from analyzer.pipeline.training_batches import Steps, loaded_at
from analyzer.pipeline.training_summary import training_result
from analyzer.progress import Progress
from analyzer.record.analysis import Analysis, Devices

if TYPE_CHECKING:
    import onnx
    import onnx_ir
    import torch

    Model = str | os.PathLike[str] | torch.nn.Module | onnx.ModelProto | onnx_ir.Model


def analyze(
    model: Model, *, inputs: Any = None, progress: Progress | None = None, **options: Unpack[AnalyzeOptions]
) -> Analysis:
    """Analyses a model: counts, places, measures or predicts, decides.

    Args:
        model: What the command line takes, or an ``nn.Module`` (with ``inputs``), an ``onnx.ModelProto``, an
            ``onnx_ir.Model``.
        inputs: For a module: a tensor, a tuple of them, or a dict.
        progress: Told what is happening and, where known, how much of it is done (0 to 1).
        **options: The long options with underscores (``batch=64, gpu="a100"``); ``--no-run`` is ``run=False``,
            ``--no-cache`` is ``cache=False``.

    Raises:
        AnalyzerError: A child of it, by what the user must do.
        TypeError: No such option.
    """
    with _seldom_collecting():
        return _analyzed(model, inputs, options, progress or (lambda _stage, _share: None))


def _analyzed(model: Model, inputs: Any, options: AnalyzeOptions, tell: Progress) -> Analysis:
    timings: dict[str, float] = {}
    asked = make_options(**options)
    targets = find_targets(asked)
    with _timed(timings, "load"):
        loaded = _loaded(model, inputs, asked, tell)
    with _timed(timings, "count and place"):
        prepared = prepare(loaded.graph())
        memory = memory_of(loaded, prepared.graph)
        prepared = prepared if memory is None else replace(prepared, step_peak=memory.peak)
    with _timed(timings, "measure"):
        traced = _traced_steps(loaded, asked, targets)
        measured = _measure(loaded, asked, targets, tell, traced)
    with _timed(timings, "predict and decide"):
        here = measured.get(loaded.batch or 0)
        gpu = targets.gpus[0] if targets.gpus else None
        predictor = Predictor(asked, targets.cpu, correction_of(asked, targets.cpu, prepared, here))
        batches = batch_models(loaded, prepared, asked, tell, traced)
        found = decide_on(predictor, prepared, batches, targets.gpus, loaded.batch, measured)
        question, decision = found.question, found.decision
    analysis = Analysis(
        tool=build_record.TOOL,
        model=build_record.model_info(loaded, prepared.graph, question.precision),
        conventions=build_record.CONVENTIONS,
        devices=Devices(
            cpu=build_record.device_info(targets.cpu),
            gpu=build_record.device_info(gpu) if gpu is not None else None,
        ),
        totals=build_record.totals(prepared, question),
        operators=build_record.operators(question, decision),
        groups=build_record.groups(question),
        plans=decision.plans,
        verdict=decision.verdict,
        alternatives=found.others,
        costs=decision.costs,
        sweep=found.sweep.rows,
        session_fails=prepared.placement.fails,
        bodies=body_results(prepared.graph, prepared.placement) if gpu is not None else (),
        invocation=invocation_of(model, options, default_gpu=targets.default_gpu),
        environment=environment.describe(
            measured=here, timings_s=timings, cached=loaded.cached, cpu_name=targets.cpu.name
        ),
        kept=keep(
            asked, targets.cpu, targets.gpus, prepared, batches, loaded.batch, measured, predictor.instances
        )
        if loaded.step is None
        else None,
    )
    analysis = replace(
        analysis, training=training_result(loaded, question, prepared, asked, analysis, batches.between)
    )
    return replace(analysis, findings=find_findings(analysis))


def analyze_record(analysis: Analysis, **options: Unpack[RecordOptions]) -> Analysis:
    """The model of a saved record decided anew; nothing is measured and no model is read.

    Args:
        analysis: From ``load_report``.
        **options: ``gpu``, ``cpu``, ``precision``, ``objective``, ``slo``, ``pin``, ``prices`` and
            ``utilisation``, as the command line takes them; what is left out stays as the record has it.

    Raises:
        AnalyzerError: An unknown device, or a record without what is needed.
        TypeError: No such option.
    """
    from analyzer.pipeline.replay.decide import decide_again

    require_keywords("analyze_record", options, RecordOptions.__annotations__)
    found = decide_again(analysis, options)
    return replace(found, findings=find_findings(found), invocation=asked_again(analysis.invocation, options))


@contextmanager
def _seldom_collecting() -> Iterator[None]:
    """Lets the garbage collector look less often: exporting makes millions of objects that live on.

    With Python's own thresholds a fifth to a quarter of a large export's time goes into finding no garbage.
    """
    before = gc.get_threshold()
    gc.set_threshold(100_000, 50, 100)
    try:
        yield
    finally:
        gc.set_threshold(*before)


@contextmanager
def _timed(timings: dict[str, float], stage: str) -> Iterator[None]:
    start = time.perf_counter()
    yield
    timings[stage] = time.perf_counter() - start


def _loaded(model: Model, inputs: Any, asked: Options, tell: Progress) -> Loaded:
    def stage(text: str) -> None:
        tell(text, None)

    if isinstance(model, (str, os.PathLike)):
        if inputs is not None:
            raise UsageError(
                "inputs= goes with a module; a file brings its own.", hint="Use input= or example_inputs."
            )
        return load(
            parse_reference(os.fspath(model)),
            batch=asked.batch,
            specs=asked.inputs,
            opset=asked.opset,
            use_cache=asked.cache,
            progress=stage,
            training=asked.training,
        )
    from analyzer.loading.from_object import load_live

    return load_live(
        model,
        inputs=inputs,
        batch=asked.batch,
        specs=asked.inputs,
        opset=asked.opset,
        progress=stage,
        training=asked.training,
    )


def _runs_here(asked: Options, targets: Targets) -> bool:
    return asked.run and bool(targets.local_cpu or targets.local_gpu)


def _traced_steps(loaded: Loaded, asked: Options, targets: Targets) -> Steps:
    """A training step at each other batch that is to be run; empty for a model of inference."""
    if loaded.step is None or not _runs_here(asked, targets):
        return {}
    return {batch: loaded_at(loaded, batch, asked) for batch in asked.batches if batch != loaded.batch}


def _measure(
    loaded: Loaded, asked: Options, targets: Targets, tell: Progress, traced: Steps
) -> dict[int, Measured]:
    """What can be run here at each batch that was asked for, by batch."""
    if not _runs_here(asked, targets):
        return {}
    found = {}
    for batch in asked.batches or (loaded.batch,):
        at_batch = traced.get(batch, loaded) if batch is not None else loaded
        if at_batch is None or (batch != at_batch.batch and not (batch and at_batch.supports(batch))):
            continue
        found[batch or 0] = measure_batch(
            at_batch,
            at_batch.graph(batch),
            batch,
            asked,
            cpu=targets.local_cpu,
            cuda=targets.local_gpu,
            progress=tell,
        )
    return found
