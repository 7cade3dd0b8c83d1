"""Loading: whether nodes are what their operators' schemas demand, looked at once, before any rule reads them.

What holds here need not be asked again: inputs that must be there are there, attributes are of their type,
those that have no default are given, bodies take and give what their node feeds and reads. ONNX Runtime refuses
a model in which any of this is not so. Its own operators' schemas are kept as data, read from the release's
wheel (tests/judge/rebuild_contrib_schemas.py). Operators of other domains have no schema and are not looked at.

What a model would grow to is worked out before any library unfolds it: a few hundred bytes can ask for
gigabytes, by functions that call functions twice, by graphs within graphs. Sizes are added up without anything
being copied; onnx's own inliner then finds what was counted.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from analyzer.errors import GraphError, ModelError
from analyzer.graph import DEFAULT_DOMAIN, Graph, Node, Tensor
from analyzer.loading.shape_inference.onnx_inference import GRAPH_KINDS, WITH_GRAPHS
from analyzer.operators import CLASSICAL_DOMAIN, CONTRIB_DOMAIN, RECURRENT
from analyzer.text import plural
from analyzer.units import byte_count

if TYPE_CHECKING:
    import onnx

    from analyzer.reading import Limits

    FunctionKey = tuple[str, str, str]
    """Domain, name and overload."""

# AttributeProto.AttributeType, written out as onnx is imported where it is used.
_FLOAT, _INT, _STRING, _TENSOR, _GRAPH, _FLOATS, _INTS = range(1, 8)
_SPARSE_TENSOR, _TYPE_PROTO = 11, 13
# Of a message among an attribute's fields it can be said that it is not there.
_MESSAGES = {_TENSOR: "t", _GRAPH: "g", _SPARSE_TENSOR: "sparse_tensor", _TYPE_PROTO: "tp"}
_CONSTANT_VALUES = frozenset(
    (
        *("value", "sparse_value", "value_float", "value_floats", "value_int", "value_ints", "value_string"),
        "value_strings",
    )
)
# Counts and distances of windows, groups and blocks, whatever the operator: none is ever below 1.
_POSITIVE = frozenset(
    (
        *("group", "num_groups", "kernel_shape", "strides", "dilations", "blocksize", "block_size"),
        *("hidden_size", "num_heads", "q_num_heads", "kv_num_heads", "num_scan_inputs", "num_outputs"),
    )
)
_CONTRIB_SCHEMAS = Path(__file__).with_name("data") / "contrib_schemas_1.31.1.json"


class _Demands(NamedTuple):
    """A schema's requirements of its nodes."""

    inputs: tuple[int, int]
    outputs: tuple[int, int]
    needed_inputs: tuple[tuple[int, str], ...]
    kinds: Mapping[str, int]
    required: tuple[str, ...]
    read_types: tuple[tuple[str, str, frozenset[str]], ...] = ()
    deprecated_since: int = 0


def check_nodes(graph: onnx.GraphProto, opsets: Mapping[str, int]) -> None:
    """Refuse a graph with a node that cannot be; its bodies as well.

    Args:
        graph: Model-local functions have been put in their callers' places.
        opsets: Opset version by domain, the default one as ``ai.onnx``.
    """
    waiting = [graph]
    while waiting:
        for node in waiting.pop().node:
            domain = node.domain or DEFAULT_DOMAIN
            demands = _demands(node.op_type, domain, opsets.get(domain, 1))
            if demands is not None:
                _check_ends(node, demands)
                if node.attribute or demands.required or node.op_type == "Constant":
                    _check_attributes(node, demands)
                if node.op_type in WITH_GRAPHS:
                    _check_bodies(node, opsets.get(domain, 1))
            for attribute in node.attribute:
                if attribute.type in GRAPH_KINDS:
                    waiting += (attribute.g, *attribute.graphs)


