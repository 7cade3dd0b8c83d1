"""Loading: how often loops run their bodies, as far as that is known before the run.

A loop's condition is mostly computed from its state by a little arithmetic (``i + 1 < bags``), whose start and
end follow from shapes. So the conditions of a loop are computed, pass after pass, with what is known; what
depends on data stays unknown. A loop inside of another one is looked at in each pass of that one, since its
start and end may differ.

ONNX's types say of a sequence no more than the type of its tensors: what loops gather in one and join behind
them would have no known size. So the number and the shape of a sequence's tensors are followed too.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, MutableMapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from analyzer.graph import DEFAULT_DOMAIN, Graph, Node, Tensor, Trips
from analyzer.loading.onnx_graph.evaluation import Evaluation, taken_branch
from analyzer.loading.shape_inference.onnx_inference import (
    UNKNOWN_TYPE,
    Type,
    common_shape,
    condition_stays_true,
)

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]

# How often each loop ran, each time that it was come to: by its graphs, which no other operator has.
Runs = dict[int, list[Trips | None]]

States = Sequence["Array | None"]
# Passes of one loop, four times the bags of the largest batch; operators computed for it and the loops in it.
_MOST_PASSES, _MOST_OPERATORS = 2**14, 300_000


def with_trips(node: Node, outside: Evaluation) -> Node:
    """Return an operator with bodies that knows its own trips, and its bodies those of the loops in them."""
    runs: Runs = {}
    outside.left = _MOST_OPERATORS
    _run(node, outside, runs)
    return _counted(node, runs)


def _counted(node: Node, runs: Runs) -> Node:
    graphs = {
        name: dataclasses.replace(
            graph, nodes=tuple(_counted(inner, runs) if inner.graphs else inner for inner in graph.nodes)
        )
        if any(inner.graphs for inner in graph.nodes)
        else graph
        for name, graph in node.graphs.items()
    }
    known = runs.get(id(node.graphs), [None])
    counts = [run.count for run in known if run is not None]
    trips = None
    if _is_loop(node) and len(counts) == len(known):
        # Of a loop that runs several times the mean.
        exact = all(run.exact for run in known if run is not None)
        trips = Trips(count=sum(counts) / len(counts), exact=exact)
    return dataclasses.replace(node, graphs=graphs, trips=trips)


def _is_loop(node: Node) -> bool:
    return node.op_type == "Loop" and node.domain == DEFAULT_DOMAIN and "body" in node.graphs


def _holds_loops(graph: Graph) -> bool:
    return any(
        _is_loop(node) or any(map(_holds_loops, node.graphs.values())) for node in graph.nodes if node.graphs
    )


def _run(node: Node, outside: Evaluation, runs: Runs) -> None:
    """Note the trips of a loop, and of all loops in what holds graphs, where it stands."""
    if _is_loop(node):
        runs.setdefault(id(node.graphs), []).append(_loop(node, outside, runs))
        return
    taken = taken_branch(node, outside.value) if node.op_type == "If" else None
    for graph in node.graphs.values():
        if taken in (None, graph):
            _run_loops(graph, outside.inside(graph), runs)


def _run_loops(graph: Graph, inside: Evaluation, runs: Runs) -> None:
    inside.spend(1 + len(graph.nodes) // 10)  # looking at one takes less than computing it
    for node in graph.nodes:
        if node.graphs:
            _run(node, inside, runs)


def _loop(node: Node, outside: Evaluation, runs: Runs) -> Trips | None:
    body = node.graphs["body"]
    limit = _scalar(node.input(0), outside)
    starts = _scalar(node.input(1), outside)
    surely_starts = starts is not None or node.input(1) is None
    most = math.inf if limit is None else max(0.0, limit)
    if starts == 0 or most == 0:
        return Trips(count=0)
    endless, nested = condition_stays_true(body), _holds_loops(body)
    if math.isfinite(most) or not endless:
        done = most if endless and not nested else _passes(node, most, outside, runs, nested=nested)
        if done is not None:
            return Trips(count=done, exact=surely_starts and (limit is not None or node.input(0) is None))
    if nested:  # what is the same in every pass is known all the same
        _run_loops(body, outside.inside(body), runs)
    return None if math.isinf(most) else Trips(count=most, exact=surely_starts and endless)


def _passes(node: Node, most: float, outside: Evaluation, runs: Runs, *, nested: bool) -> float | None:
    """Return after how many passes the limit or the condition ends a loop; None where that is not known."""
    done = 0
    states: States = [None if tensor is None else outside.value(tensor) for tensor in node.inputs[2:]]
    while done < min(most, _MOST_PASSES):
        going, states = _pass(node, done, states, outside, runs if nested else None)
        done += 1
        if not going:
            return None if going is None else done
    return most if done == most else None


def _pass(
    node: Node, number: int, states: States, outside: Evaluation, runs: Runs | None = None
) -> tuple[bool | None, States]:
    """Return whether a loop goes on after a pass, and its state then; None for what is not known."""
    import numpy as np

    # A body reads the trip's number, the condition and then the state (onnx/defs/controlflow/defs.cc).
    body = node.graphs["body"]
    fed = [np.asarray(number), np.asarray(True), *states]
    inside = outside.inside(body, dict(zip([tensor.name for tensor in body.inputs], fed, strict=False)))
    if runs is not None:
        _run_loops(body, inside, runs)
    going = _scalar(body.outputs[0], inside)
    # What was not known before is not looked at again: it mostly takes what data decide along.
    after = [
        None if state is None else inside.value(tensor)
        for state, tensor in zip(states, body.outputs[1:], strict=False)
    ]
    return (None if going is None or not inside.spend(1) else bool(going)), after


def _scalar(tensor: Tensor | None, known: Evaluation) -> float | None:
    value = None if tensor is None else known.value(tensor)
    if value is None or value.size != 1 or value.dtype.kind not in "biuf":
        return None
    return float(value.reshape(-1)[0])


Names = list[str]


class TensorSequence(NamedTuple):
    """A sequence.

    Attributes:
        length: How many tensors it has; None where that is not known.
        element: What all of them are.
    """

    length: int | None
    element: Type


def followed(call: Node, names: Names, known: MutableMapping[str, TensorSequence]) -> Mapping[str, Type]:
    """Note a node's sequences in ``known``, by name; return the types of the tensors that it makes of one."""
    op_type, inputs = call.op_type, call.inputs
    if op_type == "SequenceEmpty":
        known[names[0]] = TensorSequence(0, UNKNOWN_TYPE)
    elif op_type == "SequenceConstruct":
        made = TensorSequence(0, UNKNOWN_TYPE)
        for tensor in inputs:
            made = _inserted(made, tensor)
        known[names[0]] = made
    elif op_type == "SequenceInsert":
        if inputs[0] is not None and inputs[0].name in known:
            known[names[0]] = _inserted(known[inputs[0].name], inputs[1])
    elif op_type == "Loop" and "body" in call.graphs:
        known.update(_of_states(call, names, known))
    elif op_type == "ConcatFromSequence" and inputs[0] is not None and inputs[0].name in known:
        joined = _joined(known[inputs[0].name], call.attributes)
        return {} if joined is None else {names[0]: joined}
    return {}


