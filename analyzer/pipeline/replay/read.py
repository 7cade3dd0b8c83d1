"""A record -> the graph that it describes, with its costs, placed and grouped again, at any batch it knows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from analyzer.costs import CostTable
from analyzer.costs.cost import Cost
from analyzer.errors import RecordError
from analyzer.graph import DTYPES, DType, Graph, Node, Shape, Source, Tensor
from analyzer.ort.fusion import predicted_groups
from analyzer.ort.placement import place
from analyzer.pipeline.batches import BatchModels
from analyzer.pipeline.prepared import PreparedGraph, at_batch
from analyzer.pipeline.replay.scaling import FIGURES, Grown
from analyzer.record.analysis import Analysis, OperatorResult, TensorInfo
from analyzer.record.replay_data import Absent, Batches

Shapes = Callable[[str, Shape], Shape]


def prepared_of(analysis: Analysis) -> PreparedGraph:
    """The model at the record's batch.

    Raises:
        RecordError: An operator holds subgraphs, which a record does not keep.
    """
    graph = graph_of(analysis)
    placement = place(graph)
    return PreparedGraph(
        graph=graph,
        table=_table(analysis, graph, None),
        placement=placement,
        cpu_groups=predicted_groups(graph, "cpu", None),
        cuda_groups=predicted_groups(graph, "cuda", placement),
    )


def batch_models_of(analysis: Analysis, prepared: PreparedGraph) -> BatchModels:
    """The model at each batch that the record knows; that of the record alone in an old one."""
    base = analysis.model.batch
    batches = analysis.kept.batches if analysis.kept is not None else None
    if base is None or batches is None:
        return BatchModels(prepared_graphs={} if base is None else {base: prepared})

    def at(batch: int) -> PreparedGraph:
        return _at(analysis, batches, base, batch, prepared)

    prepared_graphs = {batch: prepared if batch == base else at(batch) for batch in batches.looked_at}
    return BatchModels(prepared_graphs=prepared_graphs, between=at if batches.between else None)


def _at(analysis: Analysis, batches: Batches, base: int, batch: int, prepared: PreparedGraph) -> PreparedGraph:
    grown = Grown(batches, base, batch)
    graph = graph_of(analysis, grown.shape)
    return at_batch(prepared, graph, _table(analysis, graph, grown))


def _table(analysis: Analysis, graph: Graph, grown: Grown | None) -> CostTable:
    return CostTable(graph=graph, costs=tuple(_cost(item, grown) for item in analysis.operators))


def _cost(item: OperatorResult, grown: Grown | None) -> Cost:
    figures = {name: getattr(item, name) for name in FIGURES}
    if grown is not None:
        figures = {name: grown.figure(item.index, name, figures[name]) for name in FIGURES}
    return Cost(**figures, basis=_basis(item.basis), note=item.note)


def _basis(text: str) -> Any:
    return text if text in ("exact", "modelled") else "unknown"


def graph_of(analysis: Analysis, shapes: Shapes = lambda _, shape: shape) -> Graph:
    """The graph that a record describes; of the values of constants it has the small ones.

    Args:
        analysis: The record.
        shapes: The shape of a tensor, from its name and its shape in the record.

    Raises:
        RecordError: An operator holds subgraphs, which a record does not keep.
    """
    for item in analysis.operators:
        if item.op_type in ("If", "Loop", "Scan"):
            raise RecordError(
                f"{item.name} ({item.op_type}) holds a subgraph, which a record does not keep.",
                hint="Analyse the model itself with --gpu.",
            )
    return _Rebuilt(analysis, shapes).graph()


class _Rebuilt:
    """Keeps a tensor one object for its producer and all consumers."""

    def __init__(self, analysis: Analysis, shapes: Shapes) -> None:
        kept = analysis.kept
        self._model = analysis.model
        self._operators = analysis.operators
        self._shapes = shapes
        self._opsets: Mapping[str, int] = kept.opsets if kept else {"ai.onnx": analysis.model.opset}
        self._absent = {item.operator: item for item in kept.absent} if kept else {}
        self._values = {name: item.value for item in kept.values for name in item.tensors} if kept else {}
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
        )

    def _node(self, item: OperatorResult) -> Node:
        where = item.source
        absent = self._absent.get(item.index, Absent(operator=item.index))
        inputs = [self._tensor(info, stored=info.constant) for info in item.inputs]
        outputs = [self._tensor(info, stored=False) for info in item.outputs]
        return Node(
            index=item.index,
            name=item.name,
            op_type=item.op_type,
            domain=item.domain,
            version=self._opsets.get(item.domain, 1),
            inputs=_with_holes(inputs, absent.inputs),
            outputs=_with_holes(outputs, absent.outputs),
            attributes={name: _as_tuple(value) for name, value in item.attributes.items()},
            module=item.module,
            module_class=item.module_class,
            source=Source(file=where.file, line=where.line, code=where.code) if where else None,
            phase=item.phase,
        )

    def _tensor(self, info: TensorInfo, *, stored: bool) -> Tensor:
        """A tensor is stored where it is constant and the first to name it does not write it."""
        found = self._tensors.get(info.name)
        if found is None:
            shape = self._shapes(info.name, info.shape)
            found = Tensor(
                name=info.name,
                shape=shape,
                dtype=DTYPES.get(info.dtype) or DType(name=info.dtype, bits=None),
                constant=info.constant,
                initializer=stored,
                value=_value(self._values.get(info.name), info.dtype, shape),
            )
            self._tensors[info.name] = found
        return found


def _with_holes(tensors: list[Tensor], holes: tuple[int, ...]) -> tuple[Tensor | None, ...]:
    found: list[Tensor | None] = [*tensors]
    for position in holes:  # ascending
        found.insert(position, None)
    return tuple(found)


def _value(elements: tuple[Any, ...] | None, dtype: str, shape: Shape) -> Any:
    """The array of a small constant; None where the record has no elements that fill this shape."""
    if elements is None or shape is None:
        return None
    import numpy as np

    kind = np.dtype(dtype) if dtype in np.sctypeDict else np.dtype("float32")
    array = np.array([float(item) if isinstance(item, str) else item for item in elements], dtype=kind)
    sizes = [size for size in shape if size is not None]
    return array.reshape(sizes) if len(sizes) == len(shape) and array.size == np.prod(sizes) else None


def _as_tuple(value: Any) -> Any:
    return tuple(map(_as_tuple, value)) if isinstance(value, (list, tuple)) else value
