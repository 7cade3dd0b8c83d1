"""Loading: how often loops run their bodies, as far as that is known before the run.

A loop's condition is mostly computed from its state by a little arithmetic (``i + 1 < bags``), whose start and
end follow from shapes. So the conditions of a loop are computed, pass after pass, with what is known; what
depends on data stays unknown. A loop that only counts up or down is solved instead, and one inside of another
is looked at in each pass of that one, since its start and end may differ.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from analyzer.graph import DEFAULT_DOMAIN, Graph, Node, Tensor, Trips
from analyzer.loading.onnx_graph import constant_folding
from analyzer.loading.shape_inference.protobuf_values import LONGEST
from analyzer.loading.shape_inference.subgraphs import condition_stays_true

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]

Graphs = Mapping[str, Graph]
Reads = Sequence[Tensor | None]
Known = Callable[[Tensor], "Array | None"]

# Operators looked at for one loop of the model: some tenths of a second, whatever a file asks for.
_MOST_STEPS = 200_000


def with_trips(op_type: str, inputs: Reads, graphs: Graphs, known: Known) -> tuple[Trips | None, Graphs]:
    """How often an operator of the model runs its body, and its graphs with that told of the loops in them.

    Args:
        op_type: Its type; the trips of what is no Loop are None.
        inputs: What it reads.
        graphs: Its bodies.
        known: The value of a tensor that is known before the run, though the graph does not keep it.
    """
    work = _Work(known)
    outside = _Frame(work, None, {})
    _run(op_type, inputs, graphs, outside)
    told = {name: _told(graph, work) for name, graph in graphs.items()}
    return (work.trips(graphs, inputs) if op_type == "Loop" else None), told


def _told(graph: Graph, work: _Work) -> Graph:
    """The graph with the trips of all loops in it."""
    if not any(node.graphs for node in graph.nodes):
        return graph
    nodes = tuple(
        dataclasses.replace(
            node,
            graphs={name: _told(inner, work) for name, inner in node.graphs.items()},
            trips=work.trips(node.graphs, node.inputs) if _is_loop(node) else None,
        )
        if node.graphs
        else node
        for node in graph.nodes
    )
    return dataclasses.replace(graph, nodes=nodes)


def _is_loop(node: Node) -> bool:
    return node.op_type == "Loop" and node.domain == DEFAULT_DOMAIN


class _Work:
    """What is left to spend, and how often each loop ran: by its graphs, which no other operator has."""

    def __init__(self, known: Known) -> None:
        self.known = known
        self.left = _MOST_STEPS
        self._runs: dict[int, list[Trips | None]] = {}

    def ran(self, graphs: Graphs, trips: Trips | None) -> None:
        self._runs.setdefault(id(graphs), []).append(trips)

    def trips(self, graphs: Graphs, inputs: Reads) -> Trips | None:
        """The mean over all runs; None where one is not known."""
        runs = self._runs.get(id(graphs))
        if runs is None:  # never come to
            limit = _scalar(_stored(inputs, 0))
            return None if limit is None else Trips(count=max(0, int(limit)), exact=False)
        known = [run for run in runs if run is not None]
        if len(known) < len(runs):
            return None
        return Trips(count=sum(run.count for run in known) / len(known), exact=all(run.exact for run in known))


class _Frame:
    """One pass through a graph: the values in it that are known."""

    def __init__(self, work: _Work, around: _Frame | None, fed: Mapping[str, Array | None]) -> None:
        self.work = work
        self._around = around
        self._values: dict[str, Array | None] = dict(fed)

    def value(self, tensor: Tensor | None) -> Array | None:
        if tensor is None:
            return None
        if tensor.value is not None:
            return tensor.value
        if tensor.name in self._values:
            return self._values[tensor.name]
        return self.work.known(tensor) if self._around is None else self._around.value(tensor)

    def run(self, nodes: Iterable[Node]) -> None:
        """Computes what can be, operator by operator; nothing once too much was spent."""
        for node in nodes:
            self.work.left -= 1
            if self.work.left < 0:
                return
            given = self._given(node)
            for position, tensor in enumerate(node.outputs):
                if tensor is not None:
                    self._values[tensor.name] = given[position] if position < len(given) else None

    def _given(self, node: Node) -> Sequence[Array | None]:
        if node.graphs:
            return _run(node.op_type, node.inputs, node.graphs, self)
        if node.domain != DEFAULT_DOMAIN or all(
            tensor is None or tensor.value is not None for tensor in node.outputs
        ):
            return ()
        if node.op_type == "CastLike":
            return constant_folding.cast_like([self._as_known(node.input(0)), node.input(1)]) or ()
        arrays = []
        for tensor in node.inputs:
            array = self.value(tensor)
            if array is None and tensor is not None:
                return ()
            arrays.append(array)
        return constant_folding.fold(node.op_type, node.attributes, arrays, most=LONGEST) or ()

    def _as_known(self, tensor: Tensor | None) -> Tensor | None:
        return None if tensor is None else dataclasses.replace(tensor, value=self.value(tensor))


def _run(op_type: str, inputs: Reads, graphs: Graphs, frame: _Frame) -> Sequence[Array | None]:
    """Runs what holds graphs, and gives what it gives where that is known."""
    if op_type == "Loop" and "body" in graphs:
        frame.work.ran(graphs, _loop(inputs, graphs["body"], frame))
        return ()
    branch = ""
    if op_type == "If" and inputs and (condition := frame.value(inputs[0])) is not None:
        branch = "then_branch" if condition.reshape(-1)[0] else "else_branch"
    for name, graph in graphs.items():
        if branch in ("", name):
            inner = _Frame(frame.work, frame, dict.fromkeys(tensor.name for tensor in graph.inputs))
            inner.run(graph.nodes)
            if branch:
                return [inner.value(tensor) for tensor in graph.outputs]
    return ()


def _loop(inputs: Reads, body: Graph, frame: _Frame) -> Trips | None:
    """How often a loop runs its body where it stands; loops inside of it are run on the way."""
    limit, certain = _most(inputs, frame)
    starts, surely = _starts(inputs, frame)
    if not starts or limit == 0:
        return Trips(count=0)
    ended = _ended(inputs, body, limit, frame)
    if ended is not None:
        return Trips(count=ended, exact=certain and surely)
    if _holds_loops(body):  # what is the same in every pass is known all the same
        _pass(body, [None] * len(inputs[2:]), None, frame)
    if math.isinf(limit):
        return None
    return Trips(count=limit, exact=surely and condition_stays_true(body))


def _ended(inputs: Reads, body: Graph, limit: float, frame: _Frame) -> float | None:
    """After how many trips a loop is ended by its limit or condition; None where that is not known."""
    endless, nested = condition_stays_true(body), _holds_loops(body)
    if endless and (not nested or math.isinf(limit)):
        return None if math.isinf(limit) else limit
    states = [frame.value(tensor) for tensor in inputs[2:]]
    solved = None if nested else _solved(body, states, limit, frame)
    if solved is None:
        return _passes(body, states, limit, frame)
    return None if math.isinf(solved) else solved


def _most(inputs: Reads, frame: _Frame) -> tuple[float, bool]:
    """The limit of a loop's trips, infinite where it has none, and whether that is certain."""
    if not inputs or inputs[0] is None:
        return math.inf, True
    limit = _scalar(frame.value(inputs[0]))
    return (math.inf, False) if limit is None else (max(0.0, limit), True)


