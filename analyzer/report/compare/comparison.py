"""Reporting: the value that a comparison of two or more analyses is; ``compare`` makes it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from analyzer.record.analysis import Analysis
from analyzer.report.compare.joined_graph import FusionChange, JoinedGraph, ModuleChange

# Of the comparison's own JSON, which grows apart from the record's.
SCHEMA_VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedFigure:
    """One figure of all records, the base first; None where a record does not know it.

    Attributes:
        key: Stable name (``plans.gpu.latency_s``).
        label: For people.
        unit: ``s``, ``B``, ``FLOP``, ``x``, ``/s``, ``$``, ``J``, or empty for a count.
        values: By record.
        origins: By record, of a time, dollars or joules: ``measured``, ``predicted``, ``mixed``, empty where
            the record does not tell.
        overlap: By record, whether its interval overlaps the base's; None where there is none.
        low, high: By record, the ends of its 90 % interval; empty where no record has one.
        better: Whether ``less`` or ``more`` of it is better; empty where neither can be said.
    """

    key: str
    label: str
    unit: str
    values: tuple[float | None, ...]
    origins: tuple[str, ...] = ()
    overlap: tuple[bool | None, ...] = ()
    low: tuple[float | None, ...] = ()
    high: tuple[float | None, ...] = ()
    better: Literal["less", "more", ""] = ""

    @property
    def best(self) -> int | None:
        """The record with the best value; None where none can be told or two share it."""
        known = [value for value in self.values if value is not None]
        if not self.better or len(known) < 2:
            return None
        # Marking one of two equals as the best would tell a difference that is not there.
        top = min(known) if self.better == "less" else max(known)
        return self.values.index(top) if known.count(top) == 1 else None

    def apart(self, one: int, other: int) -> bool | None:
        """Whether the intervals of two records do not overlap; None where one of them is not known."""
        if not self.low:
            return None
        ends = (self.low[one], self.high[one], self.low[other], self.high[other])
        low, high, other_low, other_high = ends
        if low is None or high is None or other_low is None or other_high is None:
            return None
        return high < other_low or other_high < low

    @property
    def certain(self) -> bool | None:
        """Whether the best record's interval is apart from every other's; None where that is not known."""
        best = self.best
        if best is None:
            return None
        others = [at for at, value in enumerate(self.values) if at != best and value is not None]
        # One that is not known may be the one that overlaps: nothing is then certain either way.
        apart = [self.apart(best, at) for at in others]
        return None if None in apart else all(apart)


def overlap(low: Sequence[float | None], high: Sequence[float | None]) -> tuple[bool | None, ...]:
    """By record, whether its interval overlaps the base's; None where one of them is not known."""
    # Two closed intervals overlap where each begins before the other ends.
    first = (low[0], high[0])
    return tuple(
        None
        if begin is None or end is None or first[0] is None or first[1] is None
        else begin <= first[1] and first[0] <= end
        for begin, end in zip(low, high, strict=True)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedFact:
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
        base_s, new_s: Time in the target device's plan; for one inference where the batches differ.
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
        # Unknown is neither slower nor faster; the flips and lists still hold it.
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
    """The base and one other record, operator by operator; the largest change first.

    ``per_inference`` says that the batches differ and all its times are therefore those of one inference.
    ``modules`` are those that gained and lost most, none of them inside another; ``graph`` is both graphs as
    one, which the page draws; it is not part of the JSON.
    """

    label: str
    matched: int
    flipped: tuple[OperatorChange, ...]
    slower: tuple[OperatorChange, ...]
    faster: tuple[OperatorChange, ...]
    gone: tuple[OperatorEntry, ...]
    new: tuple[OperatorEntry, ...]
    findings_new: tuple[FindingEntry, ...]
    findings_gone: tuple[FindingEntry, ...]
    per_inference: bool = False
    modules: tuple[ModuleChange, ...] = ()
    fusions_new: tuple[FusionChange, ...] = ()
    fusions_gone: tuple[FusionChange, ...] = ()
    graph: JoinedGraph | None = field(default=None, repr=False, compare=False)

    @property
    def changed(self) -> tuple[OperatorChange, ...]:
        """Those that got slower or faster together, the largest change first."""
        return tuple(sorted((*self.slower, *self.faster), key=lambda change: (-abs(change.rise_s), change.new)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """All records side by side; ``differences`` holds one entry for each record after the base.

    Attributes:
        labels: A short name for each record, the base first.
        facts: What was asked and answered.
        figures: Plans, verdict and work.
        differences: The base and each other record.
        notes: What a reader must know to read the rest.
        environment: Versions, threads and machines.
        analyses: What was compared; not part of the JSON.
    """

    labels: tuple[str, ...]
    facts: tuple[ComparedFact, ...]
    figures: tuple[ComparedFigure, ...]
    differences: tuple[Difference, ...]
    notes: tuple[str, ...] = ()
    environment: tuple[ComparedFact, ...] = ()
    schema_version: int = SCHEMA_VERSION
    # They have files of their own, and two comparisons are equal where all that they say is.
    analyses: tuple[Analysis, ...] = field(default=(), repr=False, compare=False)

    @property
    def one_batch(self) -> bool:
        """Whether all records are of the same batch, so that latencies can be compared as they are."""
        return len({one.model.batch for one in self.analyses}) < 2

    def figure(self, key: str) -> ComparedFigure | None:
        """The figure of this key."""
        return next((figure for figure in self.figures if figure.key == key), None)
