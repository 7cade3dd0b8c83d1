"""The summary of a training step, and the inference record that it refers to."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from analyzer import prediction
from analyzer.decision import DecisionInput
from analyzer.devices.device import GPUS_A_MACHINE, NETWORK, Device, exchange_notes, peer_link
from analyzer.errors import RecordError
from analyzer.figures import Figure, Origin, total
from analyzer.graph import Graph
from analyzer.loading.loaded import Loaded
from analyzer.memory import fit
from analyzer.options import Options
from analyzer.pipeline.machine import memory_of
from analyzer.pipeline.prepared import PreparedGraph
from analyzer.precision import HALF, full_on_cuda
from analyzer.prediction.collectives import OVERLAP, dominates_from, scaled
from analyzer.prediction.estimate import Estimate
from analyzer.prediction.parameter_updates import update_totals
from analyzer.record import load_report
from analyzer.record.analysis import Analysis, PlanResult
from analyzer.record.invocation import Invocation, amended, command_line
from analyzer.record.training_step import (
    InferenceSummary,
    PhaseTotals,
    PredictedStep,
    Scaling,
    StepCost,
    StepMemory,
    TrainingResult,
)
from analyzer.training_operators import implementation_of, is_update

# A record names its model in its first lines: the files of other models are told without reading them whole.
_HEAD_BYTES = 4096


def with_inference(analysis: Analysis, folders: Iterable[Path], reference: str) -> Analysis:
    """Return the analysis of a step with what the latest comparable record of inference says.

    Records are searched in ``folders``; ``reference`` is the model as the user named it, for the command that
    is shown where there is none.

    Comparable is a record of the same model at the same batch, precision and devices. A record of a step hands
    on what it holds of inference, since both are written under the same name.
    """
    if analysis.training is None:
        return analysis
    summaries = [summary for folder in folders for summary in _summaries(folder, analysis)]
    gpu, model = analysis.devices.gpu, analysis.model
    slug = gpu.slug if gpu is not None else None
    # Source and name were compared before; the digest would differ, since a step's graph has gradients too.
    alike = (model.batch, model.precision, analysis.devices.cpu.name, slug, model.parameters)
    comparable = [
        one for one in summaries if (one.batch, one.precision, one.cpu, one.gpu, one.parameters) == alike
    ]
    if comparable:
        # Dates are ISO 8601 in UTC, whose order as texts is that in time.
        training = replace(analysis.training, inference=max(comparable, key=lambda summary: summary.date))
        return replace(analysis, training=training)
    others = sorted(
        {summary.batch for summary in summaries if summary.batch is not None} - {analysis.model.batch}
    )
    # The step's own question about inference, at the batch of the step. It is run in the folder where the step
    # was; a price list is named from elsewhere and changes no verdict's being comparable.
    step = analysis.invocation or Invocation(command="run", model=reference)
    batch = step.options.get("batch", ())
    if not batch and analysis.model.batch is not None:
        batch = (str(analysis.model.batch),)
    inference = amended(step, {"batch": batch} if batch else {}, without=("training", "dataset-size", "prices"))
    command = command_line(replace(inference, model=reference))
    note = f"For the inference verdict beside this one, run `{command}` first."
    if others:
        note += f" The records at hand are of batch {', '.join(map(str, others))}."
    return replace(analysis, training=replace(analysis.training, inference_note=note))


def _summaries(folder: Path, analysis: Analysis) -> Iterator[InferenceSummary]:
    """Yield a folder's records of the same model's inference; other files are passed over."""
    if not folder.is_dir():
        return
    for path in sorted(folder.glob("*.json")):
        try:
            with path.open("rb") as file:
                head = file.read(_HEAD_BYTES)
        except OSError:
            continue
        # Escaped as `to_json` writes it.
        if json.dumps(analysis.model.source, ensure_ascii=False).encode() not in head:
            continue
        try:
            record = load_report(path)
        except RecordError:
            continue
        if (record.model.source, record.model.name) != (analysis.model.source, analysis.model.name):
            continue
        step = record.training
        gpu, plans = record.devices.gpu, record.plans
        summary = (
            InferenceSummary(
                file=path.name,
                date=record.environment.date or "",
                batch=record.model.batch,
                precision=record.model.precision,
                cpu=record.devices.cpu.name,
                gpu=gpu.slug if gpu is not None else None,
                parameters=record.model.parameters,
                verdict=record.verdict,
                plans=tuple(replace(one, transfers=replace(one.transfers, items=())) for one in plans),
            )
            if step is None
            else step.inference
        )
        if summary is not None:
            yield summary


PHASES: tuple[Literal["forward", "backward", "optimizer"], ...] = ("forward", "backward", "optimizer")


def training_result(
    loaded: Loaded,
    decision_input: DecisionInput,
    prepared: PreparedGraph,
    options: Options,
    analysis: Analysis,
    between: Callable[[int], PreparedGraph] | None = None,
) -> TrainingResult | None:
    """Return the step's part of the record; None for inference. ``between`` gives the step at any batch."""
    step, memory = loaded.step, memory_of(loaded, prepared.graph)
    if step is None or memory is None:
        return None
    phases = _phases(decision_input)
    gpu_plan = analysis.plan("gpu")
    # All but weights, gradients and state grows with the batch.
    room = fit.room(decision_input.gpu)
    largest = fit.largest_by_growth(memory.fixed_bytes, memory.peak_bytes, loaded.batch, room)
    # By its method and not by its class: `exports` traces models, which a summary has no need to import.
    peak = getattr(between, "peak", None)
    exact = None if peak is None else _largest_exactly(peak, decision_input.gpu, largest)
    predicted = decision_input.gpu is not None and phases[-1].gpu_origin != "measured"
    error, note = _worst_gradient(analysis.environment.measurement, random=step.random)
    return TrainingResult(
        optimizer=step.optimizer,
        phases=phases,
        memory=memory,
        costs=tuple(_cost(plan, loaded.batch, options) for plan in analysis.plans),
        precisions=_precisions(prepared, decision_input.gpu, loaded.batch) if decision_input.gpu else (),
        scaling=_scaling(decision_input.gpu, gpu_plan, phases, memory, loaded.batch)
        if decision_input.gpu
        else None,
        largest_batch=exact if exact is not None else largest,
        largest_batch_exact=exact is not None,
        dataset_size=options.dataset_size,
        assumed=tuple(note for note in loaded.notes if "assumed" in note),
        gradient_error=error,
        gradient_note=note,
        **(_update(prepared.graph, step.optimizer) if predicted else {}),
    )


