"""Loading, last step: a normalised ModelProto -> Graph, every shape that can be known, small values folded.

Sizes that only the data decide (how many elements a mask keeps) are in it where values of inputs are given, or
a run showed shapes. Else they stay open, and an upper bound of them is for counting alone: operators that make
such sizes give as much as they can.
"""

from __future__ import annotations

import dataclasses
import gc
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from analyzer.errors import GraphError
from analyzer.graph import DEFAULT_DOMAIN, NO_ATTRIBUTES, Graph, Node, Shape, SizeOrigin, Tensor, names_read
from analyzer.loading.onnx_graph.evaluation import Evaluation, node_proto
from analyzer.loading.onnx_graph.fitting_sizes import SizeSearch, require_fitting
from analyzer.loading.onnx_graph.node_validity import schema_problems
from analyzer.loading.onnx_graph.normalize import Normalized, normalized
from analyzer.loading.onnx_graph.scope import Scope
from analyzer.loading.shape_inference import onnx_inference
from analyzer.loading.shape_inference.onnx_inference import Memo, infer_node
from analyzer.reading import DEFAULT_LIMITS, Limits

if TYPE_CHECKING:
    import numpy as np
    import onnx

    Array = np.ndarray[Any, Any]


def to_graph(
    model: onnx.ModelProto,
    *,
    bindings: Mapping[str, int] | None = None,
    assumed: Mapping[str, int] = NO_ATTRIBUTES,
    limits: Limits = DEFAULT_LIMITS,
    executable: bool = True,
) -> Graph:
    """Make the Graph of an ONNX model; the model is not changed.

    Symbolic sizes of the inputs are bound by name (unnamed ones are called ``input[axis]``); what nothing
    binds is 1, which ``open_dimensions`` and ``notes`` tell. Model-local functions are inlined. ``Constant``
    nodes become initializers. A node all of whose outputs are known before the run stays, with outputs that
    say ``constant``.

    Args:
        model: Any ONNX model, with or without its weights' data.
        bindings: Sizes by the name of the symbolic dimension.
        assumed: Sizes in place of 1 for what nothing binds.
        limits: What it may grow to.
        executable: Whether a node that no run can execute at these sizes is an error.

    Raises:
        GraphError: The graph has a cycle, reads what nothing writes, or has a node or shape that cannot be.
        ModelError: The model is newer than the installed onnx, or would grow beyond the limits.
        UsageError: A binding is no positive whole number.
    """
    enabled = gc.isenabled()
    gc.disable()  # it would walk all the new nodes again and again, and free none
    try:
        ready = normalized(model, bindings=bindings, assumed=assumed, limits=limits)
        return shaped(ready, executable=executable)
    finally:
        if enabled:
            gc.enable()


def open_sizes(
    model: onnx.ModelProto,
    bindings: Mapping[str, int],
    usual: Mapping[str, int],
    *,
    example: int,
    limits: Limits,
) -> tuple[bool, Mapping[str, int], Mapping[str, int]]:
    """Find sizes for the dimensions that nothing binds: the smallest at which the model can be executed.

    Args:
        model: Any ONNX model.
        bindings: Sizes by the name of the symbolic dimension.
        usual: Others, guessed.
        example: The size to have in as many places as can be.
        limits: What it may grow to.

    Returns:
        Whether the model can be executed with those that are guessed; for the dimensions that are left, then or
        without them, the smallest sizes by name, 1 where none were found; and others as a user's example.
    """

    def search(fixed: Mapping[str, int]) -> SizeSearch:
        known = {**bindings, **fixed}
        left = normalized(model, bindings=known, limits=limits).open_dimensions
        return SizeSearch(lambda sizes: to_graph(model, bindings={**known, **sizes}, limits=limits), left)

    guessed = search(usual)
    smallest = guessed.smallest() if usual else None
    if smallest is not None:
        return True, smallest, guessed.example(example)
    plain = search({}) if usual else guessed
    if not plain.names:
        return not usual, {}, {}
    smallest = plain.smallest()
    return not usual, smallest or dict.fromkeys(plain.names, 1), plain.example(example)