def schema_problems(graph: Graph) -> tuple[str, ...]:
    """Return what ONNX Runtime refuses in the nodes of a graph and its bodies, a sentence for each node.

    Mirrored are ``Graph::VerifyNodeAndOpMatch`` and ``InferAndVerifyTypeMatch`` of
    onnxruntime/core/graph/graph.cc, which ONNX's own checker (``onnx/checker.cc``) and inference do in part.
    """
    problems: dict[tuple[object, ...], str] = {}  # layers are alike
    sentences = []
    waiting = [graph]
    while waiting:
        for node in waiting.pop().nodes:
            waiting += node.graphs.values()
            types = tuple([tensor.dtype.name if tensor is not None else "" for tensor in node.inputs])
            key = (*node.identity, node.version, types, *node.attributes)
            problem = problems.get(key)
            if problem is None:
                demands = _demands(node.op_type, node.domain, node.version)
                result = () if demands is None else _refused(node, demands, types)
                problem = problems[key] = next(iter(result), "")
            if problem:
                sentences.append(f"node '{node.name}' ({node.op_type}) {problem}")
    return tuple(sentences)


def _refused(node: Node, demands: _Demands, types: Sequence[str]) -> Iterator[str]:
    if demands.deprecated_since:
        yield f"is of an operator that ended with opset {demands.deprecated_since}"
    for name in node.attributes:
        if name not in demands.kinds and not name.startswith("__"):  # isInternalSymbol in onnx/checker.cc
            yield f"has an attribute '{name}', which its operator lacks at opset {node.version}"
    if node.op_type in RECURRENT and "hidden_size" not in node.attributes:
        yield "lacks its attribute 'hidden_size'"
    yield from _body_types(node)
    bound: dict[str, str] = {}
    for place, kind in enumerate(types):
        if kind in ("", "undefined") or "map(" in kind or not demands.read_types:
            continue
        name, variable, allowed = demands.read_types[min(place, len(demands.read_types) - 1)]
        spelled = kind if "(" in kind else f"tensor({_SPELLED.get(kind, kind)})"
        if spelled not in allowed:
            yield f"reads {kind} as its input {name}, which cannot be of that type at opset {node.version}"
        elif variable and bound.setdefault(variable, kind) != kind:
            yield f"reads {bound[variable]} and {kind} where both must be of one type"


def _body_types(node: Node) -> Iterator[str]:
    """Yield types of bodies that ONNX's inference refuses (onnx/defs/controlflow)."""
    given: Sequence[Tensor | None]
    wanted: Sequence[Tensor | None]
    if node.op_type == "If" and len(node.graphs) == 2:
        given, wanted = [graph.outputs for graph in node.graphs.values()]
    elif node.op_type == "Loop" and node.graphs:
        given, wanted = node.graphs["body"].outputs[1:], node.inputs[2:]
    else:
        return
    for one, other in zip(given, wanted, strict=False):
        names = {tensor.dtype.name for tensor in (one, other) if tensor is not None}
        if len(names - {"undefined"}) > 1:
            yield f"has a body that gives {' and '.join(sorted(names))} where both must be of one type"


# Their kernels demand what the schema leaves open (onnxruntime/core/providers/cpu/rnn/lstm_base.h).
_SPELLED = {"float32": "float", "float64": "double"}


def file_problems(model: onnx.ModelProto) -> tuple[str, ...]:
    """Return what ONNX Runtime refuses in the names and types that a file declares, as sentences."""
    graph = model.graph
    result = []
    for noun, names in (
        ("node name", [node.name for node in graph.node if node.name]),
        ("input", [value.name for value in graph.input]),
    ):
        twice = next((name for name, count in Counter(names).items() if count > 1), None)
        if twice is not None:
            result.append(f"the {noun} '{twice}' is given twice")
    stored = {tensor.name: tensor for tensor in graph.initializer}
    for value in graph.input:
        if value.type.WhichOneof("value") is None:
            result.append(f"input '{value.name}' has no type")
        tensor = stored.get(value.name)
        if tensor is not None:
            kind = value.type.tensor_type
            dims = [dim.dim_value if dim.HasField("dim_value") else None for dim in kind.shape.dim]
            differs = len(dims) != len(tensor.dims) or any(
                size not in (None, given) for size, given in zip(dims, tensor.dims, strict=True)
            )
            if kind.elem_type != tensor.data_type or (kind.HasField("shape") and differs):
                result.append(f"initializer '{value.name}' is not of the type of the input of its name")
    imported, own = {entry.domain for entry in model.opset_import}, {item.domain for item in model.functions}
    for domain in dict.fromkeys(node.domain for node in graph.node):
        if domain in own - imported:  # of other domains ONNX Runtime takes its own version
            result.append(f"it imports no version of the operator set '{domain}' of its functions")
    for entry in model.opset_import:
        if entry.domain == CLASSICAL_DOMAIN and entry.version > _NEWEST_CLASSICAL:
            result.append(f"operator set {entry.domain} {entry.version} is newer than {_NEWEST_CLASSICAL}")
    return tuple(result)


