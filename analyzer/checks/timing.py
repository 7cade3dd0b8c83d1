"""A2xx: where the GPU loses time, or loses altogether."""

from __future__ import annotations

import math
from collections.abc import Iterator

from analyzer.checks.device_answers import (
    by_source_line,
    bytes_moved,
    group_label,
    is_for_cpu,
    more_work,
    total,
)
from analyzer.checks.registry import Diagnostic, Subject, rule
from analyzer.operators import RECURRENT
from analyzer.record.analysis import Analysis, OperatorResult, PlanResult, VerdictResult
from analyzer.record.batch_ranges import at_batch, crossover_interval
from analyzer.record.outcome import WORTHWHILE, split_gain
from analyzer.text import first_few
from analyzer.units import factor, seconds, share

# Operators of one place are worth a line from this share of the CUDA session's latency on. Judgements: with
# less the list is longer than anyone reads.
LAUNCH_SHARE = 0.05
MOVE_SHARE = 0.01
_REPLAY = "replay them as a CUDA graph (`analyze apply --plan gpu --provider-option enable_cuda_graph`)"


@rule("A201", "slower-on-gpu", "warning")
def slower_on_gpu(subject: Subject) -> Iterator[Diagnostic]:
    """An operator is slower on the GPU than on the CPU, copies counted.

    What:
        ONNX Runtime's CUDA session runs this operator on the GPU, but the recommended split of the model
        has it on the CPU, copies counted. Where a split would gain 5 % or more and is not recommended,
        because it is not sure to, this is a note that says so; where it would gain less there is no finding.
        Operators that lose less than 1 % of the session's latency are not listed, nor those of a model that
        is for the CPU as a whole.

    Why:
        Little work, or work that does not spread over thousands of threads, ends sooner on the CPU than a
        kernel is launched. At the model's start or end it needs no extra copy either.

    Fix:
        `analyze apply` writes the split. Else run it before or after the session (as NumPy or PyTorch on the
        CPU), give one run more work (a larger batch), or leave it: the message says how much time it is.

    Example:
        Decoding labels with `ArgMax` over ten classes at batch 1: the CPU is done before the GPU begins.
    """
    plan = subject.analysis.plan("gpu")
    all_on_cpu = not any(op.placement == "gpu" for op in subject.analysis.operators)
    if plan is None or all_on_cpu or subject.analysis.verdict.device == "cpu":
        return  # A model for the CPU is A203's subject: one sentence, not one for each operator.
    recommended = subject.analysis.verdict.device == "hybrid"
    if not recommended and (split_gain(subject.analysis.plans) or 1.0) < WORTHWHILE:
        return  # Nobody is told to split for what no plan gains.
    whose, advice = "a split that is not recommended, as it may gain nothing,", ""
    if recommended:
        whose, advice = "the recommended split", "apply the split (analyze apply)"
    outside = "run it outside the CUDA session"
    fix = ", or ".join(filter(None, (advice, outside, more_work(subject.analysis))))
    for group in by_source_line(op for op in subject.analysis.operators if _moves_to_cpu(op)):
        gpu_s, cpu_s = total(_gpu_s(op) for op in group), total(op.cpu.time_s for op in group)
        lost = 0.0 if gpu_s is None or cpu_s is None else gpu_s - cpu_s
        if lost < MOVE_SHARE * plan.latency_s:
            continue
        certain = recommended and all(
            op.gpu is not None
            and op.gpu.low_s is not None
            and op.cpu.high_s is not None
            and op.gpu.low_s > op.cpu.high_s
            for op in group
        )
        verb, them = ("takes", "it") if len(group) == 1 else ("take", "them")
        yield Diagnostic(
            operator=group[0],
            message=f"{group_label(group)} {verb} {seconds(gpu_s)} on the GPU and {seconds(cpu_s)} "
            f"on the CPU; {whose} has {them} on the CPU, copies counted",
            fix=fix,
            seconds=lost,
            bytes=bytes_moved(group),
            severity=None if certain else "note",  # a tie by the intervals is worth knowing, and no warning
            certain=certain,
        )


@rule("A202", "launch-bound", "note")
def launch_bound(subject: Subject) -> Iterator[Diagnostic]:
    """Operators take no longer than their kernels take to launch.

    What:
        On the GPU the time of these operators is the fixed cost of a kernel launch; the work itself is
        hidden in it. Only places that take 5 % of the CUDA session's latency or more count; all of them are
        one finding, at the place that takes most. A model that is for the CPU at every batch that was looked
        at has none.

    Why:
        A launch costs microseconds whatever it launches, so a GPU that is ten times faster gains nothing
        here.

    Fix:
        Raise the batch (without one, the sizes of the inputs), fuse operators, or replay the launches as one
        with a CUDA graph (`analyze apply --provider-option enable_cuda_graph`: static shapes, no operator on
        the CPU).

    Example:
        A three-layer perceptron at batch 1: five kernels, each some microseconds of launch for a
        microsecond of work.
    """
    plan = _plan_of_use(subject.analysis)
    if plan is None:
        return
    bound = [op for op in subject.analysis.operators if op.gpu and op.gpu.bound == "overhead" and _on_gpu(op)]
    timed = [(total(_gpu_s(op) for op in group), group) for group in by_source_line(bound)]
    places = [(time, group) for time, group in timed if time and time >= LAUNCH_SHARE * plan.latency_s]
    if not places:
        return
    # One finding, as one thing mends them all.
    places.sort(key=lambda place: -place[0])
    every = [op for _, group in places for op in group]
    time = math.fsum(time for time, _ in places)
    if len(places) == 1:
        subject_text, most = f"{group_label(every)} {'is' if len(every) == 1 else 'are'}", ""
    else:
        subject_text = f"{len(every)} operators of {len(places)} lines are"
        named = first_few([f"{group_label(group)} ({seconds(time)})" for time, group in places])
        most = f"; most of it: {named}"
    yield Diagnostic(
        operator=places[0][1][0],
        message=f"{subject_text} launch-bound: {seconds(time)}, {share(time / plan.latency_s)} of the CUDA "
        f"session's {seconds(plan.latency_s)}{most}",
        fix=f"{f'{more}, ' if (more := more_work(subject.analysis)) else ''}fuse operators"
        + (f", or {_REPLAY}" if _replayable(subject.analysis) else ""),
        seconds=time,
        bytes=bytes_moved(every),
    )


