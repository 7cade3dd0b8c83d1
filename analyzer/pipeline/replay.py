"""Decide a saved record anew: other devices, limits, prices, batches.

The model is not read and nothing is measured. What the record's CPU (or its own GPU) was measured at stays, as
long as the question is about the same device.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from analyzer.costs.table import parameter_bytes
from analyzer.devices import catalogue
from analyzer.devices.device import Device
from analyzer.errors import RecordError
from analyzer.figures import seen_as
from analyzer.options import Options
from analyzer.ort.execution import Group
from analyzer.pipeline.batches import AnalysisBasis, BatchModels, corrections_of
from analyzer.pipeline.device_decisions import analysis_of, decide_on
from analyzer.pipeline.forms import in_form, note, requested_precision
from analyzer.pipeline.measure import Measured
from analyzer.pipeline.opportunities import opportunities
from analyzer.pipeline.options import make_options, replayed_invocation
from analyzer.pipeline.predictor import Predictor
from analyzer.pipeline.prepared import PreparedGraph, at_batch, prepare
from analyzer.pipeline.replay_record import (
    REPLAYED,
    batch_models_of,
    prepared_of,
    replay_data_of,
    replay_of_question,
    write_replay_data,
)
from analyzer.pipeline.target_devices import named_gpus, offers_of
from analyzer.precision import INTEGER_FORMS
from analyzer.prediction.estimate import limited
from analyzer.progress import Progress, silent
from analyzer.record import from_json, to_json
from analyzer.record.analysis import Analysis
from analyzer.text import printable

_DECIDED = "The record, decided anew,"
_CONTRADICTS = "The record cannot be decided anew: its operators and figures contradict each other ({error})."
_CONTRADICTION_HINT = (
    "Analyse the model itself with --gpu. If analyze wrote the record and nobody changed it, please report it."
)
_LONGEST = 200  # characters of an error in a message


def decide_again(analysis: Analysis, given: Mapping[str, Any], progress: Progress = silent) -> Analysis:
    """Decide a record's model with other options: the first GPU becomes the verdict's, the rest alternatives.

    ``given`` are keywords of ``analyze_record()``; what is left out or None stays as the record has it.

    Raises:
        DeviceError: Nobody knows a name.
        RecordError: The record holds what cannot be placed again (subgraphs, a training step), or a capacity
            plan, which would then be of other devices than the rest.
        UsageError: A value that cannot be.
    """
    if analysis.capacity is not None:
        # Of a model that generates the record does not hold what a plan is made from.
        model = "REPORT.json" if analysis.generation is None else "MODEL"
        raise RecordError(
            "A record of capacity cannot be decided anew: its instances are those of the devices it has.",
            hint=f"`analyze capacity {model}` with these options plans anew.",
        )
    requested = _requested(analysis, given)
    with _contradictions():
        decided = _decided(analysis, given, *requested, progress)
        # What is written can be read: figures of a foreign record may be sound alone and yet sum up to none.
        from_json(to_json(decided), name=_DECIDED)
    return decided


def basis_of(analysis: Analysis, given: Mapping[str, Any]) -> AnalysisBasis:
    """Return what a record rests on, with other options; nothing is decided.

    Arguments and errors are those of ``decide_again``.
    """
    requested = _requested(analysis, given)
    with _contradictions():
        return _basis(analysis, prepared_of(analysis), *requested)


def _requested(analysis: Analysis, given: Mapping[str, Any]) -> tuple[Options, Device, tuple[Device, ...]]:
    """Return the checked options, the CPU and the GPUs that a record is decided for."""
    given = {name: value for name, value in given.items() if value is not None and value != ()}
    if analysis.model.training:
        raise RecordError(
            "A training step's record cannot be decided anew.", hint="Analyse the model with --training."
        )
    if analysis.generation is not None:
        # Other devices hold other batches and take other numbers of cards: the answer is another altogether.
        raise RecordError(
            "A record of generation cannot be decided anew.",
            hint="`analyze generate MODEL` with these options takes seconds.",
        )
    options, cpu = _options(analysis, given), analysis.devices.cpu
    if options.cpu is not None and "cpu" in given:
        cpu = catalogue.device_of_kind(options.cpu, "cpu")
    if "gpu" in given:
        return options, cpu, named_gpus(options.gpus or (), fixed=options.fixed)
    gpus = [analysis.devices.gpu, *(alternative.device for alternative in analysis.alternatives)]
    return options, cpu, tuple(gpu for gpu in gpus if gpu is not None)


@contextmanager
def _contradictions() -> Iterator[None]:
    try:
        yield
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        # An operator with the attributes of another, times for groups that no session makes: the options are
        # checked by here, so it is the record's own doing.
        text = printable(f"{type(error).__name__}: {error}")
        shown = text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."
        raise RecordError(_CONTRADICTS.format(error=shown), hint=_CONTRADICTION_HINT) from error


def _basis(
    analysis: Analysis, recorded: PreparedGraph, options: Options, cpu: Device, gpus: tuple[Device, ...]
) -> AnalysisBasis:
    form = in_form(recorded.graph, options)
    converts = form is not recorded.graph
    prepared = prepare(form, release=recorded.placement.release) if converts else recorded
    models = batch_models_of(analysis, recorded)
    between = models.between
    if converts:

        def at(batch: int) -> PreparedGraph:
            assert between is not None
            return at_batch(prepared, in_form(between(batch).graph, options))

        by_batch = {
            batch: prepared if model is recorded else at_batch(prepared, in_form(model.graph, options))
            for batch, model in models.prepared_graphs.items()
        }
        models = BatchModels(prepared_graphs=by_batch, between=at if between is not None else None)
    gpu = gpus[0] if gpus else None
    measured: dict[int, Measured] = {}
    if prepared is recorded:  # what was run is the model as it is
        measured = _measured(analysis, gpu, options, same_cpu=cpu == analysis.devices.cpu)
    here, elsewhere = corrections_of(options, cpu, prepared, measured.get(analysis.model.batch or 0))
    # The catalogue's instances, with a price list that is given now, else with the record's own.
    offers = offers_of(options, own=() if options.prices is not None else replay_data_of(analysis).instances)
    predictor = Predictor(options, cpu, here, offers, elsewhere=elsewhere)
    return AnalysisBasis(predictor=predictor, prepared=prepared, models=models, gpu=gpu, measured=measured)


def _decided(
    analysis: Analysis,
    given: Mapping[str, Any],
    options: Options,
    cpu: Device,
    gpus: tuple[Device, ...],
    progress: Progress,
) -> Analysis:
    recorded, batch = prepared_of(analysis), analysis.model.batch
    basis = _basis(analysis, recorded, options, cpu, gpus)
    predictor, prepared, models, measured = basis.predictor, basis.prepared, basis.models, basis.measured
    converted = prepared is not recorded
    decisions = decide_on(predictor, prepared, models, gpus, batch, measured, progress)
    replay = (
        write_replay_data(predictor, prepared, models, batch, measured)
        if converted
        else replace(replay_data_of(analysis), **replay_of_question(predictor, measured))
    )
    model = replace(analysis.model, precision=requested_precision(options, decisions.decision_input))
    if converted:
        model = replace(
            model,
            parameter_bytes=parameter_bytes(prepared.graph),
            notes=(*model.notes, note(model.precision)),
        )
    # The rest of the record stays, what wrote it included; its findings are of the old answer, and go.
    decided = replace(
        analysis_of(model, prepared, decisions, cpu),
        tool=analysis.tool,
        conventions=analysis.conventions,
        ignored=analysis.ignored,
        invocation=replayed_invocation(analysis.invocation, given),
        environment=analysis.environment,
        kept=replay,
        schema_version=analysis.schema_version,
    )
    return replace(decided, opportunities=opportunities(decided, predictor, prepared, models))


def _options(analysis: Analysis, given: Mapping[str, Any]) -> Options:
    """Return the record's options with those given in their place."""
    before = replay_data_of(analysis)
    wanted = given.get("precision", before.precision)
    if before.precision in INTEGER_FORMS and wanted != before.precision:
        raise RecordError(
            f"The record holds the model in {before.precision}, from which its floats cannot be had back.",
            hint=f"Analyse the model itself with --precision {wanted}.",
        )
    recorded = {
        name: getattr(before, name)
        for name in REPLAYED
        if {"slo_s": "slo", "pins": "pin", "regions": "region"}.get(name, name) not in given
    }
    if "cpu" in given:  # threads were counted against the record's own CPU
        del recorded["threads"]
    options = make_options(**{"objective": analysis.verdict.objective, **given}, run=False)
    # The batches that were requested, the record's own first.
    requested = analysis.invocation.options.get("batch", ()) if analysis.invocation is not None else ()
    batches = [analysis.model.batch, *(int(batch) for text in requested for batch in text.split(","))]
    known = tuple(dict.fromkeys(batch for batch in batches if batch is not None))
    return options.replace(**recorded, batches=known)