def shaped(ready: Normalized, *, executable: bool = True) -> Graph:
    """Return the Graph of a normalised model: shapes, small values, operators.

    Sizes are those that inputs and weights imply; those that the file states fill what is left.
    """
    try:
        graph = _inferred(ready)
        note = ready.stated.note()
        if note:
            # Numbers of another batch: what they filled is as wrong as those that inference contradicts.
            ready.forget_numbers()
            graph = _inferred(ready)
        problems = tuple(dict.fromkeys((*schema_problems(graph), *ready.stated.mistyped, *_forbidden(ready))))
        # A size that is but assumed is no reason to refuse the model.
        if executable and not problems and not ready.open_dimensions:
            require_fitting(graph, ready.forbidden)
    except GraphError as error:
        if ready.open_dimensions:
            names = ", ".join(ready.open_dimensions)
            error.hint = f"Nothing says how large {names} is: give that input's shape, --input NAME=SHAPE."
        raise
    try:
        shapes = expected_shapes(graph)
    except MemoryError:
        raise
    except Exception:  # of a node that is none of its operator nothing is expected: its sizes stay open
        shapes = {}
    notes = (*graph.notes, note) if note else graph.notes
    return dataclasses.replace(graph, notes=notes, problems=problems, expected_shapes=shapes)


def _forbidden(ready: Normalized) -> Iterator[str]:
    """Yield nodes that no size of the open dimensions would make fit: ONNX Runtime infers so when it loads."""
    if ready.forbidden:
        errors = onnx_inference.strict_errors(ready.with_open_sizes())
        for _, name, op_type, reason in ready.forbidden:
            if f"op_type:{op_type}" in errors:
                yield f"node '{name}' ({op_type}): {reason}"


def _inferred(ready: Normalized) -> Graph:
    """Return graph with the types that ONNX's inference of the whole model finds; node by node what is left."""
    opsets = {(entry.domain or DEFAULT_DOMAIN): entry.version for entry in ready.model.opset_import}
    scope = Scope(opsets=opsets, ir_version=ready.model.ir_version, stated=ready.stated, limits=ready.limits)
    graph = scope.model_graph(ready, onnx_inference.infer_model(ready.with_weights()).graph)
    ready.forbidden = scope.forbidden
    return graph


def prune(graph: Graph) -> Graph:
    """Return the graph without nodes whose outputs are all known values, and without nodes that nothing uses.

    Values that went away with their node and are still read become initializers; indices are renumbered.
    """
    nodes: list[Node] = []
    needed = {tensor.name for tensor in graph.outputs}
    literals: dict[str, Tensor] = {}
    # From the end, so that one pass finds what is still needed: whoever reads a tensor comes after who writes
    # it.
    for node in reversed(graph.nodes):
        outputs = [tensor for tensor in node.outputs if tensor is not None]
        if needed.isdisjoint([tensor.name for tensor in outputs]):
            continue
        if all(tensor.constant and tensor.value is not None for tensor in outputs):
            literals.update((tensor.name, tensor) for tensor in outputs)
            continue
        nodes.append(node)
        needed.update(names_read(node))
    used = tuple(tensor for tensor in literals.values() if tensor.name in needed)
    return dataclasses.replace(
        graph,
        nodes=tuple(
            node if node.index == index else dataclasses.replace(node, index=index)
            for index, node in enumerate(reversed(nodes))
        ),
        initializers=(*(tensor for tensor in graph.initializers if tensor.name in needed), *reversed(used)),
    )


# Of any tensor that is computed: a graph of a million nodes is still looked through in some milliseconds.
_MOST_ELEMENTS = 2**20
_MOST_OPERATORS = 20_000
# They give elements of what they read, none that is new.
_SAME_VALUES = frozenset(
    {"Cast", "Expand", "Gather", "Identity", "Reshape", "Slice", "Squeeze", "Transpose", "Unsqueeze"}
)
_DATA_DEPENDENT = frozenset({"NonZero", "Compress", "Unique", "NonMaxSuppression", "Split"})


def with_known_sizes(
    graph: Graph,
    values: Mapping[str, Array] = NO_ATTRIBUTES,
    *,
    shapes: Mapping[str, Sequence[int]] = NO_ATTRIBUTES,
) -> Graph:
    """Return the graph with every size that follows from these; itself where none does.

    Args:
        graph: A model at one batch.
        values: Elements of inputs, as they are given.
        shapes: Whole shapes of tensors, as a run had them; those that contradict the graph are left out.
    """
    if not open_tensors(graph):
        return graph

    def shown(node: Node, _: object) -> Sequence[Sequence[int] | None]:
        return [None if tensor is None else shapes.get(tensor.name) for tensor in node.outputs]

    origin = SizeOrigin(kind="measured") if shapes else None
    nodes, changed, origins = _with_sizes(graph, values, shown, origin)
    if not changed:
        return graph
    outputs = tuple(changed.get(tensor.name, tensor) for tensor in graph.outputs)
    return dataclasses.replace(
        graph, nodes=tuple(nodes), outputs=outputs, size_origins={**graph.size_origins, **origins}
    )


