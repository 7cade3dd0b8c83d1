"""Reporting: the value that a comparison of two or more analyses is; ``compare`` makes it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, Literal, TypeVar

from analyzer.record.analysis import Analysis
from analyzer.report.compare.sides import NOISE
from analyzer.units import UNKNOWN, factor

# Of the comparison's own JSON, which grows apart from the record's.
SCHEMA_VERSION = 1
Better = Literal["less", "more", ""]
Part = TypeVar("Part")


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
    better: Better = ""

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


def compared(
    key: str,
    label: str,
    unit: str,
    parts: Sequence[object | None],
    *,
    field: str = "",
    better: Better = "",
    ends: str = "",
    time: str = "",
    origin: str = "",
    overlaps: bool = True,
) -> ComparedFigure:
    """Read one figure of each record's part; None where a record has no such part.

    Args:
        key: As in ``ComparedFigure``, with ``label``, ``unit`` and ``better``.
        label: For people.
        unit: Of the figure.
        parts: By record the object with the figure.
        field: Its name there, dots inside; the key's last word if empty.
        better: Whether ``less`` or ``more`` of it is.
        ends: The name of both ends of its interval, ``{}`` for ``low`` and ``high``; empty where it has none.
        time: Of a rate the name of the time that these are the ends of.
        origin: The name of its origin; empty where it has none.
        overlaps: Whether the interval's overlap with the base's is part of it.
    """

    def read(name: str) -> tuple[Any, ...]:
        return tuple(None if part is None else attrgetter(name)(part) for part in parts)

    values = read(field or key.rpartition(".")[2])
    low, high = (read(ends.format(end)) if ends else () for end in ("low", "high"))
    if time and ends:
        low, high = (tuple(map(_turned, values, read(time), end)) for end in (high, low))
    return ComparedFigure(
        key=key,
        label=label,
        unit=unit,
        values=values,
        origins=tuple(each or "" for each in read(origin)) if origin else (),
        overlap=_overlap(low, high) if low and overlaps else (),
        low=low,
        high=high,
        better=better,
    )


def _turned(per_s: float | None, time_s: float | None, end_s: float | None) -> float | None:
    """Return the end of a rate's interval at an end of its time's."""
    if per_s is None or time_s is None or not end_s:
        return None
    # A rate times its time is the amount, which the record may not know by itself.
    end_per_s = per_s * time_s / end_s
    return end_per_s if math.isfinite(end_per_s) else None  # of a foreign record, whose interval has no end


def _overlap(low: Sequence[float | None], high: Sequence[float | None]) -> tuple[bool | None, ...]:
    """Return by record whether its interval overlaps the base's; None where one of them is not known."""
    # Two closed intervals overlap where each begins before the other ends.
    first = (low[0], high[0])
    return tuple(
        None
        if begin is None or end is None or first[0] is None or first[1] is None
        else begin <= first[1] and first[0] <= end
        for begin, end in zip(low, high, strict=True)
    )


def known(figures: Iterable[ComparedFigure]) -> tuple[ComparedFigure, ...]:
    """Leave out what no record knows."""
    return tuple(each for each in figures if any(value is not None for value in each.values))


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


