"""One model on one CPU and any number of GPUs: everything that the decision is asked, and its answers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import zip_longest

from analyzer.decision import Decision, DecisionInput, Sweep, decide
from analyzer.decision.contenders import cpu_contenders, gpu_contender, other_precisions
from analyzer.decision.plans import Plans, plan_all
from analyzer.decision.ranking import instances, rank_ways
from analyzer.devices.device import Device
from analyzer.options import ALL
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
from analyzer.record.analysis import TOOL, Alternative, Analysis, Devices, ModelInfo
from analyzer.record.outcome import Answer, CostRow, Guess, PrecisionResult, RankedWay


@dataclass(frozen=True, kw_only=True, eq=False)
class DeviceDecisions:
    """The decision for the first GPU, and those for the others.

    ``gpus`` are in the order of the record: of all of the catalogue the answer's comes first.
    ``decision_input`` and ``precisions`` are of the CPU and the first GPU at the batch of the report; the
    ranking is over all devices and every batch of the question.
    """

    decision_input: DecisionInput
    gpus: tuple[Device, ...]
    decision: Decision
    sweep: Sweep
    alternatives: tuple[Alternative, ...]
    precisions: tuple[PrecisionResult, ...]
    instances: tuple[CostRow, ...]
    answer: Answer | None
    ranking: tuple[RankedWay, ...]


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
    # 0 stands for a model without a batch, as in what `measure_batches` returns.
    at = batch or 0
    on_cpu = {where: at_batch.cpu_alone for where, at_batch in measured.items()}
    looked_at = []
    for number, gpu in enumerate(gpus or (None,)):
        # Of what was measured, the CPU's part holds next to other GPUs as well.
        seen = on_cpu if number else measured
        question = predictor.decision_input(prepared, gpu, batch, seen.get(at))
        swept, asked = _swept(predictor, prepared, model, question, seen)
        if fails := question.run_fails:  # then nothing is known at other batches either
            asked = tuple((replace(other, run_fails=fails), plans) for other, plans in asked)
        looked_at.append(_LookedAt(question, swept, asked))
    # The CPU and those that can be rented, at each batch. Floats of other widths are a matter of the GPU: on a
    # CPU the model computes in its own.
    wanted = predictor.options.precision
    form = wanted if wanted in INTEGER_FORMS else None
    rented = tuple(
        cpu_contenders(question, plans, form or model_precision(question.graph))
        for question, plans in looked_at[0].asked
    )
    contenders = [one for at_batch in rented for one in at_batch]
    for one in looked_at[: len(gpus)]:
        contenders += [
            gpu_contender(question, plans, asked_precision(predictor.options, question), on_cpus[0])
            for (question, plans), on_cpus in zip(one.asked, rented, strict=True)
        ]
    rank = partial(
        rank_ways,
        contenders,
        objective=predictor.options.objective,
        limit_s=predictor.options.slo_s,
        batch=looked_at[0].question.batch,
    )
    if ALL in (predictor.options.gpus or ()) and not any(one.cuda_latency for one in measured.values()):
        # Their order is ours: plans, reasons and operators are of the answer's GPU.
        answer, _ = rank()
        looked_at.sort(key=lambda one: answer is None or one.slug != answer.device)
    first, *further = looked_at
    question = first.question
    # A check asks for one answer, and soon. Where the run failed or the file itself gives no answer, nothing
    # says that another form of the model has one.
    no_tables = predictor.options.fixed or question.run_fails or question.file_fails
    ordered = tuple(one.question.gpu for one in looked_at if one.question.gpu is not None)
    tables = (
        ()
        if no_tables
        else precision_tables(predictor, prepared, ordered, batch, measured.get(at), on_cpu.get(at))
    )
    others = [
        candidate
        for rows, device in zip_longest(tables, ordered[: len(tables)])
        if not predictor.pins  # which those tables do not keep
        for candidate in other_precisions(rows, question, device)
    ]
    decision = decide(question, first.sweep, first.asked[0][1])
    answer, ways = rank(others)
    judged = answer is not None and (answer.meets is None or (answer.meets and gpus))
    if answer is not None and judged and answer.named and len(gpus) < 2 and len(first.asked) == 1:
        # Of one GPU and the CPU the verdict says by how much, and whether either is as good.
        answer = replace(answer, sentence=decision.verdict.sentence)
    return DeviceDecisions(
        decision_input=question,
        gpus=ordered,
        decision=decision,
        sweep=first.sweep,
        alternatives=tuple(one.alternative() for one in further),
        precisions=tables[0] if tables else (),
        instances=tuple(instances(contenders)),
        answer=answer,
        ranking=ways,
    )


@dataclass(frozen=True, eq=False)
class _LookedAt:
    """A question about one GPU: over batches, and with its plans at each batch that was requested."""

    question: DecisionInput
    sweep: Sweep
    asked: tuple[tuple[DecisionInput, Plans], ...]

    @property
    def slug(self) -> str:
        """Return the GPU's; empty without one."""
        return "" if self.question.gpu is None else self.question.gpu.slug

    def alternative(self) -> Alternative:
        """Return the same decision for a further GPU."""
        assert self.question.gpu is not None
        found = decide(self.question, self.sweep, self.asked[0][1])
        return Alternative(
            device=self.question.gpu, plans=found.plans, verdict=found.verdict, costs=found.costs
        )


def _swept(
    predictor: Predictor,
    prepared: PreparedGraph,
    model: BatchModels,
    decision_input: DecisionInput,
    measured: Mapping[int, Measured],
) -> tuple[Sweep, tuple[tuple[DecisionInput, Plans], ...]]:
    """Return the plans over batches, and the question with its plans at those requested, the report's first."""
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


def analysis_of(model: ModelInfo, prepared: PreparedGraph, decisions: DeviceDecisions, cpu: Device) -> Analysis:
    """The record of a model and what was decided about it, without the circumstances."""
    decision_input, decision, gpus = decisions.decision_input, decisions.decision, decisions.gpus
    return Analysis(
        tool=TOOL,
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
        instances=decisions.instances,
        answer=decisions.answer and replace(decisions.answer, guessed=tuple(_guesses(model))),
        ranking=decisions.ranking,
        onnxruntime=prepared.placement.release,
        session_fails=prepared.placement.fails,
        run_fails=decision_input.run_fails,
        bodies=body_results(prepared.graph, prepared.placement) if gpus else (),
    )


def _guesses(model: ModelInfo) -> Iterator[Guess]:
    """Yield the inputs and sizes that were not given."""
    for text in model.guessed_inputs:
        name, _, value = text.partition("=")
        yield Guess(what=f"input {name}", value=value, fix=f"--input {text}")
    for name, size in model.assumed_sizes.items():
        yield Guess(what=f"size {name}", value=str(size), fix="--input NAME=SHAPE")
