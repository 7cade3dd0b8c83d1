"""Reporting: the graphs of two records as one, joined by module path, and what changed between them."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from analyzer.checks.phrases import operator_label, source_location, total
from analyzer.checks.placement import copies_inside
from analyzer.record.analysis import Analysis, GroupResult
from analyzer.report.compare.alignment import Alignment
from analyzer.report.compare.sides import ComparedSide, flips, is_change
from analyzer.report.module_tree import tree
from analyzer.text import first_few

# A module with more things directly in it is shown in parts: a graph of more boxes is laid out too slowly, and
# cannot be read.
CROWDED, PART = 60, 40
# Entries of the lists of what changed most.
MOST = 10
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


def join(base: ComparedSide, new: ComparedSide, aligned: Alignment) -> JoinedGraph:
    """Both sides' graphs as one.

    Args:
        base: The first record.
        new: The other.
        aligned: Which operators of theirs are the same.
    """
    modules, operators = _joined(base, new, aligned)
    numbers = _Numbers.of(operators)
    replaced = tuple(
        (
            tuple(numbers.base[index] for index in one.gone),
            tuple(numbers.new[index] for index in one.new),
        )
        for one in aligned.replaced
    )
    fusions = tuple(_fusions(base, new, modules, operators, numbers))
    copies = tuple(_copies(base, new, numbers))
    changes = _folded(_changes(base, new, operators, replaced, copies))
    return JoinedGraph(
        modules=modules,
        operators=operators,
        edges=_edges(base, new, numbers),
        replaced=replaced,
        fusion_changes=fusions,
        copy_changes=copies,
        changes=changes[:MOST],
        module_changes=_module_changes(modules, operators),
        worst=_worst(modules),
    )


# --- operators and modules ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class _Numbers:
    """The number of the joined operator by an operator's index in each record."""

    base: dict[int, int]
    new: dict[int, int]

    @classmethod
    def of(cls, operators: Iterable[JoinedOperator]) -> _Numbers:
        every = tuple(operators)
        return cls(
            base={each.base: each.number for each in every if each.base is not None},
            new={each.new: each.number for each in every if each.new is not None},
        )


def _joined(
    base: ComparedSide, new: ComparedSide, aligned: Alignment
) -> tuple[tuple[JoinedModule, ...], tuple[JoinedOperator, ...]]:
    pairs = _in_order(base.analysis, new.analysis, aligned)
    groups = _groups(base), _groups(new)
    paths = [_path(pair, aligned) for pair in pairs]
    modules, of_operator = _in_parts(*_modules(paths, new.analysis.model.name))
    operators = tuple(
        _operator(number, pair, base, new, module=module, groups=groups, moved=aligned.moved)
        for number, (pair, module) in enumerate(zip(pairs, of_operator, strict=True))
    )
    named = _described(modules, base.analysis, new.analysis, aligned)
    return _summed(named, operators), operators


# An operator's indices in the base and in the new record; one of them may be None.
_Pair = tuple[int | None, int | None]


def _in_order(base: Analysis, new: Analysis, aligned: Alignment) -> list[_Pair]:
    """Every operator once: in the new graph's order, what is gone behind its predecessor in the base."""
    partner = {old.index: now.index for old, now in aligned.match.pairs}
    became = {now: old for old, now in partner.items()}
    # By its own or its predecessor's index in the new graph; what is gone comes behind, as the base has it.
    order: list[tuple[int, int, _Pair]] = [
        (each.index, -1, (became.get(each.index), each.index)) for each in new.operators
    ]
    last = -1
    for each in base.operators:
        last = partner.get(each.index, last)
        if each.index not in partner:
            order.append((last, each.index, (each.index, None)))
    return [pair for *_, pair in sorted(order, key=lambda one: one[:2])]


def _path(pair: _Pair, aligned: Alignment) -> str:
    old, now = pair
    return aligned.new_paths[now] if now is not None else aligned.base_paths[old or 0]


