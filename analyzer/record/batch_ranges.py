"""Batches in a record: whether inputs have one, who is faster in which range, how sure the crossover is."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Protocol

from analyzer.record.analysis import Analysis, TensorInfo
from analyzer.record.outcome import BatchRange, VerdictResult
from analyzer.text import first_few, listed

# So many axes of an input may be its batch: the first, and where steps come first the second. Of two axes the
# second is that of features.
_AXES, _AXES_OF_SEQUENCES, _FEWEST_OF_SEQUENCES = 1, 2, 3


class Fed(Protocol):
    """An input, of a record or of a graph."""

    @property
    def name(self) -> str:
        """As the graph has it."""

    @property
    def shape(self) -> Sequence[int | None] | None:
        """None where it is not known."""


def may_have_batch(batch: int | None, inputs: Iterable[Fed], *, training: bool) -> bool:
    """Return whether an input has as many rows as the batch says.

    A batch of one leaves no other trace than an axis of size 1 where a batch stands.
    """
    shapes = [one.shape for one in inputs if _is_fed(one, training=training) and one.shape is not None]
    return batch != 1 or not shapes or any(None in shape or 1 in _batch_axes(shape) for shape in shapes)


def _is_fed(one: Fed, *, training: bool) -> bool:
    """Return whether a caller feeds it: a training step's graph also reads parameters, by module names."""
    return not (training and "." in one.name)


def _batch_axes(shape: Sequence[int | None]) -> Sequence[int | None]:
    return shape[: _AXES_OF_SEQUENCES if len(shape) >= _FEWEST_OF_SEQUENCES else _AXES]


def has_batch(analysis: Analysis) -> bool:
    """Return the same of a record: what was looked at with several batches has one."""
    several = len({row.batch for row in analysis.sweep}) > 1
    model = analysis.model
    return several or may_have_batch(model.batch, model.inputs, training=model.training)


def batch_of(analysis: Analysis) -> int | None:
    """Return the batch that the figures are of; None where the inputs have none, or it is not known."""
    return analysis.model.batch if has_batch(analysis) else None


def at_batch(analysis: Analysis) -> str:
    """`` at batch 8``; empty where there is none."""
    batch = batch_of(analysis)
    return f" at batch {batch}" if batch is not None else ""


def sizes_that_grow(analysis: Analysis) -> str:
    """``x and edge_index``: the inputs whose sizes are the amount of work where no batch is; empty if unknown.

    What has one axis, such as a state, has the size that the weights have.
    """
    if has_batch(analysis):
        return ""
    model = analysis.model
    state = {pair.input for pair in model.state}

    def grows(tensor: TensorInfo) -> bool:
        several = tensor.shape is not None and len(tensor.shape) > 1
        return several and tensor.name not in state and _is_fed(tensor, training=model.training)

    return first_few([tensor.name for tensor in model.inputs if grows(tensor)])


SIZE_OF_ONE = "1 is assumed"
"""Behind the name of a size that only the run decides."""

ONE_TRIP = "the number of trips is not known before the run: the body is counted once"
"""Of a loop whose end the data decide."""

WHOLE_SEQUENCES = "its times are those of whole sequences"
"""Of a recurrence whose lengths nobody gave."""


DECIDE_SIZES = "decide the size of"
"""In a note of the model that tells which inputs decide sizes, and how these are known."""


def is_least(note: str) -> bool:
    """Return whether a count with this note is "at least" so much."""
    return SIZE_OF_ONE in note or ONE_TRIP in note


def without_trips(note: str) -> bool:
    """Return whether a note says that nobody knows how often something is done."""
    return ONE_TRIP in note


def without_islands(ranges: Sequence[BatchRange]) -> tuple[tuple[BatchRange, ...], tuple[BatchRange, ...]]:
    """Return ranges with single batches joined to what is the same on either side of them and those batches.

    The one batch that was run is known better, or worse, than its neighbours: that it alone is certain says
    nothing about where the faster device changes.
    """
    joined: list[BatchRange] = []
    islands = []
    for number, one in enumerate(ranges):
        after = ranges[number + 1] if number + 1 < len(ranges) else None
        before = joined[-1] if joined else None
        if before is not None and after is not None and _is_island(one, before, after):
            islands.append(one)
            joined[-1] = replace(before, last=one.last)
        elif before is not None and before.device == one.device:
            joined[-1] = replace(before, last=one.last)
        else:
            joined.append(one)
    return tuple(joined), tuple(islands)


