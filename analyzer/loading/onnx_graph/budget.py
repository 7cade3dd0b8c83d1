"""Loading: what a model would grow to, worked out before any library unfolds it.

A few hundred bytes can ask for gigabytes: functions that call functions twice, graphs within graphs. Here
sizes are added up without anything being copied; onnx's own inliner then finds what was counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from graphlib import CycleError, TopologicalSorter
from typing import TYPE_CHECKING, NamedTuple

from analyzer.errors import ModelError
from analyzer.loading.shape_inference.protobuf_values import GRAPH_KINDS
from analyzer.text import plural
from analyzer.units import byte_count

if TYPE_CHECKING:
    import onnx

    from analyzer.reading import Limits

    FunctionKey = tuple[str, str, str]
    """Domain, name and overload."""


class _Body(NamedTuple):
    """What one graph or function holds, bodies of control flow included.

    Attributes:
        calls: Functions that it calls and that are not counted in it, each with how often.
    """

    nodes: int
    bytes: int
    depth: int
    calls: Mapping[FunctionKey, int] = {}  # never changed


def check_budget(model: onnx.ModelProto, limits: Limits, subject: str) -> None:
    """Refuses a model that would grow beyond the limits.

    Args:
        model: As it was parsed.
        limits: Those of nodes, bytes, functions, depth and attributes.
        subject: What messages call the model.

    Raises:
        ModelError: It would; names the limit.
    """
    if len(model.functions) > limits.functions:
        raise _over(
            subject, f"defines {plural(len(model.functions), 'function')}", "functions", limits.functions
        )
    functions = {(item.domain, item.name, item.overload): item for item in model.functions}
    counted = _Counter(set(functions), limits, subject)
    whole = counted.body(model.graph.node, model.graph.ByteSize() if functions else 0)
    bodies = {key: counted.body(item.node, item.ByteSize()) for key, item in functions.items()}
    total = _expanded(whole, bodies, subject)
    if total.nodes > limits.nodes:
        raise _over(subject, f"has {plural(total.nodes, 'operator')}{_with(functions)}", "nodes", limits.nodes)
    if total.bytes > limits.bytes:
        size = byte_count(total.bytes)
        raise _over(subject, f"takes {size} without its weights{_with(functions)}", "bytes", limits.bytes)
    if total.depth > limits.depth:
        raise _over(subject, f"nests graphs and functions {total.depth} deep", "depth", limits.depth)


def _with(functions: Mapping[FunctionKey, object]) -> str:
    return " once its functions are put in their callers' places" if functions else ""


def _over(subject: str, what: str, name: str, limit: int) -> ModelError:
    return ModelError(
        f"{subject} {what}; {limit:,} is the limit.",
        hint=f"If it is a model that you trust, raise the limit: --limit {name}=N.",
    )


class _Counter:
    def __init__(self, functions: set[FunctionKey], limits: Limits, subject: str) -> None:
        self._functions = functions
        self._limits = limits
        self._subject = subject

    def body(self, nodes: Iterable[onnx.NodeProto], size: int) -> _Body:
        count = depth = 0
        calls: Counter[FunctionKey] = Counter()
        waiting = [(nodes, 0)]
        most, functions = self._limits.attributes, self._functions
        while waiting:
            graph, level = waiting.pop()
            depth = max(depth, level)
            for node in graph:
                count += 1
                attributes = node.attribute
                if len(attributes) > most:
                    name = f"node '{node.name}' ({node.op_type}) with {len(attributes):,} attributes"
                    raise _over(self._subject, f"has a {name}", "attributes", most)
                for attribute in attributes:
                    if attribute.type in GRAPH_KINDS:
                        waiting += [(inner.node, level + 1) for inner in (attribute.g, *attribute.graphs)]
                if functions:
                    key = (node.domain, node.op_type, node.overload)
                    if key in functions:
                        calls[key] += 1
        return _Body(count, size, depth, calls)


def _expanded(whole: _Body, bodies: Mapping[FunctionKey, _Body], subject: str) -> _Body:
    """The model with its functions put in; each function is added up once, after those that it calls."""
    done: dict[FunctionKey, _Body] = {}
    try:
        for key in TopologicalSorter({key: body.calls for key, body in bodies.items()}).static_order():
            done[key] = _sum(bodies[key], done)
    except CycleError as error:
        raise ModelError(
            f"{subject} has a function that calls itself: '{error.args[1][0][1]}'.",
            hint="The model's own functions must not be recursive.",
        ) from error
    return _sum(whole, done)


def _sum(body: _Body, done: Mapping[FunctionKey, _Body]) -> _Body:
    nodes, size, depth = body.nodes, body.bytes, body.depth
    for key, times in body.calls.items():
        called = done[key]
        nodes += times * (called.nodes - 1)  # the call itself goes away
        size += times * called.bytes
        depth = max(depth, body.depth + called.depth + 1)
    return _Body(nodes, size, depth)
