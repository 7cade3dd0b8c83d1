"""Whether the inputs have a batch at all: the nodes of a graph, and a state of one axis, are none."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from analyzer.record.analysis import Analysis, TensorInfo
from analyzer.text import first_few

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
    """Whether an input has as many rows as the batch says.

    A batch of one leaves no other trace than an axis of size 1 where a batch stands.
    """
    shapes = [one.shape for one in inputs if _is_fed(one, training=training) and one.shape is not None]
    return batch != 1 or not shapes or any(None in shape or 1 in _batch_axes(shape) for shape in shapes)


def _is_fed(one: Fed, *, training: bool) -> bool:
    """Whether a caller feeds it: a training step's graph reads parameters as well, by names of modules."""
    return not (training and "." in one.name)


def _batch_axes(shape: Sequence[int | None]) -> Sequence[int | None]:
    return shape[: _AXES_OF_SEQUENCES if len(shape) >= _FEWEST_OF_SEQUENCES else _AXES]


def has_batch(analysis: Analysis) -> bool:
    """The same of a record: what was looked at with several batches has one."""
    several = len({row.batch for row in analysis.sweep}) > 1
    model = analysis.model
    return several or may_have_batch(model.batch, model.inputs, training=model.training)


def batch_of(analysis: Analysis) -> int | None:
    """The batch that the figures are of; None where the inputs have none, or it is not known."""
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
    kept = {pair.input for pair in model.state}

    def grows(tensor: TensorInfo) -> bool:
        several = tensor.shape is not None and len(tensor.shape) > 1
        return several and tensor.name not in kept and _is_fed(tensor, training=model.training)

    return first_few([tensor.name for tensor in model.inputs if grows(tensor)])
