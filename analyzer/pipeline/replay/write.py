"""Scenes -> what a record keeps of them, so that the model can be predicted again without the model."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from analyzer.devices import catalogue
from analyzer.devices.device import Device
from analyzer.graph import Graph, Tensor
from analyzer.pipeline.batches import BatchModels
from analyzer.pipeline.options import Options
from analyzer.pipeline.prepared import PreparedGraph
from analyzer.pipeline.replay.scaling import growth, tensors_of
from analyzer.record.replay_data import Absent, Asked, CpuFigures, ReplayData, SmallValue

# Larger constants decide neither where an operator runs nor what it is fused with.
_SMALL = 16


def keep(
    options: Options,
    cpu: Device,
    scene: PreparedGraph,
    model: BatchModels,
    batch: int | None,
) -> ReplayData:
    """What the record holds beside its operators.

    Args:
        options: The user's.
        cpu: The CPU of the decision.
        scene: The model at the record's batch.
        model: The same over batches.
        batch: The record's.
    """
    graph = scene.graph
    return ReplayData(
        asked=Asked(
            precision=options.precision,
            cpu=options.cpu,
            threads=options.threads,
            slo_s=options.slo_s,
            pins=options.pins,
            utilisation=options.utilisation,
            fixed=options.fixed,
        ),
        opsets=dict(graph.opsets),
        cpu=_figures(cpu),
        values=tuple(_values(graph)),
        absent=tuple(_absent(graph)),
        batches=growth(model.scenes, batch, between=model.between is not None)
        if batch in model.scenes
        else None,
    )


def _figures(cpu: Device) -> CpuFigures | None:
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
