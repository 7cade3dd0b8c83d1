"""The comparison of records: what differs, by how much, how surely."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from analyzer.record.analysis import Analysis, CpuTime, Finding, GpuTime, OperatorResult
from analyzer.report.figure_text import joules, per_second
from analyzer.units import UNKNOWN, byte_count, count, dollars, factor, flop_count, seconds

Ends = tuple[float | None, float | None]

# A time that changed by a smaller share counts neither as slower nor as faster: no measurement's interval is
# given as narrower than 2 % to each side.
NOISE = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedSide:
    """One of the two analyses, and the inferences that its operators' times are divided by.

    ``session`` is that of the target device's plan, whose times and groups these are.
    """

    analysis: Analysis
    per: int
    session: Literal["cpu", "cuda"]

    @classmethod
    def pair(cls, base: Analysis, new: Analysis) -> tuple[ComparedSide, ComparedSide]:
        """Return both sides; of different batches, one inference is compared with one."""
        batches = base.model.batch, new.model.batch
        # Of the same batch the times stay as they are in both records, to be found there again.
        if None in batches or batches[0] == batches[1]:
            batches = 1, 1
        one, other = (
            cls(analysis=each, per=batch or 1, session="cpu" if each.plan("gpu") is None else "cuda")
            for each, batch in zip((base, new), batches, strict=True)
        )
        return one, other

    def time(self, operator: OperatorResult | None) -> tuple[float | None, Ends]:
        """Return an operator's time in the target device's plan and the ends of its interval."""
        if operator is None:
            return None, (None, None)
        time = self.on_target(operator)
        time_s, low_s, high_s = (
            None if each is None else each / self.per for each in (time.time_s, time.low_s, time.high_s)
        )
        return time_s, (low_s, high_s)

    def on_target(self, operator: OperatorResult) -> CpuTime | GpuTime:
        """Return the record's own time, for a whole batch: on the GPU where there is one, else on the CPU."""
        return operator.gpu if self.session == "cuda" and operator.gpu is not None else operator.cpu


def is_change(base_s: float | None, new_s: float | None) -> bool:
    """Return whether a time changed by more than noise; what is not known on both sides did not."""
    before, after = base_s or 0.0, new_s or 0.0
    return abs(after - before) > NOISE * before


# Of the comparison's own JSON, which grows apart from the record's.
SCHEMA_VERSION = 1
Better = Literal["less", "more", ""]
_UNITS: Mapping[str, Callable[[float | None], str]] = {
    "s": seconds,
    "B": byte_count,
    "FLOP": flop_count,
    "x": factor,
    "/s": per_second,
    "$": dollars,
    "J": joules,
}
# Seconds and the half-width of the 90 % interval, as a logarithm, by kind of error.
ErrorParts = Mapping[tuple[str, ...], tuple[float, float]]
OperatorKind = Literal["new", "gone", "slower", "faster", "same"]


