"""A61x: rises above the baseline."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from analyzer.checks.operator_matching import match
from analyzer.checks.phrases import PLANS, bytes_moved, operator_label, target_plan, time_in_plan
from analyzer.checks.placement import COPIES, copies_inside
from analyzer.checks.registry import Diagnostic, Subject, rule
from analyzer.record.analysis import OperatorResult
from analyzer.text import first_few
from analyzer.units import byte_count, flop_count, seconds


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
    name = target_plan(subject.analysis)
    before = subject.baseline.plan(name) if subject.baseline is not None else None
    after = subject.analysis.plan(name)
    if before is not None and after is not None:
        # Equal devices and equal model of them: the error of a prediction is a factor that both share.
        certain = {before.origin, after.origin} == {"predicted"} or after.low_s > before.high_s
        figures, what = (before.latency_s, after.latency_s), f"the latency of the {PLANS[name]}"
        yield from _risen(subject, what, figures, seconds, lambda op: time_in_plan(op, name), certain=certain)


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
    if subject.baseline is not None:
        before, after = subject.baseline.totals, subject.analysis.totals
        figures = (before.bytes_read + before.bytes_written, after.bytes_read + after.bytes_written)
        yield from _risen(subject, "the bytes moved", figures, byte_count, lambda op: bytes_moved([op]))


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
    if subject.baseline is not None:
        figures = (subject.baseline.totals.flops, subject.analysis.totals.flops)
        yield from _risen(subject, "the FLOPs", figures, flop_count, lambda op: op.flops)


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
        known = {transfer.tensor for transfer in before}
        names = first_few(
            f"{transfer.tensor} {COPIES[transfer.direction]}"
            for transfer in after
            if transfer.tensor not in known
        )
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
    what: str,
    figures: tuple[float, float],
    words: Callable[[float], str],
    of_operator: Callable[[OperatorResult], float | None],
    *,
    certain: bool = True,
) -> Iterator[Diagnostic]:
    """Yield the rise of a figure above the baseline's, with the operators that rose most."""
    before, after = figures
    if subject.baseline is None or not _is_above(before, after, subject):
        return
    matched = match(subject.baseline, subject.analysis)
    rises = [((of_operator(now) or 0) - (of_operator(old) or 0), now) for old, now in matched.pairs]
    # A new operator rose from nothing.
    rises += [(of_operator(now) or 0, now) for now in matched.new]
    rising = sorted((-rise, operator.index) for rise, operator in rises if rise > 0)
    most = [subject.analysis.operators[index] for _, index in rising]
    names = f"; most by {first_few(map(operator_label, most))}" if most else ""
    yield Diagnostic(
        operator=next(iter(most), None),
        message=f"{what} rose from {words(before)} to {words(after)}{names}",
        fix="undo it, or write the baseline anew with --update-baseline if it is meant",
        seconds=after - before if words is seconds else None,
        bytes=int(after - before) if words is byte_count else None,
        certain=certain,
    )
