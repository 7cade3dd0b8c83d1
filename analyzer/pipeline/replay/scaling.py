"""How a model grows with the batch: found from its prepared graphs, and applied to a record's own figures."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from functools import cache
from operator import attrgetter

from analyzer.costs.cost import Cost
from analyzer.graph import Shape
from analyzer.pipeline.prepared import PreparedGraph
from analyzer.record.replay_data import Batches, CostFigure, OddFigure, SizeGrowth

FIGURES: tuple[CostFigure, ...] = ("flops", "macs", "bytes_read", "bytes_written")
_figures_of = attrgetter(*FIGURES)
ByBatch = tuple[int, ...]  # one value for each batch


def growth_of(
    prepared_graphs: Mapping[int, PreparedGraph], base: int | None, *, between: bool
) -> Batches | None:
    """The growth of everything, exact at each batch; None where there is nothing but the record's own batch.

    Batches at which the model has other operators, or at which other figures are known, are left out.

    Args:
        prepared_graphs: The model at each batch.
        base: The record's own batch.
        between: Whether the model runs at every batch between them.
    """
    if base is None or base not in prepared_graphs:
        return None
    alike = {
        batch: prepared
        for batch, prepared in sorted(prepared_graphs.items())
        if batch == base or _same_operators(prepared, prepared_graphs[base])
    }
    if len(alike) < 2:
        return None
    batches = tuple(alike)
    rows = {name: [*_figures(alike, name)] for name in FIGURES}
    # Whole numbers, compared exactly: a record must give another batch the figures that the model itself gives.
    # Many layers have the same row.
    slope_of = {row: _slope(row, batches) for operators in rows.values() for row in set(operators)}
    slopes = {name: [slope_of[row] for row in operators] for name, operators in rows.items()}
    odd = tuple(
        _odd_figure(index, name, rows[name][index], batches)
        for name in FIGURES
        for index, slope in enumerate(slopes[name])
        if slope is None
    )
    sizes, odd_sizes = _sizes(alike, base)
    return Batches(
        looked_at=batches,
        between=between and len(alike) == len(prepared_graphs) and not odd_sizes,
        sizes=sizes,
        odd_sizes=odd_sizes,
        odd_figures=odd,
        **{name: tuple(slope or 0 for slope in figure_slopes) for name, figure_slopes in slopes.items()},
    )


def _same_operators(prepared: PreparedGraph, other: PreparedGraph) -> bool:
    if [node.op_type for node in prepared.graph.nodes] != [node.op_type for node in other.graph.nodes]:
        return False
    return list(map(_known, prepared.table.costs)) == list(map(_known, other.table.costs))


def _known(cost: Cost) -> tuple[object, ...]:
    return (cost.basis, *[figure is None for figure in _figures_of(cost)])


def _figures(prepared_graphs: Mapping[int, PreparedGraph], name: CostFigure) -> Iterator[ByBatch]:
    columns = (
        [getattr(cost, name) or 0 for cost in prepared.table.costs] for prepared in prepared_graphs.values()
    )
    return zip(*columns, strict=True)


def _slope(row: ByBatch, batches: Sequence[int]) -> int | None:
    """The growth for each inference more; None where there is no such whole number."""
    slope, rest = divmod(row[-1] - row[0], batches[-1] - batches[0])
    start = row[0] - slope * batches[0]
    exact = not rest and all(value == start + slope * batch for value, batch in zip(row, batches, strict=True))
    return slope if exact else None


def _odd_figure(operator: int, figure: CostFigure, row: ByBatch, batches: Sequence[int]) -> OddFigure:
    # Where two inputs of a product both grow, it is a multiple of the square: one number for all batches.
    square = _square(row, batches)
    if square is None:
        return OddFigure(operator=operator, figure=figure, values=tuple(row))
    return OddFigure(operator=operator, figure=figure, square=square)


def _square(row: ByBatch, batches: Sequence[int]) -> int | None:
    """What the figure is of the square of the batch, where that is all there is to it."""
    square, rest = divmod(row[-1], batches[-1] ** 2)
    exact = not rest and all(value == square * batch**2 for value, batch in zip(row, batches, strict=True))
    return square if exact else None


def _sizes(
    prepared_graphs: Mapping[int, PreparedGraph], base: int
) -> tuple[tuple[SizeGrowth, ...], dict[str, tuple[Shape, ...]]]:
    batches = tuple(prepared_graphs)
    tensors = {batch: prepared.graph.tensors for batch, prepared in prepared_graphs.items()}
    # By growth, not by tensor: most tensors of a model grow by one along their first axis, and share an entry.
    alike: dict[tuple[int, ...], list[str]] = {}
    odd: dict[str, tuple[Shape, ...]] = {}
    slopes_of = cache(_axis_slopes)  # layers that are alike have the same shapes
    for name, tensor in tensors[base].items():
        shapes = tuple(
            tensors[batch][name].shape if name in tensors[batch] else None for batch in prepared_graphs
        )
        if all(shape == tensor.shape for shape in shapes):
            continue
        axes = slopes_of(shapes, batches)
        if axes is not None:
            alike.setdefault(axes, []).append(name)
        else:
            odd[name] = shapes
    sizes = tuple(SizeGrowth(axes=axes, tensors=tuple(names)) for axes, names in alike.items())
    return sizes, odd


def _axis_slopes(shapes: tuple[Shape, ...], batches: tuple[int, ...]) -> tuple[int, ...] | None:
    if len({None if shape is None else len(shape) for shape in shapes}) > 1:
        return None
    slopes = []
    for sizes in zip(*(shape or () for shape in shapes), strict=True):
        if None in sizes:
            return None
        slope = _slope(tuple([size or 0 for size in sizes]), batches)
        if slope is None:
            return None
        slopes.append(slope)
    return tuple(slopes)


class ScaledFigures:
    """A record's figures at another batch.

    Args:
        batches: What the record holds.
        base: The record's own batch.
        batch: The one wanted: one that was looked at, or any between if those are known.
    """

    def __init__(self, batches: Batches, base: int, batch: int) -> None:
        self._batch, self._looked_at = batch, batches.looked_at
        self._more = batch - base
        self._square = batch**2
        self._at = batches.looked_at.index(batch) if batch in batches.looked_at else None
        self._slopes: Mapping[str, tuple[int, ...]] = {name: getattr(batches, name) for name in FIGURES}
        self._odd = {(odd.operator, odd.figure): odd for odd in batches.odd_figures}
        self._axes = {name: size.axes for size in batches.sizes for name in size.tensors}
        at = self._at
        self._shapes = {} if at is None else {name: row[at] for name, row in batches.odd_sizes.items()}

    def shape(self, name: str, shape: Shape) -> Shape:
        """The shape of a tensor that has this one at the record's batch."""
        if name in self._shapes:
            return self._shapes[name]
        axes = self._axes.get(name)
        if axes is None or shape is None:
            return shape
        grown = tuple(
            None if size is None else size + slope * self._more for size, slope in zip(shape, axes, strict=True)
        )
        if min((size for size in grown if size is not None), default=0) < 0:
            raise ValueError(f"the size of {name} is below 0 at batch {self._batch}")
        return grown

    def figure(self, operator: int, name: CostFigure, value: int | None) -> int | None:
        """A figure of an operator that is this one at the record's batch; None stays unknown."""
        if value is None:
            return None
        odd = self._odd.get((operator, name))
        if odd is None:
            return value + self._slopes[name][operator] * self._more
        if odd.square is not None:
            return odd.square * self._square
        if self._at is not None:
            return odd.values[self._at]
        return _interpolated(odd.values, self._looked_at, self._batch)


