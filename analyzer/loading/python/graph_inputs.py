"""Models of one graph: nodes, and the pairs of them that are joined, of which no number is a batch."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

# PyTorch Geometric's name of the pairs of nodes that are joined.
GRAPH_EDGES = "edge_index"
_ENDS = 2
# Types that number nodes: PyTorch indexes with them.
_POSITIONS = ("int32", "int64")


def is_one_graph(inputs: Iterable[tuple[str, Sequence[int | None], str]]) -> bool:
    """Return whether inputs are the nodes and the edges of one graph: rows of floats, and two rows of numbers.

    Nodes are no batch: twice as many are another graph, not two (PyTorch Geometric's ``edge_index``).

    Args:
        inputs: Name, shape (None is an open size) and ONNX's name of the type of each.
    """
    every = tuple(inputs)
    edges = [
        (name, dtype)
        for name, shape, dtype in every
        if len(shape) == _ENDS
        and shape[0] == _ENDS != shape[1]
        and (name == GRAPH_EDGES or dtype in _POSITIONS)
    ]
    nodes = any("float" in dtype and len(shape) > 0 and shape[0] != _ENDS for _, shape, dtype in every)
    return bool(edges) and (nodes or any(name == GRAPH_EDGES for name, _ in edges))
