"""A saved record -> the same model decided anew: on other devices, in another precision, for another aim.

The model is not read and nothing is measured. What the record's CPU (or its own GPU) was measured at stays, as
long as the question is about the same device.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

from analyzer.devices import catalogue
from analyzer.devices.device import Device, DeviceKind, Link
from analyzer.devices.instances import Instance
from analyzer.errors import RecordError
from analyzer.option_table import RecordOptions
from analyzer.ort.execution import Group, Session
from analyzer.pipeline import build_record
from analyzer.pipeline.batches import correction_of
from analyzer.pipeline.device_decisions import DeviceDecisions, decide_on
from analyzer.pipeline.measure import Measured
from analyzer.pipeline.options import Options, make_options
from analyzer.pipeline.prepared import Predictor, PreparedGraph
from analyzer.pipeline.replay.read import batch_models_of, prepared_of
from analyzer.pipeline.replay.write import asked_of, cpu_figures, gpu_figures, kept_instances, kept_runs
from analyzer.precision import is_full
from analyzer.prediction.estimate import Estimate
from analyzer.record.analysis import Analysis, DeviceInfo, Devices, GroupResult, ModelInfo
from analyzer.record.replay_data import Asked, CpuFigures, GpuFigures, ReplayData, ReplayGroup, ReplayRun

OPTIONS = tuple(RecordOptions.__annotations__)
# What `devices.detection` assumes of a CPU that is neither in the catalogue nor calibrated.
_GUESSED = ("bandwidth_bytes_per_s",)
_ONE_BATCH = (
    "The record holds batch {batch} alone, since the version that wrote it kept no more: no crossover and no "
    "largest batch follow from it. Analyse the model itself for those."
)


def decide_again(analysis: Analysis, given: Mapping[str, Any]) -> Analysis:
    """The record's model with other options: the first GPU becomes the verdict's, the rest alternatives.

    Args:
        analysis: A saved analysis of inference.
        given: Some of ``OPTIONS``; what is left out or None stays as the record has it.

    Raises:
        DeviceError: Nobody knows a name.
        RecordError: The record holds what cannot be placed again (subgraphs, a training step).
        TypeError: No such option.
        UsageError: A value that cannot be.
    """
    given = {name: value for name, value in given.items() if value is not None and value != ()}
    unknown = set(given) - set(OPTIONS)
    if unknown:
        raise TypeError(f"a record is not decided anew by {', '.join(sorted(unknown))}")
    if analysis.model.training:
        raise RecordError(
            "A training step's record cannot be decided anew.", hint="Analyse the model with --training."
        )
    options = _options(analysis, given)
    own = _own_cpu(analysis)
    cpu = own if options.cpu is None or "cpu" not in given else catalogue.device(options.cpu)
    gpus = _gpus(analysis, given, options)
    prepared = prepared_of(analysis)
    measured = _measured(analysis, gpus[0] if gpus else None, options, same_cpu=cpu == own)
    batch = analysis.model.batch
    here = measured.get(batch or 0)
    instances = _instances(analysis, options)
    predictor = Predictor(options, cpu, correction_of(options, cpu, prepared, here), instances)
    found = decide_on(predictor, prepared, batch_models_of(analysis, prepared), gpus, batch, measured)
    kept = _kept(analysis, predictor, gpus, measured, same_cpu=cpu == own)
    return _changed(analysis, prepared, found, cpu, gpus, kept)


def _kept(
    analysis: Analysis,
    predictor: Predictor,
    gpus: tuple[Device, ...],
    measured: Mapping[int, Measured],
    *,
    same_cpu: bool,
) -> ReplayData:
    """What the new record holds, so that it is decided anew as this one: what was asked for now above all."""
    before = analysis.kept or ReplayData(
        asked=_guessed(analysis), opsets={"ai.onnx": analysis.model.opset}, as_recorded=True
    )
    return replace(
        before,
        asked=asked_of(predictor.options),
        cpu=cpu_figures(predictor.cpu),
        gpus=gpu_figures(gpus),
        runs=kept_runs(measured, analysis.model.batch),
        instances=kept_instances(predictor.instances),
        as_recorded=before.as_recorded and same_cpu,
    )


def _instances(analysis: Analysis, options: Options) -> tuple[Instance, ...]:
    """The catalogue's instances, with a price list that is given now, else with the record's own."""
    if options.prices is not None or analysis.kept is None:
        return catalogue.instances(options.prices)
    return catalogue.instances(own=(Instance(**asdict(item)) for item in analysis.kept.instances))


def _changed(
    analysis: Analysis,
    prepared: PreparedGraph,
    found: DeviceDecisions,
    cpu: Device,
    gpus: tuple[Device, ...],
    kept: ReplayData,
) -> Analysis:
    """The record with the new answer in place of the old one."""
    decision = found.decision
    return replace(
        analysis,
        kept=kept,
        model=_model(analysis, found.question.precision),
        devices=Devices(
            cpu=build_record.device_info(cpu), gpu=build_record.device_info(gpus[0]) if gpus else None
        ),
        totals=build_record.totals(prepared, found.question),
        operators=build_record.operators(found.question, decision),
        groups=build_record.groups(found.question),
        plans=decision.plans,
        verdict=decision.verdict,
        costs=decision.costs,
        alternatives=found.others,
        sweep=found.sweep.rows,
        session_fails=prepared.placement.fails,
        findings=(),
    )


def _model(analysis: Analysis, precision: str) -> ModelInfo:
    model = replace(analysis.model, precision=precision)
    if analysis.kept is not None or len(analysis.sweep) < 2:
        return model
    return replace(model, notes=(*model.notes, _ONE_BATCH.format(batch=model.batch)))


def _options(analysis: Analysis, given: Mapping[str, Any]) -> Options:
    """The record's options with those given in their place."""
    asked = analysis.kept.asked if analysis.kept is not None else _guessed(analysis)
    known: dict[str, Any] = {
        "precision": asked.precision,
        "cpu": asked.cpu,
        "slo": asked.slo_s,
        "pin": asked.pins,
        "utilisation": asked.utilisation,
        "objective": analysis.verdict.objective,
    }
    threads = None if "cpu" in given else asked.threads
    return make_options(**{**known, **given}, threads=threads, check=asked.fixed, run=False)


