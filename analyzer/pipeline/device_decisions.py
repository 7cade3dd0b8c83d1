"""One model on one CPU and any number of GPUs: everything that the decision is asked, and its answers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import zip_longest

from analyzer.decision import Decision, DecisionInput, Sweep, decide
from analyzer.decision.contenders import cpu_contenders, gpu_contender, other_precisions
from analyzer.decision.plans import Plans, plan_all, session_plans
from analyzer.decision.ranking import instances, rank_ways
from analyzer.devices.device import Device
from analyzer.options import ALL
from analyzer.pipeline import build_record
from analyzer.pipeline.batches import BatchModels, sweep_of
from analyzer.pipeline.build_record import body_results
from analyzer.pipeline.forms import requested_precision
from analyzer.pipeline.measure import Measured
from analyzer.pipeline.precision_table import precision_tables
from analyzer.pipeline.predictor import Predictor
from analyzer.pipeline.prepared import PreparedGraph
from analyzer.pipeline.target_devices import model_precision
from analyzer.precision import INTEGER_FORMS
from analyzer.progress import Progress, silent
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
    progress: Progress = silent,
) -> DeviceDecisions:
    """Decide for one model.

    The first of ``gpus`` is the verdict's; what was ``measured`` on a GPU is of it.
    """
    # 0 stands for a model without a batch, as in what `measure_batches` returns.
    at = batch or 0
    on_cpu = {where: at_batch.cpu_alone for where, at_batch in measured.items()}
    looked_at = []
    for number, gpu in enumerate(gpus or (None,)):
        progress("deciding", number / len(gpus or (None,)))
        # Of what was measured, the CPU's part holds next to other GPUs as well.
        looked_at.append(_looked_at(predictor, prepared, model, gpu, batch, on_cpu if number else measured))
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
            gpu_contender(question, plans, requested_precision(predictor.options, question), on_cpus)
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
        slug = answer.device if answer is not None else ""
        looked_at.sort(key=lambda one: one.question.gpu is None or one.question.gpu.slug != slug)
    first, *further = looked_at
    question = predictor.with_operators(first.question, prepared, first.measured.get(at))
    swept = first.sweep(predictor, prepared, model, split=True)
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
    decision = decide(question, swept, first.asked[0][1])
    answer, ways = rank(others)
    judged = answer is not None and (answer.meets is None or (answer.meets and gpus))
    if answer is not None and judged and answer.named and len(gpus) < 2 and len(first.asked) == 1:
        # Of one GPU and the CPU the verdict says by how much, and whether either is as good.
        answer = replace(answer, sentence=decision.verdict.sentence)
    return DeviceDecisions(
        decision_input=question,
        gpus=ordered,
        decision=decision,
        sweep=swept,
        alternatives=tuple(
            _alternative(one, one.sweep(predictor, prepared, model, split=False)) for one in further
        ),
        precisions=tables[0] if tables else (),
        instances=tuple(instances(contenders)),
        answer=answer,
        ranking=ways,
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class _LookedAt:
    """A question about one GPU, whose answer may be another's: with plans at the requested batches alone.

    The report's batch is the first of ``asked``; ``measured`` is by batch.
    """

    asked: tuple[tuple[DecisionInput, Plans], ...]
    measured: Mapping[int, Measured]

    @property
    def question(self) -> DecisionInput:
        """Return the one at the report's batch."""
        return self.asked[0][0]

    def sweep(self, predictor: Predictor, prepared: PreparedGraph, model: BatchModels, *, split: bool) -> Sweep:
        """Return what follows over batches; ``split`` adds the best split to each row."""
        base, gpu = self.question.batch, self.question.gpu
        own = base is not None and model.prepared_graphs.get(base) is prepared
        known = {
            question.batch: (question, plans)
            for question, plans in self.asked
            if question.batch is not None and (own or question.batch != base)
        }
        plan = partial(plan_all if split else session_plans, problems=predictor.problems)
        return sweep_of(model, predictor, gpu, self.measured, known, plan)


def _alternative(looked_at: _LookedAt, swept: Sweep) -> Alternative:
    """Return the same decision for a further GPU."""
    question, plans = looked_at.asked[0]
    assert question.gpu is not None
    decided = decide(question, swept, plans)
    return Alternative(device=question.gpu, plans=decided.plans, verdict=decided.verdict, costs=decided.costs)


def _looked_at(
    predictor: Predictor,
    prepared: PreparedGraph,
    model: BatchModels,
    gpu: Device | None,
    batch: int | None,
    measured: Mapping[int, Measured],
) -> _LookedAt:
    graphs = {batch: prepared} | {
        other: model.prepared_graphs[other]
        for other in predictor.options.batches
        if other != batch and other in model.prepared_graphs
    }
    questions = [
        predictor.decision_input(graph, gpu, at, measured.get(at or 0)) for at, graph in graphs.items()
    ]
    plans = [plan_all(question, predictor.problems) for question in questions]
    if fails := questions[0].run_fails:  # then nothing is known at other batches either
        questions = [replace(question, run_fails=fails) for question in questions]
    return _LookedAt(asked=tuple(zip(questions, plans, strict=True)), measured=measured)


def analysis_of(model: ModelInfo, prepared: PreparedGraph, decisions: DeviceDecisions, cpu: Device) -> Analysis:
    """Return the record of a model and what was decided about it, without the circumstances."""
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
