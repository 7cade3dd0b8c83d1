"""Scenes -> what a record keeps of them, so that the model can be predicted again without the model."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from analyzer.devices import catalogue
from analyzer.devices.device import Device
from analyzer.devices.instances import Instance
from analyzer.graph import Graph, Tensor
from analyzer.ort.execution import Group, Session
from analyzer.pipeline.batches import BatchModels
from analyzer.pipeline.measure import Measured
from analyzer.pipeline.options import Options
from analyzer.pipeline.prepared import PreparedGraph
from analyzer.pipeline.replay.scaling import growth, tensors_of
from analyzer.prediction.estimate import Estimate
from analyzer.record.replay_data import (
    Absent,
    Asked,
    CpuFigures,
    GpuFigures,
    OwnInstance,
    ReplayData,
    ReplayGroup,
    ReplayRun,
    SmallValue,
)

# Larger constants decide neither where an operator runs nor what it is fused with.
_SMALL = 16


def keep(
    options: Options,
    cpu: Device,
    gpus: Sequence[Device],
    prepared: PreparedGraph,
    model: BatchModels,
    batch: int | None,
    measured: Mapping[int, Measured],
    instances: Iterable[Instance],
) -> ReplayData:
    """What the record holds beside its operators.

    Args:
        options: The user's.
        cpu: The CPU of the decision.
        gpus: Of the verdict and of the alternatives.
        prepared: The model at the record's batch.
        model: The same over batches.
        batch: The record's.
        measured: What was measured, by batch.
        instances: What could be rented.
    """
    graph = prepared.graph
    return ReplayData(
        asked=asked_of(options),
        opsets=dict(graph.opsets),
        cpu=cpu_figures(cpu),
        values=tuple(_values(graph)),
        absent=tuple(_absent(graph)),
        batches=growth(model.prepared_graphs, batch, between=model.between is not None)
        if batch in model.prepared_graphs
        else None,
        gpus=gpu_figures(gpus),
        runs=kept_runs(measured, batch),
        instances=kept_instances(instances),
    )


def asked_of(options: Options) -> Asked:
    """The part of the options that a prediction goes by."""
    return Asked(
        precision=options.precision,
        cpu=options.cpu,
        threads=options.threads,
        slo_s=options.slo_s,
        pins=options.pins,
        utilisation=options.utilisation,
        fixed=options.fixed,
    )


def cpu_figures(cpu: Device) -> CpuFigures | None:
    """What else predictions read of a CPU; None where the catalogue has it as it is."""
    if any(cpu == known for known in catalogue.cpus()):
        return None
    return CpuFigures(
        vendor=cpu.vendor,
        architecture=cpu.architecture,
        units=cpu.units,
        threads=cpu.threads,
        clock_hz=cpu.clock_hz,
        cache_bytes=cpu.cache_bytes,
        calibration=dict(cpu.calibration),
        assumed=cpu.assumed,
    )


def gpu_figures(gpus: Iterable[Device]) -> tuple[GpuFigures, ...]:
    """What else predictions read of GPUs that are not in the catalogue as they are."""
    known = catalogue.gpus()
    return tuple(
        GpuFigures(
            slug=gpu.slug,
            vendor=gpu.vendor,
            architecture=gpu.architecture,
            units=gpu.units,
            clock_hz=gpu.clock_hz,
            cache_bytes=gpu.cache_bytes,
            compute_capability=gpu.compute_capability,
            pageable_bytes_per_s=gpu.link.pageable_bytes_per_s if gpu.link else None,
            link_latency_s=gpu.link.latency_s if gpu.link else None,
            calibration=dict(gpu.calibration),
            assumed=gpu.assumed,
            memory_type=gpu.memory_type,
            sustained=dict(gpu.sustained),
        )
        for gpu in gpus
        if not any(gpu == device for device in known)
    )


def kept_instances(instances: Iterable[Instance]) -> tuple[OwnInstance, ...]:
    """The user's own of the instances, so that a record needs no second file."""
    return tuple(OwnInstance(**asdict(item)) for item in catalogue.own_instances(instances))


def kept_runs(measured: Mapping[int, Measured], base: int | None) -> tuple[ReplayRun, ...]:
    """What was measured at other batches than the record's, whose own figures its groups and plans hold."""
    found = []
    for batch, here in sorted(measured.items()):
        if batch != (base or 0):
            found += [_run(batch, "cpu", here.cpu_latency, here.cpu_groups, here.cpu_times)]
            found += [_run(batch, "cuda", here.cuda_latency, here.cuda_groups, here.cuda_times)]
    return tuple(run for run in found if run is not None)


def _run(
    batch: int,
    session: Session,
    latency: Estimate | None,
    groups: Sequence[Group],
    times: Sequence[Estimate | None],
) -> ReplayRun | None:
    if latency is None:
        return None
    return ReplayRun(
        batch=batch,
        session=session,
        latency_s=latency.time_s,
        low_s=latency.low_s,
        high_s=latency.high_s,
        groups=tuple(_kept_group(*pair) for pair in zip(groups, times, strict=True)),
    )


def _kept_group(group: Group, time: Estimate | None) -> ReplayGroup:
    return ReplayGroup(
        name=group.name,
        op_type=group.op_type,
        members=group.members,
        provider=group.provider,
        time_s=time.time_s if time else None,
        low_s=time.low_s if time else None,
        high_s=time.high_s if time else None,
    )


def _values(graph: Graph) -> Iterator[SmallValue]:
    named: dict[str, tuple[tuple[Any, ...], list[str]]] = {}
    for tensor in tensors_of(graph).values():
        value = tensor.value
        if value is not None and value.size <= _SMALL and value.dtype.kind in "fiubV":
            elements = tuple(map(_element, _listed(value)))
            named.setdefault(repr(elements), (elements, []))[1].append(tensor.name)
    for elements, names in named.values():
        yield SmallValue(value=elements, tensors=tuple(names))


def _listed(value: Any) -> list[Any]:
    """The elements as Python's own numbers; those of types that NumPy lacks through float32."""
    plain = value.astype("float32") if value.dtype.kind == "V" else value
    return list(plain.reshape(-1).tolist())


def _element(item: Any) -> Any:
    return str(item) if isinstance(item, float) and not math.isfinite(item) else item


def _absent(graph: Graph) -> Iterator[Absent]:
    for node in graph.nodes:
        inputs, outputs = _holes(node.inputs), _holes(node.outputs)
        if inputs or outputs:
            yield Absent(operator=node.index, inputs=inputs, outputs=outputs)


def _holes(tensors: Sequence[Tensor | None]) -> tuple[int, ...]:
    return tuple(position for position, tensor in enumerate(tensors) if tensor is None)
