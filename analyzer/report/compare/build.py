"""Two or more analyses side by side: what flipped, what got slower, what is new and what is gone.

``compare`` makes a value from analyses; ``render_text``, ``render_markdown`` and ``to_json`` write it down.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict, replace

from analyzer.checks.fusion import Match
from analyzer.errors import UsageError
from analyzer.record.analysis import Analysis, Finding
from analyzer.report.compare import figures
from analyzer.report.compare.alignment import align
from analyzer.report.compare.comparison import (
    ComparedSide,
    Comparison,
    Difference,
    OperatorChange,
    OperatorKind,
)
from analyzer.report.compare.joined_tree import join
from analyzer.report.markdown import ascii_json
from analyzer.text import did_you_mean


def compare(records: Sequence[tuple[str, Analysis]]) -> Comparison:
    """Put records, each with its label, side by side; the first is the base.

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
    before, after = ComparedSide.pair(base, new)
    findings_new, findings_gone = _finding_changes(base, new, aligned.match)
    tree = join(before, after, aligned)
    in_order = sorted(tree.operators, key=lambda one: one.index)
    both = tuple(one for one in in_order if one.in_both)
    by_kind: dict[OperatorKind, list[OperatorChange]] = defaultdict(list)
    for one in in_order:
        by_kind[one.kind].append(one)
    for kind in ("slower", "faster"):
        by_kind[kind].sort(key=lambda one: -abs(one.rise_s))
    return Difference(
        label=label,
        tree=tree,
        both=both,
        flipped=tuple(sorted((one for one in both if one.flipped), key=lambda one: -abs(one.rise_s))),
        by_kind={kind: tuple(result) for kind, result in by_kind.items()},
        findings_new=findings_new,
        findings_gone=findings_gone,
        per_inference=before.per != 1 or after.per != 1,
    )


def _finding_changes(
    base: Analysis, new: Analysis, matched: Match
) -> tuple[tuple[Finding, ...], tuple[Finding, ...]]:
    """Return findings that came and went: the same code about the same operator is the same finding."""
    became = {old.index: now.index for old, now in matched.pairs}

    def key(finding: Finding, renumber: bool) -> tuple[str, int | None]:
        if finding.operator is None or not renumber:
            return finding.code, finding.operator
        # A negative index matches nothing: an operator that is gone takes its findings along.
        return finding.code, became.get(finding.operator, -1 - finding.operator)

    before = {key(finding, True) for finding in base.findings}
    after = {key(finding, False) for finding in new.findings}
    return (
        tuple(finding for finding in new.findings if key(finding, False) not in before),
        tuple(finding for finding in base.findings if key(finding, True) not in after),
    )


# --- what a gate can fail on ----------------------------------------------------------------------------

# Each condition and the keys of the figures that must not rise; an option's values are the contract.
_RISES = {
    "cpu-latency": ("plans.cpu.latency_s",),
    "gpu-latency": ("plans.gpu.latency_s",),
    "latency": ("plans.hybrid.latency_s",),
    "flops": ("totals.flops",),
    "bytes": ("totals.bytes",),
    "memory": ("totals.peak_memory_bytes", "model.parameter_bytes"),
    "copies": ("copies",),
    "operators": ("totals.operators",),
}
CONDITIONS = (*_RISES, "flipped", "findings", "verdict", "any")


def failures(comparison: Comparison, conditions: Sequence[str], *, tolerance: float = 0.0) -> tuple[str, ...]:
    """Return why ``--fail-on`` fails, a sentence for each reason; ``any`` is all of ``CONDITIONS``.

    A figure may rise above the base's by the share ``tolerance``.

    Raises:
        UsageError: A condition that does not exist.
    """
    for condition in conditions:
        if condition not in CONDITIONS:
            hint = did_you_mean(condition, CONDITIONS, f"One of {', '.join(CONDITIONS)}.")
            raise UsageError(f"--fail-on: there is no condition {condition!r}", hint=hint)
    chosen = CONDITIONS if "any" in conditions else tuple(conditions)
    keys = [key for condition in chosen for key in _RISES.get(condition, ())]
    reasons = [text for key in keys for text in _risen(comparison, key, tolerance)]
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


def _risen(comparison: Comparison, key: str, tolerance: float) -> list[str]:
    figure = comparison.figure(key)
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
    """Return the comparison as JSON: SI base units, null for what is not known."""
    # Emptied first: ``asdict`` would copy every operator of every record. They are files of their own.
    plain = asdict(replace(comparison, analyses=(), differences=()))
    del plain["analyses"]
    plain["figures"] = [
        asdict(replace(figure, parts=())) | {"overlap": figure.overlap} for figure in comparison.figures
    ]
    for figure in plain["figures"]:
        del figure["parts"]
    plain["differences"] = list(map(_plain, comparison.differences))
    return ascii_json(plain)


def _plain(difference: Difference) -> dict[str, object]:
    """Return the lists of what changed by their keys in the JSON."""
    tree = difference.tree
    alone = {
        kind: [
            {
                "name": one.name,
                "where": one.where,
                "index": one.index,
                "time_s": one.base_s if one.new is None else one.new_s,
            }
            for one in difference.of_kind(kind)
        ]
        for kind in ("gone", "new")
    }
    findings = {"findings_new": difference.findings_new, "findings_gone": difference.findings_gone}
    return {
        "label": difference.label,
        "matched": len(difference.both),
        "flipped": [asdict(one) for one in difference.flipped],
        "slower": [asdict(one) for one in difference.of_kind("slower")],
        "faster": [asdict(one) for one in difference.of_kind("faster")],
        **alone,
        **{
            name: [{"code": one.code, "severity": one.severity, "message": one.message} for one in result]
            for name, result in findings.items()
        },
        "per_inference": difference.per_inference,
        "modules": [asdict(one) for one in tree.changes],
        **{
            f"fusions_{state}": [asdict(one) for one in tree.fusions if one.state == state]
            for state in ("new", "gone")
        },
    }
