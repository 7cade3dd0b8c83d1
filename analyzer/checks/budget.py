"""A6xx: budgets of ``[tool.analyzer.check]``, ``--slo``, and rises above the baseline."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from analyzer.checks.device_answers import DeviceAnswer, device_answers
from analyzer.checks.operator_matching import match
from analyzer.checks.phrases import (
    beyond,
    bytes_moved,
    forced_operators,
    operator_label,
    operators,
    target_plan,
    total,
)
from analyzer.checks.placement import COPIES, copies_inside
from analyzer.checks.registry import Diagnostic, Subject, rule
from analyzer.errors import UsageError
from analyzer.record.analysis import Analysis, OperatorResult, PlanResult
from analyzer.text import first_few, plural
from analyzer.units import byte_count, flop_count, seconds

_NAMES = {"cpu": "CPU plan", "gpu": "CUDA session", "hybrid": "best plan"}


@rule("A601", "over-latency-budget", "error")
def over_latency(subject: Subject) -> Iterator[Diagnostic]:
    """The latency is above `max-latency`.

    What:
        The plan's latency, host to host, is above the budget, on any of the GPUs that were named. Where only
        its 90 % interval reaches above the budget, the finding is a warning: the prediction cannot tell. A
        plan that a device has no room for keeps no budget.

    Why:
        You set this limit. One that only people watch is passed a small change at a time.

    Fix:
        The other findings name what costs time. Otherwise a smaller batch, a faster device, or another
        budget.

    Example:
        [tool.analyzer.check]
        max-latency = "20ms"                 # the plan of the target device
        max-latency = { gpu = "20ms", cpu = "200ms" }
    """
    analysis = subject.analysis
    own, *others = device_answers(analysis)
    for name, limit in subject.settings.max_latency_s.items():
        wanted = name or target_plan(analysis)
        plan = own.plan(wanted)
        if plan is None:
            # A budget for a plan that is not there would pass for ever.
            raise UsageError(
                f"max-latency.{name}: this analysis has no plan {name!r}",
                hint=f"it has {', '.join(other.name for other in analysis.plans)}; choose a GPU with --gpu",
            )
        budget = (f"max-latency {seconds(limit)}", limit)
        yield from _late(own, plan, budget, _slowest(analysis, plan.name))
        # The CPU's plan is the same beside every GPU.
        for answer in others if wanted != "cpu" else ():
            if (further := answer.plan(wanted)) is not None:
                yield from _late(answer, further, budget)


def _slowest(analysis: Analysis, plan: str) -> OperatorResult | None:
    return max(analysis.operators, key=lambda op: _time_in_plan(op, plan) or 0.0, default=None)


def _late(
    answer: DeviceAnswer, plan: PlanResult, budget: tuple[str, float], slowest: OperatorResult | None = None
) -> Iterator[Diagnostic]:
    """What a plan that is above a budget is told; nothing where its whole interval is below."""
    name, limit = budget
    keeps = answer.keeps(plan, limit)
    if keeps == "yes":
        return
    what = f"the {_NAMES[plan.name]}{_place(answer, plan)}"
    interval = f"{seconds(plan.latency_s)} ({seconds(plan.low_s)} to {seconds(plan.high_s)}, {plan.origin})"
    if plan.fits:
        verb = beyond("above", certain=keeps == "no", expected=plan.latency_s > limit)
        message = f"the latency of {what} {verb} {name}: {interval}"
        message += f"; {operator_label(slowest)} takes longest" if slowest is not None else ""
    else:
        message = f"{what} does not keep {name}: {answer.holder(plan)} has no room for it"
    yield Diagnostic(
        operator=slowest,
        message=message,
        fix=f"see the other findings; or use a smaller batch, a faster device (--gpu) or a higher "
        f"{name.split(' ')[0]}",
        seconds=plan.latency_s - limit if plan.fits and plan.latency_s > limit else None,
        # By the whole interval: the middle alone would fail a build that a measurement passes.
        certain=keeps == "no",
        device=answer.slug,
    )


def _place(answer: DeviceAnswer, plan: PlanResult) -> str:
    """On which GPU; nothing of the CPU's plan where no GPU was asked about, which is the same beside all."""
    if answer.gpu is None:
        return ""
    return f" beside {answer.gpu.name}" if plan.name == "cpu" else f" on {answer.gpu.name}"