def _is_island(one: BatchRange, before: BatchRange, after: BatchRange) -> bool:
    return one.first == one.last and before.device == after.device != one.device


def crossover_interval(ranges: Sequence[BatchRange]) -> tuple[int, int | None] | None:
    """From which batch on the GPU may be faster, and from which it is certain to be; None where it never may.

    The second is None where no batch up to the largest is certain.
    """
    ranges, _ = without_islands(ranges)
    if not ranges or ranges[-1].device == "cpu":
        return None
    sure = ranges[-1].first if ranges[-1].device == "gpu" else None
    may = ranges[-1].first
    for one in reversed(ranges):
        if one.device == "cpu":
            break
        may = one.first
    return may, sure


# Batches below this are told as they are.
_EXACT_BELOW = 100


def about(batch: int) -> str:
    """Return batch at that the faster device changes, no surer than the predictions between which it was found.

    Two significant digits: where the intervals of two devices begin to overlap is known no better.
    """
    if batch < _EXACT_BELOW:
        return str(batch)
    unit = 10 ** (len(str(batch)) - 2)
    return f"about {(batch + unit // 2) // unit * unit}"


def about_batch(batch: int) -> str:
    """``batch 12``, ``about batch 3200``."""
    return f"batch {batch}" if batch < _EXACT_BELOW else about(batch).replace("about", "about batch")


def interval_words(verdict: VerdictResult) -> str:
    """``12 to 64``, ``from 12``: where the crossover lies; empty where that is one batch or unknown."""
    result = crossover_interval(verdict.ranges)
    if result is None or result[0] == result[1]:
        return ""
    may, sure = result
    return f"{about(may)} to {about(sure)}" if sure is not None else f"from {about(may)}"


def who_wins(
    ranges: Sequence[BatchRange], even: int | None, *, cpu: str = "the CPU", gpu: str = "the GPU"
) -> str:
    """Return who is faster over the batches, in the words of the verdict.

    Args:
        ranges: From the smallest batch to the largest, at least one.
        even: The batch from which the GPU is expected to be faster.
        cpu: What to call it.
        gpu: What to call it.
    """
    names = {"cpu": f"{cpu} wins", "gpu": f"{gpu} wins", "either": "either may win"}
    ranges, islands = without_islands(ranges)
    alone = "".join(
        f"; at {one.first}, which is known {'less' if one.device == 'either' else 'more'} closely, "
        f"{names[one.device]}"
        for one in islands
    )
    if len(ranges) == 1:
        return _sentence(f"{_everywhere(ranges[0], even, cpu=cpu, gpu=gpu)}{alone}")
    parts = []
    for number, one in enumerate(ranges):
        if number == 0:
            where = f"at batch {one.last}" if one.first == one.last else f"up to {about_batch(one.last)}"
        elif number == len(ranges) - 1:
            # The largest batch that was looked at is no estimate.
            where = f"from {about_batch(one.first) if one.first < one.last else f'batch {one.first}'} on"
        else:
            where = (
                f"at {about(one.first)}"
                if about(one.first) == about(one.last)
                else f"from {about(one.first)} to {about(one.last)}"
            )
        within = one.device == "either" and even is not None and one.first < even <= one.last
        odds = f" (even odds at {about(even)})" if within and even is not None else ""
        parts.append(f"{names[one.device]} {where}{odds}")
    return _sentence(f"{listed(parts)}{alone}")


def _everywhere(one: BatchRange, even: int | None, *, cpu: str, gpu: str) -> str:
    if one.first == one.last:
        winner = {"cpu": f"{cpu} wins", "gpu": f"{gpu} wins", "either": "either may win"}[one.device]
        return f"{winner} at batch {one.first}, the only one that could be looked at"
    where = f"from {one.first} to {one.last}"
    if one.device == "either":
        expected = f"{cpu if even is None else gpu} is expected to"
        if even is not None and even > one.first:
            expected += f" from {about_batch(even)} on"
        return f"either may win at every batch {where}; {expected}"
    return f"{gpu} wins at {'no' if one.device == 'cpu' else 'every'} batch {where}"


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."
