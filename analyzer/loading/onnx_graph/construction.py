"""Loading: where an operator comes from, and a Graph as bytes.

A Graph is handed from the process that reads a file to the one that analyses it. MessagePack and no pickle:
what comes out of a process that has met a stranger's file is data, whatever became of that process. A tensor is
written once, so that it is one object again for its producer and all consumers.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import msgspec

from analyzer.errors import GraphError
from analyzer.graph import DTYPES_BY_NUMBER, NO_ATTRIBUTES, DType, Graph, Node, Source, Tensor, Trips

if TYPE_CHECKING:
    import numpy as np
    import onnx

    Array = np.ndarray[Any, Any]
    Plain = Any
    """What MessagePack has: numbers, texts, bytes, None, lists and maps of them."""


# Where an operator comes from, as the exporter wrote it beside the node.
PREFIX = "analyzer."
# Written by PyTorch's exporter (torch/onnx/_internal/exporter/_core.py); ours are written by
# torch_export/export.py.
SCOPES = "pkg.torch.onnx.name_scopes"
CLASSES = "pkg.torch.onnx.class_hierarchy"
_OURS = [PREFIX + name for name in ("module", "class", "file", "line", "code", "phase")]
_READ = frozenset({SCOPES, CLASSES, *_OURS})
_QUOTED = re.compile(r"'([^']*)'")  # torch writes lists of names as Python does

_LONGEST_NUMBER = 9  # digits: Python refuses to read thousands of them

NodeOrigin = tuple[str, str, Source | None, str | None]
"""Module path, module class, source line, phase."""

NOWHERE: NodeOrigin = ("", "", None, None)


def origin(name: str, entries: Sequence[onnx.StringStringEntryProto]) -> NodeOrigin:
    """Return module, class, source line and phase of a node, as far as its metadata or name has them."""
    properties = {}
    for entry in entries:
        key = entry.key
        if key in _READ:  # the stack trace, which is not, is longer than all the rest
            properties[key] = entry.value
    if not properties:
        return (module_of_name(name), "", None, None) if name.startswith("/") else NOWHERE
    if PREFIX + "module" not in properties and PREFIX + "file" not in properties and SCOPES in properties:
        module, kind = _scoped(properties[SCOPES], properties.get(CLASSES, ""))
    else:
        module, kind = properties.get(PREFIX + "module", ""), properties.get(PREFIX + "class", "")
    return module, kind, _source(properties), properties.get(PREFIX + "phase") or None


def _source(properties: Mapping[str, str]) -> Source | None:
    file, line = properties.get(PREFIX + "file"), properties.get(PREFIX + "line", "")
    if not file or not line.isdecimal() or len(line) > _LONGEST_NUMBER:
        return None
    return Source(file=file, line=int(line), code=properties.get(PREFIX + "code", ""))


@lru_cache(maxsize=4096)
def _scoped(scopes: str, classes: str) -> tuple[str, str]:
    """Return the innermost module of torch.onnx's scopes: the last entry but one.

    The last being the operator's own.
    """
    paths, kinds = _QUOTED.findall(scopes), _QUOTED.findall(classes)
    module = paths[-2] if len(paths) > 1 else ""
    kind = kinds[-2].rpartition(".")[2] if len(kinds) > 1 else ""
    return module, kind


@lru_cache(maxsize=4096)
def module_of_name(name: str) -> str:
    """Return the module path of a TorchScript name: ``/layer1/layer1.0/conv1/Conv`` is ``layer1.0.conv1``."""
    # TorchScript repeats the whole path of a module in a container: "layer1" and then "layer1.0".
    path: list[str] = []
    for part in name.split("/")[1:-1]:
        if path and part.startswith(path[-1] + "."):
            path[-1] = part
        else:
            path.append(part)
    return ".".join(path)


_FACTS = ("name", "ir_version", "notes", "problems")
_MAPS = ("opsets", "open_dimensions", "expected_shapes", "carried")
_ARRAY, _STRINGS = 1, 2  # codes of our own extension types
_TOO_LARGE = "a number of the graph is too large"


def to_message(graph: Graph) -> bytes:
    """Return the graph as bytes.

    Raises:
        GraphError: A number of it has over 64 bits.
    """
    table = _TensorTable()
    described = table.describe(graph)
    try:
        return msgspec.msgpack.Encoder(enc_hook=_encode_array).encode([table.rows, described])
    except OverflowError as error:
        raise GraphError(_TOO_LARGE, hint="check the sizes that the file declares and the batch") from error


def from_message(message: bytes) -> Graph:
    """Return the graph that ``to_message`` wrote.

    Raises:
        ValueError: The bytes hold none.
    """
    try:
        rows, described = msgspec.msgpack.Decoder(ext_hook=_decode_array).decode(message)
        tensors = [_tensor(row) for row in rows]
        tensors.append(None)  # index -1: an input or output that is absent
        return _graph(described, tensors)
    except (msgspec.DecodeError, ValueError, KeyError, IndexError, TypeError, AttributeError) as error:
        raise ValueError(f"no graph: {error}") from error


class _TensorTable:
    """The tensors of a graph and its bodies, each with its number."""

    def __init__(self) -> None:
        self.rows: list[Plain] = []
        self._numbers: dict[int, int] = {}

    def describe(self, graph: Graph) -> list[Plain]:
        inputs, initializers = self._all(graph.inputs), self._all(graph.initializers)
        nodes = [self._node(node) for node in graph.nodes]
        facts = {name: getattr(graph, name) for name in _FACTS}
        maps = {name: dict(getattr(graph, name)) for name in _MAPS}
        return [inputs, initializers, nodes, self._all(graph.outputs), facts, maps]

    def _node(self, node: Node) -> list[Plain]:
        source = node.source
        written = None if source is None else (source.file, source.line, source.code)
        return [
            node.name,
            (node.op_type, node.domain, node.version),
            self._all(node.inputs),
            self._all(node.outputs),
            dict(node.attributes) if node.attributes else None,
            {name: self.describe(graph) for name, graph in node.graphs.items()} if node.graphs else None,
            (node.module, node.module_class, written, node.phase),
            None if node.trips is None else (node.trips.count, node.trips.exact),
        ]

    def _all(self, tensors: Sequence[Tensor | None]) -> list[int]:
        numbers, add = self._numbers, self._add
        return [-1 if tensor is None else numbers.get(id(tensor)) or add(tensor) for tensor in tensors]

    def _add(self, tensor: Tensor) -> int:
        number = self._numbers.get(id(tensor))  # asked again: number 0 reads as none above
        if number is None:
            number = self._numbers[id(tensor)] = len(self.rows)
            dtype = tensor.dtype
            known = DTYPES_BY_NUMBER.get(dtype.onnx) is dtype
            self.rows.append(
                [
                    tensor.name,
                    tensor.shape,
                    dtype.onnx if known else [dtype.name, dtype.bits, dtype.onnx],
                    tensor.constant,
                    tensor.initializer,
                    tensor.value,
                ]
            )
        return number


def _tensor(row: Sequence[Plain]) -> Tensor | None:
    name, shape, kind, constant, initializer, value = row
    dtype = DTYPES_BY_NUMBER[kind] if isinstance(kind, int) else DType(name=kind[0], bits=kind[1], onnx=kind[2])
    return Tensor(
        name=name,
        shape=None if shape is None else tuple(shape),
        dtype=dtype,
        constant=constant,
        initializer=initializer,
        value=value,
    )


def _graph(described: Sequence[Plain], tensors: Sequence[Tensor | None]) -> Graph:
    inputs, initializers, nodes, outputs, facts, maps = described
    # MessagePack has one kind of list; those of a graph and of its nodes are tuples.
    maps["expected_shapes"] = {key: tuple(shape) for key, shape in maps["expected_shapes"].items()}
    maps["carried"] = maps["carried"] or NO_ATTRIBUTES
    facts = {name: tuple(fact) if isinstance(fact, list) else fact for name, fact in facts.items()}
    plain: dict[str, Any] = {**facts, **maps}
    return Graph(
        nodes=tuple([_node(index, node, tensors) for index, node in enumerate(nodes)]),
        inputs=_present(inputs, tensors),
        outputs=_present(outputs, tensors),
        initializers=_present(initializers, tensors),
        **plain,
    )


def _present(numbers: Sequence[int], tensors: Sequence[Tensor | None]) -> tuple[Tensor, ...]:
    return tuple([tensor for tensor in [tensors[number] for number in numbers] if tensor is not None])


def _node(index: int, described: Sequence[Plain], tensors: Sequence[Tensor | None]) -> Node:
    name, operator, reads, writes, attributes, graphs, (module, module_class, source, phase), trips = described
    op_type, domain, version = operator
    return Node(
        index=index,
        name=name,
        op_type=op_type,
        domain=domain,
        version=version,
        inputs=tuple([tensors[number] for number in reads]),
        outputs=tuple([tensors[number] for number in writes]),
        attributes={
            name: tuple(value) if isinstance(value, list) else value for name, value in attributes.items()
        }
        if attributes
        else NO_ATTRIBUTES,
        graphs={key: _graph(graph, tensors) for key, graph in graphs.items()} if graphs else NO_ATTRIBUTES,
        module=module,
        module_class=module_class,
        source=source and Source(file=source[0], line=source[1], code=source[2]),
        phase=phase,
        trips=None if trips is None else Trips(count=trips[0], exact=trips[1]),
    )


def _encode_array(value: object) -> Plain:
    import numpy as np

    if not isinstance(value, np.ndarray):
        raise NotImplementedError(f"a {type(value).__name__} in a graph")
    if value.dtype == object:  # texts
        texts = [text if isinstance(text, (str, bytes)) else str(text) for text in value.ravel().tolist()]
        return msgspec.msgpack.Ext(_STRINGS, msgspec.msgpack.encode([value.shape, texts]))
    if value.dtype.kind in "US":
        return _encode_array(value.astype(object))
    packed = [value.dtype.name, value.shape, np.ascontiguousarray(value).tobytes()]
    return msgspec.msgpack.Ext(_ARRAY, msgspec.msgpack.encode(packed))


def _decode_array(code: int, data: memoryview) -> Array:
    import numpy as np

    if code == _STRINGS:
        shape, texts = msgspec.msgpack.decode(data)
        array = np.empty(len(texts), object)
        array[:] = texts
        return array.reshape(shape)
    name, shape, elements = msgspec.msgpack.decode(data)
    try:
        kind = np.dtype(name)
    except TypeError:  # one that ml_dtypes adds: bfloat16, float8 and types of less than a byte
        import ml_dtypes

        kind = np.dtype(getattr(ml_dtypes, name))
    return np.frombuffer(elements, kind).reshape(shape)
