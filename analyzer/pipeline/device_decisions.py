"""One model on one CPU and any number of GPUs: everything that the decision is asked, and its answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from analyzer.decision import Decision, DecisionInput, Sweep, decide
from analyzer.devices.device import Device
from analyzer.pipeline import build_record
from analyzer.pipeline.batches import BatchModels, sweep_of
from analyzer.pipeline.measure import Measured
from analyzer.pipeline.prepared import Predictor, PreparedGraph
from analyzer.record.analysis import Alternative


@dataclass(frozen=True, kw_only=True, eq=False)
class DeviceDecisions:
    """The answer for the first GPU, and for the others.

    Attributes:
        question: What was asked about the first GPU at the batch of the report.
        decision: The answer.
        sweep: The same over batches.
        others: For each further GPU.
    """

    question: DecisionInput
    decision: Decision
    sweep: Sweep
    others: tuple[Alternative, ...]


def decide_on(
    predictor: Predictor,
    prepared: PreparedGraph,
    model: BatchModels,
    gpus: Sequence[Device],
    batch: int | None,
    measured: Mapping[int, Measured],
) -> DeviceDecisions:
    """Asks about one model.

    Args:
        predictor: For the CPU and the user's options.
        prepared: The model at the batch of the report.
        model: The same over batches.
        gpus: The first is the verdict's.
        batch: The batch of the report.
        measured: By batch; of a GPU, of the first.
    """
    gpu = gpus[0] if gpus else None
    question = predictor.question(prepared, gpu, batch, measured.get(batch or 0))
    on_cpu = {at: found.cpu_alone for at, found in measured.items()}
    if gpu is not None:
        question = replace(question, what_if=predictor.what_if(prepared, gpu, batch, on_cpu.get(batch or 0)))
    swept = sweep_of(model, predictor, gpu, measured)
    return DeviceDecisions(
        question=question,
        decision=decide(question, swept),
        sweep=swept,
        others=tuple(_other(predictor, prepared, model, gpu, batch, on_cpu) for gpu in gpus[1:]),
    )


def _other(
    predictor: Predictor,
    prepared: PreparedGraph,
    model: BatchModels,
    gpu: Device,
    batch: int | None,
    on_cpu: Mapping[int, Measured],
) -> Alternative:
    """The decision for a further GPU: of what was measured, the CPU's part holds beside it as well."""
    question = predictor.question(prepared, gpu, batch, on_cpu.get(batch or 0))
    decision = decide(question, sweep_of(model, predictor, gpu, on_cpu))
    return Alternative(
        device=build_record.device_info(gpu),
        plans=decision.plans,
        verdict=decision.verdict,
        costs=decision.costs,
    )
