"""The growth of a model with the batch: read from its graphs, applied to a record's figures."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from functools import cache

from analyzer.graph import Shape
from analyzer.pipeline.prepared import PreparedGraph
from analyzer.record.replay_data import Batches, CostFigure

FIGURES: tuple[CostFigure, ...] = ("flops", "macs", "bytes_read", "bytes_written")
ByBatch = tuple[int, ...]  # one value for each batch


def growth_of(
    prepared_graphs: Mapping[int, PreparedGraph], base: int | None, *, between: bool
) -> Batches | None:
    """Return all figures and shapes at each batch; None where there is nothing but the record's own batch.

    ``between`` says whether the model runs at every batch between them.

    Batches at which the model has other operators, or at which other figures are known, are left out.
    """
    if base is None or base not in prepared_graphs:
        return None

    def operators(prepared: PreparedGraph) -> list[tuple[object, ...]]:
        """Return what has to be the same: types of operators, and which of their figures are known."""
        known = ([getattr(cost, name) is None for name in FIGURES] for cost in prepared.table.costs)
        rows = zip(prepared.graph.nodes, prepared.table.costs, known, strict=True)
        return [(node.op_type, cost.basis, *unknown) for node, cost, unknown in rows]

    own = operators(prepared_graphs[base])
    alike = {
        batch: prepared
        for batch, prepared in sorted(prepared_graphs.items())
        if batch == base or operators(prepared) == own
    }
    if len(alike) < 2:
        return None
    # Layers that are alike have the same row.
    rows: dict[ByBatch, int] = {}
    tables = {name: tuple(rows.setdefault(row, len(rows)) for row in _figures(alike, name)) for name in FIGURES}
    sizes = _sizes(alike, base)
    linear = all(_grows_by_lines(shapes, tuple(alike)) for shapes, _ in sizes)
    return Batches(
        looked_at=tuple(alike),
        between=between and len(alike) == len(prepared_graphs) and linear,
        sizes=sizes,
        rows=tuple(rows),
        **tables,
    )


def _figures(prepared_graphs: Mapping[int, PreparedGraph], name: CostFigure) -> Iterator[ByBatch]:
    columns = (
        [getattr(cost, name) or 0 for cost in prepared.table.costs] for prepared in prepared_graphs.values()
    )
    return zip(*columns, strict=True)


def _sizes(
    prepared_graphs: Mapping[int, PreparedGraph], base: int
) -> tuple[tuple[tuple[Shape, ...], tuple[str, ...]], ...]:
    tensors = [prepared.graph.tensors for prepared in prepared_graphs.values()]
    grown: dict[tuple[Shape, ...], list[str]] = {}
    for name, tensor in prepared_graphs[base].graph.tensors.items():
        shapes = tuple(at_batch[name].shape if name in at_batch else None for at_batch in tensors)
        if any(shape != tensor.shape for shape in shapes):
            grown.setdefault(shapes, []).append(name)
    return tuple((shapes, tuple(names)) for shapes, names in grown.items())


def _grows_by_lines(shapes: Sequence[Shape], batches: ByBatch) -> bool:
    """Tell whether each axis is a constant and a multiple of the batch, so that it is known between batches."""
    if any(shape is None or None in shape or len(shape) != len(shapes[0] or ()) for shape in shapes):
        return False
    for row in zip(*(shape or () for shape in shapes), strict=True):
        sizes = [size or 0 for size in row]
        slope, rest = divmod(sizes[-1] - sizes[0], batches[-1] - batches[0])
        if rest or any(
            size != sizes[0] + slope * (batch - batches[0]) for size, batch in zip(sizes, batches, strict=True)
        ):
            return False
    return True


class ScaledFigures:
    """A record's figures at another batch.

    The batch is one that was looked at, or any between if those are known.
    """

    def __init__(self, batches: Batches, batch: int) -> None:
        at = batches.looked_at.index(batch) if batch in batches.looked_at else None

        def here(row: ByBatch) -> int:
            return row[at] if at is not None else _interpolated(row, batches.looked_at, batch)

        def grown(shapes: Sequence[Shape]) -> Shape:
            if at is not None:
                return shapes[at]
            return tuple(here(axis) for axis in zip(*(shape or () for shape in shapes), strict=True))

        rows = [here(row) for row in batches.rows]
        self._figures = {name: [rows[row] for row in getattr(batches, name)] for name in FIGURES}
        grown_shapes = [(grown(shapes), names) for shapes, names in batches.sizes]
        self._shapes = {name: shape for shape, names in grown_shapes for name in names}

    def shape(self, name: str, shape: Shape) -> Shape:
        """Return the shape of a tensor that has this one at the record's batch."""
        return self._shapes.get(name, shape)

    def figure(self, operator: int, name: CostFigure, value: int | None) -> int | None:
        """Return a figure of an operator that is this one at the record's batch; None stays unknown."""
        return None if value is None else self._figures[name][operator]


def _interpolated(values: ByBatch, batches: ByBatch, batch: int) -> int:
    """Return a figure between two batches that were looked at.

    Exact where it is a square of the batch with a multiple and a constant, as what an elementwise operator
    reads of ``[B, B]`` and a weight. Else the line through the batches before or after it, the smaller of both:
    so what grows until a table is read whole, or differs at batch 1 alone, is exact as well.
    """
    curve = _quadratic(values, batches)
    if curve is not None:
        result = (curve[0] * batch + curve[1]) * batch + curve[2]
        if result.denominator == 1:
            return int(result)
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


@cache  # needed again for each batch
def _quadratic(values: ByBatch, batches: ByBatch) -> tuple[Fraction, Fraction, Fraction] | None:
    """Return coefficients of the square, the multiple and the constant; None where they do not give all."""
    if len(batches) < _POINTS_OF_A_PROOF:
        # A multiple of the square alone is a proof by two points.
        square = Fraction(values[-1], batches[-1] ** 2)
        points = zip(values, batches, strict=True)
        alone = all(square * batch**2 == value for value, batch in points)
        return (square, Fraction(0), Fraction(0)) if alone else None
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