def facts_of(
    name: str, parts: Sequence[Part | None], named: Iterable[tuple[str, str, Callable[[Part], object]]]
) -> tuple[ComparedFact, ...]:
    """Read facts of each record's part.

    Args:
        name: The part's, which the keys begin with; may be empty.
        parts: By record.
        named: Key, label and the property of a part.
    """
    return tuple(
        ComparedFact(
            key=f"{name}.{key}" if name else key,
            label=label,
            values=tuple(UNKNOWN if part is None else str(read(part)) for part in parts),
        )
        for key, label, read in named
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorChange:
    """An operator that is in base or new or in both, and what changed.

    Attributes:
        name: Type and module.
        where: ``file:line`` in the new record, else in the base.
        base, new: Indices in the two records, None in that which lacks it.
        device: (before, after) of where it runs in the best plan, None where that did not change.
        placed_on: (before, after) of where ONNX Runtime's CUDA session puts it, None likewise.
        base_s, new_s: Time in the target device's plan; for one inference where the batches differ.
        certain: Whether the two times' intervals are apart.
    """

    name: str
    where: str
    base: int | None
    new: int | None
    device: tuple[str, str] | None
    placed_on: tuple[str, str] | None
    base_s: float | None
    new_s: float | None
    certain: bool

    @property
    def in_both(self) -> bool:
        """Whether both records have it."""
        return self.base is not None and self.new is not None

    @property
    def kind(self) -> Literal["new", "gone", "slower", "faster", "same"]:
        """What became of it; a change that may be noise is none."""
        if not self.in_both:
            return "gone" if self.new is None else "new"
        if abs(self.rise_s) <= NOISE * (self.base_s or 0.0):
            return "same"
        return "slower" if self.rise_s > 0 else "faster"

    @property
    def flipped(self) -> bool:
        """Whether another device runs it."""
        return self.device is not None or self.placed_on is not None

    @property
    def rise_s(self) -> float:
        """Seconds lost: of an operator in one record alone all of its time; 0 where not known."""
        # Unknown is neither slower nor faster; the flips and lists still hold it.
        if self.in_both and None in (self.base_s, self.new_s):
            return 0.0
        return (self.new_s or 0.0) - (self.base_s or 0.0)


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
class FusionChange:
    """A group of several operators that one record's session executes as one node, and the other's does not.

    ``operators`` are their places in ``JoinedTree``; both records have them.
    """

    state: Literal["new", "gone"]
    op_type: str
    of: tuple[str, ...]
    module: str
    operators: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModuleChange:
    """A module that gained or lost time; ``own`` says that only what is directly in it is meant.

    ``alike`` counts modules whose paths differ in numbers alone and which changed as much; the sums are theirs
    too. ``rise_s`` are the seconds lost, without operators whose time one of the records does not know.
    """

    path: str
    base_s: float | None
    new_s: float | None
    rise_s: float
    operators: int
    module: int
    own: bool = False
    alike: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinedModule:
    """A module of one record or both, with all operators inside; ``was`` is its other path in the base."""

    number: int
    parent: int | None
    path: str
    name: str
    class_name: str
    was: str
    inside: tuple[OperatorChange, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinedTree:
    """The modules of two records as one tree.

    Attributes:
        modules: Parents before their children, as their first operators come; the first is the model.
        operators: In the new graph's order, those of the base alone behind their predecessors there.
        module_of: By operator the number of its module.
        moved: The base's module of each operator that another one holds now.
        fusions: What one record's session runs as one node and the other's does not.
        changes: The modules that gained or lost most, none of them inside another, the largest first.
    """

    modules: tuple[JoinedModule, ...]
    operators: tuple[OperatorChange, ...]
    module_of: tuple[int, ...]
    moved: Mapping[int, str]
    fusions: tuple[FusionChange, ...]
    changes: tuple[ModuleChange, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """The base and one other record, operator by operator; the largest change first.

    ``per_inference`` says that the batches differ and all its times are therefore those of one inference.
    ``modules`` are those that gained and lost most, none of them inside another.
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

    @property
    def changed(self) -> tuple[OperatorChange, ...]:
        """Those that got slower or faster together, the largest change first."""
        changed = sorted((*self.slower, *self.faster), key=lambda change: change.new or 0)
        return tuple(sorted(changed, key=lambda change: -abs(change.rise_s)))


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
        trees: The base's modules and each other record's as one, for the page; not part of the JSON either.
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
    trees: tuple[JoinedTree, ...] = field(default=(), repr=False, compare=False)

    @property
    def one_batch(self) -> bool:
        """Whether all records are of the same batch, so that latencies can be compared as they are."""
        return len({one.model.batch for one in self.analyses}) < 2

    def figure(self, key: str) -> ComparedFigure | None:
        """The figure of this key."""
        return next((figure for figure in self.figures if figure.key == key), None)


# Two figures that differ by less read the same in the three digits that are printed.
SAME = 0.005


def times(ratio: float) -> str:
    """Return a ratio as in "a factor of 3.3": without the x that it is written with elsewhere."""
    return factor(ratio).removesuffix("x")


def certainty(apart: bool, other: str = "the next") -> str:
    """Say whether the first record's interval is apart from another's."""
    ends = f"its 90 % interval and that of {other} {'do not overlap' if apart else 'overlap'}"
    return f"That is {'' if apart else 'not '}certain: {ends}."


def least(
    labels: Sequence[str],
    values: Sequence[float | None],
    verb: str,
    say: Callable[[float], str],
    asides: Sequence[str] = (),
) -> str:
    """Say which record has least of something, and which most; empty where none stands out.

    Args:
        labels: By record its name.
        values: By record the figure, None where it is not known.
        verb: What the record with least does.
        say: The figure in words.
        asides: By record what follows its figure.
    """
    known = [(value, at) for at, value in enumerate(values) if value is not None]
    if len(known) < 2:
        return ""
    # Among equals the first record, so that the same comparison gives the same bytes.
    (value, at), (most, of) = min(known), max(known, key=lambda each: (each[0], -each[1]))
    # Nothing is so many times as much as nothing.
    if not value or most / value - 1 < SAME:
        return ""
    one, other = (asides[at], asides[of]) if asides else ("", "")
    return f"{labels[at]} {verb}: {say(value)}{one}, against {say(most)} in {labels[of]}{other}."
