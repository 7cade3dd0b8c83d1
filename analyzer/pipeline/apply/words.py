"""What the terminal says of an applied plan."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from analyzer.measurement.output_agreement import LEAST_SQNR_DB
from analyzer.pipeline.apply.result import Applied, AppliedFix
from analyzer.text import first_few, plural
from analyzer.units import seconds

_WORDS = {True: "verified", False: "NOT as planned", None: "not verified"}


def summary(applied: Applied) -> Iterator[str]:
    """The lines, without the folder's name."""
    devices = Counter(applied.nodes.values())
    where = ", ".join(
        f"{count:,} on the {'GPU' if device == 'CUDA' else device}" for device, count in sorted(devices.items())
    )
    nodes = plural(len(applied.nodes), "node") + (f" ({where})" if where else "")
    batch = f" at batch {applied.batch}" if applied.batch is not None else ""
    yield (
        f"Plan {applied.plan}{batch}, opset {applied.opset}: {nodes}, "
        f"{plural(applied.copies, 'copy')} inside the graph, {plural(applied.annotated, 'annotation')}."
    )
    for fix in applied.fixes:
        yield from _fix(fix)
    took = applied.latency
    yield (
        f"Latency {seconds(took.value)} ({seconds(took.low)} to {seconds(took.high)}), "
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
        figure = "not to be had" if cost.latency is None else seconds(cost.latency.value)
        yield f"opset {cost.opset}{chosen}: {figure}{'. ' if cost.why else ''}{cost.why}"
    yield from _releases(applied)
    for note in applied.notes:
        yield f"note: {note}"


def _fix(fix: AppliedFix) -> Iterator[str]:
    yield (
        f"fix {fix.name}: {fix.what} {seconds(fix.latency_after_s)} predicted "
        f"({seconds(fix.low_after_s)} to {seconds(fix.high_after_s)}) where it was "
        f"{seconds(fix.latency_before_s)}; {_closeness(fix)}"
    )
    for why in dict.fromkeys(row["why"] for row in fix.blocked):
        names = [f"{row['name']} ({row['op_type']})" for row in fix.blocked if row["why"] == why]
        yield f"fix {fix.name}: in float32 stay {first_few(names)}: {why}."


def _closeness(fix: AppliedFix) -> str:
    """How near the outputs are to the original's."""
    rows = fix.numbers.get("outputs", ())
    noisy = [row["sqnr_db"] for row in rows if row.get("sqnr_db") is not None]
    if noisy:
        return f"outputs {min(noisy):.1f} dB above their noise, {LEAST_SQNR_DB:g} dB are needed."
    worst = max((row["max_rel_error"] or 0.0 for row in rows), default=0.0)
    if not worst:
        return "outputs bit for bit the original's on the CPU."
    return f"outputs within {worst:.1e} of the original's largest on the CPU."


def _releases(applied: Applied) -> Iterator[str]:
    """Releases that place the model otherwise at the chosen opset than the one that the session is for."""
    rows = [row for row in applied.releases if row.opset == applied.opset]
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
        plain = "original model" if applied.fixes else "unannotated model"
        worst = max(applied.differences, key=lambda row: row["max_abs_error"] or 0.0)
        if not worst["max_abs_error"]:
            return f"Bit for bit the {plain}'s on the CPU."
        gap = f"{worst['max_abs_error']:.2g}"
        return f"{worst['output']} is off by {gap} at most from the {plain}'s on the CPU."
    if name == "time" and applied.measured_s is not None:
        return f"{seconds(applied.measured_s)} measured."
    return ""
