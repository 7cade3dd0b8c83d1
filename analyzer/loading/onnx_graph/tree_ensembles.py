"""Loading: large ensembles of trees as a few numbers, read from the file's bytes.

An ensemble keeps its trees as lists in attributes, a dozen of one element for each node. As objects they take
ten times the file; all that is counted of them are the sums here. Parsed by protobuf, the lists of a file of
100 MB take 1.6 times as long and three times the memory.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from analyzer.operators import TREES, TreeSums

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]

# Fields of onnx.proto3: NodeProto.op_type and attribute; AttributeProto.name, s, floats, ints, strings, type.
OPERATOR_OF_NODE, ATTRIBUTE_OF_NODE = 4, 5
_NAME, _TEXT = bytes([1 << 3 | 2]), bytes([4 << 3 | 2])
_TYPE_IS_TEXT = bytes([0xA0, 0x01, 3])
_FLOATS, _FLOATS_PACKED, _INTEGERS, _INTEGERS_PACKED, _STRINGS = 0x3D, 0x3A, 0x40, 0x42, 0x4A
ENSEMBLES = frozenset({b"TreeEnsembleClassifier", b"TreeEnsembleRegressor"})
LISTS = ("nodes_", "target_", "class_")
"""How the names begin of the lists that hold the trees; classes and base values are other attributes."""
_WEIGHTS = ("nodes_values", "target_weights", "class_weights")


class Stored(NamedTuple):
    """An attribute in a file: its name, and the bytes behind it."""

    name: str
    content: memoryview


def tree_sums(attributes: Mapping[str, Stored]) -> bytes | None:
    """An attribute, serialised, with the sums of an ensemble; None where its lists are of another form.

    Args:
        attributes: The lists of an ensemble, by name.
    """
    try:
        sums = _sums(attributes)
    except (KeyError, ValueError, IndexError):
        return None
    text = sums.text().encode("ascii")
    name = TREES.encode("ascii")
    return b"".join((_NAME, bytes([len(name)]), name, _TEXT, bytes([len(text)]), text, _TYPE_IS_TEXT))


def _sums(attributes: Mapping[str, Stored]) -> TreeSums:
    import numpy as np

    trees, nodes, yes, no = (
        _integers(attributes[f"nodes_{name}"]) for name in ("treeids", "nodeids", "truenodeids", "falsenodeids")
    )
    is_leaf = _leaves(attributes["nodes_modes"], len(nodes))
    # Nodes are numbered within their tree, so that only both numbers name one.
    width = int(nodes.max()) + 1
    keys = trees.astype(np.int64) * width + nodes
    order = None if bool(np.all(keys[1:] > keys[:-1])) else np.argsort(keys)
    ranked = keys if order is None else keys[order]

    def places(children: Array, of: Array) -> Array:
        wanted = trees[of].astype(np.int64) * width + children[of]
        found = np.searchsorted(ranked, wanted)
        if not np.array_equal(ranked[np.minimum(found, len(ranked) - 1)], wanted):
            raise ValueError("a node has a child that is not there")
        return (found if order is None else order[found]).astype(np.int32)

    inner = np.flatnonzero(~is_leaf)
    left, right = np.zeros((2, len(nodes)), np.int32)
    left[inner], right[inner] = places(yes, inner), places(no, inner)
    is_child = np.zeros(len(nodes), bool)
    is_child[left[inner]] = is_child[right[inner]] = True
    # The operator does not name roots: they are what no node has as a child.
    roots = np.flatnonzero(~is_child)
    depths, leaves = _mean_depths(roots, left, right, is_leaf)
    owners = attributes.get("target_treeids") or attributes.get("class_treeids")
    weights = np.bincount(_integers(owners)) if owners is not None else np.zeros(1)
    of_tree = np.bincount(trees[roots], weights=leaves, minlength=len(weights))
    present = np.unique(trees[roots])
    added = np.pad(weights, (0, max(0, len(of_tree) - len(weights))))[present] / np.maximum(of_tree[present], 1)
    digest = hashlib.sha256()
    for name in sorted(attributes):
        digest.update(name.encode())
        digest.update(attributes[name].content)
    learnt = sum(_count_of_floats(attributes[name]) for name in _WEIGHTS if name in attributes)
    return TreeSums(
        trees=len(roots),
        depth=float(depths.sum()),
        additions=float(added.sum()),
        nodes=len(nodes),
        learnt=learnt,
        digest=digest.hexdigest()[:16],
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
        found = np.bincount(owners[ends], minlength=len(roots))
        leaves += found
        depths += level * found
        places, owners = places[~ends], owners[~ends]
        places, owners = np.concatenate((left[places], right[places])), np.concatenate((owners, owners))
        level += 1
    return depths / leaves, leaves


def _integers(stored: Stored) -> Array:
    import numpy as np

    data = np.frombuffer(stored.content, np.uint8)
    packed = data[0] == _INTEGERS_PACKED
    if packed:
        header = int(np.argmax(data[1:] < 0x80)) + 2  # the length in front is a number too
        ends = np.flatnonzero(data[header:] < 0x80) + header
        starts = np.concatenate(([header], ends[:-1] + 1))
    else:
        ends = np.flatnonzero(data < 0x80)
        tags, ends = ends[0::2], ends[1::2]
        if len(tags) != len(ends) or not np.all(data[tags] == _INTEGERS):
            raise ValueError("no list of integers")
        starts = tags + 1
    lengths = ends - starts + 1
    values = np.zeros(len(ends), np.int64)
    for place in range(int(lengths.max())):
        longer = lengths > place
        values[longer] |= (data[starts[longer] + place] & 0x7F).astype(np.int64) << (7 * place)
    if values.min() < 0 or values.max() >= 2**31:
        raise ValueError("no number of a node")
    return values.astype(np.int32)


def _leaves(stored: Stored, count: int) -> Array:
    """Which nodes are leaves: their mode is ``LEAF``, and no mode has a letter J, as the tag is."""
    import numpy as np

    data = np.frombuffer(stored.content, np.uint8)
    tags = np.flatnonzero(data == _STRINGS)
    if len(tags) != count or not np.array_equal(np.append(tags[1:], len(data)), tags + 2 + data[tags + 1]):
        raise ValueError("no list of modes")
    leaves: Array = (data[tags + 1] == len("LEAF")) & (data[tags + 2] == ord("L"))
    return leaves


def _count_of_floats(stored: Stored) -> int:
    content = stored.content
    if content[0] == _FLOATS:
        return len(content) // 5
    if content[0] != _FLOATS_PACKED:
        raise ValueError("no list of numbers")
    header = next(place for place in range(1, len(content)) if content[place] < 0x80) + 1
    return (len(content) - header) // 4