def apart(one: Ends, other: Ends) -> bool | None:
    """Return whether two intervals do not overlap; None where an end is not known."""
    if None in one or None in other:
        return None
    return (one[1] or 0.0) < (other[0] or 0.0) or (other[1] or 0.0) < (one[0] or 0.0)


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
        low, high: By record, the ends of its 90 % interval; empty where no record has one.
        better: Whether ``less`` or ``more`` of it is better; empty where neither can be said.
        parts: By record, what a predicted time is made of, with the devices that two must share for their
            errors to cancel.
    """

    key: str
    label: str
    unit: str
    values: tuple[float | None, ...]
    origins: tuple[str, ...] = ()
    low: tuple[float | None, ...] = ()
    high: tuple[float | None, ...] = ()
    better: Better = ""
    parts: tuple[tuple[object, ErrorParts] | None, ...] = ()

    def text(self, value: float | None) -> str:
        """Return a value of it with its unit."""
        if value is None:
            return UNKNOWN
        written = _UNITS.get(self.unit)
        return written(value) if written else count(int(value))

    def origin(self, at: int) -> str:
        """Return a record's origin of it, empty where the record does not tell."""
        return self.origins[at] if self.origins else ""

    @property
    def order(self) -> list[int]:
        """The records that know it, the best first; less is better where neither is said."""
        sign = -1 if self.better == "more" else 1
        return [
            at
            for _, at in sorted((sign * value, at) for at, value in enumerate(self.values) if value is not None)
        ]

    @property
    def best(self) -> int | None:
        """The record with the best value; None where none can be told or two share it."""
        order = self.order
        # Marking one of two equals as the best would tell a difference that is not there.
        if not self.better or len(order) < 2 or self.values[order[0]] == self.values[order[1]]:
            return None
        return order[0]

    def ratio(self, one: int, other: int) -> tuple[float, float] | None:
        """Return the 90 % interval of one record's value over another's; None where they share no errors.

        A prediction's interval is mostly the error of its device's constants, which cancels between two.
        An error is that of an operator's type on a device and of what bounds it there: it moves both records'
        times by the same factor, so that only the difference of its shares counts. Errors of two kinds are
        independent, as in the decision between plans.
        """
        value, base = self.values[one], self.values[other]
        if not self.parts or not value or not base:
            return None
        of_one, of_other = self.parts[one], self.parts[other]
        if of_one is None or of_other is None or of_one[0] != of_other[0]:
            return None
        parts, others = of_one[1], of_other[1]
        whole, other_whole = (sum(time for time, _ in each.values()) for each in (parts, others))
        variance = 0.0
        for kind in parts.keys() | others.keys():
            (time, error), (other_time, other_error) = (each.get(kind, (0.0, 0.0)) for each in (parts, others))
            variance += ((time / whole - other_time / other_whole) * max(error, other_error)) ** 2
        width = math.exp(math.sqrt(variance))
        return value / base / width, value / base * width

    def apart(self, one: int, other: int) -> bool | None:
        """Return whether two records surely differ; None where an interval is not known."""
        if (ratio := self.ratio(one, other)) is not None:
            return ratio[0] > 1 or ratio[1] < 1
        if not self.low:
            return None
        return apart((self.low[one], self.high[one]), (self.low[other], self.high[other]))

    @property
    def overlap(self) -> tuple[bool | None, ...]:
        """By record, whether its interval overlaps the base's; empty where no record has one."""
        result = [self.apart(0, at) for at in range(len(self.low))]
        return tuple(None if each is None else not each for each in result)

    @property
    def certain(self) -> bool | None:
        """Return whether the best record's interval is apart from every other's; None where not known."""
        best = self.best
        if best is None:
            return None
        # One that is not known may be the one that overlaps: nothing is then certain either way.
        apart = [self.apart(best, at) for at in self.order[1:]]
        return None if None in apart else all(apart)


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedFact:
    """One property of all records that is no figure: device, opset, precision, verdict."""

    key: str
    label: str
    values: tuple[str, ...]

    @property
    def differs(self) -> bool:
        """Return whether the records disagree."""
        return len(set(self.values)) > 1


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
        """Return whether both records have it."""
        return self.base is not None and self.new is not None

    @property
    def kind(self) -> OperatorKind:
        """The kind of change; a change that may be noise is none."""
        if not self.in_both:
            return "gone" if self.new is None else "new"
        if abs(self.rise_s) <= NOISE * (self.base_s or 0.0):
            return "same"
        return "slower" if self.rise_s > 0 else "faster"

    @property
    def index(self) -> int:
        """Its index in the new record, else in the base."""
        return (self.base if self.new is None else self.new) or 0

    @property
    def flipped(self) -> bool:
        """Return whether another device runs it."""
        return self.device is not None or self.placed_on is not None

    @property
    def rise_s(self) -> float:
        """Seconds lost: of an operator in one record alone all of its time; 0 where not known."""
        # Unknown is neither slower nor faster; the flips and lists still hold it.
        if self.in_both and None in (self.base_s, self.new_s):
            return 0.0
        return (self.new_s or 0.0) - (self.base_s or 0.0)


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
    ``findings_new`` and ``findings_gone`` are on one side alone. ``both`` are the operators that both records
    have, as the new one orders them, ``flipped`` those that another device runs.
    """

    label: str
    tree: JoinedTree
    both: tuple[OperatorChange, ...]
    flipped: tuple[OperatorChange, ...]
    by_kind: Mapping[OperatorKind, tuple[OperatorChange, ...]]
    findings_new: tuple[Finding, ...]
    findings_gone: tuple[Finding, ...]
    per_inference: bool = False

    def of_kind(self, kind: OperatorKind) -> tuple[OperatorChange, ...]:
        """Return those of a kind, the largest change first; what is new or gone in its graph's order."""
        return self.by_kind.get(kind, ())


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """All records side by side, the base first; ``differences`` holds one entry for each record after it.

    ``analyses`` is what was compared; it is not part of the JSON.
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
        """Return whether all records are of the same batch, so that latencies can be compared as they are."""
        return len({one.model.batch for one in self.analyses}) < 2

    def figure(self, key: str) -> ComparedFigure | None:
        """Return the figure of this key."""
        return next((figure for figure in self.figures if figure.key == key), None)
