"""Which parts of a record point at which: what a type cannot say, since it lies between two fields."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

from analyzer.record.analysis import Analysis
from analyzer.record.capacity import CapacityResult
from analyzer.record.outcome import PlanResult
from analyzer.record.quantities import LARGEST
from analyzer.record.replay_data import Batches, CostFigure
from analyzer.record.values import Fault

_TOO_LARGE = "the tensor is too large"
# A batch is a size of a tensor, which ONNX holds in 64 bits; none that memory holds comes near.
_LARGEST_BATCH = 2**31
# Every batch that was looked at is decided anew, operator by operator. A record of 100,000 operators has seven.
_MOST_DECIDED = 2_000_000


def first_fault(analysis: Analysis) -> Fault | None:
    """The first place that points at nothing, or at two things at once; None where all is sound."""
    return next(_faults(analysis), None)


def _faults(analysis: Analysis) -> Iterator[Fault]:
    if analysis.model.training != (analysis.training is not None):
        yield Fault(place="model.training", reason="a training step has `training`, and nothing else has it")
    yield from _of_state(analysis)
    yield from _of_operators(analysis)
    yield from _of_plans(analysis)
    yield from _of_findings(analysis)
    yield from _of_ranking(analysis)
    if analysis.capacity is not None:
        yield from _of_capacity(analysis.capacity)
    if analysis.kept is not None:
        yield from _of_left_out(analysis)
        if analysis.kept.batches is not None:
            yield from _of_batches(analysis.kept.batches, len(analysis.operators), analysis.model.batch)
            # Whoever asks for the next fault alone comes here only where all tables have their lengths.
            yield from _of_growth(analysis, analysis.kept.batches)
            yield from _of_sizes(analysis, analysis.kept.batches)


def _of_state(analysis: Analysis) -> Iterator[Fault]:
    inputs = {tensor.name for tensor in analysis.model.inputs}
    outputs = {tensor.name for tensor in analysis.model.outputs}
    for position, pair in enumerate(analysis.model.state):
        if pair.input not in inputs:
            yield Fault(place=f"model.state[{position}].input", reason="the model has no such input")
        if pair.output not in outputs and pair.output != pair.input:
            yield Fault(place=f"model.state[{position}].output", reason="the model has no such output")


def _of_operators(analysis: Analysis) -> Iterator[Fault]:
    for position, operator in enumerate(analysis.operators):
        # Every other part names an operator by its position: an index that differs would point at two.
        if operator.index != position:
            yield Fault(
                place=f"operators[{position}].index", reason=f"expected {position}, got {operator.index}"
            )
        for side in ("inputs", "outputs"):
            for number, tensor in enumerate(getattr(operator, side)):
                if _is_too_large(tensor.shape):
                    yield Fault(place=f"operators[{position}].{side}[{number}].shape", reason=_TOO_LARGE)
    count = len(analysis.operators)
    for position, group in enumerate(analysis.groups):
        yield from _outside(f"groups[{position}].members", group.members, count)
        if len(set(group.members)) < len(group.members):  # its time would be split over one twice
            yield Fault(place=f"groups[{position}].members", reason="an operator stands in it twice")
    for position, body in enumerate(analysis.bodies):
        yield from _outside(f"bodies[{position}].operator", [body.operator], count)


def _is_too_large(shape: Iterable[int | None] | None) -> bool:
    """Whether there are more elements than any figure may be: their bytes would be no number of a record."""
    elements = 1.0
    for size in shape or ():
        elements = min(elements * (size or 1), 2 * LARGEST)
    return elements > LARGEST


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


def _of_ranking(analysis: Analysis) -> Iterator[Fault]:
    ranking = analysis.ranking
    if ranking is None:
        return
    named = [("as_good", at) for at in ranking.as_good]
    named += [(f"best_by.{name}", at) for name, at in ranking.best_by.items()]
    named += [("best", at) for at in _if_known(ranking.best)]
    named += [("nearest", at) for at in _if_known(ranking.nearest)]
    count = len(ranking.candidates)
    for key, at in named:
        if at >= count:
            yield Fault(place=f"ranking.{key}", reason=f"there is no candidate {at}, only {count}")
        elif key != "nearest" and not ranking.candidates[at].runs:
            yield Fault(place=f"ranking.{key}", reason=f"candidate {at} cannot run")


def _of_capacity(told: CapacityResult) -> Iterator[Fault]:
    count = len(told.options)
    for position, option in enumerate(told.options):
        place = f"capacity.options[{position}]"
        if option.feasible:
            if option.highest_rate_per_s is None:
                yield Fault(place=f"{place}.highest_rate_per_s", reason="expected that of what keeps the limit")
            if option.count is None or option.count <= told.spare:
                yield Fault(place=f"{place}.count", reason=f"expected more than the {told.spare} that may fail")
    for best in _if_known(told.best):
        if best >= count:
            yield Fault(place="capacity.best", reason=f"there is no option {best}, only {count}")
        elif not told.options[best].feasible:
            yield Fault(place="capacity.best", reason=f"option {best} keeps no limit")
    seen: set[int] = set()
    for position, one in enumerate(told.instances):
        place = f"capacity.instances[{position}]"
        if one.option >= count:
            yield Fault(place=f"{place}.option", reason=f"there is no option {one.option}, only {count}")
        if one.option in seen:  # the page would answer its questions by one of two
            yield Fault(place=f"{place}.option", reason=f"option {one.option} stands there twice")
        seen.add(one.option)
        yield from _not_rising(f"{place}.service", [point.batch for point in one.service])
        yield from _not_rising(f"{place}.loads", [point.rate_per_s for point in one.loads])
        yield from _not_rising(f"{place}.limits", [point.limit_s for point in one.limits])
    yield from _not_rising("capacity.traffic", [point.rate_per_s for point in told.traffic])


def _not_rising(place: str, values: Sequence[float]) -> Iterator[Fault]:
    # Lines are drawn through them and figures found between two of them.
    if any(after <= before for before, after in pairwise(values)):
        yield Fault(place=place, reason="it does not ascend")


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
        return
    if not 1 <= looked_at[0] <= looked_at[-1] <= _LARGEST_BATCH:
        yield Fault(place="kept.batches.looked_at", reason=f"expected batches of 1 to {_LARGEST_BATCH}")
    if len(looked_at) * operators > _MOST_DECIDED:
        reason = f"{len(looked_at)} batches are too many for {operators} operators"
        yield Fault(place="kept.batches.looked_at", reason=reason)
    for name in ("flops", "macs", "bytes_read", "bytes_written"):
        yield from _unequal(f"kept.batches.{name}", getattr(batches, name), operators)
    for position, size in enumerate(batches.odd_sizes):
        yield from _unequal(f"kept.batches.odd_sizes[{position}].shapes", size.shapes, len(looked_at))
    for position, figure in enumerate(batches.odd_figures):
        place = f"kept.batches.odd_figures[{position}]"
        yield from _outside(f"{place}.operator", [figure.operator], operators)
        if figure.square is None:
            yield from _unequal(f"{place}.values", figure.values, len(looked_at))


def _of_growth(analysis: Analysis, batches: Batches) -> Iterator[Fault]:
    """A figure that grows is one at each batch: at the first and the last, as it grows by a line."""
    odd = {(figure.operator, figure.figure) for figure in batches.odd_figures}
    more = _steps(analysis, batches)
    names: tuple[CostFigure, ...] = ("flops", "macs", "bytes_read", "bytes_written")
    for name in names:
        for position, (operator, slope) in enumerate(
            zip(analysis.operators, getattr(batches, name), strict=True)
        ):
            value = getattr(operator, name)
            if value is None or (position, name) in odd:
                continue
            if not all(0 <= value + slope * step <= LARGEST for step in more):
                yield Fault(place=f"kept.batches.{name}[{position}]", reason="the figure grows out of bounds")


def _steps(analysis: Analysis, batches: Batches) -> tuple[int, int]:
    """From the record's own batch to the first and to the last one."""
    base = analysis.model.batch or 0
    return batches.looked_at[0] - base, batches.looked_at[-1] - base


