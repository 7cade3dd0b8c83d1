"""What ONNX Runtime's level 1 does away with before it places nodes: constant subgraphs and no-operations."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from analyzer.graph import DEFAULT_DOMAIN, Graph, Node, Tensor
from analyzer.runtime.kernels import registry

# The constant folder leaves these alone: they draw random numbers, or keep a quantised weight quantised.
_NEVER_FOLDED = frozenset(
    ("RandomNormal", "RandomUniform", "RandomNormalLike", "RandomUniformLike", "Multinomial", "Bernoulli")
) | {"DequantizeLinear"}

# Equal stored tensors of up to so many elements become one (ConstantSharing).
_SHARED_ELEMENTS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Simplified:
    """What is left of a graph.

    Attributes:
        folded: Indices of nodes whose outputs are constants.
        removed: Indices of nodes that pass a tensor on unchanged and are taken out.
        alias: For each tensor that is now another one, that one's name.
        constants: What the folded nodes wrote.
    """

    folded: frozenset[int]
    removed: frozenset[int]
    alias: Mapping[str, str]
    constants: tuple[Tensor, ...] = ()

    def name(self, tensor: Tensor) -> str:
        """The name under which a tensor is left."""
        return self.alias.get(tensor.name, tensor.name)


def simplify(graph: Graph) -> Simplified:
    """Finds the nodes that ONNX Runtime's level 1 folds or removes, without running anything."""
    constants = {tensor.name for tensor in graph.initializers}
    kept = {tensor.name for tensor in graph.outputs}
    folded: set[int] = set()
    removed: set[int] = set()
    alias: dict[str, str] = {}
    seen: dict[object, Node] = {}
    for node in graph.nodes:
        if _folds(node, constants):
            folded.add(node.index)
            constants.update(tensor.name for tensor in node.present_outputs)
        elif _passes_on(node) and node.outputs[0] is not None and node.inputs[0] is not None:
            source = alias.get(node.inputs[0].name, node.inputs[0].name)
            if node.outputs[0].name not in kept:
                removed.add(node.index)
                alias[node.outputs[0].name] = source
        else:
            _merge_equal(node, seen, alias, removed, kept)
    written = tuple(tensor for index in sorted(folded) for tensor in graph.nodes[index].present_outputs)
    return Simplified(folded=frozenset(folded), removed=frozenset(removed), alias=alias, constants=written)


def _merge_equal(
    node: Node, seen: dict[object, Node], alias: dict[str, str], removed: set[int], kept: set[str]
) -> None:
    """Common subexpressions: of two equal nodes the first one stays."""
    if node.graphs or node.op_type in _NEVER_FOLDED:
        return
    inputs = tuple(_identity(t, alias) if t is not None else "" for t in node.inputs)
    attributes = tuple(sorted((name, repr(value)) for name, value in node.attributes.items()))
    first = seen.setdefault((node.identity, inputs, attributes, len(node.outputs)), node)
    if first is node or any(tensor.name in kept for tensor in node.present_outputs):
        return
    removed.add(node.index)
    for mine, other in zip(node.outputs, first.outputs, strict=True):
        if mine is not None and other is not None:
            alias[mine.name] = alias.get(other.name, other.name)


def _identity(tensor: Tensor, alias: Mapping[str, str]) -> object:
    """What makes a tensor equal to another: its name, or the value of a small stored one."""
    small = tensor.initializer and tensor.value is not None and tensor.value.size <= _SHARED_ELEMENTS
    if small and tensor.value is not None and tensor.dtype.name != "string":
        return tensor.dtype.name, tensor.shape, tensor.value.tobytes()
    return alias.get(tensor.name, tensor.name)


def _folds(node: Node, constants: set[str]) -> bool:
    if node.graphs or node.op_type in _NEVER_FOLDED:
        return False
    if node.identity == (DEFAULT_DOMAIN, "Shape"):
        return _static_shape(node)
    if not all(tensor.name in constants for tensor in node.present_inputs):
        return False
    tensors = all("(" not in tensor.dtype.name for tensor in node.present_outputs)
    return tensors and registry().has_kernel("cpu", node)


def _static_shape(node: Node) -> bool:
    """Whether the part of the shape that the node asks for is known."""
    tensor = node.input(0)
    if tensor is None or tensor.shape is None:
        return False
    part = tensor.shape[slice(node.attributes.get("start", 0), node.attributes.get("end"))]
    return None not in part


def _passes_on(node: Node) -> bool:
    rule = _PASSES_ON.get(node.op_type) if node.domain == DEFAULT_DOMAIN else None
    return rule is not None and rule(node)


def _dropout(node: Node) -> bool:
    mode = node.input(2)
    training = mode is not None and (mode.value is None or bool(mode.value))
    return not training and node.output(1) is None


def _same_type(node: Node) -> bool:
    source, target = node.input(0), node.output(0)
    return source is not None and target is not None and source.dtype == target.dtype


def _same_shape(node: Node) -> bool:
    source, target = node.input(0), node.output(0)
    known = source is not None and target is not None and source.elements is not None
    return known and source.shape == target.shape  # type: ignore[union-attr]  # known says so


_PASSES_ON: dict[str, Callable[[Node], bool]] = {
    "Identity": lambda _: True,
    "Dropout": _dropout,
    "Cast": _same_type,
    "Expand": _same_shape,
    "Slice": _same_shape,
}
