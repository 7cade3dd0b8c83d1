"""MODEL and options of ``analyze generate`` -> its record: the pipeline of a model that generates."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from analyzer.checks import run as find_findings
from analyzer.devices.device import Device
from analyzer.errors import UsageError
from analyzer.generation.answer import request_of, setting_of
from analyzer.generation.model import GeneratingModel
from analyzer.generation.sources import (
    OpenedModel,
    from_configuration,
    from_genai,
    from_graph,
    from_module,
    from_python,
    is_configuration,
    is_python,
    no_way,
)
from analyzer.generation.sources import is_generating as names_generating
from analyzer.generation.times import Runner, timed
from analyzer.loading.configuration_file import is_genai
from analyzer.loading.model_reference import parse_reference, split_path, with_arguments
from analyzer.options import ALL, GenerationOptions, Options, keywords_of
from analyzer.ort.execution import Session
from analyzer.pipeline import environment
from analyzer.pipeline.generation_measure import MeasuredRequest, MeasuredSides, measure_request, not_run
from analyzer.pipeline.generation_record import Named, generation_analysis
from analyzer.pipeline.measure import Measured
from analyzer.pipeline.options import make_options, path_shower
from analyzer.pipeline.target_devices import Targets, find_targets
from analyzer.progress import Progress
from analyzer.record.analysis import Analysis
from analyzer.record.invocation import Invocation, written

_MOST_SEQUENCES = 2**16


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class GenerationBasis:
    """What a record of generation rests on, for whoever asks more of the same model."""

    model: GeneratingModel
    question: GenerationOptions
    options: Options
    targets: Targets


def generation_with_basis(
    model: Any, inputs: Any, given: Mapping[str, Any], progress: Progress
) -> tuple[Analysis, GenerationBasis]:
    """The record of a model that generates, and its basis; see ``analyzer.api.analyze_generation``."""
    started = time.perf_counter()
    of_any = {name: value for name, value in given.items() if name in keywords_of("run")}
    if of_any.get("gpu") in (ALL, [ALL], (ALL,)):
        # All of the catalogue stand in the table as it is; the answer is for the usual one.
        del of_any["gpu"]
    options = make_options(**of_any)
    question = _question(given, options)
    targets = find_targets(options)
    progress("reading the model", None)
    source = _source(model, inputs, options, progress)
    loaded = time.perf_counter()
    measured = _measured(source.model, question, options, targets, progress)
    run = time.perf_counter()
    progress("predicting", None)
    analysis = generation_analysis(source.model, _named(model, source), question, options, targets, measured)
    spent = {"load": loaded - started, "predict and decide": time.perf_counter() - run}
    ran = bool(measured.facts or measured.messages)
    if ran:
        spent["measure"] = run - loaded
    analysis = replace(
        analysis,
        invocation=_invocation(model, given, targets),
        environment=environment.describe(
            measured=Measured(facts=measured.facts, messages=measured.messages) if ran else None,
            timings_s=spent,
            cached=source.cached,
            cpu=targets.cpu,
        ),
    )
    basis = GenerationBasis(model=source.model, question=question, options=options, targets=targets)
    return replace(analysis, findings=find_findings(analysis)), basis


def is_generating(model: Any) -> bool:
    """Whether MODEL, if it is named by a text, can only be one that generates."""
    text = os.fspath(model) if isinstance(model, (str, os.PathLike)) else ""
    return bool(text) and names_generating(text)


def _question(given: Mapping[str, Any], options: Options) -> GenerationOptions:
    largest = max(options.batches, default=1)
    if largest > _MOST_SEQUENCES:
        raise UsageError(f"--batch {largest}: must be a whole number from 1 to {_MOST_SEQUENCES:,}.")
    return GenerationOptions.of(given).replace(batches=options.batches or (1,))


def _measured(
    model: GeneratingModel, question: GenerationOptions, options: Options, targets: Targets, progress: Progress
) -> MeasuredSides:
    """The request on this machine's CPU and GPU, so far as the question is about them and may run anything."""
    if not options.run:
        return MeasuredSides()
    request = request_of(model, question)
    # The CPU of this machine is known by its calibration; another one that launches was named.
    host = None if targets.local_cpu else targets.cpu

    def on(device: Device, session: Session) -> MeasuredRequest | None:
        setting = setting_of(model, question, device)
        types = model.types_on(device, setting)
        if types is None:
            return None
        if setting.width > 1:
            return not_run(session, f"{setting.width} of them share the model.")
        runner = Runner(host=host, threads=options.threads if session == "cpu" else None)
        (predicted,) = timed(model, device, setting, [request], runner)
        return measure_request(
            model, types, predicted, options, progress, session=session, launch=setting.launch
        )

    return MeasuredSides(
        cpu=on(targets.cpu, "cpu") if targets.local_cpu else None,
        gpu=on(targets.gpus[0], "cuda") if targets.local_gpu else None,
    )


def _source(model: Any, inputs: Any, options: Options, progress: Progress) -> OpenedModel:
    if not isinstance(model, (str, os.PathLike)):
        # By the class's module: torch need not be imported to say that a model is none of its.
        if any(
            base.__module__.startswith("torch.nn") and base.__name__ == "Module" for base in type(model).__mro__
        ):
            return from_module(model, inputs, lambda stage: progress(stage, None))
        raise no_way(type(model).__name__)
    text = os.fspath(model)
    if options.arguments and not is_python(text):
        raise UsageError(
            f"--arg {options.arguments[0]}: {text} is no Python code that builds a model.",
            hint="Arguments go to a class or a function of a .py file or of a module.",
        )
    if is_genai(text):
        return from_genai(text, limits=options.limits)
    if text.lower().endswith(".onnx"):
        return from_graph(text, limits=options.limits)
    if is_python(text):
        return from_python(
            with_arguments(parse_reference(text), options.arguments),
            lambda stage: progress(stage, None),
            use_cache=options.cache,
            limits=options.limits,
        )
    if is_configuration(text) or not os.path.exists(text):
        return from_configuration(text)
    raise no_way(text)


def _shown(text: str) -> str:
    """MODEL, its path as reports show it."""
    path, name = split_path(text)
    return path_shower()(path or name) + (name if path else "")


def _named(model: Any, source: OpenedModel) -> Named:
    named = os.fspath(model) if isinstance(model, (str, os.PathLike)) else None
    shown = _shown(named) if named is not None else f"{type(model).__name__} in memory"
    return Named(name=source.name, source=shown, notes=source.notes)


def _invocation(model: Any, given: Mapping[str, Any], targets: Targets) -> Invocation:
    named = os.fspath(model) if isinstance(model, (str, os.PathLike)) else None
    show = path_shower()
    return Invocation(
        command="generate",
        model=_shown(named) if named is not None else None,
        options=written("generate", given, show),
        stand_ins={} if targets.default_gpu is None else {"gpu": (targets.default_gpu,)},
    )