def _of_sizes(analysis: Analysis, batches: Batches) -> Iterator[Fault]:
    """A tensor that grows has a growth for each of its axes, and is one at each batch."""
    shapes, more = dict(_shapes(analysis)), _steps(analysis, batches)
    for position, growth in enumerate(batches.sizes):
        place = f"kept.batches.sizes[{position}].axes"
        for name in growth.tensors:
            shape = shapes.get(name)
            if shape is None:
                continue
            if len(shape) != len(growth.axes):
                reason = f"expected {len(shape)} entries for {name}, got {len(growth.axes)}"
                yield Fault(place=place, reason=reason)
                return
            for step in more:
                grown = [
                    size + slope * step
                    for size, slope in zip(shape, growth.axes, strict=True)
                    if size is not None
                ]
                if min(grown, default=0) < 0 or _is_too_large(grown):
                    yield Fault(place=place, reason=f"the size of {name} grows out of bounds")
    for position, odd in enumerate(batches.odd_sizes):
        if any(map(_is_too_large, odd.shapes)):
            yield Fault(place=f"kept.batches.odd_sizes[{position}].shapes", reason=_TOO_LARGE)


def _shapes(analysis: Analysis) -> Iterator[tuple[str, tuple[int | None, ...]]]:
    """The shape of each tensor that has one; one that is named twice has the shape of its first mention."""
    named = [*analysis.model.inputs]
    for operator in analysis.operators:
        named += [*operator.inputs, *operator.outputs]
    named += analysis.model.outputs
    # Backwards: the first mention comes last and wins in the mapping, as it does when the graph is built again.
    for tensor in reversed(named):
        if tensor.shape is not None:
            yield tensor.name, tensor.shape


def _outside(place: str, indices: Iterable[int], count: int) -> Iterator[Fault]:
    for index in indices:
        if index >= count:  # none is below 0: `Count` holds that
            yield Fault(place=place, reason=f"there is no operator {index}, only {count}")


def _unequal(place: str, row: Sequence[object], length: int) -> Iterator[Fault]:
    if len(row) != length:
        yield Fault(place=place, reason=f"expected {length} entries, got {len(row)}")


def _if_known(index: int | None) -> tuple[int, ...]:
    return () if index is None else (index,)
