"""Loading, first step for an ONNX file: bytes on disk -> ModelProto without weights.

What is wrong with a file is told here, in one sentence: it is missing, empty, cut off, no ONNX model at all,
or of a version that the installed onnx cannot read.

A model of gigabytes is walked field by field through a memory map, at the level of protobuf's wire format; only
what is no weight is copied. Field numbers are those of onnx.proto3;
https://protobuf.dev/programming-guides/encoding/ describes the encoding.

An ensemble of trees keeps them as lists in attributes, a dozen of one element for each node. As objects they
take ten times the file; all that is counted of a large one are a few sums.
"""

from __future__ import annotations

import hashlib
import mmap
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from analyzer.errors import ModelError
from analyzer.operators import TREES, TreeSums

if TYPE_CHECKING:
    import numpy as np
    import onnx

    Array = np.ndarray[Any, Any]

KEEP_BYTES = 16 * 1024
"""Initializers of up to so many bytes keep their data: shapes, axes, scales."""

_HINT_DAMAGED = "check that the file was copied whole and is an ONNX model"


def read_model(path: str | os.PathLike[str]) -> onnx.ModelProto:
    """Read an ONNX file without its weights; external data beside it is neither needed nor read.

    Returns:
        The model; initializers over 16 KiB have no data (``data_location`` is ``EXTERNAL``).

    Raises:
        ModelError: The file is missing, empty, truncated, not ONNX, or newer than the installed onnx.
    """
    file = Path(path)
    if file.is_dir():
        raise ModelError(f"'{file}' is a folder, not an ONNX file", hint="name the .onnx file in it")
    if not file.exists():
        raise ModelError(f"there is no file '{file}'", hint="check the path")
    model = _parsed(file)
    # Protobuf parses many files that are no ONNX at all: unknown fields are allowed, and all fields are
    # optional.
    if not model.HasField("graph") or not (model.ir_version and (model.graph.node or model.graph.output)):
        raise ModelError(f"'{file}' holds no ONNX graph", hint=_HINT_DAMAGED)
    if not model.opset_import and model.ir_version >= 3:  # onnx.proto demands it from IR version 3 on
        raise ModelError(f"'{file}' imports no operator set", hint=_HINT_DAMAGED)
    check_versions(model, str(file))
    return model


def check_versions(model: onnx.ModelProto, name: str) -> None:
    """Raise ModelError where the installed onnx does not know the model's IR or opset version."""
    import onnx

    if model.ir_version > onnx.IR_VERSION:
        raise ModelError(
            f"'{name}' has IR version {model.ir_version}; the installed onnx {onnx.__version__} reads up to"
            f" {onnx.IR_VERSION}",
            hint="upgrade the onnx package or save the model with an older IR version",
        )
    newest = onnx.defs.onnx_opset_version()
    if model.ir_version < 1 or any(opset.version < 1 for opset in model.opset_import):
        raise ModelError(
            f"'{name}' has an IR or opset version below 1", hint="check that the file was copied whole"
        )
    # Of other domains onnx knows no newest version; their operators are looked up by name.
    for opset in model.opset_import:
        if opset.domain in ("", "ai.onnx") and opset.version > newest:
            raise ModelError(
                f"'{name}' uses opset {opset.version}; the installed onnx {onnx.__version__} knows {newest}",
                hint="upgrade the onnx package or export with an older opset",
            )


# How every pointer file begins, by the specification of Git LFS.
_LFS_POINTER = b"version https://git-lfs"


def _parsed(file: Path) -> onnx.ModelProto:
    import onnx
    from google.protobuf.message import DecodeError  # type: ignore[import-untyped, unused-ignore]

    model = onnx.ModelProto()
    try:
        with file.open("rb") as stream:
            size = os.fstat(stream.fileno()).st_size
            if size == 0:
                raise ModelError(f"'{file}' is empty", hint=_HINT_DAMAGED)
            if stream.read(len(_LFS_POINTER)) == _LFS_POINTER:
                raise ModelError(f"'{file}' is a Git LFS pointer, not the model", hint="fetch it: git lfs pull")
            stream.seek(0)
            # Reading the file through a map copies what is no weight alone: gigabytes are never read.
            if size <= KEEP_BYTES:
                model.ParseFromString(stream.read())
                return model
            with mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as whole:
                model.ParseFromString(without_weights(whole, keep_bytes=KEEP_BYTES))
    except OSError as error:
        raise ModelError(
            f"'{file}' cannot be read: {error.strerror}", hint="check the path and its rights"
        ) from error
    except (DecodeError, WireError) as error:
        raise ModelError(
            f"'{file}' is no ONNX model, or it is cut off ({error})", hint=_HINT_DAMAGED
        ) from error
    return model


