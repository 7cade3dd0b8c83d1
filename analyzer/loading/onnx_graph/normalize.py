"""Loading, second step: any ModelProto -> one that names every node, calls no function and leaves no size open.

A node without a name of its own gets the one that ``name_nodes`` gives it in the file that is run too, by which
what ONNX Runtime measures is joined to the graph.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, SupportsIndex

from analyzer.errors import GraphError, ModelError, UsageError
from analyzer.graph import DEFAULT_DOMAIN, DTYPES_BY_NUMBER, NO_ATTRIBUTES, Shape, Tensor, packed_bytes
from analyzer.loading.onnx_graph.construction import NOWHERE, NodeOrigin, origin
from analyzer.loading.onnx_graph.fitting_sizes import evaluate, is_symbol, symbols
from analyzer.loading.onnx_graph.node_validity import check_budget, check_nodes
from analyzer.loading.onnx_graph.onnx_file import KEEP_BYTES, check_versions
from analyzer.loading.shape_inference.onnx_inference import (
    EXTERNAL,
    GRAPH_KINDS,
    Type,
    declared_type,
    graph_types,
    merged,
    size_name,
    without_sizes,
)
from analyzer.process import now_at
from analyzer.reading import DEFAULT_LIMITS, Limits
from analyzer.text import plural

if TYPE_CHECKING:
    import onnx

    Row = tuple[onnx.NodeProto, str, str, str, list[str], list[str]]
    """A node with its fields read once: name, operator, domain, names of what it reads and writes."""

DEFAULT_SIZE = 1
"""What stands in for a symbolic dimension that nothing binds."""


@dataclass(slots=True, kw_only=True)
class StatedTypes:
    """The types that a graph states of tensors, and where these are not what its inputs and weights imply.

    ONNX Runtime takes the implied size and warns (``MergeShapeInfo`` in onnxruntime/core/graph/graph.cc).

    Attributes:
        written: Types by tensor name; None for a size that has a symbol.
        bound: The same with sizes in place of the symbols that are bound.
        is_older: Whether inputs are open and all inner sizes are numbers: those of one size of the inputs.
        contradicted: Names, stated shapes and implied shapes, of bodies too.
        mistyped: Sentences on types of elements that differ, which ONNX Runtime refuses.
        relied: The tensors for which a number of the file stands, since nothing else tells it.
    """

    written: dict[str, Type] = field(default_factory=dict)
    bound: dict[str, Type] = field(default_factory=dict)
    is_older: bool = False
    contradicted: list[tuple[str, Shape, Shape]] = field(default_factory=list)
    mistyped: list[str] = field(default_factory=list)
    relied: list[str] = field(default_factory=list)

    def of_body(self, body: onnx.GraphProto) -> StatedTypes:
        """Return what a body states; what is contradicted there is listed here."""
        written = graph_types(body, lenient=True)
        return replace(self, written=written, bound=written, is_older=False)  # the lists are the same ones

    def filled(self, name: str, implied: Type, *, own: bool) -> Type:
        """Return the implied type with what the file states in place of what is open.

        Args:
            name: Of the tensor.
            implied: Its type as far as it follows from what its operator reads.
            own: Whether the operator is of another domain than ONNX's. Its rules are not ONNX's either, and may
                know less than the file: a cache that is written into the buffer of the past does not grow. They
                prevail where the first sizes differ: the file's are of another batch.
        """
        stated = self.bound.get(name)
        if stated is None:
            return implied
        first = (implied[1] or (None,))[0], (stated[1] or (None,))[0]
        prevails = own and (None in first or first[0] == first[1])
        kind = merged(stated, implied) if prevails else merged(implied, stated)
        if kind[1] and kind[1] != implied[1] and None not in (self.written[name][1] or ()):
            self.relied.append(name)
        return kind

    def compare(self, tensor: Tensor, op_type: str) -> None:
        """Note where the file states another type than the implied one; an input has no ``op_type``."""
        (dtype, stated), implied = self.written[tensor.name], tensor.shape
        names = (dtype.name, tensor.dtype.name)
        if (
            op_type
            and names[0] != names[1]
            and not any("map(" in name or name == "undefined" for name in names)
        ):
            self.mistyped.append(f"'{tensor.name}' is {names[1]} by {op_type}, the file states {names[0]}")
        if stated is None or implied is None:
            return
        if len(stated) != len(implied) or any(
            None not in (one, two) and one != two for one, two in zip(stated, implied, strict=True)
        ):
            self.contradicted.append((tensor.name, stated, implied))

    def note(self) -> str:
        """Return the sentence that says where the file's sizes do not hold; empty where they do."""
        if self.contradicted:
            name, stated, implied = self.contradicted[0]
            rest = len(self.contradicted) - 1
            more = f", and for {plural(rest, 'more tensor')}" if rest else ""
            return (
                f"The file states {list(stated or ())} for '{name}', its inputs and weights imply"
                f" {list(implied or ())}: the implied size counts here{more}."
            )
        if self.is_older and self.relied:
            return (
                f"The file alone tells the size of '{self.relied[0]}', at one size of its open inputs:"
                " it counts as not known."
            )
        return ""