def _starts(inputs: Reads, frame: _Frame) -> tuple[bool, bool]:
    """Whether a loop begins at all, and whether that is certain."""
    condition = inputs[1] if len(inputs) > 1 else None
    if condition is None:
        return True, True
    value = _scalar(frame.value(condition))
    return (True, False) if value is None else (bool(value), True)


def _holds_loops(graph: Graph) -> bool:
    return any(
        _is_loop(node) or any(_holds_loops(inner) for inner in node.graphs.values())
        for node in graph.nodes
        if node.graphs
    )


def _passes(body: Graph, states: list[Array | None], limit: float, frame: _Frame) -> int | None:
    """Pass after pass until the condition ends it; None where that is not known, or takes too long to tell."""
    import numpy as np

    done = 0
    while done < limit:
        inner = _pass(body, states, np.asarray(done), frame)
        going = _scalar(inner.value(body.outputs[0]))
        if frame.work.left < 0 or going is None:
            return None
        done += 1
        if not going:
            break
        states = [inner.value(tensor) for tensor in body.outputs[1 : 1 + len(states)]]
    return done


def _pass(body: Graph, states: Sequence[Array | None], number: Array | None, frame: _Frame) -> _Frame:
    """One pass; a ``number`` of None stands for any."""
    import numpy as np

    # A body reads the trip's number, the condition and then the state (onnx/defs/controlflow/defs.cc).
    fed = dict(zip([tensor.name for tensor in body.inputs], [number, np.asarray(True), *states], strict=False))
    inner = _Frame(frame.work, frame, fed)
    inner.run(body.nodes)
    return inner


