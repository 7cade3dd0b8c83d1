"""Tables of a training step and of precisions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from analyzer.record.analysis import Analysis, PlanResult, PrecisionResult
from analyzer.record.training_step import TrainingResult
from analyzer.report.document import SCREEN, WHOLE, Block, Table, texts
from analyzer.report.figure_text import PLAN_TITLES, marked, sign
from analyzer.report.plan_cards import priced_on
from analyzer.units import UNKNOWN, byte_count, count, digits, dollars, factor, flop_count, seconds, share, span

_LEAD = (
    "The models that ONNX Runtime would run: int8 is the graph of its quantize_static, int4 packs the weights "
    "of matrix multiplications in blocks of 32. The gain is over the model as it is on that device, with its "
    "90 % interval."
)


def tables(analysis: Analysis) -> tuple[Table, ...]:
    """Return the table of precisions; none where the record has none."""
    results = analysis.precisions
    if not results:
        return ()
    # Either device is decided in one precision: the mark is at the answer's.
    side = "cpu" if analysis.verdict.device == "cpu" else "gpu"
    decided = sorted((one.device != side, at) for at, one in enumerate(results) if one.decided)
    return (
        Table(
            name="precisions",
            title="The same weights in other precisions",
            lead=_LEAD,
            head=("Precision", "Latency", "90 % interval", "Gain", "Memory", "$ per million", "Why"),
            rows=tuple(map(_row, results)),
            figures=(1, 2, 3, 4, 5),
            drop=(0, 0, 1, 0, 2, 3, 4),
            chosen=decided[0][1] if decided else None,
            mark="decided",
            # Why it does not run, or gains nothing.
            below=tuple(
                f"{_name(one)}: {one.reason}."
                for one in results
                if one.reason and (one.latency is None or (one.speedup is not None and one.speedup < 1))
            ),
            most=0,
        ),
    )


def _name(result: PrecisionResult) -> str:
    return f"{result.precision} on the {result.device.upper()}"


def _row(result: PrecisionResult) -> tuple[str, ...]:
    time = result.latency
    if time is None:
        return (_name(result), "does not run", "", "", "", "", result.reason)
    gain = UNKNOWN
    if result.speedup is not None:
        interval = span(factor(result.speedup_low), factor(result.speedup_high))
        gain = f"{factor(result.speedup)} ({interval})"
    return (
        _name(result),
        marked(seconds(time.value), result.origin),
        time.between(seconds),
        gain,
        byte_count(result.memory_bytes) + ("" if result.fits else " (does not fit)"),
        dollars(result.usd_per_million),
        result.reason,
    )


_MIXED = "Predicted, the kernels alone. Mixed is autocast with the optimizer in fp32."


def blocks(analysis: Analysis) -> Iterator[Block]:
    """Yield the tables of a training step, then what was assumed; nothing for a model of inference.

    The statements say how far gradients are from PyTorch's, and what the optimizer's time is of.
    """
    step = analysis.training
    if step is None:
        return
    precisions = [(row.precision, seconds(row.step_s), row.step.between(seconds)) for row in step.precisions]
    every = (
        _phases(step),
        _against_inference(analysis, step),
        _memory(analysis, step),
        _costs(analysis, step),
        _table("Precision on the GPU", ("Precision", "Step", "90 % interval"), precisions, _MIXED),
        _scaling(step),
    )
    yield from (sheet for sheet in every if sheet.rows)
    error = step.gradient_note
    if step.gradient_error is not None:
        error = f"Gradients: relative error {step.gradient_error:.1e} ({step.gradient_note})."
    yield from texts(*step.assumed, error, step.optimizer_note, step.inference_note)


def _phases(step: TrainingResult) -> Table:
    whole = sum(phase.flops for phase in step.phases)
    rows = [
        (
            phase.name,
            count(phase.operators),
            flop_count(phase.flops),
            share(phase.flops / whole if whole else None),
            byte_count(phase.bytes_read + phase.bytes_written),
            marked(seconds(phase.cpu_s), phase.cpu_origin),
            marked(seconds(phase.gpu_s), phase.gpu_origin),
        )
        for phase in step.phases
    ]
    head = ("Phase", "Operators", "Work", "Share", "Bytes moved", "CPU", "GPU")
    # The phases alone: a terminal shows one screen.
    return _table("Phases of the step", head, rows, "Operators alone: copies are in no phase.", SCREEN)


def _against_inference(analysis: Analysis, step: TrainingResult) -> Table:
    """Inference and training, plan by plan."""
    head = ("Plan", "Inference", "90 % interval", "Training step", "90 % interval", "Step over inference")
    title, inference = "Inference and training", step.inference
    if inference is None:
        return _table(title, head, ())
    inferred = {plan.name: plan for plan in inference.plans}
    rows = [
        (
            PLAN_TITLES[plan.name],
            *_latency(inferred[plan.name]),
            *_latency(plan),
            factor(plan.latency_s / inferred[plan.name].latency_s if inferred[plan.name].latency_s else None),
        )
        for plan in analysis.plans
        if plan.name in inferred
    ]
    lead = (
        f"Inference: {inference.verdict.sentence} Training: {analysis.verdict.sentence} "
        f"Both at batch {inference.batch} and {inference.precision}; "
        f"inference is from {inference.file} of {inference.date[:10]}."
    )
    return _table(title, head, rows, lead)


def _latency(plan: PlanResult) -> tuple[str, str]:
    room = "" if plan.fits else " (does not fit)"
    return f"{seconds(plan.latency_s)} {sign(plan.origin)}{room}".rstrip(), plan.latency.between(seconds)


def _memory(analysis: Analysis, step: TrainingResult) -> Table:
    memory = step.memory
    rows = [
        ("weights", byte_count(memory.weights_bytes)),
        ("gradients", byte_count(memory.gradients_bytes)),
        (f"{step.optimizer} state", byte_count(memory.optimizer_state_bytes)),
        ("activations kept", byte_count(memory.activations_bytes)),
        ("other at the peak", byte_count(memory.other_bytes)),
        ("peak", byte_count(memory.peak_bytes)),
    ]
    lead = ""
    if step.largest_batch is not None and analysis.devices.gpu is not None:
        # Exact only where that very batch was analysed.
        about = "" if step.largest_batch_exact else "about "
        lead = f"The largest batch that fits {analysis.devices.gpu.name} is {about}{count(step.largest_batch)}."
    return _table("Memory of the step", ("Part", "Bytes"), rows, lead)


def _costs(analysis: Analysis, step: TrainingResult) -> Table:
    # What an epoch is, only the user knows: without --dataset-size there is none.
    epoch = step.dataset_size is not None
    head = ("Plan", "Step", "1,000 steps", "$ per 1,000 steps") + (("Epoch", "$ per epoch") if epoch else ())
    rows = [
        (
            PLAN_TITLES[cost.plan],
            marked(seconds(cost.step_s), cost.origin),
            marked(seconds(cost.thousand_steps_s), cost.origin),
            marked(dollars(cost.usd_per_thousand_steps), cost.usd_origin),
            *(
                (marked(_long(cost.epoch_s), cost.origin), marked(dollars(cost.usd_per_epoch), cost.usd_origin))
                if epoch
                else ()
            ),
        )
        for cost in step.costs
    ]
    note = f"An epoch is {count(step.dataset_size)} examples." if epoch else ""
    # The CPU's dollars may be of another machine than its times.
    lead = " ".join(filter(None, (note, priced_on(analysis))))
    return _table("What steps cost", head, rows, lead)


def _long(value: float | None) -> str:
    """Return a duration in minutes or hours where it takes that long."""
    # An epoch of hours in seconds is a number that nobody reads; below two minutes seconds are finer.
    if value is None or value < 120:
        return seconds(value)
    return f"{digits(value / 60)} min" if value < 7200 else f"{digits(value / 3600)} h"


def _scaling(step: TrainingResult) -> Table:
    scaling = step.scaling
    head = ("GPUs", "Step", "Interval", "Communication", "Examples per s", "Efficiency")
    if scaling is None:
        return _table("Several GPUs", head, ())
    rows = [
        (
            str(row.gpus),
            seconds(row.step_s),
            row.step.between(seconds),
            seconds(row.communication_s),
            digits(row.examples_per_s),
            share(row.efficiency),
        )
        for row in scaling.rows
    ]
    where = scaling.dominates_from
    last = (
        f"Communication takes half of the step or more from {where} GPUs on."
        if where is not None
        else f"Up to {scaling.rows[-1].gpus} GPUs communication takes less than half of the step."
    )
    return _table("Several GPUs", head, rows, " ".join((*scaling.assumptions, last)))


def _table(
    title: str, head: tuple[str, ...], rows: Iterable[tuple[str, ...]], lead: str = "", detail: int = WHOLE
) -> Table:
    """Return a table whose columns are figures but for the first."""
    figures = tuple(range(1, len(head)))
    return Table(title=title, head=head, rows=tuple(rows), figures=figures, lead=lead, detail=detail)
