"""Placement inside of If, Loop and Scan -> the record."""

from __future__ import annotations

import math
from collections.abc import Iterator

from analyzer.costs.families.control_flow import trips
from analyzer.graph import Graph, Node
from analyzer.ort.execution import NodePlacement, PlacedBody, Placement
from analyzer.pipeline.build_record import source_line
from analyzer.record.analysis import BodyCopy, BodyOperator, BodyResult


def body_results(graph: Graph, placement: Placement) -> tuple[BodyResult, ...]:
    """Every subgraph of a graph, those inside of others after the one that holds them."""
    nested = (_with_inner(body, graph.nodes[body.operator], body.operator, "", 1) for body in placement.bodies)
    return tuple(result for results in nested for result in results)


def _with_inner(
    body: PlacedBody, node: Node, operator: int, path: str, outer_passes: int | None
) -> Iterator[BodyResult]:
    """A body and all bodies inside of it; ``outer_passes`` is how often the body around it runs."""
    own_passes = _passes(node)
    passes = None if own_passes is None or outer_passes is None else own_passes * outer_passes
    placed_nodes = list(zip(body.graph.nodes, body.placement.nodes, strict=True))
    yield BodyResult(
        operator=operator,
        name=f"{path}{body.name}",
        operators=sum(placed.why != "folded" for _, placed in placed_nodes),
        passes=passes,
        on_cpu=tuple(_operator(child, placed) for child, placed in placed_nodes if _runs_on_cpu(placed)),
        copies=tuple(
            BodyCopy(tensor=copy.tensor, direction=copy.direction, bytes=copy.nbytes)
            for copy in body.placement.copies
        ),
    )
    for inner in body.placement.bodies:
        child = body.graph.nodes[inner.operator]
        yield from _with_inner(inner, child, operator, f"{path}{body.name}/{child.name}.", passes)


def _runs_on_cpu(placed: NodePlacement) -> bool:
    # A folded operator has the CPU's provider, a removed one its producer's: neither runs there.
    removed = placed.why == "folded" or placed.detail.endswith("removed before the run")
    return placed.provider == "cpu" and not removed


def _operator(node: Node, placed: NodePlacement) -> BodyOperator:
    return BodyOperator(
        name=node.name,
        op_type=node.op_type,
        domain=node.domain,
        module=node.module,
        source=source_line(node),
        why=placed.why,
        detail=placed.detail,
    )


def _passes(node: Node) -> int | None:
    """How often a body runs at most in one run of its operator; None where only the run tells."""
    if node.op_type == "If":
        return 1  # one of its two branches, once
    if node.op_type == "Loop":
        count = trips(node)
        return None if count is None else math.ceil(count)  # inside of another loop it is a mean
    # Scan of opset 8 has a batch axis before the one that it scans, and a first input with lengths.
    if node.op_type == "Scan" and node.version >= 9:
        scanned = node.inputs[-int(node.attributes["num_scan_inputs"])]
        axis = int((node.attributes.get("scan_input_axes") or (0,))[0])
        return scanned.shape[axis] if scanned is not None and scanned.shape else None
    return None