@rule("A607", "over-slo", "error")
def over_slo(subject: Subject) -> Iterator[Diagnostic]:
    """The latency is above `--slo`.

    What:
        The plan that the verdict is for, host to host, takes longer than the latency that `--slo` says must
        be met; so for each GPU that was named. Where only its 90 % interval reaches above the limit, the
        finding is a warning: the prediction cannot tell. A plan that a device has no room for meets no
        limit.

    Why:
        You set this limit: a request that takes longer is late however cheap the machine is.

    Fix:
        The other findings name what costs time. Otherwise a smaller batch, a faster device, a narrower type
        (`--precision fp16`), or another limit.

    Example:
        `analyze check model.py --gpu l4,t4 --slo 20ms`, where the T4 takes 31 ms.
    """
    limit = subject.analysis.verdict.slo_s
    if limit is None:
        return
    for answer in device_answers(subject.analysis):
        plan = answer.decided
        if plan is not None:
            slowest = _slowest(subject.analysis, plan.name) if answer.first else None
            yield from _late(answer, plan, (f"--slo {seconds(limit)}", limit), slowest)


@rule("A602", "over-cpu-operator-budget", "error")
def over_cpu_operators(subject: Subject) -> Iterator[Diagnostic]:
    """More operators are forced to the CPU than `max-cpu-operators`.

    What:
        Counts the operators that ONNX Runtime's CUDA session has to run on the CPU (A101). Shape
        arithmetic, which it keeps there on purpose, does not count; operators that `ignore` sets aside do.

    Why:
        You set this limit. With `ignore = ["A101"]` it is the way to allow what is there and no more.

    Fix:
        See A101 for each operator, or raise the budget.

    Example:
        [tool.analyzer.check]
        max-cpu-operators = 2
    """
    limit = subject.settings.max_cpu_operators
    forced = forced_operators(subject.analysis)
    if limit is not None and len(forced) > limit:
        yield Diagnostic(
            operator=forced[0],
            message=f"{operators(len(forced), 'CPU')} where max-cpu-operators allows {limit}: "
            f"{first_few([operator_label(op) for op in forced])}",
            fix="bring them to the GPU (see A101), or raise max-cpu-operators",
            seconds=total(op.cpu.time_s for op in forced),
            bytes=bytes_moved(forced),
        )


@rule("A603", "over-copy-budget", "error")
def over_copies(subject: Subject) -> Iterator[Diagnostic]:
    """There are more copies inside the graph than `max-copies`.

    What:
        Counts every copy between CPU and GPU that ONNX Runtime inserts inside the graph, also those of
        shape values (A103). Copies of the model's inputs and outputs do not count.

    Why:
        You set this limit. One that only people watch is passed a small change at a time.

    Fix:
        See A102, or raise the budget.

    Example:
        [tool.analyzer.check]
        max-copies = 0
    """
    limit, items = subject.settings.max_copies, copies_inside(subject.analysis)
    if limit is not None and len(items) > limit:
        yield Diagnostic(
            message=f"{plural(len(items), 'copy')} inside the graph where max-copies allows {limit}: "
            f"{first_few([f'{transfer.tensor} {COPIES[transfer.direction]}' for transfer in items])}",
            fix="bring the CPU's operators to the GPU (see A102), or raise max-copies",
            seconds=sum(transfer.time_s for transfer in items),
            bytes=sum(transfer.bytes for transfer in items),
        )


@rule("A611", "slower-than-baseline", "error")
def slower(subject: Subject) -> Iterator[Diagnostic]:
    """The latency rose above the baseline's.

    What:
        The target device's plan takes longer than in the baseline, by more than `tolerance`. Two
        predictions for the same devices share their error, so any such rise is certain; a measured one is
        certain where the two intervals are apart.

    Why:
        A change of the model made every inference slower.

    Fix:
        The message names the operators that rose most. If the rise is meant: `analyze check ...
        --update-baseline`.

    Example:
        [tool.analyzer.check]
        baseline = "analyzer-baseline.json"
        tolerance = "2%"
    """
    base, name = subject.baseline, target_plan(subject.analysis)
    before = base.plan(name) if base is not None else None
    after = subject.analysis.plan(name)
    if before is None or after is None or not _is_above(before.latency_s, after.latency_s, subject):
        return
    # Equal devices and equal model of them: the error of a prediction is a factor that both share.
    certain = {before.origin, after.origin} == {"predicted"} or after.low_s > before.high_s
    yield _risen(
        subject,
        f"the latency of the {_NAMES[name]} rose from {seconds(before.latency_s)} "
        f"to {seconds(after.latency_s)}",
        lambda op: _time_in_plan(op, name),
        time=after.latency_s - before.latency_s,
        certain=certain,
    )


