"""A saved record -> the same model decided for another GPU, without the model and without measuring."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from analyzer.analysis import Alternative, Analysis, Devices, GroupResult, OperatorResult, TensorInfo
from analyzer.costs import CostTable
from analyzer.costs.cost import Cost
from analyzer.decision import decide
from analyzer.devices import catalogue
from analyzer.devices.device import Device
from analyzer.errors import RecordError, UsageError
from analyzer.graph import DTYPES, DType, Graph, Node, Source, Tensor
from analyzer.pipeline import assemble
from analyzer.pipeline.forecast import Forecaster, Scene
from analyzer.pipeline.measuring import Measured
from analyzer.pipeline.options import Options
from analyzer.prediction.estimate import Estimate
from analyzer.runtime.execution import Group
from analyzer.runtime.fusion import predicted_groups
from analyzer.runtime.placement import place


def predict_for(analysis: Analysis, names: Sequence[str]) -> Analysis:
    """The record's model on other GPUs: the first becomes the verdict's, the rest alternatives.

    The CPU's times stay as the record has them, measured or predicted. Other batches are left out: the record
    holds the graph at one.

    Args:
        analysis: A saved analysis of inference.
        names: GPUs of the catalogue.

    Raises:
        DeviceError: Nobody knows a name.
        RecordError: The record holds what cannot be placed again (subgraphs), or no time of the CPU.
        UsageError: No GPU is named.
    """
    gpus = [catalogue.device(name) for name in names]
    if not gpus:
        raise UsageError("--gpu needs a name.", hint="`analyze devices` lists them.")
    scene, kept = scene_of(analysis), _kept(analysis)
    forecaster = Forecaster(_options(analysis), _cpu(analysis))
    question = forecaster.question(scene, gpus[0], analysis.model.batch, kept)
    decision = decide(question)
    return replace(
        analysis,
        devices=Devices(cpu=analysis.devices.cpu, gpu=assemble.device_info(gpus[0])),
        totals=assemble.totals(scene, question),
        operators=assemble.operators(question, decision),
        groups=assemble.groups(question),
        plans=decision.plans,
        verdict=decision.verdict,
        costs=decision.costs,
        alternatives=tuple(_alternative(forecaster, scene, gpu, analysis, kept) for gpu in gpus[1:]),
        sweep=(),
        session_fails=scene.placement.fails,
        findings=(),
    )


def _alternative(
    forecaster: Forecaster, scene: Scene, gpu: Device, analysis: Analysis, kept: Measured
) -> Alternative:
    decision = decide(forecaster.question(scene, gpu, analysis.model.batch, kept))
    return Alternative(
        device=assemble.device_info(gpu), plans=decision.plans, verdict=decision.verdict, costs=decision.costs
    )


def scene_of(analysis: Analysis) -> Scene:
    """The graph of a record with its costs, placed and grouped again.

    Raises:
        RecordError: An operator holds subgraphs, which a record does not keep.
    """
    graph = graph_of(analysis)
    placement = place(graph)
    costs = tuple(
        Cost(
            flops=item.flops,
            macs=item.macs,
            bytes_read=item.bytes_read,
            bytes_written=item.bytes_written,
            basis=_basis(item.basis),
            note=item.note,
        )
        for item in analysis.operators
    )
    return Scene(
        graph=graph,
        table=CostTable(graph=graph, costs=costs),
        placement=placement,
        cpu_groups=_groups(analysis, "cpu"),
        cuda_groups=predicted_groups(graph, "cuda", placement),
    )


def graph_of(analysis: Analysis) -> Graph:
    """The graph that a record describes; values of constants are not in it."""
    for item in analysis.operators:
        if item.op_type in ("If", "Loop", "Scan"):
            raise RecordError(
                f"{item.name} ({item.op_type}) holds a subgraph, which a record does not keep.",
                hint="Analyse the model itself with --gpu.",
            )
    tensors: dict[str, Tensor] = {}
    nodes = tuple(_node(item, tensors, analysis) for item in analysis.operators)
    written = {tensor.name for node in nodes for tensor in node.present_outputs}
    inputs = tuple(_tensor(info, tensors, stored=False) for info in analysis.model.inputs)
    return Graph(
        name=analysis.model.name,
        nodes=nodes,
        inputs=inputs,
        outputs=tuple(_tensor(info, tensors, stored=False) for info in analysis.model.outputs),
        initializers=tuple(
            tensor for tensor in tensors.values() if tensor.initializer and tensor.name not in written
        ),
        opsets={"ai.onnx": analysis.model.opset},
    )


def _node(item: OperatorResult, tensors: dict[str, Tensor], analysis: Analysis) -> Node:
    where = item.source
    return Node(
        index=item.index,
        name=item.name,
        op_type=item.op_type,
        domain=item.domain,
        version=analysis.model.opset if item.domain == "ai.onnx" else 1,
        inputs=tuple(_tensor(info, tensors, stored=info.constant) for info in item.inputs),
        outputs=tuple(_tensor(info, tensors, stored=False) for info in item.outputs),
        attributes={name: _as_tuple(value) for name, value in item.attributes.items()},
        module=item.module,
        module_class=item.module_class,
        source=Source(file=where.file, line=where.line, code=where.code) if where else None,
        phase=item.phase,
    )


def _tensor(info: TensorInfo, tensors: dict[str, Tensor], *, stored: bool) -> Tensor:
    found = tensors.get(info.name)
    if found is None:
        found = Tensor(
            name=info.name,
            shape=info.shape,
            dtype=DTYPES.get(info.dtype) or DType(name=info.dtype, bits=None),
            constant=info.constant,
            initializer=stored,
        )
        tensors[info.name] = found
    return found


def _as_tuple(value: Any) -> Any:
    return tuple(map(_as_tuple, value)) if isinstance(value, (list, tuple)) else value


def _basis(text: str) -> Any:
    return text if text in ("exact", "modelled") else "unknown"


def _groups(analysis: Analysis, session: str) -> tuple[Group, ...]:
    return tuple(
        Group(session="cpu", name=item.name, op_type=item.op_type, members=item.members, provider="cpu")
        for item in analysis.groups
        if item.session == session
    )


def _kept(analysis: Analysis) -> Measured:
    """The CPU's times as the record has them."""
    plan = analysis.plan("cpu")
    rows = [item for item in analysis.groups if item.session == "cpu"]
    if plan is None or not rows:
        raise RecordError("The record holds no times of the CPU.", hint="Analyse the model itself with --gpu.")
    return Measured(
        cpu_latency=_estimate(plan.latency_s, plan.low_s, plan.high_s, plan.origin),
        cpu_groups=_groups(analysis, "cpu"),
        cpu_times=tuple(map(_group_time, rows)),
    )


