"""MODEL or a record, and options of ``analyze capacity`` -> the record with its capacity."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from analyzer.checks import run as find_findings
from analyzer.devices import catalogue
from analyzer.errors import RecordError, UsageError
from analyzer.loading.model_reference import is_record
from analyzer.option_kinds import Command, parts
from analyzer.options import ALL, keywords_of
from analyzer.pipeline.batches import Analyse
from analyzer.pipeline.capacity.generation import GenerationService
from analyzer.pipeline.capacity.inference import InferenceService
from analyzer.pipeline.capacity.sizing import Service, service_opportunities, with_capacity
from analyzer.pipeline.capacity.traffic import (
    POISSON_NAME,
    is_poisson,
    make_generation_question,
    make_question,
    of_lengths,
    with_earlier,
)
from analyzer.pipeline.generation import generation_with_basis, is_generating
from analyzer.pipeline.options import path_shower
from analyzer.pipeline.replay import basis_of, decide_again
from analyzer.progress import Progress
from analyzer.record import load_report
from analyzer.record.analysis import Analysis
from analyzer.record.invocation import Invocation, written

# What only a model that generates is asked.
_OF_GENERATION = ("prompt", "output_tokens", "gpus", "weights", "kv", "launch", "tpot")


def plan(model: Any, inputs: Any, given: Mapping[str, Any], analyse: Analyse, progress: Progress) -> Analysis:
    """Return the record of a service; see ``analyzer.api.plan_capacity``."""
    named = os.fspath(model) if isinstance(model, (str, os.PathLike)) else None
    generates = is_generating(model)  # its configuration is JSON too
    show = path_shower(None if named is None or generates or is_record(named) else named)
    record = None
    if isinstance(model, Analysis) or (named is not None and is_record(named) and not generates):
        record = model if named is None else load_report(named)
    if record is not None and record.generation is not None:
        raise RecordError(
            "A record of a model that generates does not hold its steps at other sizes.",
            hint="`analyze capacity MODEL` with --ttft and --tpot takes seconds.",
        )
    if record is None and (given.get("ttft") is not None or generates):
        return _of_generation(model, inputs, given, show, progress)
    _require_single(given)
    whole = given if record is None else with_earlier(record, given)
    arrivals = str(whole.get("arrivals") or POISSON_NAME)
    question = make_question(whole, shown=show(arrivals))
    gpus, cpus = _names(given.get("gpu")), _cpus(given.get("cpu"))
    if record is not None:
        # The record, decided anew where other devices or prices are asked for.
        changed = _of_model(given, gpus, "run")
        of_a_model = [name for name in changed if name not in keywords_of("render") and name != "run"]
        if of_a_model:
            raise UsageError(
                f"--{of_a_model[0].replace('_', '-')} changes nothing about a saved report.",
                hint="Plan for the model itself, or leave it out.",
            )
        if record.model.training:
            raise UsageError(
                "A training step serves no requests.",
                hint="Plan for the model itself, or for a record of inference.",
            )
        changed.pop("run", None)
        analysis = replace(record, capacity=None)  # another plan takes its place
        analysis = decide_again(analysis, changed, progress) if changed else analysis
        basis = basis_of(analysis, {})
        gpus, cpus = _names(whole.get("gpu")), cpus or ((whole["cpu"],) if whole.get("cpu") else ())
    else:
        # All GPUs stand in the table of instances; the model's own report is about the usual one.
        analysis, basis = analyse(model, inputs, _of_model(given, gpus, "run"), progress)
    service = InferenceService(basis, question)
    planned = with_capacity(analysis, service, gpus, cpus, progress)
    return _answered(planned, service, whole, show, record=named if record is not None else None)


def _answered(
    planned: Analysis,
    service: Service,
    given: Mapping[str, Any],
    show: Callable[[str], str],
    *,
    record: str | None = None,
) -> Analysis:
    """Return plan with its findings and the question that it answers; of a saved record MODEL is its path."""
    model = planned.invocation.model if planned.invocation is not None else None
    # The usual arrivals are no file, and nothing to write.
    poisson = {"arrivals": None} if is_poisson(given.get("arrivals")) else {}
    invocation = Invocation(
        command="capacity",
        model=model if record is None else show(record),
        options=written("capacity", {**given, **poisson}, show),
    )
    planned = replace(planned, invocation=invocation)
    # In place of those of one run or request.
    planned = replace(planned, opportunities=service_opportunities(planned, service))
    return replace(planned, findings=find_findings(planned))


def check_service(model: str, given: Mapping[str, Any]) -> None:
    """Report what ``plan`` would refuse of its options alone, before a model is read.

    Raises:
        UsageError: No limit, no rate, or a value that cannot be right.
    """
    if given.get("ttft") is not None or is_generating(model):
        make_generation_question(given, shown="")
    else:
        _require_single(given)
        make_question(given)


def _require_single(given: Mapping[str, Any]) -> None:
    of_generation = next((name for name in _OF_GENERATION if given.get(name) is not None), None)
    if of_generation is not None:
        raise UsageError(
            f"--{of_generation.replace('_', '-')} is of models that generate.",
            hint="Limit their first token, like --ttft 500ms; leave it out for single inferences.",
        )


def _of_generation(
    model: Any, inputs: Any, given: Mapping[str, Any], show: Callable[[str], str], progress: Progress
) -> Analysis:
    """Return a model that generates: its own record, and what serves it."""
    gpus, cpus = _names(given.get("gpu")), _cpus(given.get("cpu"))
    of_model = _of_model(given, gpus, "generate")
    # Both limits are those of requests under traffic, and the record's own are of one that waits for no other.
    of_model = {name: value for name, value in of_model.items() if name not in ("ttft", "tpot")}
    arrivals = str(given.get("arrivals") or POISSON_NAME)
    # What is wrong in it is said before seconds are spent; how long requests are the model says, or a trace.
    question = make_generation_question(given, shown=show(arrivals))
    analysis, basis = generation_with_basis(model, inputs, of_model, progress)
    generation = analysis.generation
    assert generation is not None
    if is_poisson(arrivals):
        lengths = of_lengths(generation.prompt_tokens, generation.output_tokens)
        question = replace(question, demand=replace(question.demand, conversations=lengths))
    service = GenerationService(basis, question)
    planned = with_capacity(analysis, service, gpus, cpus, progress)
    return _answered(planned, service, given, show)


def _of_model(given: Mapping[str, Any], gpus: Sequence[str] | None, command: Command) -> dict[str, Any]:
    """Return the options that another command has as well; all GPUs stand in the table as it is."""
    result = {name: value for name, value in given.items() if name in keywords_of(command)}
    if gpus is not None and any(name.lower() == ALL for name in gpus):
        del result["gpu"]
    return result


def _names(gpu: str | Sequence[str] | None) -> tuple[str, ...] | None:
    return None if gpu is None else tuple(name for name in parts(gpu) if name.lower() != "none")


def _cpus(cpu: str | None) -> tuple[str, ...]:
    return () if cpu is None else (catalogue.device_of_kind(cpu, "cpu").slug,)
