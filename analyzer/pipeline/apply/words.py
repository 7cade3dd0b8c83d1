"""What the terminal says of an applied plan."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from analyzer.pipeline.apply.result import Applied
from analyzer.text import plural
from analyzer.units import seconds

_WORDS = {True: "verified", False: "NOT as planned", None: "not verified"}


def summary(applied: Applied) -> Iterator[str]:
    """The lines, without the folder's name."""
    devices = Counter(applied.nodes.values())
    where = ", ".join(
        f"{count:,} on the {'GPU' if device == 'CUDA' else device}" for device, count in sorted(devices.items())
    )
    batch = f" at batch {applied.batch}" if applied.batch is not None else ""
    yield (
        f"Plan {applied.plan}{batch}, opset {applied.opset}: {plural(len(applied.nodes), 'node')} ({where}), "
        f"{plural(applied.copies, 'copy')} inside the graph, {plural(applied.annotated, 'annotation')}."
    )
    yield (
        f"Latency {seconds(applied.latency_s)} ({seconds(applied.low_s)} to {seconds(applied.high_s)}), "
        f"predicted for {applied.where}."
    )
    verified = applied.verified
    for name, value in (
        ("numbers", verified.numbers),
        ("placement", verified.placement),
        ("time", verified.time),
    ):
        reason = verified.reasons.get(name, "")
        detail = reason or _detail(name, applied)
        yield f"{name}: {_WORDS[value]}{'. ' if detail else ''}{detail}"
    for cost in sorted(applied.opsets, key=lambda cost: cost.opset):
        chosen = " (chosen)" if cost is applied.opsets[0] else ""
        figure = "not to be had" if cost.latency_s is None else seconds(cost.latency_s)
        yield f"opset {cost.opset}{chosen}: {figure}{'. ' if cost.why else ''}{cost.why}"
    yield from _releases(applied)
    for note in applied.notes:
        yield f"note: {note}"


def _releases(applied: Applied) -> Iterator[str]:
    """Releases that place the model otherwise at the chosen opset than the one that the session is for."""
    rows = [row for row in applied.by_release if row.opset == applied.opset]
    own = next((row for row in rows if row.release == applied.onnxruntime), None)
    for row in rows:
        if own is not None and (row.without_kernel, row.copies, row.fails) != (
            own.without_kernel,
            own.copies,
            own.fails,
        ):
            lost = (
                f"{plural(row.without_kernel, 'operator')} without a CUDA kernel, {plural(row.copies, 'copy')}"
            )
            yield f"ONNX Runtime {row.release}: {row.fails or lost}"


def _detail(name: str, applied: Applied) -> str:
    if name == "numbers" and applied.differences:
        worst = max(applied.differences, key=lambda row: row["max_abs_error"] or 0.0)
        if not worst["max_abs_error"]:
            return "Bit for bit the unannotated model's on the CPU."
        gap = f"{worst['max_abs_error']:.2g}"
        return f"{worst['output']} is off by {gap} at most from the unannotated model's on the CPU."
    if name == "time" and applied.measured_s is not None:
        return f"{seconds(applied.measured_s)} measured."
    return ""