@rule("A612", "more-bytes-than-baseline", "error")
def more_bytes(subject: Subject) -> Iterator[Diagnostic]:
    """The model moves more bytes than the baseline.

    What:
        The bytes that all operators read and write rose by more than `tolerance`. They follow from shapes
        and types alone, so the rise is exact.

    Why:
        Most operators are memory-bound: more bytes are more time on every device.

    Fix:
        The message names the operators that rose most. If the rise is meant: `analyze check ...
        --update-baseline`.

    Example:
        A `.contiguous()`, a lost fusion, or a float32 constant that widens a float16 chain.
    """
    base, now = subject.baseline, subject.analysis.totals
    if base is None:
        return
    before, after = base.totals.bytes_read + base.totals.bytes_written, now.bytes_read + now.bytes_written
    if _is_above(before, after, subject):
        text = f"the bytes moved rose from {byte_count(before)} to {byte_count(after)}"
        yield _risen(subject, text, lambda op: bytes_moved([op]), nbytes=after - before)


@rule("A613", "more-flops-than-baseline", "error")
def more_flops(subject: Subject) -> Iterator[Diagnostic]:
    """The model computes more than the baseline.

    What:
        The FLOPs of all operators rose by more than `tolerance`. They follow from shapes alone, so the rise
        is exact.

    Why:
        More work for the same answer, unless the model grew on purpose.

    Fix:
        The message names the operators that rose most. If the rise is meant: `analyze check ...
        --update-baseline`.

    Example:
        A hidden size of 3072 that became 4096.
    """
    base, after = subject.baseline, subject.analysis.totals.flops
    if base is not None and _is_above(base.totals.flops, after, subject):
        text = f"the FLOPs rose from {flop_count(base.totals.flops)} to {flop_count(after)}"
        yield _risen(subject, text, lambda op: op.flops)


@rule("A614", "more-copies-than-baseline", "error")
def more_copies(subject: Subject) -> Iterator[Diagnostic]:
    """There are more copies inside the graph than in the baseline.

    What:
        ONNX Runtime inserts more copies between CPU and GPU inside the graph than for the baseline, or
        copies more bytes. `tolerance` applies to the bytes.

    Why:
        A changed operator or opset lost its CUDA kernel.

    Fix:
        See A101 and A102. If the rise is meant: `analyze check ... --update-baseline`.

    Example:
        The exporter's new default opset takes MaxPool's CUDA kernel away: no copy became two.
    """
    if subject.baseline is None:
        return
    before, after = copies_inside(subject.baseline), copies_inside(subject.analysis)
    old, new = sum(transfer.bytes for transfer in before), sum(transfer.bytes for transfer in after)
    if len(after) > len(before) or _is_above(old, new, subject):
        # By name, which an exporter may change: it serves the message alone, the count decides.
        added = [transfer for transfer in after if transfer.tensor not in {other.tensor for other in before}]
        names = first_few(f"{transfer.tensor} {COPIES[transfer.direction]}" for transfer in added)
        yield Diagnostic(
            message=f"copies inside the graph rose from {len(before)} ({byte_count(old)}) to {len(after)} "
            f"({byte_count(new)})" + (f": {names}" if names else ""),
            fix="see A101 and A102; if it is meant, write the baseline anew with --update-baseline",
            seconds=sum(transfer.time_s for transfer in after) - sum(transfer.time_s for transfer in before),
            bytes=new - old,
        )


def _is_above(before: float, after: float, subject: Subject) -> bool:
    # A part in a million guards against the last digit of a sum of floats, which another order of summing
    # changes.
    return after > before * (1 + max(subject.settings.tolerance, 1e-6))


def _risen(
    subject: Subject,
    text: str,
    figure: Callable[[OperatorResult], float | None],
    *,
    time: float | None = None,
    nbytes: int | None = None,
    certain: bool = True,
) -> Diagnostic:
    """A rise of the model, with the operators that rose most."""
    most = _risers(subject, figure)
    names = f"; most by {first_few([operator_label(op) for op in most])}" if most else ""
    return Diagnostic(
        operator=most[0] if most else None,
        message=text + names,
        fix="undo it, or write the baseline anew with --update-baseline if it is meant",
        seconds=time,
        bytes=nbytes,
        certain=certain,
    )


def _risers(subject: Subject, figure: Callable[[OperatorResult], float | None]) -> list[OperatorResult]:
    if subject.baseline is None:
        return []
    matched = match(subject.baseline, subject.analysis)
    rises = [((figure(now) or 0) - (figure(old) or 0), now) for old, now in matched.pairs]
    # A new operator rose from nothing.
    rises += [(figure(now) or 0, now) for now in matched.new]
    rising = sorted((pair for pair in rises if pair[0] > 0), key=lambda pair: (-pair[0], pair[1].index))
    return [operator for _, operator in rising]


def _time_in_plan(operator: OperatorResult, plan: str) -> float | None:
    if plan == "gpu":
        return None if operator.gpu is None else operator.gpu.time_s
    if plan == "hybrid" and operator.placement == "gpu" and operator.gpu is not None:
        return operator.gpu.time_s
    return operator.cpu.time_s
