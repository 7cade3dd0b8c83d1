"""Counting control flow: the node is one entry with what its bodies cost; nothing of a body is listed twice."""

from __future__ import annotations

import dataclasses

from analyzer.costs.cost import Cost
from analyzer.costs.dimensions import dims, value
from analyzer.costs.registry import count_graph, rule
from analyzer.graph import Graph, Node

ONCE = "the number of trips is not known before the run: the body is counted once"
UPPER = "the loop may end early: all trips that its limit allows are counted"


def times(cost: Cost, trips: int, note: str = "") -> Cost:
    """A body's cost over so many trips; ``modelled`` where a note says what is assumed."""
    return dataclasses.replace(
        cost,
        flops=None if cost.flops is None else cost.flops * trips,
        macs=None if cost.macs is None else cost.macs * trips,
        bytes_read=None if cost.bytes_read is None else cost.bytes_read * trips,
        bytes_written=None if cost.bytes_written is None else cost.bytes_written * trips,
        basis="modelled" if note and cost.basis == "exact" else cost.basis,
        note=cost.note if cost.basis == "unknown" or not note else note,
    )


@rule("If", depends=True)
def branch(node: Node) -> Cost:
    """The branch that a constant condition takes, else the costlier of the two (modelled)."""
    condition = value(node.input(0))
    costs = {name: count_graph(graph) for name, graph in node.graphs.items()}
    if condition is not None:
        return costs["then_branch" if condition[0] else "else_branch"]
    dearest = max(costs.values(), key=lambda cost: (cost.flops or 0, cost.bytes_moved or 0))
    if any(cost.basis == "unknown" for cost in costs.values()):
        reason = next(cost.note for cost in costs.values() if cost.basis == "unknown")
        return dataclasses.replace(dearest, basis="unknown", note=reason)
    return dataclasses.replace(dearest, basis="modelled", note="the costlier branch is assumed to be taken")


@rule("Loop", depends=True)
def loop(node: Node) -> Cost:
    """Trips * body; exact where the limit is constant and the condition cannot turn false, else modelled.

    With a limit that is not known before the run the body is counted once.
    """
    body = count_graph(node.graphs["body"])
    limit = value(node.input(0))
    start = value(node.input(1))
    if start is not None and not start[0]:
        return times(body, 0)  # the condition is tested before the first trip
    if limit is None:
        return times(body, 1, ONCE)
    certain = (node.input(1) is None or start is not None) and _keeps_going(node.graphs["body"])
    return times(body, max(int(limit[0]), 0), "" if certain else UPPER)


def _keeps_going(body: Graph) -> bool:
    """Whether the condition that the body gives is constant and true, or the one it was given."""
    # A body gives the condition first, and was given (trip, condition, states).
    result = body.outputs[0]
    while result is not body.inputs[1]:
        if result.value is not None:
            return bool(result.value.reshape(-1)[0])
        index = body.producer.get(result.name)
        source = body.nodes[index].input(0) if index is not None else None
        if index is None or source is None or body.nodes[index].op_type != "Identity":
            return False
        result = source
    return True


@rule("Scan", depends=True)
def scan(node: Node) -> Cost:
    """Trips * body, trips being the length of what is scanned."""
    body = node.graphs["body"]
    return times(count_graph(body), _scanned(node))


def _scanned(node: Node) -> int:
    # States first, then what is scanned; all of that is as long.
    shape = dims(node.inputs[-node.attributes["num_scan_inputs"]])
    axes = node.attributes.get("scan_input_axes") or (0,)
    # Scan-8 had a batch axis and began with sequence_lens, an input that the body lacks.
    batched = len(node.inputs) > len(node.graphs["body"].inputs)
    return shape[0] * shape[1] if batched else shape[axes[0]]


def trips(node: Node) -> int | None:
    """How often a Loop or Scan runs its body, at most; None where that is not known before the run."""
    if node.op_type == "Scan":
        return _scanned(node)
    limit = value(node.input(0)) if node.op_type == "Loop" else None
    return None if limit is None else max(int(limit[0]), 0)


@rule("SequenceMap", assumes="the sequence's length is not known before the run: the body is counted once")
def sequence_map(node: Node) -> Cost:
    """The body once for each element of the sequence."""
    return count_graph(node.graphs["body"])
