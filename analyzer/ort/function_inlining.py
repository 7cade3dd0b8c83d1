"""Operators that ONNX defines by others: ONNX Runtime puts the definition in place where it has no kernel."""

from __future__ import annotations

import dataclasses
from collections.abc import Set
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from analyzer.graph import DEFAULT_DOMAIN, DTYPES_BY_NUMBER, UNDEFINED, Graph, Node, Tensor
from analyzer.ort.kernels import Registry
from analyzer.reading import DEFAULT_LIMITS, READING
from analyzer.training_operators import OPSET, definition, is_defined

if TYPE_CHECKING:
    import onnx
    import onnx_ir as ir

# Definitions refer to each other (SoftmaxCrossEntropyLoss to NegativeLogLikelihoodLoss), never in a circle.
_DEEPEST = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Expanded:
    """A graph in which every operator is one that ONNX Runtime places as it is.

    Attributes:
        graph: The same graph where nothing had to be expanded.
        owners: For each of its nodes the index of the original operator.
    """

    graph: Graph
    owners: tuple[int, ...]


def expand(graph: Graph, release: Registry, *, without: Set[int] = frozenset()) -> Expanded:
    """Replace operators that no provider has a kernel for by their definition, where ONNX gives one.

    ONNX Runtime does so when it has optimised already: what is inside stays as it is. ``release`` tells the
    kernels; ``without`` are nodes that are gone by then.
    """
    # ``InlineNodes`` of onnxruntime/core/framework/graph_partitioner.cc, after level 1 and before level 2.
    if not any(_needs_expansion(node, release, cuda=True) for node in graph.nodes if node.index not in without):
        return Expanded(graph=graph, owners=tuple(range(len(graph.nodes))))
    nodes: list[Node] = []
    owners: list[int] = []
    literals: list[Tensor] = []
    opset = graph.opsets.get(DEFAULT_DOMAIN, OPSET)
    for node in graph.nodes:
        parts = [node] if node.index in without else _parts(node, literals, _DEEPEST, opset, release)
        owners += [node.index] * len(parts)
        nodes += parts
    numbered = tuple(
        node if node.index == index else dataclasses.replace(node, index=index)
        for index, node in enumerate(nodes)
    )
    whole = dataclasses.replace(graph, nodes=numbered, initializers=(*graph.initializers, *literals))
    return Expanded(graph=whole, owners=tuple(owners))


def parts_on_cpu(node: Node, release: Registry) -> list[Node]:
    """Return what a session with the CPU provider alone runs for a node: it, or the parts of its definition."""
    return _parts(node, [], _DEEPEST, node.version, release, cuda=False)


def _needs_expansion(node: Node, known: Registry, *, cuda: bool) -> bool:
    if is_defined(node):
        return True
    # A half-precision node whose kernel is there in float32 runs between two casts instead (CPU provider
    # alone).
    on_cuda = cuda and known.has_kernel("cuda", node)
    if node.graphs or on_cuda or known.has_kernel("cpu", node, half_as_float=True):
        return False
    return known.has_definition(node)


def _parts(
    node: Node, literals: list[Tensor], depth: int, opset: int, release: Registry, *, cuda: bool = True
) -> list[Node]:
    if depth == 0 or not _needs_expansion(node, release, cuda=cuda):
        return [node]
    # Our own compact operators of a training step are written to the file as their definition: no kernel has
    # them.
    own = definition(node, opset)
    if own is not None:
        literals.extend(own.literals)
        return list(own.nodes)
    body = _definition(node)
    if body is None:
        return [node]
    parts = _nodes_of(node, body, literals)
    return [inner for part in parts for inner in _parts(part, literals, depth - 1, opset, release, cuda=cuda)]