def _measured(
    analysis: Analysis, gpu: Device | None, options: Options, *, same_cpu: bool
) -> dict[int, Measured]:
    """Return what was measured on these devices, by batch."""
    saved, gpu_then = replay_data_of(analysis), analysis.devices.gpu
    # A GPU's run is of the precision that was decided for then; a CPU runs the model as it is.
    same_gpu = gpu_then is not None and gpu is not None and gpu_then.slug == gpu.slug
    same_gpu = same_gpu and saved.precision == options.precision
    by_batch: dict[int, Measured] = {}
    for run in saved.runs:
        if not (same_cpu if run.session == "cpu" else same_gpu):
            continue
        groups = tuple(seen_as(Group, group) for group in run.groups)
        times = tuple(None if (time := group.time) is None else limited(time, None) for group in run.groups)
        own: dict[str, Any] = {"latency": run.latency, "groups": groups, "times": times}
        own = {f"{run.session}_{name}": value for name, value in own.items()}
        measured = replace(by_batch.get(run.batch, Measured()), **own)
        by_batch[run.batch] = replace(measured, busy=run.busy) if run.session == "cpu" else measured
    if analysis.run_fails:
        base = analysis.model.batch or 0
        by_batch[base] = replace(by_batch.get(base, Measured()), fails=analysis.run_fails)
    return by_batch
