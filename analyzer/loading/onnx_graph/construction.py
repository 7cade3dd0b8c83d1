"""Loading: Tensors and Nodes made without the frozen dataclasses' own ``__init__``.

That one sets each field through ``object.__setattr__``, which takes longer than all else about a node. Here a
draft with the same slots is filled and then becomes the real class; the result is the same in every way, which
tests/loading/test_made_values.py holds. No other module changes an object's class at run time but
costs/traffic.py, for costs; tests/benchmarks/counting.py measures what both are for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from analyzer.graph import Node, Tensor

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np

    from analyzer.graph import DType, Graph, Shape, Trips
    from analyzer.loading.onnx_graph.node_metadata import NodeOrigin


# CPython lets an object change its class where both have the same slots in the same order and no __dict__: a
# field that the dataclass gains is a slot of the draft too, and left unset raises AttributeError at its first
# use.
class _TensorDraft:
    __slots__ = Tensor.__slots__


class _NodeDraft:
    __slots__ = Node.__slots__


_NODE_FIELDS = tuple(Node.__slots__)


def make_tensor(
    name: str,
    shape: Shape,
    dtype: DType,
    constant: bool = False,
    initializer: bool = False,
    value: np.ndarray[Any, Any] | None = None,
) -> Tensor:
    """``Tensor(...)``."""
    new: Any = _TensorDraft()
    new.name = name
    new.shape = shape
    new.dtype = dtype
    new.constant = constant
    new.initializer = initializer
    new.value = value
    new.__class__ = Tensor
    return new  # type: ignore[no-any-return]  # a Tensor since the line above


def make_node(
    index: int,
    name: str,
    operator: tuple[str, str, int],
    inputs: tuple[Tensor | None, ...],
    outputs: tuple[Tensor | None, ...],
    attributes: Mapping[str, Any],
    graphs: Mapping[str, Graph],
    origin: NodeOrigin,
    trips: Trips | None = None,
) -> Node:
    """``Node(...)``; ``operator`` is its type, domain and version."""
    new: Any = _NodeDraft()
    new.index = index
    new.name = name
    new.op_type, new.domain, new.version = operator
    new.inputs = inputs
    new.outputs = outputs
    new.attributes = attributes
    new.graphs = graphs
    new.module, new.module_class, new.source, new.phase = origin
    new.steps = None
    new.trips = trips
    new.__class__ = Node
    return new  # type: ignore[no-any-return]  # a Node since the line above


def renumbered(node: Node, index: int) -> Node:
    """The same node at another position."""
    new: Any = _NodeDraft()
    for name in _NODE_FIELDS:
        setattr(new, name, getattr(node, name))
    new.index = index
    new.__class__ = Node
    return new  # type: ignore[no-any-return]  # a Node since the line above