_RUNS = {
    "foreach": "by default (foreach): each of its functions goes over all parameters at once",
    "fused": "where it is fused: one pass over all parameters",
    "for-loop": "without foreach: each of its functions, for each parameter by itself",
}


def _update(graph: Graph, optimizer: str) -> dict[str, Any]:
    """Return how the optimizer is priced on the GPU: what runs, its launches, the bytes that it moves."""
    nodes = [node for node in graph.nodes if is_update(node)]
    parameters = sum((updated.elements or 0) for node in nodes if (updated := node.output(0)) is not None)
    if not parameters:
        return {}
    result = sorted({implementation_of(node) for node in nodes})
    kernels, moved = update_totals(graph)
    launches = round(kernels)
    phases = " and ".join(_RUNS[name] for name in result)
    sentence = (
        f"On the GPU {optimizer} is predicted as PyTorch runs it {phases}; "
        f"{launches} {'launch moves' if launches == 1 else 'launches move'} "
        f"{moved / parameters:.0f} B a parameter in fp32. "
        "On the CPU, ONNX Runtime runs its definition."
    )
    return {
        "optimizer_kernels": ", ".join(result),
        "optimizer_launches": launches,
        "optimizer_moved_bytes": round(moved),
        "optimizer_note": sentence,
    }


def _phases(decision_input: DecisionInput) -> tuple[PhaseTotals, ...]:
    totals = []
    for name in PHASES:
        members = [node.index for node in decision_input.graph.nodes if node.phase == name]
        costs = [decision_input.table.costs[index] for index in members]
        cpu_s, cpu_origin = _time_of(members, decision_input.cpu_shares)
        gpu_s, gpu_origin = _time_of(members, decision_input.gpu_shares if decision_input.gpu else ())
        totals.append(
            PhaseTotals(
                name=name,
                operators=len(members),
                flops=sum(cost.flops or 0 for cost in costs),
                macs=sum(cost.macs or 0 for cost in costs),
                bytes_read=sum(cost.bytes_read or 0 for cost in costs),
                bytes_written=sum(cost.bytes_written or 0 for cost in costs),
                cpu_s=cpu_s,
                gpu_s=gpu_s,
                cpu_origin=cpu_origin,
                gpu_origin=gpu_origin,
            )
        )
    return tuple(totals)


def _time_of(members: Sequence[int], shares: Sequence[Figure | None]) -> tuple[float | None, Origin]:
    if not shares:
        return None, "predicted"
    whole = total(time for index in members if (time := shares[index]) is not None)
    return whole.value, whole.origin


