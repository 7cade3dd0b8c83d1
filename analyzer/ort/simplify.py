"""Nodes that disappear before placement: constant subgraphs, no-operations, repeated work.

Mirrors the rules and transformers of ONNX Runtime's level 1, which runs before nodes are given to providers.
The file that a rule mirrors stands beside it, below ``onnxruntime/core/optimizer/``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from analyzer.graph import DEFAULT_DOMAIN, Graph, Node, Tensor
from analyzer.operators import draws_random_numbers, in_training
from analyzer.ort.kernels import Registry, registry

# ``TENSOR_ELEM_COUNT_THRESHOLD`` of constant_sharing.h: equal stored tensors of up to so many elements become
# one, so that nodes which read them become equal too.
_SHARED_ELEMENTS = 8
# ``SupportedTypeList`` of constant_sharing.cc.
_SHARED_TYPES = frozenset(("float16", "float32", "float64", "int32", "int64"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Simplified:
    """The rest of a graph.

    Attributes:
        folded: Indices of nodes whose outputs are constants.
        removed: Indices of nodes that pass a tensor on unchanged and are taken out.
        alias: For each tensor that is now another one, that one's name.
        constants: What the folded nodes wrote.
        twins: For each node that is merged with an equal one, the first of them.
        release: The kernels that decided it, of the release of ONNX Runtime that everything after follows.
    """

    folded: frozenset[int]
    removed: frozenset[int]
    alias: Mapping[str, str]
    constants: tuple[Tensor, ...] = ()
    twins: Mapping[int, int] = field(default_factory=dict)
    release: Registry = field(default_factory=registry)

    def name(self, tensor: Tensor) -> str:
        """Return the name under which a tensor is left."""
        return self.alias.get(tensor.name, tensor.name)


def simplify(graph: Graph, release: Registry | None = None) -> Simplified:
    """Find the nodes that ONNX Runtime's level 1 folds or removes, without running anything.

    ``release`` is the one whose session is foretold; None for the newest that is known.
    """
    release = release or registry()
    constants = {tensor.name for tensor in graph.initializers}
    # The name of a graph output cannot pass to another node: what writes one stays (``CanRemoveNode`` in
    # onnxruntime/core/graph/graph_utils.cc).
    outputs = {tensor.name for tensor in graph.outputs}
    folded: set[int] = set()
    removed: set[int] = set()
    alias: dict[str, str] = {}
    seen: dict[object, Node] = {}
    twins: dict[int, int] = {}
    for node in graph.nodes:
        if _folds(node, constants, release):
            folded.add(node.index)
            constants.update(tensor.name for tensor in node.present_outputs)
        elif (source := _passed_on(graph, node, alias)) is not None and (
            outputs.isdisjoint(tensor.name for tensor in node.present_outputs)
            or _hands_on_its_name(graph, node, outputs)
        ):
            removed.add(node.index)
            alias[node.outputs[0].name] = source  # type: ignore[union-attr]  # _passed_on has looked
            removed.update(_undone(graph, node, alias, removed))
        else:
            first = _equal_before(node, seen, alias, outputs)
            if first is not None:
                removed.add(node.index)
                twins[node.index] = first.index
                for repeated, original in zip(node.outputs, first.outputs, strict=True):
                    if repeated is not None and original is not None:
                        alias[repeated.name] = alias.get(original.name, original.name)
    written = tuple(tensor for index in sorted(folded) for tensor in graph.nodes[index].present_outputs)
    return Simplified(
        folded=frozenset(folded),
        removed=frozenset(removed),
        alias=alias,
        constants=written,
        twins=twins,
        release=release,
    )


def _equal_before(
    node: Node, seen: dict[object, Node], alias: Mapping[str, str], outputs: set[str]
) -> Node | None:
    """Return the first of equal nodes, which alone stays; None where this one is the first."""
    # common_subexpression_elimination.cc; a node with a subgraph is not looked at (``IsNodeSupported``).
    if node.graphs or _stays(node):
        return None
    inputs = tuple(_identity(t, alias) if t is not None else "" for t in node.inputs)
    attributes = tuple(sorted((name, repr(value)) for name, value in node.attributes.items()))
    first = seen.setdefault((node.identity, inputs, attributes, len(node.outputs)), node)
    if first is node or any(tensor.name in outputs for tensor in node.present_outputs):
        return None
    return first


def _identity(tensor: Tensor, alias: Mapping[str, str]) -> object:
    """Return the identity of a tensor: its name, or the value of a small stored one."""
    small = tensor.initializer and tensor.value is not None and tensor.value.size <= _SHARED_ELEMENTS
    if small and tensor.value is not None and tensor.dtype.name in _SHARED_TYPES:
        return tensor.dtype.name, tensor.shape, tensor.value.tobytes()
    return alias.get(tensor.name, tensor.name)


def _stays(node: Node) -> bool:
    """Return whether the constant folder leaves it: random numbers, and a quantised weight."""
    # constant_folding.cc: not deterministic; ``skip_dequantize_linear`` keeps it for the quantised kernels of
    # level 2.
    return draws_random_numbers(node) or node.op_type == "DequantizeLinear"


def _folds(node: Node, constants: set[str], release: Registry) -> bool:
    if node.graphs or _stays(node):
        return False
    if node.identity == (DEFAULT_DOMAIN, "Shape"):
        return _static_shape(node)
    if not all(tensor.name in constants for tensor in node.present_inputs):
        return False
    # constant_folding.cc computes with a kernel of the CPU provider and stores a TensorProto: no kernel, or a
    # result that is a sequence or an optional ("sequence(...)"), and the node stays.
    tensors = all("(" not in tensor.dtype.name for tensor in node.present_outputs)
    return tensors and release.has_kernel("cpu", node)


def _static_shape(node: Node) -> bool:
    """Return whether the part of the shape that the node asks for is known."""
    # ``ConstantFoldShapeNode`` of constant_folding.cc: a Shape folds although its input is no constant.
    tensor = node.input(0)
    if tensor is None or tensor.shape is None:
        return False
    part = tensor.shape[slice(node.attributes.get("start", 0), node.attributes.get("end"))]
    return None not in part


def _hands_on_its_name(graph: Graph, node: Node, outputs: set[str]) -> bool:
    """Return whether what an Identity passes on can take the name of the graph output that it writes."""
    # ``SatisfyCondition`` of identity_elimination.cc: some node writes it, nobody else reads it, and it is no
    # graph output of its own.
    source, target = node.input(0), node.output(0)
    if node.op_type != "Identity" or source is None or target is None or target.name in graph.consumers:
        return False
    alone = len(graph.consumers.get(source.name, ())) == 1
    return alone and source.name in graph.producer and source.name not in outputs


def _passed_on(graph: Graph, node: Node, alias: Mapping[str, str]) -> str | None:
    """Return the tensor that a node only passes on; None where it works, or ONNX Runtime does not see that."""
    source = passed_input(node)
    if node.domain != DEFAULT_DOMAIN or source is None or node.output(0) is None:
        return None
    name = alias.get(source.name, source.name)
    if node.op_type in ("Transpose", "Cast"):
        before = _before(graph, name)
        if before is not None and before.inputs[0] is not None and _undoes(node, before):
            return alias.get(before.inputs[0].name, before.inputs[0].name)
    rule = _PASSES_ON.get(node.op_type)
    fed = name not in graph.producer
    if rule is None or (fed and node.op_type not in _EVEN_WHAT_IS_FED):
        return None
    return name if rule(node) else None


def passed_input(node: Node) -> Tensor | None:
    """Return input that a node passes on if it does nothing: of 0 + x and 1 * x the second, else the first."""
    first, second = node.input(0), node.input(1)
    swapped = first is not None and first.initializer and second is not None and not second.initializer
    return second if swapped and node.op_type in ("Add", "Mul") else first


def _before(graph: Graph, name: str) -> Node | None:
    index = graph.producer.get(name)
    return None if index is None else graph.nodes[index]


def _undoes(node: Node, before: Node) -> bool:
    """Return whether a node takes back what the one before it did."""
    # Transposes: transpose_optimization/onnx_transpose_optimization.cc. Casts to a wider type and back:
    # cast_chain_elimination.cc, ``RemoveDuplicateCastTransformer`` of insert_cast_transformer.cc.
    if node.op_type != before.op_type:
        return False
    if node.op_type == "Transpose":
        first, second = (tuple(each.attributes.get("perm", ())) for each in (before, node))
        return len(first) == len(second) > 0 and all(first[axis] == i for i, axis in enumerate(second))
    source, middle, target = before.input(0), node.input(0), node.output(0)
    if source is None or middle is None or target is None or source.dtype != target.dtype:
        return False
    return (
        source.dtype.is_float and middle.dtype.is_float and (middle.dtype.bits or 0) > (source.dtype.bits or 0)
    )


def _undone(graph: Graph, node: Node, alias: Mapping[str, str], removed: set[int]) -> set[int]:
    """Return the node before, where this one took back what it did and nobody else reads it."""
    source = node.inputs[0]
    before = _before(graph, alias.get(source.name, source.name)) if source is not None else None
    if before is None or not _undoes(node, before):
        return set()
    name = before.outputs[0].name if before.outputs[0] is not None else ""
    others = [reader for reader in graph.consumers.get(name, ()) if reader not in removed]
    return {before.index} if not others else set()


def _same_type(node: Node) -> bool:
    source, target = node.input(0), node.output(0)
    return source is not None and target is not None and source.dtype == target.dtype


def _same_shape(node: Node) -> bool:
    source, target = node.input(0), node.output(0)
    known = source is not None and target is not None and source.elements is not None
    return known and source.shape == target.shape  # type: ignore[union-attr]  # known says so


def _whole(node: Node) -> bool:
    """Return Slice from 0 to the largest number there is; a number that happens to be the size is not seen."""
    # slice_elimination.cc compares with INT64_MAX and does not look at the input's shape.
    starts, ends, steps = node.input(1), node.input(2), node.input(4)
    if starts is None or ends is None or starts.value is None or ends.value is None:
        return False
    forward = steps is None or (steps.value is not None and bool((steps.value == 1).all()))
    return forward and bool((starts.value == 0).all()) and bool((ends.value >= _END).all())


def _neutral(value: float) -> Callable[[Node], bool]:
    """Return a rule for a constant of one element that changes nothing, on either side of an Add or a Mul."""

    # noop_elimination.cc; it refuses a constant of more axes than the other input has, which would give it one.
    def rule(node: Node) -> bool:
        source, target = passed_input(node), node.output(0)
        other = node.input(0) if source is node.input(1) else node.input(1)
        if other is None or other.value is None or other.elements != 1 or not other.initializer:
            return False
        shapes = source is not None and target is not None and source.shape == target.shape
        return shapes and float(other.value.reshape(-1)[0]) == value

    return rule


_END = 2**63 - 1  # INT64_MAX, which PyTorch writes for an open end
_EVEN_WHAT_IS_FED = ("Identity", "Cast", "Dropout")  # the others stay where they read a graph input
_PASSES_ON: dict[str, Callable[[Node], bool]] = {
    "Identity": lambda _: True,  # identity_elimination.cc
    "Dropout": lambda node: not in_training(node) and node.output(1) is None,  # dropout_elimination.cc
    "Cast": _same_type,  # cast_elimination.cc
    "Expand": _same_shape,  # expand_elimination.cc
    "Slice": _whole,
    "Add": _neutral(0),
    "Sub": _neutral(0),
    "Mul": _neutral(1),
    "Div": _neutral(1),
}
