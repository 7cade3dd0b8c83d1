"""Loading, last step: a normalised ModelProto -> Graph, every shape that can be known, small values folded."""

from __future__ import annotations

import contextlib
import dataclasses
import gc
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from analyzer.graph import (
    DEFAULT_DOMAIN,
    DTYPES,
    DTYPES_BY_NUMBER,
    NO_ATTRIBUTES,
    UNDEFINED,
    Graph,
    Node,
    Tensor,
    names_read,
)
from analyzer.loading import fold, shapes
from analyzer.loading.contrib_shapes import infer_contrib
from analyzer.loading.metadata import origin
from analyzer.loading.normalize import Normalized, dangling, normalized
from analyzer.loading.subgraphs import body_inputs, control_flow_types
from analyzer.loading.values import (
    SMALL,
    UNKNOWN_TYPE,
    Type,
    attribute_value,
    checked,
    declared_type,
    tensor_value,
)

if TYPE_CHECKING:
    import onnx

_GRAPH = 5  # AttributeProto.GRAPH
_GRAPHS = 10  # AttributeProto.GRAPHS
_FOLDABLE = frozenset({DEFAULT_DOMAIN, "ai.onnx.ml", "com.microsoft"})
_FEW_FLOATS = 8
_UNTOLD = frozenset({"SequenceEmpty", "Optional"})


def to_graph(model: onnx.ModelProto, *, bindings: Mapping[str, int] | None = None) -> Graph:
    """Makes the Graph of an ONNX model; the model is not changed.

    Symbolic sizes of the inputs are bound by name (unnamed ones are called ``input[axis]``); what nothing
    binds is 1, which ``open_dimensions`` and ``notes`` tell. Model-local functions are inlined. ``Constant``
    nodes become initializers. A node all of whose outputs are known before the run stays, with outputs that
    say ``constant``.

    Args:
        model: Any ONNX model, with or without its weights' data.
        bindings: Sizes by the name of the symbolic dimension.

    Raises:
        GraphError: The graph has a cycle, reads what nothing writes, or has a shape that cannot be.
        ModelError: The model is newer than the installed onnx.
        UsageError: A binding is no positive whole number.
    """
    with _no_collection():
        return _to_graph(normalized(model, bindings=bindings))


