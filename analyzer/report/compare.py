"""Two or more analyses side by side: what flipped, what got slower, what is new and what is gone.

``compare`` makes a value from analyses; ``render_text``, ``render_markdown`` and ``to_json`` write it down.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass

from analyzer.analysis import Analysis, Finding, OperatorResult
from analyzer.checks.match import Match, match
from analyzer.checks.placement import inside
from analyzer.checks.words import called, line_of
from analyzer.errors import UsageError
from analyzer.parsing import nearest

# An operator whose time changed by a smaller share is listed neither as slower nor as faster.
NOISE = 0.02
SCHEMA_VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One figure of all records, the base first; None where a record does not know it.

    Attributes:
        key: Stable name (``plans.gpu.latency_s``).
        label: For people.
        unit: ``s``, ``B``, ``FLOP``, ``x``, or empty for a count.
        values: By record.
        origins: By record, where the figure is a time: ``measured``, ``predicted``, ``mixed``.
        overlap: By record, whether its interval overlaps the base's; None where there is none.
    """

    key: str
    label: str
    unit: str
    values: tuple[float | None, ...]
    origins: tuple[str, ...] = ()
    overlap: tuple[bool | None, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """One property of all records that is no figure: device, opset, precision, verdict."""

    key: str
    label: str
    values: tuple[str, ...]

    @property
    def differs(self) -> bool:
        """Whether the records disagree."""
        return len(set(self.values)) > 1


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorChange:
    """An operator that is in base and new, and what changed.

    Attributes:
        name: Type and module.
        where: ``file:line`` in the new record.
        base, new: Indices in the two records.
        device: (before, after) of where it runs in the best plan, None where that did not change.
        placed_on: (before, after) of where ONNX Runtime's CUDA session puts it, None likewise.
        base_s, new_s: Time in the target device's plan.
        certain: Whether the two times' intervals are apart.
    """

    name: str
    where: str
    base: int
    new: int
    device: tuple[str, str] | None
    placed_on: tuple[str, str] | None
    base_s: float | None
    new_s: float | None
    certain: bool

    @property
    def rise_s(self) -> float:
        """Seconds by which it got slower, 0 where a time is not known."""
        return 0.0 if self.base_s is None or self.new_s is None else self.new_s - self.base_s


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorEntry:
    """An operator that is on one side alone."""

    name: str
    where: str
    index: int
    time_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class FindingEntry:
    """A finding that is on one side alone."""

    code: str
    severity: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """The base and one other record, operator by operator; the largest change first."""

    label: str
    matched: int
    flipped: tuple[OperatorChange, ...]
    slower: tuple[OperatorChange, ...]
    faster: tuple[OperatorChange, ...]
    gone: tuple[OperatorEntry, ...]
    new: tuple[OperatorEntry, ...]
    findings_new: tuple[FindingEntry, ...]
    findings_gone: tuple[FindingEntry, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """All records side by side; ``differences`` holds one entry for each record after the base."""

    labels: tuple[str, ...]
    facts: tuple[Fact, ...]
    figures: tuple[Figure, ...]
    differences: tuple[Difference, ...]
    notes: tuple[str, ...] = ()
    schema_version: int = SCHEMA_VERSION

    def figure(self, key: str) -> Figure | None:
        """The figure of this key."""
        return next((figure for figure in self.figures if figure.key == key), None)


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
        facts=_facts(analyses),
        figures=_figures(analyses),
        differences=tuple(_difference(label, analyses[0], other) for label, other in records[1:]),
        notes=_notes(analyses),
    )


# --- side by side ---------------------------------------------------------------------------------------


def _facts(analyses: Sequence[Analysis]) -> tuple[Fact, ...]:
    def fact(key: str, label: str, read: Callable[[Analysis], object]) -> Fact:
        return Fact(key=key, label=label, values=tuple(str(read(one)) for one in analyses))

    return (
        fact("model.name", "model", lambda one: one.model.name),
        fact("model.opset", "opset", lambda one: one.model.opset),
        fact("model.batch", "batch", lambda one: "–" if one.model.batch is None else one.model.batch),
        fact("model.precision", "precision", lambda one: one.model.precision),
        fact("devices.cpu", "CPU", lambda one: one.devices.cpu.name),
        fact("devices.gpu", "GPU", lambda one: one.devices.gpu.name if one.devices.gpu else "none"),
        fact("verdict.device", "verdict", lambda one: one.verdict.device),
    )


def _figures(analyses: Sequence[Analysis]) -> tuple[Figure, ...]:
    figures = [_latency(name, analyses) for name in ("cpu", "gpu", "hybrid")]

    def figure(key: str, label: str, unit: str, read: Callable[[Analysis], float | None]) -> None:
        figures.append(Figure(key=key, label=label, unit=unit, values=tuple(read(one) for one in analyses)))

    figure("verdict.speedup", "speed-up of the GPU", "x", lambda one: one.verdict.speedup)
    figure("verdict.crossover_batch", "GPU wins from batch", "", lambda one: one.verdict.crossover_batch)
    figure("copies", "copies inside the graph", "", lambda one: _inside(one, lambda items: len(items)))
    figure("copy_bytes", "bytes of these copies", "B", lambda one: _inside(one, _bytes_of))
    figure("totals.flops", "FLOPs", "FLOP", lambda one: one.totals.flops)
    figure("totals.bytes", "bytes moved", "B", lambda one: one.totals.bytes_read + one.totals.bytes_written)
    figure("totals.peak_memory_bytes", "peak of activations", "B", lambda one: one.totals.peak_memory_bytes)
    figure("model.parameter_bytes", "weights", "B", lambda one: one.model.parameter_bytes)
    figure("totals.operators", "operators", "", lambda one: one.totals.operators)
    figure("findings", "findings", "", lambda one: len(one.findings))
    return tuple(item for item in figures if any(value is not None for value in item.values))


def _inside(analysis: Analysis, read: Callable[[tuple[object, ...]], float]) -> float | None:
    return None if analysis.plan("gpu") is None else read(inside(analysis))


def _bytes_of(items: tuple[object, ...]) -> int:
    return sum(getattr(item, "bytes", 0) for item in items)


def _latency(name: str, analyses: Sequence[Analysis]) -> Figure:
    plans = [analysis.plan(name) for analysis in analyses]
    base = plans[0]
    overlap = tuple(
        None if plan is None or base is None else plan.low_s <= base.high_s and base.low_s <= plan.high_s
        for plan in plans
    )
    return Figure(
        key=f"plans.{name}.latency_s",
        label={"cpu": "latency on the CPU", "gpu": "latency on the GPU", "hybrid": "latency of the best plan"}[
            name
        ],
        unit="s",
        values=tuple(None if plan is None else plan.latency_s for plan in plans),
        origins=tuple("" if plan is None else plan.origin for plan in plans),
        overlap=overlap,
    )


def _notes(analyses: Sequence[Analysis]) -> tuple[str, ...]:
    base = analyses[0]
    notes = []
    if any(one.model.name != base.model.name for one in analyses):
        notes.append(
            "the records are of different models; operators are matched where module path and type agree"
        )
    origins = {plan.origin for one in analyses for plan in one.plans if plan.name == "cpu"}
    if len(origins) > 1:
        notes.append(f"CPU times are {' in one record and '.join(sorted(origins))} in another")
    return tuple(notes)


# --- operator by operator -------------------------------------------------------------------------------


def _difference(label: str, base: Analysis, new: Analysis) -> Difference:
    matched = match(base, new)
    changes = [_change(old, now, base, new) for old, now in matched.pairs]
    moved = [change for change in changes if change.device is not None or change.placed_on is not None]
    slower = [change for change in changes if change.rise_s > NOISE * (change.base_s or 0.0)]
    faster = [change for change in changes if -change.rise_s > NOISE * (change.base_s or 0.0)]
    added, gone = _finding_changes(base, new, matched)
    return Difference(
        label=label,
        matched=len(matched.pairs),
        flipped=tuple(sorted(moved, key=lambda change: (-abs(change.rise_s), change.new))),
        slower=tuple(sorted(slower, key=lambda change: (-change.rise_s, change.new))),
        faster=tuple(sorted(faster, key=lambda change: (change.rise_s, change.new))),
        gone=tuple(_entry(op, base) for op in matched.gone),
        new=tuple(_entry(op, new) for op in matched.new),
        findings_new=added,
        findings_gone=gone,
    )


def _change(old: OperatorResult, now: OperatorResult, base: Analysis, new: Analysis) -> OperatorChange:
    return OperatorChange(
        name=called(now),
        where=line_of(now),
        base=old.index,
        new=now.index,
        device=_flip(old.placement, now.placement) if base.devices.gpu and new.devices.gpu else None,
        placed_on=_flip(old.gpu.placed_on, now.gpu.placed_on) if old.gpu and now.gpu else None,
        base_s=_time(old, base),
        new_s=_time(now, new),
        certain=_apart(old, now, base, new),
    )


def _flip(before: str, after: str) -> tuple[str, str] | None:
    return None if before == after else (before, after)


def _time(operator: OperatorResult, analysis: Analysis) -> float | None:
    """Its time in the target device's plan: on the GPU where there is one, else on the CPU."""
    if analysis.plan("gpu") is not None and operator.gpu is not None:
        return operator.gpu.time_s
    return operator.cpu.time_s


def _interval(operator: OperatorResult, analysis: Analysis) -> tuple[float, float] | None:
    side = operator.gpu if analysis.plan("gpu") is not None and operator.gpu is not None else operator.cpu
    return None if side.low_s is None or side.high_s is None else (side.low_s, side.high_s)


def _apart(old: OperatorResult, now: OperatorResult, base: Analysis, new: Analysis) -> bool:
    before, after = _interval(old, base), _interval(now, new)
    return before is not None and after is not None and (before[1] < after[0] or after[1] < before[0])


def _entry(operator: OperatorResult, analysis: Analysis) -> OperatorEntry:
    return OperatorEntry(
        name=called(operator), where=line_of(operator), index=operator.index, time_s=_time(operator, analysis)
    )


def _finding_changes(
    base: Analysis, new: Analysis, matched: Match
) -> tuple[tuple[FindingEntry, ...], tuple[FindingEntry, ...]]:
    """Findings that came and that went: the same code about the same operator is the same finding."""
    became = {old.index: now.index for old, now in matched.pairs}

    def key(finding: Finding, renumber: bool) -> tuple[str, int | None]:
        if finding.operator is None or not renumber:
            return finding.code, finding.operator
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
        if "findings" in chosen and any(entry.severity == "error" for entry in difference.findings_new):
            reasons.append(f"{difference.label}: new findings of severity error")
    verdict = next(fact for fact in comparison.facts if fact.key == "verdict.device")
    if "verdict" in chosen and verdict.differs:
        reasons.append(f"the verdict changed: {' -> '.join(verdict.values)}")
    return tuple(reasons)


def _risen(comparison: Comparison, condition: str, tolerance: float) -> list[str]:
    figure = comparison.figure(_RISES.get(condition, ""))
    if figure is None or figure.values[0] is None:
        return []
    limit = figure.values[0] * (1 + max(tolerance, 1e-6))
    risen = [
        label
        for label, value in zip(comparison.labels[1:], figure.values[1:], strict=True)
        if value is not None and value > limit
    ]
    return [f"{label}: {figure.label} rose" for label in risen]


def to_json(comparison: Comparison) -> str:
    """The comparison as JSON: SI base units, null for what is not known."""
    return json.dumps(asdict(comparison), indent=2) + "\n"
