"""Reporting: the boxes of the page's graph, a module being one for each time that it is called."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile

from analyzer.record.analysis import OperatorResult
from analyzer.report.module_tree import Module

# A box with more things directly in it holds them in parts: more boxes at once are laid out too slowly, and
# cannot be read.
CROWDED, PART = 150, 50


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphBox:
    """One call of a module, or a part of one that holds too much to be drawn at once.

    A part has a name, else it is its module's. ``call`` says which of its module's calls it is, empty where
    there is no other; the model's box has no parent.
    """

    parent: int | None
    module: int
    name: str = ""
    call: str = ""


def boxes(
    operators: Sequence[OperatorResult], modules: Sequence[Module], module_of_operator: Sequence[int]
) -> tuple[tuple[GraphBox, ...], tuple[int, ...]]:
    """Return boxes, parents before their children and for each operator the number of the innermost around it.

    The exporter's metadata names the module of an operator, not which call of it nor who calls: both follow
    from the order of execution, in which the operators are, and from what they read.
    """
    result = _Finder(operators, modules, module_of_operator)
    result.bring_to_callers(modules)
    result.take_lists_apart(modules)
    result.look_inside(0, tuple(range(len(operators))), 0)
    return result.numbered()


class _Finder:
    def __init__(
        self, operators: Sequence[OperatorResult], modules: Sequence[Module], module_of_operator: Sequence[int]
    ) -> None:
        self._operators = operators
        ways = _ways(modules)
        self._feeders = _feeders(operators)
        # By operator: the modules around it, from the model on, as they are named; and as they are called.
        self._named = [ways[number] for number in module_of_operator]
        self._ways = list(self._named)
        self._found = [GraphBox(parent=None, module=0)]
        self._inner = [0] * len(operators)

    def bring_to_callers(self, modules: Sequence[Module]) -> None:
        """Put each call of a shared module into the module that calls it.

        A caller feeds the call and alone reads what it makes, and lies where the shared module lies: rotary
        positions that belong to the model are called by each of its layers.
        """
        groups: dict[int, list[int]] = defaultdict(list)
        for index, way in enumerate(self._ways):
            for number in way[1:]:
                groups[number].append(index)
        readers: dict[int, list[int]] = defaultdict(list)
        for index, feeders in enumerate(self._feeders):
            for feeder in feeders:
                readers[feeder].append(index)
        everything = range(len(self._operators))
        moved: set[int] = set()
        for module in modules[1:]:
            calls = self._calls(module.number, groups[module.number], everything)
            if len(calls) < 2 or not moved.isdisjoint(self._ways[calls[0][0]]):
                continue
            depth = self._ways[calls[0][0]].index(module.number)
            for call in calls:
                behind = {reader for index in call for reader in readers[index]}.difference(call)
                before = {feeder for index in call for feeder in self._feeders[index]}.difference(call)
                shared = _common([self._ways[reader] for reader in behind])
                place = max((_common([shared, self._ways[feeder]]) for feeder in before), key=len, default=())
                around = self._ways[call[0]][:depth]
                if len(place) > depth and place[:depth] == around and module.number not in place:
                    moved.add(module.number)
                    for index in call:
                        self._ways[index] = place + self._ways[index][depth:]

    def take_lists_apart(self, modules: Sequence[Module]) -> None:
        """Take away the boxes of lists whose members are called in turn, with others between them.

        A ``ModuleList`` is never called itself: as one box around calls that are far apart it would be read
        from and written to all over the graph. A sequence that is called several times stays, its members
        being called as often; so does a list whose members run one after the other, as a Transformer's layers.
        """
        groups: dict[int, list[int]] = defaultdict(list)
        for index, way in enumerate(self._ways):
            for number in way[1:]:
                groups[number].append(index)
        everything = range(len(self._operators))
        lists = {
            module.number
            for module in modules[1:]
            if module.number in groups and self._is_called_in_parts(module.number, groups, everything)
        }
        self._ways = [tuple(number for number in way if number not in lists) for way in self._ways]

    def _is_called_in_parts(
        self, module: int, groups: Mapping[int, Sequence[int]], everything: Sequence[int]
    ) -> bool:
        """Return whether a module does nothing itself and its members run one by one, each in one go."""
        # A step's first pass tells how it is called.
        first = self._operators[groups[module][0]].phase
        group = [index for index in groups[module] if self._operators[index].phase == first]
        held: dict[int, list[int]] = defaultdict(list)
        for index in group:
            inner = self._ways[index][self._ways[index].index(module) + 1 :]
            if inner:
                held[inner[0]].append(index)
            elif self._operators[index].module:
                return False  # without a module it is here for its neighbours' sake
        if len(held) < 2:
            return False
        runs = self._runs(module, group, everything)
        if len(runs) < 2:
            return False
        member = {index: number for number, indices in held.items() for index in indices}
        one_each = all(len({member[index] for index in run if index in member}) < 2 for run in runs)
        # What is torn apart itself would be no better a box.
        return one_each or all(
            len(self._runs(number, indices, everything)) == 1 for number, indices in held.items()
        )

    def look_inside(self, box: int, members: tuple[int, ...], depth: int) -> None:
        """Find the boxes in a box of these operators; ``depth`` modules are around what is directly in it."""
        held: dict[int, list[int]] = defaultdict(list)
        inside: list[tuple[int, ...]] = []
        for index in members:
            way = self._ways[index]
            if len(way) > depth + 1:
                held[way[depth + 1]].append(index)
            else:
                inside.append((index,))
        named: dict[tuple[int, ...], tuple[int, str]] = {}
        for module, group in held.items():
            calls = self._calls(module, group, members)
            named |= {call: (module, words) for call, words in zip(calls, self._words(calls), strict=True)}
        items = sorted([*inside, *named])
        for parent, run in self._parts(box, items):
            for item in run:
                if item in named:
                    module, words = named[item]
                    self._found.append(GraphBox(parent=parent, module=module, call=words))
                    self.look_inside(len(self._found) - 1, item, depth + 1)
                else:
                    self._inner[item[0]] = parent

    def _parts(self, box: int, items: list[tuple[int, ...]]) -> Iterator[tuple[int, Sequence[tuple[int, ...]]]]:
        """Yield parts directly in a box, so many at a time in order, each time with the box around."""
        count = -(-len(items) // PART)
        if len(items) <= CROWDED:
            yield box, items
            return
        # Parts of parts, where there are too many of them.
        rows = -(-count // PART) if count > CROWDED else 0
        around = [self._part(box, at, rows) for at in range(rows)] or [box]
        for at in range(count):
            parent = around[at // PART] if rows else box
            yield self._part(parent, at, count), items[at * PART : (at + 1) * PART]

    def _part(self, parent: int, at: int, count: int) -> int:
        module = self._found[parent].module
        self._found.append(GraphBox(parent=parent, module=module, name=f"part {at + 1} of {count}"))
        return len(self._found) - 1

    def _calls(self, module: int, group: Sequence[int], members: Sequence[int]) -> list[tuple[int, ...]]:
        """Return a module's operators by call; one call in each phase where they do not look alike.

        Calls run the same operators: what is interrupted by a module that lies elsewhere does not. An operator
        that needs nothing of its call may have been counted with the run before: so many calls, equally long.
        """
        phases: dict[str, list[tuple[int, ...]]] = defaultdict(list)
        for run in self._runs(module, group, members):
            phases[self._operators[run[0]].phase or ""].append(run)
        result: list[tuple[int, ...]] = []
        for runs in phases.values():
            whole = tuple(index for run in runs for index in run)
            types = [self._operators[index].op_type for index in whole]
            length, rest = divmod(len(whole), len(runs))
            alike = rest == 0 and types[length:] == types[:-length]
            result += [whole[at : at + length] for at in range(0, len(whole), length)] if alike else [whole]
        return sorted(result)

    def _runs(self, module: int, group: Sequence[int], members: Sequence[int]) -> list[tuple[int, ...]]:
        """Return a module's operators as far as they go without a break.

        Another run begins where an operator needs what others made meanwhile of what this run gave them: as one
        box they would be a circle. It begins as well where the same line reads the module's own parameter anew,
        as for two inputs that go through it side by side, and with another phase of a training step.
        """
        own = set(group)
        runs: list[list[int]] = []
        # Of the present run: its operators, what others made of its outputs, what it has read of its own.
        inside: set[int] = set()
        behind: set[int] = set()
        read: set[tuple[str, ...]] = set()
        for index in members[bisect_left(members, group[0]) : bisect_right(members, group[-1])]:
            feeders = self._feeders[index]
            if index not in own:
                if not (inside.isdisjoint(feeders) and behind.isdisjoint(feeders)):
                    behind.add(index)
                continue
            # What it merely calls has parameters of its own.
            reads = set(self._own_parameters(index)) if module in self._named[index] else set()
            phase = self._operators[index].phase
            if (
                not runs
                or phase != self._operators[runs[-1][-1]].phase
                or not behind.isdisjoint(feeders)
                or not read.isdisjoint(reads)
            ):
                runs.append([])
                inside, behind, read = set(), set(), set()
            runs[-1].append(index)
            inside.add(index)
            read |= reads
        return [tuple(run) for run in runs]

    def _own_parameters(self, index: int) -> Iterator[tuple[str, ...]]:
        operator = self._operators[index]
        line = f"{operator.source.file}:{operator.source.line}" if operator.source else ""
        for tensor in operator.inputs:
            if operator.module and tensor.constant and tensor.name.startswith(f"{operator.module}."):
                yield tensor.name, operator.op_type, line

    def _words(self, calls: Sequence[tuple[int, ...]]) -> Iterator[str]:
        """``call 2 of 3``; in a training step the backward pass goes through a module as well."""
        phases = [self._operators[call[0]].phase or "" for call in calls]
        passes = [phase if phase != "forward" else "" for phase in phases]
        counts, at = Counter(phases), Counter[str]()
        for phase, name in zip(phases, passes, strict=True):
            at[phase] += 1
            number = f"call {at[phase]} of {counts[phase]}" if counts[phase] > 1 else ""
            yield ", ".join(filter(None, (name, number)))

    def numbered(self) -> tuple[tuple[GraphBox, ...], tuple[int, ...]]:
        """In the order of their first operators, as the modules are."""
        numbers: dict[int, int] = {0: 0}
        for inner in self._inner:
            way = []
            at: int | None = inner
            while at is not None and at not in numbers:
                way.append(at)
                at = self._found[at].parent
            for number in reversed(way):
                numbers[number] = len(numbers)
        ordered = sorted(numbers, key=lambda number: numbers[number])
        return (
            tuple(
                replace(box, parent=None if box.parent is None else numbers[box.parent])
                for box in (self._found[number] for number in ordered)
            ),
            tuple(numbers[inner] for inner in self._inner),
        )


def _ways(modules: Sequence[Module]) -> list[tuple[int, ...]]:
    """For each module those around it, from the model on, and itself."""
    ways: list[tuple[int, ...]] = []
    for module in modules:
        ways.append(((*ways[module.parent],) if module.parent is not None else ()) + (module.number,))
    return ways


def _common(ways: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    """Return the common beginning."""
    shared = takewhile(lambda level: len(set(level)) == 1, zip(*ways, strict=False))
    return tuple(level[0] for level in shared)


def _feeders(operators: Sequence[OperatorResult]) -> list[set[int]]:
    """For each operator those whose outputs it reads."""
    producer: dict[str, int] = {}
    feeders: list[set[int]] = []
    for index, operator in enumerate(operators):
        feeders.append({producer[tensor.name] for tensor in operator.inputs if tensor.name in producer})
        producer.update((tensor.name, index) for tensor in operator.outputs if tensor.name)
    return feeders
