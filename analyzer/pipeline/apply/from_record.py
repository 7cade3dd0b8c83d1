"""A saved record -> its plan, and the model that it was made of."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from analyzer.errors import ModelError, RecordError, UsageError
from analyzer.generation.sources import is_configuration
from analyzer.loading.load import load
from analyzer.loading.loaded import Loaded
from analyzer.loading.model_reference import is_record as is_saved_report
from analyzer.loading.model_reference import parse_reference, with_arguments
from analyzer.options import keywords_of
from analyzer.pipeline.batches import AnalysisBasis
from analyzer.pipeline.build_record import digest
from analyzer.pipeline.generation import is_generating
from analyzer.pipeline.options import make_options
from analyzer.pipeline.replay import basis_of, decide_again
from analyzer.progress import Progress
from analyzer.record import load_report
from analyzer.record.analysis import Analysis

# What of the question says how the model is loaded.
_LOADING = ("input", "input_data", "limit", "cache")
# What of it says how the plan was made, which is there already.
_ANALYSED = ("arg", "onnxruntime", "state", "threads", "runs", "time_budget")


def is_record(model: object) -> bool:
    """Return whether MODEL is a saved record or one in memory.

    Raises:
        UsageError: It is a configuration, which has no weights.
    """
    named = os.fspath(model) if isinstance(model, (str, os.PathLike)) else ""
    if is_generating(model) or (is_configuration(named) and not is_saved_report(named)):
        raise UsageError(
            "A configuration says how a model is built, and has no weights to be run.",
            hint="Apply the model itself: an .onnx or .py file, one step of it at a time.",
        )
    return isinstance(model, Analysis) or is_saved_report(named)


def analysed_record(model: Any, given: Mapping[str, Any], progress: Progress) -> tuple[Analysis, AnalysisBasis]:
    """Return the record, decided anew where other devices or pins are given, and its model.

    ``given`` are keywords of ``analyze()``.

    Raises:
        RecordError: The record is of something else, or its model is not there or is another by now.
        UsageError: What was given does not fit a record.
    """
    analysis = model if isinstance(model, Analysis) else load_report(model)
    if analysis.model.training or analysis.generation is not None:
        raise RecordError(
            "A record of training or of generation has no session to apply.",
            hint="Apply the model itself: `analyze apply MODEL`.",
        )
    for name in _ANALYSED:
        value = given.get(name)
        if value not in (None, (), []) and value is not True:
            option = "no-state" if value is False else name.replace("_", "-")
            raise UsageError(
                f"--{option}: the record's plan is made already, and that would be another.",
                hint=f"Apply the model itself: `analyze apply MODEL --{option} ...`.",
            )
    loaded = _model_of(analysis, given, progress)
    for name, own in (("opset", analysis.model.opset), ("batch", analysis.model.batch)):
        if given.get(name) is not None and str(given[name]) != str(own):
            raise UsageError(
                f"The record's plan is for {name} {own}, not for {given[name]}.",
                hint=f"Apply the model itself with --{name}.",
            )
    changed = {name: value for name, value in given.items() if name in keywords_of("render")}
    if changed:
        analysis = decide_again(analysis, changed)
    basis = replace(basis_of(analysis, changed), loaded=loaded)
    if given.get("run") is False:
        options = basis.predictor.options.replace(run=False)
        basis.predictor.options = options
    return analysis, basis


def _model_of(analysis: Analysis, given: Mapping[str, Any], progress: Progress) -> Loaded:
    named = analysis.invocation.model if analysis.invocation is not None else None
    if named is None:
        raise RecordError(
            "The record does not name its model: it was made from an object in memory.",
            hint="Apply the model itself: apply_plan(model, ...).",
        )
    try:
        reference = parse_reference(named)
    except ModelError as error:
        raise RecordError(
            f"The record's model {named} is not here.",
            hint="Work in the root of its repository, or in the folder of the first run.",
        ) from error
    stored = analysis.invocation.options if analysis.invocation is not None else {}
    loading = {name: value for name, value in given.items() if name in _LOADING}
    options = make_options(
        **{
            "input": stored.get("input", ()),
            "input_data": next(iter(stored.get("input-data", ())), None),
            "arg": stored.get("arg", ()),
            "script_arg": stored.get("script-arg", ()),
            **loading,
        }
    )
    loaded = load(
        with_arguments(reference, options.arguments, options.script_arguments),
        batch=analysis.model.batch,
        specs=options.inputs,
        opset=analysis.model.opset,
        use_cache=options.cache,
        progress=lambda stage: progress(stage, None),
        limits=options.limits,
    )
    loaded = replace(loaded, state=options.state)
    if digest(loaded.proto) != analysis.model.digest:
        raise RecordError(
            f"The model {named} has changed since the record was made.",
            hint="Analyse it again, or apply the model itself.",
        )
    return loaded