def _interpolated(values: ByBatch, batches: Sequence[int], batch: int) -> int:
    """A figure between two batches that were looked at.

    Exact where it is a square of the batch beside a multiple and a constant, as what an elementwise operator
    reads of ``[B, B]`` and a weight. Else the line through the batches before or after it, the smaller of both:
    so what grows until a table is read whole, or differs at batch 1 alone, is exact as well.
    """
    curve = _quadratic(values, tuple(batches))
    if curve is not None:
        found = (curve[0] * batch + curve[1]) * batch + curve[2]
        if found.denominator == 1:
            return int(found)
    after = bisect_left(batches, batch)
    ends = sorted((values[after - 1], values[after]))
    pairs = [
        (max(0, after - 2), max(1, after - 1)),
        (min(after, len(batches) - 2), min(after + 1, len(batches) - 1)),
    ]
    lines = (
        values[one] + (values[two] - values[one]) * (batch - batches[one]) // (batches[two] - batches[one])
        for one, two in pairs
    )
    return min(max(min(lines), ends[0]), ends[1])


@cache  # asked again for each batch, and layers that are alike have the same values
def _quadratic(values: ByBatch, batches: ByBatch) -> tuple[Fraction, Fraction, Fraction] | None:
    """Coefficients of the square, the multiple and the constant; None where they do not give all values."""
    if len(batches) < _POINTS_OF_A_PROOF:
        return None
    (x0, x1, x2), (y0, y1, y2) = ((row[0], row[len(row) // 2], row[-1]) for row in (batches, values))
    first, second = Fraction(y1 - y0, x1 - x0), Fraction(y2 - y1, x2 - x1)
    square = (second - first) / (x2 - x0)
    multiple = first - square * (x0 + x1)
    constant = y0 - (square * x0 + multiple) * x0
    exact = all(
        (square * batch + multiple) * batch + constant == value
        for batch, value in zip(batches, values, strict=True)
    )
    return (square, multiple, constant) if exact else None


# Through three points there is always one.
_POINTS_OF_A_PROOF = 4