@contextlib.contextmanager
def _no_collection() -> Iterator[None]:
    """Holds the garbage collector back: it would walk all the new nodes again and again, and frees none."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _to_graph(ready: Normalized) -> Graph:
    proto = ready.model.graph
    opsets = {(entry.domain or DEFAULT_DOMAIN): entry.version for entry in ready.model.opset_import}
    inferred = shapes.infer_model(ready.model).graph
    scope = _Scope(opsets=opsets, ir_version=ready.model.ir_version)
    graph = scope.graph(proto, inferred, [declared_type(value.type, value.name) for value in proto.input])
    return dataclasses.replace(
        graph,
        opsets=opsets,
        ir_version=ready.model.ir_version,
        open_dimensions=ready.open_dimensions,
        notes=tuple(ready.notes),
    )


def prune(graph: Graph) -> Graph:
    """The graph without nodes whose outputs are all known values, and without nodes that nothing uses.

    Values that went away with their node and are still read become initializers; indices are renumbered.
    """
    kept: list[Node] = []
    wanted = {tensor.name for tensor in graph.outputs}
    literals: dict[str, Tensor] = {}
    for node in reversed(graph.nodes):
        outputs = tuple(node.present_outputs)
        if not any(tensor.name in wanted for tensor in outputs):
            continue
        if all(tensor.constant and tensor.value is not None for tensor in outputs):
            literals.update((tensor.name, tensor) for tensor in outputs)
            continue
        kept.append(node)
        wanted.update(names_read(node))
    used = tuple(tensor for tensor in literals.values() if tensor.name in wanted)
    return dataclasses.replace(
        graph,
        nodes=tuple(
            node if node.index == index else dataclasses.replace(node, index=index)
            for index, node in enumerate(reversed(kept))
        ),
        initializers=(*(tensor for tensor in graph.initializers if tensor.name in wanted), *reversed(used)),
    )


class _Scope:
    """The tensors that a graph's nodes can see, and the making of nodes from what they see."""

    def __init__(self, *, opsets: Mapping[str, int], ir_version: int, outer: _Scope | None = None) -> None:
        self.opsets = opsets
        self.ir_version = ir_version
        self.outer = outer
        self.tensors: dict[str, Tensor] = {}
        self.initializers: list[Tensor] = []
        self.types: shapes.Types = {}

    def graph(self, proto: onnx.GraphProto, inferred: onnx.GraphProto, inputs: Sequence[Type]) -> Graph:
        """Makes the Graph of a proto; ``inferred`` is the same one with the types that C++ found."""
        for stored in proto.initializer:
            self._initializer(stored.name, stored, stored.dims, stored.data_type)
        for sparse in proto.sparse_initializer:
            self._initializer(sparse.values.name, None, sparse.dims, sparse.values.data_type)
        self.types = shapes.graph_types(inferred, lenient=self.outer is not None)
        fed = []
        for value, (dtype, shape) in zip(proto.input, inputs, strict=True):
            if value.name not in self.tensors:
                fed.append(Tensor(name=value.name, shape=shape, dtype=dtype))
                self.tensors[value.name] = fed[-1]
        nodes: list[Node] = []
        for index, node in enumerate(proto.node):
            if node.op_type == "Constant" and node.domain in ("", DEFAULT_DOMAIN):
                self._constant(node)
            else:
                nodes.append(self._node(node, len(nodes), inferred.node[index]))
        return Graph(
            name=proto.name,
            nodes=tuple(nodes),
            inputs=tuple(fed),
            outputs=tuple(self.find(value.name) or self._undeclared(value.name) for value in proto.output),
            initializers=tuple(self.initializers),
        )

    def find(self, name: str) -> Tensor | None:
        """The tensor of this name in this graph or one around it."""
        scope: _Scope | None = self
        while scope is not None:
            tensor = scope.tensors.get(name)
            if tensor is not None:
                return tensor
            scope = scope.outer
        return None

    def _undeclared(self, name: str) -> Tensor:
        dtype, shape = self.types.get(name, UNKNOWN_TYPE)
        return Tensor(name=name, shape=shape, dtype=dtype)

    def _initializer(self, name: str, stored: onnx.TensorProto | None, dims: Sequence[int], dtype: int) -> None:
        tensor = Tensor(
            name=name,
            shape=checked(tuple(dims), name),
            dtype=DTYPES_BY_NUMBER.get(dtype, UNDEFINED),
            constant=True,
            initializer=True,
            value=None if stored is None else tensor_value(stored),
        )
        self.tensors[name] = tensor
        self.initializers.append(tensor)

    def _constant(self, node: onnx.NodeProto) -> None:
        name, attribute = node.output[0], node.attribute[0]
        if attribute.name == "value":
            self._initializer(name, attribute.t, attribute.t.dims, attribute.t.data_type)
        elif attribute.name == "sparse_value":
            sparse = attribute.sparse_tensor
            self._initializer(name, None, sparse.dims, sparse.values.data_type)
        else:
            self._literal(name, attribute)

    def _literal(self, name: str, attribute: onnx.AttributeProto) -> None:
        import numpy as np

        value = attribute_value(attribute)
        kind = {"f": "float32", "i": "int64", "s": "string"}[attribute.name.removeprefix("value_")[0]]
        array = np.asarray(value, object if kind == "string" else kind)
        tensor = Tensor(
            name=name, shape=array.shape, dtype=DTYPES[kind], constant=True, initializer=True, value=array
        )
        self.tensors[name] = tensor
        self.initializers.append(tensor)

    def _node(self, proto: onnx.NodeProto, index: int, inferred: onnx.NodeProto) -> Node:
        domain = proto.domain or DEFAULT_DOMAIN
        tensors = self.tensors
        inputs = tuple([tensors.get(name) or self._outside(name, proto) for name in proto.input])
        attributes: Mapping[str, Any] = NO_ATTRIBUTES
        graphs: Mapping[str, Graph] = NO_ATTRIBUTES
        if proto.attribute:
            attributes = {entry.name: attribute_value(entry) for entry in proto.attribute}
            if _has_graphs(proto.attribute):
                graphs = self._graphs(proto, inferred, inputs, attributes)
                attributes = {name: value for name, value in attributes.items() if name not in graphs}
        module, module_class, source, phase = origin(proto)
        return Node(
            index=index,
            name=proto.name or f"{proto.op_type}_{index}",
            op_type=proto.op_type,
            domain=domain,
            version=self.opsets.get(domain, 1),
            inputs=inputs,
            outputs=self._outputs(proto, domain, inputs, attributes, graphs),
            attributes=attributes,
            graphs=graphs,
            module=module,
            module_class=module_class,
            source=source,
            phase=phase,
        )

    def _outside(self, name: str, proto: onnx.NodeProto) -> Tensor | None:
        if not name:
            return None
        found = self.outer.find(name) if self.outer else None
        if found is None:
            raise dangling(proto, name)
        return found

    def _outputs(
        self,
        proto: onnx.NodeProto,
        domain: str,
        inputs: tuple[Tensor | None, ...],
        attributes: Mapping[str, Any],
        graphs: Mapping[str, Graph],
    ) -> tuple[Tensor | None, ...]:
        types, names = self.types, proto.output
        constant = _is_constant(proto.op_type, domain, inputs, graphs)
        values = self._values(proto, domain, inputs, attributes, graphs) if constant else None
        if values is None:
            for name in names:
                kind = types.get(name)
                if (kind is None or kind[1] is None or None in kind[1]) and name and shapes.is_open(kind):
                    self._infer(proto, domain, inputs, attributes, graphs)
                    break
        outputs: list[Tensor | None] = []
        for position, name in enumerate(names):
            if not name:
                outputs.append(None)
                continue
            dtype, shape = types.get(name, UNKNOWN_TYPE)
            value = values[position] if values is not None and position < len(values) else None
            if value is not None:
                dtype, shape = (fold.dtype_of(value) if not dtype.onnx else dtype), value.shape
            tensor = Tensor(name=name, shape=shape, dtype=dtype, constant=constant, value=value)
            self.tensors[name] = tensor
            outputs.append(tensor)
        return tuple(outputs)

    def _values(
        self,
        proto: onnx.NodeProto,
        domain: str,
        inputs: tuple[Tensor | None, ...],
        attributes: Mapping[str, Any],
        graphs: Mapping[str, Graph],
    ) -> Sequence[Any] | None:
        """What a constant node gives where all it reads is known and small."""
        if domain != DEFAULT_DOMAIN:
            return None
        if proto.op_type in ("Shape", "Size"):
            return _measured(proto.op_type, inputs, attributes)
        if graphs:
            branch = graphs.get(_taken(inputs))
            return None if branch is None else [tensor.value for tensor in branch.outputs]
        if proto.op_type == "CastLike":
            return fold.cast_like(inputs)
        arrays = [None if tensor is None else tensor.value for tensor in inputs]
        if any(array is None and tensor is not None for array, tensor in zip(arrays, inputs, strict=True)):
            return None
        if any(_is_large(self.types.get(name)) for name in proto.output):
            return None
        return fold.fold(proto.op_type, attributes, arrays, proto, self.opsets.get(DEFAULT_DOMAIN, 1))

    def _infer(
        self,
        proto: onnx.NodeProto,
        domain: str,
        inputs: tuple[Tensor | None, ...],
        attributes: Mapping[str, Any],
        graphs: Mapping[str, Graph],
    ) -> None:
        found: Mapping[str, Type]
        if domain == DEFAULT_DOMAIN and graphs:
            found = control_flow_types(proto, inputs, attributes, graphs)
        elif domain.startswith("ai.onnx"):
            found = shapes.infer_node(
                proto, inputs, self.opsets, self.ir_version, lenient=self.outer is not None
            )
        else:
            found = infer_contrib(proto, domain, inputs, attributes)
        for name, kind in found.items():
            self.types[name] = shapes.merged(self.types.get(name), (kind[0], checked(kind[1], name)))

    def _graphs(
        self,
        proto: onnx.NodeProto,
        inferred: onnx.NodeProto,
        inputs: tuple[Tensor | None, ...],
        attributes: Mapping[str, Any],
    ) -> Mapping[str, Graph]:
        graphs = {}
        for entry, known in zip(proto.attribute, inferred.attribute, strict=True):
            if entry.type == _GRAPH:
                graphs[entry.name] = self._subgraph(proto, entry.g, known.g, inputs, attributes)
            elif entry.type == _GRAPHS:
                for number, (graph, types) in enumerate(zip(entry.graphs, known.graphs, strict=True)):
                    graphs[f"{entry.name}[{number}]"] = self._subgraph(proto, graph, types, inputs, attributes)
        return graphs

    def _subgraph(
        self,
        proto: onnx.NodeProto,
        body: onnx.GraphProto,
        inferred: onnx.GraphProto,
        inputs: tuple[Tensor | None, ...],
        attributes: Mapping[str, Any],
    ) -> Graph:
        """A body with the types of what is fed to it; a loop's state whose shape changes is left open."""
        first = body_inputs(proto, body, inputs, attributes)
        graph = self._inner().graph(body, inferred, first)
        second = body_inputs(proto, body, inputs, attributes, carried=graph)
        return graph if second == first else self._inner().graph(body, inferred, second)

    def _inner(self) -> _Scope:
        return _Scope(opsets=self.opsets, ir_version=self.ir_version, outer=self)