def _operator(
    number: int,
    pair: _Pair,
    base: ComparedSide,
    new: ComparedSide,
    *,
    module: int,
    groups: tuple[Mapping[int, int], Mapping[int, int]],
    moved: Mapping[int, str],
) -> JoinedOperator:
    old = None if pair[0] is None else base.analysis.operators[pair[0]]
    now = None if pair[1] is None else new.analysis.operators[pair[1]]
    device, placed_on = (None, None) if old is None or now is None else flips(base, old, new, now)
    return JoinedOperator(
        number=number,
        module=module,
        base=pair[0],
        new=pair[1],
        base_s=None if old is None else base.time(old),
        new_s=None if now is None else new.time(now),
        base_group=None if old is None else groups[0].get(old.index),
        new_group=None if now is None else groups[1].get(now.index),
        device=device,
        placed_on=placed_on,
        was=None if now is None else moved.get(now.index),
    )


def _modules(paths: Iterable[str], model: str) -> tuple[list[JoinedModule], list[int]]:
    """A module for each path and for all around it, parents first; and the number of each path's."""
    modules = [JoinedModule(number=0, parent=None, path="", name=model)]
    numbers = {"": 0}

    def number(path: str) -> int:
        if path not in numbers:
            around, _, name = path.rpartition(".")
            parent = number(around)
            numbers[path] = len(modules)
            modules.append(JoinedModule(number=len(modules), parent=parent, path=path, name=name))
        return numbers[path]

    return modules, [number(path) for path in paths]


def _in_parts(
    modules: Sequence[JoinedModule], of_operator: Sequence[int]
) -> tuple[list[JoinedModule], list[int]]:
    """Crowded modules in parts: what is directly in them, so many at a time in their order."""
    found, of_operator = list(modules), list(of_operator)
    first = [len(of_operator)] * len(modules)
    for number, module in enumerate(of_operator):
        at: int | None = module
        while at is not None:
            first[at] = min(first[at], number)
            at = modules[at].parent
    # By module what is directly in it: where it begins, then the operator or the module.
    inside: dict[int, list[tuple[int, str, int]]] = defaultdict(list)
    for number, module in enumerate(of_operator):
        inside[module].append((number, "operator", number))
    for each in modules[1:]:
        inside[each.parent or 0].append((first[each.number], "module", each.number))
    for owner, items in inside.items():
        items.sort()
        while len(items) > CROWDED:
            runs = [items[at : at + PART] for at in range(0, len(items), PART)]
            items = []
            for place, run in enumerate(runs, 1):
                part = len(found)
                name = f"part {place} of {len(runs)}"
                around = modules[owner].path
                path = f"{around}, {name}" if around else name
                found.append(JoinedModule(number=part, parent=owner, path=path, name=name, is_part=True))
                for _, kind, number in run:
                    if kind == "operator":
                        of_operator[number] = part
                    else:
                        found[number] = replace(found[number], parent=part)
                items.append((run[0][0], "module", part))
    return found, of_operator


def _described(
    modules: Sequence[JoinedModule], base: Analysis, new: Analysis, aligned: Alignment
) -> list[JoinedModule]:
    """With the class of each, and the base's name where that is another."""
    was = aligned.renamed
    classes = {module.path: module.class_name for side in (base, new) for module in tree(side)[0]}
    return [
        module
        if module.is_part
        else replace(
            module,
            class_name=classes.get(module.path) or classes.get(was.get(module.path, ""), "") or "",
            was=was.get(module.path, ""),
        )
        for module in modules
    ]


def _summed(modules: Sequence[JoinedModule], operators: Iterable[JoinedOperator]) -> tuple[JoinedModule, ...]:
    """With sums over all operators inside; a time that nobody knows stays None."""
    inside: dict[int, list[JoinedOperator]] = defaultdict(list)
    for operator in operators:
        at: int | None = operator.module
        while at is not None:
            inside[at].append(operator)
            at = modules[at].parent
    return tuple(
        replace(
            module,
            operators=len(inside[module.number]),
            added=sum(each.state == "new" for each in inside[module.number]),
            gone=sum(each.state == "gone" for each in inside[module.number]),
            flipped=sum(each.flipped for each in inside[module.number]),
            base_s=total(each.base_s for each in inside[module.number]),
            new_s=total(each.new_s for each in inside[module.number]),
            rise_s=sum(each.rise_s for each in inside[module.number]),
        )
        for module in modules
    )