_NEWEST_CLASSICAL = 5  # VERSION_TABLE of onnx/helper.py, the same since ONNX 1.16


def check_texts(model: onnx.ModelProto, subject: str) -> None:
    """Refuse a model with a name that is no text: protobuf hands such ones out as bytes."""
    waiting: list[Any] = [model]
    while waiting:
        message = waiting.pop()
        for field, value in message.ListFields():
            if field.type == field.TYPE_MESSAGE:
                waiting += (value,) if hasattr(value, "ListFields") else value
            elif field.type == field.TYPE_STRING:
                for text in (value,) if isinstance(value, (str, bytes)) else value:
                    if not isinstance(text, str):
                        kind = message.DESCRIPTOR.name.removesuffix("Proto")
                        raise ModelError(
                            f"{subject} has a {field.name} of a {kind} that is no text: {text!r:.80}",
                            hint="ONNX's names are UTF-8: check that the file was copied whole.",
                        )


@lru_cache(maxsize=4096)
def _demands(op_type: str, domain: str, version: int) -> _Demands | None:
    import onnx

    if domain == CONTRIB_DOMAIN:
        return _contrib_demands(op_type)
    name = "" if domain == DEFAULT_DOMAIN else domain
    try:
        schema = onnx.defs.get_schema(op_type, version, name)
    # None of this name, or of this version.
    except (onnx.defs.SchemaError, TypeError, ValueError, OverflowError):
        return None
    single = onnx.defs.OpSchema.FormalParameterOption.Single
    inlined = schema.all_function_opset_versions  # type: ignore[attr-defined]  # its stub lacks it
    return _Demands(
        (schema.min_input, schema.max_input),
        (schema.min_output, schema.max_output),
        tuple((place, item.name) for place, item in enumerate(schema.inputs) if item.option == single),
        {key: int(item.type) for key, item in schema.attributes.items()},  # type: ignore[call-overload]  # of C++
        tuple(key for key, item in schema.attributes.items() if item.required),
        tuple(
            (item.name, item.type_str if item.is_homogeneous else "", frozenset(item.types))
            for item in schema.inputs
        ),
        # What has a definition is inlined before it is looked at: GroupNormalization of opset 18 loads.
        schema.since_version if schema.deprecated and not inlined else 0,
    )


def _contrib_demands(op_type: str) -> _Demands | None:
    schema = _contrib_schemas()["operators"].get(op_type)
    if schema is None:
        return None
    read_types = tuple(
        (name, variable, frozenset(_contrib_schemas()["types"][kinds].split(" ")))
        for name, variable, kinds in schema["types"]
    )
    needed = tuple((place, name) for place, name in schema["needed"])
    inputs, outputs = tuple(schema["inputs"]), tuple(schema["outputs"])
    kinds, required = schema["attributes"], tuple(schema["required"])
    return _Demands(inputs, outputs, needed, kinds, required, read_types)


@lru_cache(maxsize=1)
def _contrib_schemas() -> Mapping[str, Any]:
    schemas: Mapping[str, Any] = json.loads(_CONTRIB_SCHEMAS.read_text(encoding="utf-8"))
    return schemas