def _cost(plan: PlanResult, batch: int | None, options: Options) -> StepCost:
    # Rounded up: the last batch of an epoch may be a part of one, and is a step too.
    steps = -(-options.dataset_size // batch) if options.dataset_size and batch else None

    def dollars(per_million: float | None, times: int | None) -> float | None:
        """Of so many steps; a million inferences are a million examples."""
        return None if per_million is None or times is None else times * (per_million / 1e6 * (batch or 1))

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


def _precisions(prepared: PreparedGraph, gpu: Device, batch: int | None) -> tuple[PredictedStep, ...]:
    """Return the CUDA session's kernels in each precision that the GPU has, without copies of inputs."""
    full = full_on_cuda(gpu.peak_flops_per_s)
    rows = [
        _step(total(prediction.predict(prepared.cuda_work, gpu, precision=name)), batch, precision=name)
        for name in dict.fromkeys(("fp32", full))
    ]
    half, mixed = mixed_times(prepared, gpu)
    if half:
        rows.append(_step(total(mixed), batch, precision=f"mixed ({half})"))
    return tuple(rows)


def mixed_times(prepared: PreparedGraph, gpu: Device) -> tuple[str, tuple[Estimate, ...]]:
    """Return the 16-bit type of mixed precision and the groups' times in it; none on a GPU without one."""
    half = next((name for name in HALF if name in gpu.peak_flops_per_s), "")
    if not half:
        return "", ()
    full = full_on_cuda(gpu.peak_flops_per_s)
    in_half, in_full = (prediction.predict(prepared.cuda_work, gpu, precision=name) for name in (half, full))
    nodes = prepared.graph.nodes
    # As autocast does: it holds for the forward pass and its gradients, never for the optimizer's weights.
    return half, tuple(
        wide if group.members and nodes[group.members[0]].phase == "optimizer" else narrow
        for narrow, wide, group in zip(in_half, in_full, prepared.cuda_groups, strict=True)
    )


def _step(time: Figure, batch: int | None, gpus: int = 1, **facts: Any) -> PredictedStep:
    return PredictedStep(
        step_s=time.value,
        low_s=time.low,
        high_s=time.high,
        gpus=gpus,
        examples_per_s=gpus * (batch or 1) / time.value,
        **facts,
    )


def _largest_exactly(peak_at: Callable[[int], int | None], gpu: Device | None, guess: int | None) -> int | None:
    """Return the largest batch whose own step fits."""
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
    gpu: Device, plan: PlanResult | None, phases: Sequence[PhaseTotals], memory: StepMemory, batch: int | None
) -> Scaling | None:
    peer = peer_link(gpu)
    backward = next((phase.gpu_s for phase in phases if phase.name == "backward"), None)
    if peer is None or plan is None or backward is None:
        return None
    # The assumptions make it a prediction, measured step or not.
    one = replace(plan.latency, origin="predicted")
    rows = scaled(one, backward, memory.gradients_bytes, peer)
    return Scaling(
        rows=tuple(
            _step(
                row.step,
                batch,
                gpus=row.gpus,
                communication_s=row.communication_s,
                exposed_s=row.exposed_s,
                efficiency=one.value / row.step.value,
            )
            for row in rows
        ),
        link=peer.name,
        bytes_per_step=memory.gradients_bytes,
        dominates_from=dominates_from(rows),
        assumptions=(
            "A prediction: each GPU has the whole batch, and an all-reduce sums the gradients.",
            f"Up to {GPUS_A_MACHINE} GPUs stand in one machine, joined by "
            f"{peer.name} ({peer.source.partition(',')[0]}); "
            f"machines are joined by a {NETWORK.name}.",
            f"{OVERLAP * 100:.0f} % of what could hide behind the backward pass is assumed to; the interval "
            "runs from all of it to none.",
            *exchange_notes(peer, tuple(row.gpus for row in rows if 1 < row.gpus <= GPUS_A_MACHINE)),
        ),
    )


def _worst_gradient(measurement: Mapping[str, Any], *, random: bool) -> tuple[float | None, str]:
    if random:  # ONNX Runtime and PyTorch draw other numbers from the same seed
        return None, "The step draws random numbers (dropout): gradients cannot be compared with PyTorch's."
    rows = [row for row in measurement.get("agreement", ()) if "gradients" in str(row.get("output"))]
    if not rows:
        return None, ""
    return rows[0]["max_rel_error"], f"{rows[0]['output']}, against {rows[0]['between'].split(' and ')[0]}"
