"""Counting control flow: the node is one entry with what its bodies cost; nothing of a body is listed twice."""

from __future__ import annotations

import dataclasses

from analyzer.costs.cost import ZERO, Cost, dims, value
from analyzer.costs.registry import count_graph, rule
from analyzer.graph import Node, Trips
from analyzer.record.batch_ranges import ONE_TRIP, is_least

COSTLIER = "the costlier branch is assumed to be taken"
UPPER = "the loop may end early: all trips that its limit allows are counted"


def times(cost: Cost, trips: float, note: str = "") -> Cost:
    """Return a body's cost over so many trips; ``modelled`` where a note says what is assumed."""
    if trips == 0:
        return ZERO
    return dataclasses.replace(
        cost,
        flops=_times(cost.flops, trips),
        macs=_times(cost.macs, trips),
        bytes_read=_times(cost.bytes_read, trips),
        bytes_written=_times(cost.bytes_written, trips),
        basis="modelled" if note and cost.basis == "exact" else cost.basis,
        note=cost.note if cost.basis == "unknown" or not note else _with_inner(note, cost),
    )


def _with_inner(note: str, body: Cost) -> str:
    """Return an assumption and, where a body's count is but the least, why it is."""
    return f"{note}; {body.note}" if is_least(body.note) and body.note != note else note


def _times(figure: int | None, trips: float) -> int | None:
    return None if figure is None else round(figure * trips)


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
    return dataclasses.replace(dearest, basis="modelled", note=_with_inner(COSTLIER, dearest))


@rule("Loop", depends=True)
def loop(node: Node) -> Cost:
    """Trips * body; exact where the trips are known before the run, modelled where they are the most.

    Trips follow from a limit or a condition that shapes and constants decide. Where data decide them the body
    is counted once: at least that much, if it runs at all.
    """
    known = _trips_of_loop(node)
    if known is None:
        return times(count_graph(node.graphs["body"]), 1, ONE_TRIP)
    if known.count == 0:
        return ZERO
    return times(count_graph(node.graphs["body"]), known.count, "" if known.exact else UPPER)


def _trips_of_loop(node: Node) -> Trips | None:
    limit = value(node.input(0)) if node.trips is None else None
    return node.trips if limit is None else Trips(count=max(int(limit[0]), 0), exact=False)


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


def trips(node: Node) -> float | None:
    """Return how often a Loop or Scan runs its body, at most; None where that is not known before the run."""
    if node.op_type == "Scan":
        return _scanned(node)
    known = _trips_of_loop(node) if node.op_type == "Loop" else None
    return None if known is None else known.count


@rule("SequenceMap", assumes="the sequence's length is not known before the run: the body is counted once")
def sequence_map(node: Node) -> Cost:
    """The body once for each element of the sequence."""
    return count_graph(node.graphs["body"])
