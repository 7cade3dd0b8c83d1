"""Reporting: the value that two records' graphs are as one, joined by module path."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

# Shares of the base's time from which on a change has a colour, paler to stronger.
SHADES = (0.001, 0.01, 0.05)

ChangeKind = Literal["slower", "faster", "new", "gone", "replaced", "copy"]
State = Literal["both", "new", "gone"]


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinedOperator:
    """An operator of one graph or of both; ``base`` and ``new`` are its indices there.

    Attributes:
        module: Number of the module that it is shown in.
        base_s, new_s: Time in the target device's plan; for one inference where the batches differ.
        base_group, new_group: Number of the record's group that executes it there; None where it is folded.
        device: (before, after) of where the best plan runs it, None where that did not change.
        placed_on: (before, after) of where ONNX Runtime's CUDA session puts it, None likewise.
        was: The base's module, where another one holds it now.
    """

    number: int
    module: int
    base: int | None
    new: int | None
    base_s: float | None
    new_s: float | None
    base_group: int | None = None
    new_group: int | None = None
    device: tuple[str, str] | None = None
    placed_on: tuple[str, str] | None = None
    was: str | None = None

    @property
    def state(self) -> State:
        """Which graph it is of."""
        return "gone" if self.new is None else "new" if self.base is None else "both"

    @property
    def flipped(self) -> bool:
        """Whether another device runs it."""
        return self.device is not None or self.placed_on is not None

    @property
    def rise_s(self) -> float:
        """Seconds lost; of an operator on one side alone all of its time."""
        if self.state == "both" and None in (self.base_s, self.new_s):
            return 0.0
        return (self.new_s or 0.0) - (self.base_s or 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinedModule:
    """A module of one graph or of both, with sums over all operators inside.

    ``was`` is its path in the base where that is another; ``is_part`` says that it is no module of the model's
    but some of a crowded module's operators, in their order. ``rise_s`` are the seconds lost, without operators
    whose time one of the records does not know.
    """

    number: int
    parent: int | None
    path: str
    name: str
    class_name: str = ""
    was: str = ""
    is_part: bool = False
    operators: int = 0
    added: int = 0
    gone: int = 0
    flipped: int = 0
    base_s: float | None = None
    new_s: float | None = None
    rise_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinedEdge:
    """A tensor's way between two joined operators; for each record whether it is there, and copied."""

    producer: int
    consumer: int
    in_base: bool = False
    in_new: bool = False
    base_copied: bool = False
    new_copied: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class FusionChange:
    """A group of several operators that one record's session executes as one node, and the other's does not.

    ``operators`` are numbers of joined operators that both records have.
    """

    state: Literal["new", "gone"]
    op_type: str
    of: tuple[str, ...]
    module: str
    operators: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyChange:
    """A copy inside the graph that one record's CUDA session makes and the other's does not."""

    state: Literal["new", "gone"]
    direction: str
    producer: int
    bytes: int
    time_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LargestChange:
    """What gained or lost time: an operator, several of one kind, a replacement, a copy.

    ``alike`` counts those of other modules, alike but for the numbers in their paths, whose times are in the
    sums; ``operator`` is the joined operator to look at.
    """

    kind: ChangeKind
    title: str
    where: str
    operator: int
    base_s: float | None
    new_s: float | None
    alike: int = 0

    @property
    def rise_s(self) -> float:
        """Seconds lost."""
        return (self.new_s or 0.0) - (self.base_s or 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModuleChange:
    """A module that gained or lost time; ``own`` says that only what is directly in it is meant.

    ``alike`` counts modules whose paths differ in numbers alone and which changed as much; the sums are theirs
    too. ``rise_s`` as in ``JoinedModule``.
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
class JoinedGraph:
    """Two graphs as one.

    Attributes:
        modules: Parents before their children; the first is the model.
        operators: In the new graph's order, those of the base alone behind their predecessors there.
        edges: Tensors between them.
        replaced: Joined operators that are gone, and those that stand in their place.
        fusion_changes, copy_changes: What one record's session does and the other's does not.
        changes: What gained or lost most, the largest first.
        module_changes: The modules that did, none of them inside another, the largest first.
        worst: Number of the module that lost most, the one that gained most where none lost; inside it as long
            as one module has at least half of the change.
    """

    modules: tuple[JoinedModule, ...]
    operators: tuple[JoinedOperator, ...]
    edges: tuple[JoinedEdge, ...]
    replaced: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...]
    fusion_changes: tuple[FusionChange, ...]
    copy_changes: tuple[CopyChange, ...]
    changes: tuple[LargestChange, ...]
    module_changes: tuple[ModuleChange, ...]
    worst: int


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinedNumbers:
    """The number of the joined operator by an operator's index in each record."""

    base: Mapping[int, int]
    new: Mapping[int, int]

    @classmethod
    def of(cls, operators: Iterable[JoinedOperator]) -> JoinedNumbers:
        """By the operators' own indices."""
        every = tuple(operators)
        return cls(
            base={each.base: each.number for each in every if each.base is not None},
            new={each.new: each.number for each in every if each.new is not None},
        )
