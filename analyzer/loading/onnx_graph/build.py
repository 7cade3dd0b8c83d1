"""Loading, last step: a normalised ModelProto -> Graph, every shape that can be known, small values folded."""

from __future__ import annotations

import dataclasses
import gc
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from analyzer.errors import GraphError
from analyzer.graph import DEFAULT_DOMAIN, NO_ATTRIBUTES, Graph, Node, Tensor, names_read
from analyzer.loading.onnx_graph.construction import renumbered
from analyzer.loading.onnx_graph.data_dependent_sizes import expected_shapes
from analyzer.loading.onnx_graph.fitting_sizes import SizeSearch, require_fitting
from analyzer.loading.onnx_graph.node_validity import schema_problems
from analyzer.loading.onnx_graph.normalize import Normalized, normalized
from analyzer.loading.onnx_graph.scope import Scope
from analyzer.loading.shape_inference import onnx_inference
from analyzer.reading import DEFAULT_LIMITS, Limits

if TYPE_CHECKING:
    import onnx


def to_graph(
    model: onnx.ModelProto,
    *,
    bindings: Mapping[str, int] | None = None,
    assumed: Mapping[str, int] = NO_ATTRIBUTES,
    limits: Limits = DEFAULT_LIMITS,
    executable: bool = True,
) -> Graph:
    """Makes the Graph of an ONNX model; the model is not changed.

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
    """The nodes that no size of the open dimensions would make fit: ONNX Runtime infers so when it loads."""
    if ready.forbidden:
        errors = onnx_inference.strict_errors(ready.with_open_sizes())
        for _, name, op_type, reason in ready.forbidden:
            if f"op_type:{op_type}" in errors:
                yield f"node '{name}' ({op_type}): {reason}"


def _inferred(ready: Normalized) -> Graph:
    """The graph with the types that ONNX's inference of the whole model finds; node by node what is left."""
    opsets = {(entry.domain or DEFAULT_DOMAIN): entry.version for entry in ready.model.opset_import}
    scope = Scope(opsets=opsets, ir_version=ready.model.ir_version, stated=ready.stated, limits=ready.limits)
    graph = scope.model_graph(ready, onnx_inference.infer_model(ready.with_weights()).graph)
    ready.forbidden = scope.forbidden
    return graph


def prune(graph: Graph) -> Graph:
    """The graph without nodes whose outputs are all known values, and without nodes that nothing uses.

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
            node if node.index == index else renumbered(node, index)
            for index, node in enumerate(reversed(nodes))
        ),
        initializers=(*(tensor for tensor in graph.initializers if tensor.name in needed), *reversed(used)),
    )