def _group_time(item: GroupResult) -> Estimate | None:
    if item.time_s is None or item.low_s is None or item.high_s is None:
        return None
    return _estimate(item.time_s, item.low_s, item.high_s, item.origin)


def _estimate(time_s: float, low_s: float, high_s: float, origin: str) -> Estimate:
    known: Any = origin if origin in ("measured", "mixed") else "predicted"
    return Estimate(time_s=time_s, low_s=low_s, high_s=high_s, origin=known)


def _options(analysis: Analysis) -> Options:
    """The options of the record that the decision needs; a precision of TF32 or fp32 follows the GPU."""
    precision = analysis.model.precision
    objective: Any = analysis.verdict.objective
    return Options(
        precision=None if precision in ("fp32", "tf32") else precision, objective=objective, run=False
    )


def _cpu(analysis: Analysis) -> Device:
    """The record's CPU, from the record's own figures where the catalogue has no such slug."""
    info = analysis.devices.cpu
    known = next((item for item in catalogue.cpus() if item.slug == info.slug), None)
    if known is not None:
        return known
    return Device(
        slug=info.slug,
        name=info.name,
        kind="cpu",
        peak_flops_per_s=info.peak_flops_per_s,
        bandwidth_bytes_per_s=info.bandwidth_bytes_per_s,
        memory_bytes=info.memory_bytes,
        tdp_w=info.tdp_w,
        source=info.source,
    )