def _definition(node: Node) -> onnx.GraphProto | None:
    """Return the operator's definition with the types of this node; None where ONNX cannot give it."""
    import onnx
    from onnx import helper

    inputs = [_type_of(f"in{i}", t) for i, t in enumerate(node.inputs) if t is not None]
    outputs = [_type_of(f"out{i}", t) for i, t in enumerate(node.outputs) if t is not None]
    try:
        call = helper.make_node(
            node.op_type,
            [f"in{i}" if t is not None else "" for i, t in enumerate(node.inputs)],
            [f"out{i}" if t is not None else "" for i, t in enumerate(node.outputs)],
            **{name: _attribute(value) for name, value in node.attributes.items()},
        )
    except (TypeError, ValueError):  # an attribute that the operator does not have, of a kind that none has
        return None
    # A definition may depend on types and on which optional inputs there are: ONNX builds it for one call.
    model = helper.make_model(
        helper.make_graph([call], node.op_type, inputs, outputs),
        opset_imports=[helper.make_opsetid("", node.version)],
    )
    content = READING.ask(
        "inlined",
        {"content": model.SerializeToString(), "op_type": node.op_type},
        DEFAULT_LIMITS,
        subject=f"node '{node.name}' ({node.op_type})",
    )
    if content is None:
        return None
    body = onnx.GraphProto()
    body.ParseFromString(content)
    # What is still there was not inlined: ONNX has no definition for these types. A constant without a value is
    # one that the call should have given as an attribute.
    unfinished = any(
        part.op_type == node.op_type or (part.op_type == "Constant" and not part.attribute)
        for part in body.node
    )
    known = {"", *(value.name for value in (*inputs, *outputs))}.union(*(part.output for part in body.node))
    # An input that was left out, though the definition reads it.
    return None if unfinished or any(not known.issuperset(part.input) for part in body.node) else body


def _attribute(value: Any) -> Any:
    import numpy as np
    from onnx import numpy_helper

    return numpy_helper.from_array(value) if isinstance(value, np.ndarray) else value


def _type_of(name: str, tensor: Tensor) -> onnx.ValueInfoProto:
    from onnx import helper

    return helper.make_tensor_value_info(name, tensor.dtype.onnx, tensor.shape)


def _nodes_of(node: Node, body: onnx.GraphProto, literals: list[Tensor]) -> list[Node]:
    """Nodes of a definition; its own tensors are named after the node that it stands for."""
    import onnx_ir

    tensors: dict[str | None, Tensor] = {f"in{i}": t for i, t in enumerate(node.inputs) if t is not None}
    tensors.update((f"out{i}", t) for i, t in enumerate(node.outputs) if t is not None)
    nodes: list[Node] = []
    for part in onnx_ir.from_proto(body):
        if part.op_type == "Constant":
            literals.append(_inner(f"{node.name}/{part.outputs[0].name}", part.outputs[0]))
            tensors[part.outputs[0].name] = literals[-1]
            continue
        for value in part.outputs:
            if value.name not in tensors:
                tensors[value.name] = _inner(f"{node.name}/{value.name}", value)
        nodes.append(
            Node(
                index=len(nodes),
                name=f"{node.name}/{part.op_type}_{len(nodes)}",
                op_type=part.op_type,
                domain=part.domain or DEFAULT_DOMAIN,
                version=node.version,
                inputs=tuple(None if value is None else tensors[value.name] for value in part.inputs),
                outputs=tuple(tensors[value.name] if value.name else None for value in part.outputs),
                attributes={
                    name: item.value.numpy() if hasattr(item.value, "numpy") else item.value
                    for name, item in part.attributes.items()
                },
            )
        )
    return nodes


def _inner(name: str, value: ir.Value) -> Tensor:
    """Return a tensor of a definition; of a Constant with its elements."""
    import onnx_ir

    literal = onnx_ir.convenience.get_const_tensor(value)
    if literal is not None:
        array = literal.numpy()
        dtype = DTYPES_BY_NUMBER.get(literal.dtype, UNDEFINED)
        return Tensor(name=name, shape=array.shape, dtype=dtype, constant=True, initializer=True, value=array)
    sizes = None if value.shape is None else (size if isinstance(size, int) else None for size in value.shape)
    dtype = UNDEFINED if value.dtype is None else DTYPES_BY_NUMBER.get(value.dtype, UNDEFINED)
    return Tensor(name=name, shape=None if sizes is None else tuple(sizes), dtype=dtype)