def _guessed(analysis: Analysis) -> Asked:
    """What an old record does not tell; a precision of TF32 or fp32 follows the GPU."""
    precision = analysis.model.precision
    return Asked(precision=None if is_full(precision) else precision)


def _gpus(analysis: Analysis, given: Mapping[str, Any], options: Options) -> tuple[Device, ...]:
    """The GPUs that are named now, else the record's from its own figures or the catalogue's."""
    if "gpu" in given:
        return tuple(catalogue.device(name) for name in options.gpus or ())
    own = [analysis.devices.gpu, *(item.device for item in analysis.alternatives)]
    figures = {item.slug: item for item in analysis.kept.gpus} if analysis.kept is not None else {}
    return tuple(
        _gpu(item, figures[item.slug]) if item.slug in figures else catalogue.device(item.slug)
        for item in own
        if item is not None
    )


def _gpu(info: DeviceInfo, figures: GpuFigures) -> Device:
    link, pageable, latency = None, figures.pageable_bytes_per_s, figures.link_latency_s
    if info.link_bytes_per_s is not None and pageable is not None and latency is not None:
        link = Link(
            name=info.link,
            bandwidth_bytes_per_s=info.link_bytes_per_s,
            pageable_bytes_per_s=pageable,
            latency_s=latency,
        )
    return replace(
        _described(info, "gpu"),
        vendor=figures.vendor,
        architecture=figures.architecture,
        units=figures.units,
        clock_hz=figures.clock_hz,
        cache_bytes=figures.cache_bytes,
        compute_capability=figures.compute_capability,
        link=link,
        calibration=figures.calibration,
        assumed=figures.assumed,
        memory_type=figures.memory_type,
        sustained=figures.sustained,
    )


def _own_cpu(analysis: Analysis) -> Device:
    """The record's CPU from its own figures or the catalogue's."""
    info, kept = analysis.devices.cpu, analysis.kept
    known = next((item for item in catalogue.cpus() if item.slug == info.slug), None)
    figures = kept.cpu if kept is not None else None
    if figures is None:
        return known or replace(_described(info, "cpu"), assumed=_GUESSED if info.origin == "catalogue" else ())
    return replace(
        _described(info, "cpu"),
        vendor=figures.vendor,
        architecture=figures.architecture,
        units=figures.units,
        threads=figures.threads,
        clock_hz=figures.clock_hz,
        cache_bytes=figures.cache_bytes,
        calibration=figures.calibration,
        assumed=_assumed(figures, known),
    )


def _assumed(figures: CpuFigures, known: Device | None) -> tuple[str, ...]:
    """What no source gives of a CPU; a version that did not keep it had it of the catalogue or of detection."""
    if figures.assumed is not None:
        return figures.assumed
    if figures.calibration:
        return ()
    return known.assumed if known is not None else _GUESSED


def _described(info: DeviceInfo, kind: DeviceKind) -> Device:
    """A device by what the record shows of it."""
    return Device(
        slug=info.slug,
        name=info.name,
        kind=kind,
        peak_flops_per_s=info.peak_flops_per_s,
        bandwidth_bytes_per_s=info.bandwidth_bytes_per_s,
        memory_bytes=info.memory_bytes,
        tdp_w=info.tdp_w,
        runs_release_wheel=info.runs_release_wheel,
        origin="calibrated" if info.origin == "calibrated" else "catalogue",
        source=info.source,
        notes=info.notes,
    )