@rule("A203", "faster-on-cpu", "warning")
def faster_on_cpu(subject: Subject) -> Iterator[Diagnostic]:
    """The whole model is faster on the CPU at this batch.

    What:
        Host to host, copies of inputs and outputs counted, the CPU's latency is below that of the CUDA
        session. Where the interval of the speed-up holds 1, neither is sure to be faster: that is a note. So
        it is where another plan is recommended, a split of both, or the GPU for its price, its energy or a
        limit: the finding names it. A CPU without room for the model has none.

    Why:
        The GPU is paid for and waits. From some batch on it may win: the finding names that batch where it
        is known.

    Fix:
        Run the plan that is recommended: serve this batch on the CPU, or gather requests up to the batch that
        the finding names.

    Example:
        A 1024-512-10 perceptron at batch 1 is done on the CPU before its input has reached the GPU.
    """
    verdict, cpu, gpu = subject.analysis.verdict, subject.analysis.plan("cpu"), subject.analysis.plan("gpu")
    if cpu is None or gpu is None or verdict.speedup is None or verdict.speedup >= 1 or not cpu.fits:
        return
    # `speedup` is CPU time over GPU time: below 1 the CPU wins.
    certain = verdict.high is not None and verdict.high < 1
    batch = at_batch(subject.analysis)
    faster, doubt = "is faster", ""
    if not certain:
        faster = "may be faster"
        doubt = f", the GPU between {factor(verdict.low)} and {factor(verdict.high)} as fast"
    other = _another_is_recommended(subject.analysis)
    fix = "run it on the CPU" if certain else "take the device that costs less"
    yield Diagnostic(
        message=f"the model {faster} on the CPU{batch}: {seconds(cpu.latency_s)} there, "
        f"{seconds(gpu.latency_s)} on the GPU{doubt}{f'; {other[0]}' if other else ''}",
        fix=other[1] if other else f"{fix}{_or_larger_batches(verdict)}",
        severity=None if certain and not other else "note",
        seconds=gpu.latency_s - cpu.latency_s,
        bytes=gpu.transfers.bytes,
        certain=certain,
    )


def _plan_of_use(analysis: Analysis) -> PlanResult | None:
    """Return the CUDA session's plan; None without one, and of a model for the CPU at every batch looked at."""
    wins_somewhere = any(part.device == "gpu" for part in analysis.verdict.ranges)
    return analysis.plan("gpu") if wins_somewhere or not is_for_cpu(analysis) else None


def _replayable(analysis: Analysis) -> bool:
    """Return whether a CUDA graph can hold the session: fixed sizes, nothing on the CPU, no loop, no state."""
    model = analysis.model
    if analysis.bodies or model.training or model.state or not model.can_be_applied:
        return False
    open_sizes = any(out.shape is None or None in out.shape for op in analysis.operators for out in op.outputs)
    if open_sizes or any(op.op_type in RECURRENT for op in analysis.operators):
        return False
    return all(_on_gpu(op) or (op.gpu and op.gpu.why == "folded") for op in analysis.operators)


def _on_gpu(operator: OperatorResult) -> bool:
    return operator.gpu is not None and operator.gpu.placed_on == "cuda" and operator.gpu.why != "folded"


def _gpu_s(operator: OperatorResult) -> float | None:
    return None if operator.gpu is None else operator.gpu.time_s


def _another_is_recommended(analysis: Analysis) -> tuple[str, str] | None:
    """Return the plan recommended in spite of the CPU's time, and the advice; None where nothing else is."""
    device, split = analysis.verdict.device, analysis.plan("hybrid")
    if device == "hybrid" and split is not None:
        message = f"recommended is a split of both, {seconds(split.latency_s)}"
        return message, "apply the split (analyze apply)"
    if device == "gpu":
        return f"recommended is the GPU, decided for {analysis.verdict.objective}", "none is needed"
    return None


def _or_larger_batches(verdict: VerdictResult) -> str:
    """Return from which batch on the GPU wins, or may where none is certain; empty where none does."""
    result = crossover_interval(verdict.ranges)
    if result is None:  # none does, or a record that kept no ranges
        batch, wins = verdict.crossover_batch, "wins"
    else:
        sure = result[1]
        batch, wins = (sure, "wins") if sure is not None else (verdict.crossover_batch, "may win")
    return f", or use batches from {batch} on, where the GPU {wins}" if batch is not None else ""


def _moves_to_cpu(operator: OperatorResult) -> bool:
    """Return whether the best plan takes it from the GPU and its time there is really longer."""
    gpu_s, cpu_s = _gpu_s(operator), operator.cpu.time_s
    known = gpu_s is not None and cpu_s is not None and gpu_s > cpu_s
    return known and _on_gpu(operator) and operator.placement == "cpu"
