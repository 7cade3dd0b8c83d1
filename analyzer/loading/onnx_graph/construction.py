"""Loading: Tensors and Nodes made without the frozen dataclasses' own ``__init__``.

That one sets each field through ``object.__setattr__``, which takes longer than all else about a node. Here a
draft with the same slots is filled and then becomes the real class; the result is the same in every way, which
tests/loading/test_made_values.py holds. No other module changes an object's class at run time but
costs/traffic.py, for costs; tests/benchmarks/counting.py measures what both are for.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from analyzer.graph import Node, Source, Tensor

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np
    import onnx

    from analyzer.graph import DType, Graph, Shape, Trips


# CPython lets an object change its class where both have the same slots in the same order and no __dict__: a
# field that the dataclass gains is a slot of the draft too, and left unset raises AttributeError at its first
# use.
class _TensorDraft:
    __slots__ = Tensor.__slots__


class _NodeDraft:
    __slots__ = Node.__slots__


_NODE_FIELDS = tuple(Node.__slots__)


def make_tensor(
    name: str,
    shape: Shape,
    dtype: DType,
    constant: bool = False,
    initializer: bool = False,
    value: np.ndarray[Any, Any] | None = None,
) -> Tensor:
    """``Tensor(...)``."""
    new: Any = _TensorDraft()
    new.name = name
    new.shape = shape
    new.dtype = dtype
    new.constant = constant
    new.initializer = initializer
    new.value = value
    new.__class__ = Tensor
    return new  # type: ignore[no-any-return]  # a Tensor since the line above


def make_node(
    index: int,
    name: str,
    operator: tuple[str, str, int],
    inputs: tuple[Tensor | None, ...],
    outputs: tuple[Tensor | None, ...],
    attributes: Mapping[str, Any],
    graphs: Mapping[str, Graph],
    origin: NodeOrigin,
    trips: Trips | None = None,
) -> Node:
    """``Node(...)``; ``operator`` is its type, domain and version."""
    new: Any = _NodeDraft()
    new.index = index
    new.name = name
    new.op_type, new.domain, new.version = operator
    new.inputs = inputs
    new.outputs = outputs
    new.attributes = attributes
    new.graphs = graphs
    new.module, new.module_class, new.source, new.phase = origin
    new.steps = None
    new.trips = trips
    new.__class__ = Node
    return new  # type: ignore[no-any-return]  # a Node since the line above


def renumbered(node: Node, index: int) -> Node:
    """The same node at another position."""
    new: Any = _NodeDraft()
    for name in _NODE_FIELDS:
        setattr(new, name, getattr(node, name))
    new.index = index
    new.__class__ = Node
    return new  # type: ignore[no-any-return]  # a Node since the line above


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
    """Module, class, source line and phase of a node, as far as its metadata or its name tells them."""
    if not entries:
        return _from_name(name) if name.startswith("/") else NOWHERE
    properties = {}
    for entry in entries:
        key = entry.key
        if key in _READ:  # the stack trace, which is not, is longer than all the rest
            properties[key] = entry.value
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
    """The innermost module of torch.onnx's scopes: the last entry but one.

    The last being the operator's own.
    """
    paths, kinds = _QUOTED.findall(scopes), _QUOTED.findall(classes)
    module = paths[-2] if len(paths) > 1 else ""
    kind = kinds[-2].rpartition(".")[2] if len(kinds) > 1 else ""
    return module, kind


@lru_cache(maxsize=4096)
def _from_name(name: str) -> NodeOrigin:
    """The module path in a TorchScript export's name: ``/layer1/layer1.0/conv1/Conv`` is ``layer1.0.conv1``."""
    # TorchScript repeats the whole path of a module in a container: "layer1" and then "layer1.0".
    path: list[str] = []
    for part in name.split("/")[1:-1]:
        if path and part.startswith(path[-1] + "."):
            path[-1] = part
        else:
            path.append(part)
    return ".".join(path), "", None, None
