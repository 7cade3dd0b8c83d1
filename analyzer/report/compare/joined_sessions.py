"""Reporting: what the sessions of two records do with one joined graph: fused groups, tensors, copies."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Literal

from analyzer.checks.placement import copies_inside
from analyzer.record.analysis import Analysis, GroupResult
from analyzer.report.compare.joined_graph import (
    CopyChange,
    FusionChange,
    JoinedEdge,
    JoinedModule,
    JoinedNumbers,
    JoinedOperator,
)
from analyzer.report.compare.sides import ComparedSide

_FusedSets = Mapping[frozenset[int], GroupResult]


def fusions(
    base: ComparedSide,
    new: ComparedSide,
    modules: Sequence[JoinedModule],
    operators: Sequence[JoinedOperator],
    numbers: JoinedNumbers,
) -> Iterator[FusionChange]:
    """Groups of several operators that both records have, where the other does not run the same as one."""
    both = {each.number for each in operators if each.state == "both"}

    def fused(side: ComparedSide, number_of: Mapping[int, int]) -> _FusedSets:
        # What came or went with its operators tells nothing of the session: those both have decide.
        sets = (
            (frozenset(number_of[index] for index in group.members) & both, group)
            for group in side.analysis.groups
            if group.session == side.session
        )
        return {members: group for members, group in sets if len(members) > 1}

    before, after = fused(base, numbers.base), fused(new, numbers.new)
    ways: tuple[tuple[Literal["new", "gone"], _FusedSets, _FusedSets], ...]
    ways = (("new", after, before), ("gone", before, after))
    for state, here, there in ways:
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


def edges(base: ComparedSide, new: ComparedSide, numbers: JoinedNumbers) -> tuple[JoinedEdge, ...]:
    """Every way that a tensor goes in one of the graphs, by producer and consumer."""
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


def copies(base: ComparedSide, new: ComparedSide, numbers: JoinedNumbers) -> Iterator[CopyChange]:
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