def _check_ends(node: onnx.NodeProto, demands: _Demands) -> None:
    reads, writes = node.input, node.output
    for count, (fewest, most), noun in (
        (len(reads), demands.inputs, "input"),
        (len(writes), demands.outputs, "output"),
    ):
        if not fewest <= count <= most:
            wanted = f"at least {fewest}" if count < fewest else f"at most {most}"
            raise _invalid(node, f"has {plural(count, noun)}, {wanted} must be given")
    if "" in reads:
        for place, name in demands.needed_inputs:
            if place < len(reads) and not reads[place]:
                raise _invalid(node, f"lacks its input {name}")


def _check_attributes(node: onnx.NodeProto, demands: _Demands) -> None:
    given = set()
    for attribute in node.attribute:
        name, kind = attribute.name, attribute.type
        if name in given:
            raise _invalid(node, f"gives its attribute {name!r} twice")
        given.add(name)
        if attribute.ref_attr_name:
            raise _invalid(node, f"takes its attribute {name!r} from a function, and stands in none")
        wanted = demands.kinds.get(name)
        if wanted is None:  # one that the operator does not have is read by nobody
            continue
        if kind != wanted:
            raise _invalid(node, f"has an attribute {name!r} of the wrong type")
        if kind in _MESSAGES and not attribute.HasField(_MESSAGES[kind]):
            raise _invalid(node, f"has an attribute {name!r} without a value")
        if name in _POSITIVE:
            _check_positive(node, attribute)
        elif name == "perm" and sorted(attribute.ints) != list(range(len(attribute.ints))):
            raise _invalid(
                node, f"has an attribute 'perm' that is no order of axes: {list(attribute.ints)[:8]}"
            )
    for name in demands.required:
        if name not in given:
            raise _invalid(node, f"lacks its attribute {name!r}")
    if node.op_type == "Constant" and len(given & _CONSTANT_VALUES) != 1:
        raise _invalid(node, f"has {plural(len(given & _CONSTANT_VALUES), 'value')}, it must have one")


def _check_positive(node: onnx.NodeProto, attribute: onnx.AttributeProto) -> None:
    values: Sequence[int] = attribute.ints if attribute.type == _INTS else [attribute.i]
    for value in values:
        if value < 1:
            raise _invalid(node, f"has an attribute {attribute.name!r} of {value}, it must be at least 1")


def _check_bodies(node: onnx.NodeProto, version: int) -> None:
    bodies = {item.name: item.g for item in node.attribute if item.type == _GRAPH}
    if node.op_type == "If":
        for name in ("then_branch", "else_branch"):
            _check_results(node, name, len(bodies[name].output), len(node.output))
        return
    body = bodies["body"]
    taken, fed = len(body.input), len(node.input)
    if node.op_type == "Scan":
        fed -= version < 9  # opset 8 has sequence_lens first
        _check_scan(node, taken, len(body.output))
    if taken != fed:
        raise _invalid(node, f"feeds {plural(fed, 'value')} to a body that takes {taken}")
    # The first that a Loop's body gives is whether it goes on.
    _check_results(node, "body", len(body.output), len(node.output) + (node.op_type == "Loop"))


def _check_results(node: onnx.NodeProto, name: str, given: int, wanted: int) -> None:
    if given != wanted:
        raise _invalid(node, f"needs {plural(wanted, 'result')} of its {name}, which gives {given}")


def _check_scan(node: onnx.NodeProto, taken: int, given: int) -> None:
    values = {item.name: item for item in node.attribute}
    scanned = values["num_scan_inputs"].i
    if scanned > taken:
        raise _invalid(node, f"scans {plural(scanned, 'input')} with a body that takes {taken}")
    stacked = given - (taken - scanned)
    if stacked < 0:
        raise _invalid(
            node, f"has a body that gives {plural(given, 'result')}, its states alone are {taken - scanned}"
        )
    for name, count in (
        ("scan_input_axes", scanned),
        ("scan_input_directions", scanned),
        ("scan_output_axes", stacked),
        ("scan_output_directions", stacked),
    ):
        if name in values and len(values[name].ints) not in (0, count):
            raise _invalid(
                node, f"has an attribute {name!r} of {len(values[name].ints)} values, {count} are wanted"
            )