def _measured(
    analysis: Analysis, gpu: Device | None, options: Options, *, same_cpu: bool
) -> dict[int, Measured]:
    """What the record's figures hold of these devices, by batch."""
    base = analysis.model.batch or 0
    same_gpu = _measured_on(analysis, gpu, options)
    found = _at_other_batches(analysis, same_cpu=same_cpu, same_gpu=same_gpu)
    if same_cpu:
        found |= _own_batch(analysis, base)
    return _with_gpu(analysis, found, base) if same_gpu else found


def _measured_on(analysis: Analysis, gpu: Device | None, options: Options) -> bool:
    """Whether the record's own GPU was measured and the question is about that one, in the same precision."""
    own, plan = analysis.devices.gpu, analysis.plan("gpu")
    asked = analysis.kept.asked.precision if analysis.kept is not None else None
    same = own is not None and gpu is not None and own.slug == gpu.slug and asked == options.precision
    return same and plan is not None and plan.origin == "measured"


def _at_other_batches(analysis: Analysis, *, same_cpu: bool, same_gpu: bool) -> dict[int, Measured]:
    """What was measured beside the record's own batch; of an old record the whole runs of the CPU alone."""
    found: dict[int, Measured] = {}
    runs = analysis.kept.runs if analysis.kept is not None else ()
    for run in runs:
        if same_cpu if run.session == "cpu" else same_gpu:
            found[run.batch] = _with_run(found.get(run.batch, Measured()), run)
    for row in analysis.sweep if same_cpu and not runs else ():
        whole = row.plans["cpu"]
        if whole.origin == "measured" and row.batch != analysis.model.batch:
            found[row.batch] = Measured(cpu_latency=_estimate(whole))
    return found


def _with_run(measured: Measured, run: ReplayRun) -> Measured:
    latency = Estimate(time_s=run.latency_s, low_s=run.low_s, high_s=run.high_s, origin="measured")
    groups = tuple(_kept_group(item, run.session) for item in run.groups)
    times = tuple(map(_kept_time, run.groups))
    if run.session == "cpu":
        return replace(measured, cpu_latency=latency, cpu_groups=groups, cpu_times=times)
    return replace(measured, cuda_latency=latency, cuda_groups=groups, cuda_times=times)


def _kept_group(item: ReplayGroup, session: Session) -> Group:
    provider: Any = item.provider
    return Group(session=session, name=item.name, op_type=item.op_type, members=item.members, provider=provider)


def _kept_time(item: ReplayGroup) -> Estimate | None:
    if item.time_s is None or item.low_s is None or item.high_s is None:
        return None
    return Estimate(time_s=item.time_s, low_s=item.low_s, high_s=item.high_s, origin="measured")


def _own_batch(analysis: Analysis, base: int) -> dict[int, Measured]:
    """The CPU at the record's batch: as measured; in an old record as it has it, measured or predicted."""
    plan = analysis.plan("cpu")
    as_it_stands = analysis.kept is None or analysis.kept.as_recorded
    if plan is None or (not as_it_stands and plan.origin != "measured"):
        return {}
    rows = [item for item in analysis.groups if item.session == "cpu"]
    if as_it_stands and not rows:
        raise RecordError("The record holds no times of the CPU.", hint="Analyse the model itself with --gpu.")
    whole = _estimate(plan)
    if not all(item.origin == "measured" or item.time_s is None for item in rows) and plan.origin == "measured":
        return {base: Measured(cpu_latency=whole)}
    return {
        base: Measured(
            cpu_latency=whole,
            cpu_groups=tuple(map(_group, rows)),
            cpu_times=tuple(map(_group_time, rows)),
        )
    }


def _with_gpu(analysis: Analysis, found: dict[int, Measured], base: int) -> dict[int, Measured]:
    """Adds what the record's own GPU was measured at."""
    rows = [item for item in analysis.groups if item.session == "cuda"]
    there = {base: replace(found.get(base, Measured()), cuda_latency=_estimate(analysis.plan("gpu")))}
    if all(item.origin == "measured" for item in rows):
        there[base] = replace(
            there[base],
            cuda_groups=tuple(map(_group, rows)),
            cuda_times=tuple(map(_group_time, rows)),
        )
    return found | there


def _group(item: GroupResult) -> Group:
    session: Any = item.session
    provider: Any = item.provider
    return Group(session=session, name=item.name, op_type=item.op_type, members=item.members, provider=provider)


def _group_time(item: GroupResult) -> Estimate | None:
    if item.time_s is None or item.low_s is None or item.high_s is None:
        return None
    return Estimate(time_s=item.time_s, low_s=item.low_s, high_s=item.high_s, origin=_origin(item.origin))


def _estimate(item: Any) -> Estimate:
    """The latency of a plan, or of one in the sweep."""
    return Estimate(time_s=item.latency_s, low_s=item.low_s, high_s=item.high_s, origin=_origin(item.origin))


def _origin(text: str) -> Any:
    return text if text in ("measured", "mixed") else "predicted"