@dataclass(slots=True, kw_only=True)
class Normalized:
    """A model ready to be read.

    Attributes:
        model: Nodes in execution order with unique names; no functions, no symbolic sizes on inputs. It may
            lack its initializers.
        origins: Where each node comes from; its metadata are dropped from the model.
        open_dimensions: The size assumed for each symbolic dimension that nothing bound.
        stated: What the file says of the types of tensors.
        opened: Input and axis of each dimension that the file leaves open.
        forbidden: Nodes that ONNX's inference refuses: index (-1 in a body), name, operator, reason.
        notes: What was assumed or mended, in sentences.
    """

    model: onnx.ModelProto
    initializers: Sequence[onnx.TensorProto] = ()
    rows: list[Row] = field(default_factory=list)
    origins: list[NodeOrigin] = field(default_factory=list)
    open_dimensions: dict[str, int] = field(default_factory=dict)
    stated: StatedTypes = field(default_factory=StatedTypes)
    opened: list[tuple[str, int]] = field(default_factory=list)
    forbidden: list[tuple[int, str, str, str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    limits: Limits = DEFAULT_LIMITS

    def forget_numbers(self) -> None:
        """Drop every stated shape that has no symbol, in bodies too."""
        without_sizes(self.model.graph, numbers_only=True)
        for name, (dtype, shape) in self.stated.written.items():
            if shape and None not in shape:
                self.stated.written[name] = self.stated.bound[name] = dtype, None

    def with_open_sizes(self) -> onnx.ModelProto:
        """Return a copy as ONNX Runtime meets it when it loads: inputs open, nothing stated of the rest."""
        copy = self.with_weights()
        without_sizes(copy.graph)
        inputs = {value.name: value for value in copy.graph.input}
        for name, axis in self.opened:
            inputs[name].type.tensor_type.shape.dim[axis].Clear()
        return copy

    def with_weights(self) -> onnx.ModelProto:
        """Return a copy of the model with its initializers, large ones without their data."""
        import onnx

        copy = onnx.ModelProto()
        copy.CopyFrom(self.model)
        if not copy.graph.initializer:
            for tensor in self.initializers:
                _add_weight(copy.graph, tensor)
        return copy


def normalized(
    model: onnx.ModelProto,
    *,
    bindings: Mapping[str, int] | None = None,
    assumed: Mapping[str, int] = NO_ATTRIBUTES,
    limits: Limits = DEFAULT_LIMITS,
) -> Normalized:
    """Return a copy ready to be read, without the data of large weights, and what was assumed.

    Raises:
        GraphError: The graph has a cycle, reads what nothing writes, or has a node that cannot be.
        ModelError: The model is newer than the installed onnx, a function of it cannot be inlined, or it would
            grow beyond the limits.
        UsageError: A binding is no positive whole number.
    """
    check_versions(model, model.graph.name or "the model")
    check_budget(model, limits, "the model")
    copy = _inlined(_skeleton(model))
    result = Normalized(
        model=copy, initializers=copy.graph.initializer or model.graph.initializer, limits=limits
    )
    result.rows = rows_of(result.model.graph)
    if len({row[1] for row in result.rows if row[1]}) < len(result.rows):
        name_nodes(result.model.graph)
        result.rows = rows_of(result.model.graph)
    check_nodes(
        result.model.graph, {entry.domain or DEFAULT_DOMAIN: entry.version for entry in copy.opset_import}
    )
    stored = {tensor.name for tensor in result.initializers}
    _order(result, stored)
    # Reads where nodes come from and drops the text: stack traces are longer than all the rest.
    append = result.origins.append
    for node, name, *_ in result.rows:
        entries = node.metadata_props
        if entries:
            append(origin(name, entries))
            node.ClearField("metadata_props")
        else:
            append(origin(name, ()) if name[:1] == "/" else NOWHERE)
    _bind(result, bindings or {}, assumed, stored)
    return result


def rows_of(graph: onnx.GraphProto) -> list[Row]:
    """Return a graph's nodes, read."""
    return [
        (node, node.name, node.op_type, node.domain or DEFAULT_DOMAIN, node.input[:], node.output[:])
        for node in graph.node
    ]


def _skeleton(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return a copy without texts, training and initializers, which a model with functions keeps."""
    import onnx

    copy = onnx.ModelProto(
        ir_version=model.ir_version,
        producer_name=model.producer_name,
        opset_import=model.opset_import,
        functions=model.functions,
    )
    for name in ("node", "input", "output", "value_info", "sparse_initializer"):
        getattr(copy.graph, name).extend(getattr(model.graph, name))
    copy.graph.name = model.graph.name
    if copy.functions:  # the inliner must not give their names to anything else
        for tensor in model.graph.initializer:
            _add_weight(copy.graph, tensor)
    if not copy.opset_import:  # files before IR version 3 have none: onnx.proto means opset 1
        copy.opset_import.add(domain="", version=1)
    return copy


def _add_weight(graph: onnx.GraphProto, tensor: onnx.TensorProto) -> None:
    new = graph.initializer.add()
    dtype = DTYPES_BY_NUMBER.get(tensor.data_type)
    # By its shape: ``ByteSize`` would write it all out.
    size = None if dtype is None else packed_bytes(tuple(tensor.dims), dtype.bits)
    if tensor.data_location == EXTERNAL or (tensor.ByteSize() if size is None else size) > KEEP_BYTES:
        new.name, new.data_type, new.data_location = tensor.name, tensor.data_type, tensor.EXTERNAL
        new.dims.extend(tensor.dims)
    else:
        new.CopyFrom(tensor)


def _inlined(model: onnx.ModelProto) -> onnx.ModelProto:
    if not model.functions:
        return model
    from onnx import inliner

    now_at("the model's own functions")
    try:
        return inliner.inline_local_functions(model, convert_version=False)
    except Exception as error:  # the inliner raises what C++ throws, of any type
        raise ModelError(
            f"the model's own functions cannot be inlined: {error}",
            hint="check that no function calls itself and that each imports the operator sets it uses",
        ) from error


def name_nodes(graph: onnx.GraphProto) -> None:
    """Give every node a unique name, so that what ONNX Runtime reports can be joined to it."""
    seen: set[str] = set()
    # A node without a name shows up in ONNX Runtime's profile under a number of its own making.
    for index, node in enumerate(graph.node):
        name = node.name or f"{node.op_type}_{index}"
        while name in seen:
            name = f"{name}_{index}"
        if name != node.name:
            node.name = name
        seen.add(name)


def _order(result: Normalized, stored: set[str]) -> None:
    graph = result.model.graph
    known = {value.name for value in graph.input}
    known.update(stored)
    known.update(sparse.values.name for sparse in graph.sparse_initializer)
    known.add("")
    outside = len(known)
    written = 0
    is_sorted = True
    for _, _, _, _, reads, writes in result.rows:
        if is_sorted and not known.issuperset(reads):
            is_sorted = False
        known.update(writes)
        written += len(writes)
    # Each written name must be new: where the sets' sizes differ, one was written twice.
    if len(known) - outside != written:
        _raise_written_twice(graph, stored)
    for output in graph.output:
        if output.name not in known:
            raise GraphError(f"nothing writes the graph output '{output.name}'", hint="export the model again")
    if not is_sorted:
        _sort(graph, known)
        result.rows = rows_of(graph)
        result.notes.append("The file lists operators before what they read; they were sorted.")


def _raise_written_twice(graph: onnx.GraphProto, stored: set[str]) -> None:
    seen = {value.name for value in graph.input} | stored
    for node in graph.node:
        for name in node.output:
            if name in seen and name:
                raise GraphError(
                    f"node '{node.name}' ({node.op_type}) writes '{name}', which is written already",
                    hint="every tensor has one origin; export the model again",
                )
            seen.add(name)


def _sort(graph: onnx.GraphProto, known: set[str]) -> None:
    """Order nodes by what they read, otherwise as they are; raise on a cycle or a dangling input."""
    from graphlib import CycleError, TopologicalSorter
    from heapq import heappop, heappush

    nodes = list(graph.node)
    writer = {name: index for index, node in enumerate(nodes) for name in node.output if name}
    before: dict[int, set[int]] = {}
    for index, node in enumerate(nodes):
        read = set(_names_read(node))
        before[index] = {writer[name] for name in read if name in writer}
        lacking = next((name for name in node.input if name and name not in writer and name not in known), "")
        if lacking:
            raise dangling(node, lacking)
    sorter = TopologicalSorter(before)
    try:
        sorter.prepare()
    except CycleError as error:
        stuck = nodes[min(error.args[1])]
        raise GraphError(
            f"the graph has a cycle through node '{stuck.name}' ({stuck.op_type})",
            hint="export the model again",
        ) from error
    # A heap: of all nodes that could come next the file's first does, so that the order is the same in every
    # run.
    ready, order = sorted(sorter.get_ready()), list[int]()
    while ready:
        order.append(heappop(ready))
        sorter.done(order[-1])
        for index in sorter.get_ready():
            heappush(ready, index)
    # Copied before the list is emptied: a node belongs to its list.
    copies = [deepcopy(nodes[index]) for index in order]
    del graph.node[:]
    graph.node.extend(copies)


def dangling(node: onnx.NodeProto, name: str) -> GraphError:
    """Return the error for a node that reads what nothing writes."""
    return GraphError(
        f"node '{node.name}' ({node.op_type}) reads '{name}', which nothing writes",
        hint="export the model again",
    )


def _names_read(node: onnx.NodeProto) -> Iterator[str]:
    yield from (name for name in node.input if name)
    for attribute in node.attribute:
        if attribute.type in GRAPH_KINDS:
            for graph in (attribute.g, *attribute.graphs):
                inner = {value.name for value in graph.input} | {tensor.name for tensor in graph.initializer}
                for child in graph.node:
                    yield from (name for name in _names_read(child) if name not in inner)
                    inner.update(child.output)
                yield from (value.name for value in graph.output if value.name not in inner)


def _bind(
    result: Normalized, bindings: Mapping[str, SupportsIndex], assumed: Mapping[str, int], stored: set[str]
) -> None:
    for name, given in bindings.items():
        if isinstance(given, bool) or not hasattr(given, "__index__") or operator.index(given) < 0:
            raise UsageError(f"dimension '{name}' cannot be {given!r}", hint="give a whole number from 0")
    sizes = {name: operator.index(given) for name, given in bindings.items()}
    open_sizes = [
        (value, axis, dim, size_name(value.name, axis, dim))
        for value in result.model.graph.input
        if value.name not in stored
        for axis, dim in enumerate(value.type.tensor_type.shape.dim)
        if not dim.HasField("dim_value")
    ]
    for _, _, _, name in open_sizes:
        if name not in sizes and evaluate(name, sizes) is None and is_symbol(name):
            sizes[name] = result.open_dimensions[name] = assumed.get(name, DEFAULT_SIZE)
    for _, _, dim, name in open_sizes:
        size = sizes[name] if name in sizes else evaluate(name, sizes)
        if size is None:
            result.open_dimensions[name] = size = assumed.get(name, DEFAULT_SIZE)
        dim.dim_value = size
    result.opened = [(value.name, axis) for value, axis, _, _ in open_sizes]
    _note_bindings(result, bindings, {name for _, _, _, name in open_sizes})
    _read_stated(result, sizes, is_opened=bool(open_sizes))


def _read_stated(result: Normalized, sizes: Mapping[str, int], *, is_opened: bool) -> None:
    """Read the types that the file states, symbols bound; an expression is left for inference to find again."""
    graph, stated = result.model.graph, result.stated
    for value in (*graph.value_info, *graph.output):
        dtype, shape = stated.written[value.name] = declared_type(value.type, value.name)
        if shape is not None and None in shape:
            dims = value.type.tensor_type.shape.dim
            shape = tuple(
                sizes.get(dim.dim_param) if size is None else size
                for size, dim in zip(shape, dims, strict=True)
            )
        stated.bound[value.name] = dtype, shape
    inner = [stated.written[value.name][1] or () for value in graph.value_info]
    stated.is_older = is_opened and any(inner) and not any(None in shape for shape in inner)


def _note_bindings(result: Normalized, bindings: Mapping[str, SupportsIndex], present: set[str]) -> None:
    if result.open_dimensions:
        names = ", ".join(f"'{name}'" for name in result.open_dimensions)
        sizes = result.open_dimensions.values()
        what = (
            f"{DEFAULT_SIZE} is assumed for each"
            if set(sizes) == {DEFAULT_SIZE}
            else f"{', '.join(map(str, sizes))} assumed, the smallest that can be executed"
        )
        result.notes.append(f"Nothing binds the dimension(s) {names}: {what}.")
    used = {symbol for name in present for symbol in symbols(name)}
    for name in sorted(set(bindings) - used - present):
        result.notes.append(f"No input has a dimension '{name}': the size given for it was not used.")