def _inserted(before: TensorSequence, tensor: Tensor | None, count: int | None = 1) -> TensorSequence:
    element = UNKNOWN_TYPE if tensor is None else (tensor.dtype, tensor.shape)
    if before.length == 0:
        return TensorSequence(count, element)
    length = None if before.length is None or count is None else before.length + count
    return TensorSequence(length, (element[0], common_shape(before.element[1], element[1])))


def _of_states(call: Node, names: Names, known: Mapping[str, TensorSequence]) -> dict[str, TensorSequence]:
    """Return the sequences into which each pass of a loop puts one tensor more."""
    body = call.graphs["body"]
    count = int(call.trips.count) if call.trips is not None and call.trips.exact else None
    states: dict[str, TensorSequence] = {}
    rows = zip(call.inputs[2:], body.inputs[2:], body.outputs[1:], names, strict=False)
    for given, before, after, name in rows:
        index = body.producer.get(after.name)
        node: Node | None = None if index is None else body.nodes[index]
        if given is None or given.name not in known or node is None or node.op_type != "SequenceInsert":
            continue
        if node.input(0) is before:
            states[name] = (
                known[given.name] if count == 0 else _inserted(known[given.name], node.input(1), count)
            )
    return states


def _joined(joined: TensorSequence, attributes: Mapping[str, Any]) -> Type | None:
    """Return the type of ConcatFromSequence on a sequence."""
    dtype, shape = joined.element
    if shape is None:
        return None
    if attributes.get("new_axis", 0):
        axis = attributes["axis"] % (len(shape) + 1)
        return dtype, (*shape[:axis], joined.length, *shape[axis:])
    axis = attributes["axis"] % len(shape)
    size = shape[axis]
    whole = None if size is None or joined.length is None else size * joined.length
    return dtype, (*shape[:axis], whole, *shape[axis + 1 :])
