"""Which parts of a record point at which: what a type cannot say, since it lies between two fields."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from analyzer.record.analysis import Analysis
from analyzer.record.outcome import PlanResult
from analyzer.record.replay_data import Batches
from analyzer.record.values import Fault


def first_fault(analysis: Analysis) -> Fault | None:
    """The first place that points at nothing, or at two things at once; None where all is sound."""
    return next(_faults(analysis), None)


def _faults(analysis: Analysis) -> Iterator[Fault]:
    if analysis.model.training != (analysis.training is not None):
        yield Fault(place="model.training", reason="a training step has `training`, and nothing else has it")
    yield from _of_operators(analysis)
    yield from _of_plans(analysis)
    yield from _of_findings(analysis)
    if analysis.kept is not None:
        yield from _of_left_out(analysis)
        if analysis.kept.batches is not None:
            yield from _of_batches(analysis.kept.batches, len(analysis.operators), analysis.model.batch)
            yield from _of_sizes(analysis, analysis.kept.batches)


def _of_operators(analysis: Analysis) -> Iterator[Fault]:
    for position, operator in enumerate(analysis.operators):
        # Every other part names an operator by its position: an index that differs would point at two.
        if operator.index != position:
            yield Fault(
                place=f"operators[{position}].index", reason=f"expected {position}, got {operator.index}"
            )
    count = len(analysis.operators)
    for position, group in enumerate(analysis.groups):
        yield from _outside(f"groups[{position}].members", group.members, count)
        if len(set(group.members)) < len(group.members):  # its time would be split over one twice
            yield Fault(place=f"groups[{position}].members", reason="an operator stands in it twice")
    for position, body in enumerate(analysis.bodies):
        yield from _outside(f"bodies[{position}].operator", [body.operator], count)


def _of_findings(analysis: Analysis) -> Iterator[Fault]:
    count = len(analysis.operators)
    for position, finding in enumerate(analysis.findings):
        yield from _outside(f"findings[{position}].operator", _if_known(finding.operator), count)
    for position, ignored in enumerate(analysis.ignored):
        yield from _outside(f"ignored[{position}].finding.operator", _if_known(ignored.finding.operator), count)


def _of_plans(analysis: Analysis) -> Iterator[Fault]:
    yield from _repeated("plans", analysis.plans)
    for position, other in enumerate(analysis.alternatives):
        yield from _repeated(f"alternatives[{position}].plans", other.plans)
    for position, row in enumerate(analysis.sweep):
        if "cpu" not in row.plans:  # reports read it without asking: a CPU plan is always there
            yield Fault(place=f"sweep[{position}].plans", reason="it lacks cpu")


def _repeated(place: str, plans: Sequence[PlanResult]) -> Iterator[Fault]:
    names = [plan.name for plan in plans]
    if "cpu" not in names:
        yield Fault(place=place, reason="it lacks cpu")
    if len(set(names)) < len(names):
        yield Fault(place=place, reason="a plan stands in it twice")


def _of_left_out(analysis: Analysis) -> Iterator[Fault]:
    """Positions of left-out inputs lie among those that are there, in ascending order."""
    assert analysis.kept is not None
    for number, absent in enumerate(analysis.kept.absent):
        place = f"kept.absent[{number}]"
        yield from _outside(f"{place}.operator", [absent.operator], len(analysis.operators))
        positions: tuple[int, ...]
        for side, positions in (("inputs", absent.inputs), ("outputs", absent.outputs)):
            if list(positions) != sorted(set(positions)):
                yield Fault(place=f"{place}.{side}", reason="it does not ascend")


def _of_batches(batches: Batches, operators: int, base: int | None) -> Iterator[Fault]:
    looked_at = batches.looked_at
    # Figures between two batches are found by bisection, and lines are drawn through two: hence two, ascending.
    if list(looked_at) != sorted(set(looked_at)) or base not in looked_at or len(looked_at) < 2:
        yield Fault(
            place="kept.batches.looked_at", reason="expected ascending batches, the record's own among them"
        )
    for name in ("flops", "macs", "bytes_read", "bytes_written"):
        yield from _unequal(f"kept.batches.{name}", getattr(batches, name), operators)
    for position, size in enumerate(batches.odd_sizes):
        yield from _unequal(f"kept.batches.odd_sizes[{position}].shapes", size.shapes, len(looked_at))
    for position, figure in enumerate(batches.odd_figures):
        place = f"kept.batches.odd_figures[{position}]"
        yield from _outside(f"{place}.operator", [figure.operator], operators)
        if figure.square is None:
            yield from _unequal(f"{place}.values", figure.values, len(looked_at))


def _of_sizes(analysis: Analysis, batches: Batches) -> Iterator[Fault]:
    """A tensor that grows has a growth for each of its axes, and a size to grow from."""
    ranks = dict(_ranks(analysis))
    for position, growth in enumerate(batches.sizes):
        for name in growth.tensors:
            rank = ranks.get(name)
            if rank is not None and rank != len(growth.axes):
                yield Fault(
                    place=f"kept.batches.sizes[{position}].axes",
                    reason=f"expected {rank} entries for {name}, got {len(growth.axes)}",
                )


def _ranks(analysis: Analysis) -> Iterator[tuple[str, int]]:
    """The length of each tensor's shape; one that is named twice has the shape of its first mention."""
    named = [*analysis.model.inputs]
    for operator in analysis.operators:
        named += [*operator.inputs, *operator.outputs]
    named += analysis.model.outputs
    # Backwards: the first mention comes last and wins in the mapping, as it does when the graph is built again.
    for tensor in reversed(named):
        if tensor.shape is not None:
            yield tensor.name, len(tensor.shape)


def _outside(place: str, indices: Iterable[int], count: int) -> Iterator[Fault]:
    for index in indices:
        if index >= count:  # none is below 0: `Count` holds that
            yield Fault(place=place, reason=f"there is no operator {index}, only {count}")


def _unequal(place: str, row: Sequence[object], length: int) -> Iterator[Fault]:
    if len(row) != length:
        yield Fault(place=place, reason=f"expected {length} entries, got {len(row)}")


def _if_known(index: int | None) -> tuple[int, ...]:
    return () if index is None else (index,)
