"""Data in a record by which its model is predicted again."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from functools import cache
from typing import Any

from analyzer.costs import CostTable
from analyzer.costs.cost import Cost
from analyzer.errors import RecordError
from analyzer.figures import NOT_TIMED, Figure, seen_as
from analyzer.graph import DTYPES, DType, Graph, Node, Shape, Source, Tensor
from analyzer.ort.execution import Session
from analyzer.pipeline.batches import BatchModels
from analyzer.pipeline.measure import Measured
from analyzer.pipeline.predictor import Predictor
from analyzer.pipeline.prepared import PreparedGraph, at_batch, prepare
from analyzer.record.analysis import Analysis, OperatorResult, TensorInfo
from analyzer.record.replay_data import Batches, CostFigure, GroupResult, ReplayData, ReplayRun

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


ShapeOf = Callable[[str, Shape], Shape]


def replay_data_of(analysis: Analysis) -> ReplayData:
    """Return what the record saved for this."""
    if analysis.kept is None:
        raise RecordError(
            "The record holds nothing to decide it anew from.",
            hint="Analyse the model itself with these options.",
        )
    return analysis.kept


def prepared_of(analysis: Analysis) -> PreparedGraph:
    """Return the model at the record's batch."""
    graph = graph_of(analysis)
    return prepare(graph, _table(analysis, graph, None), release=analysis.onnxruntime)


def batch_models_of(analysis: Analysis, prepared: PreparedGraph) -> BatchModels:
    """Return the model at each batch that the record knows."""
    base, batches = analysis.model.batch, replay_data_of(analysis).batches
    if base is None or batches is None:
        return BatchModels(prepared_graphs={} if base is None else {base: prepared})

    def at(batch: int) -> PreparedGraph:
        scaled = ScaledFigures(batches, batch)
        graph = graph_of(analysis, scaled.shape)
        return at_batch(prepared, graph, _table(analysis, graph, scaled))

    prepared_graphs = {batch: prepared if batch == base else at(batch) for batch in batches.looked_at}
    return BatchModels(prepared_graphs=prepared_graphs, between=at if batches.between else None)


def _table(analysis: Analysis, graph: Graph, scaled: ScaledFigures | None) -> CostTable:
    """Return costs as the record has them: counted anew they would be those of this version's rules."""
    costs = []
    for operator in analysis.operators:
        figures = {name: getattr(operator, name) for name in FIGURES}
        if scaled is not None:
            figures = {name: scaled.figure(operator.index, name, figures[name]) for name in FIGURES}
        costs.append(Cost(**figures, basis=operator.basis, note=operator.note))
    return CostTable(graph=graph, costs=tuple(costs))


def graph_of(analysis: Analysis, shapes: ShapeOf = lambda _, shape: shape) -> Graph:
    """Return the graph that a record describes; of the values of constants it has the small ones.

    ``shapes`` gives the shape of a tensor from its name and its shape in the record.

    Raises:
        RecordError: An operator holds subgraphs, which a record does not keep.
    """
    for operator in analysis.operators:
        if operator.op_type in ("If", "Loop", "Scan"):
            raise RecordError(
                f"{operator.name} ({operator.op_type}) holds a subgraph, which a record does not keep.",
                hint="Analyse the model itself with --gpu.",
            )
    return _GraphBuilder(analysis, shapes).graph()


class _GraphBuilder:
    """Builds a graph in which a tensor is one object for its producer and all consumers."""

    def __init__(self, analysis: Analysis, shapes: ShapeOf) -> None:
        replay = replay_data_of(analysis)
        self._model = analysis.model
        self._operators = analysis.operators
        self._shapes = shapes
        self._opsets = replay.opsets
        self._absent = replay.absent_inputs, replay.absent_outputs
        self._values = {name: value for value, names in replay.values for name in names}
        self._steps = replay.steps
        self._tensors: dict[str, Tensor] = {}

    def graph(self) -> Graph:
        inputs = tuple(self._tensor(info, stored=False) for info in self._model.inputs)
        nodes = tuple(map(self._node, self._operators))
        return Graph(
            name=self._model.name,
            nodes=nodes,
            inputs=inputs,
            outputs=tuple(self._tensor(info, stored=info.constant) for info in self._model.outputs),
            initializers=tuple(tensor for tensor in self._tensors.values() if tensor.initializer),
            opsets=self._opsets,
            carried={pair.input: pair.output for pair in self._model.state},
            ir_version=self._model.ir_version,
            problems=self._model.problems,
            empty_inputs=self._model.empty_inputs,
        )

    def _node(self, operator: OperatorResult) -> Node:
        source = operator.source
        absent_inputs, absent_outputs = (absent.get(operator.index, ()) for absent in self._absent)
        inputs = [self._tensor(info, stored=info.constant) for info in operator.inputs]
        outputs = [self._tensor(info, stored=False) for info in operator.outputs]
        return Node(
            index=operator.index,
            name=operator.name,
            op_type=operator.op_type,
            domain=operator.domain,
            version=self._opsets.get(operator.domain, 1),
            inputs=_with_left_out(inputs, absent_inputs),
            outputs=_with_left_out(outputs, absent_outputs),
            # JSON has arrays where the graph has tuples, which rules compare with tuples.
            attributes={name: _as_tuple(value) for name, value in operator.attributes.items()},
            module=operator.module,
            module_class=operator.module_class,
            source=Source(file=source.file, line=source.line, code=source.code) if source else None,
            phase=operator.phase,
            steps=self._steps.get(operator.index),
        )

    def _tensor(self, info: TensorInfo, *, stored: bool) -> Tensor:
        """Return a tensor: stored where it is constant and the first to name it does not write it."""
        tensor = self._tensors.get(info.name)
        if tensor is None:
            shape = self._shapes(info.name, info.shape)
            tensor = Tensor(
                name=info.name,
                shape=shape,
                dtype=DTYPES.get(info.dtype) or DType(name=info.dtype, bits=None),
                constant=info.constant,
                initializer=stored,
                value=_value(self._values.get(info.name), info.dtype, shape),
            )
            self._tensors[info.name] = tensor
        return tensor


