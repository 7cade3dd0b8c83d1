"""Loading: one graph, or subgraph, of a normalised model: its tensors, its nodes, what they read and give."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from analyzer.errors import AnalyzerError, GraphError, ModelError
from analyzer.graph import (
    DEFAULT_DOMAIN,
    DTYPES,
    DTYPES_BY_NUMBER,
    NO_ATTRIBUTES,
    UNDEFINED,
    DType,
    Graph,
    Node,
    Shape,
    Tensor,
)
from analyzer.loading.onnx_graph.construction import NodeOrigin, origin
from analyzer.loading.onnx_graph.evaluation import (
    SHAPE_OPERATORS,
    Evaluation,
    all_constant,
    dtype_of,
    has_graphs,
    is_constant,
    is_large,
    results,
    stored_value,
    taken_branch,
)
from analyzer.loading.onnx_graph.fitting_sizes import known_sizes
from analyzer.loading.onnx_graph.loop_trips import TensorSequence, followed, with_trips
from analyzer.loading.onnx_graph.normalize import dangling, rows_of
from analyzer.loading.shape_inference import onnx_inference
from analyzer.loading.shape_inference.contrib_operators import infer_contrib
from analyzer.loading.shape_inference.onnx_inference import (
    GRAPH_KINDS,
    LONGEST,
    UNKNOWN_TYPE,
    Type,
    attribute_value,
    body_inputs,
    checked,
    control_flow_types,
    declared_type,
    plain_attributes,
    tensor_value,
)
from analyzer.operators import CLASSICAL_DOMAIN, NEVER_FOLDED
from analyzer.process import now_at
from analyzer.reading import DEFAULT_LIMITS, Limits
from analyzer.units import byte_count

if TYPE_CHECKING:
    import numpy as np
    import onnx

    from analyzer.loading.onnx_graph.normalize import Normalized, Row, StatedTypes

    Array = np.ndarray[Any, Any]

# Their types alone are not enough: a value that is known before the run decides what later nodes give.
_EVALUATED = frozenset({*SHAPE_OPERATORS, "CastLike", "SequenceEmpty", "Optional"})
# onnx looks at an equation's result from 1.22 on; ONNX Runtime 1.31 has the inference of 1.21, and loads it.
_LATER_CHECKED = "Equation output contains"
# TensorProto.INT32 and INT64: rows of them say where each of a loop's bags begins.
_INTEGERS = (6, 7)
_ONNX_DOMAINS = frozenset({DEFAULT_DOMAIN, CLASSICAL_DOMAIN})


class _ValueBudget:
    """Bytes of values that a model's graphs may still hold, computed ones and those of its file."""

    def __init__(self, most: int) -> None:
        self._most = self._left = most

    def take(self, value: Array | None) -> None:
        if value is None:
            return
        # An array of texts holds references; the texts are what takes room.
        self._left -= sum(map(len, value.flat)) if value.dtype == object else value.nbytes
        if self._left < 0:
            raise ModelError(
                f"The model's known values take more than {byte_count(self._most)}.",
                hint="If it is a model that you trust, raise the limit: --limit folded=1GB.",
            )