_COMPARISONS = frozenset({"Less", "LessOrEqual", "Greater", "GreaterOrEqual"})


def _solved(body: Graph, states: Sequence[Array | None], limit: float, frame: _Frame) -> float | None:
    """The trips of a loop that counts by equal steps until it comes to an end that stays; None for others."""
    test = _producer(body, body.outputs[0])
    if test is None or test.op_type not in _COMPARISONS:
        return None
    any_pass = _pass(body, [None] * len(states), None, frame)
    for before, start, after in zip(body.inputs[2:], states, body.outputs[1:], strict=False):
        step = _step(body, before, after, any_pass)
        first = _scalar(start)
        if step is None or first is None:
            continue
        for side, tensor in enumerate(test.inputs):
            end = _scalar(any_pass.value(test.input(1 - side)))
            if end is None or tensor not in (before, after):
                continue
            begin = first + (step if tensor is after else 0)
            more = _further(test.op_type, side, begin, step, end)
            return min(limit, 1 + more)  # the condition is computed at the end of a pass
    return None


def _further(op_type: str, side: int, begin: float, step: float, end: float) -> float:
    """How many of begin, begin + step, ... from the first on meet the comparison with the end."""
    upwards = (op_type.startswith("Less")) == (side == 0)
    distance, step = (end - begin, step) if upwards else (begin - end, -step)
    meets = distance >= 0 if op_type.endswith("OrEqual") else distance > 0
    if not meets:
        return 0
    if step <= 0:
        return math.inf
    return math.floor(distance / step) + 1 if op_type.endswith("OrEqual") else math.ceil(distance / step)


def _step(body: Graph, before: Tensor, after: Tensor, any_pass: _Frame) -> float | None:
    """What a state grows by in each pass, where that is always the same whole number."""
    node = _producer(body, after)
    if node is None or node.op_type not in ("Add", "Sub") or before not in node.inputs:
        return None
    other = node.input(1) if node.input(0) is before else node.input(0)
    if node.op_type == "Sub" and node.input(0) is not before:
        return None
    step = _scalar(any_pass.value(other))
    if step is None or step != int(step):
        return None
    return -step if node.op_type == "Sub" else step


def _producer(body: Graph, tensor: Tensor) -> Node | None:
    index = body.producer.get(tensor.name)
    return None if index is None else body.nodes[index]


def _stored(inputs: Reads, position: int) -> Array | None:
    tensor = inputs[position] if position < len(inputs) else None
    return None if tensor is None else tensor.value


def _scalar(value: Array | None) -> float | None:
    if value is None or value.size != 1 or value.dtype.kind not in "biuf":
        return None
    return float(value.reshape(-1)[0])
