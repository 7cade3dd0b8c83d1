"""Prepared graphs -> the replay data of a record, from which the model is predicted again without the model."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from analyzer.devices import catalogue
from analyzer.devices.device import Device
from analyzer.devices.instances import Instance
from analyzer.graph import Graph, Tensor
from analyzer.ort.execution import Group, Session
from analyzer.pipeline.batches import BatchModels
from analyzer.pipeline.measure import Measured
from analyzer.pipeline.options import Options
from analyzer.pipeline.predictor import Predictor
from analyzer.pipeline.prepared import PreparedGraph
from analyzer.pipeline.replay.scaling import growth_of
from analyzer.prediction.estimate import Estimate
from analyzer.record.replay_data import (
    Absent,
    Asked,
    CpuFigures,
    GpuFigures,
    OwnInstance,
    RecurrentSteps,
    ReplayData,
    ReplayGroup,
    ReplayRun,
    SmallValue,
    TextLengths,
)

# In elements. Larger constants decide neither where an operator runs nor what it is fused with.
_SMALL_VALUE = 16


def write_replay_data(
    predictor: Predictor,
    gpus: Sequence[Device],
    prepared: PreparedGraph,
    model: BatchModels,
    batch: int | None,
    measured: Mapping[int, Measured],
) -> ReplayData:
    """What the record holds beside its operators; under the key ``kept``.

    Args:
        predictor: With the user's options, the CPU of the decision and what could be rented.
        gpus: Of the verdict and of the alternatives.
        prepared: The model at the record's batch.
        model: The same over batches.
        batch: The record's.
        measured: What was measured, by batch.
    """
    graph, by_batch = prepared.graph, model.prepared_graphs
    return ReplayData(
        asked=prediction_options(predictor.options),
        opsets=dict(graph.opsets),
        cpu=cpu_figures(predictor.cpu),
        values=tuple(_small_values(graph)),
        absent=tuple(_left_out(graph)),
        batches=growth_of(by_batch, batch, between=model.between is not None),
        gpus=gpu_figures(gpus),
        runs=runs_at_other_batches(measured, batch),
        instances=own_instances(predictor.offers.own),
        steps=tuple(
            RecurrentSteps(operator=node.index, fewest=node.steps[0], most=node.steps[1])
            for node in graph.nodes
            if node.steps is not None
        ),
        texts=tuple(
            TextLengths(operator=node.index, fewest=node.text_bytes[0], most=node.text_bytes[1])
            for node in graph.nodes
            if node.text_bytes is not None
        ),
    )


def prediction_options(options: Options) -> Asked:
    """The part of the options that a prediction goes by."""
    # Much of this is in the record's `invocation` too, as text. Both stay while schema_version is 1: a record
    # of a version without `invocation` is decided anew from this, and readers may use either.
    return Asked(
        precision=options.precision,
        cpu=options.cpu,
        threads=options.threads,
        slo_s=options.slo_s,
        pins=options.pins,
        utilisation=options.utilisation,
        fixed=options.fixed,
        pricing=options.pricing,
        regions=options.regions,
    )


def cpu_figures(cpu: Device) -> CpuFigures | None:
    """What else predictions read of a CPU; None where the catalogue has it as it is."""
    # As it is: the same slug with a calibration on top must be written down.
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
        turbo_hz=cpu.turbo_hz,
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


def own_instances(own: Iterable[Instance]) -> tuple[OwnInstance, ...]:
    """The user's own price list, all ways of paying, so that a record needs no second file."""
    return tuple(OwnInstance(**asdict(instance)) for instance in own)


def runs_at_other_batches(measured: Mapping[int, Measured], base: int | None) -> tuple[ReplayRun, ...]:
    """What was measured at other batches than the record's, whose own figures its groups and plans hold."""
    runs = []
    for batch, at_batch in sorted(measured.items()):
        if batch != (base or 0):
            on_cpu = _run(batch, "cpu", at_batch.cpu_latency, at_batch.cpu_groups, at_batch.cpu_times)
            runs.append(on_cpu and replace(on_cpu, busy=at_batch.busy))
            runs += [_run(batch, "cuda", at_batch.cuda_latency, at_batch.cuda_groups, at_batch.cuda_times)]
    return tuple(run for run in runs if run is not None)


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
        groups=tuple(_replay_group(group, time) for group, time in zip(groups, times, strict=True)),
    )


def _replay_group(group: Group, time: Estimate | None) -> ReplayGroup:
    return ReplayGroup(
        name=group.name,
        op_type=group.op_type,
        members=group.members,
        provider=group.provider,
        time_s=time.time_s if time else None,
        low_s=time.low_s if time else None,
        high_s=time.high_s if time else None,
    )


def _small_values(graph: Graph) -> Iterator[SmallValue]:
    # A large model has hundreds of equal constants (axes, a scale): one row for all. The key is the text, since
    # 1, 1.0 and True are equal and must stay apart, and -0.0 and 0.0 likewise.
    named: dict[str, tuple[tuple[Any, ...], list[str]]] = {}
    for tensor in _with_constants(graph).values():
        value = tensor.value
        if value is not None and value.size <= _SMALL_VALUE and value.dtype.kind in "fiubV":
            elements = tuple(map(_element, _listed(value)))
            named.setdefault(repr(elements), (elements, []))[1].append(tensor.name)
    for elements, names in named.values():
        yield SmallValue(value=elements, tensors=tuple(names))


def _with_constants(graph: Graph) -> dict[str, Tensor]:
    """All tensors of a graph by name, constants where they are first read."""
    tensors = {tensor.name: tensor for tensor in graph.inputs}
    for node in graph.nodes:
        for tensor in (*node.inputs, *node.outputs):
            if tensor is not None and tensor.name not in tensors:
                tensors[tensor.name] = tensor
    return tensors


def _listed(value: Any) -> list[Any]:
    """The elements as Python's own numbers; those of types that NumPy lacks through float32."""
    # ml_dtypes' bfloat16 and float8 are of NumPy's kind V: their own tolist() gives no plain numbers.
    plain = value.astype("float32") if value.dtype.kind == "V" else value
    return list(plain.reshape(-1).tolist())


def _element(number: Any) -> Any:
    return str(number) if isinstance(number, float) and not math.isfinite(number) else number  # no JSON number


def _left_out(graph: Graph) -> Iterator[Absent]:
    for node in graph.nodes:
        inputs, outputs = _holes(node.inputs), _holes(node.outputs)
        if inputs or outputs:
            yield Absent(operator=node.index, inputs=inputs, outputs=outputs)


def _holes(tensors: Sequence[Tensor | None]) -> tuple[int, ...]:
    return tuple(position for position, tensor in enumerate(tensors) if tensor is None)
