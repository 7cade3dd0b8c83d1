"""A record -> the graph that it describes, with its costs, placed and grouped again, at any batch it knows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from analyzer.costs import CostTable
from analyzer.costs.cost import Cost
from analyzer.errors import RecordError
from analyzer.graph import DTYPES, DType, Graph, Node, Shape, Source, Tensor
from analyzer.pipeline.batches import BatchModels
from analyzer.pipeline.prepared import PreparedGraph, at_batch, prepare
from analyzer.pipeline.replay.scaling import FIGURES, ScaledFigures
from analyzer.record.analysis import Analysis, OperatorResult, TensorInfo
from analyzer.record.replay_data import ReplayData

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