def _with_left_out(tensors: list[Tensor], positions: tuple[int, ...]) -> tuple[Tensor | None, ...]:
    every: list[Tensor | None] = [*tensors]
    for position in positions:  # ascending, so that each insertion finds its final place
        every.insert(position, None)
    return tuple(every)


def _value(elements: tuple[Any, ...] | None, dtype: str, shape: Shape) -> Any:
    """Return the array of a small constant; None where the record has no elements that fill this shape."""
    if elements is None or shape is None:
        return None
    import numpy as np

    # NumPy has no bfloat16 or float8: what decides a placement is the number, which float32 holds.
    kind = np.dtype(dtype) if dtype in np.sctypeDict else np.dtype("float32")
    try:
        # "inf" and "nan" are texts in the record.
        array = np.array(
            [float(number) if isinstance(number, str) else number for number in elements], dtype=kind
        )
    except (ArithmeticError, TypeError, ValueError):  # of a foreign record: no elements of this type
        return None
    sizes = [size for size in shape if size is not None]
    return array.reshape(sizes) if len(sizes) == len(shape) and array.size == np.prod(sizes) else None


def _as_tuple(value: Any) -> Any:
    return tuple(map(_as_tuple, value)) if isinstance(value, (list, tuple)) else value


# Options by which a record is predicted again: fields of `Options` and of `ReplayData`.
REPLAYED = ("precision", "cpu", "threads", "slo_s", "pins", "utilisation", "fixed", "pricing", "regions")
# In elements. Larger constants decide neither where an operator runs nor what it is fused with.
_SMALL_VALUE = 16


def write_replay_data(
    predictor: Predictor,
    prepared: PreparedGraph,
    model: BatchModels,
    batch: int | None,
    measured: Mapping[int, Measured],
) -> ReplayData:
    """Return what the record holds for a replay besides its operators."""
    graph, by_batch = prepared.graph, model.prepared_graphs
    return ReplayData(
        **replay_of_question(predictor, measured),
        opsets=dict(graph.opsets),
        values=_small_values(graph),
        absent_inputs=_holes((node.index, node.inputs) for node in graph.nodes),
        absent_outputs=_holes((node.index, node.outputs) for node in graph.nodes),
        batches=growth_of(by_batch, batch, between=model.between is not None),
        steps={node.index: node.steps for node in graph.nodes if node.steps is not None},
    )


def replay_of_question(predictor: Predictor, measured: Mapping[int, Measured]) -> dict[str, Any]:
    """Return the fields of ``ReplayData`` that depend on the question and not on the model."""
    return {
        **{name: getattr(predictor.options, name) for name in REPLAYED},
        "instances": tuple(predictor.offers.own),
        "runs": tuple(run for batch, here in sorted(measured.items()) for run in _runs(batch, here)),
    }


def _runs(batch: int, here: Measured) -> Iterator[ReplayRun]:
    """Yield what was measured at a batch."""
    sides: tuple[tuple[Session, Figure | None], ...] = (("cpu", here.cpu_latency), ("cuda", here.cuda_latency))
    for session, latency in sides:
        if latency is None:
            continue
        groups, times = getattr(here, f"{session}_groups"), getattr(here, f"{session}_times")
        yield ReplayRun(
            batch=batch,
            session=session,
            latency_s=latency.value,
            low_s=latency.low,
            high_s=latency.high,
            groups=tuple(
                seen_as(
                    GroupResult,
                    group,
                    **({**NOT_TIMED, "origin": "measured"} if time is None else time.keys("time_s")),
                )
                for group, time in zip(groups, times, strict=True)
            ),
            busy=session == "cpu" and here.busy,
        )


def _small_values(graph: Graph) -> tuple[tuple[tuple[Any, ...], tuple[str, ...]], ...]:
    # A large model has hundreds of equal constants (axes, a scale): one row for all. The key is the text, since
    # 1, 1.0 and True are equal and must stay apart, and -0.0 and 0.0 likewise.
    named: dict[str, tuple[tuple[Any, ...], list[str]]] = {}
    tensors = {tensor.name: tensor for tensor in graph.inputs}
    for node in graph.nodes:  # constants where they are first read
        for one in (*node.inputs, *node.outputs):
            if one is not None:
                tensors.setdefault(one.name, one)
    for tensor in tensors.values():
        value = tensor.value
        if value is not None and value.size <= _SMALL_VALUE and value.dtype.kind in "fiubV":
            # ml_dtypes' bfloat16 and float8 are of NumPy's kind V: their own tolist() gives no plain numbers.
            plain = value.astype("float32") if value.dtype.kind == "V" else value
            elements = tuple(
                # JSON has no number for these.
                str(number) if isinstance(number, float) and not math.isfinite(number) else number
                for number in plain.reshape(-1).tolist()
            )
            named.setdefault(repr(elements), (elements, []))[1].append(tensor.name)
    return tuple((elements, tuple(names)) for elements, names in named.values())


def _holes(rows: Iterable[tuple[int, Sequence[Tensor | None]]]) -> dict[int, tuple[int, ...]]:
    """Return the positions of tensors that operators leave out, by operator."""
    holes = {index: tuple(at for at, tensor in enumerate(tensors) if tensor is None) for index, tensors in rows}
    return {index: positions for index, positions in holes.items() if positions}