# --- groups, tensors and copies -------------------------------------------------------------------------


def _groups(side: ComparedSide) -> dict[int, int]:
    """For each operator the number of its group in the target's session."""
    return {
        member: number
        for number, group in enumerate(side.analysis.groups)
        if group.session == side.session
        for member in group.members
    }


def _fusions(
    base: ComparedSide,
    new: ComparedSide,
    modules: Sequence[JoinedModule],
    operators: Sequence[JoinedOperator],
    numbers: _Numbers,
) -> Iterator[FusionChange]:
    """Groups of several operators that both records have, where the other does not run the same as one."""
    both = {each.number for each in operators if each.state == "both"}

    def fused(side: ComparedSide, number_of: Mapping[int, int]) -> dict[frozenset[int], GroupResult]:
        # What came or went with its operators tells nothing of the session: those both have decide.
        sets = (
            (frozenset(number_of[index] for index in group.members) & both, group)
            for group in side.analysis.groups
            if group.session == side.session
        )
        return {members: group for members, group in sets if len(members) > 1}

    before, after = fused(base, numbers.base), fused(new, numbers.new)
    found: tuple[
        tuple[
            Literal["new", "gone"], Mapping[frozenset[int], GroupResult], Mapping[frozenset[int], GroupResult]
        ],
        ...,
    ]
    found = (("new", after, before), ("gone", before, after))
    for state, here, there in found:
        for members, group in here.items():
            if members in there:
                continue
            ordered = tuple(sorted(members))
            first = operators[ordered[0]]
            yield FusionChange(
                state=state,
                op_type=group.op_type,
                of=tuple(new.analysis.operators[operators[at].new or 0].op_type for at in ordered),
                module=_module_of(modules, first.module).path,
                operators=ordered,
            )


def _module_of(modules: Sequence[JoinedModule], number: int) -> JoinedModule:
    """The model's own module around a part."""
    module = modules[number]
    while module.is_part and module.parent is not None:
        module = modules[module.parent]
    return module


def _edges(base: ComparedSide, new: ComparedSide, numbers: _Numbers) -> tuple[JoinedEdge, ...]:
    found: dict[tuple[int, int], JoinedEdge] = {}
    for producer, consumer, copied in _tensors(base.analysis):
        key = numbers.base[producer], numbers.base[consumer]
        edge = found.get(key) or JoinedEdge(producer=key[0], consumer=key[1])
        found[key] = replace(edge, in_base=True, base_copied=edge.base_copied or copied)
    for producer, consumer, copied in _tensors(new.analysis):
        key = numbers.new[producer], numbers.new[consumer]
        edge = found.get(key) or JoinedEdge(producer=key[0], consumer=key[1])
        found[key] = replace(edge, in_new=True, new_copied=edge.new_copied or copied)
    return tuple(found[key] for key in sorted(found))


def _tensors(analysis: Analysis) -> Iterator[tuple[int, int, bool]]:
    """Producer, consumer, and whether ONNX Runtime's CUDA session copies the tensor in between."""
    copied = {copy.tensor for copy in copies_inside(analysis)}
    producers: dict[str, int] = {}
    for operator in analysis.operators:
        for name in dict.fromkeys(tensor.name for tensor in operator.inputs):
            if name in producers:
                maker = analysis.operators[producers[name]]
                ends = maker.gpu, operator.gpu
                crosses = ends[0] is not None and ends[1] is not None and ends[0].placed_on != ends[1].placed_on
                yield maker.index, operator.index, crosses and name in copied
        # ONNX writes an output that is left out as an empty name.
        producers.update((tensor.name, operator.index) for tensor in operator.outputs if tensor.name)


