"""Placement inside of If, Loop and Scan -> the record."""

from __future__ import annotations

from collections.abc import Iterator

from analyzer.graph import Graph, Node
from analyzer.ort.execution import NodePlacement, PlacedBody, Placement
from analyzer.record.analysis import BodyCopy, BodyOperator, BodyResult, Where


def body_results(graph: Graph, placement: Placement) -> tuple[BodyResult, ...]:
    """Every subgraph of a graph, those inside of others after the one that holds them."""
    found = (_flat(body, graph.nodes[body.operator], body.operator, "", 1) for body in placement.bodies)
    return tuple(result for results in found for result in results)


def _flat(body: PlacedBody, node: Node, operator: int, path: str, around: int | None) -> Iterator[BodyResult]:
    passes = _passes(node)
    times = None if passes is None or around is None else passes * around
    placed = list(zip(body.graph.nodes, body.placement.nodes, strict=True))
    yield BodyResult(
        operator=operator,
        name=f"{path}{body.name}",
        operators=sum(where.why != "folded" for _, where in placed),
        passes=times,
        on_cpu=tuple(_operator(child, where) for child, where in placed if _on_cpu(where)),
        copies=tuple(
            BodyCopy(tensor=copy.tensor, direction=copy.direction, bytes=copy.nbytes)
            for copy in body.placement.copies
        ),
    )
    for inner in body.placement.bodies:
        child = body.graph.nodes[inner.operator]
        yield from _flat(inner, child, operator, f"{path}{body.name}/{child.name}.", times)


def _on_cpu(where: NodePlacement) -> bool:
    gone = where.why == "folded" or where.detail.endswith("removed before the run")
    return where.provider == "cpu" and not gone


def _operator(node: Node, where: NodePlacement) -> BodyOperator:
    source = node.source
    return BodyOperator(
        name=node.name,
        op_type=node.op_type,
        domain=node.domain,
        module=node.module,
        source=Where(file=source.file, line=source.line, code=source.code) if source else None,
        why=where.why,
        detail=where.detail,
    )


def _passes(node: Node) -> int | None:
    """How often a body runs at most in one run of its operator; None where only the run tells."""
    if node.op_type == "If":
        return 1
    if node.op_type == "Loop":
        limit = node.input(0)
        known = limit is not None and limit.value is not None
        return max(0, int(limit.value.reshape(-1)[0])) if known else None  # type: ignore[union-attr]  # known
    if node.op_type == "Scan" and node.version >= 9:
        scanned = node.inputs[-int(node.attributes["num_scan_inputs"])]
        axis = int((node.attributes.get("scan_input_axes") or (0,))[0])
        return scanned.shape[axis] if scanned is not None and scanned.shape else None
    return None
