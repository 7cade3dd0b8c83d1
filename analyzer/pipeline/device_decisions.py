"""One model on one CPU and any number of GPUs: everything that the decision is asked, and its answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest

from analyzer.decision import Decision, DecisionInput, Sweep, decide
from analyzer.decision.contenders import Contender, cpu_contenders, gpu_contender, other_precisions
from analyzer.decision.plans import Plans, plan_all
from analyzer.decision.ranking import ranking
from analyzer.devices.device import Device
from analyzer.pipeline import build_record
from analyzer.pipeline.batches import BatchModels, sweep_of
from analyzer.pipeline.build_record import body_results
from analyzer.pipeline.forms import asked_precision
from analyzer.pipeline.measure import Measured
from analyzer.pipeline.precision_table import precision_tables
from analyzer.pipeline.predictor import Predictor
from analyzer.pipeline.prepared import PreparedGraph
from analyzer.pipeline.target_devices import model_precision
from analyzer.precision import INTEGER_FORMS
from analyzer.record.analysis import Alternative, Analysis, Devices, ModelInfo
from analyzer.record.outcome import PrecisionResult, RankingResult


@dataclass(frozen=True, kw_only=True, eq=False)
class DeviceDecisions:
    """The decision for the first GPU, and those for the others.

    ``decision_input`` and ``precisions`` are of the CPU and the first GPU at the batch of the report; the
    ranking is over all devices and every batch of the question.
    """

    decision_input: DecisionInput
    decision: Decision
    sweep: Sweep
    alternatives: tuple[Alternative, ...]
    precisions: tuple[PrecisionResult, ...]
    ranking: RankingResult


# The plans over batches; at those that were asked for the question too, the report's first.
_Swept = tuple[Sweep, tuple[tuple[DecisionInput, Plans], ...]]


def decide_on(
    predictor: Predictor,
    prepared: PreparedGraph,
    model: BatchModels,
    gpus: Sequence[Device],
    batch: int | None,
    measured: Mapping[int, Measured],
) -> DeviceDecisions:
    """Decides for one model.

    The first of ``gpus`` is the verdict's; what was ``measured`` on a GPU is of it.
    """
    gpu = gpus[0] if gpus else None
    # 0 stands for a model without a batch, as in what `measure_batches` returns.
    decision_input = predictor.decision_input(prepared, gpu, batch, measured.get(batch or 0))
    on_cpu = {at: at_batch.cpu_alone for at, at_batch in measured.items()}
    if gpu is not None:
        what_if = predictor.what_if(prepared, gpu, batch, on_cpu.get(batch or 0))
        decision_input = replace(decision_input, what_if=what_if)
    sweep, asked = _swept(predictor, prepared, model, decision_input, measured)
    # A check asks for one answer, and soon. Where the run failed or the file itself gives no answer, nothing
    # says that another form of the model has one.
    tables = (
        ()
        if predictor.options.fixed or decision_input.run_fails or decision_input.file_fails
        else precision_tables(
            predictor, prepared, gpus, batch, measured.get(batch or 0), on_cpu.get(batch or 0)
        )
    )
    others = [
        candidate
        for rows, device in zip_longest(tables, gpus[: len(tables)])
        if not predictor.pins  # which those tables do not keep
        for candidate in other_precisions(rows, decision_input, device)
    ]
    # The CPU and those that can be rented, at each batch. Floats of other widths are a matter of the GPU: on a
    # CPU the model computes in its own.
    wanted = predictor.options.precision
    form = wanted if wanted in INTEGER_FORMS else None
    rented = tuple(
        cpu_contenders(question, plans, form or model_precision(question.graph)) for question, plans in asked
    )
    contenders = [one for at_batch in rented for one in at_batch]
    if gpu is not None:
        contenders += _on_gpu(predictor, asked, rented)
    alternatives = []
    for other in gpus[1:]:
        # Of what was measured, the CPU's part holds there as well.
        question = predictor.decision_input(prepared, other, batch, on_cpu.get(batch or 0))
        there, asked_there = _swept(predictor, prepared, model, question, on_cpu)
        found = decide(question, there, asked_there[0][1])
        alternatives.append(
            Alternative(device=other, plans=found.plans, verdict=found.verdict, costs=found.costs)
        )
        contenders += _on_gpu(predictor, asked_there, rented)
    return DeviceDecisions(
        decision_input=decision_input,
        decision=decide(decision_input, sweep, asked[0][1]),
        sweep=sweep,
        alternatives=tuple(alternatives),
        precisions=tables[0] if tables else (),
        ranking=ranking(
            contenders,
            others,
            objective=decision_input.objective,
            limit_s=decision_input.limit_s,
            batch=decision_input.batch,
        ),
    )


def _swept(
    predictor: Predictor,
    prepared: PreparedGraph,
    model: BatchModels,
    decision_input: DecisionInput,
    measured: Mapping[int, Measured],
) -> _Swept:
    """The plans over batches and those of the batches that were asked for, which are some of them."""
    plans, gpu, batch = plan_all(decision_input), decision_input.gpu, decision_input.batch
    asked = [(decision_input, plans)]
    for other in predictor.options.batches:
        at_batch = model.prepared_graphs.get(other)
        if other != batch and at_batch is not None:
            question = predictor.decision_input(at_batch, gpu, other, measured.get(other), per_operator=False)
            asked.append((question, plan_all(question, asked[0])))
    same = batch is not None and model.prepared_graphs.get(batch) is prepared
    known = {
        question.batch: (question, found)
        for question, found in asked
        if question.batch is not None and (question is not decision_input or same)
    }
    return sweep_of(model, predictor, gpu, measured, known), tuple(asked)


def _on_gpu(
    predictor: Predictor,
    asked: Sequence[tuple[DecisionInput, Plans]],
    rented: Sequence[Sequence[Contender]],
) -> tuple[Contender, ...]:
    """A GPU at each batch that was asked for."""
    return tuple(
        gpu_contender(question, plans, asked_precision(predictor.options, question), on_cpus[0])
        for (question, plans), on_cpus in zip(asked, rented, strict=True)
    )


def analysis_of(
    model: ModelInfo, prepared: PreparedGraph, decisions: DeviceDecisions, cpu: Device, gpus: Sequence[Device]
) -> Analysis:
    """The record of a model and what was decided about it, without the circumstances."""
    decision_input, decision = decisions.decision_input, decisions.decision
    return Analysis(
        tool=build_record.TOOL,
        model=model,
        conventions=build_record.CONVENTIONS,
        devices=Devices(cpu=cpu, gpu=gpus[0] if gpus else None),
        totals=build_record.totals(prepared, decision_input),
        operators=build_record.operators(decision_input, decision),
        groups=build_record.groups(decision_input),
        plans=decision.plans,
        verdict=decision.verdict,
        alternatives=decisions.alternatives,
        costs=decision.costs,
        sweep=decisions.sweep.rows,
        precisions=decisions.precisions,
        ranking=decisions.ranking,
        onnxruntime=prepared.placement.release,
        session_fails=prepared.placement.fails,
        run_fails=decision_input.run_fails,
        bodies=body_results(prepared.graph, prepared.placement) if gpus else (),
    )
