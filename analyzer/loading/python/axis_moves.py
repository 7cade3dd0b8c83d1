"""Axes that a model moves before a layer reads its input: from the layer's shape back to the input's."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from analyzer.loading.python.layer_inputs import TriedSizes


@dataclass(frozen=True, slots=True)
class AxisMove:
    """One move: two axes swapped, all put in an order, one of size 1 put in or taken out."""

    kind: Literal["swap", "order", "insert", "remove"]
    axes: tuple[int, ...]

    def undone(self, sizes: TriedSizes) -> TriedSizes | None:
        """The shape before the move, of the one after it; None where no shape becomes that one."""
        # An axis is counted among those of the longer of the two shapes.
        rank = len(sizes) + (self.kind == "remove")
        if not all(-rank <= axis < rank for axis in self.axes):
            return None
        axes = [axis % rank for axis in self.axes]
        before = list(sizes)
        match self.kind:
            case "swap":
                first, second = axes
                before[first], before[second] = before[second], before[first]
            case "order":
                if sorted(axes) != list(range(rank)):
                    return None
                for place, axis in enumerate(axes):
                    before[axis] = sizes[place]
            case "insert":
                if before.pop(axes[0]) != 1:
                    return None
            case "remove":
                before.insert(axes[0], 1)
        return tuple(before)


def before_moves(sizes: TriedSizes, moves: Iterable[AxisMove]) -> TriedSizes | None:
    """The shape of what these moves, first to last, turn into one of these sizes; None where there is none."""
    found: TriedSizes | None = sizes
    for move in reversed(tuple(moves)):
        found = None if found is None else move.undone(found)
    return found
