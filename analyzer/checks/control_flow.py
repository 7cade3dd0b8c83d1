"""A1xx inside of If, Loop and Scan: what their bodies run on the CPU, on each pass."""

from __future__ import annotations

from collections.abc import Iterator

from analyzer.checks.phrases import operator_label, runs_nowhere
from analyzer.checks.registry import Diagnostic, Subject, rule
from analyzer.record.analysis import Analysis, BodyOperator, BodyResult
from analyzer.text import first_few, plural
from analyzer.units import byte_count

# GetCpuPreferredNodes (onnxruntime/core/framework/fallback_cpu_capability.cc): its own decision, nothing to
# mend.
_ON_PURPOSE = "shape-arithmetic"


@rule("A105", "body-on-the-cpu", "error")
def body_on_the_cpu(subject: Subject) -> Iterator[Diagnostic]:
    """An operator inside a loop or a branch has no CUDA kernel.

    What:
        ONNX Runtime places the body of an If, Loop or Scan as a graph of its own. The control-flow operator is
        the CUDA provider's, and an operator in its body without a CUDA kernel runs on the CPU.

    Why:
        The body runs again and again: each pass waits for the CPU and copies what the operator reads and
        writes. Copies inside the body are counted; what crosses from one pass to the next comes on top.

    Fix:
        Write the operator with others that have a CUDA kernel, take it out of the loop, or unroll the loop.

    Example:
        A decoder that is scripted as a Loop of 100 steps, with a Tan in its body: 100 times a copy to the CPU
        and one back.
    """
    analysis = subject.analysis
    if analysis.devices.gpu is None or runs_nowhere(analysis):
        return
    for body in analysis.bodies:
        forced = [operator for operator in body.on_cpu if operator.why != _ON_PURPOSE]
        # The operator that holds the body may well have a CUDA kernel: it is the body that waits.
        if forced:
            yield Diagnostic(
                operator=analysis.operators[body.operator],
                message=_message(analysis, body, forced),
                fix="use operators with a CUDA kernel there, or take "
                f"{'it' if len(forced) == 1 else 'them'} out of the body",
                bytes=_bytes(body),
            )


def _message(analysis: Analysis, body: BodyResult, forced: list[BodyOperator]) -> str:
    names = first_few([_operator_label(operator) for operator in forced])
    holder = operator_label(analysis.operators[body.operator])
    return (
        f"{plural(len(forced), 'operator')} of {body.operators} in {body.name} of {holder} "
        f"{'runs' if len(forced) == 1 else 'run'} on the CPU, {_passes_in_words(body)}: {names}"
        f"{_copies_in_words(body)}"
    )


def _operator_label(operator: BodyOperator) -> str:
    where = f" ({operator.source.file}:{operator.source.line})" if operator.source else ""
    return f"{operator.op_type} {operator.name!r}{where}"


def _passes_in_words(body: BodyResult) -> str:
    if body.passes is None:  # the trip count is computed, or the loop ends by a condition
        return "on each pass"
    return "once" if body.passes == 1 else f"on each of up to {body.passes} passes"


def _copies_in_words(body: BodyResult) -> str:
    if not body.copies:
        return ""
    known_sizes = [copy.bytes for copy in body.copies if copy.bytes is not None]
    # A sum of some would read as the sum of all.
    size = f", {byte_count(sum(known_sizes))}" if len(known_sizes) == len(body.copies) else ""
    return f"; each pass makes {plural(len(body.copies), 'copy')} between CPU and GPU inside it{size}"


def _bytes(body: BodyResult) -> int | None:
    """Bytes of the copies inside the body in one inference; None where a size or the passes are not known."""
    sizes = [copy.bytes for copy in body.copies]
    if body.passes is None or None in sizes:
        return None
    return body.passes * sum(size or 0 for size in sizes)
