"""What a training step's report has beside the usual: phases, memory, cost, precisions, several GPUs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from analyzer import prediction
from analyzer.decision import DecisionInput
from analyzer.devices.device import Device
from analyzer.devices.peer_links import GPUS_A_MACHINE, NETWORK, peer_link
from analyzer.loading.loaded import Loaded
from analyzer.memory import fit
from analyzer.memory.training_step import StepBytes
from analyzer.pipeline.measurement_memory import memory_of
from analyzer.pipeline.options import Options
from analyzer.pipeline.prepared import PreparedGraph
from analyzer.precision import HALF, full_on_cuda
from analyzer.prediction.data_parallel import OVERLAP, dominates_from, scaled
from analyzer.prediction.estimate import Estimate, Origin, total
from analyzer.record.analysis import Analysis, PlanResult
from analyzer.record.training_step import (
    PhaseTotals,
    PrecisionRow,
    Scaling,
    ScalingRow,
    StepCost,
    StepMemory,
    TrainingResult,
)

PHASES = ("forward", "backward", "optimizer")


@runtime_checkable
class AnyStep(Protocol):
    """What knows the step at any batch."""

    def peak(self, batch: int) -> int | None:
        """The bytes alive at its peak."""


def training_result(
    loaded: Loaded,
    question: DecisionInput,
    prepared: PreparedGraph,
    options: Options,
    analysis: Analysis,
    between: Callable[[int], PreparedGraph] | None = None,
) -> TrainingResult | None:
    """The step's part of the record; None for a model of inference. ``between`` knows the step at any batch."""
    step, memory = loaded.step, memory_of(loaded, prepared.graph)
    if step is None or memory is None:
        return None
    phases = _phases(question)
    gpu_plan = analysis.plan("gpu")
    largest = _largest(memory, question.gpu, loaded.batch)
    exact = _largest_exactly(between.peak, question.gpu, largest) if isinstance(between, AnyStep) else None
    error, note = _gradients(analysis.environment.measurement, random=step.random)
    return TrainingResult(
        optimizer=step.optimizer,
        phases=phases,
        memory=_memory(memory),
        costs=tuple(_cost(plan, loaded.batch, options) for plan in analysis.plans),
        precisions=_precisions(prepared, question.gpu) if question.gpu else (),
        scaling=_scaling(question.gpu, gpu_plan, phases, memory, loaded.batch) if question.gpu else None,
        largest_batch=exact if exact is not None else largest,
        largest_batch_exact=exact is not None,
        dataset_size=options.dataset_size,
        assumed=tuple(item for item in loaded.notes if "assumed" in item),
        gradient_error=error,
        gradient_note=note,
    )


def _memory(found: StepBytes) -> StepMemory:
    return StepMemory(
        weights_bytes=found.weights,
        gradients_bytes=found.gradients,
        optimizer_state_bytes=found.states,
        activations_bytes=found.activations,
        other_bytes=found.other,
        peak_bytes=found.peak,
    )


def _phases(question: DecisionInput) -> tuple[PhaseTotals, ...]:
    found = []
    for name in PHASES:
        members = [node.index for node in question.graph.nodes if node.phase == name]
        costs = [question.table.costs[index] for index in members]
        cpu, cpu_origin = _spent(members, question.cpu_shares)
        gpu, gpu_origin = _spent(members, question.gpu_shares if question.gpu else ())
        found.append(
            PhaseTotals(
                name=name,  # type: ignore[arg-type]  # one of PHASES
                operators=len(members),
                flops=sum(cost.flops or 0 for cost in costs),
                macs=sum(cost.macs or 0 for cost in costs),
                bytes_read=sum(cost.bytes_read or 0 for cost in costs),
                bytes_written=sum(cost.bytes_written or 0 for cost in costs),
                cpu_s=cpu,
                gpu_s=gpu,
                cpu_origin=cpu_origin,
                gpu_origin=gpu_origin,
            )
        )
    return tuple(found)


def _spent(members: Sequence[int], shares: Sequence[Estimate | None]) -> tuple[float | None, Origin]:
    if not shares:
        return None, "predicted"
    whole = total(time for index in members if (time := shares[index]) is not None)
    return whole.time_s, whole.origin


