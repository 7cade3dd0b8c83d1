"""One model on one CPU and any number of GPUs: everything that the decision is asked, and its answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from analyzer.decision import Decision, DecisionInput, Sweep, decide
from analyzer.decision.plans import Plans, plan_all
from analyzer.devices.device import Device
from analyzer.pipeline import build_record
from analyzer.pipeline.batches import BatchModels, sweep_of
from analyzer.pipeline.measure import Measured
from analyzer.pipeline.precision_table import precision_table
from analyzer.pipeline.predictor import Predictor
from analyzer.pipeline.prepared import PreparedGraph
from analyzer.pipeline.subgraph_results import body_results
from analyzer.record.analysis import Alternative, Analysis, Devices, ModelInfo
from analyzer.record.outcome import PrecisionResult


@dataclass(frozen=True, kw_only=True, eq=False)
class DeviceDecisions:
    """The decision for the first GPU, and those for the others.

    Attributes:
        decision_input: What was known about the first GPU at the batch of the report.
        decision: What follows from it.
        sweep: The plans over batches.
        alternatives: The decision for each further GPU.
        precisions: The same weights in every precision, on the CPU and the first GPU.
    """

    decision_input: DecisionInput
    decision: Decision
    sweep: Sweep
    alternatives: tuple[Alternative, ...]
    precisions: tuple[PrecisionResult, ...]


def decide_on(
    predictor: Predictor,
    prepared: PreparedGraph,
    model: BatchModels,
    gpus: Sequence[Device],
    batch: int | None,
    measured: Mapping[int, Measured],
) -> DeviceDecisions:
    """Decides for one model.

    Args:
        predictor: For the CPU and the user's options.
        prepared: The model at the batch of the report.
        model: The same over batches.
        gpus: The first is the verdict's.
        batch: The batch of the report.
        measured: By batch; of a GPU, of the first.
    """
    gpu = gpus[0] if gpus else None
    # 0 stands for a model without a batch, as in what `measure_batches` returns.
    decision_input = predictor.decision_input(prepared, gpu, batch, measured.get(batch or 0))
    on_cpu = {at: at_batch.cpu_alone for at, at_batch in measured.items()}
    if gpu is not None:
        what_if = predictor.what_if(prepared, gpu, batch, on_cpu.get(batch or 0))
        decision_input = replace(decision_input, what_if=what_if)
    swept, plans = _swept(predictor, prepared, model, decision_input, measured)
    return DeviceDecisions(
        decision_input=decision_input,
        decision=decide(decision_input, swept, plans),
        sweep=swept,
        alternatives=tuple(_alternative(predictor, prepared, model, gpu, batch, on_cpu) for gpu in gpus[1:]),
        # A check asks for one answer, and soon.
        precisions=()
        if predictor.options.fixed
        else precision_table(predictor, prepared, gpu, batch, measured.get(batch or 0)),
    )


def _swept(
    predictor: Predictor,
    prepared: PreparedGraph,
    model: BatchModels,
    decision_input: DecisionInput,
    measured: Mapping[int, Measured],
) -> tuple[Sweep, Plans]:
    """The plans over batches and those of the question itself, which is one of them."""
    plans = plan_all(decision_input)
    batch = decision_input.batch
    same = batch is not None and model.prepared_graphs.get(batch) is prepared
    known = {batch: (decision_input, plans)} if batch is not None and same else {}
    return sweep_of(model, predictor, decision_input.gpu, measured, known), plans


def _alternative(
    predictor: Predictor,
    prepared: PreparedGraph,
    model: BatchModels,
    gpu: Device,
    batch: int | None,
    on_cpu: Mapping[int, Measured],
) -> Alternative:
    """The decision for a further GPU: of what was measured, the CPU's part holds there as well."""
    decision_input = predictor.decision_input(prepared, gpu, batch, on_cpu.get(batch or 0))
    decision = decide(decision_input, *_swept(predictor, prepared, model, decision_input, on_cpu))
    return Alternative(
        device=build_record.device_info(gpu),
        plans=decision.plans,
        verdict=decision.verdict,
        costs=decision.costs,
    )


def analysis_of(
    model: ModelInfo, prepared: PreparedGraph, decisions: DeviceDecisions, cpu: Device, gpus: Sequence[Device]
) -> Analysis:
    """The record of a model and what was decided about it, without the circumstances.

    Args:
        model: What the record says of the model.
        prepared: The model at the batch of the report.
        decisions: From ``decide_on``.
        cpu: The CPU of the decisions.
        gpus: Their GPUs, the verdict's first.
    """
    decision_input, decision = decisions.decision_input, decisions.decision
    return Analysis(
        tool=build_record.TOOL,
        model=model,
        conventions=build_record.CONVENTIONS,
        devices=Devices(
            cpu=build_record.device_info(cpu), gpu=build_record.device_info(gpus[0]) if gpus else None
        ),
        totals=build_record.totals(prepared, decision_input),
        operators=build_record.operators(decision_input, decision),
        groups=build_record.groups(decision_input),
        plans=decision.plans,
        verdict=decision.verdict,
        alternatives=decisions.alternatives,
        costs=decision.costs,
        sweep=decisions.sweep.rows,
        precisions=decisions.precisions,
        session_fails=prepared.placement.fails,
        bodies=body_results(prepared.graph, prepared.placement) if gpus else (),
    )