# Field numbers never change in protobuf: they are the format. Only the graph's own initializers are thinned:
# tensors in attributes (Constant, bodies) stay whole.
GRAPH_OF_MODEL = 7
NODE_OF_GRAPH, INITIALIZER_OF_GRAPH = 1, 5
LARGE_NODE = 1024 * 1024
"""Ensembles of trees of more bytes are read as their sums."""
# float_data, int32_data, string_data, int64_data, raw_data, double_data, uint64_data, data_location
_DATA_OF_TENSOR = frozenset({4, 5, 6, 7, 9, 10, 11, 14})
# Key (field 14, kind varint) and value (EXTERNAL) of TensorProto.data_location.
_DATA_LOCATION_EXTERNAL = bytes([14 << 3, 1])
# Kinds 3 and 4 open and close groups, which no message of ONNX uses.
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5

Buffer = bytes | mmap.mmap


class WireError(ValueError):
    """The bytes are not a protobuf message, or it ends early."""


def without_weights(buffer: Buffer, *, keep_bytes: int, large_node: int = LARGE_NODE) -> bytes:
    """Copy a serialised ModelProto, leaving out the data of large initializers and of large trees.

    Args:
        buffer: The whole file.
        keep_bytes: Initializers that take at most so many bytes keep their data; they hold shapes and axes.
        large_node: Ensembles of trees that take at most so many bytes keep their lists.

    Returns:
        A serialised ModelProto whose larger initializers say that their data lies elsewhere.

    Raises:
        WireError: The bytes do not follow the wire format.
    """
    parts: list[bytes] = []
    for field, start, body, end in _fields(buffer, 0, len(buffer)):
        if field == GRAPH_OF_MODEL:
            graph = _graph(buffer, body, end, keep_bytes, large_node)
            parts += (_header(GRAPH_OF_MODEL, len(graph)), graph)
        else:
            parts.append(buffer[start:end])
    return b"".join(parts)


def _graph(buffer: Buffer, first: int, last: int, keep_bytes: int, large_node: int) -> bytes:
    parts: list[bytes] = []
    for field, start, body, end in _fields(buffer, first, last):
        if field == INITIALIZER_OF_GRAPH and end - body > keep_bytes:
            tensor = _tensor(buffer, body, end)
            parts += (_header(INITIALIZER_OF_GRAPH, len(tensor)), tensor)
        elif field == NODE_OF_GRAPH and end - body > large_node:
            node = _with_sums(buffer, body, end)
            parts += (_header(NODE_OF_GRAPH, len(node)), node) if node else (buffer[start:end],)
        else:
            parts.append(buffer[start:end])
    return b"".join(parts)


def _with_sums(buffer: Buffer, first: int, last: int) -> bytes | None:
    """Return a large ensemble of trees with the sums of its lists in their place; None of another node."""
    import onnx

    fields = list(_fields(buffer, first, last))
    if next((buffer[body:end] for field, _, body, end in fields if field == _OPERATOR), b"") not in _ENSEMBLES:
        return None
    rest, lists, digest = [], {}, hashlib.sha256()
    try:
        for field, start, body, end in fields:
            item = onnx.AttributeProto.FromString(buffer[body:end] if field == _ATTRIBUTE else b"")
            if not item.name.startswith(_LISTS):
                rest.append(buffer[start:end])
                continue
            name = item.name
            lists[name] = _array(item)
            item.ClearField("name")
            item.ClearField("type")
            digest.update(name.encode() + item.SerializeToString())
        sums = onnx.helper.make_attribute(
            TREES, _sums(lists, digest.hexdigest()[:16]).text()
        ).SerializeToString()
    except (KeyError, ValueError, IndexError):  # lists of another form
        return None
    return b"".join((*rest, _header(_ATTRIBUTE, len(sums)), sums))


def _array(item: onnx.AttributeProto) -> Array:
    """Return a list of an ensemble: its numbers; of modes, which are leaves."""
    import numpy as np

    if item.strings:
        return np.fromiter((mode == b"LEAF" for mode in item.strings), bool, len(item.strings))
    if item.floats:
        return np.array(item.floats, np.float32)
    numbers = np.fromiter(item.ints, np.int64, len(item.ints))
    if numbers.min() < 0 or numbers.max() >= 2**31:
        raise ValueError("no number of a node")
    return numbers.astype(np.int32)


def _tensor(buffer: Buffer, first: int, last: int) -> bytes:
    fields = [
        buffer[start:end]
        for field, start, _, end in _fields(buffer, first, last)
        if field not in _DATA_OF_TENSOR
    ]
    return b"".join((*fields, _DATA_LOCATION_EXTERNAL))