def _has_graphs(attributes: Sequence[onnx.AttributeProto]) -> bool:
    return any(entry.type in (_GRAPH, _GRAPHS) for entry in attributes)


def _is_constant(
    op_type: str, domain: str, inputs: Sequence[Tensor | None], graphs: Mapping[str, Graph]
) -> bool:
    """Whether a node's outputs follow from initializers and shapes alone."""
    if op_type in ("Shape", "Size") and domain == DEFAULT_DOMAIN:
        return inputs[0] is not None and inputs[0].elements is not None
    if op_type == "CastLike":  # of its second input it needs the type alone
        return inputs[0] is not None and inputs[0].constant
    for tensor in inputs:
        if tensor is not None and not tensor.constant:
            return False
    if domain not in _FOLDABLE or op_type in fold.RANDOM:
        return False
    if graphs:
        branch = graphs.get(_taken(inputs)) if op_type == "If" else None
        return branch is not None and all(tensor.constant for tensor in branch.outputs)
    return bool(inputs) or op_type in _UNTOLD


def _taken(inputs: Sequence[Tensor | None]) -> str:
    """The branch that an If with a known condition takes; empty where the condition is not known."""
    condition = inputs[0].value if inputs and inputs[0] is not None else None
    if condition is None:
        return ""
    return "then_branch" if condition.reshape(-1)[0] else "else_branch"


def _measured(op_type: str, inputs: Sequence[Tensor | None], attributes: Mapping[str, Any]) -> Sequence[Any]:
    import numpy as np

    tensor = inputs[0]
    shape = () if tensor is None or tensor.shape is None else tensor.shape
    if op_type == "Size":
        return [np.asarray(tensor.elements if tensor is not None else 0, np.int64)]
    return [np.asarray(shape[attributes.get("start", 0) : attributes.get("end")], np.int64)]


def _is_large(kind: Type | None) -> bool:
    """Whether a result is not worth folding: shapes and axes are few, and so are the floats that make them."""
    if kind is None or kind[1] is None or None in kind[1]:
        return False
    size = 1
    for length in kind[1]:
        size *= length or 0
    return size > (_FEW_FLOATS if kind[0].is_float else SMALL)