def _copies(base: ComparedSide, new: ComparedSide, numbers: _Numbers) -> Iterator[CopyChange]:
    """Copies of what the same operator makes, in the same direction, are the same copy."""

    def made(
        side: ComparedSide, number_of: Mapping[int, int], state: Literal["new", "gone"]
    ) -> dict[tuple[int, str, int], CopyChange]:
        makers = {
            tensor.name: (number_of[each.index], place)
            for each in side.analysis.operators
            for place, tensor in enumerate(each.outputs)
            if tensor.name
        }
        return {
            (makers[copy.tensor][0], copy.direction, makers[copy.tensor][1]): CopyChange(
                state=state,
                direction=copy.direction,
                producer=makers[copy.tensor][0],
                bytes=copy.bytes,
                time_s=copy.time_s / side.per,
            )
            for copy in copies_inside(side.analysis)
            if copy.tensor in makers
        }

    # A record without a CUDA session has no copies to compare with.
    if base.session != new.session:
        return
    before, after = made(base, numbers.base, "gone"), made(new, numbers.new, "new")
    yield from (after[key] for key in sorted(after.keys() - before.keys()))
    yield from (before[key] for key in sorted(before.keys() - after.keys()))


# --- what changed most ----------------------------------------------------------------------------------


def _changes(
    base: ComparedSide,
    new: ComparedSide,
    operators: Sequence[JoinedOperator],
    replaced: Sequence[tuple[tuple[int, ...], tuple[int, ...]]],
    copies: Sequence[CopyChange],
) -> Iterator[LargestChange]:
    of_replaced = {number for sides in replaced for side in sides for number in side}

    def subject(number: int) -> tuple[str, str]:
        each = operators[number]
        side, index = (base, each.base) if each.new is None else (new, each.new)
        operator = side.analysis.operators[index or 0]
        return operator_label(operator), source_location(operator)

    for each in operators:
        if each.number in of_replaced or (each.state == "both" and not each.rise_s):
            continue
        kind: ChangeKind = each.state if each.state != "both" else "slower" if each.rise_s > 0 else "faster"
        title, where = subject(each.number)
        yield LargestChange(
            kind=kind, title=title, where=where, operator=each.number, base_s=each.base_s, new_s=each.new_s
        )
    for gone, added in replaced:
        title, where = subject(added[0])
        before = first_few((_type(base.analysis, operators[number].base) for number in gone), 4)
        after = first_few((_type(new.analysis, operators[number].new) for number in added[1:]), 3)
        more = f", {after}" if after else ""
        yield LargestChange(
            kind="replaced",
            title=f"{title}{more} for {before}",
            where=where,
            operator=added[0],
            base_s=total(operators[number].base_s for number in gone),
            new_s=total(operators[number].new_s for number in added),
        )
    for copy in copies:
        title, where = subject(copy.producer)
        way = "CPU" if copy.direction == "to_cpu" else "GPU"
        yield LargestChange(
            kind="copy",
            title=f"copy to the {way} of what {title} makes",
            where=where,
            operator=copy.producer,
            base_s=copy.time_s if copy.state == "gone" else None,
            new_s=copy.time_s if copy.state == "new" else None,
        )


def _type(analysis: Analysis, index: int | None) -> str:
    return "" if index is None else analysis.operators[index].op_type


def _folded(changes: Iterable[LargestChange]) -> tuple[LargestChange, ...]:
    """Those that differ in the numbers of their paths alone as one: layers of one kind change alike."""
    alike: dict[tuple[str, str, str], list[LargestChange]] = defaultdict(list)
    for change in changes:
        alike[change.kind, _pattern(change.title), change.where].append(change)
    folded = [
        replace(
            max(group, key=lambda one: abs(one.rise_s)),
            alike=len(group) - 1,
            base_s=total(one.base_s for one in group),
            new_s=total(one.new_s for one in group),
        )
        for group in alike.values()
    ]
    kept = [change for change in folded if is_change(change.base_s, change.new_s)]
    return tuple(sorted(kept, key=lambda change: (-abs(change.rise_s), change.operator)))


