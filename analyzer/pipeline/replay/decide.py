"""A saved record -> the same model decided anew: on other devices, in another precision, for another aim.

The model is not read and nothing is measured. What the record's CPU (or its own GPU) was measured at stays, as
long as the question is about the same device.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from analyzer.devices import catalogue
from analyzer.devices.device import Device
from analyzer.errors import RecordError
from analyzer.option_table import RecordOptions
from analyzer.ort.execution import Group
from analyzer.pipeline import build_record
from analyzer.pipeline.batches import correction_of
from analyzer.pipeline.device_decisions import Answer, answer
from analyzer.pipeline.measure import Measured
from analyzer.pipeline.options import Options, make_options
from analyzer.pipeline.prepared import Predictor, PreparedGraph
from analyzer.pipeline.replay.read import scene_of, swept_of
from analyzer.prediction.estimate import Estimate
from analyzer.record.analysis import Analysis, Devices, GroupResult, ModelInfo
from analyzer.record.replay_data import Asked

OPTIONS = tuple(RecordOptions.__annotations__)
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
    cpu = _cpu(analysis, options, named="cpu" in given)
    gpus = _gpus(analysis, given, options)
    scene = scene_of(analysis)
    measured = _measured(analysis, cpu, gpus[0] if gpus else None, options)
    batch = analysis.model.batch
    here = measured.get(batch or 0)
    forecaster = Predictor(options, cpu, correction_of(options, cpu, scene, here))
    found = answer(forecaster, scene, swept_of(analysis, scene), gpus, batch, measured)
    return _changed(analysis, scene, found, cpu, gpus)


def _changed(
    analysis: Analysis, scene: PreparedGraph, found: Answer, cpu: Device, gpus: tuple[Device, ...]
) -> Analysis:
    """The record with the new answer in place of the old one."""
    decision = found.decision
    return replace(
        analysis,
        model=_model(analysis, found.question.precision),
        devices=Devices(
            cpu=build_record.device_info(cpu), gpu=build_record.device_info(gpus[0]) if gpus else None
        ),
        totals=build_record.totals(scene, found.question),
        operators=build_record.operators(found.question, decision),
        groups=build_record.groups(found.question),
        plans=decision.plans,
        verdict=decision.verdict,
        costs=decision.costs,
        alternatives=found.others,
        sweep=found.sweep.rows,
        session_fails=scene.placement.fails,
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
    return Asked(precision=None if precision in ("fp32", "tf32") else precision)


def _gpus(analysis: Analysis, given: Mapping[str, Any], options: Options) -> tuple[Device, ...]:
    if "gpu" in given:
        return tuple(catalogue.device(name) for name in options.gpus or ())
    own = [analysis.devices.gpu, *(item.device for item in analysis.alternatives)]
    return tuple(catalogue.device(item.slug) for item in own if item is not None)


def _cpu(analysis: Analysis, options: Options, *, named: bool) -> Device:
    """The CPU that was named, else the record's from its own figures or the catalogue's."""
    info, kept = analysis.devices.cpu, analysis.kept
    if named and options.cpu is not None:
        return catalogue.device(options.cpu)
    known = next((item for item in catalogue.cpus() if item.slug == info.slug), None)
    if known is not None and (kept is None or kept.cpu is None):
        return known
    device = Device(
        slug=info.slug,
        name=info.name,
        kind="cpu",
        peak_flops_per_s=info.peak_flops_per_s,
        bandwidth_bytes_per_s=info.bandwidth_bytes_per_s,
        memory_bytes=info.memory_bytes,
        tdp_w=info.tdp_w,
        origin="calibrated" if info.origin == "calibrated" else "catalogue",
        source=info.source,
        notes=info.notes,
    )
    if kept is None or kept.cpu is None:
        return device
    figures = kept.cpu
    return replace(
        device,
        vendor=figures.vendor,
        architecture=figures.architecture,
        units=figures.units,
        threads=figures.threads,
        clock_hz=figures.clock_hz,
        cache_bytes=figures.cache_bytes,
        calibration=figures.calibration,
    )


def _measured(analysis: Analysis, cpu: Device, gpu: Device | None, options: Options) -> dict[int, Measured]:
    """What the record's figures hold of these devices, by batch."""
    base = analysis.model.batch or 0
    found: dict[int, Measured] = {}
    if cpu.slug == analysis.devices.cpu.slug:
        for row in analysis.sweep:
            whole = row.plans["cpu"]
            if whole.origin == "measured" and row.batch != base:
                found[row.batch] = Measured(cpu_latency=_estimate(whole))
        found.update(_own_batch(analysis, base))
    return _with_gpu(analysis, found, base, gpu, options)


def _own_batch(analysis: Analysis, base: int) -> dict[int, Measured]:
    """The CPU at the record's batch: as measured; in an old record as it has it, measured or predicted."""
    plan = analysis.plan("cpu")
    if plan is None or (analysis.kept is not None and plan.origin != "measured"):
        return {}
    rows = [item for item in analysis.groups if item.session == "cpu"]
    if analysis.kept is None and not rows:
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


def _with_gpu(
    analysis: Analysis, found: dict[int, Measured], base: int, gpu: Device | None, options: Options
) -> dict[int, Measured]:
    """Adds the record's own measured GPU where the question is about that one, in the same precision."""
    own, plan = analysis.devices.gpu, analysis.plan("gpu")
    asked = analysis.kept.asked.precision if analysis.kept is not None else None
    same = own is not None and gpu is not None and own.slug == gpu.slug and asked == options.precision
    if plan is None or plan.origin != "measured" or not same:
        return found
    rows = [item for item in analysis.groups if item.session == "cuda"]
    there = {base: replace(found.get(base, Measured()), cuda_latency=_estimate(plan))}
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
