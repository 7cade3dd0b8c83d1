"""Loading: one graph, or subgraph, of a normalised model: its tensors, its nodes, what they read and give."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from analyzer.graph import (
    DEFAULT_DOMAIN,
    DTYPES,
    DTYPES_BY_NUMBER,
    NO_ATTRIBUTES,
    UNDEFINED,
    Graph,
    Node,
    Tensor,
)
from analyzer.loading import fold, shapes
from analyzer.loading.contrib_shapes import infer_contrib
from analyzer.loading.make import make_node, make_tensor
from analyzer.loading.metadata import Origin, origin
from analyzer.loading.normalize import dangling, rows_of
from analyzer.loading.subgraphs import body_inputs, control_flow_types
from analyzer.loading.values import (
    SMALL,
    UNKNOWN_TYPE,
    Attributes,
    Type,
    attribute_value,
    checked,
    declared_type,
    tensor_value,
)

if TYPE_CHECKING:
    import onnx

    from analyzer.loading.normalize import Row

_GRAPH = 5  # AttributeProto.GRAPH
_GRAPHS = 10  # AttributeProto.GRAPHS
_FOLDABLE = frozenset({DEFAULT_DOMAIN, "ai.onnx.ml", "com.microsoft"})
_FEW_FLOATS = 8
_MEASURES = ("Shape", "Size")
_ASKED = frozenset({*_MEASURES, "CastLike", "SequenceEmpty", "Optional"})
_WITH_GRAPHS = frozenset({"If", "Loop", "Scan", "SequenceMap"})
_UNTOLD = frozenset({"SequenceEmpty", "Optional"})


class Call(NamedTuple):
    """A node while it is read: what it calls, on what."""

    proto: onnx.NodeProto
    op_type: str
    domain: str
    inputs: tuple[Tensor | None, ...]
    attributes: Mapping[str, Any]
    graphs: Mapping[str, Graph]


class Scope:
    """The tensors that a graph's nodes can see, and the making of nodes from what they see."""

    def __init__(self, *, opsets: Mapping[str, int], ir_version: int, outer: Scope | None = None) -> None:
        self.opsets = opsets
        self.ir_version = ir_version
        self.outer = outer
        self.tensors: dict[str, Tensor] = {}
        self.initializers: list[Tensor] = []
        self.types: shapes.Types = {}
        self.memo: shapes.Memo = {} if outer is None else outer.memo

    def graph(
        self,
        proto: onnx.GraphProto,
        inferred: onnx.GraphProto,
        *,
        fed_types: Sequence[Type] | None = None,
        rows: Sequence[Row] | None = None,
        origins: Sequence[Origin] | None = None,
    ) -> Graph:
        """Makes the Graph of a proto; ``inferred`` is the same one with the types that C++ found.

        ``fed_types`` are the types of what is fed, ``rows`` the nodes where they have been read and ``origins``
        where each comes from.
        """
        for stored in proto.initializer:
            self._initializer(stored.name, stored, stored.dims, stored.data_type)
        for sparse in proto.sparse_initializer:
            self._initializer(sparse.values.name, None, sparse.dims, sparse.values.data_type)
        fed = []
        for position, value in enumerate(proto.input):
            name = value.name
            if name not in self.tensors:
                dtype, shape = fed_types[position] if fed_types else declared_type(value.type, name)
                fed.append(Tensor(name=name, shape=shape, dtype=dtype))
                self.tensors[name] = fed[-1]
        self.types = shapes.graph_types(inferred, lenient=self.outer is not None)
        rows = rows_of(proto) if rows is None else rows
        origins = [origin(row[1], row[0].metadata_props) for row in rows] if origins is None else origins
        return Graph(
            name=proto.name,
            nodes=tuple(self._nodes(rows, origins, inferred)),
            inputs=tuple(fed),
            outputs=tuple(self.find(value.name) or self._undeclared(value.name) for value in proto.output),
            initializers=tuple(self.initializers),
        )

    def _nodes(self, rows: Sequence[Row], origins: Sequence[Origin], inferred: onnx.GraphProto) -> list[Node]:
        """The hot loop of loading: what most nodes do not need is not done for them."""
        nodes: list[Node] = []
        tensors, outside, opsets = self.tensors, self._outside, self.opsets
        for index, (node, name, op_type, domain, reads, writes) in enumerate(rows):
            if op_type == "Constant" and domain == DEFAULT_DOMAIN:
                self._constant(node)
                continue
            inputs = tuple([tensors.get(read) or outside(read, node) for read in reads])
            stored = node.attribute
            attributes = Attributes(stored) if stored else NO_ATTRIBUTES
            graphs: Mapping[str, Graph] = NO_ATTRIBUTES
            if (op_type in _WITH_GRAPHS or domain != DEFAULT_DOMAIN) and _has_graphs(stored):
                graphs = self._graphs(node, inferred.node[index], inputs, attributes)
            outputs = None if graphs else self._plain(op_type, domain, inputs, writes)
            if outputs is None:
                outputs = self._outputs(Call(node, op_type, domain, inputs, attributes, graphs), writes)
            operator = (op_type, domain, opsets.get(domain, 1))
            number = len(nodes)
            name = name or f"{op_type}_{number}"
            nodes.append(make_node(number, name, operator, inputs, outputs, attributes, graphs, origins[index]))
        return nodes

    def _plain(
        self, op_type: str, domain: str, inputs: Sequence[Tensor | None], writes: Sequence[str]
    ) -> tuple[Tensor | None, ...] | None:
        """The one output of a node whose type is known and whose value cannot be; None for any other node."""
        if len(writes) != 1 or op_type in _ASKED:
            return None
        name = writes[0]
        kind = self.types.get(name)
        if kind is None or kind[1] is None or None in kind[1]:
            return None
        constant = False
        if all_constant(inputs):
            if domain != DEFAULT_DOMAIN or op_type in fold.RANDOM or not inputs or not _is_large(kind):
                return None
            constant = True
        tensor = self.tensors[name] = make_tensor(name, kind[1], kind[0], constant)
        return (tensor,)

    def find(self, name: str) -> Tensor | None:
        """The tensor of this name in this graph or one around it."""
        scope: Scope | None = self
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
        shape = tuple(dims[:])
        tensor = make_tensor(
            name,
            checked(shape, name),
            DTYPES_BY_NUMBER.get(dtype, UNDEFINED),
            True,
            True,
            None if stored is None else tensor_value(stored, shape=shape),
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

    def _outside(self, name: str, proto: onnx.NodeProto) -> Tensor | None:
        if not name:
            return None
        found = self.outer.find(name) if self.outer else None
        if found is None:
            raise dangling(proto, name)
        return found

    def _outputs(self, call: Call, names: Sequence[str]) -> tuple[Tensor | None, ...]:
        types = self.types
        constant = _is_constant(call)
        values = self._values(call) if constant else None
        if values is None:
            for name in names:
                kind = types.get(name)
                if (kind is None or kind[1] is None or None in kind[1]) and name and shapes.is_open(kind):
                    self._infer(call)
                    break
        outputs: list[Tensor | None] = []
        for position, name in enumerate(names):
            if not name:
                outputs.append(None)
                continue
            kind = types.get(name) or UNKNOWN_TYPE
            value = values[position] if values is not None and position < len(values) else None
            if value is not None:
                kind = (kind[0] if kind[0].onnx else fold.dtype_of(value), value.shape)
            outputs.append(self._tensor(name, kind, constant, value))
        return tuple(outputs)

    def _tensor(self, name: str, kind: Type, constant: bool, value: Any = None) -> Tensor:
        tensor = self.tensors[name] = make_tensor(name, kind[1], kind[0], constant, False, value)
        return tensor

    def _values(self, call: Call) -> Sequence[Any] | None:
        """What a constant node gives where all it reads is known and small."""
        op_type, inputs = call.op_type, call.inputs
        if call.domain != DEFAULT_DOMAIN:
            return None
        if op_type in _MEASURES:
            return _measured(call)
        if op_type == "CastLike":
            return fold.cast_like(inputs)
        if call.graphs:
            branch = call.graphs.get(_taken(inputs))
            return None if branch is None else [tensor.value for tensor in branch.outputs]
        for name in call.proto.output:
            if _is_large(self.types.get(name)):
                return None
        arrays = [None if tensor is None else tensor.value for tensor in inputs]
        for array, tensor in zip(arrays, inputs, strict=True):
            if array is None and tensor is not None:
                return None
        return fold.fold(op_type, call.attributes, arrays, call.proto, self.opsets.get(DEFAULT_DOMAIN, 1))

    def _infer(self, call: Call) -> None:
        found: Mapping[str, Type]
        proto, inputs = call.proto, call.inputs
        if call.domain == DEFAULT_DOMAIN and call.graphs:
            found = control_flow_types(proto, inputs, call.attributes, call.graphs)
        elif call.domain == DEFAULT_DOMAIN and call.op_type == "Dropout":  # older schemas tell no mask
            shape = None if inputs[0] is None else inputs[0].shape
            found = dict.fromkeys(proto.output[1:], (DTYPES["bool"], shape))
        elif call.domain.startswith(DEFAULT_DOMAIN):
            lenient = self.outer is not None
            found = shapes.infer_node(
                proto, inputs, self.opsets, self.ir_version, memo=self.memo, lenient=lenient
            )
        else:
            found = infer_contrib(proto, call.domain, inputs, call.attributes)
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
        graph = self._inner().graph(body, inferred, fed_types=first)
        second = body_inputs(proto, body, inputs, attributes, carried=graph)
        return graph if second == first else self._inner().graph(body, inferred, fed_types=second)

    def _inner(self) -> Scope:
        return Scope(opsets=self.opsets, ir_version=self.ir_version, outer=self)


def all_constant(inputs: Sequence[Tensor | None]) -> bool:
    """Whether all that is read is known before the run."""
    for tensor in inputs:  # noqa: SIM110  # a generator takes three times as long, for every node
        if tensor is not None and not tensor.constant:
            return False
    return True


def _has_graphs(attributes: Sequence[onnx.AttributeProto]) -> bool:
    return any(entry.type in (_GRAPH, _GRAPHS) for entry in attributes)


def _is_constant(call: Call) -> bool:
    """Whether a node's outputs follow from initializers and shapes alone."""
    inputs, op_type = call.inputs, call.op_type
    if op_type in _MEASURES and call.domain == DEFAULT_DOMAIN:
        return inputs[0] is not None and inputs[0].elements is not None
    if op_type == "CastLike":  # of its second input it needs the type alone
        return inputs[0] is not None and inputs[0].constant
    if not all_constant(inputs):
        return False
    if call.domain not in _FOLDABLE or op_type in fold.RANDOM:
        return False
    if call.graphs:
        branch = call.graphs.get(_taken(inputs)) if op_type == "If" else None
        return branch is not None and all(tensor.constant for tensor in branch.outputs)
    return bool(inputs) or op_type in _UNTOLD


def _taken(inputs: Sequence[Tensor | None]) -> str:
    """The branch that an If with a known condition takes; empty where the condition is not known."""
    condition = inputs[0].value if inputs and inputs[0] is not None else None
    if condition is None:
        return ""
    return "then_branch" if condition.reshape(-1)[0] else "else_branch"


def _measured(call: Call) -> Sequence[Any]:
    import numpy as np

    tensor = call.inputs[0]
    shape = () if tensor is None or tensor.shape is None else tensor.shape
    if call.op_type == "Size":
        return [np.asarray(tensor.elements if tensor is not None else 0, np.int64)]
    return [np.asarray(shape[call.attributes.get("start", 0) : call.attributes.get("end")], np.int64)]


def _is_large(kind: Type | None) -> bool:
    """Whether a result is not worth folding: shapes and axes are few, and so are the floats that make them."""
    if kind is None or kind[1] is None or None in kind[1]:
        return False
    size = 1
    for length in kind[1]:
        size *= length or 0
    return size > (_FEW_FLOATS if kind[0].is_float else SMALL)