class Scope:
    """The tensors that a graph's nodes can see, and the making of nodes from what they see."""

    def __init__(
        self,
        *,
        opsets: Mapping[str, int],
        ir_version: int,
        stated: StatedTypes,
        outer: Scope | None = None,
        limits: Limits = DEFAULT_LIMITS,
    ) -> None:
        self.opsets = opsets
        self.ir_version = ir_version
        self.stated = stated
        self.outer = outer
        self.tensors: dict[str, Tensor] = {}
        self.initializers: list[Tensor] = []
        self.types: onnx_inference.Types = {}
        self.memo: onnx_inference.Memo = {} if outer is None else outer.memo
        self._late = Evaluation(self._producer)
        self._nodes_made: list[Node] = []
        self._makers: dict[str, Node] = {}
        self._nodes_noted = 0
        self.forbidden: list[tuple[int, str, str, str]] = []
        self.sequences: dict[str, TensorSequence] = {}
        self.budget: _ValueBudget = _ValueBudget(limits.folded) if outer is None else outer.budget

    def model_graph(self, ready: Normalized, inferred: onnx.GraphProto) -> Graph:
        """Make the Graph of a model; ``inferred`` is its graph with the types that C++ found."""
        graph = self._graph(
            ready.model.graph,
            ready.initializers,
            (ready.rows, ready.origins, inferred),
            opsets=self.opsets,
            ir_version=self.ir_version,
            open_dimensions=ready.open_dimensions,
            notes=tuple(ready.notes),
        )
        self.compare_stated(graph.inputs, graph.nodes)
        return graph

    def subgraph(self, proto: onnx.GraphProto, inferred: onnx.GraphProto, fed_types: Sequence[Type]) -> Graph:
        """Make the Graph of a body from the types of what is fed to it; ``inferred`` as for the model's."""
        rows = rows_of(proto)
        origins = [origin(row[1], row[0].metadata_props) for row in rows]
        return self._graph(proto, proto.initializer, (rows, origins, inferred), fed_types)

    def _graph(
        self,
        proto: onnx.GraphProto,
        initializers: Sequence[onnx.TensorProto],
        nodes: tuple[Sequence[Row], Sequence[NodeOrigin], onnx.GraphProto],
        fed_types: Sequence[Type] | None = None,
        **facts: Any,
    ) -> Graph:
        inputs = self._graph_inputs(proto, initializers, fed_types)
        self.types = onnx_inference.graph_types(nodes[-1], lenient=fed_types is not None)
        made = tuple(self._nodes(*nodes))
        outputs = []
        for value in proto.output:
            tensor = self.find(value.name)
            if tensor is None:
                dtype, shape = self._filled(value.name)
                tensor = Tensor(name=value.name, shape=shape, dtype=dtype)
            outputs.append(tensor)
        return Graph(
            name=proto.name,
            nodes=made,
            inputs=inputs,
            outputs=tuple(outputs),
            initializers=tuple(self.initializers),
            **facts,
        )

    def compare_stated(self, inputs: Sequence[Tensor], nodes: Sequence[Node]) -> None:
        """Note where the file states other types than those that its inputs and weights imply."""
        written = self.stated.written
        for tensor in inputs:
            if tensor.name in written:
                self.stated.compare(tensor, "")
        for node in nodes if written else ():
            for output in node.outputs:
                if output is not None and output.name in written:
                    self.stated.compare(output, node.op_type)

    def _graph_inputs(
        self,
        proto: onnx.GraphProto,
        initializers: Sequence[onnx.TensorProto],
        types: Sequence[Type] | None = None,
    ) -> tuple[Tensor, ...]:
        """Read the initializers and gives the inputs that are not among them."""
        for stored in initializers:
            self._initializer(stored.name, stored, stored.dims, stored.data_type)
        for sparse in proto.sparse_initializer:
            self._initializer(sparse.values.name, None, sparse.dims, sparse.values.data_type)
        inputs = []
        for position, value in enumerate(proto.input):
            name = value.name
            if name not in self.tensors:
                dtype, shape = types[position] if types else declared_type(value.type, name)
                inputs.append(Tensor(name=name, shape=shape, dtype=dtype))
                self.tensors[name] = inputs[-1]
        return tuple(inputs)

    def _nodes(
        self, rows: Sequence[Row], origins: Sequence[NodeOrigin], inferred: onnx.GraphProto
    ) -> list[Node]:
        """Return the hot loop of loading: what most nodes do not need is not done for them."""
        nodes = self._nodes_made
        tensors, outside, opsets = self.tensors, self._outside, self.opsets
        inputs: tuple[Tensor | None, ...] = ()
        try:
            for index, (node, name, op_type, domain, reads, writes) in enumerate(rows):
                if op_type == "Constant" and domain == DEFAULT_DOMAIN:
                    self._constant(node)  # no node of the Graph: sessions turn it into an initializer too
                    continue
                # tuple([...]) and not tuple(...): a generator costs a frame for each element, here for each of
                # all names.
                inputs = tuple([tensors.get(read) or outside(read, node) for read in reads])
                # A domain that the file does not import has version 1, as ONNX Runtime's own domains have.
                version, stored = opsets.get(domain, 1), node.attribute
                attributes = plain_attributes(stored) if stored else NO_ATTRIBUTES
                graphs: Mapping[str, Graph] = NO_ATTRIBUTES
                if (op_type in onnx_inference.WITH_GRAPHS or domain != DEFAULT_DOMAIN) and has_graphs(stored):
                    graphs = self._graphs(node, inferred.node[index], inputs, attributes)
                module, module_class, source, phase = origins[index]
                made = Node(
                    index=len(nodes),
                    name=name or f"{op_type}_{len(nodes)}",
                    op_type=op_type,
                    domain=domain,
                    version=version,
                    inputs=inputs,
                    attributes=attributes,
                    graphs=graphs,
                    module=module,
                    module_class=module_class,
                    source=source,
                    phase=phase,
                )
                outputs = None if graphs else self._ordinary_output(op_type, domain, inputs, writes)
                if outputs is None:
                    if graphs and self.outer is None:  # what is inside is looked at with what it stands in
                        made = with_trips(made, self._late)
                    outputs = self._outputs(node, made)
                object.__setattr__(
                    made, "outputs", outputs
                )  # a second Node would take 5 us; no reader has this one
                nodes.append(made)
        except GraphError as error:
            if error.node < 0 and self.outer is None:
                error.node, error.wanted = len(nodes), known_sizes(inputs)
            raise
        except (AnalyzerError, MemoryError):
            raise
        except Exception as error:  # whatever a rule meets in a node that is no node of its operator
            reason = f"{type(error).__name__}: {str(error)[:200]}"
            raise GraphError(
                f"node '{node.name}' ({node.op_type}) cannot be read ({reason})",
                hint="if ONNX Runtime runs the model, please report this with the model",
            ) from error
        return nodes

    def _ordinary_output(
        self, op_type: str, domain: str, inputs: Sequence[Tensor | None], writes: Sequence[str]
    ) -> tuple[Tensor | None, ...] | None:
        """Return the one output of a node whose type is known and whose value cannot be; else None."""
        if len(writes) != 1 or op_type in _EVALUATED:
            return None
        name = writes[0]
        kind = self.types.get(name)
        if kind is None or kind[1] is None or None in kind[1]:
            return None
        constant = False
        if all_constant(inputs):
            # A large result is never folded; whether it is constant needs no more than this.
            if domain != DEFAULT_DOMAIN or op_type in NEVER_FOLDED or not inputs or not is_large(kind):
                return None
            constant = True
        tensor = self.tensors[name] = Tensor(name=name, shape=kind[1], dtype=kind[0], constant=constant)
        return (tensor,)

    def find(self, name: str) -> Tensor | None:
        """Return the tensor of this name in this graph or one around it."""
        scope: Scope | None = self
        while scope is not None:
            tensor = scope.tensors.get(name)
            if tensor is not None:
                return tensor
            scope = scope.outer
        return None

    def _filled(self, name: str, *, own: bool = False) -> Type:
        """Return type of a tensor, with what the file states where nothing else tells it; ``own`` as for it."""
        kind = self.types.get(name) or UNKNOWN_TYPE
        if own or onnx_inference.is_open(kind):
            kind = self.types[name] = self.stated.filled(name, kind, own=own)
        return kind

    def _initializer(self, name: str, stored: onnx.TensorProto | None, dims: Sequence[int], dtype: int) -> None:
        shape = tuple(dims[:])
        value = None if stored is None else tensor_value(stored, shape=shape)
        self._store(name, checked(shape, name), DTYPES_BY_NUMBER.get(dtype, UNDEFINED), value)
        if value is None and stored is not None and dtype in _INTEGERS and len(shape) == 1:
            self._late.known[name] = tensor_value(stored, LONGEST)

    def _store(self, name: str, shape: Shape, dtype: DType, value: Array | None) -> None:
        tensor = Tensor(name=name, shape=shape, dtype=dtype, constant=True, initializer=True, value=value)
        self.budget.take(value)
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
            import numpy as np

            letter = attribute.name.removeprefix("value_")[0]
            kind = {"f": "float32", "i": "int64", "s": "string"}[letter]
            array = np.asarray(attribute_value(attribute), object if kind == "string" else kind)
            self._store(name, array.shape, DTYPES[kind], array)

    def _outside(self, name: str, proto: onnx.NodeProto) -> Tensor | None:
        if not name:
            return None
        tensor = self.outer.find(name) if self.outer else None
        if tensor is None:
            raise dangling(proto, name)
        return tensor

    def _outputs(self, proto: onnx.NodeProto, call: Node) -> tuple[Tensor | None, ...]:
        types, names = self.types, proto.output[:]
        now_at(f"node '{proto.name}' ({call.op_type})")
        # A folded value tells what ONNX's inference of the model left open better than that of the node would.
        constant = is_constant(call)
        values = self._values(proto, call) if constant else None
        for array in values or ():
            self.budget.take(array)
        if values is None:
            for name in names:
                kind = types.get(name)
                if (
                    (kind is None or kind[1] is None or None in kind[1])
                    and name
                    and onnx_inference.is_open(kind)
                ):
                    self._infer_types(proto, call)
                    break
        if call.domain == DEFAULT_DOMAIN:
            for name, kind in followed(call, names, self.sequences).items():
                types[name] = onnx_inference.merged(types.get(name), kind)
        outputs: list[Tensor | None] = []
        for position, name in enumerate(names):
            if not name:
                outputs.append(None)
                continue
            value = values[position] if values is not None and position < len(values) else None
            if value is None:
                kind = self._filled(name, own=call.domain not in _ONNX_DOMAINS)
            else:
                kind = types.get(name) or UNKNOWN_TYPE
                # The inferred shape may still be open.
                kind = (kind[0] if kind[0].onnx else dtype_of(value), value.shape)
            tensor = self.tensors[name] = Tensor(
                name=name, shape=kind[1], dtype=kind[0], constant=constant, value=value
            )
            outputs.append(tensor)
        return tuple(outputs)

    def _values(self, proto: onnx.NodeProto, call: Node) -> Sequence[Array | None] | None:
        """Return what a constant node gives where all it reads is known and small."""
        if call.graphs:
            branch = taken_branch(call, stored_value)
            return None if branch is None else [tensor.value for tensor in branch.outputs]
        if any(is_large(self.types.get(name)) for name in proto.output):
            return None
        shape = call.inputs[0].shape if call.inputs and call.inputs[0] is not None else None
        values = results(call, stored_value, proto, shape=shape)
        # Inference of the whole model may leave the type open that says how large a result is.
        known = [value for value in values or () if value is not None]
        return None if any(is_large((dtype_of(value), value.shape)) for value in known) else values

    def _producer(self, tensor: Tensor) -> Node | None:
        """Return the node of the model that makes a constant whose value the graph does not keep."""
        for node in self._nodes_made[self._nodes_noted :]:
            self._makers |= dict.fromkeys((output.name for output in node.present_outputs), node)
        self._nodes_noted = len(self._nodes_made)
        return self._makers.get(tensor.name) if tensor.constant else None

    def _infer_types(self, proto: onnx.NodeProto, call: Node) -> None:
        types: Mapping[str, Type]
        inputs = call.inputs
        if call.domain == DEFAULT_DOMAIN and call.graphs:
            types = control_flow_types(proto, inputs, call.attributes, call.graphs, call.trips)
        # Schemas before opset 10 say nothing of the mask's shape (onnx/defs/nn/old.cc).
        elif call.domain == DEFAULT_DOMAIN and call.op_type == "Dropout":
            shape = None if inputs[0] is None else inputs[0].shape
            types = dict.fromkeys(proto.output[1:], (DTYPES["bool"], shape))
        # ONNX leaves open how many texts pass; without words that are left out all do
        # (onnxruntime/core/providers/cpu/text/string_normalizer.cc).
        elif (
            call.op_type == "StringNormalizer"
            and inputs[0] is not None
            and not call.attributes.get("stopwords")
        ):
            types = dict.fromkeys(proto.output, (inputs[0].dtype, inputs[0].shape))
        elif call.domain == CLASSICAL_DOMAIN:
            known = infer_contrib(proto, call.domain, inputs, call.attributes)
            types = known or self._node_types(proto, call)
        elif call.domain.startswith(DEFAULT_DOMAIN):
            # ONNX Runtime has operators of its own there too.
            types = self._node_types(proto, call) or infer_contrib(proto, call.domain, inputs, call.attributes)
        else:
            types = infer_contrib(proto, call.domain, inputs, call.attributes)
        for name, kind in types.items():
            self.types[name] = onnx_inference.merged(self.types.get(name), (kind[0], checked(kind[1], name)))

    def _node_types(self, proto: onnx.NodeProto, call: Node) -> Mapping[str, Type]:
        # In a body, the branch of an If that is never taken may hold sizes that cannot be.
        lenient = self.outer is not None
        types, forbidden = onnx_inference.infer_node(
            proto, call.inputs, self.opsets, self.ir_version, memo=self.memo, lenient=lenient
        )
        # Of what it does not know inference complains too.
        known = all(tensor is None or tensor.elements is not None for tensor in call.inputs)
        if forbidden and known and not forbidden.startswith(_LATER_CHECKED):
            self.forbidden.append((call.index, proto.name, call.op_type, forbidden))
        return types

    def _graphs(
        self,
        proto: onnx.NodeProto,
        inferred: onnx.NodeProto,
        inputs: tuple[Tensor | None, ...],
        attributes: Mapping[str, Any],
    ) -> Mapping[str, Graph]:
        graphs = {}
        for entry, known in zip(proto.attribute, inferred.attribute, strict=True):
            if entry.type == GRAPH_KINDS[0]:
                graphs[entry.name] = self._subgraph(proto, entry.g, known.g, inputs, attributes)
            elif entry.type == GRAPH_KINDS[1]:
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
        """Return body with the types of what is fed to it; a loop's state whose shape changes is left open."""
        declared_only = body_inputs(proto, body, inputs, attributes)
        inner = self._inner(body)
        graph = inner.subgraph(body, inferred, declared_only)
        with_state = body_inputs(proto, body, inputs, attributes, carried=graph)
        if with_state != declared_only:
            inner = self._inner(body)
            graph = inner.subgraph(body, inferred, with_state)
        inner.compare_stated(graph.inputs, graph.nodes)
        self.forbidden += [(-1, name, kind, reason) for _, name, kind, reason in inner.forbidden]
        return graph

    def _inner(self, body: onnx.GraphProto) -> Scope:
        stated = self.stated.of_body(body)
        return Scope(opsets=self.opsets, ir_version=self.ir_version, stated=stated, outer=self)