def expected_shapes(graph: Graph) -> Mapping[str, tuple[int, ...]]:
    """Return the whole shapes to count with, by name of a tensor that has an open size."""
    sources = [node for node in graph.nodes if node.op_type in _DATA_DEPENDENT and _is_open(node.output(0))]
    if not sources:
        return {}
    compared = {
        node.name: _compared_with(graph, node.input(0)) for node in sources if node.op_type == "NonZero"
    }
    # A loop over experts compares the same choice with one expert each: as many masks as experts share its
    # elements.
    rivals = Counter(other for other, count in compared.values() if count == 1)

    def bound(node: Node, inputs: Sequence[Tensor | None]) -> Sequence[Sequence[int] | None]:
        if node.op_type not in _DATA_DEPENDENT or any(map(_is_open, inputs)):
            return [None] * len(node.outputs)
        other, count = compared.get(node.name, ("", 0))
        return _most(node, inputs, max(count, rivals[other]) if other else 1)

    _, changed, _ = _with_sizes(graph, {}, bound, SizeOrigin(kind="measured"))
    return {name: tuple(size or 0 for size in tensor.shape or ()) for name, tensor in changed.items()}


def open_tensors(graph: Graph) -> tuple[str, ...]:
    """Return the tensors with a size that is not known, in order of execution."""
    return tuple(t.name for node in graph.nodes for t in node.present_outputs if _is_open(t))


def _is_open(tensor: Tensor | None) -> bool:
    # A sequence has no shape by its nature.
    return tensor is not None and tensor.elements is None and "(" not in tensor.dtype.name


def _with_sizes(
    graph: Graph,
    values: Mapping[str, Array],
    further: Callable[[Node, Sequence[Tensor | None]], Sequence[Sequence[int] | None]],
    shown: SizeOrigin | None,
) -> tuple[list[Node], Mapping[str, Tensor], Mapping[str, SizeOrigin]]:
    """Return the nodes with the sizes that become known in one walk, the tensors that have them, and why.

    ``further`` gives whole shapes of a node's outputs by what it reads, where nothing else tells them;
    ``shown`` is the origin of these and of what follows from them.
    """
    changed: dict[str, Tensor] = {}
    origins: dict[str, SizeOrigin] = {}
    memo: Memo = {}
    # By tensor, the inputs with values from which it follows.
    behind: dict[str, frozenset[str]] = {name: frozenset({name}) for name in values}

    def now(tensors: Sequence[Tensor | None]) -> tuple[Tensor | None, ...]:
        return tuple(None if tensor is None else changed.get(tensor.name, tensor) for tensor in tensors)

    evaluation = Evaluation.of(
        graph,
        values,
        shape_of=lambda tensor: (changed.get(tensor.name) or tensor).shape,
        most=_MOST_ELEMENTS,
        left=_MOST_OPERATORS,
        by_reference=True,
    )
    nodes = []
    for node in graph.nodes:
        inputs = now(node.inputs)
        sources = frozenset[str]().union(*(behind.get(tensor.name, ()) for tensor in node.present_inputs))
        if sources:
            behind |= dict.fromkeys((tensor.name for tensor in node.present_outputs), sources)
        if any(map(_is_open, node.outputs)):
            read = [origins[tensor.name] for tensor in node.present_inputs if tensor.name in origins]
            given = SizeOrigin(kind="given", inputs=tuple(sorted(sources))) if sources else None
            inferred, others = (
                _inferred_shapes(node, inputs, evaluation, graph.ir_version, memo),
                further(node, inputs),
            )
            for tensor, shape, other in zip(node.outputs, inferred, others, strict=True):
                if tensor is None or not _is_open(tensor):
                    continue
                origin = read[0] if read else given
                if shape is None and (value := evaluation.value(tensor)) is not None:
                    shape, origin = value.shape, given
                if shape is None or origin is None:
                    shape, origin = other if shape is None else shape, shown
                if shape is not None and origin is not None and _agrees(tensor.shape, shape):
                    changed[tensor.name] = dataclasses.replace(tensor, shape=tuple(shape))
                    origins[tensor.name] = origin
        outputs = now(node.outputs)
        if (inputs, outputs) != (node.inputs, node.outputs):  # tensors compare by identity
            node = dataclasses.replace(node, inputs=inputs, outputs=outputs)
        nodes.append(node)
    return nodes, changed, origins