def _fields(buffer: Buffer, first: int, last: int) -> Iterator[tuple[int, int, int, int]]:
    """Yield (field number, start of the key, start of the body, end) of each field between two offsets."""
    position = first
    while position < last:
        start = position
        key, position = _varint(buffer, position)
        kind = key & 7
        body = position
        if kind == _BYTES:
            length, body = _varint(buffer, position)
            position = body + length
        elif kind == _VARINT:
            _, position = _varint(buffer, position)
        elif kind == _FIXED64:
            position += 8
        elif kind == _FIXED32:
            position += 4
        else:
            raise WireError(f"field of kind {kind} at byte {start}")
        if position > last or not key >> 3:
            raise WireError(f"field {key >> 3} runs past the end at byte {start}")
        yield key >> 3, start, body, position


def _varint(buffer: Buffer, position: int) -> tuple[int, int]:
    value = shift = 0
    try:
        while True:
            byte = buffer[position]
            position += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value, position
            shift += 7
            if shift > 63:  # 64 bits in groups of 7
                raise WireError(f"a number of over ten bytes at byte {position}")
    except IndexError:
        raise WireError("the message ends within a number") from None


def _header(field: int, length: int) -> bytes:
    return _encoded(field << 3 | _BYTES) + _encoded(length)


def _encoded(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


_OPERATOR, _ATTRIBUTE = 4, 5  # of NodeProto
_ENSEMBLES = frozenset({b"TreeEnsembleClassifier", b"TreeEnsembleRegressor"})
# How the names begin of the lists that hold the trees; classes and base values are other attributes.
_LISTS = ("nodes_", "target_", "class_")


def _sums(lists: Mapping[str, Array], digest: str) -> TreeSums:
    import numpy as np

    trees, nodes, yes, no, is_leaf = (
        lists[f"nodes_{name}"] for name in ("treeids", "nodeids", "truenodeids", "falsenodeids", "modes")
    )
    if len(is_leaf) != len(nodes):
        raise ValueError("not a mode for each node")
    # Nodes are numbered within their tree, so that only both numbers name one.
    width = int(nodes.max()) + 1
    keys = trees.astype(np.int64) * width + nodes
    order = None if bool(np.all(keys[1:] > keys[:-1])) else np.argsort(keys)
    ranked = keys if order is None else keys[order]

    def places(children: Array, of: Array) -> Array:
        wanted = trees[of].astype(np.int64) * width + children[of]
        result = np.searchsorted(ranked, wanted)
        if not np.array_equal(ranked[np.minimum(result, len(ranked) - 1)], wanted):
            raise ValueError("a node has a child that is not there")
        return (result if order is None else order[result]).astype(np.int32)

    inner = np.flatnonzero(~is_leaf)
    left, right = np.zeros((2, len(nodes)), np.int32)
    left[inner], right[inner] = places(yes, inner), places(no, inner)
    is_child = np.zeros(len(nodes), bool)
    is_child[left[inner]] = is_child[right[inner]] = True
    # The operator does not name roots: they are what no node has as a child.
    roots = np.flatnonzero(~is_child)
    depths, leaves = _mean_depths(roots, left, right, is_leaf)
    owners = lists.get("target_treeids", lists.get("class_treeids"))
    weights = np.bincount(owners) if owners is not None else np.zeros(1)
    of_tree = np.bincount(trees[roots], weights=leaves, minlength=len(weights))
    present = np.unique(trees[roots])
    added = np.pad(weights, (0, max(0, len(of_tree) - len(weights))))[present] / np.maximum(of_tree[present], 1)
    learnt = sum(len(lists.get(name, ())) for name in ("nodes_values", "target_weights", "class_weights"))
    return TreeSums(
        trees=len(roots),
        depth=float(depths.sum()),
        additions=float(added.sum()),
        nodes=len(nodes),
        learnt=learnt,
        digest=digest,
    )


def _mean_depths(roots: Array, left: Array, right: Array, is_leaf: Array) -> tuple[Array, Array]:
    """Mean depth of the leaves below each root, and how many there are; level by level."""
    import numpy as np

    depths, leaves = np.zeros((2, len(roots)))
    places, owners, level, seen = roots, np.arange(len(roots), dtype=np.int32), 0, 0
    while len(places):
        seen += len(places)
        if seen > len(is_leaf):  # a node is the child of two, or its own ancestor
            raise ValueError("no tree")
        ends = is_leaf[places]
        result = np.bincount(owners[ends], minlength=len(roots))
        leaves += result
        depths += level * result
        places, owners = places[~ends], owners[~ends]
        places, owners = np.concatenate((left[places], right[places])), np.concatenate((owners, owners))
        level += 1
    return depths / leaves, leaves
