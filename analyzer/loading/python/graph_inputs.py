"""Models of graphs (nodes and edges): which inputs a line for one gives, and how large those are."""

from __future__ import annotations

import inspect
import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from analyzer.loading.python.forward_reads import GRAPH_EDGES, ToldInput, is_graph, told_inputs
from analyzer.loading.python.input_spec import InputSpec

if TYPE_CHECKING:
    from torch.nn import Module

# The graph of each node: without it all nodes are one graph, and nobody is told.
_JOINED = "batch"
# What edges have beside their ends, by PyTorch Geometric's names and those like them.
_OF_EDGES = re.compile(r"edge_(?:attrs?|weights?|feats?|features?)")
# Of an edge.
_ENDS = 2


def needed(parameters: Sequence[inspect.Parameter]) -> list[inspect.Parameter]:
    """Inputs that have no default; where all have one, the first.

    A model that can do with none of its inputs (text or embeddings, one of both) usually means the first.
    """
    return [item for item in parameters if item.default is item.empty] or list(parameters[:1])


def inputs_on_line(
    model: Module, parameters: Sequence[inspect.Parameter], given: Collection[str] = ()
) -> tuple[ToldInput, ...]:
    """What a line for this model gives: what it needs, and of graphs optional ones that its source reads.

    Args:
        model: Built, or an object that stands in for it.
        parameters: Those of its ``forward`` that have a name.
        given: Inputs that are given already: who gives some leaves out the optional ones on purpose.
    """
    names = [item.name for item in needed(parameters)]
    told = told_inputs(model, [name for name in names if name not in given])
    if given or not is_graph(told):
        return told
    optional = [item.name for item in parameters if item.name not in names]
    further = told_inputs(
        model, [name for name in optional if name in (GRAPH_EDGES, _JOINED) or is_of_edges(name)]
    )
    return (*told, *filter(counts, further))


def counts(told: ToldInput) -> bool:
    """Whether an optional input changes what is done: what nothing reads counts nowhere, whoever gives it."""
    return told.is_read or told.name in (GRAPH_EDGES, _JOINED)


def is_of_edges(name: str) -> bool:
    """Whether an input is what edges have beside their ends."""
    return _OF_EDGES.fullmatch(name) is not None


def is_ends(name: str, shape: Sequence[int | None], dtype: str) -> bool:
    """Whether an input is the two ends of edges: by its name, or two rows of whole numbers."""
    ends = len(shape) == _ENDS and shape[0] == _ENDS != shape[1]
    return ends and (name == GRAPH_EDGES or dtype in _POSITIONS)


# Types that number nodes: PyTorch indexes with them.
_POSITIONS = ("int32", "int64")


def is_one_graph(inputs: Iterable[tuple[str, Sequence[int | None], str]]) -> bool:
    """Whether inputs are the nodes and the edges of one graph: rows of floats, and two rows of whole numbers.

    Nodes are no batch: twice as many are another graph, not two (PyTorch Geometric's ``edge_index``).

    Args:
        inputs: Name, shape (None is an open size) and ONNX's name of the type of each.
    """
    every = tuple(inputs)
    edges = [each for each in every if is_ends(*each)]
    nodes = any("float" in dtype and len(shape) > 0 and shape[0] != _ENDS for _, shape, dtype in every)
    return bool(edges) and (nodes or any(name == GRAPH_EDGES for name, _, _ in edges))


def of_graph_given(told: ToldInput, given: Sequence[InputSpec]) -> ToldInput:
    """An input with as many nodes and edges as the inputs that are given."""
    ends = next((spec for spec in given if is_ends(spec.name, spec.shape, spec.dtype)), None)
    of_edges = next((spec.shape[0] for spec in given if spec.shape and is_of_edges(spec.name)), None)
    edges = of_edges if ends is None else ends.shape[1]
    nodes = next(
        (spec.shape[0] for spec in given if spec.shape and spec is not ends and not is_of_edges(spec.name)),
        None,
    )
    if not told.of_graph:
        return told
    return replace(
        told,
        rows=(edges if told.is_of_edges else nodes) or told.rows,
        specs=tuple(_sized(spec, told, nodes, edges) for spec in told.specs),
    )


def _sized(spec: InputSpec, told: ToldInput, nodes: int | None, edges: int | None) -> InputSpec:
    if spec.name == GRAPH_EDGES:
        values = spec.values if nodes is None else (0, nodes - 1)
        return replace(spec, shape=(_ENDS, edges or spec.shape[1]), values=values)
    first = (edges if told.is_of_edges else nodes) or spec.shape[0]
    values = spec.values
    if spec.name == _JOINED and values is not None and first is not None:
        values = (values[0], min(values[1], first - 1))
    return replace(spec, shape=(first, *spec.shape[1:]), values=values)
