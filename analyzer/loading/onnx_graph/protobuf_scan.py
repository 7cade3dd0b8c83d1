"""Loading, at the level of protobuf's wire format: an ONNX file without its weights' bytes.

A model of gigabytes is walked field by field through a memory map; only what is no weight is copied. Field
numbers are those of onnx.proto3; https://protobuf.dev/programming-guides/encoding/ describes the encoding.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator

from analyzer.loading.onnx_graph.tree_ensembles import (
    ATTRIBUTE_OF_NODE,
    ENSEMBLES,
    LISTS,
    OPERATOR_OF_NODE,
    Stored,
    tree_sums,
)

# Field numbers never change in protobuf: they are the format. Only the graph's own initializers are thinned:
# tensors in attributes (Constant, bodies) stay whole.
GRAPH_OF_MODEL = 7
NODE_OF_GRAPH, INITIALIZER_OF_GRAPH = 1, 5
LARGE_NODE = 1024 * 1024
"""Ensembles of trees of more bytes are read as their sums."""
# AttributeProto.type, of one byte, is what an attribute ends with.
_TYPE = bytes([0xA0, 0x01])
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
    """Copies a serialised ModelProto, leaving out the data of large initializers and of large trees.

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
    """A large ensemble of trees with the sums of its lists in their place; None of another node."""
    fields = list(_fields(buffer, first, last))
    kind = next((buffer[body:end] for field, _, body, end in fields if field == OPERATOR_OF_NODE), b"")
    if kind not in ENSEMBLES:
        return None
    rest, large = [], {}
    with memoryview(buffer) as whole:
        for field, start, body, end in fields:
            length, begin = _varint(buffer, body + 1)  # of an attribute's name, its first field
            name = buffer[begin : begin + length].decode("ascii", "replace")
            if field != ATTRIBUTE_OF_NODE or not name.startswith(LISTS):
                rest.append(buffer[start:end])
                continue
            ends = end - 3 if buffer[end - 3 : end - 1] == _TYPE else end
            large[name] = Stored(name, whole[begin + length : ends])
        sums = tree_sums(large)
        for stored in large.values():
            stored.content.release()
    return None if sums is None else b"".join((*rest, _header(ATTRIBUTE_OF_NODE, len(sums)), sums))


def _tensor(buffer: Buffer, first: int, last: int) -> bytes:
    fields = [
        buffer[start:end]
        for field, start, _, end in _fields(buffer, first, last)
        if field not in _DATA_OF_TENSOR
    ]
    return b"".join((*fields, _DATA_LOCATION_EXTERNAL))


def _fields(buffer: Buffer, first: int, last: int) -> Iterator[tuple[int, int, int, int]]:
    """Yields (field number, start of the key, start of the body, end) of each field between two offsets."""
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