def _pattern(path: str) -> str:
    """A path or a title without its numbers: ``layers.*.mlp``; the 2 of ``conv2`` is part of a name."""
    return re.sub(r"(?<!\w)\d+(?!\w)", "*", path)


def _module_changes(
    modules: Sequence[JoinedModule], operators: Iterable[JoinedOperator]
) -> tuple[ModuleChange, ...]:
    """As far inside as it takes for a list: the one that changed most is opened until there are enough."""
    children: dict[int, list[int]] = defaultdict(list)
    for module in modules[1:]:
        children[module.parent or 0].append(module.number)
    own: dict[int, list[JoinedOperator]] = defaultdict(list)
    for operator in operators:
        own[operator.module].append(operator)

    def whole(number: int) -> ModuleChange:
        module = modules[number]
        return ModuleChange(
            path=module.path,
            base_s=module.base_s,
            new_s=module.new_s,
            rise_s=module.rise_s,
            operators=module.operators,
            module=number,
        )

    def alone(number: int) -> ModuleChange:
        return replace(
            whole(number),
            own=True,
            base_s=total(each.base_s for each in own[number]),
            new_s=total(each.new_s for each in own[number]),
            rise_s=sum(each.rise_s for each in own[number]),
            operators=len(own[number]),
        )

    shown = [whole(0)]
    while len(shown) < MOST:
        closed = [each for each in shown if not each.own and children[each.module]]
        if not closed:
            break
        largest = max(closed, key=lambda each: (abs(each.rise_s), -each.module))
        if not largest.rise_s:
            break
        shown.remove(largest)
        shown += [whole(child) for child in children[largest.module]]
        shown += [alone(largest.module)] if own[largest.module] else []
    changed = [each for each in shown if is_change(each.base_s, (each.base_s or 0.0) + each.rise_s)]
    # The largest first: each stands for those of its kind that come after it and changed as much.
    changed.sort(key=lambda each: (-abs(each.rise_s), each.module))
    kinds: list[list[ModuleChange]] = []
    for each in changed:
        same = (
            group
            for group in kinds
            if (_pattern(group[0].path), group[0].own) == (_pattern(each.path), each.own)
            and not is_change(abs(group[0].rise_s), abs(each.rise_s))
            and (group[0].rise_s > 0) == (each.rise_s > 0)
        )
        group = next(same, None)
        if group is None:
            kinds.append([each])
        else:
            group.append(each)
    folded = [
        replace(
            min(group, key=lambda each: each.module),
            alike=len(group) - 1,
            base_s=total(each.base_s for each in group),
            new_s=total(each.new_s for each in group),
            rise_s=sum(each.rise_s for each in group),
            operators=sum(each.operators for each in group),
        )
        for group in kinds
    ]
    return tuple(sorted(folded, key=lambda each: (-abs(each.rise_s), each.module))[:MOST])


def _worst(modules: Sequence[JoinedModule]) -> int:
    children: dict[int, list[JoinedModule]] = defaultdict(list)
    for module in modules[1:]:
        children[module.parent or 0].append(module)
    # The model itself is open from the start.
    inner = modules[1:] or modules
    lost = max(inner, key=lambda one: (one.rise_s, -one.number))
    # A loss that no box would be coloured for is not what a reader is to see first: then what gained most is.
    at = (
        lost
        if lost.rise_s > SHADES[0] * (modules[0].base_s or 0.0)
        else max(inner, key=lambda one: (abs(one.rise_s), -one.number))
    )
    while children[at.number]:
        most = max(children[at.number], key=lambda one: (abs(one.rise_s), -one.number))
        if abs(most.rise_s) * 2 < abs(at.rise_s) or not most.rise_s:
            break
        at = most
    return at.number
