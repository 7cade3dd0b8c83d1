"""Two or more analyses side by side: what flipped, what got slower, what is new and what is gone.

``compare`` makes a value from analyses; ``render_text``, ``render_markdown`` and ``to_json`` write it down.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

from analyzer.checks.operator_matching import Match
from analyzer.checks.phrases import operator_label, source_location
from analyzer.errors import UsageError
from analyzer.record.analysis import Analysis, Finding, OperatorResult
from analyzer.report.compare import figures
from analyzer.report.compare.alignment import align
from analyzer.report.compare.comparison import (
    Comparison,
    Difference,
    FindingEntry,
    OperatorChange,
    OperatorEntry,
)
from analyzer.report.compare.graph_joining import join
from analyzer.report.compare.sides import NOISE, ComparedSide, flips
from analyzer.report.escaping import ascii_json
from analyzer.text import nearest


def compare(records: Sequence[tuple[str, Analysis]]) -> Comparison:
    """Put records side by side; the first is the base.

    Args:
        records: Label and analysis of each, at least two.

    Raises:
        UsageError: There are fewer than two.
    """
    if len(records) < 2:
        raise UsageError("compare needs at least two records", hint="analyze compare BASE.json NEW.json")
    analyses = [analysis for _, analysis in records]
    return Comparison(
        labels=tuple(label for label, _ in records),
        facts=figures.facts(analyses),
        figures=figures.figures(analyses),
        differences=tuple(_difference(label, analyses[0], other) for label, other in records[1:]),
        notes=figures.notes(analyses),
        environment=figures.environment(analyses),
        analyses=tuple(analyses),
    )


# --- operator by operator -------------------------------------------------------------------------------


def _difference(label: str, base: Analysis, new: Analysis) -> Difference:
    aligned = align(base, new)
    matched = aligned.match
    before, after = ComparedSide.pair(base, new)
    changes = [_change(old, now, before, after) for old, now in matched.pairs]
    flipped = [change for change in changes if change.device is not None or change.placed_on is not None]
    slower = [change for change in changes if change.rise_s > NOISE * (change.base_s or 0.0)]
    faster = [change for change in changes if -change.rise_s > NOISE * (change.base_s or 0.0)]
    added, gone = _finding_changes(base, new, matched)
    graph = join(before, after, aligned)
    return Difference(
        label=label,
        matched=len(matched.pairs),
        flipped=tuple(sorted(flipped, key=lambda change: (-abs(change.rise_s), change.new))),
        slower=tuple(sorted(slower, key=lambda change: (-change.rise_s, change.new))),
        faster=tuple(sorted(faster, key=lambda change: (change.rise_s, change.new))),
        gone=tuple(_entry(op, before) for op in matched.gone),
        new=tuple(_entry(op, after) for op in matched.new),
        findings_new=added,
        findings_gone=gone,
        per_inference=before.per != 1 or after.per != 1,
        modules=graph.module_changes,
        fusions_new=tuple(one for one in graph.fusion_changes if one.state == "new"),
        fusions_gone=tuple(one for one in graph.fusion_changes if one.state == "gone"),
        graph=graph,
    )


def _change(old: OperatorResult, now: OperatorResult, base: ComparedSide, new: ComparedSide) -> OperatorChange:
    device, placed_on = flips(base, old, new, now)
    before, after = base.interval(old), new.interval(now)
    apart = before is not None and after is not None and (before[1] < after[0] or after[1] < before[0])
    return OperatorChange(
        name=operator_label(now),
        where=source_location(now),
        base=old.index,
        new=now.index,
        device=device,
        placed_on=placed_on,
        base_s=base.time(old),
        new_s=new.time(now),
        certain=apart,
    )


def _entry(operator: OperatorResult, side: ComparedSide) -> OperatorEntry:
    return OperatorEntry(
        name=operator_label(operator),
        where=source_location(operator),
        index=operator.index,
        time_s=side.time(operator),
    )


def _finding_changes(
    base: Analysis, new: Analysis, matched: Match
) -> tuple[tuple[FindingEntry, ...], tuple[FindingEntry, ...]]:
    """Findings that came and that went: the same code about the same operator is the same finding."""
    became = {old.index: now.index for old, now in matched.pairs}

    def key(finding: Finding, renumber: bool) -> tuple[str, int | None]:
        if finding.operator is None or not renumber:
            return finding.code, finding.operator
        # A negative index matches nothing: an operator that is gone takes its findings along.
        return finding.code, became.get(finding.operator, -1 - finding.operator)

    before = {key(finding, True) for finding in base.findings}
    after = {key(finding, False) for finding in new.findings}
    return (
        tuple(_finding_entry(finding) for finding in new.findings if key(finding, False) not in before),
        tuple(_finding_entry(finding) for finding in base.findings if key(finding, True) not in after),
    )


def _finding_entry(finding: Finding) -> FindingEntry:
    return FindingEntry(code=finding.code, severity=finding.severity, message=finding.message)


# --- what a gate can fail on ----------------------------------------------------------------------------

# Each condition and the key of the figure that must not rise; an option's values are the contract.
_RISES = {
    "cpu-latency": "plans.cpu.latency_s",
    "gpu-latency": "plans.gpu.latency_s",
    "latency": "plans.hybrid.latency_s",
    "flops": "totals.flops",
    "bytes": "totals.bytes",
    "memory": "totals.peak_memory_bytes",
    "copies": "copies",
    "operators": "totals.operators",
}
CONDITIONS = (*_RISES, "flipped", "findings", "verdict", "any")


def failures(comparison: Comparison, conditions: Sequence[str], *, tolerance: float = 0.0) -> tuple[str, ...]:
    """Why ``--fail-on`` fails, one sentence for each reason; empty where it does not.

    Args:
        comparison: What to judge.
        conditions: Of ``CONDITIONS``; ``any`` is all of them.
        tolerance: Share by which a figure may rise above the base's.

    Raises:
        UsageError: A condition that does not exist.
    """
    for condition in conditions:
        if condition not in CONDITIONS:
            meant = nearest(condition, CONDITIONS)
            hint = f"did you mean `{meant}`?" if meant else f"one of {', '.join(CONDITIONS)}"
            raise UsageError(f"--fail-on: there is no condition {condition!r}", hint=hint)
    chosen = CONDITIONS if "any" in conditions else tuple(conditions)
    reasons = [text for condition in chosen for text in _risen(comparison, condition, tolerance)]
    for difference in comparison.differences:
        if "flipped" in chosen and difference.flipped:
            reasons.append(f"{difference.label}: {len(difference.flipped)} operators flipped device")
        # As ``check`` fails by default: a warning is to be looked at, not to stop a merge.
        if "findings" in chosen and any(entry.severity == "error" for entry in difference.findings_new):
            reasons.append(f"{difference.label}: new findings of severity error")
    # The verdict's device alone: its sentence holds figures, which differ between any two runs.
    verdict = next(fact for fact in comparison.facts if fact.key == "verdict.device")
    if "verdict" in chosen and verdict.differs:
        reasons.append(f"the verdict changed: {' -> '.join(verdict.values)}")
    return tuple(reasons)


def _risen(comparison: Comparison, condition: str, tolerance: float) -> list[str]:
    figure = comparison.figure(_RISES.get(condition, ""))
    if figure is None or figure.values[0] is None:
        return []
    # A float that was written and read again, or summed in another order, is no rise.
    limit = figure.values[0] * (1 + max(tolerance, 1e-6))
    risen = [
        label
        for label, value in zip(comparison.labels[1:], figure.values[1:], strict=True)
        if value is not None and value > limit
    ]
    return [f"{label}: {figure.label} rose" for label in risen]


def to_json(comparison: Comparison) -> str:
    """The comparison as JSON: SI base units, null for what is not known."""
    return ascii_json(_plain(comparison))


def _plain(comparison: Comparison) -> dict[str, Any]:
    """Without the analyses, which are files of their own, and the graphs that are made of them."""
    # Emptied first: ``asdict`` would copy every operator of every record.
    differences = tuple(replace(difference, graph=None) for difference in comparison.differences)
    plain = asdict(replace(comparison, analyses=(), differences=differences))
    del plain["analyses"]
    for difference in plain["differences"]:
        del difference["graph"]
    return plain
