"""Loading: values of tensors as they follow from values of a model's inputs, through shape arithmetic alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from analyzer.graph import DEFAULT_DOMAIN, Graph, Node, Shape, Tensor
from analyzer.loading.onnx_graph.constant_folding import fold
from analyzer.loading.onnx_graph.node_evaluation import SHAPE_OPERATORS, shape_or_size

if TYPE_CHECKING:
    import numpy as np
    import onnx

    Array = np.ndarray[Any, Any]


class Evaluation:
    """What tensors hold where the inputs hold what is known.

    Args:
        graph: The model.
        known: Elements by tensor; of an input that is not among them nothing follows.
        shape_of: The shape of a tensor, where more of it is known than the graph says.
        most_elements: Of any tensor that is computed.
        most_tensors: How many are computed.
    """

    def __init__(
        self,
        graph: Graph,
        known: Mapping[str, Array | None],
        *,
        shape_of: Callable[[Tensor], Shape] = lambda tensor: tensor.shape,
        most_elements: int,
        most_tensors: int,
    ) -> None:
        self._graph = graph
        self._known = dict(known)
        self._shape_of = shape_of
        self._most_elements = most_elements
        self._most_tensors = most_tensors + len(known)

    def value(self, wanted: Tensor) -> Array | None:
        """A tensor's elements; None where they do not follow, or are many."""
        known, waiting = self._known, [wanted]
        while waiting and len(known) < self._most_tensors:
            tensor = waiting[-1]
            if tensor.name in known:
                waiting.pop()
                continue
            producer = self._graph.producer.get(tensor.name)
            if tensor.value is not None or producer is None:
                known[tensor.name] = tensor.value
                continue
            node = self._graph.nodes[producer]
            if node.op_type in SHAPE_OPERATORS and node.domain == DEFAULT_DOMAIN:
                source = node.input(0)
                shape = None if source is None else self._shape_of(source)
                known[tensor.name] = shape_or_size(node.op_type, shape, node.attributes)
                continue
            missing = [operand for operand in node.present_inputs if operand.name not in known]
            # A cycle cannot be, yet no walk may be endless.
            if missing and len(waiting) < self._most_tensors:
                waiting.append(missing[0])
                continue
            for output, value in zip(node.outputs, self._outputs(node), strict=False):
                if output is not None:
                    known[output.name] = value
            known.setdefault(tensor.name, None)
        return known.get(wanted.name)

    def _outputs(self, node: Node) -> tuple[Array | None, ...]:
        """What an operator gives; None for each where something that it reads is not known."""
        unknown = (None,) * len(node.outputs)
        if node.domain != DEFAULT_DOMAIN or node.graphs:
            return unknown
        arrays = [None if tensor is None else self._known.get(tensor.name) for tensor in node.inputs]
        if any(array is None and tensor is not None for array, tensor in zip(arrays, node.inputs, strict=True)):
            return unknown
        proto = node_proto(node)
        if proto is None:
            return unknown
        found = fold(node.op_type, node.attributes, arrays, proto, node.version, most=self._most_elements)
        return found or unknown


def node_proto(node: Node) -> onnx.NodeProto | None:
    """A node in ONNX's form, without its bodies; None where an attribute is no plain value."""
    import numpy as np
    from onnx import helper, numpy_helper

    read, written = ([tensor.name if tensor else "" for tensor in side] for side in (node.inputs, node.outputs))
    attributes: dict[str, Any] = {
        name: numpy_helper.from_array(value) if isinstance(value, np.ndarray) else value
        for name, value in node.attributes.items()
    }
    try:
        return helper.make_node(node.op_type, read, written, **attributes)
    except (TypeError, ValueError):
        return None