def _cost(plan: PlanResult, batch: int | None, options: Options) -> StepCost:
    steps = -(-options.dataset_size // batch) if options.dataset_size and batch else None

    def dollars(per_million: float | None, times: int | None) -> float | None:
        """Of so many steps; a million inferences are a million examples."""
        return None if per_million is None or times is None else times * per_million / 1e6 * (batch or 1)

    return StepCost(
        plan=plan.name,
        step_s=plan.latency_s,
        thousand_steps_s=1000 * plan.latency_s,
        usd_per_thousand_steps=dollars(plan.usd_per_million, 1000),
        epoch_s=None if steps is None else steps * plan.latency_s,
        usd_per_epoch=dollars(plan.usd_per_million, steps),
        origin=plan.origin,
        usd_origin=plan.usd_origin,
        usd_low_per_thousand_steps=dollars(plan.usd_low_per_million, 1000),
        usd_high_per_thousand_steps=dollars(plan.usd_high_per_million, 1000),
        usd_low_per_epoch=dollars(plan.usd_low_per_million, steps),
        usd_high_per_epoch=dollars(plan.usd_high_per_million, steps),
    )


def _precisions(prepared: PreparedGraph, gpu: Device) -> tuple[PrecisionRow, ...]:
    """The CUDA session's kernels in each precision that the GPU has, without copies of inputs."""
    full = full_on_cuda(gpu.peak_flops_per_s)
    rows = [
        _row(name, total(prediction.predict(prepared.cuda_work, gpu, precision=name)))
        for name in dict.fromkeys(("fp32", full))
    ]
    half = next((name for name in HALF if name in gpu.peak_flops_per_s), None)
    if half is not None:
        low = prediction.predict(prepared.cuda_work, gpu, precision=half)
        high = prediction.predict(prepared.cuda_work, gpu, precision=full)
        phases = [
            prepared.graph.nodes[group.members[0]].phase if group.members else None
            for group in prepared.cuda_groups
        ]
        chosen = [b if phase == "optimizer" else a for a, b, phase in zip(low, high, phases, strict=True)]
        rows.append(_row(f"mixed ({half})", total(item for item in chosen if item is not None)))
    return tuple(rows)


def _row(name: str, time: Estimate) -> PrecisionRow:
    return PrecisionRow(precision=name, step_s=time.time_s, low_s=time.low_s, high_s=time.high_s)


def _largest(memory: StepBytes, gpu: Device | None, batch: int | None) -> int | None:
    """The largest batch whose step fits the GPU: all but weights, gradients and state grows with it."""
    return fit.largest_by_growth(memory.fixed, memory.peak, batch, fit.room(gpu))


def _largest_exactly(peak_at: Callable[[int], int | None], gpu: Device | None, guess: int | None) -> int | None:
    """The largest batch whose own step fits."""
    room = fit.room(gpu)
    if room is None or guess is None:
        return None

    def holds(batch: int) -> bool:
        peak = peak_at(batch)
        return peak is not None and peak <= room

    try:
        return fit.largest_from(holds, guess)
    except ValueError:  # a batch that the step does not run at
        return None


def _scaling(
    gpu: Device, plan: PlanResult | None, phases: Sequence[PhaseTotals], memory: StepBytes, batch: int | None
) -> Scaling | None:
    peer = peer_link(gpu)
    backward = next((phase.gpu_s for phase in phases if phase.name == "backward"), None)
    if peer is None or plan is None or backward is None:
        return None
    one = Estimate(time_s=plan.latency_s, low_s=plan.low_s, high_s=plan.high_s, origin="predicted")
    found = scaled(one, backward, memory.gradients, peer)
    return Scaling(
        rows=tuple(
            ScalingRow(
                gpus=row.gpus,
                step_s=row.step.time_s,
                low_s=row.step.low_s,
                high_s=row.step.high_s,
                communication_s=row.communication_s,
                exposed_s=row.exposed_s,
                examples_per_s=row.gpus * (batch or 1) / row.step.time_s,
                efficiency=one.time_s / row.step.time_s,
            )
            for row in found
        ),
        link=peer.name,
        bytes_per_step=memory.gradients,
        dominates_from=dominates_from(found),
        assumptions=(
            "A prediction: each GPU has the whole batch, and a ring all-reduce sums the gradients.",
            f"Up to {GPUS_A_MACHINE} GPUs stand in one machine, joined by "
            f"{peer.name} ({_first(peer.source)}); "
            f"machines are joined by a {NETWORK.name}.",
            f"{OVERLAP * 100:.0f} % of what could hide behind the backward pass is assumed to; the interval "
            "runs from all of it to none.",
        ),
    )


def _gradients(measurement: Mapping[str, Any], *, random: bool) -> tuple[float | None, str]:
    if random:
        return None, "The step draws random numbers (dropout): gradients cannot be compared with PyTorch's."
    rows = [row for row in measurement.get("agreement", ()) if "gradients" in str(row.get("output"))]
    if not rows:
        return None, ""
    return rows[0]["max_rel_error"], f"{rows[0]['output']}, against {rows[0]['between'].split(' and ')[0]}"


def _first(text: str) -> str:
    """A source up to its first particular."""
    return text.partition(",")[0]