def _invalid(node: onnx.NodeProto, what: str) -> GraphError:
    return GraphError(
        f"node '{node.name}' ({node.op_type}) {what}",
        hint="the model is not a valid one: save it again from where it comes from",
    )


class _Body(NamedTuple):
    """One graph or function, bodies of control flow included.

    Attributes:
        calls: Functions that it calls and that are not counted in it, each with how often.
    """

    nodes: int
    bytes: int
    depth: int
    calls: Mapping[FunctionKey, int] = {}  # never changed


def check_budget(model: onnx.ModelProto, limits: Limits, subject: str) -> None:
    """Refuse a model that would grow beyond the limits."""
    if len(model.functions) > limits.functions:
        raise _over(
            subject, f"defines {plural(len(model.functions), 'function')}", "functions", limits.functions
        )
    functions = {(item.domain, item.name, item.overload): item for item in model.functions}
    rest = (functions, limits.attributes, subject)
    whole = _body(model.graph.node, model.graph.ByteSize() if functions else 0, *rest)
    bodies = {key: _body(item.node, item.ByteSize(), *rest) for key, item in functions.items()}
    total = _expanded(whole, bodies, subject)
    if total.nodes > limits.nodes:
        raise _over(subject, f"has {plural(total.nodes, 'operator')}{_with(functions)}", "nodes", limits.nodes)
    if total.bytes > limits.bytes:
        size = byte_count(total.bytes)
        raise _over(subject, f"takes {size} without its weights{_with(functions)}", "bytes", limits.bytes)
    if total.depth > limits.depth:
        raise _over(subject, f"nests graphs and functions {total.depth} deep", "depth", limits.depth)


def _with(functions: Mapping[FunctionKey, object]) -> str:
    return " once its functions are put in their callers' places" if functions else ""


def _over(subject: str, what: str, name: str, limit: int) -> ModelError:
    return ModelError(
        f"{subject} {what}; {limit:,} is the limit.",
        hint=f"If it is a model that you trust, raise the limit: --limit {name}=N.",
    )


def _body(
    nodes: Iterable[onnx.NodeProto], size: int, functions: Container[FunctionKey], most: int, subject: str
) -> _Body:
    count = depth = 0
    calls: Counter[FunctionKey] = Counter()
    waiting = [(nodes, 0)]
    while waiting:
        graph, level = waiting.pop()
        depth = max(depth, level)
        for node in graph:
            count += 1
            attributes = node.attribute
            if len(attributes) > most:
                name = f"node '{node.name}' ({node.op_type}) with {len(attributes):,} attributes"
                raise _over(subject, f"has a {name}", "attributes", most)
            for attribute in attributes:
                if attribute.type in GRAPH_KINDS:
                    waiting += [(inner.node, level + 1) for inner in (attribute.g, *attribute.graphs)]
            if functions:
                key = (node.domain, node.op_type, node.overload)
                if key in functions:
                    calls[key] += 1
    return _Body(count, size, depth, calls)


def _expanded(whole: _Body, bodies: Mapping[FunctionKey, _Body], subject: str) -> _Body:
    """Return the model with its functions put in; each function is added up once, after those that it calls."""
    done: dict[FunctionKey, _Body] = {}
    try:
        for key in TopologicalSorter({key: body.calls for key, body in bodies.items()}).static_order():
            done[key] = _sum(bodies[key], done)
    except CycleError as error:
        raise ModelError(
            f"{subject} has a function that calls itself: '{error.args[1][0][1]}'.",
            hint="The model's own functions must not be recursive.",
        ) from error
    return _sum(whole, done)


def _sum(body: _Body, done: Mapping[FunctionKey, _Body]) -> _Body:
    nodes, size, depth = body.nodes, body.bytes, body.depth
    for key, times in body.calls.items():
        called = done[key]
        nodes += times * (called.nodes - 1)  # the call itself goes away
        size += times * called.bytes
        depth = max(depth, body.depth + called.depth + 1)
    return _Body(nodes, size, depth)