def _inferred_shapes(
    node: Node, inputs: Sequence[Tensor | None], evaluation: Evaluation, ir_version: int, memo: Memo
) -> Sequence[Sequence[int] | None]:
    """Return whole shapes of the outputs, from those of the inputs and from the values that decide them."""
    proto = node_proto(node)
    if node.domain != DEFAULT_DOMAIN or node.graphs or proto is None or any(map(_is_open, inputs)):
        return [None] * len(node.outputs)
    known = [
        dataclasses.replace(tensor, value=evaluation.value(tensor))
        if tensor is not None
        and tensor.value is None
        and not tensor.dtype.is_float
        # Of ConstantOfShape the first operand is a shape; of all others the values of a later one decide.
        and (position or node.op_type == "ConstantOfShape")
        else tensor
        for position, tensor in enumerate(inputs)
    ]
    types, _ = infer_node(proto, known, {node.domain: node.version}, ir_version, memo=memo)
    shapes = [types[name][1] if name in types else None for name in proto.output]
    return [None if shape is None or None in shape else [size or 0 for size in shape] for shape in shapes]


def _agrees(known: Shape, inferred: Sequence[int]) -> bool:
    """Return whether a shape can be this one: a run may keep a tensor in another layout under the same name."""
    return known is None or (
        len(known) == len(inferred)
        and all(size in (None, other) for size, other in zip(known, inferred, strict=True))
    )


def _most(node: Node, inputs: Sequence[Tensor | None], share: int) -> Sequence[Sequence[int]]:
    """Return the largest shapes of what a node gives; ``share`` others give the rest of it."""
    data = inputs[0]
    assert data is not None
    assert data.shape is not None
    sizes, elements = [size or 0 for size in data.shape], data.elements or 0
    if node.op_type == "NonZero":
        return [(len(sizes), -(-elements // share))]  # an index on each axis for each
    if node.op_type == "Split":
        axis, parts = node.attributes.get("axis", 0) % len(sizes), len(node.outputs)
        return [[-(-size // parts) if place == axis else size for place, size in enumerate(sizes)]] * parts
    if node.op_type == "NonMaxSuppression":
        scores, limit = inputs[1], inputs[2] if len(inputs) > 2 else None
        assert scores is not None
        batch, classes, boxes = (size or 0 for size in scores.shape or ())
        most = int(limit.value.ravel()[0]) if limit is not None and limit.value is not None else boxes
        return [(batch * classes * min(most, boxes), 3)]  # batch, class and box of each
    axis = node.attributes.get("axis")
    first = [elements] if axis is None else sizes
    # Of Unique values, first positions, inverse and counts; as if all were different.
    return [first, *[[first[axis or 0]]] * (len(node.outputs) - 1)]


def _compared_with(graph: Graph, tensor: Tensor | None) -> tuple[str, int]:
    """Return what a mask compares with constants, and with how many: each element equals at most one of them.

    One-hot rows come from such a comparison; loops over experts compare one choice with each in turn.
    """
    source, node = (None, None) if tensor is None else _source(graph, tensor)
    if source is not None and node is not None and node.op_type == "OneHot":
        depth = node.input(1)
        known = None if depth is None else depth.value
        return source.name, 0 if known is None else int(known.ravel()[0])
    if node is not None and node.op_type == "Equal":
        sides = [side for side in node.present_inputs if not side.constant]
        fixed = [side for side in node.present_inputs if side.constant]
        if len(sides) == len(fixed) == 1:
            return _source(graph, sides[0])[0].name, fixed[0].elements or 0
    return "", 0


def _source(graph: Graph, tensor: Tensor) -> tuple[Tensor, Node | None]:
    """Return a tensor before it was cast or laid out anew, and what makes it."""
    while True:
        producer = graph.producer.get(tensor.name)
        node = None if producer is None else graph.nodes[producer]
        before = None if node is None or node.op_type not in _SAME_VALUES else node.input(0)
        if before is None:
            return tensor, node
        tensor = before
